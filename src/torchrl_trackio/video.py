"""Videos: from torchrl's tensors to files that play in the dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import av.subtitles.stream  # PyAV would in the background, and a fork meanwhile would leave the import's lock held
import numpy as np
import torch

from torchrl_trackio.arrays import describe, is_plain
from torchrl_trackio.pixels import channels_are_last, from_array, grid, scale_of, to_bytes

# Format: encoder, pixel format, its options, the file's options. Browsers play 4:2:0 only. One thread
# encodes the small frames of environments faster than several, and leaves the other cores to the training.
_ENCODERS: dict[str, tuple[str, str, dict[str, str], dict[str, str]]] = {
    "mp4": ("libx264", "yuv420p", {"preset": "superfast", "crf": "23", "threads": "1"}, {"movflags": "+faststart"}),
    "webm": ("libvpx-vp9", "yuv420p", {"deadline": "realtime", "cpu-used": "8", "crf": "31", "b:v": "0"}, {}),
    "gif": ("gif", "pal8", {}, {"loop": "0"}),
}
_MOST_FPS = {"mp4": 1000, "webm": 1000, "gif": 100}  # a gif counts in hundredths of a second
_MOST_SPARE = 256 * 2**20  # bytes

_spare: list[torch.Tensor] = []  # the memory of the last video: touching new memory takes several times its copy


class Video:
    """A private copy of the frames of one video, ready to be encoded in the background.

    Args:
        frames: ``(T, C, H, W)`` or ``(N, T, C, H, W)``, or with the channels last; C of 1 (gray), 3 (RGB) or 4 (RGBA,
            put on black); tensor or array on any device. Integers in [0, 255], bools, or floats in [0, 1]; floats
            beyond 2 are taken for [0, 255]. What lies outside is clipped, NaN is black. N videos are tiled in a grid.
        fps: frames per second, above 0, at most 1000; at most 100 in a gif.
        format: ``"mp4"`` (H.264), ``"webm"`` (VP9) or ``"gif"``.

    Raises:
        TypeError: if the frames or fps are of another type.
        ValueError: if the shape, fps or format are none of these.
    """

    def __init__(self, frames: Any, fps: float, format: str = "mp4") -> None:  # noqa: A002
        if format not in _ENCODERS:
            raise ValueError(f"format must be one of {', '.join(map(repr, _ENCODERS))}, got {format!r}")
        self.format = format
        self.fps = checked_fps(fps, format)
        if isinstance(frames, np.ndarray) and frames.dtype.kind in "biuf":
            self._channels_last = _channels_are_last(frames)
            self._frames = from_array(frames)
        elif isinstance(frames, torch.Tensor) and is_plain(frames) and not frames.is_complex():
            self._channels_last = _channels_are_last(frames)
            self._frames = _private(frames.detach())
        else:
            raise TypeError(f"a video must be a tensor or array of integers or floats, got {describe(frames)}")

    def encode(self, path: Path) -> None:
        """Write the file, once. Odd heights and widths gain a line that repeats the last one: 4:2:0 needs even ones."""
        codec, pixel_format, options, file_options = _ENCODERS[self.format]
        with av.open(str(path), "w", format=self.format, options=file_options) as file:
            stream: Any = None
            graph: Any = None
            for index, array in enumerate(self._tiled_frames()):
                if stream is None:
                    stream = file.add_stream(codec, rate=self.fps, options=options)
                    stream.height, stream.width, stream.pix_fmt = *array.shape[:2], pixel_format
                    graph = _palette(stream.width, stream.height, 1 / self.fps) if self.format == "gif" else None
                frame = av.VideoFrame.from_ndarray(array, format="rgb24")
                frame.pts, frame.time_base = index, 1 / self.fps
                if graph is None:
                    file.mux(stream.encode(frame))
                else:
                    graph.push(frame)
            if graph is not None:
                graph.push(None)
                for _ in range(index + 1):
                    file.mux(stream.encode(graph.pull()))
            file.mux(stream.encode(None))
        _give_back(self._frames)

    def _tiled_frames(self) -> Iterator[np.ndarray]:
        """uint8 RGB frames ``(H, W, 3)`` with even H and W, one at a time, each in the place of the one before."""
        videos = self._frames if self._frames.ndim == 5 else self._frames[None]
        scale = scale_of(videos)
        videos = videos if self._channels_last else videos.permute(0, 1, 3, 4, 2)
        count, length, height, width = videos.shape[:4]
        rows, columns = grid(count)
        image = np.zeros((_even(rows * height), _even(columns * width), 3), np.uint8)
        for time in range(length):
            for tile in range(count):
                top, left = tile // columns * height, tile % columns * width
                _paint(image[top : top + height, left : left + width], videos[tile, time], scale)
            image[rows * height :] = image[rows * height - 1]
            image[:, columns * width :] = image[:, columns * width - 1, None]
            yield image


def checked_fps(fps: Any, format: str = "mp4") -> Fraction:  # noqa: A002
    """Frames per second that the format can keep.

    Raises:
        TypeError: if ``fps`` is no number.
        ValueError: if it is out of range.
    """
    most = _MOST_FPS[format]
    try:
        number = float(fps)
    except (TypeError, ValueError, RuntimeError):
        number = None
    if number is None or isinstance(fps, (str, bytes, bool)):
        raise TypeError(f"fps must be a number, got {describe(fps)}")
    if not 0 < number <= most:
        raise ValueError(f"fps must be above 0 and at most {most}, got {fps!r}")
    return Fraction(number).limit_denominator(1001 if number >= 1 else 100_000) or Fraction(1, 100_000)


def _channels_are_last(frames: torch.Tensor | np.ndarray) -> bool:
    last = channels_are_last(frames.shape) if frames.ndim in (4, 5) else None
    if last is None:
        raise ValueError(
            "a video must have the shape (T, C, H, W) or (N, T, C, H, W), or the channels last, with 1, 3 or 4 "
            f"channels and at least one frame; got {describe(frames)}"
        )
    return last


def _private(frames: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU, in spare memory if there is enough."""
    size = frames.numel() * frames.element_size()
    try:
        memory = _spare.pop()
    except IndexError:
        memory = torch.empty(0, dtype=torch.uint8, device="cpu")
    if memory.numel() < size:
        memory = torch.empty(size, dtype=torch.uint8, device="cpu")
    return memory[:size].view(frames.dtype).view(frames.shape).copy_(frames)


def _give_back(frames: torch.Tensor) -> None:
    memory = torch.empty(0, dtype=torch.uint8, device="cpu").set_(frames.untyped_storage())
    if not _spare and memory.numel() <= _MOST_SPARE:
        _spare.append(memory)


def _paint(image: np.ndarray, frame: torch.Tensor, scale: float | None) -> None:
    """Put a frame ``(H, W, C)`` into its place ``(H, W, 3)`` in an image."""
    array = to_bytes(frame, scale)
    if array.shape[2] == 4:
        array = array[..., :3].astype(np.uint16) * array[..., 3:] // 255
    for channel in range(3):  # twice as fast as all at once, where the channels come first in memory
        image[..., channel] = array[..., channel if array.shape[2] > 1 else 0]


def _even(size: int) -> int:
    return size + size % 2


def _palette(width: int, height: int, time_base: Fraction) -> Any:
    """A filter graph that gives a gif the 256 colours that suit it best."""
    graph = av.filter.Graph()
    source = graph.add_buffer(width=width, height=height, format=av.VideoFormat("rgb24"), time_base=time_base)
    split, palette = graph.add("split"), graph.add("palettegen")
    use, sink = graph.add("paletteuse"), graph.add("buffersink")
    source.link_to(split)
    split.link_to(use, 0, 0)
    split.link_to(palette, 1, 0)
    palette.link_to(use, 0, 1)
    use.link_to(sink)
    graph.configure()
    return graph
