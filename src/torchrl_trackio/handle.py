"""The experiment handle's life: a Trackio run that may be shared, forked, pickled, resumed and ended twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import trackio
import wrapt

from torchrl_trackio import lifecycle
from torchrl_trackio.arrays import describe
from torchrl_trackio.configuration import Configuration
from torchrl_trackio.names import run_name
from torchrl_trackio.patience import within
from torchrl_trackio.progress import Progress
from torchrl_trackio.run import reopen
from torchrl_trackio.writer import RunWriter

if TYPE_CHECKING:
    from typing_extensions import Self

_LOGGING = {"log_artifact", "log_system"}  # what is Trackio's own
_END_SECONDS = 30.0  # the longest that the end of a run waits for a server
_FORK_SECONDS = 1.0  # the longest that a fork waits for each lock of a write in progress

_counts: dict[tuple[str, str, str], dict[str, int]] = {}  # last steps of finished runs, by (place, project, name)


class RunHandle(wrapt.ObjectProxy):  # type: ignore[type-arg]
    """One run in every process, until it ends; a :class:`TrackioRun` says what may be logged to it."""

    def __init__(
        self,
        run: trackio.Run,
        config: dict[str, Any],
        *,
        log_env: bool = False,
        alert_on_nonfinite: bool = False,
        quiet: bool = False,
        reopened: bool = False,
    ) -> None:
        super().__init__(run)
        self._self_finished = False
        self._self_left_behind = False
        self._self_finishing = threading.RLock()
        self._self_writer = RunWriter(
            run,
            Configuration(config, record=log_env, stored=reopened),
            alert_on_nonfinite=alert_on_nonfinite,
            quiet=quiet,
            reopened=reopened,
        )
        self._self_progress = self._self_new_progress()
        if not self.resumed:
            self._self_last_steps.update(_counts.get(self._self_place(), {}))
        lifecycle.add(self)

    def finish(self, timeout: float | None = None) -> None:
        """Store everything and end the run. Further calls do nothing; further values are refused.

        Args:
            timeout: the longest to wait, in seconds. What a server has not taken by then is on the local disk; what the
                disk has not, is stored later. ``None`` for as long as the disk takes, and 30 s for a server.
        """
        if timeout is None:
            self.end(_END_SECONDS)
        elif not within(timeout, lambda: self.end(timeout)):
            self._self_writer.warn_of_delay("close()", timeout)

    def end(self, timeout: float) -> None:
        """:meth:`finish`, but only a server is not waited for longer than ``timeout`` seconds."""
        if self._self_left_behind:
            return
        with self._self_finishing:
            if self._self_finished:
                return
            self.show_progress()
            try:
                self._self_writer.end(timeout)
            finally:
                self._self_progress.stop()
            self._self_finished = True
            _counts[self._self_place()] = self._self_last_steps
            lifecycle.live.discard(self)

    def show_progress(self) -> None:
        """Show what is left to store until the run is finished, unless it is a quiet one."""
        if not self._self_writer.options["quiet"]:
            self._self_progress.start()

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self._self_finished

    @property
    def resumed(self) -> bool:
        """Whether the run was in the store before."""
        return self._self_writer.store.resumed

    @property
    def place(self) -> str:
        """Where the run is stored: a folder, a Space, or a server's address without its login and token."""
        return self._self_writer.store.place

    def identity(self) -> dict[str, Any]:
        """What :meth:`adopt` needs to continue this run: project, name, id and the metrics' last steps."""
        return {"project": self.project, "name": self.name, "id": self.id, "last_steps": dict(self._self_last_steps)}

    def adopt(self, saved: Mapping[str, Any]) -> None:
        """Continue the run that ``saved`` identifies.

        Raises:
            RuntimeError: if this is another run, and has rows already, or another project.
            ValueError: if the saved run is not in the store, although it had rows.
        """
        if saved["id"] != self.id:
            if self._self_writer.rows.used or self.resumed or saved["project"] != self.project:
                raise RuntimeError(
                    f"This TrackioLogger logs to run {self.id!r} but the checkpoint was written by run "
                    f"{saved['id']!r}. Construct the logger for the saved run before loading, e.g. "
                    "get_logger(..., state_dict=saved_state)."
                )
            name = run_name(saved["name"])
            self._self_writer.store.become(saved["id"], name, stored=bool(saved["last_steps"]))
            self._self_last_steps.clear()
            if self.resumed:
                self.resume_config()
        self._self_last_steps.update(saved["last_steps"])

    def resume_config(self) -> None:
        """Merge this run's configuration into what is stored of it."""
        self._self_writer.config.resume(self._self_writer.store)

    def abandon(self) -> None:
        """End a run that nothing has been logged to, and store nothing of it."""
        self._self_finished = True
        lifecycle.live.discard(self)
        self._self_writer.store.abandon()

    def hold(self) -> list[Callable[[], None]]:
        """Keep background threads out while the process forks; returns what lets them in again."""
        return self._self_writer.hold(_FORK_SECONDS)

    def leave_behind(self) -> None:
        """In a forked child: what the parent holds is the parent's, and its threads are not here."""
        self._self_left_behind = True
        self._self_finishing = threading.RLock()
        self._self_progress = self._self_new_progress()
        self._self_writer.config.new_lock()

    def _self_new_progress(self) -> Progress:
        return Progress(self.name, lambda: self._self_writer.left())

    @property
    def _self_last_steps(self) -> dict[str, int]:
        return self._self_writer.rows.last_steps

    def _self_catch_up(self) -> None:
        """Open the run anew where a fork has left its threads and locks behind."""
        if self._self_left_behind:
            with self._self_finishing:
                if self._self_left_behind:
                    store = self._self_writer.store
                    self.__wrapped__ = reopen(store.spec(), store.run.config)
                    self._self_writer = self._self_writer.reopened(self.__wrapped__)
                    self._self_left_behind = False
                    lifecycle.add(self)

    def _self_place(self) -> tuple[str, str, str]:
        return (self.place, self.project, self.name)

    def __getattr__(self, name: str) -> Any:
        if self._self_left_behind and name in _LOGGING:
            self._self_catch_up()
        return super().__getattr__(name)

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        writer = self._self_writer
        spec, stored = writer.store.spec(), writer.store.run.config
        return _unpickle, (type(self), spec, stored, self.config, self._self_last_steps, writer.options)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of project {self.project!r} in {self.place}>"

    __str__ = __repr__  # which the proxy would ask the run for

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def _unpickle(
    kind: type[RunHandle],
    spec: Mapping[str, Any],
    stored: dict[str, Any],
    config: dict[str, Any],
    last_steps: Mapping[str, int],
    options: Mapping[str, bool],
) -> RunHandle:
    for live in lifecycle.live:
        if live.id == spec["run_id"]:
            return live
    run = kind(reopen(spec, stored), config, reopened=True, **options)
    run._self_last_steps.update(last_steps)
    return run


def saved_identity(state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
    """The :meth:`RunHandle.identity` in a logger's state.

    Raises:
        TypeError: if it is no mapping.
        ValueError: if it holds none.
    """
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"state_dict must be what a TrackioLogger's state_dict() returned, got {describe(state_dict)}")
    local = state_dict.get("local", {})
    if not {"project", "name", "id", "last_steps"} <= local.keys():
        raise ValueError(
            f"this is no state of a TrackioLogger, it has the keys {sorted(state_dict)}: pass what its state_dict() "
            "returned, not the checkpoint around it"
        )
    identity: Mapping[str, Any] = local
    return identity
