"""Figures: what is stored is the figure as it was at the call."""

from __future__ import annotations

import pickle
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import trackio

from children import Child
from reading import logged_file, media, rows, series
from torchrl_trackio import TrackioLogger
from torchrl_trackio.figures import to_html


@pytest.fixture
def plt() -> Iterator[Any]:
    """pyplot, drawing to memory."""
    pytest.importorskip("matplotlib").use("agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def stored(logger: TrackioLogger, figure: Any, **options: Any) -> str:
    """The HTML of a figure that is logged."""
    path = logged_file(logger.log_figure, figure, **options)
    assert path.suffix == ".html"
    return path.read_text(encoding="utf-8")


FIGURES: dict[str, Callable[[Any], Any]] = {
    "Figure": lambda plt: plt.gcf(),
    "Axes": lambda plt: plt.gca(),
    "pyplot": lambda plt: plt,
    "part of a figure": lambda plt: plt.gcf().subfigures(),
    "axes in a part": lambda plt: plt.gcf().subfigures().subplots(),
    "seaborn's grid": lambda plt: SimpleNamespace(figure=plt.gcf()),
    "old seaborn's grid": lambda plt: SimpleNamespace(fig=plt.gcf()),
}


@pytest.mark.parametrize("made", FIGURES.values(), ids=FIGURES)
def test_every_kind_of_matplotlib_figure(shared: TrackioLogger, plt: Any, made: Callable[[Any], Any]) -> None:
    """Its whole figure becomes a drawing with sharp lines, in which its text can be found."""
    plt.rcParams["svg.fonttype"] = "none"
    plt.plot([1, 3, 2])
    plt.title("The title")
    html = stored(shared, made(plt))
    assert html.count("<svg") == 1
    assert ">The title<" in html


def test_an_animation_is_stored_with_its_frames(shared: TrackioLogger, plt: Any) -> None:
    """As a page that plays them."""
    from matplotlib.animation import FuncAnimation

    figure, axes = plt.subplots()
    (line,) = axes.plot([0, 1])
    animation = FuncAnimation(figure, lambda frame: line.set_ydata([0, frame]), frames=3)
    html = stored(shared, animation)
    assert len(set(re.findall(r'frames\[\d+\] = "data:image/png;base64', html))) == 3


def test_a_figure_may_be_changed_after_the_call(shared: TrackioLogger, plt: Any) -> None:
    """It is drawn in the call; what is drawn later is not in it."""
    plt.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots()
    axes.set_title("before")
    shared.log_figure("changed", figure, step=1)
    axes.set_title("after")
    shared.flush()
    ((_, path),) = media(shared.log_dir, "changed")
    assert ">before<" in path.read_text()
    assert ">after<" not in path.read_text()


def test_a_figure_as_ray_hands_it_on(shared: TrackioLogger) -> None:
    """Its arrays are read-only, with which matplotlib does not draw."""
    figure = pytest.importorskip("matplotlib.figure").Figure()
    figure.add_subplot().set_title("from an actor")
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(figure, protocol=5, buffer_callback=buffers.append)
    received = pickle.loads(pickled, buffers=[bytes(buffer.raw()) for buffer in buffers])
    with pytest.raises(ValueError, match="read-only"):
        trackio.Html(received)
    assert "<svg" in stored(shared, received)


def test_a_plotly_figure_stays_interactive(shared: TrackioLogger) -> None:
    """Its data is in the page, plotly's code is not; without that, the page says what is missing."""
    go = pytest.importorskip("plotly.graph_objects")
    figure = go.Figure(go.Scatter(y=[4, 1, 2]), {"title": "The title"})
    html = stored(shared, figure)
    assert '"title":{"text":"The title"}' in html
    assert "Plotly.newPlot(" in html
    assert 'src="https://cdn.plot.ly/plotly-' in html
    assert "plotly.js could not be loaded from cdn.plot.ly. " in html
    assert len(html) < 20_000


def test_a_plotly_figure_that_needs_no_internet(shared: TrackioLogger) -> None:
    """It brings plotly's code along, and loads nothing."""
    go = pytest.importorskip("plotly.graph_objects")
    html = stored(shared, to_html(go.Figure(go.Scatter(y=[4, 1, 2])), offline=True))
    assert '<script charset="utf-8" src=' not in html
    assert len(html) > 3_000_000


def test_trackios_own_html_passes(shared: TrackioLogger) -> None:
    """As it is; a caption goes to what is stored, not to the object."""
    html = trackio.Html("<b>bold</b>", caption="mine")
    assert "<b>bold</b>" in stored(shared, html, caption="other")
    assert html.caption == "mine"


def test_a_figure_shares_the_row_of_its_step_and_has_a_caption(logger: TrackioLogger, project: str, plt: Any) -> None:
    """It is one value of the step, counted on like any other."""
    logger.log_scalar("x", 1.0, step=3)
    logger.log_figure("f", plt.figure(), step=3, caption="c")
    logger.log_figure("f", plt.figure())
    logger.flush()
    first, second = ({**row, "f": {k: v for k, v in row["f"].items() if k != "file_path"}} for _, row in rows(project))
    assert first == {"x": 1.0, "f": {"_type": "trackio.html", "caption": "c"}}
    assert second == {"f": {"_type": "trackio.html", "caption": None}}
    assert [step for step, _ in series(project, "f")] == [3, 4]


def test_neither_library_is_imported(tmp_path: Path) -> None:
    """Who draws no figures does not wait for them."""
    child = Child(tmp_path)
    done = child.run(
        """
        try:
            logger.log_figure("f", 5)
        except TypeError:
            print(sorted({"matplotlib", "plotly", "pandas"} & sys.modules.keys()))
        """
    )
    assert done.stdout.splitlines().count("[]") == 1, done.stderr


TYPE = (
    "a figure must be a Figure, Axes or animation of matplotlib, matplotlib.pyplot, a plotly figure, what has a "
    "figure, or a trackio.Html, got"
)
BAD: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "None": (None, {}, TypeError, f"{TYPE} None (NoneType)"),
    "text": ("<b>bold</b>", {}, TypeError, f"{TYPE} '<b>bold</b>' (str)"),
    "tensor": (torch.zeros(3), {}, TypeError, f"{TYPE} Tensor of shape (3,) and dtype torch.float32"),
    "what has a figure that is an array": (
        Namespace(figure=np.zeros(3)),
        {},
        TypeError,
        f"{TYPE} Namespace(figure=array([0., 0., 0.])) (Namespace)",
    ),
    "module": (sys, {}, TypeError, f"{TYPE} <module 'sys' (built-in)> (module)"),
    "caption": (trackio.Html("h"), {"caption": 5}, TypeError, "a caption must be a string, got 5 (int)"),
}


@pytest.mark.parametrize(("figure", "options", "error", "message"), BAD.values(), ids=BAD)
def test_bad_figures_are_refused_at_the_call(
    logger: TrackioLogger, project: str, figure: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """The call raises, and says what it got and takes; the step's other values stay, and no count moves."""
    logger.log_scalar("x", 1.0, step=3)
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        logger.log_figure("f", figure, **options)
    logger.log_scalar("f", 3.0)
    logger.flush()
    assert rows(project) == [(3, {"x": 1.0}), (0, {"f": 3.0})]


def test_a_figure_that_cannot_be_drawn_is_refused(shared: TrackioLogger, plt: Any) -> None:
    """With the cause."""
    plt.title("$\\unknown$")
    with pytest.raises(ValueError, match=r"(?s)cannot be drawn: ValueError: .*unknown"):
        shared.log_figure("f", plt.gcf())
