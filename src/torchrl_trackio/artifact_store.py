"""Where artifacts go: Trackio's inside, as ``run.py`` and ``server_run.py``, for artifacts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import trackio
from trackio.cas import blob_path
from trackio.sqlite_storage import SQLiteStorage

_SECONDS = 3.0  # after the start of a run, the longest that a version waits for the server's first answer
_PAUSE_SECONDS = 0.05

Aliases = Callable[[], Sequence[str]]  # asked when the version is stored, since that of the best may depend on others


class ArtifactStore:
    """The artifacts of a run that is stored on this machine."""

    def __init__(self, run: trackio.Run) -> None:
        self._run = run

    def log(self, artifact: trackio.Artifact, aliases: Aliases) -> trackio.Artifact:
        """Store a version.

        Raises:
            ValueError: if a name, an alias or the files are none that Trackio takes.
            Exception: whatever the store raises.
        """
        return self._run.log_artifact(artifact, aliases=list(aliases()))

    def metadata(self, name: str, alias: str) -> dict[str, Any] | None:
        """The metadata of a stored version; ``None`` without one."""
        return (self._stored(name, alias) or {}).get("metadata")

    def _stored(self, name: str, alias: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = SQLiteStorage.get_artifact_manifest(self._run.project, name, alias)
        return found


class ServerArtifactStore(ArtifactStore):
    """The artifacts of a run that is sent to a server; what it does not take is kept on disk until it is back.

    Args:
        run: the run.
        ask: asks the server's function of that name, with arguments by name.
        on_failure: told of what keeps a version from being stored now.
    """

    def __init__(self, run: trackio.Run, ask: Callable[..., Any], on_failure: Callable[[str, Exception], None]) -> None:
        super().__init__(run)
        self._ask = ask
        self._on_failure = on_failure
        self._patience = time.monotonic() + _SECONDS
        self._kept: list[tuple[dict[str, Any], Aliases]] = []

    @property
    def kept(self) -> int:
        """How many versions wait for the server."""
        return len(self._kept)

    def log(self, artifact: trackio.Artifact, aliases: Aliases) -> trackio.Artifact:
        """Store a version, or keep it: its files on disk, its name and aliases in this process."""
        try:
            if not self._has_answered():
                raise ConnectionError("it has not answered yet")
            if self._kept:
                raise ConnectionError("earlier ones still wait")
            return super().log(artifact, aliases)
        except (TypeError, ValueError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever the network raises
            self._keep(artifact, aliases)
            self._on_failure(artifact.name, error)
            return artifact

    def send_kept(self) -> None:
        """Store what was kept, once the server has got its files; called by Trackio's sender, which holds its lock.

        Raises:
            Exception: whatever the network raises.
        """
        while self._kept:
            version, aliases = self._kept[0]
            self._run._client.predict(api_name="/artifact_log", aliases=list(aliases()), **version)
            del self._kept[0]

    def _has_answered(self) -> bool:
        """Whether the server was ever there; asked for the first time, wait: Trackio would wait 60 s each time."""
        while self._run._client is None and time.monotonic() < self._patience:
            time.sleep(_PAUSE_SECONDS)
        return self._run._client is not None

    def _keep(self, artifact: trackio.Artifact, aliases: Aliases) -> None:
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
        self._kept.append((version, aliases))
        run._has_local_buffer = True

    def _stored(self, name: str, alias: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._ask("get_artifact_manifest", name=name, spec=alias)
        return found
