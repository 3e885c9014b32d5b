"""What a run says while it ends, and that a quiet one says nothing."""

from __future__ import annotations

import os
import pickle
import pty
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from children import Child
from servers import TOKEN, Server
from torchrl_trackio import TrackioLogger

SLOW = "logger.log_video('v', torch.rand(120, 3, 256, 256), step=0)\n"  # to be encoded
QUIET = """
import os, sys, threading, time
import torch
from torchrl_trackio import TrackioLogger
logger = TrackioLogger("run", "p", quiet=True)
"""


def on_a_terminal(code: str, folder: Path) -> str:
    """What code says on a terminal, with its standard error there."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TRACKIO_DIR": str(folder), "TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    said = b""
    try:
        while data := os.read(ours, 1000):
            said += data
    except OSError:  # how the end of a terminal shows itself on Linux
        pass
    os.close(ours)
    assert process.wait() == 0, said
    return said.decode()


@pytest.mark.parametrize("end", ["logger.close()", ""], ids=["close", "interpreter's end"])
def test_one_line_elsewhere(tmp_path: Path, end: str) -> None:
    """Where standard error is no terminal, one line says what a close waits for."""
    done = Child(tmp_path).run(3 * SLOW + end)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"torchrl-trackio: storing [123] video\(s\)( and \d row\(s\))? of run 'run'\.\.\.\n", done.stderr
    )


@pytest.mark.parametrize("end", ["logger.close()", ""], ids=["close", "interpreter's end"])
def test_bar_on_a_terminal(tmp_path: Path, end: str) -> None:
    """On a terminal a bar shows how much is left, and is gone in the end."""
    child = Child(tmp_path)
    said = on_a_terminal(child.prelude + 3 * SLOW + end, tmp_path)
    assert "storing run run:" in said
    assert re.search(r"videos=[12]", said)
    assert said.rstrip(" ").endswith("\r")
    assert len(child.videos()) == 3


def test_rows_that_a_server_has_not_taken(tmp_path: Path) -> None:
    """They are counted as well, and waited for, but not long, nor with all the power of a core."""
    server = Server(tmp_path / "server")
    server.start()
    child = Child(tmp_path / "client", TRACKIO_SERVER_URL=server.url, TRACKIO_WRITE_TOKEN=TOKEN)
    job = child.start(
        """
        logger.log_scalar("x", 1.0, step=0)
        logger.flush()
        print("flushed", flush=True)
        input()
        for step in range(1, 21):
            logger.log_scalar("x", 1.0, step=step)
        logger.log_alert("away")
        logger.flush()
        start, cpu = time.monotonic(), time.process_time()
        logger.close()
        print("SECONDS", time.monotonic() - start, time.process_time() - cpu)
        """
    )
    assert job.stdout is not None
    while "flushed" not in job.stdout.readline():
        pass
    server.kill()
    told, errors = job.communicate("\n", timeout=60)
    assert job.returncode == 0, errors
    assert "torchrl-trackio: storing 20 row(s) of run 'run'...\n" in errors
    assert "1 alerts of run 'run' did not reach" in errors
    elapsed, cpu = map(float, re.findall(r"SECONDS (\S+) (\S+)", told)[0])
    assert elapsed < 20  # of which 5 are waited for the server
    assert cpu < 3


def test_nothing_to_wait_for(tmp_path: Path) -> None:
    """A close that takes no time says nothing of its own."""
    done = Child(tmp_path).run("logger.log_scalar('x', 1.0)")
    assert (done.returncode, done.stderr) == (0, "")


def test_quiet(tmp_path: Path) -> None:
    """A quiet logger prints nothing at all, for neither an alert nor a long close; what it logs is stored."""
    child = Child(tmp_path, prelude=QUIET)
    done = child.run(SLOW + "logger.log_scalar('x', float('nan'), step=0); logger.log_alert('title'); logger.close()")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(child.videos()) == 1
    assert child.steps("x") == [0]


def test_quiet_silences_no_one_else(tmp_path: Path) -> None:
    """Beside a quiet logger, another one, Trackio's own run and the script's other threads print as ever."""
    code = """
    spoken, times = threading.Event(), 0
    def speak():
        global times
        while not spoken.is_set():
            print("said", flush=True)
            times += 1
    thread = threading.Thread(target=speak)
    thread.start()
    for _ in range(5):
        TrackioLogger("again", "p", quiet=True).close()
    spoken.set()
    thread.join()
    print(times, "times")
    TrackioLogger("loud", "p").close()
    import trackio
    trackio.init(project="own", name="own")
    """
    lines = Child(tmp_path, prelude=QUIET).run(textwrap.dedent(code)).stdout.splitlines()
    assert lines.count("said") > 0
    assert f"{lines.count('said')} times" in lines
    created = [line for line in lines if "Created new run" in line]
    assert created == ["* Created new run: loud", "* Created new run: own"]


def test_quiet_keeps_warnings(project: str) -> None:
    """What is stored differently than asked is still warned about."""
    with TrackioLogger("run", project, quiet=True) as logger, pytest.warns(match="keeps the name 'step' for itself"):
        logger.log_scalar("step", 1.0)


def test_quiet_with_a_server(tmp_path: Path) -> None:
    """Nor does Trackio say where a quiet run is sent."""
    server = Server(tmp_path / "server")
    server.start()
    try:
        url = f"{server.url}/?write_token={TOKEN}"
        code = f"TrackioLogger('sent', 'p', quiet=True, server_url={url!r}).log_scalar('x', 1.0, step=0)"
        done = Child(tmp_path / "client", prelude=QUIET).run(code)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert server.steps("p", run="sent") == [0]
    finally:
        server.kill()


def test_quiet_after_pickling(project: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A worker's copy of a quiet logger is quiet, too."""
    with TrackioLogger("run", project, quiet=True) as logger:
        code = "import pickle, sys; pickle.load(sys.stdin.buffer).log_alert('from a worker')"
        subprocess.run([sys.executable, "-c", code], input=pickle.dumps(logger), check=True)
    assert capfd.readouterr() == ("", "")
