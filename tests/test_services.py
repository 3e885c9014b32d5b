"""The logger services of torchrl: a logger in a process or Ray actor of its own, and clients that log to it."""

from __future__ import annotations

import importlib.util
import inspect
import json
import multiprocessing
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torchrl.record.loggers import get_logger

import reading
from children import Child
from torchrl_trackio import TrackioLogger

pytestmark = pytest.mark.skipif(
    "service_backend" not in inspect.signature(get_logger).parameters,
    reason="this torchrl has no logger services, which came with 0.14",
)
RAY = {"num_cpus": 4, "include_dashboard": False, "log_to_driver": False}
OPTIONS: dict[str, dict[str, Any]] = {"process": {}, "ray": {"ray_init_config": RAY}}


@pytest.fixture(scope="module", params=["process", "ray"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """A service backend whose library is installed."""
    if request.param == "process":
        yield "process"
    else:
        ray = pytest.importorskip("ray", reason="Ray is not installed")
        yield "ray"
        ray.shutdown()


@pytest.fixture(scope="module")
def service(backend: str) -> Iterator[TrackioLogger]:
    """A service that continues run ``run``, with one value of ``x`` in it, of a project named after its backend."""
    with TrackioLogger("run", f"services-{backend}", config={"lr": 1.0}) as logger:
        logger.log_scalar("x", 0.0)
        saved = logger.state_dict()
    options = {"service_backend": backend, "service_backend_options": OPTIONS[backend]}
    with get_logger("trackio", "logs", "other", state_dict=saved, **options) as service:
        yield service


def log_everything(client: TrackioLogger, number: int) -> None:
    """Call every public ``log_*`` method, in names and at steps of this client's own."""
    first = 100 * number
    client.log_hparams({"clients": {str(number): torch.tensor(number)}})
    for step in range(first, first + 10):
        client.log_scalar(f"scalar{number}", torch.tensor(float(step)), step=step)
        metrics = client.log_metrics({f"metric{number}": torch.tensor(step), "nested": {f"{number}": step}}, step=step)
        assert metrics[f"metric{number}"] == step
    client.log_histogram(f"histogram{number}", np.arange(100_000.0), step=first, bins=2)
    client.log_str(f"text{number}", "**bold**", step=first)
    client.log_video(f"video{number}", torch.zeros(5 + number, 3, 16, 16, dtype=torch.uint8), step=first, fps=5)
    client.log_video(f"gif{number}", np.zeros((5 + number, 3, 16, 16), np.uint8), step=first, format="gif")
    log_every_object(client, number)


def log_every_object(client: TrackioLogger, number: int) -> None:
    """Call those that log more than numbers."""
    first = 100 * number
    client.log_image(f"image{number}", torch.full((3, 4, 4), number, dtype=torch.uint8), step=first)
    client.log_figure(f"figure{number}", Figure(), step=first)
    client.log_table(f"table{number}", {"a": torch.tensor([number, 1])}, step=first)
    client.log_audio(f"audio{number}", torch.zeros(80), step=first, sample_rate=8000)
    client.log_trace(f"trace{number}", [{"role": "user", "content": f"from {number}"}], step=first)
    client.log_alert(f"alert{number}", step=first)
    logged = client.log_artifact({"number": torch.tensor(number)}, f"artifact{number}")
    assert (logged.version, logged.aliases) == ("v0", ("latest",))
    checkpoint = client.log_checkpoint(torch.nn.Linear(1, 1), first, metric=number, name=f"checkpoint{number}")
    assert sorted(checkpoint.aliases) == ["best", "latest"]


def log_from_four_places(service: TrackioLogger, backend: str) -> None:
    """Run ``log_everything`` in three threads and another process, all at once, each with a client of its own."""
    clients = [service.client() for _ in range(4)]
    places: list[Any] = [
        threading.Thread(target=log_everything, args=(pickle.loads(pickle.dumps(client)), i))
        for i, client in enumerate(clients[:3])
    ]
    if backend == "process":
        places.append(multiprocessing.get_context("spawn").Process(target=log_everything, args=(clients[3], 3)))
    for place in places:
        place.start()
    if backend == "ray":
        import ray

        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers do not find the tests' folder
        task = ray.remote(num_cpus=0)(log_everything)
        ray.get(task.remote(clients[3], 3))
    for place in places:
        place.join(100)
    assert [getattr(place, "exitcode", 0) for place in places] == [0] * len(places)


def test_what_four_clients_log_is_in_one_run_once_flushed(service: TrackioLogger, backend: str) -> None:
    """Every public ``log_*`` works from other threads and processes, and flush() is a barrier, videos included."""
    called = {name for function in (log_everything, log_every_object) for name in function.__code__.co_names}
    assert {name for name in dir(TrackioLogger) if name.startswith("log_")} <= called
    log_from_four_places(service, backend)
    service.flush()
    project = f"services-{backend}"
    for i in range(4):
        first = 100 * i
        steps = range(first, first + 10)
        assert reading.series(project, f"scalar{i}") == [(step, float(step)) for step in steps]
        assert reading.series(project, f"metric{i}") == [(step, step) for step in steps]
        assert reading.series(project, f"nested/{i}") == [(step, step) for step in steps]
        ((step, histogram),) = reading.series(project, f"histogram{i}")
        assert (step, histogram["values"]) == (first, [50_000, 50_000])
        ((step, text),) = reading.series(project, f"text{i}")
        assert (step, text["_value"]) == (first, "**bold**")
        ((step, video),) = reading.media(project, f"video{i}")
        assert (step, len(reading.frames(video)), reading.seconds(video)) == (first, 5 + i, (5 + i) / 5)
        ((step, gif),) = reading.media(project, f"gif{i}")
        assert (step, gif.suffix) == (first, ".gif")
        ((step, table),) = reading.series(project, f"table{i}")
        assert (step, table["_value"]) == (first, [{"a": i}, {"a": 1}])
        kinds = [reading.media(project, f"{kind}{i}")[0] for kind in ("image", "figure", "audio")]
        assert [(step, path.suffix) for step, path in kinds] == [(first, s) for s in (".png", ".html", ".wav")]
        (messages,) = reading.query(project, "SELECT messages FROM traces WHERE key = ?", f"trace{i}")
        assert json.loads(messages[0]) == [{"role": "user", "content": f"from {i}"}]
    alerts = reading.query(project, "SELECT title, level, step FROM alerts ORDER BY step")
    assert alerts == [(f"alert{i}", "warn", 100 * i) for i in range(4)]
    assert reading.config(project).items() >= {f"clients/{i}": i for i in range(4)}.items()
    assert len(reading.run_ids(project)) == 1


def test_a_failure_reaches_who_logged(service: TrackioLogger, backend: str) -> None:
    """A bad value raises torchrl's error at the call, with the cause in it, and takes no neighbour with it."""
    client = service.client()
    with pytest.raises(RuntimeError, match=r"'log_scalar' failed: TypeError.*'text'"):
        client.log_scalar("bad", "text", step=1000)
    with pytest.raises(RuntimeError, match=r"'log_metrics' failed: TypeError"):
        service.log_metrics({"good": 1.0, "bad": object()}, step=1000)
    with pytest.raises(RuntimeError, match=r"'log_video' failed: ValueError.*fps"):
        client.log_video("bad", torch.zeros(5, 3, 16, 16), step=1000, fps=0)
    client.log_scalar("good", 2.0, step=1001)
    service.flush()
    assert reading.series(f"services-{backend}", "good") == [(1000, 1.0), (1001, 2.0)]
    assert reading.series(f"services-{backend}", "bad") == []


def test_a_service_is_a_trackio_logger(service: TrackioLogger, backend: str) -> None:
    """To isinstance, which torchrl asks; its repr and names are the logger's in the service."""
    assert isinstance(service, TrackioLogger)
    assert service.is_alive
    assert service.service_backend == backend
    assert (service.exp_name, service.log_dir) == ("run", f"services-{backend}")
    assert repr(service.client()).startswith("TrackioLogger(exp_name='run'")


def test_a_saved_run_goes_on_in_a_service(service: TrackioLogger, backend: str) -> None:
    """``get_logger(state_dict=...)`` continues the run, its steps and its hyperparameters."""
    service.client().log_scalar("x", 1.0)
    service.log_hparams({"late": 2})
    service.flush()
    assert reading.series(f"services-{backend}", "x") == [(0, 0.0), (1, 1.0)]
    assert reading.config(f"services-{backend}").items() >= {"lr": 1.0, "late": 2}.items()
    assert len(reading.run_ids(f"services-{backend}")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["process", "ray"], ids=lambda backend: f"{backend}-alone")
def test_a_service_that_nobody_shuts_down_ends_with_the_interpreter(backend: str, tmp_path: Path) -> None:
    """It is waited for, also while the store is locked for longer than torchrl's 5 s, and loses nothing."""
    if backend == "ray" and not importlib.util.find_spec("ray"):
        pytest.skip("Ray is not installed")
    child = Child(tmp_path, prelude="import fcntl, threading, torch; from torchrl.record.loggers import get_logger\n")
    done = child.run(
        f"""
        def main():
            options = {{"service_backend": "{backend}", "service_backend_options": {OPTIONS[backend]}}}
            logger = get_logger("trackio", "logs", "run", trackio_kwargs={{"project": "p"}}, **options)
            lock = open("{tmp_path}/p.lock", "w")
            fcntl.flock(lock, fcntl.LOCK_EX)
            logger.log_video("v", torch.zeros(5, 3, 16, 16), step=0)
            logger.log_scalar("x", 1.0, step=0)
            opener = threading.Timer(6, lock.close)
            opener.daemon = True
            opener.start()
        main()
        """
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert child.steps() == [0]
    assert len(child.videos()) == 1
