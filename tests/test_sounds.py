"""Sounds of every kind: the stored samples are the logged ones, as loud as they were."""

from __future__ import annotations

import math
import os
import re
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
import trackio

from reading import logged_file, media, new_name, rows, series
from torchrl_trackio import TrackioLogger, TrackioWarning


def stored(logger: TrackioLogger, audio: Any, **options: Any) -> Path:
    """The file of a sound that is logged."""
    return logged_file(logger.log_audio, audio, **options)


def samples(path: Path) -> tuple[int, np.ndarray]:
    """Sample rate and samples ``(T, C)`` of a 16-bit WAV file."""
    with wave.open(str(path)) as file:
        assert file.getsampwidth() == 2
        data = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return file.getframerate(), data.reshape(-1, file.getnchannels())


NOISE = np.random.default_rng(0).integers(-(2**15), 2**15, (50, 2), dtype=np.int16)
MONO = NOISE[:, :1]
SHAPES: dict[str, tuple[Any, np.ndarray]] = {
    "(T,)": (MONO[:, 0], MONO),
    "(T, 1)": (MONO, MONO),
    "(1, T)": (MONO.T, MONO),
    "(T, 2)": (NOISE, NOISE),
    "(2, T)": (NOISE.T, NOISE),
    "(3, 2)": (NOISE[:3], NOISE[:3]),
    "one sample": (MONO[0], MONO[:1]),
    "tensor (2, T)": (torch.from_numpy(NOISE).T, NOISE),
    "backwards": (NOISE[::-1].copy()[::-1], NOISE),
}


@pytest.mark.parametrize(("audio", "expected"), SHAPES.values(), ids=SHAPES)
def test_every_shape(shared: TrackioLogger, audio: Any, expected: np.ndarray) -> None:
    """The shorter axis holds the channels, which keep their order."""
    rate, found = samples(stored(shared, audio, sample_rate=8000))
    assert rate == 8000
    np.testing.assert_array_equal(found, expected)


def tensor(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values).to(dtype)


TYPES: dict[str, tuple[Any, list[int]]] = {
    "float32": (tensor(0.0, 0.5, -1.0, 1.0), [0, 16384, -32767, 32767]),
    "quiet": (tensor(0.0, 0.001, -0.001), [0, 33, -33]),
    "float64": (tensor(0.25, dtype=torch.float64), [8192]),
    "float16": (tensor(0.25, -1.0, dtype=torch.float16), [8192, -32767]),
    "bfloat16": (tensor(0.25, dtype=torch.bfloat16), [8192]),
    "float16 array": (np.array([0.25, 1.0], np.float16), [8192, 32767]),
    "longdouble array": (np.array([0.25], np.longdouble), [8192]),
    "big-endian array": (np.array([1000, -1000], ">i2"), [1000, -1000]),
    "beyond 1": (tensor(1.5, -1.5), [32767, -32767]),
    "NaN": (tensor(math.nan, 0.5), [0, 16384]),
    "requires grad": (tensor(0.25).requires_grad_(), [8192]),
    "negative view": (torch.tensor([0.25j]).conj().imag, [-8192]),
    "int8": (tensor(-128, 0, 127, dtype=torch.int8), [-32768, 0, 32512]),
    "uint8": (tensor(0, 128, 255, dtype=torch.uint8), [-32768, 0, 32512]),
    "int16": (tensor(-32768, 5, 32767, dtype=torch.int16), [-32768, 5, 32767]),
    "uint16": (np.array([0, 32768, 65535], np.uint16), [-32768, 0, 32767]),
    "int32": (torch.tensor([-(2**31), 65536, 2**31 - 1], dtype=torch.int32), [-32768, 1, 32767]),
}


@pytest.mark.parametrize(("audio", "expected"), TYPES.values(), ids=TYPES)
def test_every_type_of_number(shared: TrackioLogger, audio: Any, expected: list[int]) -> None:
    """As loud as it was: not normalised, clipped beyond the range, NaN as silence, and without a warning."""
    np.testing.assert_array_equal(samples(stored(shared, audio, sample_rate=16000))[1][:, 0], expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_sound_on_a_gpu(shared: TrackioLogger) -> None:
    """It is copied from the device."""
    found = samples(stored(shared, torch.from_numpy(NOISE).cuda(), sample_rate=8000))[1]
    np.testing.assert_array_equal(found, NOISE)


@pytest.mark.parametrize("audio", [tensor(1000.0, -32768.0), tensor(math.inf, -math.inf)], ids=["int16s", "infinities"])
def test_floats_that_are_not_in_the_range_are_warned_about(shared: TrackioLogger, audio: torch.Tensor) -> None:
    """16-bit samples that became floats would be nothing but noise."""
    with pytest.warns(TrackioWarning, match=r"far beyond \[-1, 1\] is clipped: divide it"):
        path = stored(shared, audio, sample_rate=8000)
    np.testing.assert_array_equal(samples(path)[1][:, 0], [32767, -32767])


RATES = {"int": 44100, "numpy": np.int64(44100), "tensor": torch.tensor(44100), "integral float": 44100.0}


@pytest.mark.parametrize("rate", RATES.values(), ids=RATES)
def test_the_sample_rate_is_stored(shared: TrackioLogger, rate: Any) -> None:
    """Any integral number of Hz."""
    assert samples(stored(shared, NOISE, sample_rate=rate))[0] == 44100


def test_samples_may_be_changed_after_the_call(shared: TrackioLogger) -> None:
    """One buffer serves for many sounds."""
    buffers: dict[str, Any] = {"tensor": torch.from_numpy(NOISE.copy()), "array": NOISE.copy()}
    for name, buffer in buffers.items():
        shared.log_audio(name, buffer, step=1, sample_rate=8000)
        buffer[:] = 0
    shared.flush()
    for name in buffers:
        ((_, path),) = media(shared.log_dir, name)
        np.testing.assert_array_equal(samples(path)[1], NOISE)


def encode(path: Path, codec: str, container: str, *, rate: int = 48000) -> None:
    """Write a short sound file."""
    with av.open(str(path), "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate, layout="mono")
        resampler = av.AudioResampler(format=stream.format, layout="mono", rate=rate)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 9600), np.int16), format="s16", layout="mono")
        frame.rate = rate
        for part in resampler.resample(frame):
            file.mux(stream.encode(part))
        file.mux(stream.encode(None))


def entry(path: Path) -> os.DirEntry[str]:
    """A path in another form."""
    return {found.name: found for found in os.scandir(path.parent)}[path.name]


FILES = {"a.wav": ("pcm_s16le", "wav"), "a.mp3": ("libmp3lame", "mp3"), "a.ogg": ("libopus", "ogg")} | {
    "a.flac": ("flac", "flac"),
    "called.wav": ("libmp3lame", "mp3"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", [str, Path, entry], ids=["str", "Path", "other PathLike"])
def test_a_file_is_stored_as_it_is(
    shared: TrackioLogger, tmp_path: Path, name: str, kind: Callable[[Path], Any]
) -> None:
    """Byte for byte, whatever its name says, and also if it is deleted after the call."""
    path = tmp_path / name
    encode(path, *FILES[name])
    content = path.read_bytes()
    metric = new_name()
    shared.log_audio(metric, kind(path), step=1)
    path.unlink()
    shared.flush()
    ((_, found),) = media(shared.log_dir, metric)
    assert found.read_bytes() == content


def test_a_sound_shares_the_row_of_its_step_and_has_a_caption(logger: TrackioLogger, project: str) -> None:
    """It is one value of the step, counted on like any other."""
    logger.log_scalar("x", 1.0, step=3)
    logger.log_audio("a", NOISE, step=3, sample_rate=8000, caption="c")
    logger.log_audio("a", NOISE, sample_rate=8000)
    logger.flush()
    first, second = ({**row, "a": {k: v for k, v in row["a"].items() if k != "file_path"}} for _, row in rows(project))
    assert first == {"x": 1.0, "a": {"_type": "trackio.audio", "caption": "c"}}
    assert second == {"a": {"_type": "trackio.audio", "caption": None}}
    assert [step for step, _ in series(project, "a")] == [3, 4]


def test_trackios_own_audio_passes(shared: TrackioLogger) -> None:
    """As it is; a caption goes to what is stored, not to the object."""
    audio = trackio.Audio(NOISE, sample_rate=8000, caption="mine")
    np.testing.assert_array_equal(samples(stored(shared, audio, caption="other"))[1], NOISE)
    assert audio.caption == "mine"


SHAPE = (
    "audio must have the shape (T,), (T, C) or (C, T), with 1 or 2 channels and more samples than channels; got "
    "Tensor of shape {} and dtype torch.float32"
)
RATE = "sample_rate must be an integer from 3000 to 384000 Hz, got"
RANGE = (
    "audio must be floats in [-1, 1] or int8, int16, int32, uint8 or uint16, whose range says how loud it is; got "
    "Tensor of shape (5,) and dtype"
)
TYPE = "audio must be a tensor or array of samples, the path of an audio file or a trackio.Audio, got"
NO_RATE = "samples need a sample_rate in Hz: pass sample_rate=, for example 16000"
OK: dict[str, Any] = {"sample_rate": 8000}
BAD: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "no samples": (torch.zeros(0), OK, ValueError, SHAPE.format("(0,)")),
    "no number": (torch.zeros(()), OK, ValueError, SHAPE.format("()")),
    "three channels": (torch.zeros(3, 50), OK, ValueError, SHAPE.format("(3, 50)")),
    "ambiguous": (torch.zeros(2, 2), OK, ValueError, SHAPE.format("(2, 2)")),
    "no channels": (torch.zeros(50, 0), OK, ValueError, SHAPE.format("(50, 0)")),
    "three dimensions": (torch.zeros(1, 2, 50), OK, ValueError, SHAPE.format("(1, 2, 50)")),
    "int64": (torch.zeros(5, dtype=torch.int64), OK, TypeError, f"{RANGE} torch.int64"),
    "bool": (torch.zeros(5, dtype=torch.bool), OK, TypeError, f"{RANGE} torch.bool"),
    "complex": (
        torch.zeros(5, dtype=torch.complex64),
        OK,
        TypeError,
        f"{TYPE} Tensor of shape (5,) and dtype torch.complex64",
    ),
    "list": ([0.0], OK, TypeError, f"{TYPE} [0.0] (list)"),
    "None": (None, OK, TypeError, f"{TYPE} None (NoneType)"),
    "meta": (
        torch.zeros(5, device="meta"),
        OK,
        TypeError,
        f"{TYPE} Tensor of shape (5,) and dtype torch.float32, on device meta with layout torch.strided",
    ),
    "no rate": (torch.zeros(5), {}, TypeError, NO_RATE),
    "rate of text": (
        torch.zeros(5),
        {"sample_rate": "8000"},
        TypeError,
        "sample_rate must be an integer, in Hz, got '8000' (str)",
    ),
    "rate of bool": (
        torch.zeros(5),
        {"sample_rate": True},
        TypeError,
        "sample_rate must be an integer, in Hz, got True (bool)",
    ),
    "rate 0": (torch.zeros(5), {"sample_rate": 0}, ValueError, f"{RATE} 0 (int)"),
    "rate between integers": (torch.zeros(5), {"sample_rate": 8000.5}, ValueError, f"{RATE} 8000.5 (float)"),
    "rate in kHz": (torch.zeros(5), {"sample_rate": 44.1}, ValueError, f"{RATE} 44.1 (float)"),
    "rate of a file": (
        "a.wav",
        OK,
        ValueError,
        "sample_rate is for samples, got 8000 with 'a.wav' (str): leave it out",
    ),
    "no file": (
        "missing.wav",
        {},
        ValueError,
        "audio was to be read from 'missing.wav', where there is nothing: pass the path of an existing file",
    ),
    "caption": (torch.zeros(5), {**OK, "caption": 5}, TypeError, "a caption must be a string, got 5 (int)"),
}


@pytest.mark.parametrize(("audio", "options", "error", "message"), BAD.values(), ids=BAD)
def test_bad_sounds_are_refused_at_the_call(
    logger: TrackioLogger, project: str, audio: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """The call raises, and says what it got and takes; the step's other values stay, and no count moves."""
    logger.log_scalar("x", 1.0, step=3)
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        logger.log_audio("a", audio, **options)
    logger.log_scalar("a", 3.0)
    logger.flush()
    assert rows(project) == [(3, {"x": 1.0}), (0, {"a": 3.0})]


def test_other_files_are_refused(shared: TrackioLogger, tmp_path: Path) -> None:
    """By what is in them, not by their names."""
    (tmp_path / "text.wav").write_text("no sound")
    with pytest.raises(
        ValueError, match=r"^audio must be a WAV, MP3, Ogg or FLAC file; '.*text\.wav' is no audio file"
    ):
        shared.log_audio("text", tmp_path / "text.wav")
    encode(tmp_path / "aiff.wav", "pcm_s16be", "aiff")
    with pytest.raises(ValueError, match=r"^audio must be a WAV, MP3, Ogg or FLAC file; '.*aiff\.wav' holds aiff$"):
        shared.log_audio("aiff", tmp_path / "aiff.wav")
