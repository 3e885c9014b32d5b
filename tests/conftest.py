"""Every test runs on real Trackio in a temporary folder, each in a project of its own."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile

# Trackio reads both when it is imported, so they are set before any test module is.
os.environ["TRACKIO_DIR"] = tempfile.mkdtemp(prefix="torchrl-trackio-tests-")
atexit.register(shutil.rmtree, os.environ["TRACKIO_DIR"], ignore_errors=True)
os.environ["HF_HUB_OFFLINE"] = "1"
for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_WRITE_TOKEN", "HF_TOKEN"):
    os.environ.pop(name, None)

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from torchrl_trackio import TrackioLogger


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium on the PATH (Debian: apt-get install chromium)")
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page of it."""
    page = browser.new_page(viewport={"width": 1400, "height": 2000})
    page.set_default_timeout(30_000)
    yield page
    page.close()


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest) -> Iterator[TrackioLogger]:
    """One logger for the tests of a module that need no more than a name or step of their own."""
    project = request.path.stem.replace("_", "-")  # Trackio reserves names that end in _traces
    with TrackioLogger("run", project) as logger:
        yield logger


@pytest.fixture
def project(request: pytest.FixtureRequest) -> str:
    """A project that no other test logs to."""
    return re.sub(r"[^\w-]+", "-", request.node.nodeid.split("/")[-1])[-120:].strip("-")


@pytest.fixture
def logger(project: str):
    """A logger of run ``run``, closed at the end."""
    with TrackioLogger("run", project) as logger:
        yield logger
