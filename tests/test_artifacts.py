"""Files, models and checkpoints as artifacts."""

from __future__ import annotations

import fcntl
import json
import math
import os
import pickle
import re
import signal
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import trackio
from tensordict import NonTensorData, TensorDict
from trackio.sqlite_storage import SQLiteStorage

from children import Child
from servers import TOKEN, Server
from torchrl_trackio import TrackioLogger, TrackioWarning


def stored(artifact: trackio.Artifact, tmp_path: Path) -> dict[str, bytes]:
    """The files of an artifact, downloaded from the store."""
    folder = Path(artifact.download(tmp_path / "downloaded"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def best(project: str, name: str) -> dict[str, Any]:
    """The metadata of the version that is called the best."""
    return SQLiteStorage.get_artifact_manifest(project, name, "best")["metadata"]


def test_file(logger: TrackioLogger, tmp_path: Path) -> None:
    """A file is stored byte for byte, as the first version of an artifact of its name."""
    path = tmp_path / "my policy.bin"
    path.write_bytes(b"not a pickle")
    artifact = logger.log_artifact(path)
    assert (artifact.name, artifact.version, artifact.type) == ("my-policy.bin", "v0", "model")
    assert (artifact.aliases, artifact.size) == (("latest",), 12)
    assert stored(artifact, tmp_path) == {"my policy.bin": b"not a pickle"}


def test_folder(logger: TrackioLogger, tmp_path: Path) -> None:
    """A folder is stored with the folders in it, under the name, type and aliases that are given."""
    (tmp_path / "data" / "inner").mkdir(parents=True)
    (tmp_path / "data" / "a.txt").write_text("a")
    (tmp_path / "data" / "inner" / "b.txt").write_text("b")
    artifact = logger.log_artifact(str(tmp_path / "data"), "expert", "dataset", ["candidate", "v-two"])
    assert (artifact.name, artifact.type) == ("expert", "dataset")
    assert sorted(artifact.aliases) == ["candidate", "latest", "v-two"]
    assert stored(artifact, tmp_path) == {"a.txt": b"a", "inner/b.txt": b"b"}


def test_module(logger: TrackioLogger, tmp_path: Path) -> None:
    """Of a module the state dict is stored, which loads without any class."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    artifact = logger.log_artifact(module)
    assert artifact.name == f"model-run-{logger.experiment.id[:8]}"
    artifact.download(tmp_path)
    loaded = torch.load(tmp_path / "state_dict.pt", weights_only=True)
    assert loaded.keys() == module.state_dict().keys()
    assert all(torch.equal(loaded[key], value) for key, value in module.state_dict().items())


def test_dict_of_what_has_a_state(logger: TrackioLogger, tmp_path: Path) -> None:
    """In a dict, modules and optimizers become state dicts, and the rest stays what it is."""
    module = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.5)
    inner = {"optim": optimizer, "frames": 7, "logger": logger.state_dict()}
    logger.log_artifact({"policy": module, "inner": inner}, "all").download(tmp_path)
    loaded = torch.load(tmp_path / "state_dict.pt", weights_only=True)
    assert torch.equal(loaded["policy"]["weight"], module.weight)
    assert loaded["inner"]["optim"]["param_groups"][0]["lr"] == 0.5
    assert loaded["inner"]["frames"] == 7
    assert loaded["inner"]["logger"]["local"]["id"] == logger.experiment.id


def test_tensordict(logger: TrackioLogger, tmp_path: Path) -> None:
    """A tensordict is stored in its own format, and can be read back by it."""
    data = TensorDict(a=torch.arange(3), b=TensorDict(c=torch.rand(3, 2), batch_size=[3]), batch_size=[3])
    logger.log_artifact(data, "batch", "dataset").download(tmp_path)
    loaded = TensorDict.load_memmap(tmp_path)
    assert (loaded == data).all()
    assert loaded.batch_size == torch.Size([3])


def test_trackios_own_artifact(logger: TrackioLogger, tmp_path: Path) -> None:
    """An artifact of Trackio's is stored as it is, with its description and metadata."""
    (tmp_path / "x").write_text("x")
    artifact = trackio.Artifact("own", "thing", "for tests", {"a": 1})
    artifact.add_file(tmp_path / "x", "renamed")
    logged = logger.log_artifact(artifact, aliases=["mine"])
    assert (logged.qualified_name, logged.aliases) == (f"{logger.experiment.project}/own:v0", ("latest", "mine"))
    assert stored(logged, tmp_path) == {"renamed": b"x"}
    with pytest.raises(ValueError, match="is stored already: make a new one"):
        logger.log_artifact(logged)


def test_trackios_own_artifact_is_not_changed(logger: TrackioLogger) -> None:
    """It has a name of its own, and is no checkpoint: both are refused, and it stays as it was."""
    artifact = trackio.Artifact("own", "thing", metadata={"a": 1})
    with pytest.raises(ValueError, match="has a name of its own, 'own': leave out name='other'"):
        logger.log_artifact(artifact, name="other")
    with pytest.raises(TypeError, match=r"an artifact is a path, .*Artifact\)"):
        logger.log_checkpoint(artifact, 1, 2.0)
    assert (artifact.name, artifact.metadata, artifact.version) == ("own", {"a": 1}, None)


def test_second_version(logger: TrackioLogger, tmp_path: Path) -> None:
    """Other content is another version, which `latest` moves to; the same content is the same version."""
    path = tmp_path / "file"
    versions = []
    for content in ("one", "two", "two"):
        path.write_text(content)
        versions.append(logger.log_artifact(path).version)
    assert versions == ["v0", "v1", "v1"]


class NotStorable:
    """Holds what cannot be pickled."""

    def state_dict(self) -> dict[str, Any]:
        """A function of no module."""
        return {"x": lambda: None}


@pytest.mark.parametrize(
    ("source", "options", "error", "text"),
    [
        ("/no/such/file", {}, ValueError, "there is no file or folder '/no/such/file'"),
        (3, {}, TypeError, re.escape("an artifact is a path, a module or other object with a state_dict")),
        (torch.ones(2), {}, TypeError, re.escape("got Tensor of shape (2,) and dtype torch.float32")),
        (NotStorable(), {}, TypeError, "its state cannot be saved"),
        (TensorDict(f=NonTensorData(lambda: 1)), {}, TypeError, "its state cannot be saved: .*lambda.*TensorDict"),
        ({"a": 1}, {"name": "a b"}, ValueError, "must match"),
        ({"a": 1}, {"name": 3}, TypeError, r"an artifact's name must be a string, got 3 \(int\)"),
        ({"a": 1}, {"type": 3}, TypeError, r"an artifact's type must be a string, got 3 \(int\)"),
        ({"a": 1}, {"aliases": "best"}, TypeError, "aliases must be a list of strings"),
        ({"a": 1}, {"aliases": [1]}, TypeError, "aliases must be a list of strings"),
        ({"a": 1}, {"aliases": ["v3"]}, ValueError, "reserved"),
    ],
    ids=["no-file", "number", "tensor", "lambda", "non-tensor", "space", "name", "type", "alias", "aliases", "version"],
)
def test_refused(logger: TrackioLogger, source: Any, options: dict[str, Any], error: Any, text: str) -> None:
    """What cannot be stored is refused at the call, and the error says what can."""
    with pytest.raises(error, match=text):
        logger.log_artifact(source, **options)


def test_empty_folder(logger: TrackioLogger, tmp_path: Path) -> None:
    """A folder without files is refused."""
    with pytest.raises(ValueError, match="no files"):
        logger.log_artifact(tmp_path)


def test_pickles_are_not_loaded(logger: TrackioLogger, tmp_path: Path) -> None:
    """A file is stored unread: a pickle that would run code when loaded does not, also when the next is compared."""

    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "sprung",))

    (tmp_path / "trap.pt").write_bytes(pickle.dumps(Trap()))
    for step in range(2):
        logger.log_checkpoint(tmp_path / "trap.pt", step, metric=step, name="trap")
    assert not (tmp_path / "sprung").exists()


class TestCheckpoint:
    """`log_checkpoint`."""

    @pytest.mark.parametrize(
        ("mode", "metrics", "improved"),
        [
            ("max", [1.0, 3.0, 2.0, 3.0, 4], [0, 1, 4]),
            ("min", [1.0, 3.0, 0.5, torch.tensor(-2.0)], [0, 2, 3]),
            ("max", [math.nan, math.inf, -1.0, math.nan, -2.0], [2]),
            ("min", [None, -math.inf, 5.0, None], [2]),
        ],
        ids=["max", "min", "not-finite", "none"],
    )
    def test_best(self, logger: TrackioLogger, mode: str, metrics: list[Any], improved: list[int]) -> None:
        """`latest` always moves, `best` only when the metric improves; NaN, infinities and none never are the best."""
        model = torch.nn.Linear(1, 1)
        logged = [logger.log_checkpoint(model, step, metric, mode) for step, metric in enumerate(metrics)]
        assert [index for index, artifact in enumerate(logged) if "best" in artifact.aliases] == improved
        assert all("latest" in artifact.aliases for artifact in logged)
        assert best(logger.experiment.project, logged[0].name)["step"] == improved[-1]

    def test_what_is_stored(self, logger: TrackioLogger, tmp_path: Path) -> None:
        """The state, and step and metric as JSON; the size says what all of it takes."""
        artifact = logger.log_checkpoint({"model": torch.nn.Linear(4, 4)}, torch.tensor(70), metric=1.5)
        files = stored(artifact, tmp_path)
        assert json.loads(files["log_checkpoint.json"]) == {"step": 70, "metric": 1.5, "mode": "max"}
        assert files.keys() == {"log_checkpoint.json", "state_dict.pt"}
        assert artifact.size == sum(map(len, files.values()))
        assert (artifact.type, artifact.metadata["metric"]) == ("checkpoint", 1.5)

    def test_file(self, logger: TrackioLogger, tmp_path: Path) -> None:
        """The user's own file is stored beside step and metric."""
        (tmp_path / "mine.pt").write_bytes(b"mine")
        artifact = logger.log_checkpoint(tmp_path / "mine.pt", 1, 0.5)
        assert stored(artifact, tmp_path)["mine.pt"] == b"mine"

    def test_files_of_other_names(self, project: str, tmp_path: Path) -> None:
        """Files of any name are versions of one artifact of the run's own, and other runs' are not."""
        with TrackioLogger("a", project) as a, TrackioLogger("b", project) as b:
            logged = []
            for logger, file, metric in ((a, "100.pt", 0.9), (a, "200.pt", 0.1), (b, "200.pt", 0.2)):
                (tmp_path / file).write_text(str(metric))
                logged.append(logger.log_checkpoint(tmp_path / file, 0, metric))
            names = [f"checkpoint-{logger.exp_name}-{logger.experiment.id[:8]}" for logger in (a, a, b)]
        assert [artifact.name for artifact in logged] == names
        assert [artifact.version for artifact in logged] == ["v0", "v1", "v0"]
        assert ["best" in artifact.aliases for artifact in logged] == [True, False, True]

    def test_folder_of_an_older_checkpoint(self, logger: TrackioLogger, tmp_path: Path) -> None:
        """A folder that was downloaded and trained on is stored with its new step and metric, not the old ones."""
        (tmp_path / "new" / "inner").mkdir(parents=True)
        (tmp_path / "new" / "inner" / "policy.pt").write_bytes(b"1")
        folder = Path(logger.log_checkpoint(tmp_path / "new", 1, 0.5).download(tmp_path / "resumed"))
        older = (folder / "log_checkpoint.json").read_bytes()
        (folder / "inner" / "policy.pt").write_bytes(b"2")
        again = logger.log_checkpoint(folder, 2, 0.6)
        assert (again.version, sorted(again.aliases)) == ("v1", ["best", "latest"])
        files = stored(again, tmp_path)
        assert json.loads(files.pop("log_checkpoint.json")) == {"step": 2, "metric": 0.6, "mode": "max"}
        assert files == {"inner/policy.pt": b"2"}
        as_it_is = logger.log_artifact(folder, name="as-it-is").download(tmp_path / "as-it-is")
        assert (Path(as_it_is) / "log_checkpoint.json").read_bytes() == older

    def test_resume(self, logger: TrackioLogger) -> None:
        """A resumed job compares with the best checkpoint before."""
        model, name = torch.nn.Linear(1, 1), logger.log_checkpoint(torch.nn.Linear(1, 1), 1, 5.0).name
        state = logger.state_dict()
        logger.close()
        with TrackioLogger("run", logger.experiment.project, state_dict=state) as resumed:
            worse = resumed.log_checkpoint(model, 2, 4.0)
            better = resumed.log_checkpoint(model, 3, 6.0)
        assert (worse.name, worse.aliases) == (name, ("latest",))
        assert (better.version, sorted(better.aliases)) == ("v2", ["best", "latest"])

    def test_threads(self, logger: TrackioLogger) -> None:
        """Of checkpoints that are logged at the same time, the best one is the best."""
        metrics = range(12)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda metric: logger.log_checkpoint({"a": 1}, metric, metric), reversed(metrics)))
        name = logger.log_checkpoint({"a": 1}, 99).name
        assert best(logger.experiment.project, name)["metric"] == 11
        (artifact,) = SQLiteStorage.list_artifacts(logger.experiment.project)
        assert len(artifact["versions"]) == 13

    def test_runs_of_a_new_project(self, project: str) -> None:
        """Those that start together do not lose their first one."""
        for number in range(5):
            loggers = [TrackioLogger(f"run{i}", f"{project}-{number}", quiet=True) for i in range(4)]
            with ThreadPoolExecutor(4) as pool:
                logged = list(pool.map(lambda logger: logger.log_checkpoint({"a": 1}, 0, 1.0), loggers))
            assert [sorted(artifact.aliases) for artifact in logged] == [["best", "latest"]] * 4
            for logger in loggers:
                logger.close()

    def test_same_weights_again(self, logger: TrackioLogger) -> None:
        """Weights that have not changed are a version of their own, which `latest` moves to."""
        logged = [logger.log_checkpoint({"a": step % 2}, step, 1.0) for step in range(4)]
        assert [artifact.version for artifact in logged] == ["v0", "v1", "v2", "v3"]
        assert all("latest" in artifact.aliases for artifact in logged)

    def test_runs_of_one_name(self, project: str) -> None:
        """Another run of the same name has a best of its own, unless both name one artifact."""
        for metric, expected in ((5.0, [True, True]), (4.0, [True, False]), (6.0, [True, True])):
            with TrackioLogger("run", project) as logger:
                own = logger.log_checkpoint({"a": 1}, 0, metric)
                shared = logger.log_checkpoint({"a": 1}, 0, metric, name="all-seeds")
            assert ["best" in own.aliases, "best" in shared.aliases] == expected

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            ({"step": 1.5}, TypeError, "step must be an integer"),
            ({"step": None}, TypeError, "step must be an integer"),
            ({"step": 1, "metric": "good"}, TypeError, "a scalar must be a real number"),
            ({"step": 1, "metric": 1.0, "mode": "best"}, ValueError, "mode must be 'max' or 'min', got 'best'"),
        ],
        ids=["float", "none", "metric", "mode"],
    )
    def test_refused(self, logger: TrackioLogger, arguments: dict[str, Any], error: type[Exception], text: str) -> None:
        """A wrong argument is refused, and nothing is stored."""
        with pytest.raises(error, match=text):
            logger.log_checkpoint({"a": 1}, **arguments)
        assert SQLiteStorage.list_artifacts(logger.experiment.project) == []


def test_run_without_rows_is_listed(project: str) -> None:
    """A run that only stored an artifact is a run all the same."""
    with TrackioLogger("run", project) as logger:
        logger.log_artifact({"a": 1})
    assert [run.name for run in trackio.Api().runs(project)] == ["run"]


def test_after_the_end(logger: TrackioLogger) -> None:
    """A closed logger refuses artifacts as it does values."""
    logger.close()
    with pytest.raises(RuntimeError, match="takes no more values"):
        logger.log_artifact({"a": 1})


def test_in_a_fork_and_a_spawned_worker(tmp_path: Path) -> None:
    """Processes that share the logger store versions of the same run, and of one best."""
    child = Child(tmp_path)
    done = child.run(
        """
        import pickle, subprocess
        logger.log_checkpoint({"a": 1}, 0, 1.0)
        def report(logger, step, metric):
            artifact = logger.log_checkpoint({"a": 1}, step, metric)
            print("REPORT", artifact.version, *sorted(artifact.aliases), flush=True)
        if (pid := os.fork()) == 0:
            report(logger, 1, 2.0)
            logger.experiment.finish()
            os._exit(0)
        os.waitpid(pid, 0)
        code = "import pickle, sys; pickle.load(sys.stdin.buffer).log_checkpoint({'a': 1}, 2, 1.5)"
        subprocess.run([sys.executable, "-c", code], input=pickle.dumps(logger), check=True)
        report(logger, 3, 1.7)
        report(logger, 4, 3.0)
        """
    )
    assert done.returncode == 0, done.stderr
    reports = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("REPORT")]
    assert reports == [["v1", "best", "latest"], ["v3", "latest"], ["v4", "best", "latest"]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that is there."""
    server = Server(tmp_path)
    server.start()
    yield server
    server.kill()


def logger_of(server: Server, project: str) -> TrackioLogger:
    """A logger of run ``run`` that logs to the server."""
    return TrackioLogger("run", project, server_url=f"{server.url}/?write_token={TOKEN}")


def test_server(server: Server, project: str) -> None:
    """A server stores the versions; while it is away they are kept, and stored in their order when it is back."""
    with logger_of(server, project) as logger:
        first = logger.log_checkpoint({"a": 1}, 0, 1.0)
        assert (first.version, sorted(first.aliases)) == ("v0", ["best", "latest"])
        server.kill()
        with pytest.warns(TrackioWarning, match="artifact 'checkpoint-.*' is kept"):
            kept = [logger.log_checkpoint({"a": step}, step, metric) for step, metric in ((1, 3.0), (2, 2.0))]
        assert [artifact.version for artifact in kept] == [None, None]
        server.start()
        logger.log_scalar("x", 1.0)
        logger.flush()
        versions = server.ask("list_artifacts", project=project)[0]["versions"]
        assert {v["version"]: sorted(v["aliases"]) for v in versions} == {0: [], 1: ["best"], 2: ["latest"]}
        assert logger.log_checkpoint({"a": 3}, 3, 2.5).aliases == ("latest",)


def test_other_type(logger: TrackioLogger, server: Server, project: str) -> None:
    """An artifact keeps its type: another one is refused at the call, on a server as in the local store."""
    for place in (logger, logger_of(server, project)):
        place.log_artifact({"a": 1}, name="thing", type="dataset")
        with pytest.raises(ValueError, match=r"^Artifact 'thing' already exists with type 'dataset'; cannot"):
            place.log_artifact({"a": 2}, name="thing", type="model")
        assert place.log_artifact({"a": 3}, name="good").version == "v0"
        place.close()


def test_kept_version_that_the_server_refuses(server: Server, project: str) -> None:
    """It is dropped with a warning that says why, and holds up neither later ones nor the end."""
    logger = logger_of(server, project)
    logger.log_artifact({"a": 1}, name="thing", type="dataset")
    server.kill()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        logger.log_artifact({"a": 2}, name="thing", type="model")
        logger.log_artifact({"a": 3}, name="good")
        server.start()
        logger.flush()
        start = time.monotonic()
        logger.close()
    assert time.monotonic() - start < 10
    told = [text for text in (str(warning.message) for warning in warned) if "artifact" in text]
    refusal = f"artifact 'thing' is not stored: the Trackio server at {server.url}/ answered: Artifact 'thing' already "
    assert [text.startswith(refusal) for text in told] == [False, True, False]
    assert told[2] == f"1 artifacts of run 'run' were not stored by {server.url}/"
    stored = {found["name"]: len(found["versions"]) for found in server.ask("list_artifacts", project=project)}
    assert stored == {"thing": 1, "good": 1}


def test_server_that_refuses_what_it_is_sent(server: Server, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it answers is warned about; the version is not kept, since it would be refused again."""
    with logger_of(server, project) as logger:
        logger.log_artifact({"a": 1}, name="first")
        logger.flush()
        server.kill()
        monkeypatch.setattr("servers.TOKEN", "another")
        server.start()
        with pytest.warns(TrackioWarning, match="artifact 'second' is not stored: .* answered: .*[Tt]oken"):
            logger.log_artifact({"a": 1}, name="second")


@pytest.mark.filterwarnings("ignore:trackio failed:torchrl_trackio.TrackioWarning")
def test_server_that_pauses(server: Server, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says that it takes nothing just now is waited for, as one that is away."""
    with logger_of(server, project) as logger:
        logger.log_artifact({"a": 1}, name="first")
        logger.flush()
        server.kill()
        monkeypatch.setenv("TRACKIO_PAUSE_WRITES", "1")
        server.start()
        with pytest.warns(TrackioWarning, match="artifact 'second' is kept"):
            logger.log_artifact({"a": 2}, name="second")
        server.kill()
        monkeypatch.delenv("TRACKIO_PAUSE_WRITES")
        server.start()
        logger.flush()
        assert {found["name"] for found in server.ask("list_artifacts", project=project)} == {"first", "second"}


@pytest.mark.slow
def test_server_whose_store_is_locked(server: Server, project: str) -> None:
    """One whose store another process holds is waited for, too, though it answers with an error."""
    with logger_of(server, project) as logger:
        logger.log_artifact({"a": 1}, name="first")
        logger.flush()
        with (server.folder / f"{project}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.warns(TrackioWarning, match=r"artifact 'second' is kept .*Could not acquire database lock"):
                logger.log_artifact({"a": 2}, name="second")
        logger.flush()
        assert {found["name"] for found in server.ask("list_artifacts", project=project)} == {"first", "second"}


@pytest.mark.filterwarnings("ignore::torchrl_trackio.TrackioWarning", "ignore:.*remote:UserWarning")
def test_server_that_hangs(server: Server, project: str) -> None:
    """A server that takes connections and does not answer holds up a checkpoint for seconds, not a minute."""
    assert server._process is not None
    with logger_of(server, project) as logger:
        logger.log_scalar("x", 1.0)
        logger.flush()
        os.kill(server._process.pid, signal.SIGSTOP)
        start = time.monotonic()
        kept = [logger.log_artifact({"a": 1}, "file"), logger.log_checkpoint({"a": 1}, 1, 1.0)]
        assert time.monotonic() - start < 12
        assert [artifact.version for artifact in kept] == [None, None]
        os.kill(server._process.pid, signal.SIGCONT)
        logger.flush()
        until = time.monotonic() + 30
        while len(server.ask("list_artifacts", project=project)) < 2 and time.monotonic() < until:
            time.sleep(0.2)
        names = {artifact["name"] for artifact in server.ask("list_artifacts", project=project)}
        assert names == {"file", kept[1].name}
