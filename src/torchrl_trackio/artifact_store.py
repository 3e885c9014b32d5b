"""Where artifacts go: Trackio's inside, as ``run.py`` and ``server_run.py``, for artifacts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import trackio
from trackio.cas import blob_path
from trackio.sqlite_storage import SQLiteStorage

from torchrl_trackio.artifacts import improves
from torchrl_trackio.errors import warn_in_background
from torchrl_trackio.server import own_answer, without_secrets

_SECONDS = 3.0  # after the start of a run, the longest that a version waits for the server's first answer
_PAUSE_SECONDS = 0.05
_PAUSED = 503  # the status with which a server says that it takes nothing just now
# Its answers, SQLite's and Trackio's words, while another process holds its store; their status is that of a refusal.
_LOCKED = ("database is locked", "database table is locked", "Could not acquire database lock")

Checkpoint = Mapping[str, Any] | None  # from artifacts.checkpoint_metadata


class ArtifactStore:
    """The artifacts of a run that is stored on this machine."""

    def __init__(self, run: trackio.Run) -> None:
        self._run = run
        self._one_at_a_time = threading.Lock()  # between finding out what is the best, and saying so

    def log(self, artifact: trackio.Artifact, aliases: list[str], checkpoint: Checkpoint = None) -> trackio.Artifact:
        """Store a version; of a checkpoint, as ``best`` if its metric is better than that one's.

        Raises:
            ValueError: if a name, an alias or the files are none that Trackio takes.
            Exception: whatever the store raises.
        """
        with self._one_at_a_time:
            return self._run.log_artifact(artifact, aliases=self._aliases(artifact.name, aliases, checkpoint))

    def _aliases(self, name: str, aliases: list[str], checkpoint: Checkpoint) -> list[str]:
        if checkpoint is None or "metric" not in checkpoint:
            return aliases
        best = self._stored(name, "best") or {}
        return [*aliases, "best"] if improves(checkpoint, best.get("metadata")) else aliases

    def _stored(self, name: str, alias: str) -> dict[str, Any] | None:
        SQLiteStorage.init_db(self._run.project)  # another run may be at it: then there is no table yet
        found: dict[str, Any] | None = SQLiteStorage.get_artifact_manifest(self._run.project, name, alias)
        return found


class ServerArtifactStore(ArtifactStore):
    """The artifacts of a run that is sent to a server; what it does not take is kept on disk until it is back.

    Args:
        run: the run.
        ask: asks the server's function of that name, with arguments by name; raises after 3 s without an answer.
        on_failure: told of what keeps a version from being stored now.
    """

    def __init__(self, run: trackio.Run, ask: Callable[..., Any], on_failure: Callable[[str, Exception], None]) -> None:
        super().__init__(run)
        self._ask = ask
        self._on_failure = on_failure
        self._patience = time.monotonic() + _SECONDS
        self._kept: list[tuple[dict[str, Any], list[str], Checkpoint]] = []
        self._refused = 0

    @property
    def unstored(self) -> int:
        """How many of the versions that were kept are not stored: the server is away, or has refused them."""
        return len(self._kept) + self._refused

    def log(self, artifact: trackio.Artifact, aliases: list[str], checkpoint: Checkpoint = None) -> trackio.Artifact:
        """Store a version, or keep it: its files on disk, its name and aliases in this process.

        Raises:
            ValueError: as in the local store.
            ConnectionError: if the server refuses it.
        """
        try:
            self._check_server(artifact)
            return super().log(artifact, aliases, checkpoint)
        except (TypeError, ValueError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever the network raises
            if refusal := self._refusal(error):
                raise refusal from None
            self._keep(artifact, aliases, checkpoint)
            self._on_failure(artifact.name, error)
            return artifact

    def send_kept(self) -> None:
        """Store what was kept, once the server has got its files; called by Trackio's sender, which holds its lock.

        Raises:
            Exception: whatever the network raises.
        """
        while self._kept:
            version, aliases, checkpoint = self._kept[0]
            try:
                aliases = self._aliases(version["name"], aliases, checkpoint)
                self._run._client.predict(api_name="/artifact_log", aliases=aliases, **version)
            except Exception as error:
                if not (refusal := self._refusal(error)):
                    raise
                self._refused += 1
                warn_in_background(f"artifact {version['name']!r} is not stored: {refusal}")
            del self._kept[0]

    def _refusal(self, error: Exception) -> ConnectionError | None:
        """What the server itself has answered; ``None`` where it is away or busy, or a proxy answers in its place."""
        if not isinstance(error, httpx.HTTPStatusError) or error.response.status_code == _PAUSED:
            return None
        answer = own_answer(error.response)
        if answer is None or answer.startswith(_LOCKED):
            return None
        place = without_secrets(self._run._server_base_url)
        return ConnectionError(f"the Trackio server at {place} answered: {answer}")

    def _check_server(self, artifact: trackio.Artifact) -> None:
        """Raise a ``ConnectionError`` if the server is not there: Trackio would wait a minute for it.

        Raises:
            ValueError: if it has an artifact of that name and another type, as the local store does.
        """
        while self._run._client is None and time.monotonic() < self._patience:
            time.sleep(_PAUSE_SECONDS)
        if self._run._client is None:
            raise ConnectionError("it has not answered yet")
        if self._kept:
            raise ConnectionError("earlier ones still wait")
        kind = (self._stored(artifact.name, "latest") or {}).get("type", artifact.type)
        if kind != artifact.type:
            raise ValueError(
                f"Artifact {artifact.name!r} already exists with type {kind!r}; cannot relog with type "
                f"{artifact.type!r}."
            )

    def _keep(self, artifact: trackio.Artifact, aliases: list[str], checkpoint: Checkpoint) -> None:
        run = self._run
        manifest = artifact._build_manifest(run.project)
        digests = [file["digest"] for file in manifest if "ref" not in file]
        SQLiteStorage.enqueue_artifact_blob_uploads(
            project=run.project,
            space_id=run._remote_storage_key,
            blobs=[(digest, str(blob_path(run.project, digest))) for digest in digests],
            run_name=run.name,
            run_id=run.id,
        )
        version = {key: getattr(artifact, key) for key in ("name", "type", "description", "metadata")}
        version.update(project=run.project, run_name=run.name, run_id=run.id, manifest=manifest, hf_token=None)
        self._kept.append((version, aliases, checkpoint))
        run._has_local_buffer = True

    def _stored(self, name: str, alias: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._ask("get_artifact_manifest", name=name, spec=alias)
        return found
