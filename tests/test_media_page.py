"""What a person sees of images, sounds, tables and figures: the dashboard's media page in a real Chromium."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import trackio
from PIL import Image
from playwright.sync_api import expect

import reading
from servers import Server
from torchrl_trackio import TrackioLogger
from torchrl_trackio.figures import to_html

pytestmark = pytest.mark.usefixtures("page")
PROJECT = "media-page"
PICTURES: dict[str, Any] = {
    "RGB": np.full((20, 30, 3), (200, 30, 30), np.uint8),
    "gray": np.full((20, 30), 0.5),
    "RGBA": np.full((4, 20, 30), 128, np.uint8),
    "grid": torch.rand(3, 3, 20, 30),
    "palette": Image.new("P", (30, 20)),
    "16 bits": Image.new("I;16", (30, 20), 40_000),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a media page with one run."""
    with TrackioLogger("run", PROJECT) as logger:
        for name, picture in PICTURES.items():
            logger.log_image(name, picture, step=7, caption=f"{name} caption")
        tone = torch.sin(torch.arange(16_000) / 16_000 * 440 * 2 * math.pi) / 100
        for rate in (3_000, 16_000, 384_000):
            logger.log_audio(f"tone/{rate}", tone, step=7, sample_rate=rate)
        image = trackio.Image(PICTURES["RGB"])
        logger.log_table("table", {"n": [1, 0.1, math.nan, None], "b": True, "image": [image, None, None, "text"]}, 7)
    server = Server(reading.folder())
    server.start()
    yield f"{server.url}/media?project={PROJECT}"
    server.kill()


def test_every_image_is_shown_with_its_caption(url: str, page: Any) -> None:
    """Gray, transparent, of a palette or 16 bits: each has its size."""
    page.goto(url)
    for name in PICTURES:
        image = page.locator(f"img[alt='{name} caption']")
        width, height = (60, 40) if name == "grid" else (30, 20)
        expect(image, name).to_have_js_property("naturalWidth", width)
        expect(image, name).to_have_js_property("naturalHeight", height)


def test_every_sound_plays(url: str, page: Any) -> None:
    """At the lowest and the highest sample rate, too; it is as long as it should be."""
    page.goto(url)
    sounds = page.locator("audio")
    expect(sounds).to_have_count(3)
    sounds.evaluate_all("all => all.forEach(audio => { audio.muted = audio.loop = true; audio.play() })")
    lengths = []
    for index in range(3):
        page.wait_for_function("index => document.querySelectorAll('audio')[index].currentTime > 0", arg=index)
        lengths.append(sounds.nth(index).evaluate("audio => audio.duration"))
    assert sorted(lengths) == [pytest.approx(16_000 / rate, rel=1e-3) for rate in (384_000, 16_000, 3_000)]
    expect(page.locator(".play-btn:disabled")).to_have_count(0)


def test_a_table_shows_its_cells(url: str, page: Any) -> None:
    """Numbers, what is not finite, nothing, bools, images and text."""
    page.goto(url)
    table = page.locator(".table-section", has_text="table")
    table.locator("img.table-image").wait_for()
    expect(table.locator("th")).to_have_text(["n", "b", "image"], ignore_case=True)
    rows = [["1", "true", ""], ["0.1", "true", ""], ["NaN", "true", ""], ["", "true", "text"]]
    expect(table.locator("tbody td")).to_have_text([cell for row in rows for cell in row], use_inner_text=True)


def frame_of(page: Any, name: str) -> Any:
    """The contents of a figure's frame."""
    item = page.locator(".html-gallery-item", has=page.locator(f".media-label:text-is('{name}')"))
    item.scroll_into_view_if_needed()
    return item.frame_locator("iframe")


def figures_page(page: Any, url: str, figures: dict[str, Any]) -> None:
    """Log figures, and open their page."""
    with TrackioLogger("run", f"{PROJECT}-figures") as logger:
        for name, figure in figures.items():
            logger.log_figure(name, figure, step=1, caption=f"{name} caption")
    page.goto(f"{url}-figures")


def test_a_matplotlib_figure_is_drawn(url: str, page: Any) -> None:
    """As a picture in its frame, with the caption."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([1, 3, 2])
    figures_page(page, url, {"lines": figure})
    drawing = frame_of(page, "lines").locator("svg")
    drawing.wait_for()
    assert drawing.bounding_box()["width"] > 200
    page.get_by_text("lines caption").wait_for()


def test_a_plotly_figure_is_drawn_or_says_why_not(url: str, page: Any) -> None:
    """One that brings plotly's code is drawn by it; one that has to load it says so where it cannot."""
    go = pytest.importorskip("plotly.graph_objects")
    figure = go.Figure(go.Scatter(y=[4, 1, 2]), {"title": "The title"})
    page.route("https://cdn.plot.ly/**", lambda route: route.abort())
    figures_page(page, url, {"offline": to_html(figure, offline=True), "online": figure})
    offline, online = frame_of(page, "offline"), frame_of(page, "online")
    offline.locator("svg.main-svg").first.wait_for()
    offline.get_by_text("The title").wait_for()
    online.get_by_text("plotly.js could not be loaded from cdn.plot.ly").wait_for()
    expect(offline.get_by_text("could not be loaded")).to_have_count(0)
