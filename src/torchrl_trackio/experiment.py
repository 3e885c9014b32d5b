"""The experiment handle: a Trackio run that may be shared, forked, pickled, resumed and ended twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import trackio
import wrapt

from torchrl_trackio import lifecycle
from torchrl_trackio.alerts import alert_of
from torchrl_trackio.artifacts import filled, new_artifact
from torchrl_trackio.configuration import Configuration
from torchrl_trackio.errors import warn_in_background
from torchrl_trackio.histograms import PendingHistogram
from torchrl_trackio.names import run_name
from torchrl_trackio.progress import Progress
from torchrl_trackio.run import reopen
from torchrl_trackio.values import flatten_metrics, to_metrics, to_step
from torchrl_trackio.video import Video
from torchrl_trackio.writer import RunWriter

_LOGGING = {"log_artifact", "log_system"}  # what is Trackio's own
_PLAIN = {float, int, type(None), PendingHistogram}
_FORK_SECONDS = 1.0  # the longest that a fork waits for each lock of a write in progress

_counts: dict[tuple[str, str, str], dict[str, int]] = {}  # last steps of finished runs, by (place, project, name)


class TrackioRun(wrapt.ObjectProxy):  # type: ignore[type-arg]
    """A :class:`trackio.Run` whose ``log``, ``flush`` and ``finish`` keep every value.

    ``isinstance(run, trackio.Run)`` holds, and every attribute of the run is there. What differs:

    * :meth:`log` gathers what is logged for one step in one row, and takes tensors and arrays;
    * :meth:`flush` waits until everything is stored; :meth:`finish` may be called twice;
    * :attr:`config` may be changed at any time;
    * the run can be pickled, deep-copied and used after a fork: all go on writing to the same run.

    It is the ``experiment`` of a :class:`TrackioLogger`, which makes it.
    """

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
            Configuration(config, record=log_env and not reopened),
            alert_on_nonfinite=alert_on_nonfinite,
            quiet=quiet,
            reopened=reopened,
        )
        self._self_progress = self._self_new_progress()
        if not self.resumed:
            self._self_last_steps.update(_counts.get(self._self_place(), {}))
        lifecycle.add(self)

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Store metrics in the row of ``step``.

        Args:
            metrics: name to value, as for :meth:`TrackioLogger.log_metrics`.
            step: any integer-like number; ``None`` for the run's largest step so far plus one.

        Raises:
            TypeError: if a name or value cannot be stored; the others are.
            ValueError: likewise.
            RuntimeError: if the run is finished.
        """
        if step is None:
            step = 1 + self._self_largest_step()
        self.add(*to_metrics(flatten_metrics(metrics)), step=to_step(step))

    def add(self, values: dict[str, Any], errors: Iterable[Exception] = (), step: int | None = None) -> None:
        """Put converted values into the row of ``step``, then raise what kept the others from being converted.

        Args:
            values: stored names to what :mod:`torchrl_trackio.values` makes of values.
            errors: one for each value that could not be converted.
            step: an ``int``, or ``None`` to continue the names' own count.
        """
        self._self_catch_up()
        errors, writer = list(errors), self._self_writer
        objects = [name for name, value in values.items() if type(value) not in _PLAIN]
        if objects:
            step = writer.rows.count(values, step)
            errors += writer.store_objects(objects, values, step)
        if values:
            writer.rows.add(values, step)
        if errors:
            raise type(errors[0])("; ".join(map(str, errors)))

    def add_number(self, name: str, number: float, step: int | None) -> None:
        """:meth:`add` for the one value that is logged most often, without the questions that it need not be asked."""
        if self._self_left_behind:
            self._self_catch_up()
        self._self_writer.rows.add({name: number}, step)

    def add_video(self, name: str, video: Video, step: int | None) -> None:
        """Encode a video in the background and store it in a row of its own; ``step`` as for :meth:`add`."""
        self._self_catch_up()
        if not self._self_writer.options["quiet"]:
            self._self_progress.arm()
        self._self_writer.add_video(name, video, step)

    def add_artifact(
        self,
        source: Any,
        name: str | None,
        type: str,  # noqa: A002
        aliases: list[str],
        checkpoint: Mapping[str, Any] | None = None,
    ) -> trackio.Artifact:
        """Store a file, folder or object; of a ``checkpoint``, as ``best`` if its metric is better than that one's.

        Args:
            source: as :func:`new_artifact` takes it.
            name: the artifact's; ``None`` for the file's, or one of the run's own.
            type: its category.
            aliases: beside ``latest``.
            checkpoint: from :func:`checkpoint_metadata`.

        Raises:
            TypeError: if the source is of another type.
            ValueError: if a name or alias is none that Trackio takes, or there is no such file.
            RuntimeError: if the run is finished.
        """
        artifact = new_artifact(source, name, type, (self.name, self.id), checkpoint)
        self._self_use()
        try:
            with filled(artifact, source, checkpoint):
                return self._self_writer.store.artifacts.log(artifact, aliases, checkpoint)
        except (TypeError, ValueError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever the disk or the store raises, training goes on
            step = f" of step {checkpoint['step']}" if checkpoint else ""
            warn_in_background(f"artifact {artifact.name!r}{step} is not stored: {error.__class__.__name__}: {error}")
        return artifact

    def alert(
        self,
        title: str,
        text: str | None = None,
        level: trackio.AlertLevel | str = "warn",
        step: int | None = None,
        webhook_url: str | None = None,
    ) -> None:
        """Raise an alert, which the dashboard shows and the terminal prints.

        Args:
            title: its title.
            text: further text.
            level: ``"info"``, ``"warn"`` or ``"error"``.
            step: any integer-like number; ``None`` for the run's largest so far.
            webhook_url: where to send it, instead of the run's own.

        Raises:
            TypeError: if the title, text or step is of another type.
            ValueError: if the level is none of these, the title empty, or a text no valid Unicode.
            RuntimeError: if the run is finished.
        """
        alert = alert_of(title, text, level)
        step = max(self._self_largest_step(), 0) if step is None else to_step(step)
        self._self_use()
        self._self_writer.alert(*alert, step, webhook_url)

    @property
    def config(self) -> dict[str, Any]:
        """The run's hyperparameters, nested as given. A change is stored by the next flush at the latest."""
        return self._self_writer.config.values

    def update_config(self, cfg: Any) -> None:
        """Add hyperparameters to those of the run, level by level; the later value wins.

        Raises:
            TypeError: if ``cfg`` is no configuration.
            RuntimeError: if the run is finished.
        """
        self._self_catch_up()
        self._self_writer.rows.check()
        self._self_writer.config.update(cfg)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything logged so far is stored, videos included.

        In local mode it is then on disk and visible to readers. Rows that a server has not taken within 5 s are on the
        local disk and sent later.

        Args:
            timeout: the longest to wait, in seconds; ``None`` for as long as it takes.
        """
        if self._self_left_behind or self._self_finished:
            return
        until = time.monotonic() + (threading.TIMEOUT_MAX / 2 if timeout is None else timeout)
        if not self._self_writer.flush(until):
            late = f"flush() of run {self.name!r} took over {timeout} s: the rest is stored later"
            self._self_writer.warn("flush", late)

    def finish(self, timeout: float = 30.0) -> None:
        """Store everything and end the run. Further calls do nothing; further values are refused.

        Args:
            timeout: the longest to wait for the store, in seconds. What a server has not taken by then is on the local
                disk.
        """
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
        """Where the run is stored: a folder or a URL."""
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

    def _self_largest_step(self) -> int:
        return max(self._self_writer.rows.largest_step, self._self_writer.store.next_step - 1)

    def _self_use(self) -> None:
        """Have the run listed though it may have no row, and refuse what comes after its end."""
        self._self_catch_up()
        self._self_writer.rows.use()

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
        return _unpickle, (spec, stored, self.config, self._self_last_steps, writer.options)

    def __copy__(self) -> TrackioRun:
        return self

    def __deepcopy__(self, memo: Any) -> TrackioRun:
        return self

    def __repr__(self) -> str:
        return f"<TrackioRun {self.name!r} of project {self.project!r} in {self.place}>"

    __str__ = __repr__  # which the proxy would ask the run for

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def _unpickle(
    spec: Mapping[str, Any],
    stored: dict[str, Any],
    config: dict[str, Any],
    last_steps: Mapping[str, int],
    options: Mapping[str, bool],
) -> TrackioRun:
    for live in lifecycle.live:
        if live.id == spec["run_id"]:
            return live
    run = TrackioRun(reopen(spec, stored), config, reopened=True, **options)
    run._self_last_steps.update(last_steps)
    return run
