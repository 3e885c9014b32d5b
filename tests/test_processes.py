"""One run, whoever logs to it: threads, forks, pickles, copies, worker processes; and many runs side by side."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
import trackio
from torchrl.record import VideoRecorder

import reading
from children import Child
from torchrl_trackio import TrackioLogger


def log_in_worker(logger: TrackioLogger, name: str, count: int) -> None:
    for i in range(count):
        logger.log_scalar(name, float(i), step=i)


def test_a_forked_child_goes_on_in_the_same_run(logger: TrackioLogger, project: str) -> None:
    """What a fork logs is stored once, with no flush of its own, and the parent's open row is not stored twice."""
    logger.log_scalar("parent", 0.0, step=0)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=log_in_worker, args=(logger, f"child{i}", 100)) for i in range(3)]
    for child in children:
        child.start()
    logger.log_scalar("parent", 1.0, step=1)
    for child in children:
        child.join(60)
    logger.flush()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert reading.series(project, "parent") == [(0, 0.0), (1, 1.0)]
    for i in range(3):
        assert reading.series(project, f"child{i}") == [(step, float(step)) for step in range(100)]
    assert reading.run_ids(project) == {logger.experiment.id}


def test_forks_while_threads_log_and_flush_neither_hang_nor_lose(logger: TrackioLogger, project: str) -> None:
    """A fork in the middle of a write finds no lock held in the child."""
    stop = threading.Event()
    logged = 0

    def work() -> None:
        nonlocal logged
        while not stop.is_set():
            logger.log_scalar("parent", 0.0, step=logged)
            logged += 1
            if not logged % 50:
                logger.flush()

    thread = threading.Thread(target=work)
    thread.start()
    context = multiprocessing.get_context("fork")
    codes = []
    for i in range(8):
        child = context.Process(target=log_in_worker, args=(logger, "child", i + 1))
        child.start()
        child.join(30)
        codes.append(child.exitcode)
        if child.exitcode is None:
            child.kill()
    stop.set()
    thread.join()
    logger.flush()
    assert codes == [0] * 8
    assert len(reading.series(project, "child")) == sum(range(1, 9))
    assert [step for step, _ in reading.series(project, "parent")] == list(range(logged))


def test_a_spawned_worker_with_a_pickled_logger_loses_nothing(logger: TrackioLogger, project: str) -> None:
    """A worker that neither flushes nor closes stores everything, in the same run, and adds no hyperparameter loss."""
    logger.log_hparams({"lr": 1.0})
    logger.log_scalar("parent", 0.0, step=0)
    worker = multiprocessing.get_context("spawn").Process(target=log_in_worker, args=(logger, "child", 50))
    worker.start()
    worker.join(100)
    logger.flush()
    assert worker.exitcode == 0
    assert reading.series(project, "child") == [(step, float(step)) for step in range(50)]
    assert reading.series(project, "parent") == [(0, 0.0)]
    assert reading.config(project) == {"lr": 1.0}
    assert reading.run_ids(project) == {logger.experiment.id}


def test_a_worker_prints_nothing(tmp_path: Path) -> None:
    """Trackio's lines come from the process that made the logger, not once more from every worker."""
    done = Child(tmp_path).run(
        """
        import pickle, subprocess
        logger.log_scalar("x", 0.0, step=0)
        code = "import pickle, sys; pickle.load(sys.stdin.buffer).log_scalar('y', 1.0, step=0)"
        subprocess.run([sys.executable, "-c", "import torch; " + code], input=pickle.dumps(logger), check=True,
                       stdout=sys.stderr)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_copies_and_pickles_within_a_process_are_the_same_run(logger: TrackioLogger, project: str) -> None:
    """copy, deepcopy and an unpickled logger share the handle, so that rows and counts are common."""
    logger.log_scalar("x", 0.0)
    copy.copy(logger).log_scalar("x", 1.0)
    copy.deepcopy({"transform": [logger]})["transform"][0].log_scalar("x", 2.0)
    pickle.loads(pickle.dumps(logger)).log_scalar("x", 3.0)
    logger.flush()
    assert reading.series(project, "x") == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0)]
    assert reading.run_ids(project) == {logger.experiment.id}


def test_several_loggers_live_side_by_side(project: str) -> None:
    """A logger neither ends nor slows another one, and ``trackio.log`` still reaches the run of the user's own init."""
    own = trackio.init(project=project, name="own", config={"mine": 1}, auto_log_cpu=False)
    config = trackio.config
    loggers = [TrackioLogger(f"run{i}", project) for i in range(3)]
    trackio.log({"x": 5.0})
    assert trackio.config is config
    start = time.perf_counter()
    for step in range(200):
        for logger in loggers:
            logger.log_scalar("x", float(step), step=step)
    assert (time.perf_counter() - start) / 600 < 1e-3  # a run that trackio has ended takes 6 ms and more
    for logger in loggers:
        logger.close()
    own.finish()
    for i in range(3):
        assert reading.series(project, "x", f"run{i}") == [(step, float(step)) for step in range(200)]
    assert reading.series(project, "x", "own") == [(0, 5.0)]


def test_closed_loggers_leave_no_threads(project: str) -> None:
    """Fifteen loggers, videos included, come and go without a trace."""
    before = set(threading.enumerate())
    for i in range(15):
        with TrackioLogger(f"run{i}", project) as logger:
            logger.log_scalar("x", 1.0, step=0)
            if not i % 5:
                logger.log_video("v", torch.zeros(2, 3, 16, 16), step=0)
    assert set(threading.enumerate()) - before == set()


RECORDING = """
import torch
from functools import partial
from torchrl.collectors import MultiSyncCollector
from torchrl.envs import GymEnv, ParallelEnv, TransformedEnv
from torchrl.record import VideoRecorder
from torchrl_trackio import TrackioLogger

def make_env(logger, tag):
    env = GymEnv("CartPole-v1", from_pixels=True, pixels_only=False)
    return TransformedEnv(env, VideoRecorder(logger, tag=tag, dump_on_done=True))

if __name__ == "__main__":
    logger = TrackioLogger("run", "p")
    env = ParallelEnv(2, [partial(make_env, logger, "env0"), partial(make_env, logger, "env1")])
    env.rollout(150, break_when_any_done=False)
    env.close()
    makers = [partial(make_env, logger, "collector")]
    collector = MultiSyncCollector(makers, None, frames_per_batch=150, total_frames=150)
    for i, batch in enumerate(collector):
        logger.log_scalar("frames", float(batch.numel()), step=i)
    collector.shutdown()
    logger.close()
"""


@pytest.mark.slow
@pytest.mark.skipif(
    "dump_on_done" not in inspect.signature(VideoRecorder).parameters,
    reason="this torchrl's VideoRecorder cannot dump in a worker by itself",
)
def test_a_video_recorder_works_in_parallel_environments_and_collectors(tmp_path: Path) -> None:
    """A recorder that holds the logger is carried into worker processes and stores its videos in the same run."""
    script = tmp_path / "script.py"
    script.write_text(RECORDING)
    child = Child(tmp_path / "store", prelude="import sys, subprocess\n")
    done = child.run(f"sys.exit(subprocess.call([sys.executable, {str(script)!r}]))")
    assert done.returncode == 0, done.stderr
    assert child.steps("frames") == [0]
    videos = [len(child.steps(tag)) for tag in ("env0", "env1", "collector")]
    assert min(videos) >= 2
    assert len(child.videos()) == sum(videos)
    assert len(child.run_ids()) == 1


def make_and_log(project: str) -> None:
    logger = TrackioLogger("child", project)
    for step in range(50):
        logger.log_scalar("x", float(step), step=step)


def test_a_logger_made_in_a_forked_child_loses_nothing(project: str) -> None:
    """A child of multiprocessing skips atexit, and stores everything all the same."""
    child = multiprocessing.get_context("fork").Process(target=make_and_log, args=(project,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert [step for step, _ in reading.series(project, "x", "child")] == list(range(50))


def raise_alert(logger: TrackioLogger) -> None:
    logger.experiment.alert("from the child", step=0)
    logger.flush()


def test_an_alert_may_be_the_first_thing_a_forked_child_logs(logger: TrackioLogger, project: str) -> None:
    """Trackio's own calls do not wait for locks that the parent held at the fork."""
    logger.log_scalar("x", 0.0, step=0)
    child = multiprocessing.get_context("fork").Process(target=raise_alert, args=(logger,))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert reading.query(project, "SELECT title FROM alerts") == [("from the child",)]


def test_hyperparameters_of_a_worker_add_to_those_of_the_parent(logger: TrackioLogger, project: str) -> None:
    """A worker's log_hparams keeps what the parent logged after the worker got its copy."""
    logger.log_hparams({"early": 1})
    logger.log_scalar("x", 0.0, step=0)
    logger.flush()
    pickled = pickle.dumps(logger)
    logger.log_hparams({"late": 1})
    logger.flush()
    code = (
        "import pickle, sys; logger = pickle.load(sys.stdin.buffer); logger.log_hparams({'child': 1}); logger.flush()"
    )
    subprocess.run([sys.executable, "-c", code], input=pickled, check=True, capture_output=True)
    assert reading.config(project) == {"early": 1, "late": 1, "child": 1}
    del logger.experiment.config["early"]
    logger.log_hparams({"later": 1})
    logger.flush()
    assert reading.config(project) == {"late": 1, "child": 1, "later": 1}


def test_a_fork_during_the_first_video(tmp_path: Path) -> None:
    """The child's own video does not wait for a lock of the parent's encoder."""
    child = Child(tmp_path)
    done = child.run(
        """
        frames = torch.zeros(5, 3, 16, 16, dtype=torch.uint8)  # OpenMP, for larger ones, does not survive a fork
        logger.log_video("v", frames, step=0)
        time.sleep(0.0007)
        if not (pid := os.fork()):
            logger.log_video("v", frames, step=1)
            logger.flush()
            os._exit(0)
        until = time.monotonic() + 30
        while not (ended := os.waitpid(pid, os.WNOHANG))[0] and time.monotonic() < until:
            time.sleep(0.1)
        if not ended[0]:
            os.kill(pid, signal.SIGKILL)
        print("ENDED", ended[0] == pid)
        """
    )
    assert done.returncode == 0, done.stderr
    assert "ENDED True" in done.stdout
    assert sorted(child.steps("v")) == [0, 1]
