r"""Takes a picture of a project in the real dashboard.

After ``python examples/ppo_cartpole.py``, these take those of the README::

    python tests/screenshot.py --project cartpole --out examples/ppo_cartpole.png --size 1400x965 --scale 1.2 \
        --query plots_per_row=3 --query smoothing=0 \
        --query metrics=train/reward,train/lr,train/fps,ppo/entropy,ppo/loss_critic,ppo/grad_norm
    python tests/screenshot.py --project cartpole --out examples/ppo_cartpole_video.png --size 1240x330 --scale 1.3 \
        --query sidebar=hidden --page media

The run must be in Trackio's folder, ``TRACKIO_DIR`` or the default one. Needs Debian's ``chromium``.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright
from trackio.utils import TRACKIO_DIR

from servers import Server


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", required=True)
    parser.add_argument("--out", type=Path, required=True, help="the PNG to write")
    parser.add_argument("--page", choices=["metrics", "media"], default="metrics", help="of the dashboard")
    parser.add_argument("--query", action="append", default=[], help="a parameter of the dashboard's address")
    parser.add_argument("--size", default="1600x1000", help="of the window")
    parser.add_argument("--scale", type=float, default=1.0, help="pixels of the picture for one of the window")
    return parser.parse_args()


def wait_for_content(page: Page, kind: str) -> None:
    """Wait until plots are drawn, or videos play, without their controls."""
    if kind == "metrics":
        page.locator(".plot-container canvas").first.wait_for()
    else:
        page.locator("video").first.wait_for()
        page.evaluate(
            """() => Promise.all([...document.querySelectorAll("video")].map(video => {
                video.muted = video.loop = true;
                return video.play();
            }))"""
        )
        page.wait_for_timeout(4000)
    page.wait_for_timeout(1500)


def main() -> None:
    """Start a dashboard, look at it, and end it."""
    args = parse_args()
    width, height = map(int, args.size.split("x"))
    options: dict[str, Any] = {"project": args.project, **dict(pair.split("=", 1) for pair in args.query)}
    server = Server(TRACKIO_DIR)
    server.start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=args.scale)
            page.goto(f"{server.url}/{args.page}?{urlencode(options)}")
            wait_for_content(page, args.page)
            page.screenshot(path=args.out)
            browser.close()
    finally:
        server.kill()


if __name__ == "__main__":
    main()
