"""The experiment handle: a Trackio run with a row buffer and a media queue before it."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import trackio
import wrapt

from torchrl_trackio import lifecycle
from torchrl_trackio.errors import cause_of, warn_in_background
from torchrl_trackio.histograms import PendingHistogram
from torchrl_trackio.hparams import merge_config, to_config
from torchrl_trackio.media import MediaQueue
from torchrl_trackio.names import run_name
from torchrl_trackio.rows import FINISHED, RowBuffer
from torchrl_trackio.run import reopen
from torchrl_trackio.server_run import stored_run
from torchrl_trackio.values import flatten_metrics, to_metrics, to_step
from torchrl_trackio.video import Video

_LOGGING = {"alert", "log_artifact", "log_system"}  # what is Trackio's own
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
    """

    def __init__(self, run: trackio.Run, config: dict[str, Any], *, reopened: bool = False) -> None:
        super().__init__(run)
        self._self_config = config
        self._self_config_changed = True
        self._self_finished = False
        self._self_left_behind = False
        self._self_warned: set[str] = set()
        self._self_new_locks()
        self._self_store = stored_run(run, self._self_warn, reopened=reopened)
        self._self_fill({} if self.resumed else _counts.get(self._self_place(), {}))
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
            step = 1 + max(self._self_rows.largest_step, self._self_store.next_step - 1)
        self.add(*to_metrics(flatten_metrics(metrics)), step=to_step(step))

    def add(self, values: dict[str, Any], errors: Iterable[Exception] = (), step: int | None = None) -> None:
        """Put converted values into the row of ``step``, then raise what kept the others from being converted.

        Args:
            values: stored names to what :mod:`torchrl_trackio.values` makes of values.
            errors: one for each value that could not be converted.
            step: an ``int``, or ``None`` to continue the names' own count.
        """
        self._self_catch_up()
        errors = list(errors)
        objects = [name for name, value in values.items() if type(value) not in _PLAIN]
        if objects:
            step = self._self_rows.count(values, step)
            self._self_store_objects(objects, values, errors, step)
        if values:
            self._self_rows.add(values, step)
        if errors:
            raise type(errors[0])("; ".join(map(str, errors)))

    def add_number(self, name: str, number: float, step: int | None) -> None:
        """:meth:`add` for the one value that is logged most often, without the questions that it need not be asked."""
        if self._self_left_behind:
            self._self_catch_up()
        self._self_rows.add({name: number}, step)

    def add_video(self, name: str, video: Video, step: int | None) -> None:
        """Encode a video in the background and store it in a row of its own; ``step`` as for :meth:`add`."""
        self._self_catch_up()
        step = self._self_rows.count([name], step)
        self._self_media.put(lambda: self._self_store_video(name, video, step))

    @property
    def config(self) -> dict[str, Any]:
        """The run's hyperparameters, nested as given. A change is stored by the next flush at the latest."""
        return self._self_config

    def update_config(self, cfg: Any) -> None:
        """Add hyperparameters to those of the run, level by level; the later value wins.

        Raises:
            TypeError: if ``cfg`` is no configuration.
            RuntimeError: if the run is finished.
        """
        self._self_catch_up()
        new = to_config(cfg)
        if self._self_finished:
            raise RuntimeError(FINISHED)
        with self._self_configuring:
            merge_config(self._self_config, new)
            self._self_config_changed = True

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
        done = self._self_rows.drain(timeout=max(until - time.monotonic(), 0))
        done = self._self_media.flush(until) and done
        self._self_write_config(until)
        self._self_store.write_out(until)
        if not done:
            self._self_warn("flush", f"flush() of run {self.name!r} took over {timeout} s: the rest is stored later")

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
            self._self_media.stop()
            self._self_rows.stop()
            until = time.monotonic() + timeout
            self._self_write_config(until)
            self._self_store.end(until)
            self._self_finished = True
            _counts[self._self_place()] = self._self_rows.last_steps
            lifecycle.live.discard(self)

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self._self_finished

    @property
    def resumed(self) -> bool:
        """Whether the run was in the store before."""
        return self._self_store.resumed

    @property
    def place(self) -> str:
        """Where the run is stored: a folder or a URL."""
        return self._self_store.place

    def identity(self) -> dict[str, Any]:
        """What :meth:`adopt` needs to continue this run: project, name, id and the metrics' last steps."""
        counts = dict(self._self_rows.last_steps)
        return {"project": self.project, "name": self.name, "id": self.id, "last_steps": counts}

    def adopt(self, saved: Mapping[str, Any]) -> None:
        """Continue the run that ``saved`` identifies.

        Raises:
            RuntimeError: if this is another run, and has rows already, or another project.
            ValueError: if the saved run is not in the store, although it had rows.
        """
        if saved["id"] != self.id:
            if self._self_rows.used or self._self_store.resumed or saved["project"] != self.project:
                raise RuntimeError(
                    f"This TrackioLogger logs to run {self.id!r} but the checkpoint was written by run "
                    f"{saved['id']!r}. Construct the logger for the saved run before loading, e.g. "
                    "get_logger(..., state_dict=saved_state)."
                )
            self._self_store.become(saved["id"], run_name(saved["name"]), stored=bool(saved["last_steps"]))
            self._self_rows.last_steps.clear()
            if self.resumed:
                self.resume_config()
        self._self_rows.last_steps.update(saved["last_steps"])

    def resume_config(self) -> None:
        """Merge this run's configuration into what is stored of it: Trackio would put it in its place."""
        stored = self._self_store.stored_config()
        with self._self_configuring:
            new = dict(self._self_config)
            self._self_config.clear()
            self._self_config.update(stored)
            merge_config(self._self_config, new)
            self._self_config_changed = True

    def abandon(self) -> None:
        """End a run that nothing has been logged to, and store nothing of it."""
        self._self_finished = True
        lifecycle.live.discard(self)
        self._self_store.abandon()

    def hold(self) -> list[Callable[[], None]]:
        """Keep background threads out while the process forks; returns what lets them in again."""
        return [*self._self_rows.hold(_FORK_SECONDS), *self._self_store.hold(_FORK_SECONDS)]

    def leave_behind(self) -> None:
        """In a forked child: what the parent holds is the parent's, and its threads are not here."""
        self._self_left_behind = True
        self._self_new_locks()

    def _self_catch_up(self) -> None:
        """Open the run anew where a fork has left its threads and locks behind."""
        if self._self_left_behind:
            with self._self_finishing:
                if self._self_left_behind:
                    self.__wrapped__ = reopen(self._self_store.spec(), self._self_store.run.config)
                    self._self_store = stored_run(self.__wrapped__, self._self_warn, reopened=True)
                    self._self_fill(self._self_rows.last_steps)
                    self._self_left_behind = False
                    lifecycle.add(self)

    def _self_new_locks(self) -> None:
        self._self_finishing = threading.RLock()
        self._self_configuring = threading.Lock()

    def _self_fill(self, last_steps: Mapping[str, int]) -> None:
        self._self_rows = RowBuffer(self._self_write_row, self._self_store.stored_step, last_steps)
        self._self_media = MediaQueue()

    def _self_store_objects(
        self, names: Iterable[str], values: dict[str, Any], errors: list[Exception], step: int
    ) -> None:
        """Replace Trackio's objects by what is stored of them: the caller may change them or delete their files."""
        for name in names:
            value = values.pop(name)
            try:
                values[name] = self._self_store.stored_form(value, step)
            except OSError as error:
                self._self_warn_of(error, name, step)
            except Exception as error:  # noqa: BLE001 - an object's own code can raise anything
                errors.append(TypeError(f"{name!r}: {type(value).__name__} cannot be stored: {error}"))

    def _self_write_row(self, step: int, values: Mapping[str, Any]) -> None:
        try:
            if self._self_config_changed or self._self_store.needs_config():
                self._self_prepare_config()
            self._self_store.write(step, values)
        except Exception as error:  # noqa: BLE001 - one row must not keep the next ones from being written
            self._self_warn_of(error, ", ".join(values), step)

    def _self_write_config(self, until: float) -> None:
        if not self._self_config and not self._self_rows.used:
            return
        if self._self_rows.writing.acquire(timeout=max(until - time.monotonic(), 0)):
            try:
                self._self_prepare_config()
                self._self_store.write_config()
            finally:
                self._self_rows.writing.release()

    def _self_prepare_config(self) -> None:
        with self._self_configuring:
            self._self_config_changed = False
            try:
                self._self_store.set_config(self._self_config)
            except RuntimeError:  # the user's own thread is changing `config` just now: with the next row, then
                self._self_config_changed = True

    def _self_store_video(self, name: str, video: Video, step: int) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="torchrl-trackio-") as folder:
                path = Path(folder) / f"video.{video.format}"
                video.encode(path)
                # The dashboard plays no gif in its <video>, but animates an image.
                media = trackio.Image(path) if video.format == "gif" else trackio.Video(path)
                form = self._self_store.stored_form(media, step)
            with self._self_rows.writing:
                self._self_write_row(step, {name: form})
        except Exception as error:  # noqa: BLE001 - whatever the encoder or the disk raises, training goes on
            self._self_warn_of(error, name, step)

    def _self_warn_of(self, error: Exception, name: str, step: int) -> None:
        text = f"{name!r} at step {step} could not be stored: {type(error).__name__}: {error}"
        self._self_warn(cause_of(error), text)

    def _self_warn(self, cause: str, message: str) -> None:
        if cause not in self._self_warned:
            self._self_warned.add(cause)
            warn_in_background(message)

    def _self_place(self) -> tuple[str, str, str]:
        return (self.place, self.project, self.name)

    def __getattr__(self, name: str) -> Any:
        if self._self_left_behind and name in _LOGGING:
            self._self_catch_up()
        return super().__getattr__(name)

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        stored, counts = self._self_store.run.config, self._self_rows.last_steps
        return _unpickle, (self._self_store.spec(), stored, self._self_config, counts)

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
    spec: Mapping[str, Any], stored: dict[str, Any], config: dict[str, Any], last_steps: Mapping[str, int]
) -> TrackioRun:
    for live in lifecycle.live:
        if live.id == spec["run_id"]:
            return live
    run = TrackioRun(reopen(spec, stored), config, reopened=True)
    run._self_rows.last_steps.update(last_steps)
    return run
