"""The doctor: it finds what is wrong, says what to do, never crashes and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torchrl

import torchrl_trackio
from servers import TOKEN, Server, behind_login, free_port
from test_discovery import MINE, offer
from torchrl_trackio import TrackioWarning, doctor
from torchrl_trackio.doctor import checks, roundtrip
from torchrl_trackio.doctor.checks import FAILED, OK, WARNING, Check
from torchrl_trackio.doctor.storage import storage

DISTRIBUTION = f"torchrl-trackio {torchrl_trackio.__version__}"
OURS = f"{DISTRIBUTION}, torchrl_trackio:TrackioLogger"
BROKEN = "raise OSError('libfoo.so: cannot open shared object file')"
PACKAGES = ["torch", "tensordict", "torchrl", "trackio", "av", "wrapt", "torchrl-trackio"]


def start(*options: str, path: tuple[Path, ...] = (), cwd: Path | None = None, **env: str) -> subprocess.Popen[str]:
    """Start the doctor with folders put on its path."""
    before = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, path), *filter(None, [before])]), **env}
    environment["PATH"] = sysconfig.get_path("scripts") + os.pathsep + environment["PATH"]
    command, pipe = [sys.executable, "-m", "torchrl_trackio", *options], subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=cwd, stdout=pipe, stderr=pipe, text=True)


def examine(path: tuple[Path, ...] = (), cwd: Path | None = None, **env: str) -> tuple[int, dict[str, Any]]:
    """The exit status, and (status, text, advice) of each check by section and name."""
    with start("--json", path=path, cwd=cwd, **env) as process:
        out, err = process.communicate(timeout=100)
    told = json.loads(out)
    assert err == ""
    assert told.keys() == {"version", "ok", "sections"}
    assert told["ok"] == (process.returncode == 0)
    found: dict[str, Any] = {}
    for title, section in told["sections"].items():
        for check in section:
            found[f"{title} {check['name']}"] = check["status"], check["text"], check["advice"]
    return process.returncode, found


def package(folder: Path, name: str, source: str) -> Path:
    """A folder with a package that hides the installed one."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(source)
    return folder


@pytest.fixture
def no_torch(tmp_path: Path) -> Path:
    """A folder with a torch that cannot be imported, which spares what does not need it the wait for it."""
    return package(tmp_path / "no-torch", "torch", BROKEN)


def listing(folder: Path) -> dict[str, float]:
    """What is below a folder, and when it was last changed."""
    return {str(path): path.stat().st_mtime for path in folder.rglob("*")}


# Where all is well


def test_where_all_is_well_it_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    """Every line is "ok", the status is 0, and of a folder that was missing with its parents nothing remains."""
    folder = tmp_path / "not" / "yet"
    with start(TRACKIO_DIR=str(folder), TRACKIO_STORAGE_MODE="sqlite") as process:
        out, err = process.communicate(timeout=100)
    lines = out.splitlines()
    marked = [line.partition(": ")[0] for line in lines if line.startswith("  ") and line[2] != " "]
    named = ["trackio", "folder", "storage mode", "server", "mp4", "webm", "gif"]
    named += ['get_logger("trackio")', "store", "dashboard"]
    assert marked == [f"  ok       {name}" for name in ["Python", *PACKAGES, *named]]
    assert [line for line in lines if line and line[0] != " "] == [
        DISTRIBUTION,
        *["Versions", "Discovery", "Storage", "Encoders", "Round trip", "Dashboard"],
        "Logging works here: 0 FAILED, 0 warnings.",
    ]
    assert {f"  ok       torchrl: {version('torchrl')}", f"  ok       trackio: {OURS}"} <= set(lines)
    assert out.count(": 5 of 5 frames encoded and decoded, ") == 3
    assert f"a row, hyperparameters and a video came back in {folder}, " in out
    assert f"  ok       dashboard: TRACKIO_DIR={folder} trackio show --project PROJECT" in lines
    assert (process.returncode, err, list(tmp_path.iterdir())) == (0, "", [])


def test_other_packages_plugins_are_named_and_cannot_harm_it(tmp_path: Path) -> None:
    """A plugin that prints is listed, one that exits is a warning, a rival is named; the user's files are untouched."""
    store = tmp_path / "store"
    (store / "inbox").mkdir(parents=True)
    (store / "project.db").write_bytes(b"the user's")
    before = listing(store)
    offer(
        tmp_path,
        "mine-plugin",
        {"mine": "mine_logger:Mine"},
        mine_logger=f"{MINE}    print('hello')\n",
    )
    offer(tmp_path, "exits-plugin", {"exits": "exits_logger:Logger"}, exits_logger="raise SystemExit('no licence')")
    offer(tmp_path, "zz-rival", {"trackio": "mine_logger:Mine"})
    status, found = examine((tmp_path,), TRACKIO_DIR=str(store), TRACKIO_STORAGE_MODE="jsonl")
    assert {name: check for name, check in found.items() if name.startswith("Discovery")} == {
        "Discovery exits": (WARNING, "SystemExit: no licence", ""),
        "Discovery mine": (OK, "mine-plugin 1.0, mine_logger:Mine", ""),
        "Discovery trackio": (OK, OURS, ""),
        "Discovery torchrl-trackio": (
            WARNING,
            f"the logger plugin 'trackio' is offered by {DISTRIBUTION} and by zz-rival 1.0: that of {DISTRIBUTION}, "
            "first in the alphabet, is taken. To choose another, uninstall it.",
            "",
        ),
    }
    assert found["Storage storage mode"][:2] == (OK, "jsonl")
    assert (status, found["Round trip store"][0], listing(store)) == (0, OK, before)


# Where torchrl does not find the logger


def test_a_rival_that_is_taken_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named in this package's place, and how the choice was made is said."""
    monkeypatch.syspath_prepend(offer(tmp_path, "a-rival", {"trackio": "rival_logger:Mine"}, rival_logger=MINE))
    with pytest.warns(TrackioWarning, match="that of a-rival 1.0, first in the alphabet, is taken"):
        found = list(checks.discovery())
    text = "a-rival 1.0, rival_logger:Mine, is taken instead of this package's"
    assert found == [Check("trackio", FAILED, text, "Uninstall a-rival.")]


def test_a_switch_that_leaves_it_out_is_a_fault(tmp_path: Path) -> None:
    """``TORCHRL_LOGGER_PLUGINS`` is named, with its typos; everything else works, and the status is 1."""
    status, found = examine(TRACKIO_DIR=str(tmp_path), TORCHRL_LOGGER_PLUGINS="triackio, mine")
    assert found["Discovery trackio"] == (
        FAILED,
        f"{OURS}: switched off by TORCHRL_LOGGER_PLUGINS='triackio, mine'",
        "Add trackio to it, or unset it.",
    )
    names = "names mine, triackio, which no installed package offers"
    assert found["Discovery TORCHRL_LOGGER_PLUGINS"] == (WARNING, names, "")
    warned, text, advice = found['Round trip get_logger("trackio")']
    assert (warned, advice, text.endswith(", not this package's logger")) == (FAILED, "See Discovery.", True)
    assert (status, found["Round trip store"][0]) == (1, OK)


PLUGINS = """
from importlib.metadata import entry_points

def get_logger(logger_type, logger_name, experiment_name, **kwargs):
    (plugin,) = entry_points(group="torchrl.loggers", name=logger_type)
    return plugin.load()(experiment_name, **kwargs[logger_type + "_kwargs"])
"""


def test_a_torchrl_that_reads_the_group_needs_no_autoload(tmp_path: Path) -> None:
    """Where ``get_logger`` asks for plugins by itself, all is well without PyTorch's autoload."""
    copy = shutil.copytree(Path(torchrl.__file__).parent, tmp_path / "packages" / "torchrl", symlinks=True)
    with (copy / "record" / "loggers" / "utils.py").open("a") as utils:
        utils.write(PLUGINS)
    status, found = examine((copy.parent,), TRACKIO_DIR=str(tmp_path), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    builds = "builds torchrl_trackio.logger.TrackioLogger"
    assert found['Round trip get_logger("trackio")'] == (OK, builds, "")
    assert [name for name in found if name.startswith("Discovery")] == ["Discovery trackio"]
    assert status == 0


def test_without_pytorchs_autoload_and_with_a_broken_encoder(tmp_path: Path) -> None:
    """What torchrl does without the bridge is seen although the doctor's import makes it; PyAV's fault is quoted."""
    broken = package(tmp_path / "packages", "av", BROKEN)
    status, found = examine((broken,), TRACKIO_DIR=str(tmp_path / "store"), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    fault = "OSError: libfoo.so: cannot open shared object file"
    assert found["Versions av"] == (
        FAILED,
        f"{version('av')} cannot be imported: {fault}",
        f"It was imported from {broken}/av/__init__.py. If that is where it belongs, install it again.",
    )
    assert found["Discovery TORCH_DEVICE_BACKEND_AUTOLOAD"] == (
        FAILED,
        "is '0': torchrl finds no plugin by itself",
        "Unset it, or `import torchrl_trackio` before get_logger is called.",
    )
    assert found["Discovery trackio"][0] == FAILED
    assert fault in found["Discovery trackio"][1]
    assert found["Encoders encoders"] == (FAILED, fault, "")
    warned, text, advice = found['Round trip get_logger("trackio")']
    assert (warned, advice, "torchrl_trackio" in text) == (FAILED, "See Discovery.", False)
    assert found["Round trip store"] == (FAILED, f"in {tmp_path / 'store'}: {fault}", "")
    assert (status, (tmp_path / "store").exists()) == (1, False)


def test_packages_that_are_missing_or_broken(tmp_path: Path, no_torch: Path) -> None:
    """A fault is explained once, where it begins, and no other section is kept from its own findings."""
    package(no_torch, "trackio", "raise SystemExit('broken')")
    status, found = examine((no_torch,), TRACKIO_DIR=str(tmp_path))
    fault = "cannot be imported: OSError: libfoo.so: cannot open shared object file"
    assert found["Versions torch"][1] == f"{version('torch')} {fault}"
    assert found["Versions torchrl"] == (FAILED, f"{version('torchrl')} {fault}", "See torch.")
    assert found["Versions trackio"][1] == f"{version('trackio')} cannot be imported: SystemExit: broken"
    assert found["Versions av"] == (OK, version("av"), "")
    assert found["Storage storage"] == (FAILED, "SystemExit: broken", "")
    assert found["Round trip store"] == (
        FAILED,
        "could not be tried: OSError: libfoo.so: cannot open shared object file",
        "",
    )
    assert (status, found["Dashboard dashboard"][0]) == (1, OK)


@pytest.mark.parametrize(
    ("name", "claimed", "text"),
    [
        pytest.param(
            "trackio",
            "99.1",
            "torchrl-trackio is tested with trackio 0.42 to 0.43, and 99.1 is installed: is there a newer one?",
            id="too new",
        ),
        pytest.param(
            "av",
            "12.3",
            "torchrl-trackio is tested with av 13 and later, and 12.3 is installed: is there a newer one?",
            id="too old",
        ),
    ],
)
def test_untested_versions_are_warnings(
    name: str, claimed: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version outside of what was tested may work all the same."""
    (tmp_path / f"{name}-{claimed}.dist-info").mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {claimed}\n"
    (tmp_path / f"{name}-{claimed}.dist-info" / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(tmp_path)
    assert {check.name: check for check in checks.versions()}[name] == Check(name, WARNING, text)


# The folder


@pytest.mark.parametrize(
    ("given", "status", "text"),
    [
        pytest.param("{}/file", FAILED, "{}/file cannot be written to: FileExistsError: ", id="a file"),
        pytest.param("{}/file/below", FAILED, "{}/file/below cannot be written to: NotADir", id="below a file"),
        pytest.param("/proc/nowhere", FAILED, "/proc/nowhere cannot be written to: ", id="cannot be made"),
        pytest.param("runs", WARNING, "{}/runs, writable, ", id="relative"),
        pytest.param("~/runs", WARNING, "{}/~/runs, writable, ", id="not expanded"),
    ],
)
def test_a_folder_that_cannot_be_used(given: str, status: str, text: str, tmp_path: Path, no_torch: Path) -> None:
    """The folder is really written to, what is wrong with it is said, and nothing is made beside it."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "file").write_text("the user's")
    _, found = examine((no_torch,), work, TRACKIO_DIR=given.format(work))
    assert found["Storage folder"][0] == status
    assert found["Storage folder"][1].startswith(text.format(work))
    assert "TRACKIO_DIR" in " ".join(found["Storage folder"])
    assert [path.name for path in work.rglob("*")] == ["file"]


def test_a_full_disk(tmp_path: Path, no_torch: Path) -> None:
    """A disk without room for a file is a fault, though folders can be made on it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"mounting a small file system is not allowed here: {mounted.stderr.decode().strip()}")
    try:
        (disk / "filler").write_bytes(bytes(8192))
        _, found = examine((no_torch,), TRACKIO_DIR=str(disk))
        assert [path.name for path in disk.iterdir()] == ["filler"]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    refused = f"{disk} cannot be written to: OSError: [Errno 28] No space left on device"
    assert found["Storage folder"][:2] == (FAILED, refused)


def test_the_end_by_a_signal_leaves_nothing(tmp_path: Path) -> None:
    """SIGTERM, as of ``timeout``, while the round trip still imports: at once, and the folder is as it was."""
    sleeping = package(tmp_path / "packages", "torch", "import time\ntime.sleep(100)")
    store = tmp_path / "store"
    with start(path=(sleeping,), TRACKIO_DIR=str(store)) as process:
        until = time.monotonic() + 60
        while not list(store.glob("*")) and time.monotonic() < until:
            time.sleep(0.05)
        (made,) = store.iterdir()
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert made.name.startswith(".torchrl-trackio-doctor-")
    assert (process.returncode != 0, store.exists()) == (True, False)


# The server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.kill()


def remote(tmp_path: Path) -> list[Check]:
    """The checks of what runs are sent to."""
    trip = roundtrip.RoundTrip(tmp_path, None, OSError("not started"))
    return [check for check in storage(trip) if check.name not in ("folder", "storage mode")]


TOKENS = "`trackio show` prints the right one where it is run. Put it in TRACKIO_WRITE_TOKEN, or into the URL."
UNUSABLE = (
    "TRACKIO_SERVER_URL cannot be used",
    "It has to be http://HOST:PORT/?write_token=TOKEN, or http://HOST:PORT/ with TRACKIO_WRITE_TOKEN set.",
)


@pytest.mark.parametrize(
    ("url", "token", "expected"),
    [
        pytest.param("{}/?write_token={token}", None, (OK, "{}/ answers, and takes the write token", ""), id="right"),
        pytest.param("{}", TOKEN, (OK, "{} answers, and takes the write token", ""), id="right, in the environment"),
        pytest.param("{}/?write_token=wrong-secret", None, (FAILED, "{}/ refuses the write token", TOKENS), id="wrong"),
        pytest.param("{}", None, (FAILED, "{}, whose write token is missing", TOKENS), id="no token"),
        pytest.param(
            "{}",
            "wrong-secret\n",
            (FAILED, "{}, whose write token has characters that cannot be sent, such as a line break", TOKENS),
            id="line break",
        ),
        pytest.param("{}/?token=wrong-secret", None, (FAILED, *UNUSABLE), id="misspelt"),
        pytest.param("{login}", TOKEN, (OK, "{} answers, and takes the write token", ""), id="with a login"),
        pytest.param("http://me:wrong-secret/x@host/", TOKEN, (FAILED, *UNUSABLE), id="password with a slash"),
        pytest.param("wrong-secret@host:1", TOKEN, (FAILED, *UNUSABLE), id="no URL"),
        pytest.param("http://wrong-secret\u2100@host/", TOKEN, (FAILED, *UNUSABLE), id="quoted by urllib's error"),
    ],
)
def test_a_server_is_asked_whether_it_takes_the_token(
    url: str,
    token: str | None,
    expected: tuple[str, ...],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the address is shown of the URL, and neither a right nor a wrong token."""
    login = server.url.replace("//", "//me:wrong-secret@")
    monkeypatch.setenv("TRACKIO_SERVER_URL", url.format(server.url, token=TOKEN, login=login))
    if token is not None:
        monkeypatch.setenv("TRACKIO_WRITE_TOKEN", token)
    (check,) = remote(tmp_path)
    assert check == Check("server", *(text.format(server.url) for text in expected))
    assert ("wrong-secret" in repr(check), TOKEN in repr(check)) == (False, False)
    assert server.ask("get_all_projects") == []


def test_a_server_behind_another_login(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text says how to pass one, and repeats none."""
    with behind_login(server, "me:right") as address:
        monkeypatch.setenv("TRACKIO_SERVER_URL", f"{address.replace('//', '//me:wrong@')}/?write_token={TOKEN}")
        (check,) = remote(tmp_path)
    text = (
        f"the Trackio server at {address}/ cannot be reached with this login: 401 Unauthorized; pass it in server_url "
        "(https://name:password@host/), percent-encoded"
    )
    assert check == Check("server", FAILED, text)


def test_a_server_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request tells whether it is there, and whether it takes the token."""
    asked = []

    class Refuses(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append((self.path, self.headers["x-trackio-write-token"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"data": {"allowed": false}}')

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refuses) as listener:
        Thread(target=listener.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{listener.server_port}"
        monkeypatch.setenv("TRACKIO_SERVER_URL", f"{address}/?write_token={TOKEN}")
        assert remote(tmp_path) == [Check("server", FAILED, f"{address}/ refuses the write token", TOKENS)]
        listener.shutdown()
    assert asked == [("/api/get_run_mutation_status", TOKEN)]


@pytest.mark.parametrize("silent", [False, True], ids=["nobody listens", "never answers"])
def test_a_server_that_is_away_is_named_with_the_reason(
    silent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs 3 s at most, and the advice says what happens meanwhile."""
    port = free_port()
    with closing(socket.socket()) as listener:
        if silent:
            listener.bind(("127.0.0.1", port))
            listener.listen()
        monkeypatch.setenv("TRACKIO_SERVER_URL", f"http://127.0.0.1:{port}/?write_token={TOKEN}")
        start = time.monotonic()
        (check,) = remote(tmp_path)
    reason = "timed out" if silent else "[Errno 111] Connection refused"
    assert check == Check(
        "server",
        FAILED,
        f"the Trackio server at http://127.0.0.1:{port}/ did not answer: {reason}",
        "Until it does, what is logged is kept in the folder. Does `trackio show --host 0.0.0.0` run there?",
    )
    assert time.monotonic() - start < 6


@pytest.mark.parametrize(
    ("space", "token", "expected"),
    [
        pytest.param(
            "me/space",
            "hf_secret-of-the-tests",
            [Check("Space", OK, "me/space; a token is there, the Space itself was not asked")],
            id="token",
        ),
        pytest.param(
            "me/space",
            "",
            [
                Check(
                    "Space",
                    FAILED,
                    "me/space, and no Hugging Face token to log to it with",
                    "Run `hf auth login`, or set HF_TOKEN.",
                )
            ],
            id="no token",
        ),
        pytest.param("", "", [], id="empty, yet set"),
    ],
)
def test_a_space_goes_before_a_server_and_needs_a_token(
    space: str, token: str, expected: list[Check], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trackio ignores the server; the token is looked for, and not shown."""
    monkeypatch.setenv("TRACKIO_SPACE_ID", space)
    monkeypatch.setenv("TRACKIO_SERVER_URL", "http://host/?write_token=wrong-secret")
    monkeypatch.setenv("HF_TOKEN", token)
    ignored = Check("server", WARNING, "TRACKIO_SERVER_URL is ignored, since TRACKIO_SPACE_ID is set")
    assert remote(tmp_path) == [*expected, ignored]
    opened = "open the address of the server or Space; `trackio show` shows the folder only"
    assert list(checks.dashboard()) == [Check("dashboard", OK, opened)]


def test_an_unknown_storage_mode_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trackio falls back to its own choice."""
    monkeypatch.setenv("TRACKIO_STORAGE_MODE", "sqllite")
    with pytest.warns(UserWarning, match="Invalid TRACKIO_STORAGE_MODE"):
        found = {check.name: check for check in storage(roundtrip.RoundTrip(tmp_path, None, OSError()))}
    advice = "TRACKIO_STORAGE_MODE is 'sqllite', which is none of auto, sqlite and jsonl."
    assert found["storage mode"] == Check("storage mode", WARNING, "sqlite", advice)


# The dashboard, and the command itself


def test_a_trackio_command_of_elsewhere_is_not_recommended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Off the PATH, or behind that of another environment, this environment's command is given in full."""
    monkeypatch.setenv("TRACKIO_DIR", "/a b")
    mine = Path(sysconfig.get_path("scripts"), "trackio")
    monkeypatch.setenv("PATH", str(tmp_path))
    (missing,) = checks.dashboard()
    (tmp_path / "trackio").touch(mode=0o755)
    (other,) = checks.dashboard()
    shown = f"TRACKIO_DIR='/a b' {mine} show --project PROJECT (the command `trackio` "
    assert (missing.status, missing.text) == (WARNING, f"{shown}is not on the PATH)")
    assert (other.status, other.text) == (WARNING, f"{shown}is that of another environment: {tmp_path / 'trackio'})")


def test_a_process_that_cannot_be_started_is_a_failed_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even then all other sections are reported."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    diagnosis = doctor.diagnose()
    (check,) = diagnosis["Round trip"]
    missing = f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path / 'python'}'"
    assert check == Check("round trip", FAILED, missing)
    assert {each.status for each in diagnosis["Versions"] + diagnosis["Encoders"]} == {OK}


@pytest.mark.parametrize("command", ["module", "script"])
def test_wrong_usage_is_status_2(command: str) -> None:
    """An option that is none is refused, by the console command as by ``python -m``."""
    script = shutil.which("torchrl-trackio", path=sysconfig.get_path("scripts"))
    if command == "script" and script is None:
        pytest.skip("the command is not installed here")
    words = [script] if command == "script" else [sys.executable, "-m", "torchrl_trackio"]
    done = subprocess.run([*words, "--nonsense"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: torchrl-trackio [-h] [--json] [--version]\n")
