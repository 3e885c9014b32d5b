"""The other half of ``run.py``: what a run needs beyond that when it is sent to a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import trackio
from trackio.sqlite_storage import SQLiteStorage
from trackio.utils import TRACKIO_DIR, serialize_values

from torchrl_trackio.artifact_store import ServerArtifactStore
from torchrl_trackio.run import StoredRun, Warn
from torchrl_trackio.server import ask, check_token, reason, without_login, without_secrets

_SPILL_SECONDS = 1.0  # the longest that the disk waits for a request in progress, and between two writes to it
_FLUSH_SECONDS = 5.0  # the longest that a flush waits for the server before rows are written to disk instead
_END_SECONDS = 5.0  # the longest that the end of a run waits for a server that is not there
_PAUSE_SECONDS = 0.2
_KEPT = """
    SELECT run_id, space_id, COUNT(*) AS kept, MAX(step) AS last_step FROM metrics WHERE space_id IS NOT NULL
    GROUP BY run_id, space_id
"""


class ServerRun(StoredRun):
    """A run that is sent to a self-hosted server, and kept on disk while the server is away.

    Trackio sends what it kept once the server is back, but leaves out configurations and alerts, is stopped for good by
    a NaN, and does not look for what an earlier process has left.
    """

    def __init__(self, run: trackio.Run, warn: Warn, *, reopened: bool = False) -> None:
        super().__init__(run, warn, reopened=reopened)
        self.artifacts: ServerArtifactStore = ServerArtifactStore(run, self._ask, self._on_kept_artifact)
        self._unsent_alerts: list[dict[str, Any]] = []
        run._pending_entries_with_traces = self._entries_to_replay
        run._write_alerts_to_sqlite = self._keep_alerts
        run._flush_local_buffer = self._replay
        run._remote_storage_key = self.place  # is written to the disk, beside what is kept
        run._has_local_buffer = run._has_local_buffer or self._has_left_behind()
        self._spilled = time.monotonic()

    @property
    def place(self) -> str:
        """The server's address, without a login or a token."""
        return without_secrets(self.run._server_base_url)

    @property
    def waiting(self) -> int:
        """How many rows the server has not taken yet; at least one where it has not taken something else."""
        return super().waiting + (max(self._kept_rows(), 1) if self.run._has_local_buffer else 0)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Log one row; as long as the server has never been there, to the local disk."""
        super().write(step, values)
        if self.run._client is None and time.monotonic() - self._spilled > _SPILL_SECONDS:
            super().write_out(time.monotonic() + _SPILL_SECONDS)
            self._spilled = time.monotonic()

    def write_out(self, until: float) -> None:
        """Wait for the server to take everything; after 5 s, write to the local disk what it has not taken."""
        run, patience = self.run, min(until, time.monotonic() + _FLUSH_SECONDS)
        while time.monotonic() < patience:
            waiting = (run._queued_logs, run._queued_system_logs, run._queued_uploads, run._queued_alerts)
            # In 0.42 a batch that is being sent shows in the lock only.
            sending = getattr(run, "_sending_batch", None) or run._client_lock.locked()
            if not any(waiting) and not sending and not run._has_local_buffer:
                return
            time.sleep(0.02)
        super().write_out(min(until, time.monotonic() + _SPILL_SECONDS))

    def end(self, until: float, *, in_vain: bool = False) -> None:
        """End the run; a server that is not there is not waited for until the end of the time.

        Rows and media are sent by a later run, alerts and artifacts are not.
        """
        if self.run._client is not None and self.waiting and not self._comes_back(until):
            in_vain, until = True, min(until, time.monotonic() + _SPILL_SECONDS)
            self.run._client = None  # with one, the sender would try again and again, without a pause
        super().end(until, in_vain=in_vain)
        if alerts := len(self._unsent_alerts):
            self._warn("lost alerts", f"{alerts} alerts of run {self.run.name!r} did not reach {self.place}")
        if unstored := self.artifacts.unstored:
            self._warn(
                "lost artifacts", f"{unstored} artifacts of run {self.run.name!r} were not stored by {self.place}"
            )

    def _comes_back(self, until: float) -> bool:
        until = min(until, time.monotonic() + _END_SECONDS)
        with suppress(ValueError):  # it is back with another token
            while not check_token(self.run._server_base_url, self.run._write_token):
                if time.monotonic() > until:
                    return False
                time.sleep(_PAUSE_SECONDS)
            return True
        return False

    def _kept(self) -> dict[str, dict[str, Any]]:
        """By run, what is on the disk since this server was away: the number of rows and the last step."""
        found: list[dict[str, Any]] = []
        with suppress(FileNotFoundError, ValueError):  # there is no database yet, or it is just being made
            found = SQLiteStorage.query_project(self.run.project, _KEPT)["rows"]
        return {run["run_id"]: run for run in found if self._is_for_this(run)}

    def _kept_rows(self) -> int:
        with suppress(Exception):  # a database that is locked just now is counted later
            return sum(run["kept"] for run in self._kept().values())
        return 0

    def _has_left_behind(self) -> bool:
        """Whether an earlier process has left rows on the disk that are this server's."""
        project = self.run.project
        with suppress(Exception):  # a disk that cannot be read has nothing to send
            return bool(self._kept()) or self._is_for_this(SQLiteStorage.get_pending_uploads(project))
        return False

    def _is_for_this(self, pending: Any) -> bool:
        return bool(pending) and without_secrets(pending["space_id"]).rstrip("/") == self.place.rstrip("/")

    def _entries_to_replay(self, pending: Any, traces: Any) -> list[dict[str, Any]]:
        """Trackio's, but with the configurations, and without numbers that JSON cannot hold."""
        entries: list[dict[str, Any]] = trackio.Run._pending_entries_with_traces(self.run, pending, traces)
        for entry in _first_of_each_run(entries):
            own = entry["run_id"] == self.run.id
            entry["config"] = self.run.config if own else self._config_on_disk(entry["run_id"])
        return serialize_values(entries)  # type: ignore[no-any-return]

    def _config_on_disk(self, run_id: str) -> dict[str, Any] | None:
        config: dict[str, Any] | None = SQLiteStorage.get_run_config(self.run.project, run_id=run_id)
        return config

    def _keep_alerts(self, alerts: list[dict[str, Any]]) -> None:
        trackio.Run._write_alerts_to_sqlite(self.run, alerts)
        self._unsent_alerts += alerts
        self.run._has_local_buffer = True

    def _replay(self) -> bool:
        if not trackio.Run._flush_local_buffer(self.run):
            return False
        try:
            self._send_alerts()
            self.artifacts.send_kept()
        except Exception:  # noqa: BLE001 - whatever the network raises, the sender tries again
            self.run._has_local_buffer = True
            return False
        return True

    def _send_alerts(self) -> None:
        if alerts := list(self._unsent_alerts):
            self.run._client.predict(api_name="/bulk_alert", alerts=alerts, hf_token=None)
            del self._unsent_alerts[: len(alerts)]

    def _on_failure(self, key: str, message: str) -> None:
        super()._on_failure(key, without_login(message))

    def _on_kept_artifact(self, name: str, error: Exception) -> None:
        self._warn(
            "kept artifact",
            f"artifact {name!r} is kept in {TRACKIO_DIR}, since {self.place} did not take it: it is stored once the "
            f"server does, if this process is still there ({reason(error)})",
        )

    def _read_config(self) -> dict[str, Any]:
        kept = self._config_on_disk(self.run.id) if self.run.id in self._kept() else None
        return {**(self._summary(self.run.id).get("config") or {}), **(kept or {})}

    def _read_metric(self, name: str) -> list[dict[str, Any]]:
        values = self._ask("get_metric_values", run=None, metric_name=name, run_id=self.run.id)
        return values or []

    def _read_last_step(self, run_id: str) -> int | None:
        kept = self._kept().get(run_id, {})  # before the server is asked, which may be taking them just now
        steps = (kept.get("last_step"), self._summary(run_id).get("last_step"))
        return max((step for step in steps if step is not None), default=None)

    def _summary(self, run_id: str) -> dict[str, Any]:
        return self._ask("get_run_summary", run_id=run_id) or {}

    def _ask(self, function: str, **arguments: Any) -> Any:
        return ask(self.run._server_base_url, self.run._write_token, function, project=self.run.project, **arguments)


def _first_of_each_run(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    firsts: dict[str, dict[str, Any]] = {}
    for entry in entries:
        firsts.setdefault(entry["run_id"], entry)
    return list(firsts.values())


def stored_run(run: trackio.Run, warn: Warn, *, reopened: bool) -> StoredRun:
    """The run with what it needs to lose nothing where it is stored."""
    kind: Callable[..., StoredRun] = ServerRun if run._server_base_url else StoredRun
    return kind(run, warn, reopened=reopened)
