"""Sounds: from tensors, arrays and files to what browsers play."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
import trackio

from torchrl_trackio.arrays import describe, is_plain
from torchrl_trackio.errors import warn
from torchrl_trackio.files import captioned, check_caption, existing_file
from torchrl_trackio.values import to_scalar

_PLAYED = ("wav", "mp3", "ogg", "flac")  # containers, by FFmpeg's names, that browsers play
_RATES = range(3_000, 384_001)  # that Chromium decodes
# Where silence lies, and what takes it and the rest to 16 bits.
_INTEGERS = {
    np.dtype(np.int8): (0, 8),
    np.dtype(np.uint8): (2**7, 8),
    np.dtype(np.int16): (0, 0),
    np.dtype(np.uint16): (2**15, 0),
    np.dtype(np.int32): (0, -16),
}


def to_audio(audio: Any, sample_rate: Any = None, caption: str | None = None) -> trackio.Audio:
    """A private copy of a sound: as for :meth:`TrackioLogger.log_audio`.

    Raises:
        TypeError: if the audio, sample rate or caption is of another type, or the rate is missing.
        ValueError: if the shape or rate is none of these, or the file is missing or no sound.
    """
    check_caption(caption)
    if isinstance(audio, (str, os.PathLike, trackio.Audio)):
        if sample_rate is not None:
            raise ValueError(f"sample_rate is for samples, got {sample_rate!r} with {describe(audio)}: leave it out")
        if isinstance(audio, trackio.Audio):
            return captioned(audio, caption)
        return trackio.Audio(_checked_file(existing_file(audio, "audio")), caption)
    samples = _in_time(_numbers(audio), audio)
    return trackio.Audio(_to_int16(samples, audio), caption, _checked_rate(sample_rate), "wav")


def _checked_file(path: Path) -> Path:
    try:
        with av.open(str(path)) as file:
            if file.format.name in _PLAYED and file.streams.audio:
                return path
            found = f"holds {file.format.name}"
    except (av.error.FFmpegError, OSError) as error:
        found = f"is no audio file: {error}"
    raise ValueError(f"audio must be a WAV, MP3, Ogg or FLAC file; {str(path)!r} {found}")


def _checked_rate(rate: Any) -> int:
    if rate is None:
        raise TypeError("samples need a sample_rate in Hz: pass sample_rate=, for example 16000")
    try:
        number = to_scalar(rate)
    except TypeError:
        number = None
    if number is None or isinstance(rate, bool):
        raise TypeError(f"sample_rate must be an integer, in Hz, got {describe(rate)}")
    if number not in _RATES:
        raise ValueError(f"sample_rate must be an integer from {_RATES[0]} to {_RATES[-1]} Hz, got {describe(rate)}")
    return int(number)


def _numbers(audio: Any) -> np.ndarray:
    if isinstance(audio, torch.Tensor) and is_plain(audio) and not audio.is_complex():
        samples = audio.detach().cpu().resolve_neg()
        return np.asarray(samples.float() if samples.is_floating_point() else samples)
    if isinstance(audio, np.ndarray) and audio.dtype.kind in "biuf":
        return np.asarray(audio, np.promote_types(audio.dtype, np.float32)) if audio.dtype.kind == "f" else audio
    raise TypeError(
        "audio must be a tensor or array of samples, the path of an audio file or a trackio.Audio, "
        f"got {describe(audio)}"
    )


def _in_time(samples: np.ndarray, audio: Any) -> np.ndarray:
    """The samples as ``(T,)`` or ``(T, C)``."""
    if samples.size and samples.ndim == 1:
        return samples
    if samples.size and samples.ndim == 2:
        first, last = (size in (1, 2) for size in samples.shape)
        if first != last:
            return samples.T if first else samples
    raise ValueError(
        "audio must have the shape (T,), (T, C) or (C, T), with 1 or 2 channels and more samples than channels; "
        f"got {describe(audio)}"
    )


def _to_int16(samples: np.ndarray, audio: Any) -> np.ndarray:
    """By ourselves: Trackio makes quiet sounds loud, and warns."""
    if samples.dtype.kind == "f":
        samples = np.nan_to_num(samples, nan=0.0)
        if max(samples.max(), -samples.min()) > 2:
            warn("audio of floats far beyond [-1, 1] is clipped: divide it by its largest value, 32768 for 16 bits")
        loudness: np.ndarray = np.rint(samples.clip(-1, 1) * 32767)
        return loudness.astype(np.int16)
    dtype = samples.dtype.newbyteorder("=")
    if dtype not in _INTEGERS:
        raise TypeError(
            "audio must be floats in [-1, 1] or int8, int16, int32, uint8 or uint16, whose range says how loud it is; "
            f"got {describe(audio)}"
        )
    silence, shift = _INTEGERS[dtype]
    centred: np.ndarray = samples.astype(np.int32) - silence
    shifted: np.ndarray = centred << shift if shift >= 0 else centred >> -shift
    return shifted.astype(np.int16)
