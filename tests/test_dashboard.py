"""What a person sees: the dashboard of a small run in a real Chromium."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import expect

import reading
from servers import Server
from torchrl_trackio import TrackioLogger

pytestmark = pytest.mark.usefixtures("page")


def reward(step: int) -> float:
    """A curve that goes up and down."""
    return 50 + 40 * math.sin(step / 3)


PROJECT, STEPS = "dashboard", 60
VIDEOS = {"eval/mp4": ("mp4", 64, 64), "eval/odd": ("mp4", 33, 35), "eval/webm": ("webm", 64, 64)}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a dashboard with one run."""
    frames = torch.randint(0, 255, (60, 3, 64, 64), dtype=torch.uint8)
    with TrackioLogger("run", PROJECT) as logger:
        logger.log_hparams({"optim": {"lr": 1e-3}, "seed": 7})
        for step in range(STEPS):
            logger.log_scalar("train/reward", reward(step), step=step)
            logger.log_scalar("train/loss", torch.tensor(1 / (step + 1)), step=step)
        logger.log_histogram("advantages", torch.randn(1000), step=STEPS)
        logger.log_str("note", "The agent waves.", step=STEPS)
        logger.log_checkpoint({"weights": torch.zeros(3)}, STEPS, metric=1.0, name="policy")
        logger.log_alert("The reward collapsed", "to 9", step=STEPS)
        for name, (format, height, width) in VIDEOS.items():  # noqa: A001
            logger.log_video(name, frames[..., :height, :width], step=STEPS, format=format)
        logger.log_video("eval/gif", frames, step=STEPS, format="gif")
    server = Server(reading.folder())
    server.start()
    yield server.url
    server.kill()


def points(page: Any, metric: str, path: Path) -> list[dict[str, str]]:
    """The data of a plot, from its own download button."""
    plot = page.locator(f".plot-container[data-metric='{metric}']")
    plot.locator("canvas").wait_for()
    with page.expect_download() as download:
        plot.get_by_title("CSV").click()
    download.value.save_as(path)
    with path.open() as file:
        return list(csv.DictReader(file))


def test_curves_have_all_their_points_and_can_be_smoothed(url: str, page: Any, tmp_path: Path) -> None:
    """What the dashboard plots are the numbers that were logged, all of them; smoothing changes their curve."""
    page.goto(f"{url}/?project={PROJECT}&smoothing=0")
    plain = points(page, "train/reward", tmp_path / "plain.csv")
    assert [(int(point["step"]), float(point["train/reward"])) for point in plain] == [
        (step, pytest.approx(reward(step))) for step in range(STEPS)
    ]
    assert len(points(page, "train/loss", tmp_path / "loss.csv")) == STEPS
    sharp = page.locator("canvas").first.screenshot()
    page.goto(f"{url}/?project={PROJECT}&smoothing=20")
    page.locator("canvas").first.wait_for()
    page.wait_for_timeout(500)
    assert page.locator("canvas").first.screenshot() != sharp


def test_histograms_are_drawn(url: str, page: Any) -> None:
    """A histogram has a chart of its own."""
    page.goto(f"{url}/?project={PROJECT}")
    page.locator(".plot-container", has_text="advantages").locator("canvas").wait_for()


def test_text_is_among_the_reports(url: str, page: Any) -> None:
    """log_str shows in the reports, with its name and step."""
    page.goto(f"{url}/reports?project={PROJECT}")
    page.get_by_text("The agent waves.").wait_for()
    page.get_by_text(f"note · run · step {STEPS}").wait_for()


def test_the_configuration_is_shown(url: str, page: Any) -> None:
    """A run's page lists every hyperparameter by its path."""
    (run_id,) = reading.run_ids(PROJECT)
    page.goto(f"{url}/run?project={PROJECT}&selected_run_id={run_id}&selected_run=run")
    configuration = page.locator(".config-block")
    for entry in ('"optim/lr": 0.001', '"seed": 7', f'"env/torchrl": "{version("torchrl")}"'):
        expect(configuration).to_contain_text(entry)


def test_artifacts_are_listed(url: str, page: Any) -> None:
    """With the aliases of their latest version."""
    page.goto(f"{url}/artifacts?project={PROJECT}")
    page.get_by_text("policy").first.wait_for()
    for alias in ("best", "latest"):
        page.get_by_text(alias, exact=True).first.wait_for()


def test_alerts_are_shown(url: str, page: Any) -> None:
    """With title and text."""
    page.goto(f"{url}/reports?project={PROJECT}")
    page.get_by_text("The reward collapsed").first.wait_for()
    page.get_by_text("to 9").first.wait_for()


def test_runs_can_be_grouped_by_a_nested_hyperparameter(url: str, page: Any) -> None:
    """The sidebar offers the leaves of a nested configuration."""
    page.goto(f"{url}/?project={PROJECT}")
    page.locator("canvas").first.wait_for()
    page.get_by_placeholder("Select...").first.click()
    page.get_by_text("optim/lr").first.wait_for()


def test_every_video_plays_and_the_gif_moves(url: str, page: Any) -> None:
    """Each <video> advances when played, and two looks at the gif differ."""
    page.goto(f"{url}/media?project={PROJECT}")
    videos = page.locator("video")
    expect(videos).to_have_count(len(VIDEOS))
    for i in range(len(VIDEOS)):
        page.wait_for_function("i => document.querySelectorAll('video')[i].readyState >= 2", arg=i)
        videos.nth(i).evaluate("video => { video.muted = true; video.currentTime = 0; return video.play() }")
        page.wait_for_function("i => document.querySelectorAll('video')[i].currentTime > 0.3", arg=i)
    gif = page.locator("img[src*='.gif']").first
    expect(gif).to_have_js_property("naturalWidth", 64)
    first = gif.screenshot()
    page.wait_for_timeout(500)
    assert gif.screenshot() != first
