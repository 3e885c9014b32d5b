"""Alerts: the user's own, and that a metric is not finite any more."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import trackio

from torchrl_trackio.arrays import describe
from torchrl_trackio.names import check_text

_LEVELS = ("info", "warn", "error")


def alert_of(title: Any, text: Any, level: Any) -> tuple[str, str | None, trackio.AlertLevel]:
    """An alert's title, text and level as Trackio takes them.

    Raises:
        TypeError: if the title or text is no string.
        ValueError: if the title is empty, a text no valid Unicode, or the level none of ``info``, ``warn``, ``error``.
    """
    for what, given in (("title", title), ("text", text)):
        if not isinstance(given, str) and not (what == "text" and given is None):
            raise TypeError(f"an alert's {what} must be a string, got {describe(given)}")
        check_text(f"an alert's {what}", given or "")
    if not title.strip():
        raise ValueError(f"an alert must have a title, got {title!r}")
    name = str(getattr(level, "value", level)).lower()
    if name not in _LEVELS:
        raise ValueError(f"an alert's level must be one of {', '.join(map(repr, _LEVELS))}, got {level!r}")
    return title, text, trackio.AlertLevel(name)


def newly_nonfinite(values: Mapping[str, Any], known: Collection[str]) -> dict[str, float]:
    """Those numbers of a row that are NaN or infinite, and whose names are not known to be."""
    return {
        name: value
        for name, value in values.items()
        if type(value) is float and not math.isfinite(value) and name not in known
    }


def nonfinite_alert(values: Mapping[str, float], step: int) -> tuple[str, str, trackio.AlertLevel]:
    """One alert for the numbers of a step that are the first of their metrics to be NaN or infinite."""
    name, value = next(iter(values.items()))
    others = f" and {len(values) - 1} more" if len(values) > 1 else ""
    title = f"{name}{others} are not finite at step {step}" if others else f"{name} is {_shown(value)} at step {step}"
    text = "; ".join(f"{name} = {_shown(value)}" for name, value in values.items())
    return title, text, trackio.AlertLevel.ERROR


def _shown(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
