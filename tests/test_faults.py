"""Processes that really die: what had been logged is in the store."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from children import Child


@pytest.fixture
def child(tmp_path: Path) -> Child:
    return Child(tmp_path)


ENDS = {
    "normal": ("sqlite", "", 0),
    "exception": ("sqlite", "raise ValueError('on purpose')", 1),
    "ctrl-c": ("sqlite", "os.kill(os.getpid(), signal.SIGINT); time.sleep(5)", -signal.SIGINT),
    "dropped": ("sqlite", "del logger", 0),
    "jsonl": ("jsonl", "sys.exit(3)", 3),
}


@pytest.mark.parametrize(("mode", "end", "code"), ENDS.values(), ids=ENDS)
def test_an_orderly_end_loses_nothing(tmp_path: Path, mode: str, end: str, code: int) -> None:
    """Rows, hyperparameters and a video that is still being encoded are stored when the interpreter ends."""
    child = Child(tmp_path, mode)
    done = child.run(
        f"""
        logger.log_hparams({{"lr": 1.0}})
        for i in range(1000):
            logger.log_scalar("x", float(i), step=i)
        logger.log_video("v", torch.randint(0, 255, (60, 3, 128, 128), dtype=torch.uint8), step=1000)
        logger.log_scalar("y", 1.0, step=1001)
        {end}
        """
    )
    assert done.returncode == code, done.stderr
    assert child.steps() == list(range(1000))
    assert child.steps("v") == [1000]
    assert child.steps("y") == [1001]
    assert len(child.videos()) == 1


KILLS = {
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "os._exit": "os._exit(9)",
}


@pytest.mark.parametrize(
    ("mode", "kill"),
    [
        ("sqlite", "SIGKILL"),
        pytest.param("sqlite", "SIGTERM", marks=pytest.mark.slow),
        pytest.param("sqlite", "os._exit", marks=pytest.mark.slow),
        pytest.param("jsonl", "SIGKILL", marks=pytest.mark.slow),
    ],
)
def test_a_kill_loses_nothing_that_was_flushed_and_of_the_rest_the_last_moment(
    tmp_path: Path, mode: str, kill: str
) -> None:
    """What precedes flush() survives any death, videos included; of the rest at most a second and a half is lost.

    That is the row buffer's second and the half second that Trackio waits between two batches.
    """
    child = Child(tmp_path, mode)
    child.run(
        f"""
        for i in range(100):
            logger.log_scalar("flushed", float(i), step=i)
        logger.log_video("v", torch.zeros(20, 3, 64, 64), step=100)
        logger.flush()
        start, i = time.monotonic(), 0
        while time.monotonic() - start < 3:
            logger.log_scalar("x", time.monotonic() - start, step=i)
            i += 1
            time.sleep(0.005)
        {KILLS[kill]}
        """
    )
    assert child.steps("flushed") == list(range(100))
    assert child.steps("v") == [100]
    assert len(child.videos()) == 1
    assert max(metrics["x"] for _, metrics in child.rows() if "x" in metrics) > 3 - 1.5
    assert child.steps() == list(range(len(child.steps())))


def test_two_loggers_and_one_of_a_thread_end_with_the_interpreter(child: Child) -> None:
    """Every live logger is closed at exit, also one made in a thread."""
    done = child.run(
        """
        other = TrackioLogger("other", "q")
        def work():
            global third
            third = TrackioLogger("third", "r")
            third.log_scalar("c", 1.0, step=0)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        logger.log_scalar("a", 1.0, step=0)
        other.log_scalar("b", 1.0, step=0)
        """
    )
    assert done.returncode == 0, done.stderr
    assert sorted(name for _, metrics in child.rows() for name in metrics) == ["a", "b", "c"]


def test_matplotlib_that_another_thread_is_importing(child: Child) -> None:
    """Trackio drops whatever is logged meanwhile; here it is stored."""
    done = child.run(
        """
        import types
        for name in ("matplotlib.figure", "matplotlib.animation", "plotly.basedatatypes"):
            sys.modules[name] = types.ModuleType(name)  # as it is at the beginning of the import
        logger.log_metrics({"x": 1.0, "text": "t", "histogram": [1.0, 2.0]}, step=0)
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [sorted(metrics) for _, metrics in child.rows()] == [["histogram", "text", "x"]]


def test_a_thread_that_goes_on_logging_does_not_hold_up_the_exit(child: Child) -> None:
    """At exit further values are refused, so that the queue empties."""
    done = child.run(
        """
        def work():
            for i in range(10**9):
                try:
                    logger.log_scalar("x", 1.0, step=i)
                except RuntimeError:
                    return
        threading.Thread(target=work, daemon=True).start()
        time.sleep(1)
        print("AT", time.time())
        """
    )
    assert done.returncode == 0, done.stderr
    assert time.time() - float(re.search(r"AT (\S+)", done.stdout)[1]) < 20
    assert child.steps() == list(range(len(child.steps())))
    assert child.steps()
