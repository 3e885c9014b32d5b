"""Reads back what Trackio has stored, from its files."""

from __future__ import annotations

import itertools
import json
import math
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import av
import numpy as np

from torchrl_trackio.environment import RECORDED

_new_names = (f"new{number}" for number in itertools.count())
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def new_name() -> str:
    """A metric's name that no other test logs to."""
    return next(_new_names)


def folder() -> Path:
    """Trackio's folder."""
    return Path(os.environ["TRACKIO_DIR"])


def query(project: str, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of a query of a project's database; none where there is no database or table."""
    path = folder() / f"{project}.db"
    if not path.exists():
        return []
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        try:
            return connection.execute(sql, values).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise


def rows(project: str, run: str = "run") -> list[tuple[int, dict[str, Any]]]:
    """(step, metrics) of a run in the order of storing; the strings that stand for non-finite numbers as numbers."""
    found = query(project, "SELECT step, metrics FROM metrics WHERE run_name = ? ORDER BY id", run)
    return [
        (step, {k: _NUMBERS.get(v, v) if isinstance(v, str) else v for k, v in json.loads(metrics).items()})
        for step, metrics in found
    ]


def series(project: str, name: str, run: str = "run") -> list[tuple[int, Any]]:
    """(step, value) of one metric."""
    return [(step, metrics[name]) for step, metrics in rows(project, run) if name in metrics]


def config(project: str, run: str = "run") -> dict[str, Any]:
    """The user's part of the stored configuration of the newest run of that name."""
    return without_records(stored_config(project, run))


def stored_config(project: str, run: str = "run") -> dict[str, Any]:
    """The stored configuration of the newest run of that name."""
    found = query(project, "SELECT config FROM configs WHERE run_name = ? ORDER BY id DESC LIMIT 1", run)
    return json.loads(found[0][0]) if found else {}


def without_records(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration without Trackio's own entries and the record of the environment."""
    return {key: value for key, value in config.items() if not key.startswith("_") and key not in RECORDED}


def run_ids(project: str) -> set[str]:
    """The ids of all runs that have rows."""
    return {run_id for (run_id,) in query(project, "SELECT DISTINCT run_id FROM metrics")}


def media(project: str, name: str, run: str = "run") -> list[tuple[int, Path]]:
    """(step, file) of the media logged under a name."""
    return [(step, folder() / "media" / value["file_path"]) for step, value in series(project, name, run)]


def logged_file(log: Callable[..., None], value: Any, **options: Any) -> Path:
    """Log a value by a logger's method under a new name; returns the file that is stored of it."""
    name, logger = new_name(), log.__self__
    log(name, value, step=1, **options)
    logger.flush()
    ((_, path),) = media(logger.log_dir, name)
    return path


def frames(path: Path) -> np.ndarray:
    """The decoded frames ``(T, H, W, 3)`` of a video or gif, uint8."""
    with av.open(str(path)) as file:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])


def seconds(path: Path) -> float:
    """How long a video lasts."""
    with av.open(str(path)) as file:
        return float(file.duration / av.time_base)
