"""Histograms that are counted in the background."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from torchrl_trackio.arrays import describe, numbers

Bins = int | str | Sequence[float]

_MOST_BINS = 512  # that Trackio keeps
_WIDEST = 8e307  # numpy's edges overflow where the values lie further apart than the largest float


class PendingHistogram:
    """A histogram that is still to be counted: a private copy of its values, and its bins.

    Counting a million values takes milliseconds and copying them takes a tenth of that, so the training thread copies
    and the background counts.

    Args:
        data: numbers of any shape, real dtype and device, as tensor, array or sequence. NaN and infinities do not
            count.
        bins: number of equally wide bins, 1 to 512 (the most that Trackio keeps); or the name of one of
            :func:`numpy.histogram_bin_edges`' estimators; or at least two rising edges.

    Raises:
        TypeError: if ``data`` are not real numbers or ``bins`` is of another type.
        ValueError: if ``bins`` is out of range.
    """

    def __init__(self, data: Any, bins: Bins | None = 64) -> None:
        self.bins = _checked_bins(bins)
        self.data = numbers(data)

    @property
    def nbytes(self) -> int:
        """Bytes that the copy holds."""
        return self.data.nbytes

    def count(self) -> tuple[np.ndarray, np.ndarray]:
        """Counts ``(bins,)`` and edges ``(bins + 1,)``; both empty where no value is finite."""
        data = self.data.astype(np.float64)
        data = data[np.isfinite(data)].clip(-_WIDEST, _WIDEST)
        if not data.size:
            return np.array([]), np.array([])
        if isinstance(self.bins, np.ndarray):
            return np.histogram(data, self.bins)
        low, high = float(data.min()), float(data.max())
        margin = 1e-12 * max(-low, high) + 1e-300
        if high - low < margin:  # too close together for floats between them to be the edges
            margin = margin if low < high else max(margin, 0.5)  # numpy's own where all are equal
            low, high = low - margin, high + margin
        with np.errstate(all="ignore"):
            return np.histogram(data, _number_of_bins(data, self.bins), (low, high))


def _checked_bins(bins: Any) -> Any:
    if bins is None:
        return 64
    if isinstance(bins, str):
        try:
            np.histogram_bin_edges([0.0], bins=bins)
        except ValueError as error:
            raise ValueError(f"bins: {error}; numpy.histogram_bin_edges lists the estimators") from None
        return bins
    if isinstance(bins, (int, np.integer)) and not isinstance(bins, bool):
        if not 1 <= bins <= _MOST_BINS:
            raise ValueError(f"bins must be from 1 to {_MOST_BINS}, the most that Trackio keeps, got {bins}")
        return int(bins)
    if isinstance(bins, (Sequence, np.ndarray, torch.Tensor)):
        edges = numbers(bins).astype(np.float64)
        if not 2 <= len(edges) <= _MOST_BINS + 1 or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
            raise ValueError(f"bins must be 2 to 513 rising, finite edges, got {describe(bins)}")
        return edges
    raise TypeError(f"bins must be an integer, an estimator's name or a sequence of edges, got {describe(bins)}")


def _number_of_bins(data: np.ndarray, bins: int | str) -> int:
    """Of an estimator, at most what Trackio keeps: an outlier far from the rest makes it ask for billions."""
    if isinstance(bins, int):
        return bins
    try:
        return min(len(np.histogram_bin_edges(data, bins)) - 1, _MOST_BINS)
    except (ValueError, MemoryError):
        return _MOST_BINS
