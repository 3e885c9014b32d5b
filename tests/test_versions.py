"""Versions outside the tested range."""

from __future__ import annotations

import os
from pathlib import Path

from children import Child


def test_an_untested_version_is_warned_about_once_and_works(tmp_path: Path) -> None:
    """A Trackio that calls itself newer than any tested one costs one warning, and logs."""
    claim = tmp_path / "packages" / "trackio-99.1.dist-info"
    claim.mkdir(parents=True)
    (claim / "METADATA").write_text("Metadata-Version: 2.1\nName: trackio\nVersion: 99.1\n")
    path = os.pathsep.join(filter(None, [str(claim.parent), os.environ.get("PYTHONPATH")]))
    child = Child(tmp_path / "store", PYTHONPATH=path)
    done = child.run("TrackioLogger('other', 'p'); logger.log_scalar('x', 1.0, step=0)")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is tested with trackio 0.42 to 0.43, and 99.1 is installed") == 1
    assert child.steps() == [0]
