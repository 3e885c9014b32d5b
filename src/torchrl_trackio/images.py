"""Images: from tensors, arrays, PIL images and files to what browsers show."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trackio
from PIL import Image, ImageOps

from torchrl_trackio.arrays import describe, is_plain
from torchrl_trackio.errors import warn
from torchrl_trackio.files import captioned, check_caption, existing_file
from torchrl_trackio.pixels import channels_are_last, from_array, grid, scale_of, to_bytes

_SHOWN = {"AVIF", "BMP", "GIF", "ICO", "JPEG", "MPO", "PNG", "WEBP"}  # formats, by Pillow's names, that browsers show
_PNG_MODES = {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}
_MODES = {"La": "LA", "PA": "RGBA", "RGBa": "RGBA"}  # what keeps the transparency; of other modes, RGB keeps all


class PngImage(trackio.Image):  # type: ignore[misc]
    """Stored with the channels that it has, and fast: Trackio's own way, RGBA, takes several times as long."""

    def _save_media(self, file_path: Path) -> None:
        self._value.save(file_path, "PNG", compress_level=1)


def to_image(image: Any, caption: str | None = None) -> trackio.Image:
    """A private copy of an image, or of several in a grid: as for :meth:`TrackioLogger.log_image`.

    Raises:
        TypeError: if the image or caption is of another type.
        ValueError: if the shape is none of these, or the file is missing or no image.
    """
    check_caption(caption)
    if isinstance(image, trackio.Image):
        return captioned(image, caption)
    if isinstance(image, (str, os.PathLike)):
        return _from_file(existing_file(image, "an image"), caption)
    return PngImage(_from_pil(image) if isinstance(image, Image.Image) else _from_pixels(image), caption)


def _from_file(path: Path, caption: str | None) -> trackio.Image:
    try:
        with Image.open(path) as image:
            if image.format in _SHOWN:
                return trackio.Image(path, caption)
            return PngImage(_from_pil(ImageOps.exif_transpose(image)), caption)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:  # what Pillow raises
        if path.suffix.lower() == ".svg" and b"<svg" in path.read_bytes():
            return trackio.Image(path, caption)
        raise ValueError(f"{str(path)!r} is no image that Pillow reads: {error}") from None


def _from_pil(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        return _from_pixels(np.asarray(image))
    if image.mode == "I":  # as which some versions of Pillow open what has 16 bits
        pixels = np.asarray(image)
        return Image.fromarray(pixels.clip(0, 65535).astype(np.uint16)) if pixels.max() > 255 else _from_pixels(pixels)
    if image.mode.startswith("I;16"):
        return Image.fromarray(np.array(image, np.uint16))
    return image.copy() if image.mode in _PNG_MODES else image.convert(_MODES.get(image.mode, "RGB"))


def _from_pixels(image: Any) -> Image.Image:
    if isinstance(image, np.ndarray) and image.dtype.kind in "biuf":
        pixels = from_array(image)
    elif isinstance(image, torch.Tensor) and is_plain(image) and not image.is_complex():
        pixels = image.detach().cpu()
    else:
        raise TypeError(
            "an image must be a tensor or array of integers or floats, a PIL image, the path of an image file or a "
            f"trackio.Image, got {describe(image)}"
        )
    if pixels.ndim == 2:
        pixels = pixels[None]
    last = channels_are_last(pixels.shape) if pixels.ndim in (3, 4) else None
    if last is None:
        raise ValueError(
            "an image must have the shape (H, W), (C, H, W) or, for several, (N, C, H, W), or the channels last, with "
            f"1, 3 or 4 channels and at least one pixel; got {describe(image)}"
        )
    if pixels.is_floating_point() and pixels.float().min() < 0:
        warn("an image's negative values are black: map them to [0, 1], as by (x - x.min()) / (x.max() - x.min())")
    images = to_bytes(pixels, scale_of(pixels))
    images = images if images.ndim == 4 else images[None]
    tiled = _tiled(images if last else images.transpose(0, 2, 3, 1))
    return Image.fromarray(tiled[..., 0] if tiled.shape[2] == 1 else tiled)


def _tiled(images: np.ndarray) -> np.ndarray:
    """One image ``(H, W, C)`` of several ``(N, H, W, C)``; what they leave free is black, or transparent."""
    count, height, width, channels = images.shape
    rows, columns = grid(count)
    tiled = np.zeros((rows * columns, height, width, channels), np.uint8)
    tiled[:count] = images
    shape = (rows * height, columns * width, channels)
    return tiled.reshape(rows, columns, height, width, channels).swapaxes(1, 2).reshape(shape)
