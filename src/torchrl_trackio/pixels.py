"""Pixels: from tensors and arrays of any kind to bytes in [0, 255], one way for images and videos."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

_CHANNELS = (1, 3, 4)


def channels_are_last(shape: Sequence[int]) -> bool | None:
    """Whether it is ``(..., H, W, C)`` rather than ``(..., C, H, W)``; ``None`` if C is not 1, 3 or 4, or H or W 0."""
    if 0 in shape:
        return None
    if shape[-3] in _CHANNELS:
        return False
    return True if shape[-1] in _CHANNELS else None


def from_array(pixels: np.ndarray) -> torch.Tensor:
    """A copy; torch takes neither negative strides nor foreign byte orders nor numpy's extended precision."""
    dtype = np.dtype(np.float64) if pixels.dtype.itemsize > 8 else pixels.dtype.newbyteorder("=")
    return torch.from_numpy(np.array(pixels, dtype, order="C"))


def scale_of(pixels: torch.Tensor) -> float | None:
    """What takes the pixels to [0, 255]; ``None`` for uint8, which is there."""
    if pixels.dtype == torch.uint8:
        return None
    if pixels.dtype == torch.bool:
        return 255.0
    if not pixels.is_floating_point():
        return 1.0
    return 1.0 if pixels.float().nan_to_num(0, 0, 0).max() > 2 else 255.0


def to_bytes(pixels: torch.Tensor, scale: float | None) -> np.ndarray:
    """The pixels as uint8, clipped, NaN as 0; those that are uint8 already share their memory."""
    if scale is not None:
        pixels = (pixels.float() * scale).nan_to_num(0.0).clamp(0, 255).round().to(torch.uint8)
    return np.asarray(pixels)


def grid(count: int) -> tuple[int, int]:
    """Rows and columns of a grid as square as can be."""
    columns = math.ceil(math.sqrt(count))
    return math.ceil(count / columns), columns
