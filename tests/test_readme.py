"""The README's code runs as it stands."""

from __future__ import annotations

import inspect
import re
import shutil
from pathlib import Path

import pytest
from torchrl.record import VideoRecorder

from children import Child

README = Path(__file__).parents[1] / "README.md"


def test_every_python_block_runs(tmp_path: Path) -> None:
    """Each block works on its own, and what it logs is stored."""
    text = README.read_text()
    if "step" not in inspect.signature(VideoRecorder.dump).parameters:  # as the table of versions says
        text = text.replace(".dump(step=step)", ".dump()")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    child = Child(tmp_path, prelude="")
    done = child.run("\n".join(f"exec({block!r}, {{}})" for block in blocks))
    assert done.returncode == 0, done.stderr
    assert len(child.steps("train/loss")) == 100
    assert sorted(child.steps("reward")) == [10, 11]
    assert len(child.videos()) == 4


@pytest.mark.skipif(shutil.which("trackio") is None, reason="trackio's command is not on the PATH")
def test_the_command_that_shows_a_run_exists() -> None:
    """Trackio's own command line has the subcommand that the README names."""
    import subprocess

    shown = subprocess.run(["trackio", "show", "--help"], capture_output=True, text=True, check=True)
    assert "--project" in shown.stdout
