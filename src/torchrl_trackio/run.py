"""Trackio's run from the inside.

With ``server_run.py``, ``artifact_store.py`` and, for one method, ``images.py`` the only module that touches Trackio's
underscore names. They are needed where Trackio's public surface has no flush, drops a batch that it failed to write, or
cannot open a run a second time. All exist in 0.42 and 0.43; a new release is met here.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

import orjson
import trackio
from trackio import fragments
from trackio.media import TrackioMedia
from trackio.sqlite_storage import SQLiteStorage
from trackio.utils import TRACKIO_DIR, serialize_values

from torchrl_trackio.artifact_store import ArtifactStore
from torchrl_trackio.histograms import PendingHistogram
from torchrl_trackio.hub import bounded_hub

_LOCK_SECONDS = 30.0  # the longest that a flush waits for a write in progress
_MOST_QUEUED = 5000  # rows in Trackio's own, unbounded queue before they are written at once
_MOST_UNWRITTEN = 100_000  # rows kept of writes that failed
_OWN_KEYS = ("_Username", "_Created", "_Group")  # that Trackio adds to a configuration

_PLAIN = {float, int, str, dict, type(None)}
_is_loggable_figure = trackio.Html.is_loggable_figure


def _is_figure(value: Any) -> bool:
    try:
        return type(value) not in _PLAIN and _is_loggable_figure(value)
    except AttributeError:  # another thread is importing the figures' library just now
        return False


# Trackio asks it of every value, and drops those for which it raises.
trackio.Html.is_loggable_figure = staticmethod(_is_figure)

Warn = Callable[[str, str], None]  # takes the cause, which is warned about once, and the text


class StoredRun:
    """One :class:`trackio.Run`, written to so that no row, no late hyperparameter and no failed batch is lost.

    Args:
        run: the run.
        warn: told of each failure.
        reopened: whether another process, or this one before a fork, opened it first.
    """

    def __init__(self, run: trackio.Run, warn: Warn, *, reopened: bool = False) -> None:
        self.run = run
        self.resumed = run._initial_last_step is not None  # or reopened
        self.reopened = reopened
        self.artifacts = ArtifactStore(run)
        self._warn = warn
        self._wanted_config: dict[str, Any] | None = None
        self._unwritten: list[dict[str, Any]] = []
        self._dropped = 0
        self._writing = threading.Lock()
        self._failed = False
        self._writer = "_write_logs_to_sqlite" if run._is_local else "_persist_logs_locally"
        setattr(run, self._writer, self._write_logs)
        run._warn_once = self._on_failure

    @property
    def next_step(self) -> int:
        """Trackio's own count: the largest step so far plus one."""
        return self.run._next_step  # type: ignore[no-any-return]

    @property
    def place(self) -> str:
        """Where the run is stored: a folder, a Space or a server's address, to be shown."""
        return self.run._space_id or str(TRACKIO_DIR)

    @property
    def waiting(self) -> int:
        """How many rows Trackio has not handed to the store yet."""
        return len(self.run._queued_logs)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Log one row of plain values and :class:`PendingHistogram`."""
        row = {
            name: self._counted(value) if type(value) is PendingHistogram else value for name, value in values.items()
        }
        self.run.log(row, step=step)
        if len(self.run._queued_logs) >= _MOST_QUEUED:
            self.write_out(time.monotonic() + _LOCK_SECONDS)

    def stored_form(self, value: Any, step: int) -> Any:
        """What is stored of one of Trackio's own objects in a row of ``step``; files are stored at once.

        Raises:
            OSError: if a file cannot be stored.
            TypeError: or another error, if the object holds what Trackio cannot store.
        """
        run = self.run
        if isinstance(value, TrackioMedia):
            media = copy.copy(value)
            media._file_path = None  # logged before, it would stay the file of then
            return run._process_media(media, step)
        if isinstance(value, list):
            return [self.stored_form(item, step) for item in value]
        whose = {"project": run.project, "run": run.name, "step": step}
        form = value._to_dict(**whose) if isinstance(value, (trackio.Table, trackio.Trace)) else value._to_dict()
        form = orjson.loads(orjson.dumps(serialize_values(form)))
        run._scan_and_queue_media_uploads(form, step)
        return form

    def needs_config(self) -> bool:
        """Whether no row has carried the configuration yet."""
        return not self.run._config_logged

    def set_config(self, values: Mapping[str, Any]) -> None:
        """Have the next row carry the configuration, flat, if it is not what this process has set already."""
        flat = {**values, **{key: self.run.config[key] for key in _OWN_KEYS}}
        before, self._wanted_config = self._wanted_config, copy.deepcopy(flat)
        if before is not None or self.reopened:
            gone = (before or {}).keys() - flat.keys()
            known = before or self.run.config
            changed = {key: value for key, value in flat.items() if key not in known or known[key] != value}
            if not changed and not gone:
                return
            flat = {key: value for key, value in self._latest_config(changed).items() if key not in gone}
        with self._queue_lock():
            for row in self.run._queued_logs:
                row["config"] = None  # of the configurations in one batch, Trackio keeps the first
            self.run.config, self.run._config_logged = flat, False

    def _latest_config(self, changed: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration with this process's changes, and with those of others."""
        stored: dict[str, Any] = {}
        with suppress(Exception):  # a server that does not answer has nothing to add
            stored = self.stored_config()
        return {**self.run.config, **stored, **changed}

    def write_config(self) -> None:
        """Log an empty row that carries the configuration, if no row has: Trackio stores it only with one."""
        if self.needs_config():
            self.run.log({}, step=max(self.next_step - 1, 0))

    def stored_config(self) -> dict[str, Any]:
        """The flat configuration in the store. Trackio's own entries go over into this run."""
        stored = self._read_config()
        self.run.config["_Created"] = stored.get("_Created", self.run.config["_Created"])
        self.run.config["_Group"] = self.run.group or stored.get("_Group")
        return {key: value for key, value in stored.items() if key not in _OWN_KEYS}

    def stored_step(self, name: str) -> int:
        """The last step of a metric in the store; -1 for a run that is new."""
        if not self.resumed:
            return -1
        try:
            return max((value["step"] for value in self._read_metric(name)), default=-1)
        except Exception as error:  # noqa: BLE001 - the count may come out too high, but training goes on
            self._warn(
                "last step", f"the last step of {name!r} could not be read, its count goes on with the run's: {error}"
            )
            return self.next_step - 1

    def become(self, run_id: str, name: str, *, stored: bool) -> None:
        """Be the run of that id and name instead, before anything is logged.

        Args:
            run_id: the run's id.
            name: the run's name.
            stored: whether the run must be in the store: one that had no row when it was saved may not be.

        Raises:
            ValueError: if it must be, and is not.
        """
        last = self._read_last_step(run_id)
        if last is None and stored:
            raise ValueError(
                f"run {name!r} ({run_id}) is not in project {self.run.project!r} of {self.place}: set "
                "TRACKIO_DIR or server_url to where it was logged to, or start a new run"
            )
        self.run.id, self.run.name, self.resumed = run_id, name, last is not None
        self.run._next_step = 0 if last is None else last + 1

    def write_out(self, until: float) -> None:
        """Empty Trackio's queue into the store on disk; wait for a write in progress until ``until`` at most."""
        run = self.run
        locked = run._client_lock.acquire(timeout=max(min(until - time.monotonic(), _LOCK_SECONDS), 0))
        try:  # without the lock, too: what a stuck sender holds is written twice at worst, and stored once by its id
            run._flush_queues_inline()
            self._write_logs([])
        finally:
            if locked:
                run._client_lock.release()

    def end(self, until: float, *, in_vain: bool = False) -> None:
        """End the run, waiting for Trackio's sender once: ``Run.finish`` would wait another 30 s for a dead server.

        Args:
            until: when ``time.monotonic()`` is at it, the sender has had its time.
            in_vain: whether the sender cannot send everything in any case.
        """
        run = self.run
        run._stop_flag.set()
        sender = run._local_sender_thread if run._is_local else run._client_thread
        if sender is not None:
            sender.join(max(until - time.monotonic(), 0.1))
        if in_vain or (sender is not None and sender.is_alive()):
            for monitor in (run._gpu_monitor, run._cpu_monitor):
                if monitor is not None:
                    monitor.stop()
            run._flush_queues_inline()
            if not run._is_local:
                where = f"in {TRACKIO_DIR}, and the next logger of project {run.project!r} sends them"
                text = f"run {run.name!r} ended before {self.place} had taken all its rows: they are {where}"
                self._warn("unsent", text)
        elif not self.reopened:
            run.finish()
        self._write_logs([])
        if lost := len(self._unwritten) + self._dropped:
            self._warn("unwritten", f"{lost} rows of run {run.name!r} could not be written")

    def abandon(self) -> None:
        """End Trackio's threads, with nothing to write."""
        self.run._stop_flag.set()
        for monitor in (self.run._gpu_monitor, self.run._cpu_monitor):
            if monitor is not None:
                monitor.stop()

    def hold(self, timeout: float) -> list[Callable[[], None]]:
        """Keep Trackio's threads out, for a fork; returns what lets them in again."""
        locks = [self.run._client_lock] + ([self.run._queue_lock] if hasattr(self.run, "_queue_lock") else [])
        return [lock.release for lock in locks if lock.acquire(timeout=timeout)]

    def spec(self) -> dict[str, Any]:
        """What :func:`reopen` takes."""
        run = self.run
        return {
            "url": run.url,
            "project": run.project,
            "client": None,
            "name": run.name,
            "run_id": run.id,
            "group": run.group,
            "space_id": run._space_id,
            "bucket_id": run._bucket_id,
            "server_base_url": run._server_base_url,
            "write_token": run._write_token,
            "existing_runs": [],
            "initial_last_step": run._next_step - 1,
            "webhook_url": run._webhook_url,
            "webhook_min_level": run._webhook_min_level,
        }

    def _counted(self, histogram: PendingHistogram) -> dict[str, Any]:
        form: dict[str, Any] = trackio.Histogram(np_histogram=histogram.count())._to_dict()
        return form

    def _write_logs(self, logs: list[dict[str, Any]]) -> None:
        """Trackio's own writer to the disk, but what it fails to write is kept and written with the next batch."""
        with self._writing:
            self._write_all(self._unwritten + logs)

    def _write_all(self, rows: list[dict[str, Any]]) -> None:
        self._dropped += max(len(rows) - _MOST_UNWRITTEN, 0)
        rows = rows[-_MOST_UNWRITTEN:]
        if not rows:
            return
        configs = [row["config"] for row in rows if row.get("config")]
        for row in rows:
            row["config"] = None
        rows[0]["config"] = configs[-1] if configs else None
        self._failed = False
        getattr(trackio.Run, self._writer)(self.run, rows)
        self._unwritten = rows if self._failed else []

    def _on_failure(self, key: str, message: str) -> None:
        """Trackio's ``_warn_once``."""
        self._failed = True
        self._warn(key, message)

    def _read_config(self) -> dict[str, Any]:
        return SQLiteStorage.get_run_config(self.run.project, run_id=self.run.id) or {}

    def _read_metric(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = SQLiteStorage.get_metric_values(self.run.project, None, name, run_id=self.run.id)
        return found

    def _read_last_step(self, run_id: str) -> int | None:
        fragments.import_inbox_dir()  # rows of the JSONL mode are found only once they are imported
        last: int | None = SQLiteStorage.get_max_step_for_run(self.run.project, run_id=run_id)
        return last

    def _queue_lock(self) -> AbstractContextManager[Any]:
        # 0.42 has one lock for both.
        lock: AbstractContextManager[Any] = getattr(self.run, "_queue_lock", self.run._client_lock)
        return lock


def reopen(spec: Mapping[str, Any], config: dict[str, Any]) -> trackio.Run:
    """A second :class:`trackio.Run` for a run that is open elsewhere: another process, or this one before a fork."""
    with bounded_hub():
        run = trackio.Run(**spec)
    run.config, run._config_logged = config, True  # whoever opened the run first stores it
    return run
