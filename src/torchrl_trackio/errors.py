"""The package's own warning, and how it is given."""

from __future__ import annotations

import sys
import warnings

_OURS = {"torchrl_trackio", "torchrl", "wrapt"}  # whose frames no user can do anything about


class TrackioWarning(UserWarning):
    """Something was stored differently than asked, or could not be stored.

    Given once per cause. Filter it as any warning:
    ``warnings.simplefilter("error", torchrl_trackio.TrackioWarning)``.
    """


def warn(message: str) -> None:
    """Warn at the first caller outside this package and torchrl; with ``-W error`` this raises."""
    level, frame = 1, sys._getframe(0)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(message, TrackioWarning, stacklevel=level)


def warn_in_background(message: str) -> None:
    """Warn where nobody can catch it: with ``-W error`` it is printed instead of raised."""
    try:
        warnings.warn(message, TrackioWarning, stacklevel=2)
    except TrackioWarning:
        sys.stderr.write(f"TrackioWarning: {message}\n")


def cause_of(error: Exception) -> str:
    """What two errors of one cause have in common, though their texts name different files."""
    return f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}"
