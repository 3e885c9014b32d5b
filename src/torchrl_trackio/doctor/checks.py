"""The checks of ``python -m torchrl_trackio``, section by section."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import platform
import shlex
import shutil
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from torchrl_trackio.bridge import torchrl_reads_the_group
from torchrl_trackio.discovery import SWITCH, LoggerPlugin, installed_loggers, load_logger, offered_loggers
from torchrl_trackio.doctor.roundtrip import RoundTrip, frames_of, moving_bar, said
from torchrl_trackio.versions import release, untested

OK, WARNING, FAILED = "ok", "warning", "FAILED"

_PACKAGES = ("torch", "tensordict", "torchrl", "trackio", "av", "wrapt", "torchrl-trackio")
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
_OURS = "torchrl_trackio.logger"
_FRAMES = 5
_REINSTALL = "python -m pip install --force-reinstall --no-deps {}"
_IMPORT = "`import torchrl_trackio` before get_logger is called."


@dataclass(frozen=True)
class Check:
    """What was found out about one thing.

    Args:
        name: the thing.
        status: ``"ok"``; ``"warning"``: something to know, logging works; ``"FAILED"``: it does not, or torchrl does
            not find this package's logger.
        text: what it is like.
        advice: what to do.
    """

    name: str
    status: str
    text: str
    advice: str = ""


def versions() -> Iterator[Check]:
    """Whether every package is there, can be imported, and was tested in its version."""
    python = platform.python_version()
    problem = untested("Python", python)
    where = f"{python} on {platform.system()} {platform.machine()}"
    yield Check("Python", WARNING if problem else OK, problem or where)
    broken: dict[str, str] = {}
    for name in _PACKAGES:
        yield _package(name, broken)


def _package(name: str, broken: dict[str, str]) -> Check:
    module = name.replace("-", "_")
    try:
        installed = version(name)
    except PackageNotFoundError:
        return Check(name, FAILED, "is not installed", f"python -m pip install {name}")
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the user is told
        cause = broken.setdefault(said(error), name)
        spec = importlib.machinery.PathFinder.find_spec(module)
        advice = f"It was imported from {spec and spec.origin}. If that is where it belongs, install it again."
        advice = advice if cause == name else f"See {cause}."
        return Check(name, FAILED, f"{installed} cannot be imported: {said(error)}", advice)
    problem = untested(name, installed)
    return Check(name, WARNING if problem else OK, problem or installed)


def discovery() -> Iterator[Check]:
    """Which loggers are offered to torchrl, and what keeps it from finding them."""
    installed, offered = installed_loggers(), offered_loggers()
    for name, offers in installed.items():
        yield _plugin(offers[0], is_offered=name in offered)
    if "trackio" not in installed:
        text = "is offered to torchrl by no installed package"
        yield Check("trackio", FAILED, text, _REINSTALL.format("torchrl-trackio"))
    allowed = {name.strip() for name in os.environ.get(SWITCH, "").split(",")} - {""}
    if unknown := sorted(allowed - installed.keys()):
        yield Check(SWITCH, WARNING, f"names {', '.join(unknown)}, which no installed package offers")
    if not torchrl_reads_the_group():
        yield from _autoload()


def _plugin(plugin: LoggerPlugin, *, is_offered: bool) -> Check:
    what = f"{plugin.distribution} {plugin.version}, {plugin.value}"
    wrong = FAILED if plugin.name == "trackio" else WARNING
    if not is_offered:
        text = f"{what}: switched off by {SWITCH}={os.environ[SWITCH]!r}"
        return Check(plugin.name, wrong, text, f"Add {plugin.name} to it, or unset it.")
    try:
        loaded = load_logger(plugin.name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may raise anything
        return Check(plugin.name, wrong, said(error))
    if plugin.name == "trackio" and loaded.__module__ != _OURS:
        text = f"{what}, is taken instead of this package's"
        return Check(plugin.name, wrong, text, f"Uninstall {plugin.distribution}.")
    return Check(plugin.name, OK, what)


def _autoload() -> Iterator[Check]:
    """What keeps PyTorch from loading the bridge, without which this torchrl finds no plugin."""
    if (given := os.environ.get(_AUTOLOAD, "1")) != "1":
        text = f"is {given!r}: torchrl finds no plugin by itself"
        yield Check(_AUTOLOAD, FAILED, text, f"Unset it, or {_IMPORT}")
    with suppress(PackageNotFoundError):
        if release(version("torch")) < (2, 5):
            yield Check("torch", FAILED, "loads no plugins before 2.5: torchrl finds none by itself", _IMPORT)


def encoders() -> Iterator[Check]:
    """Whether videos of every format can be encoded and decoded again."""
    from torchrl_trackio.video import Video

    with tempfile.TemporaryDirectory() as folder:
        for form in ("mp4", "webm", "gif"):
            path = Path(folder, f"video.{form}")
            start = time.perf_counter()
            try:
                Video(moving_bar(_FRAMES), 10, form).encode(path)
                seconds = time.perf_counter() - start
                found = frames_of(path)
            except Exception as error:  # noqa: BLE001 - whatever PyAV raises, the other formats may work
                yield Check(form, FAILED, said(error), _REINSTALL.format("av"))
                continue
            text = f"{found} of {_FRAMES} frames encoded and decoded, {1000 * seconds:.0f} ms"
            yield Check(form, OK if found == _FRAMES else FAILED, text)


def round_trip(trip: RoundTrip) -> Iterator[Check]:
    """Whether ``get_logger`` finds this package's logger, and what it logs comes back from the disk."""
    try:
        answer = trip.answer()
    except RuntimeError as error:
        yield Check("store", FAILED, f"could not be tried: {error}")
        return
    yield _get_logger(answer["get_logger"])
    where = f"in {trip.folder}" if trip.refused is None else "in a temporary folder, as Trackio's cannot be used"
    if answer["problem"]:
        yield Check("store", FAILED, f"{where}: {answer['problem']}")
        return
    took = f"{1000 * answer['seconds']:.0f} ms"
    yield Check("store", OK, f"a row, hyperparameters and a video came back {where}, {took}; nothing is left of them")


def _get_logger(does: str) -> Check:
    name = 'get_logger("trackio")'
    if does == f"builds {_OURS}.TrackioLogger":
        return Check(name, OK, does)
    says_why = any(check.status == FAILED for check in discovery())
    advice = "See Discovery." if says_why else _REINSTALL.format("torchrl-trackio")
    return Check(name, FAILED, f"{does}, not this package's logger", advice)


def dashboard() -> Iterator[Check]:
    """How to open it."""
    if any(os.environ.get(name) for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")):
        yield Check("dashboard", OK, "open the address of the server or Space; `trackio show` shows the folder only")
        return
    place = os.environ.get("TRACKIO_DIR")
    show = (f"TRACKIO_DIR={shlex.quote(place)} " if place else "") + "{} show --project PROJECT"
    here, found = Path(sysconfig.get_path("scripts"), "trackio"), shutil.which("trackio")
    advice = (
        "From another machine: `ssh -L 7860:localhost:7860 THIS_MACHINE`, and open http://localhost:7860 there; or add "
        "`--host 0.0.0.0`, and everyone in the network can read it."
    )
    if found and Path(found).resolve() == here.resolve():
        yield Check("dashboard", OK, show.format("trackio"), advice)
    elif here.exists():
        why = f"is that of another environment: {found}" if found else "is not on the PATH"
        yield Check("dashboard", WARNING, f"{show.format(here)} (the command `trackio` {why})", advice)
    else:
        text = f"{show.format('python -m trackio.cli')} (there is no command `trackio`)"
        yield Check("dashboard", WARNING, text, advice)
