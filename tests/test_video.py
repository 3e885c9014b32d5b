"""Video just works: of every shape, type, size and speed, looked into after decoding."""

from __future__ import annotations

import inspect
import itertools
import math
import re
import time
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.record import VideoRecorder

from reading import folder, frames, media, new_name, rows, seconds
from torchrl_trackio import TrackioLogger, TrackioWarning

RED, GREEN, BLUE, WHITE = (200, 0, 0), (0, 200, 0), (0, 0, 200), (200, 200, 200)
TOLERANCE = 8  # of a colour that was encoded in YUV, with loss


@pytest.fixture(scope="module")
def shared() -> Iterator[TrackioLogger]:
    """One logger for the tests that need no more than a name of their own."""
    with TrackioLogger("run", "test_video", video_fps=10) as logger:
        yield logger


@pytest.fixture
def name() -> str:
    """A name that no other test logs to."""
    return new_name()


def stored(logger: TrackioLogger, name: str) -> Path:
    """The file of the one video of that name."""
    logger.flush()
    ((_, path),) = media(logger.experiment.project, name)
    return path


def plain(color: tuple[int, ...], *, count: int = 3, size: tuple[int, int] = (16, 16)) -> torch.Tensor:
    """Frames ``(T, C, H, W)`` of one colour, uint8."""
    return torch.tensor(color, dtype=torch.uint8)[None, :, None, None].repeat(count, 1, *size)


def assert_color(pixels: np.ndarray, color: tuple[float, ...]) -> None:
    """All pixels are of that colour, as far as encoding keeps it."""
    assert np.abs(pixels.reshape(-1, 3) - np.array(color, dtype=float)).max() <= TOLERANCE


def moving_bar(count: int) -> torch.Tensor:
    """White frames with a black bar that moves on by four pixels each: no two are alike."""
    video = torch.full((count, 3, 16, 4 * count), 255, dtype=torch.uint8)
    for step in range(count):
        video[step, :, :, 4 * step : 4 * step + 4] = 0
    return video


SHAPES = {
    "(T, C, H, W)": lambda video: video,
    "(1, T, C, H, W)": lambda video: video[None],
    "(T, H, W, C)": lambda video: video.permute(0, 2, 3, 1),
    "(1, T, H, W, C)": lambda video: video.permute(0, 2, 3, 1)[None],
    "contiguous (T, H, W, C)": lambda video: video.permute(0, 2, 3, 1).contiguous(),
    "array": lambda video: video.numpy(),
    "array (T, H, W, C)": lambda video: video.permute(0, 2, 3, 1).numpy(),
}
CHANNELS = {"gray": ((120,), (120, 120, 120)), "RGB": ((200, 100, 0), (200, 100, 0))} | {
    "opaque RGBA": ((200, 100, 0, 255), (200, 100, 0)),
    "half transparent RGBA": ((200, 100, 0, 128), (100, 50, 0)),
    "transparent RGBA": ((200, 100, 0, 0), (0, 0, 0)),
}


@pytest.mark.parametrize("arrange", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(("color", "shown"), CHANNELS.values(), ids=CHANNELS)
def test_every_shape_and_number_of_channels(
    shared: TrackioLogger, name: str, arrange: Callable[[torch.Tensor], Any], color: Any, shown: Any
) -> None:
    """Channels first or last, batched or not, gray, RGB or RGBA, which is put on black."""
    shared.log_video(name, arrange(plain(color, size=(16, 24))), step=1)
    decoded = frames(stored(shared, name))
    assert decoded.shape == (3, 16, 24, 3)
    assert_color(decoded, shown)


def full(value: float, dtype: torch.dtype) -> torch.Tensor:
    """Gray frames of one value."""
    return torch.full((2, 3, 16, 16), value).to(dtype)


TYPES: dict[str, tuple[Any, int]] = {
    "uint8": (full(200, torch.uint8), 200),
    "int64": (full(200, torch.int64), 200),
    "int16 beyond 255": (full(300, torch.int16), 255),
    "int8 below 0": (full(-5, torch.int8), 0),
    "uint16": (full(200, torch.uint16), 200),
    "bool": (full(1, torch.bool), 255),
    "False": (full(0, torch.bool), 0),
    "float32": (full(0.8, torch.float32), 204),
    "float64": (full(0.8, torch.float64), 204),
    "float16": (full(0.5, torch.float16), 128),
    "bfloat16": (full(0.5, torch.bfloat16), 128),
    "float8": (full(0.5, torch.float8_e4m3fn), 128),
    "float of 1": (full(1.0, torch.float32), 255),
    "float a little beyond 1": (full(1.001, torch.float32), 255),
    "float to 255": (full(200.0, torch.float32), 200),
    "bfloat16 to 255": (full(200.0, torch.bfloat16), 200),
    "negative float": (full(-0.5, torch.float32), 0),
    "NaN": (full(math.nan, torch.float32), 0),
    "infinity": (full(math.inf, torch.float32), 255),
    "requires grad": (full(0.8, torch.float32).requires_grad_(), 204),
    "Parameter": (torch.nn.Parameter(full(0.8, torch.float32)), 204),
    "expanded": (torch.tensor(200, dtype=torch.uint8).expand(2, 3, 16, 16), 200),
    "float array": (np.full((2, 3, 16, 16), 0.8), 204),
    "bool array": (np.ones((2, 3, 16, 16), bool), 255),
    "read-only array": (np.broadcast_to(np.uint8(200), (2, 3, 16, 16)), 200),
    "flipped array": (np.full((2, 3, 16, 16), 200, np.uint8)[:, :, ::-1, ::-1], 200),
    "big-endian array": (np.full((2, 3, 16, 16), 200, ">u2"), 200),
    "longdouble array": (np.full((2, 3, 16, 16), 0.8, np.longdouble), 204),
}


@pytest.mark.parametrize(("video", "shade"), TYPES.values(), ids=TYPES)
def test_every_type_of_number(shared: TrackioLogger, name: str, video: Any, shade: int) -> None:
    """Integers in [0, 255] and floats in [0, 1] or [0, 255] come out as bright as they went in; the rest is clipped."""
    shared.log_video(name, video, step=1)
    decoded = frames(stored(shared, name))
    assert decoded.shape == (2, 16, 16, 3)
    assert_color(decoded, (shade, shade, shade))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_video_on_a_gpu(shared: TrackioLogger, name: str) -> None:
    """Frames are copied from the device, and may be overwritten there after the call."""
    video = full(0.8, torch.float32).cuda()
    shared.log_video(name, video, step=1)
    video.zero_()
    assert_color(frames(stored(shared, name)), (204, 204, 204))


def test_a_flipped_array_shows_flipped(shared: TrackioLogger, name: str) -> None:
    """Strides of all signs are followed: what is left in the view is left in the video."""
    video = np.zeros((2, 3, 16, 32), np.uint8)
    video[..., :16] = 200
    shared.log_video(name, video[..., ::-1], step=1)
    decoded = frames(stored(shared, name))
    assert decoded[:, :, :12].max() < 60
    assert decoded[:, :, 20:].min() > 140


SIZES = [(1, 1), (1, 2), (2, 1), (3, 3), (1, 64), (15, 17), (33, 16), (16, 33), (64, 64), (210, 160)]


@pytest.mark.parametrize("size", SIZES, ids=[f"{height}x{width}" for height, width in SIZES])
@pytest.mark.parametrize("format", ["mp4", "webm", "gif"])
def test_every_size(shared: TrackioLogger, name: str, size: tuple[int, int], format: str) -> None:  # noqa: A002
    """Odd heights and widths gain one line, of the last one's colour; nothing else changes."""
    shared.log_video(name, plain(WHITE, size=size), step=1, format=format)
    decoded = frames(stored(shared, name))
    assert decoded.shape == (3, size[0] + size[0] % 2, size[1] + size[1] % 2, 3)
    assert_color(decoded, WHITE)


GRIDS = {
    1: [[RED]],
    2: [[RED, GREEN]],
    3: [[RED, GREEN], [BLUE, None]],
    4: [[RED, GREEN], [BLUE, WHITE]],
    5: [[RED, GREEN, BLUE], [WHITE, RED, None]],
    7: [[RED, GREEN, BLUE], [WHITE, RED, GREEN], [BLUE, None, None]],
}


@pytest.mark.parametrize(("count", "grid"), GRIDS.items(), ids=GRIDS)
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_a_batch_is_tiled_in_a_grid(shared: TrackioLogger, name: str, count: int, grid: Any, last: bool) -> None:
    """N videos lie row by row in a grid as square as can be, which black fills up."""
    colors = itertools.islice(itertools.cycle([RED, GREEN, BLUE, WHITE]), count)
    batch = torch.stack([plain(color, size=(16, 32)) for color in colors])
    shared.log_video(name, batch.permute(0, 1, 3, 4, 2) if last else batch, step=1)
    decoded = frames(stored(shared, name))
    assert decoded.shape == (3, 16 * len(grid), 32 * len(grid[0]), 3)
    for row, tiles in enumerate(grid):
        for column, color in enumerate(tiles):
            middle = decoded[:, 16 * row + 4 : 16 * row + 12, 32 * column + 4 : 32 * column + 28]  # edges run
            assert_color(middle, color or (0, 0, 0))


def test_a_batch_of_odd_videos_is_tiled_without_gaps(shared: TrackioLogger, name: str) -> None:
    """The grid as a whole is made even, not its tiles."""
    shared.log_video(name, torch.stack([plain(WHITE, size=(5, 7))] * 3), step=1)
    decoded = frames(stored(shared, name))
    assert decoded.shape == (3, 10, 14, 3)
    assert_color(decoded[:, :4], WHITE)


@pytest.mark.parametrize("format", ["mp4", "webm", "gif"])
def test_every_frame_is_kept_in_order(shared: TrackioLogger, name: str, format: str) -> None:  # noqa: A002
    """As many frames as were given, each with what it showed."""
    shared.log_video(name, moving_bar(12), step=1, format=format)
    decoded = frames(stored(shared, name))
    assert len(decoded) == 12
    assert [int(frame.mean((0, 2)).reshape(12, 4).mean(1).argmin()) for frame in decoded] == list(range(12))


@pytest.mark.parametrize("format", ["mp4", "webm", "gif"])
@pytest.mark.parametrize("count", [1, 2, 20])
def test_identical_frames_are_all_kept(shared: TrackioLogger, name: str, format: str, count: int) -> None:  # noqa: A002
    """A still picture lasts as long as it should."""
    shared.log_video(name, plain(WHITE, count=count), step=1, format=format, fps=20)
    path = stored(shared, name)
    assert len(frames(path)) == count
    assert seconds(path) == pytest.approx(count / 20, abs=2e-3)


FORMATS = {
    "mp4": ("h264", "yuv420p", "trackio.video"),
    "webm": ("vp9", "yuv420p", "trackio.video"),
    "gif": ("gif", "bgra", "trackio.image"),
}


@pytest.mark.parametrize(("format", "details"), FORMATS.items(), ids=FORMATS)
def test_every_format_is_one_that_the_dashboard_plays(
    logger: TrackioLogger,
    project: str,
    format: str,  # noqa: A002
    details: tuple[str, str, str],
) -> None:
    """H.264 and VP9 as videos with 4:2:0 colours; a gif, which a video element does not play, as an image."""
    logger.log_video("v", plain(RED), step=4, format=format)
    logger.flush()
    ((step, row),) = rows(project)
    ((_, path),) = media(project, "v")
    with av.open(str(path)) as file:
        stream = file.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt, row["v"]["_type"]) == details
    assert (step, set(row), path.suffix) == (4, {"v"}, f".{format}")
    assert path.is_relative_to(folder() / "media" / project / "run" / "4")


def test_an_mp4_starts_to_play_before_it_is_loaded(shared: TrackioLogger, name: str) -> None:
    """Its index comes before its frames."""
    shared.log_video(name, plain(RED), step=1)
    content = stored(shared, name).read_bytes()
    assert 0 < content.index(b"moov") < content.index(b"mdat")


def test_a_gif_plays_for_ever(shared: TrackioLogger, name: str) -> None:
    """It repeats without end, and its colours are exact where there are few."""
    shared.log_video(name, plain((201, 33, 77)), step=1, format="gif")
    path = stored(shared, name)
    assert b"NETSCAPE2.0\x03\x01\x00\x00" in path.read_bytes()
    assert (frames(path) == (201, 33, 77)).all()


FPS = {
    "int": (5, Fraction(5)),
    "float": (29.97, Fraction(2997, 100)),
    "NTSC": (30000 / 1001, Fraction(30000, 1001)),
    "film": (23.976, Fraction(2997, 125)),
    "slow": (0.5, Fraction(1, 2)),
    "very slow": (0.0004, Fraction(1, 2500)),
    "fast": (240, Fraction(240)),
    "fastest": (1000, Fraction(1000)),
    "numpy": (np.float32(12), Fraction(12)),
    "tensor": (torch.tensor(7), Fraction(7)),
    "default": (None, Fraction(10)),
}


@pytest.mark.parametrize(("fps", "rate"), FPS.values(), ids=FPS)
def test_the_asked_fps_is_the_stored_fps(shared: TrackioLogger, name: str, fps: Any, rate: Fraction) -> None:
    """Twenty frames last twenty times as long as one; without ``fps``, the logger's ``video_fps`` counts."""
    shared.log_video(name, plain(RED, count=20), step=1, fps=fps)
    path = stored(shared, name)
    assert seconds(path) == pytest.approx(float(20 / rate), rel=1e-3)
    with av.open(str(path)) as file:
        assert file.streams.video[0].average_rate == rate


@pytest.mark.parametrize("format", ["webm", "gif"])
@pytest.mark.parametrize("fps", [1, 12.5, 30, 100])
def test_other_formats_keep_the_fps(shared: TrackioLogger, name: str, format: str, fps: float) -> None:  # noqa: A002
    """As closely as thousandths (webm) or hundredths (gif) of a second allow, without drift."""
    shared.log_video(name, moving_bar(20), step=1, fps=fps, format=format)
    assert seconds(stored(shared, name)) == pytest.approx(20 / fps, abs=0.011)


def test_the_default_fps_is_thirty(project: str) -> None:
    """A logger that was told nothing stores 30 frames a second."""
    with TrackioLogger("run", project) as logger:
        logger.log_video("v", plain(RED, count=30), step=0)
    ((_, path),) = media(project, "v")
    assert seconds(path) == pytest.approx(1.0)


def test_frames_may_be_reused_after_the_call(shared: TrackioLogger) -> None:
    """One buffer serves for many videos, as tensor and as array, although they are encoded later."""
    buffer = torch.zeros(3, 3, 16, 16, dtype=torch.uint8)
    shown = {new_name(): (video, shade) for video in (buffer, buffer.numpy()) for shade in (40, 120, 200)}
    for name, (video, shade) in shown.items():
        buffer.fill_(shade)
        shared.log_video(name, video, step=1)
    buffer.fill_(0)
    for name, (_, shade) in shown.items():
        assert_color(frames(stored(shared, name)), (shade, shade, shade))


def test_a_video_has_a_row_of_its_own_at_its_step(logger: TrackioLogger, project: str) -> None:
    """The step's other values share their row, and wait for no encoder."""
    logger.log_scalar("before", 1.0, step=5)
    logger.log_video("video", moving_bar(50), step=5)
    logger.log_scalar("after", 2.0, step=5)
    logger.log_video("gif", plain(RED), step=5, format="gif")
    logger.log_scalar("next", 3.0, step=6)
    logger.flush()
    stored = [(step, row if "video" not in row and "gif" not in row else set(row)) for step, row in rows(project)]
    assert sorted(stored, key=str) == [
        (5, {"before": 1.0, "after": 2.0}),
        (5, {"gif"}),
        (5, {"video"}),
        (6, {"next": 3.0}),
    ]


def test_the_call_does_not_wait_for_the_encoder(shared: TrackioLogger, name: str) -> None:
    """It takes a small part of the time until the video is stored."""
    video = torch.randint(0, 255, (100, 3, 256, 256), dtype=torch.uint8)
    shared.flush()
    start = time.perf_counter()
    shared.log_video(name, video, step=1)
    called = time.perf_counter() - start
    path = stored(shared, name)
    assert called < (time.perf_counter() - start) / 3
    assert len(frames(path)) == 100


def test_more_videos_than_may_wait_are_all_stored(logger: TrackioLogger, project: str) -> None:
    """The caller waits for room in the queue; no video is dropped, and they come in order."""
    for step in range(15):
        logger.log_video("v", plain((10 * step,) * 3), step=step)
    logger.flush()
    shades = [(step, round(float(frames(path).mean()) / 10)) for step, path in media(project, "v")]
    assert shades == [(step, step) for step in range(15)]


def test_a_video_recorder_end_to_end(logger: TrackioLogger, project: str) -> None:
    """What torchrl's own VideoRecorder dumps is a video of its frames at the dump's step, each time another."""
    recorder = VideoRecorder(logger, tag="eval/video", fps=4)
    has_step = "step" in inspect.signature(recorder.dump).parameters  # torchrl >= 0.11
    for step, shade in ((100, 40), (250, 200)):
        for _ in range(5):
            recorder(TensorDict({"pixels": torch.full((20, 16, 3), shade, dtype=torch.uint8)}, []))
        recorder.dump(**({"step": step} if has_step else {}))
    recorder.dump()  # nothing new
    logger.log_scalar("reward", 1.0, step=250)
    logger.flush()
    videos = media(project, "eval/video")
    assert [step for step, _ in videos] == ([100, 250] if has_step else [0, 1])
    for (_, path), shade in zip(videos, (40, 200), strict=True):
        assert frames(path).shape == (5, 20, 16, 3)
        assert_color(frames(path), (shade,) * 3)
        assert seconds(path) == pytest.approx(5 / 4)
    assert (250, {"reward": 1.0}) in rows(project)


def test_a_video_recorder_passes_its_options_on(logger: TrackioLogger, project: str) -> None:
    """Options of log_video may be given to the recorder; a suffix goes to the name."""
    recorder = VideoRecorder(logger, tag="v", format="gif")
    for shade in (0.0, 255.0):
        recorder(TensorDict({"pixels": torch.full((3, 16, 16), shade)}, []))
    recorder.dump(suffix="end")
    logger.flush()
    ((_, path),) = media(project, "v_end")
    assert (path.suffix, len(frames(path))) == (".gif", 2)


SHAPE = (
    "a video must have the shape (T, C, H, W) or (N, T, C, H, W), or the channels last, with 1, 3 or 4 channels and at "
    "least one frame; got"
)
TYPE = "a video must be a tensor or array of integers or floats, got"
BAD: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "one frame": (torch.zeros(3, 8, 8), {}, ValueError, f"{SHAPE} Tensor of shape (3, 8, 8) and dtype torch.float32"),
    "six dimensions": (
        np.zeros((1, 1, 2, 3, 8, 8)),
        {},
        ValueError,
        f"{SHAPE} ndarray of shape (1, 1, 2, 3, 8, 8) and dtype float64",
    ),
    "two channels": (
        torch.zeros(2, 2, 8, 8),
        {},
        ValueError,
        f"{SHAPE} Tensor of shape (2, 2, 8, 8) and dtype torch.float32",
    ),
    "no frames": (
        torch.zeros(0, 3, 8, 8),
        {},
        ValueError,
        f"{SHAPE} Tensor of shape (0, 3, 8, 8) and dtype torch.float32",
    ),
    "no videos": (
        torch.zeros(0, 2, 3, 8, 8),
        {},
        ValueError,
        f"{SHAPE} Tensor of shape (0, 2, 3, 8, 8) and dtype torch.float32",
    ),
    "no height": (
        torch.zeros(2, 3, 0, 8),
        {},
        ValueError,
        f"{SHAPE} Tensor of shape (2, 3, 0, 8) and dtype torch.float32",
    ),
    "None": (None, {}, TypeError, f"{TYPE} None (NoneType)"),
    "list": ([[1]], {}, TypeError, f"{TYPE} [[1]] (list)"),
    "list of frames": (
        [torch.zeros(3, 8, 8)] * 2,
        {},
        TypeError,
        f"{TYPE} list of 2, the first a Tensor of shape (3, 8, 8) and dtype torch.float32",
    ),
    "path": ("video.mp4", {}, TypeError, f"{TYPE} 'video.mp4' (str)"),
    "complex": (
        torch.zeros(2, 3, 8, 8, dtype=torch.complex64),
        {},
        TypeError,
        f"{TYPE} Tensor of shape (2, 3, 8, 8) and dtype torch.complex64",
    ),
    "text array": (np.full((2, 3, 8, 8), "a"), {}, TypeError, f"{TYPE} ndarray of shape (2, 3, 8, 8) and dtype <U1"),
    "meta": (
        torch.zeros(2, 3, 8, 8, device="meta"),
        {},
        TypeError,
        f"{TYPE} Tensor of shape (2, 3, 8, 8) and dtype torch.float32, on device meta with layout torch.strided",
    ),
    "sparse": (
        torch.zeros(2, 3, 8, 8).to_sparse(),
        {},
        TypeError,
        f"{TYPE} Tensor of shape (2, 3, 8, 8) and dtype torch.float32, on device cpu with layout torch.sparse_coo",
    ),
    "fps 0": (plain(RED), {"fps": 0}, ValueError, "fps must be above 0 and at most 1000, got 0"),
    "fps below 0": (plain(RED), {"fps": -1.5}, ValueError, "fps must be above 0 and at most 1000, got -1.5"),
    "fps NaN": (plain(RED), {"fps": math.nan}, ValueError, "fps must be above 0 and at most 1000, got nan"),
    "fps infinite": (plain(RED), {"fps": math.inf}, ValueError, "fps must be above 0 and at most 1000, got inf"),
    "fps too high": (plain(RED), {"fps": 1001}, ValueError, "fps must be above 0 and at most 1000, got 1001"),
    "gif fps too high": (
        plain(RED),
        {"fps": 101, "format": "gif"},
        ValueError,
        "fps must be above 0 and at most 100, got 101",
    ),
    "fps text": (plain(RED), {"fps": "30"}, TypeError, "fps must be a number, got '30' (str)"),
    "fps bool": (plain(RED), {"fps": True}, TypeError, "fps must be a number, got True (bool)"),
    "fps list": (plain(RED), {"fps": [30]}, TypeError, "fps must be a number, got [30] (list)"),
    "format": (plain(RED), {"format": "avi"}, ValueError, "format must be one of 'mp4', 'webm', 'gif', got 'avi'"),
    "no format": (plain(RED), {"format": None}, ValueError, "format must be one of 'mp4', 'webm', 'gif', got None"),
    "option": (
        plain(RED),
        {"codec": "h264"},
        TypeError,
        "TrackioLogger.log_video() got an unexpected keyword argument 'codec'",
    ),
}


@pytest.mark.parametrize(("video", "options", "error", "message"), BAD.values(), ids=BAD)
def test_bad_videos_are_refused_at_the_call(
    logger: TrackioLogger, project: str, video: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """The call raises, and says what it got and takes; the step's other values stay, and no count moves."""
    logger.log_scalar("x", 1.0, step=3)
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        logger.log_video("v", video, **options)
    logger.log_scalar("y", 2.0, step=3)
    logger.log_scalar("v", 3.0)
    logger.flush()
    assert rows(project) == [(3, {"x": 1.0, "y": 2.0}), (0, {"v": 3.0})]


@pytest.mark.parametrize("fps", [0, "30", math.nan])
def test_a_bad_default_fps_is_refused_by_the_constructor(project: str, fps: Any) -> None:
    """A wrong option is an error where it is given, not at the first video."""
    with pytest.raises((TypeError, ValueError), match=r"^fps must be"):
        TrackioLogger("run", project, video_fps=fps)


def flush_and_collect(logger: TrackioLogger, call: Callable[[int], object]) -> list[str]:
    """The warnings that ``call(3)``, ``call(4)`` and ``call(5)`` cause until all is stored."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in (3, 4, 5):
            call(step)
            logger.log_scalar("x", step, step=step)
        logger.flush()
    assert {one.category for one in caught} == {TrackioWarning}
    return [str(one.message) for one in caught]


def test_an_encoder_that_fails_is_warned_about_once(logger: TrackioLogger, project: str) -> None:
    """Frames wider than H.264 allows: one warning with metric and step; all other data and later videos are stored."""
    too_wide = torch.zeros(1, 3, 2, 20_000, dtype=torch.uint8)
    (message,) = flush_and_collect(logger, lambda step: logger.log_video("wide", too_wide, step=step))
    assert re.match(r"'wide' at step 3 could not be stored: \w+: .*libx264", message)
    logger.log_video("good", plain(RED), step=6)
    logger.flush()
    assert [row for row in rows(project) if "x" in row[1]] == [(step, {"x": step}) for step in (3, 4, 5)]
    ((step, path),) = media(project, "good")
    assert (step, len(frames(path))) == (6, 3)
    assert media(project, "wide") == []


def test_a_media_folder_that_cannot_be_written_is_warned_about_once(logger: TrackioLogger, project: str) -> None:
    """Where no file can be made: one warning with metric and step, all numbers stored, videos again once it can."""
    blocked = folder() / "media" / project
    blocked.parent.mkdir(exist_ok=True)
    blocked.write_text("in the way")
    (message,) = flush_and_collect(logger, lambda step: logger.log_video("v", plain(RED), step=step))
    assert re.search(r"'v' at step 3 could not be stored: \w+Error: .*media", message)
    blocked.unlink()
    logger.log_video("v", plain(RED), step=6)
    logger.flush()
    assert [row for row in rows(project) if "x" in row[1]] == [(step, {"x": step}) for step in (3, 4, 5)]
    assert [step for step, _ in media(project, "v")] == [6]


def test_the_default_device_does_not_matter(logger: TrackioLogger, project: str) -> None:
    """Where torch makes tensors by default, the private copy of the frames is in the CPU's memory."""
    frames = plain(RED)
    with torch.device("meta"):
        logger.log_video("v", frames, step=0)
        logger.flush()
    assert [step for step, _ in media(project, "v")] == [0]
