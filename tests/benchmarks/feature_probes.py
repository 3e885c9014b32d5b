"""What is asked of each logger: a probe logs in a process of its own, then its judge looks at what is stored.

A judge answers with a bool, with a phrase for the table, or with a dict of the parts that it looked for.
"""

from __future__ import annotations

import enum
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from feature_stores import Stored
from tensordict import TensorDict

Verdict = bool | str | dict[str, bool]


class Session:
    """What a probe has at hand: the logger of one kind, which it makes when first asked.

    Args:
        kind: the logger, as the table names it.
        options: further arguments, of the logger or of its calls, as the probe likes.
    """

    def __init__(self, kind: str, options: dict[str, Any]) -> None:
        self.kind = kind
        self.options = options
        self.errors: list[str] = []
        self._logger: Any = None

    @property
    def logger(self) -> Any:
        """The logger."""
        if self._logger is None:
            self._logger = make(self.kind)
        return self._logger

    def close(self) -> None:
        """End the logger, if there is one."""
        if self._logger is not None:
            self._logger.shutdown()

    def attempt(self, *calls: Callable[[], Any]) -> None:
        """Make calls of which each may raise."""
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - what it raises is the result
                self.errors.append(f"{type(error).__name__}: {error}")


def logger_class(kind: str) -> Any:
    """A logger's class."""
    if kind == "torchrl-trackio":
        from torchrl_trackio import TrackioLogger
    elif kind == "built-in":
        from torchrl.record.loggers.trackio import TrackioLogger
    else:
        from torchrl.record import loggers

        return {"W&B": loggers.WandbLogger, "TensorBoard": loggers.TensorboardLogger, "MLflow": loggers.MLFlowLogger}[
            kind
        ]
    return TrackioLogger


def options_of(kind: str) -> dict[str, Any]:
    """What makes a logger store in the current folder."""
    store = Path.cwd() / "store"
    return {
        "TensorBoard": {"log_dir": str(store)},
        "W&B": {"project": "p", "offline": True, "save_dir": str(store)},
        "MLflow": {
            "tracking_uri": f"sqlite:///{store}/mlflow.db",
            "artifact_location": (store / "artifacts").as_uri(),
        },
    }.get(kind, {"project": "p"})


def make(kind: str, exp_name: str = "run", **options: Any) -> Any:
    """A logger."""
    return logger_class(kind)(exp_name, **options_of(kind), **options)


@dataclass(frozen=True)
class Probe:
    """One row of the table.

    Args:
        title: what the row is about.
        run: logs.
        judge: looks at what is stored.
        needs: the logger's method that it is about.
        otherwise: what the table says if the judge says no and nothing was raised.
        isolated: whether it runs without any network.
        killed: whether the process ends itself.
        ffmpeg: whether an FFmpeg is there, for those loggers that need it.
    """

    title: str
    run: Callable[[Session], Any]
    judge: Callable[[Stored], Verdict]
    needs: str = ""
    otherwise: str = "no"
    isolated: bool = False
    killed: bool = False
    ffmpeg: bool = False


PROBES: dict[str, Probe] = {}


def probe(title: str, judge: Callable[[Stored], Verdict], **settings: Any) -> Callable[[Any], Any]:
    """Make a row of the table from a function that logs."""

    def register(run: Callable[[Session], Any]) -> Callable[[Session], Any]:
        PROBES[run.__name__] = Probe(title, run, judge, **settings)
        return run

    return register


# Numbers


@probe("0-d tensors in `log_scalar`", lambda s: s.points() == [(0, 0.5)], otherwise="dropped")
def tensor(session: Session) -> None:
    session.logger.log_scalar("x", torch.tensor(0.5), step=0)


@probe(
    "bool and float16 tensors in `log_scalar`",
    lambda s: {"bool": s.points("b") == [(0, 1)], "float16": s.points("h") == [(0, 0.5)]},
    otherwise="dropped",
)
def small_tensors(session: Session) -> None:
    log = session.logger.log_scalar
    session.attempt(
        lambda: log("b", torch.tensor(True), step=0),
        lambda: log("h", torch.tensor(0.5, dtype=torch.float16), step=0),
    )


def _count(stored: Stored) -> str:
    rows = [values for _, _, values in stored.rows if any(name.startswith("m") for name in values)]
    return f"{len(rows)} rows" if len(rows) > 1 else f"{len(rows)} row"


@probe("20 `log_scalar` calls of a step are stored as", _count)
def one_row(session: Session) -> None:
    for i in range(20):
        session.logger.log_scalar(f"m{i}", 0.5, step=0, **session.options)


@probe("`log_metrics` of 20 numbers is stored as", _count)
def one_row_of_metrics(session: Session) -> None:
    session.logger.log_metrics({f"m{i}": 0.5 for i in range(20)}, step=0)


@probe("`step=None` goes on after step 5", lambda s: s.steps() == [5, 6] or f"step {s.steps()[-1]}")
def next_step(session: Session) -> None:
    session.logger.log_scalar("x", 1.0, step=5)
    session.logger.log_scalar("x", 2.0)


@probe(
    "steps from numpy and torch, as integers",
    lambda s: {"numpy": 3 in s.steps("n"), "torch": 4 in s.steps("t")},
    otherwise="no integers",
)
def foreign_step(session: Session) -> None:
    log = session.logger.log_scalar
    session.attempt(lambda: log("n", 1.0, step=np.int64(3)), lambda: log("t", 1.0, step=torch.tensor(4)))


@probe(
    "NaN and infinity",
    lambda s: {"NaN": any(map(math.isnan, _values(s, "n"))), "infinity": _values(s, "i") == [math.inf]},
    otherwise="dropped",
)
def non_finite(session: Session) -> None:
    log = session.logger.log_scalar
    session.attempt(lambda: log("n", math.nan, step=0), lambda: log("i", math.inf, step=0))


def _values(stored: Stored, name: str) -> list[Any]:
    return [value for _, value in stored.points(name) if isinstance(value, float)]


@probe(
    "nested metrics in `log_metrics`",
    lambda s: {"`TensorDict`": s.points("td/loss") == [(0, 0.5)], "dict": s.points("d/loss") == [(0, 0.5)]},
    otherwise="dropped",
)
def nested_metrics(session: Session) -> None:
    log = session.logger.log_metrics
    nested = TensorDict({"td": TensorDict({"loss": torch.tensor(0.5)})})
    session.attempt(lambda: log(nested, step=0), lambda: log({"d": {"loss": 0.5}}, step=0))


@probe("`log_histogram` without `bins`", lambda s: s.steps() == [0], otherwise="dropped")
def histogram(session: Session) -> None:
    session.logger.log_histogram("x", torch.randn(1000), step=0)


@probe(
    "`log_histogram` of bfloat16, of a parameter",
    lambda s: {"bfloat16": s.steps("b") == [0], "a parameter": s.steps("p") == [0]},
    otherwise="dropped",
)
def histogram_of_tensors(session: Session) -> None:
    log, parameter = session.logger.log_histogram, torch.nn.Parameter(torch.randn(1000))
    session.attempt(
        lambda: log("b", torch.randn(1000, dtype=torch.bfloat16), step=0, bins=16),
        lambda: log("p", parameter, step=0, bins=16),
    )


# Hyperparameters


@probe("hyperparameters after the first metric", lambda s: str(s.config.get("lr")) == "0.5", otherwise="lost")
def late_hparams(session: Session) -> None:
    session.logger.log_scalar("x", 1.0, step=0)
    session.logger.log_hparams({"lr": 0.5})


class Mode(enum.Enum):
    """A choice of an agent."""

    GREEDY = "greedy"


@probe(
    "enums, classes, tensors in hyperparameters, readable",
    lambda s: {
        "enums": "greedy" in str(s.config.get("mode")).lower(),  # by name or value
        "classes": "Tanh" in str(s.config.get("net")),
        "tensors": "0.5" in str(s.config.get("scale")),
    },
    otherwise="unreadable",
)
def hparams_of_types(session: Session) -> None:
    log = session.logger.log_hparams
    session.attempt(
        lambda: log({"mode": Mode.GREEDY}),
        lambda: log({"net": torch.nn.Tanh}),
        lambda: log({"scale": torch.tensor(0.5)}),
        lambda: session.logger.log_scalar("x", 1.0, step=0),
    )


def _leaf(stored: Stored) -> Verdict:
    if "optim/lr" in stored.config or "optim.lr" in stored.config:
        return True
    # Of those that keep the nesting, W&B's own tables name its leaves (`optim.lr`), Trackio's do not.
    nested = stored.config.get("optim")
    return (isinstance(nested, dict) and "_wandb" in stored.config) or (bool(nested) and "one cell")


@probe("nested hyperparameters can be grouped by leaf", _leaf)
def nested_hparams(session: Session) -> None:
    session.logger.log_hparams({"optim": {"lr": 0.5}})
    session.logger.log_scalar("x", 1.0, step=0)


# Video


def clip(height: int = 64, width: int = 64, channels: int = 3) -> Any:
    """A video ``(1, 12, C, H, W)``, uint8: the left half is white in 6 frames, then the right half."""
    video = torch.zeros(1, 12, channels, height, width, dtype=torch.uint8)
    video[:, :6, ..., : width // 2] = 255
    video[:, 6:, ..., width // 2 :] = 255
    return video


def _plays(stored: Stored) -> Verdict:
    """Whether one stored file holds the clip, in a form that browsers play."""
    import av

    found = [path for path in stored.files if path.suffix in (".mp4", ".webm", ".gif")]
    if len(found) != 1:
        return False
    with av.open(str(found[0])) as file:
        stream = file.streams.video[0]
        frames = np.stack([frame.to_ndarray(format="gray") for frame in file.decode(stream)])
        codec = (stream.codec.name, stream.codec_context.pix_fmt)
    if codec[0] != "gif" and codec not in (("h264", "yuv420p"), ("vp9", "yuv420p")):
        return f"{codec[0]}, {codec[1]}"
    middle = frames.shape[2] // 2
    halves = [[_light(frame[:, : middle - 4]), _light(frame[:, middle + 4 :])] for frame in frames]
    if halves == [[False, False]] * len(halves):
        return "black"
    changes = [half for half, _ in groupby(halves)]  # a GIF may hold equal frames once
    return changes == [[True, False], [False, True]] or "garbled"


def _light(pixels: np.ndarray) -> bool | None:
    """Whether they are white; nothing for what is neither white nor black."""
    return True if pixels.min() > 200 else False if pixels.max() < 55 else None


@probe("uint8 videos, without a system FFmpeg", _plays, otherwise="dropped")
def video(session: Session) -> None:
    session.logger.log_video("x", clip(), step=1)


@probe("float videos", _plays, otherwise="dropped", ffmpeg=True)
def float_video(session: Session) -> None:
    session.logger.log_video("x", clip() / 255, step=1)


@probe("videos of odd sizes", _plays, otherwise="dropped", ffmpeg=True)
def odd_video(session: Session) -> None:
    session.logger.log_video("x", clip(63, 65), step=1)


@probe("grayscale videos", _plays, otherwise="dropped", ffmpeg=True)
def gray_video(session: Session) -> None:
    session.logger.log_video("x", clip(channels=1), step=1)


# Durability and processes


def _kept(stored: Stored) -> Verdict:
    count = len(set(stored.steps()))
    return count == 200 or ("some" if count else "none")


def _log_200(session: Session) -> None:
    for step in range(200):
        session.logger.log_scalar("x", float(step), step=step)


@probe("`flush()`, then SIGKILL of the job and its helpers keeps all rows", _kept, killed=True)
def flush(session: Session) -> None:
    import psutil

    _log_200(session)
    session.logger.flush()
    for helper in psutil.Process().children(recursive=True):
        helper.kill()
    os.kill(os.getpid(), signal.SIGKILL)


@probe("SIGKILL two seconds after the last row keeps all rows", _kept, killed=True)
def crash(session: Session) -> None:
    _log_200(session)
    time.sleep(2)
    os.kill(os.getpid(), signal.SIGKILL)


def _both(stored: Stored) -> Verdict:
    if len(stored.runs("a") | stored.runs("b")) == 1:
        return "one run"
    return sorted(stored.steps("a")) == sorted(stored.steps("b")) == [0, 1, 2]


@probe("two loggers at once", _both, otherwise="loses rows")
def two_loggers(session: Session) -> None:
    loggers = {name: make(session.kind, name, **session.options) for name in ("a", "b")}
    for step in range(3):
        for name, logger in loggers.items():
            logger.log_scalar(name, 1.0, step=step)
    for logger in loggers.values():
        logger.shutdown()


def _one_run(stored: Stored) -> Verdict:
    if len(stored.runs()) > 1:
        return "another run"
    return sorted(stored.steps()) == [0, 1, 2]


def _log_from(method: str, target: Callable[..., None], *args: Any) -> None:
    """Log from a process of its own, and see how it ends."""
    process = multiprocessing.get_context(method).Process(target=target, args=args)
    process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        raise TimeoutError(f"the process started by {method} does not end")
    if process.exitcode:
        raise RuntimeError(f"the process started by {method} ended with {process.exitcode}")


def _work(logger: Any) -> None:
    logger.log_scalar("x", 1.0, step=1)
    with suppress(AttributeError):  # clients of a service have no flush
        logger.flush()


def _around(session: Session, logger: Any, method: str, worker: Any) -> None:
    logger.log_scalar("x", 0.0, step=0)
    session.attempt(lambda: _log_from(method, _work, worker), lambda: logger.log_scalar("x", 2.0, step=2))


@probe("pickled to a spawned worker", _one_run, otherwise="loses rows")
def pickled(session: Session) -> None:
    _around(session, session.logger, "spawn", session.logger)


@probe("used after a fork", _one_run, otherwise="loses rows")
def forked(session: Session) -> None:
    _around(session, session.logger, "fork", session.logger)


@probe('`service_backend="process"`, a client in a worker', _one_run, otherwise="loses rows")
def service(session: Session) -> None:
    logger = make(session.kind, service_backend="process")
    _around(session, logger, "spawn", logger.client())
    logger.shutdown(timeout=30)


def _resumed(stored: Stored) -> Verdict:
    if len(stored.runs()) > 1:
        return "another run"
    return stored.steps() == [0, 1, 2, 3] or (len(stored.steps()) == 4 and f"step {stored.steps()[-1]}")


@probe("resume by `get_logger(state_dict=)`: same run, next step", _resumed)
def resume(session: Session) -> None:
    for step in range(3):
        session.logger.log_scalar("x", float(step), step=step)
    state = session.logger.state_dict()
    session.logger.shutdown()
    _log_from("spawn", _resume, session.kind, state)


def _resume(kind: str, state: dict[str, Any]) -> None:
    from torchrl.record.loggers import get_logger

    name = {"W&B": "wandb", "TensorBoard": "tensorboard", "MLflow": "mlflow"}.get(kind, "trackio")
    options = {k: v for k, v in options_of(kind).items() if k in ("project", "offline")}
    logger = get_logger(name, "", "run", state_dict=state, **{f"{name}_kwargs": options})
    logger.log_scalar("x", 3.0)
    logger.shutdown()


# More than numbers


@probe("`log_str`", lambda s: s.steps() == [0], needs="log_str", otherwise="dropped")
def text(session: Session) -> None:
    session.logger.log_str("x", "hello", step=0)


@probe("`log_image`", lambda s: s.has_file(".png", ".jpg", ".webp"), needs="log_image")
def image(session: Session) -> None:
    session.logger.log_image("x", clip()[0, 0], step=0)


@probe(
    "`log_table`", lambda s: s.points()[0][1]["_value"] == [{"a": 0, "r": 0.5}, {"a": 1, "r": 1.0}], needs="log_table"
)
def table(session: Session) -> None:
    session.logger.log_table("x", {"a": [0, 1], "r": [0.5, 1.0]}, step=0)


@probe("`log_audio`", lambda s: s.has_file(".wav"), needs="log_audio")
def audio(session: Session) -> None:
    session.logger.log_audio("x", np.sin(np.arange(8000) / 10), step=0, sample_rate=8000)


@probe("`log_figure`", lambda s: s.has_file(".html", ".png", ".svg"), needs="log_figure")
def figure(session: Session) -> None:
    from matplotlib.figure import Figure

    drawn = Figure()
    drawn.subplots().plot([0, 1])
    session.logger.log_figure("x", drawn, step=0)


@probe(
    "`log_trace` of torchrl's `History`",
    lambda s: [[message["content"] for message in messages] for messages, _ in s.traces] == [["2 + 2?", "4"]],
    needs="log_trace",
)
def conversation(session: Session) -> None:
    from torchrl.data.llm.history import History

    chat = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    session.logger.log_trace("x", History.from_chats([chat]), step=0)


@probe("`log_trace` of an episode", lambda s: [len(spans) for _, spans in s.traces] in ([3], [4]), needs="log_trace")
def episode(session: Session) -> None:
    from torchrl.envs import GymEnv

    session.logger.log_trace("x", GymEnv("CartPole-v1").rollout(3), step=0)


@probe("`log_artifact` of a file", lambda s: "latest" in s.artifacts, needs="log_artifact")
def artifact(session: Session) -> None:
    Path("weights.bin").write_bytes(b"weights")
    session.logger.log_artifact("weights.bin", name="weights")


@probe(
    "`log_checkpoint`: versions, and an alias of the best",
    lambda s: (s.artifacts.get("best"), s.artifacts.get("latest")) == (1, 2),
    needs="log_checkpoint",
)
def checkpoint(session: Session) -> None:
    for step, reward in enumerate([1.0, 3.0, 2.0]):
        session.logger.log_checkpoint(torch.nn.Linear(2, 2), step, metric=reward, mode="max")


@probe("`log_alert`", lambda s: s.alerts == ["stuck"], needs="log_alert")
def alert(session: Session) -> None:
    session.logger.log_alert("stuck", "no reward since step 100", level="warn", step=200)


@probe("an alert by itself when a metric turns NaN", lambda s: len(s.alerts) == 1)
def nan_alert(session: Session) -> None:
    for step in range(3):
        session.logger.log_scalar("x", math.nan, step=step)


def _environment(stored: Stored) -> Verdict:
    from importlib.metadata import version

    texts = [path.read_text() for path in stored.files if path.suffix in (".txt", ".json", ".yaml")]
    everything = " ".join([str(stored.config), *texts])
    return {"versions": version("torch") in everything, "git commit": stored.commit in everything}


@probe("versions and git commit recorded by itself", _environment)
def environment(session: Session) -> None:
    session.logger.log_scalar("x", 1.0, step=0)


@probe("works with no network at all", lambda s: s.steps() == [0], isolated=True)
def offline(session: Session) -> None:
    session.logger.log_scalar("x", 1.0, step=0)


@probe("`get_logger` finds a subclass in another package", lambda s: s.steps() == [0])
def discovery(session: Session) -> None:
    from torchrl.record.loggers import get_logger

    code = f"import feature_probes\nclass Mine(feature_probes.logger_class({session.kind!r})):\n    pass\n"
    Path("mine.py").write_text(code)
    info = Path("mine-1.0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchrl.loggers]\nmine = mine:Mine\n")
    with suppress(NotImplementedError):  # torchrl's own answer to a name that it does not know
        logger = get_logger("mine", "", "run", mine_kwargs=options_of(session.kind))
        logger.log_scalar("x", 1.0, step=0)
        logger.shutdown()


# What a logger's own documentation offers where the plain call does not do it: tried, and named in the table.
ALTERNATIVES: dict[tuple[str, str], dict[str, Any]] = {
    ("one_row", "W&B"): {"commit": False},
    ("two_loggers", "W&B"): {"reinit": "create_new"},
}
