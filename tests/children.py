"""Python processes that log to a folder of their own."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

PRELUDE = """
import os, signal, sys, threading, time
import torch
from torchrl_trackio import TrackioLogger
logger = TrackioLogger("run", "p")
"""


class Child:
    """Runs code with a logger of run ``run`` in project ``p``, and reads what is stored.

    Args:
        folder: Trackio's folder.
        mode: Trackio's storage mode, ``"sqlite"`` or ``"jsonl"``.
        prelude: what the code begins with.
        **environment: further environment variables.
    """

    def __init__(self, folder: Path, mode: str = "sqlite", prelude: str = PRELUDE, **environment: str) -> None:
        self.folder = folder
        self.prelude = prelude
        self.environment = {**os.environ, "TRACKIO_DIR": str(folder), "TRACKIO_STORAGE_MODE": mode, **environment}

    def start(self, code: str) -> subprocess.Popen[str]:
        """Start the code and go on."""
        return subprocess.Popen(
            [sys.executable, "-c", self.prelude + textwrap.dedent(code)],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, code: str) -> subprocess.CompletedProcess[str]:
        """Run the code to its end."""
        process = self.start(code)
        out, err = process.communicate(timeout=100)
        return subprocess.CompletedProcess(code, process.returncode, out, err)

    def rows(self) -> list[tuple[int, dict[str, object]]]:
        """(step, metrics) of everything stored, imported or not."""
        found = []
        for path in self.folder.glob("*.db"):
            with closing(sqlite3.connect(path, timeout=30)) as connection:
                # A store that is just being made has no tables yet.
                if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'metrics'").fetchone():
                    found += connection.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
        for path in sorted(self.folder.glob("inbox/*/*.jsonl")):
            found += [(r["step"], r["metrics"]) for r in map(json.loads, path.read_text().splitlines())]
        return [(step, metrics if isinstance(metrics, dict) else json.loads(metrics)) for step, metrics in found]

    def steps(self, name: str = "x") -> list[int]:
        """The steps of a metric in the order of storing."""
        return [step for step, metrics in self.rows() if name in metrics]

    def run_ids(self) -> set[str]:
        """The ids of all runs that have rows."""
        found: set[str] = set()
        for path in self.folder.glob("*.db"):
            with closing(sqlite3.connect(path, timeout=30)) as connection:
                found |= {run_id for (run_id,) in connection.execute("SELECT DISTINCT run_id FROM metrics")}
        return found

    def videos(self) -> list[Path]:
        """The stored video files that are not empty."""
        return [path for path in (self.folder / "media").rglob("*.mp4") if path.stat().st_size]
