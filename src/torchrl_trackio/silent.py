"""What stands in for a run where another process logs: on all ranks but the first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch.distributed
import trackio

from torchrl_trackio.alerts import alert_of
from torchrl_trackio.artifacts import new_artifact
from torchrl_trackio.hparams import merge_config, to_config
from torchrl_trackio.rows import FINISHED
from torchrl_trackio.values import flatten_metrics, to_metrics, to_step


class SilentRun:
    """Takes what a :class:`TrackioRun` takes, checks it the same way, and stores nothing.

    The exception is what shows only when an artifact is stored: a file that is missing, a state that cannot be pickled,
    a name that is of another type. The first rank refuses it, and the others go on.

    Args:
        name: the run's name.
        project: its project's name.
        config: its hyperparameters.
    """

    place = "nowhere: only rank 0 logs"
    id, url, group = "", None, None
    resumed = False

    def __init__(self, name: str, project: str, config: dict[str, Any]) -> None:
        self.name = name
        self.project = project
        self.config = config
        self.finished = False

    def add(self, values: dict[str, Any], errors: Iterable[Exception] = (), step: int | None = None) -> None:  # noqa: ARG002
        """Raise what the first rank raises, so that no rank goes on alone."""
        self._check()
        if errors := list(errors):
            raise type(errors[0])("; ".join(map(str, errors)))

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Check the metrics."""
        if step is not None:
            to_step(step)
        self.add(*to_metrics(flatten_metrics(metrics)))

    def add_number(self, name: str, number: float, step: int | None) -> None:  # noqa: ARG002
        """Refuse it if the run is finished."""
        self._check()

    def add_video(self, name: str, video: Any, step: int | None) -> None:  # noqa: ARG002
        """Refuse it if the run is finished."""
        self._check()

    def add_artifact(
        self,
        source: Any,
        name: str | None,
        type: str,  # noqa: A002
        aliases: list[str],  # noqa: ARG002
        checkpoint: Mapping[str, Any] | None = None,
    ) -> trackio.Artifact:
        """Return an artifact that is stored nowhere."""
        self._check()
        return new_artifact(source, name, type, (self.name, self.id), checkpoint)

    def alert(
        self,
        title: str,
        text: str | None = None,
        level: trackio.AlertLevel | str = "warn",
        step: int | None = None,
        webhook_url: str | None = None,  # noqa: ARG002
    ) -> None:
        """Check the alert."""
        alert_of(title, text, level)
        if step is not None:
            to_step(step)
        self._check()

    def update_config(self, cfg: Any) -> None:
        """Add hyperparameters to :attr:`config`."""
        self._check()
        merge_config(self.config, to_config(cfg))

    def finish(self, timeout: float | None = None) -> None:  # noqa: ARG002
        """Be finished."""
        self.finished = True

    def identity(self) -> dict[str, Any]:
        """As the first rank's, but of no run."""
        return {"project": self.project, "name": self.name, "id": self.id, "last_steps": {}}

    def adopt(self, saved: Mapping[str, Any]) -> None:
        """Take the name of the run that the first rank continues."""
        self.name = saved["name"]

    def do_nothing(self, *args: Any, **kwargs: Any) -> None:
        """Take whatever is given."""

    flush = do_nothing

    def _check(self) -> None:
        if self.finished:
            raise RuntimeError(FINISHED)

    def __getattr__(self, name: str) -> Callable[..., None]:
        """What else a :class:`trackio.Run` can do, as ``log_system``, does nothing."""
        if not name.startswith("_") and hasattr(trackio.Run, name):
            return self.do_nothing
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<SilentRun {self.name!r} of project {self.project!r}: only rank 0 logs>"


def rank() -> int:
    """This process's rank: what a launcher such as torchrun set, else that in the process group, else 0."""
    if os.environ.get("RANK"):
        return int(os.environ["RANK"])
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
