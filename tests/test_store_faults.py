"""A store that cannot be written: no hang, no exception into training, one warning per cause, nothing lost for good."""

from __future__ import annotations

import fcntl
import re
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from children import PRELUDE, Child

# A child says what was warned about since it last said so.
REPORTING = (
    PRELUDE
    + """
import warnings
warnings.simplefilter("always")
caught = []
def showwarning(message, category, *rest):
    if issubclass(category, UserWarning):
        caught.append(f"{category.__name__}: {message}")
warnings.showwarning = showwarning
def report():
    print("REPORT", len(caught), " | ".join(caught).replace(chr(10), " "))
    caught.clear()
"""
)


def reports(output: str) -> list[str]:
    """What the child has reported."""
    return re.findall("^REPORT (.*)$", output, re.MULTILINE)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"mounting a small file system is not allowed here: {mounted.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_rows_of_a_full_disk_are_written_once_there_is_room(disk: Path) -> None:
    """The rows of every failed write are kept; each cause is warned about once; flush() neither hangs nor raises."""
    child = Child(disk, prelude=REPORTING)
    done = child.run(
        """
        logger.log_scalar("x", 0.0, step=0)
        logger.flush()
        filler = os.path.join(os.environ["TRACKIO_DIR"], "filler")
        with open(filler, "wb", buffering=0) as file:
            try:
                while file.write(b"0" * 4096):
                    pass
            except OSError:
                pass
        for i in range(1, 3000):
            logger.log_scalar("x", float(i), step=i)
        logger.log_video("v", torch.randint(0, 255, (30, 3, 64, 64), dtype=torch.uint8), step=5)
        start = time.monotonic()
        logger.flush()
        print("SECONDS", time.monotonic() - start)
        report()
        os.remove(filler)
        logger.log_scalar("y", 1.0, step=3000)
        logger.close()
        report()
        """
    )
    assert done.returncode == 0, done.stderr
    full, roomy = reports(done.stdout)
    assert full.startswith("2 TrackioWarning: "), full
    assert "'v' at step 5 could not be stored: OSError: [Errno 28] No space left on device" in full
    assert "trackio failed to flush metric logs for run 'run'" in full
    assert roomy == "0 "
    assert child.steps() == list(range(3000))
    assert child.steps("y") == [3000]
    assert float(re.search(r"SECONDS (\S+)", done.stdout)[1]) < 20


def test_checkpoint_that_a_full_disk_has_no_room_for(disk: Path) -> None:
    """Each is warned about, the training goes on, and what there is room for is stored."""
    child = Child(disk, prelude=REPORTING)
    done = child.run(
        """
        model = torch.nn.Linear(2000, 2000)
        print(logger.log_checkpoint(model, 1, metric=1.0).version)
        report()
        print(logger.log_checkpoint(model, 2, metric=1.0).version)
        print(logger.log_checkpoint({"small": 1}, 3, metric=2.0).version)
        logger.log_scalar("x", 1.0, step=3)
        report()
        """
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line in ("None", "v0", "v1")] == ["None", "None", "v0"]
    for step, report in enumerate(reports(done.stdout), start=1):
        assert re.fullmatch(
            rf"1 TrackioWarning: artifact 'checkpoint-run-\w+' of step {step} is not stored: .*", report
        )
    assert child.steps() == [3]
    assert [path.name for path in disk.iterdir() if path.name.startswith(".torchrl")] == []


def test_rows_of_a_read_only_disk_are_written_once_it_is_writable(disk: Path) -> None:
    """A disk that is remounted read-only costs one warning and no row."""
    child = Child(disk, prelude=REPORTING)
    done = child.run(
        """
        import subprocess
        def remount(options):
            subprocess.run(["mount", "-o", f"remount,{options}", os.environ["TRACKIO_DIR"]], check=True)
        remount("ro")
        for i in range(100):
            logger.log_scalar("x", float(i), step=i)
        logger.flush()
        report()
        remount("rw")
        logger.flush()
        report()
        """
    )
    assert done.returncode == 0, done.stderr
    read_only, writable = reports(done.stdout)
    assert read_only.startswith("1 TrackioWarning: "), read_only
    assert writable == "0 "
    assert child.steps() == list(range(100))


def test_a_folder_that_is_a_file_is_warned_about_and_training_goes_on(tmp_path: Path) -> None:
    """Where nothing can ever be stored, each cause is said once, the loss in numbers at the end, and nothing raises."""
    path = tmp_path / "file"
    path.write_text("not a folder")
    done = Child(path, prelude=REPORTING).run(
        """
        for i in range(100):
            logger.log_scalar("x", float(i), step=i)
        logger.flush()
        report()
        logger.close()
        report()
        """
    )
    assert done.returncode == 0, done.stderr
    assert "TrackioWarning: nothing can be stored in Trackio's folder" in done.stdout + done.stderr
    flushed, closed = reports(done.stdout)
    assert int(flushed.split()[0]) >= 1
    assert set(re.findall(r"(\w+Warning): ", flushed)) == {"TrackioWarning"}
    assert "100 rows of run 'run' could not be written" in closed


@pytest.mark.slow
def test_rows_of_a_locked_database_are_written_after_the_lock(tmp_path: Path) -> None:
    """Another process that locks the project for 12 s, longer than Trackio waits, costs no row and holds up no call."""
    child = Child(tmp_path, prelude=REPORTING)
    process = child.start(
        """
        print("READY", flush=True)
        sys.stdin.readline()
        slowest, start, i = 0, time.monotonic(), 0
        while time.monotonic() - start < 13:
            before = time.monotonic()
            logger.log_scalar("x", float(i), step=i)
            slowest = max(slowest, time.monotonic() - before)
            i += 1
            time.sleep(0.02)
        print("SLOWEST", slowest)
        logger.close()
        report()
        print("COUNT", i)
        """
    )
    lines = iter(process.stdout.readline, "")
    assert any("READY" in line for line in lines)
    with (tmp_path / "p.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process.stdin.write("go\n")
        process.stdin.flush()
        time.sleep(12)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert float(re.search(r"SLOWEST (\S+)", out)[1]) < 1
    assert child.steps() == list(range(int(re.search(r"COUNT (\d+)", out)[1])))
    assert re.fullmatch("1 TrackioWarning: .*", reports(out)[0]), reports(out)


@pytest.mark.parametrize("call", ["flush", "close"])
def test_a_time_limit_holds_while_the_database_is_locked(tmp_path: Path, call: str) -> None:
    """The call returns and says so; what is late is stored after the lock, at the interpreter's end at the latest."""
    child = Child(tmp_path)
    process = child.start(
        f"""
        logger.log_scalar("x", 0.0, step=0)
        logger.flush()
        print("READY", flush=True)
        sys.stdin.readline()
        logger.log_scalar("x", 1.0, step=1)
        start = time.monotonic()
        logger.{call}(timeout=1)
        print("SECONDS", time.monotonic() - start, flush=True)
        """
    )
    lines = iter(process.stdout.readline, "")
    assert any("READY" in line for line in lines)
    with closing(sqlite3.connect(tmp_path / "p.db")) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        process.stdin.write("go\n")
        process.stdin.flush()
        seconds = next(float(line.split()[1]) for line in lines if line.startswith("SECONDS"))
        connection.rollback()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert 1 <= seconds < 10  # the store itself waits 30 s for the lock
    assert f"{call}() of run 'run' took over 1 s: the rest is stored later" in err
    assert "ended before" not in err
    assert child.steps() == [0, 1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A socket that accepts and never answers."""
    with closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        server.listen(50)
        yield server.getsockname()[1]


def test_a_silent_hub_does_not_hold_up_a_local_logger(tmp_path: Path, silent_port: int) -> None:
    """With a token set and a hub that never answers, a local logger is there in under 3 s, and the next at once."""
    child = Child(
        tmp_path,
        prelude="import os, sys, time\nfrom torchrl_trackio import TrackioLogger\n",
        HF_HUB_OFFLINE="0",
        HF_TOKEN="hf_token",
        HF_ENDPOINT=f"http://127.0.0.1:{silent_port}",
    )
    done = child.run(
        """
        start = time.monotonic()
        logger = TrackioLogger("run", "p")
        first = time.monotonic()
        other = TrackioLogger("other", "p")
        print("TIMES", first - start, time.monotonic() - first)
        logger.log_scalar("x", 1.0, step=0)
        """
    )
    assert done.returncode == 0, done.stderr
    first, second = map(float, re.search(r"TIMES (\S+) (\S+)", done.stdout).groups())
    assert first < 3
    assert second < 0.5
    assert child.steps() == [0]


@pytest.mark.slow
def test_exit_waits_once_for_a_server_that_refuses(tmp_path: Path) -> None:
    """With two loggers and no server, the process ends within Trackio's single 30 s and keeps the rows on disk."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    child = Child(tmp_path, TRACKIO_SERVER_URL=url, TRACKIO_WRITE_TOKEN="secret")
    started = time.monotonic()
    done = child.run(
        """
        other = TrackioLogger("other", "p")
        for i in range(10):
            logger.log_scalar("x", float(i), step=i)
            other.log_scalar("y", float(i), step=i)
        """
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 45
    assert sorted(child.steps()) == list(range(10))
    assert sorted(child.steps("y")) == list(range(10))
    assert "secret" not in done.stdout + done.stderr


@pytest.mark.slow
def test_memory_stays_bounded_in_a_burst(tmp_path: Path) -> None:
    """300,000 rows logged as fast as possible grow the process by at most 250 MB, and none is lost."""
    child = Child(tmp_path)
    done = child.run(
        """
        import resource
        logger.log_scalar("x", 0.0, step=0)
        logger.flush()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for i in range(1, 300_000):
            logger.log_scalar("x", float(i), step=i)
        logger.close()
        print("GROWTH", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
        """
    )
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"GROWTH (\S+)", done.stdout)[1]) < 250
    assert child.steps() == list(range(300_000))


def test_at_most_four_videos_wait(tmp_path: Path) -> None:
    """A fifth video that waits to be encoded holds up the call instead of growing memory, and all are stored."""
    child = Child(tmp_path)
    done = child.run(
        """
        video, times = torch.randint(0, 255, (60, 3, 256, 256), dtype=torch.uint8), []
        for i in range(10):
            start = time.monotonic()
            logger.log_video("v", video, step=i)
            times.append(time.monotonic() - start)
            assert len(logger.experiment._self_writer.media._jobs) <= 5
        logger.close()
        print("TIMES", max(times[:4]), sum(times[5:]))
        """
    )
    assert done.returncode == 0, done.stderr
    assert child.steps("v") == list(range(10))
    quick, slow = map(float, re.search(r"TIMES (\S+) (\S+)", done.stdout).groups())
    assert quick < slow
