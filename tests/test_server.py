"""A self-hosted Trackio server: everything arrives, also when it goes away in between."""

from __future__ import annotations

import pickle
import socket
import time
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
import trackio

import reading
from children import Child
from servers import TOKEN, Server, behind_login
from torchrl_trackio import TrackioLogger, TrackioWarning
from torchrl_trackio.server import ask, reason


def answered(status: int, **content: Any) -> httpx.HTTPStatusError:
    """What httpx raises for an answer."""
    request = httpx.Request("POST", "http://me:secret@host/api/f")
    response = httpx.Response(status, request=request, **content)
    return httpx.HTTPStatusError("with the address", request=request, response=response)


AWAY = "ignore:.*:UserWarning"  # while the server is away, trackio and this package say so


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "server")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def logger(server: Server, project: str) -> Iterator[TrackioLogger]:
    logger = TrackioLogger("run", project, server_url=f"{server.url}/?write_token={TOKEN}")
    yield logger
    logger.close()


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)
    assert condition()


def test_everything_arrives(server: Server, logger: TrackioLogger, project: str) -> None:
    """After flush(), metrics, media, text, hyperparameters and alerts are at the server."""
    logger.log_hparams({"optim": {"lr": 1e-3}, "gamma": float("nan")})
    logger.log_metrics({"x": 1.0, "nan": torch.tensor(float("nan"))}, step=0)
    logger.log_video("v", torch.zeros(5, 3, 16, 16), step=0)
    logger.log_hparams({"late": 2})
    logger.log_scalar("x", 2.0, step=1)
    logger.experiment.alert("title", "text", level=trackio.AlertLevel.ERROR, step=1)
    logger.flush()
    assert server.steps(project) == [0, 1]
    (video,) = [row["v"] for row in server.rows(project) if "v" in row]
    file = urllib.request.urlopen(
        f"{server.url}/file?path={urllib.parse.quote(str(server.folder / 'media' / video['file_path']))}"
    )
    assert file.read()[4:8] == b"ftyp"
    assert server.config(project).items() >= {"optim/lr": 1e-3, "late": 2}.items()
    assert "gamma" in server.config(project)
    titles = {alert["title"] for alert in server.ask("get_alerts", project=project)}
    assert titles == {"title", "nan is NaN at step 0"}


@pytest.mark.filterwarnings(AWAY)
def test_what_is_logged_while_the_server_is_away_arrives_when_it_is_back(
    server: Server, logger: TrackioLogger, project: str
) -> None:
    """An outage costs nothing: not the NaN that was logged in it, a video, hyperparameters or an alert; none twice."""
    logger.log_scalar("x", 0.0, step=0)
    logger.flush()
    server.kill()
    for step in range(1, 20):
        logger.log_metrics({"x": float(step), "nan": float("nan"), "inf": float("inf")}, step=step)
    logger.log_hparams({"late": float("inf"), "lr": 1.0})
    logger.log_video("v", torch.zeros(5, 3, 16, 16), step=20)
    logger.log_scalar("x", 20.0, step=20)
    logger.experiment.alert("title", "text", step=1)
    start = time.monotonic()
    logger.flush()
    assert time.monotonic() - start < 15
    server.start()
    wait_until(lambda: len(server.steps(project)) >= 21)
    wait_until(lambda: len(server.ask("get_alerts", project=project)) == 2)
    logger.close()
    assert server.steps(project) == list(range(21))
    assert server.steps(project, "v") == [20]
    assert server.config(project)["lr"] == 1.0
    titles = sorted(alert["title"] for alert in server.ask("get_alerts", project=project))
    assert titles == ["nan and 1 more are not finite at step 1", "title"]
    (video,) = [row["v"] for row in server.rows(project) if "v" in row]
    assert (server.folder / "media" / video["file_path"]).stat().st_size > 0


@pytest.mark.filterwarnings(AWAY)
def test_an_outage_does_not_bring_old_hyperparameters_back(server: Server, logger: TrackioLogger, project: str) -> None:
    """Replaying the rows of a second outage leaves what was sent between the two."""
    for value in (1, 3):
        server.kill()
        logger.log_hparams({"value": value})
        logger.log_scalar("x", 0.0, step=value)
        logger.flush()
        server.start()
        wait_until(lambda value=value: server.steps(project)[-1:] == [value])
        logger.log_hparams({"value": value + 1})
        logger.log_scalar("x", 0.0, step=value + 1)
        logger.flush()
    server.kill()
    logger.log_scalar("x", 0.0, step=5)
    logger.flush()
    server.start()
    wait_until(lambda: server.steps(project) == [1, 2, 3, 4, 5])
    assert server.config(project) == {"value": 4}


@pytest.mark.filterwarnings(AWAY)
def test_rows_that_wait_for_one_server_are_not_sent_to_another(tmp_path: Path, server: Server, project: str) -> None:
    """What is left on the disk goes to the server that it was meant for."""
    other = Server(tmp_path / "other")
    with TrackioLogger("run", project, server_url=f"{other.url}/?write_token={TOKEN}") as logger:
        logger.log_scalar("x", 0.0, step=0)
        logger.flush()
        logger.close(timeout=1)
    with TrackioLogger("second", project, server_url=f"{server.url}/?write_token={TOKEN}") as logger:
        logger.log_scalar("y", 0.0, step=0)
        logger.flush()
        time.sleep(2)
    assert server.steps(project, "y", "second") == [0]
    assert [run["name"] for run in server.ask("get_runs_for_project", project=project)] == ["second"]


@pytest.mark.filterwarnings(AWAY)
def test_a_server_that_comes_later_gets_everything(tmp_path: Path, project: str) -> None:
    """A logger made before its server is there in seconds, and loses nothing, not even the first hyperparameters."""
    server = Server(tmp_path / "server")
    start = time.monotonic()
    with pytest.warns(TrackioWarning, match="does not answer: what is logged is kept"):
        logger = TrackioLogger("run", project, server_url=server.url + f"/?write_token={TOKEN}", config={"lr": 1.0})
    assert time.monotonic() - start < 5
    logger.log_scalar("x", 0.0, step=0)
    logger.flush()
    server.start()
    try:
        wait_until(lambda: server.steps(project) == [0])
        wait_until(lambda: server.config(project) == {"lr": 1.0})
    finally:
        logger.close()
        server.kill()


@pytest.mark.slow
def test_what_a_crashed_process_left_is_sent_by_the_next_logger(server: Server, tmp_path: Path) -> None:
    """Rows and hyperparameters that died on disk with their process arrive with the next logger of the project."""
    url = f"{server.url}/?write_token={TOKEN}"
    prelude = "import os\nfrom torchrl_trackio import TrackioLogger\n"
    prelude += f"logger = TrackioLogger('{{}}', 'p', server_url='{url}')\n"
    child = Child(tmp_path / "client", prelude=prelude.format("first"))
    server.kill()
    done = child.run(
        """
        logger.log_hparams({"lr": 1.0})
        for i in range(10):
            logger.log_scalar("x", float(i), step=i)
        logger.flush()
        os._exit(9)
        """
    )
    assert done.returncode == 9, done.stderr
    server.start()
    child.prelude = prelude.format("second")
    done = child.run("logger.log_scalar('y', 0.0, step=0)")
    assert done.returncode == 0, done.stderr
    assert server.steps("p", "x", "first") == list(range(10))
    assert server.config("p", "first") == {"lr": 1.0}
    assert server.steps("p", "y", "second") == [0]
    assert TOKEN not in done.stdout + done.stderr


def test_a_run_on_a_server_is_resumed(server: Server, project: str) -> None:
    """resume="allow" and a state_dict continue the run at the server: one run, its counts, its hyperparameters."""
    url = f"{server.url}/?write_token={TOKEN}"
    with TrackioLogger("run", project, server_url=url) as first:
        first.log_hparams({"a": {"b": 1}, "c": 1})
        first.log_scalar("x", 0.0, step=41)
        saved = first.state_dict()
    with TrackioLogger("run", project, server_url=url, resume="allow") as second:
        second.log_hparams({"c": 2})
        second.log_scalar("x", 1.0)
    with TrackioLogger("run", project, server_url=url, state_dict=saved) as third:
        third.log_scalar("x", 2.0, step=50)
    assert server.steps(project) == [41, 42, 50]
    assert server.config(project) == {"a/b": 1, "c": 2}
    assert len(server.ask("get_runs_for_project", project=project)) == 1


@pytest.mark.filterwarnings(AWAY)
def test_a_run_that_the_server_has_not_got_yet_is_resumed(server: Server, project: str) -> None:
    """A job that was preempted while the server was away goes on with the rows and hyperparameters on its disk."""
    url = f"{server.url}/?write_token={TOKEN}"
    server.kill()
    first = TrackioLogger("run", project, server_url=url)
    first.log_hparams({"a": 1})
    for step in range(5):
        first.log_scalar("x", 0.0, step=step)
    saved = first.state_dict()
    first.close(timeout=1)
    server.start()
    with TrackioLogger("run", project, server_url=url, state_dict=saved) as second:
        second.log_hparams({"b": 2})
        second.log_scalar("x", 1.0)
    assert server.steps(project) == [0, 1, 2, 3, 4, 5]
    assert server.config(project) == {"a": 1, "b": 2}
    assert len(server.ask("get_runs_for_project", project=project)) == 1


def test_a_wrong_token_is_an_error_that_says_so(server: Server, project: str) -> None:
    """A token that the server refuses is found out when the logger is made, and is not repeated in the message."""
    with pytest.raises(ValueError, match="refuses the write token") as error:
        TrackioLogger("run", project, server_url=f"{server.url}/?write_token=wrong-secret")
    assert "wrong-secret" not in str(error.value)


def test_the_token_shows_nowhere(server: Server, logger: TrackioLogger, project: str) -> None:
    """No repr, state_dict or stored configuration holds the write token."""
    logger.log_hparams({"lr": 1.0})
    logger.log_scalar("x", 0.0, step=0)
    shown = [repr(logger), repr(logger.experiment), str(logger.state_dict()), str(logger.experiment.config)]
    shown.append(str(server.ask("get_run_summary", project=project, run="run")))
    assert TOKEN not in " ".join(shown)


@pytest.mark.parametrize(
    "url",
    ["http://me:secret@127.0.0.1:1/?write_token=secret", "http://127.0.0.1:1/?write_token=sec%0Aret&password=secret"],
    ids=["login", "line-break"],
)
def test_what_does_not_answer_is_named_without_secrets(project: str, url: str) -> None:
    """Neither a login nor a token, also one that cannot be sent, is in what is said of the server."""
    with pytest.warns(TrackioWarning, match="the Trackio server at http://127.0.0.1:1/ does not answer") as caught:
        logger = TrackioLogger("run", project, server_url=url)
    logger.experiment.abandon()
    assert "sec" not in " ".join(str(warning.message) for warning in caught)


def test_a_server_behind_a_login(server: Server, project: str) -> None:
    """Its address may hold a login, which the proxy in front of it is told, and which is neither shown nor saved."""
    with behind_login(server, "me:secret") as address:
        url = f"{address.replace('//', '//me:secret@')}/?write_token={TOKEN}"
        with TrackioLogger("run", project, server_url=url) as logger:
            logger.log_hparams({"lr": 1.0})
            logger.log_scalar("x", 0.0)
            logger.log_checkpoint({"a": 1}, 0, metric=1.0)
        with TrackioLogger("run", project, server_url=url, resume="must") as logger:
            logger.log_scalar("x", 1.0)
            shown = f"{logger} {logger.experiment} {logger.state_dict()}"
    assert server.steps(project) == [0, 1]
    assert server.config(project) == {"lr": 1.0}
    assert len(server.ask("list_artifacts", project=project)) == 1
    assert "secret" not in shown


def test_a_wrong_login_is_an_error_that_says_so(server: Server, project: str) -> None:
    """As a wrong token is, instead of rows that wait for ever; a login is not repeated in the message."""
    with behind_login(server, "me:right") as address, pytest.raises(ValueError, match="cannot be reached") as error:
        TrackioLogger("run", project, server_url=f"{address.replace('//', '//me:secret@')}/?write_token={TOKEN}")
    assert str(error.value) == (
        f"the Trackio server at {address}/ cannot be reached with this login: 401 Unauthorized; pass it in server_url "
        "(https://name:password@host/), percent-encoded"
    )


@pytest.mark.filterwarnings(AWAY)
def test_rows_that_wait_are_sent_with_another_login(server: Server, project: str) -> None:
    """They are the server's, whoever sends them; no login is on the disk with them."""
    server.kill()
    with TrackioLogger(
        "run", project, server_url=f"http://me:secret@127.0.0.1:{server.port}/?write_token={TOKEN}"
    ) as logger:
        logger.log_scalar("x", 0.0)
        logger.close(timeout=1)
    assert b"secret" not in b"".join(path.read_bytes() for path in reading.folder().glob(f"{project}*"))
    server.start()
    with TrackioLogger("run", project, server_url=f"{server.url}/?write_token={TOKEN}", resume="allow") as logger:
        logger.flush()
    assert server.steps(project) == [0]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (answered(500, json={"error": "database is locked"}), "database is locked"),
        (answered(502, html="<p>"), "502 Bad Gateway"),
        (
            RuntimeError("Space 'http://me:secret@host/' does not support it"),
            "Space 'http://host/' does not support it",
        ),
        (
            httpx.LocalProtocolError("Illegal header value b'secret'"),
            "the write token has characters that cannot be sent",
        ),
    ],
    ids=["the server", "a proxy", "Trackio", "a token"],
)
def test_why_a_request_failed(error: Exception, said: str) -> None:
    """The server's own answer where there is one, and no login or token."""
    assert reason(error) == said


@pytest.mark.parametrize(
    ("name", "value"), [("ALL_PROXY", "socks9://x"), ("SSL_CERT_FILE", "/nowhere")], ids=["proxy", "certificates"]
)
def test_an_environment_that_httpx_cannot_use(
    server: Server, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """It is a server that does not answer, which ends no training."""
    monkeypatch.setenv(name, value)
    url = server.url.replace("http", "https") if name == "SSL_CERT_FILE" else server.url
    with pytest.raises(ConnectionError, match=f"the Trackio server at {url} did not answer: "):
        ask(url, TOKEN, "get_all_projects")


@pytest.mark.filterwarnings(AWAY)
def test_what_is_kept_names_the_server_without_its_login(server: Server, project: str) -> None:
    """Nor do warnings of a server that is away show it."""
    url = server.url.replace("//", "//me:secret@")
    server.kill()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TrackioWarning)
        logger = TrackioLogger("run", project, server_url=f"{url}/?write_token={TOKEN}")
        logger.log_scalar("x", 0.0)
        logger.log_alert("lost")
        logger.log_checkpoint({"a": 1}, 0)
        logger.close(timeout=1)
    said = [str(warning.message) for warning in caught]
    place = f"http://127.0.0.1:{server.port}/"
    assert f"1 alerts of run 'run' did not reach {place}" in said
    assert f"1 artifacts of run 'run' were not stored by {place}" in said
    assert all(place in text for text in said)
    assert "secret" not in " ".join(said)


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:1/?write_token=secret", "ftp://x/?write_token=secret", "HTTP://me:secret@x/", "me:secret@x:1/"],
    ids=["no scheme", "ftp", "capitals", "a login"],
)
def test_an_address_that_is_none_is_refused_without_its_token(project: str, url: str) -> None:
    """The error shows the address, but nothing behind its question mark, and no login."""
    with pytest.raises(ValueError, match="server_url must start with http") as error:
        TrackioLogger("run", project, server_url=url)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("url", ["http://me:sec/ret@127.0.0.1:1/", "http://secret\u2100@host/"], ids=["slash", "sign"])
def test_an_address_that_cannot_be_read_is_refused_without_its_login(project: str, url: str) -> None:
    """A password that is not percent-encoded may look like a port."""
    with pytest.raises(ValueError, match=r"server_url cannot be read: it has to be .* percent-encoded") as error:
        TrackioLogger("run", project, server_url=url)
    assert "sec" not in str(error.value)


@pytest.mark.filterwarnings(AWAY)
def test_a_silent_server_does_not_hold_up_construction(project: str) -> None:
    """A server that accepts and never answers costs 3 s, not the 15 s that trackio.init waits."""
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/?write_token=x"
        start = time.monotonic()
        logger = TrackioLogger("run", project, server_url=url)
        assert time.monotonic() - start < 6
        with pytest.raises(ConnectionError, match="resume='must' has to ask"):
            TrackioLogger("run", project, server_url=url, resume="must")
    logger.close()


def test_a_pickled_logger_goes_to_the_same_server(
    server: Server, logger: TrackioLogger, tmp_path: Path, project: str
) -> None:
    """A worker without the environment of the parent sends to the parent's server."""
    logger.log_scalar("x", 0.0, step=0)
    path = tmp_path / "logger.pickle"
    path.write_bytes(pickle.dumps(logger))
    done = Child(tmp_path / "elsewhere", prelude="import pickle\n").run(
        f"pickle.load(open({str(path)!r}, 'rb')).log_scalar('y', 1.0, step=1)"
    )
    assert done.returncode == 0, done.stderr
    logger.flush()
    assert server.steps(project, "y") == [1]
