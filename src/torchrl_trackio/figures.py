"""Figures: from matplotlib and plotly to HTML."""

from __future__ import annotations

import pickle
from typing import Any

import trackio

from torchrl_trackio.arrays import describe
from torchrl_trackio.files import captioned, check_caption

# For a browser that cannot reach plotly's own code: a page without it would be blank.
_SAYS_WHY = (
    "<script>window.Plotly || document.body.prepend('plotly.js could not be loaded from cdn.plot.ly. "
    "Figures that were logged with offline=True do not need it.')</script>"
)


def to_html(figure: Any, caption: str | None = None, *, offline: bool = False) -> trackio.Html:
    """A figure as it is drawn now: as for :meth:`TrackioLogger.log_figure`.

    Raises:
        TypeError: if the figure or caption is of another type.
        ValueError: if it cannot be drawn.
    """
    check_caption(caption)
    if isinstance(figure, trackio.Html):
        return captioned(figure, caption)
    drawn = _loggable(figure)
    try:
        if trackio.Html.is_plotly_figure(drawn):
            drawn = drawn.to_html(include_plotlyjs=True if offline else "cdn").replace("</body>", f"{_SAYS_WHY}</body>")
        return _drawn(drawn, caption)
    except Exception as error:
        raise ValueError(f"{describe(figure)} cannot be drawn: {type(error).__name__}: {error}") from error


def _drawn(figure: Any, caption: str | None) -> trackio.Html:
    try:
        return trackio.Html(figure, caption=caption)
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        # What Ray hands to a service has arrays that matplotlib cannot draw with; this way of pickling copies them.
        return trackio.Html(pickle.loads(pickle.dumps(figure, protocol=4)), caption=caption)  # noqa: S301


def _loggable(figure: Any) -> Any:
    found = figure
    for _ in range(4):  # an axes' figure may be a part of another one
        if trackio.Html.is_loggable_figure(found):
            return found
        part = getattr(found, "figure", None)
        found = part if part is not None else getattr(found, "fig", None)
    raise TypeError(
        "a figure must be a Figure, Axes or animation of matplotlib, matplotlib.pyplot, a plotly figure, what has a "
        f"figure, or a trackio.Html, got {describe(figure)}"
    )
