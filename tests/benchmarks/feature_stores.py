"""What each logger has left on disk, read back into one form."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = tuple[str, Any, dict[str, Any]]
_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


@dataclass
class Stored:
    """What is on disk.

    Args:
        rows: (run, step, values) of each record of metrics, in the order of storing.
        config: the hyperparameters and what else is said about the run.
        files: images, videos, sounds and the like.
        alerts: the titles.
        artifacts: version by alias.
        traces: (messages, spans) of each.
        commit: that of the git repository in which the logging program lay.
    """

    rows: list[Row] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    alerts: list[str] = field(default_factory=list)
    artifacts: dict[str, Any] = field(default_factory=dict)
    traces: list[tuple[Any, Any]] = field(default_factory=list)
    commit: str = ""

    def points(self, name: str = "x") -> list[tuple[Any, Any]]:
        """(step, value) of one metric."""
        return [(step, values[name]) for _, step, values in self.rows if name in values]

    def steps(self, name: str = "x") -> list[Any]:
        """The steps of one metric."""
        return [step for step, _ in self.points(name)]

    def runs(self, name: str = "x") -> set[str]:
        """The runs that hold the metric."""
        return {run for run, _, values in self.rows if name in values}

    def has_file(self, *suffixes: str) -> bool:
        """Whether a file of one of these kinds is there, and not empty."""
        return any(path.suffix in suffixes and path.stat().st_size for path in self.files)


def read_trackio(folder: Path) -> Stored:
    """Trackio's databases."""
    stored = Stored(files=_files(folder / "media"))
    for path in folder.glob("*.db"):
        with closing(sqlite3.connect(path)) as connection:
            for run, step, metrics in _query(connection, "SELECT run_id, step, metrics FROM metrics ORDER BY id"):
                stored.rows.append((run, step, {k: _number(v) for k, v in json.loads(metrics).items()}))
            for (config,) in _query(connection, "SELECT config FROM configs ORDER BY id"):
                stored.config.update(json.loads(config))
            stored.alerts += [title for (title,) in _query(connection, "SELECT title FROM alerts")]
            stored.traces += [
                (json.loads(messages), json.loads(spans))
                for messages, spans in _query(connection, "SELECT messages, spans FROM traces")
            ]
            aliases = "SELECT alias, version FROM artifact_aliases JOIN artifact_versions ON artifact_version_id = id"
            stored.artifacts.update(_query(connection, aliases))
    return stored


def _number(value: Any) -> Any:
    """JSON has no words for them, so they are stored as strings."""
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def _query(connection: sqlite3.Connection, sql: str) -> list[tuple[Any, ...]]:
    try:
        return connection.execute(sql).fetchall()
    except sqlite3.OperationalError:  # a store in which nothing was logged yet lacks the table
        return []


def read_tensorboard(folder: Path) -> Stored:
    """TensorBoard's event files; a run is a folder of them."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    stored = Stored()
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        for event in LegacyEventFileLoader(str(path)).Load():
            for value in event.summary.value:
                kind, run = value.WhichOneof("value"), str(path.parent.relative_to(folder))
                if value.metadata.plugin_data.plugin_name == "hparams":
                    stored.config.update(_tensorboard_hparams(value.metadata.plugin_data.content))
                elif kind in ("image", "audio"):
                    stored.files.append(_write(path.with_suffix(f".{len(stored.files)}"), value, kind))
                elif kind:
                    stored.rows.append((run, event.step, {value.tag: getattr(value, kind)}))
    return stored


def _tensorboard_hparams(content: bytes) -> dict[str, Any]:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    hparams = HParamsPluginData.FromString(content).session_start_info.hparams
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in hparams.items()}


def _write(path: Path, value: Any, kind: str) -> Path:
    content = value.image.encoded_image_string if kind == "image" else value.audio.encoded_audio_string
    suffix = ".wav" if kind == "audio" else ".gif" if content.startswith(b"GIF") else ".png"
    path = path.with_suffix(path.suffix + suffix)
    path.write_bytes(content)
    return path


def read_mlflow(folder: Path) -> Stored:
    """MLflow's database, by its client, and its folder of artifacts."""
    from mlflow import MlflowClient

    stored = Stored(files=_files(folder / "artifacts"))
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    for run in client.search_runs([experiment.experiment_id for experiment in client.search_experiments()]):
        stored.config.update({**run.data.params, **run.data.tags})
        for name in run.data.metrics:
            history = client.get_metric_history(run.info.run_id, name)
            stored.rows += [(run.info.run_id, metric.step, {name: metric.value}) for metric in history]
    return stored


def read_wandb(folder: Path) -> Stored:
    """The records that W&B keeps of offline runs for their upload, and the files beside them."""
    from wandb.proto.wandb_internal_pb2 import Record

    stored = Stored(files=[path for path in _files(folder) if "files" in path.parts])
    for path in sorted(folder.rglob("run-*.wandb")):
        run = ""
        for record in map(Record.FromString, _wandb_records(path.read_bytes())):
            run = record.run.run_id or run
            _merge(stored.config, [*record.run.config.update, *record.config.update])
            if record.run.git.commit:
                stored.config["git"] = record.run.git.commit
            if record.HasField("history"):
                items = record.history.item
                values = {"/".join(i.nested_key) or i.key: _number(json.loads(i.value_json)) for i in items}
                stored.rows.append((run, _wandb_step(values), values))
            if record.HasField("alert"):
                stored.alerts.append(record.alert.title)
            if record.HasField("artifact"):
                stored.artifacts.update(dict.fromkeys(record.artifact.aliases, record.artifact.name))
    return stored


def _wandb_records(content: bytes) -> Iterator[bytes]:
    """The records of a log in LevelDB's format, with 7 bytes of its own at the start."""
    position, record = 7, b""
    while position + 7 <= len(content):
        if (left := 32768 - position % 32768) < 7:
            position += left
            continue
        size, kind = struct.unpack_from("<HB", content, position + 4)
        record += content[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            yield record
            record = b""


def _merge(config: dict[str, Any], items: Any) -> None:
    for item in items:
        *path, last = item.nested_key or [item.key]
        place = config
        for key in path:
            place = place.setdefault(key, {})
        place[last] = json.loads(item.value_json)


def _wandb_step(values: Mapping[str, Any]) -> Any:
    """The step that torchrl's logger puts into the row, beside the count of rows that is W&B's own."""
    return next((v for k, v in values.items() if k == "step" or k.endswith("/step")), values.get("_step"))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


READERS: dict[str, Callable[[Path], Stored]] = {
    "torchrl-trackio": read_trackio,
    "built-in": read_trackio,
    "W&B": read_wandb,
    "TensorBoard": read_tensorboard,
    "MLflow": read_mlflow,
}
