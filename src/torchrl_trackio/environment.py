"""The record of the environment: what a run ran on, in, and from."""

from __future__ import annotations

import functools
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("torch", "torchrl", "tensordict", "gymnasium", "trackio", "torchrl-trackio")
_GIT_SECONDS = 2.0
_LONGEST_COMMAND = 2000  # characters
_HIDDEN = "***"
_TELLTALE = (
    r"(?:[\w.-]*[-_.])?(?:token|password|passwd|pwd|secret|credentials?|auth|(?:api|access|private|secret)?[-_.]?key)"
)
_SECRET_OPTION = re.compile(rf"-{{0,2}}\+{{0,2}}{_TELLTALE}", re.IGNORECASE)
_SECRET_IN_TEXT = re.compile(rf"([?&;\s'\"{{,]{_TELLTALE}\s*[=:]\s*)[^&;\s'\",}}]+", re.IGNORECASE)
_LOGIN_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_TOKEN = re.compile(r"\b(?:hf_|sk-|gh[pousr]_|github_pat_|glpat-|AKIA|xox[abp]-)[\w-]{10,}")


@functools.cache
def environment() -> dict[str, Any]:
    """What is recorded of this process, by the name under which the configuration holds it.

    ``env/python``, ``env/platform``, versions as ``env/torchrl``, ``env/cuda`` (that torch was built for), ``env/gpu``
    (names), ``env/command``, ``env/git_commit`` and ``env/git_dirty`` (whether a tracked file differs from it; both of
    the repository that the script lies in). What cannot be found out is left out. Environment variables, names of the
    user or the host, and arguments that look like secrets are not in it. The GPUs are not initialised.
    """
    record: dict[str, Any] = {}
    for part in (_git, _versions, _system, _gpus, _command):
        with suppress(Exception):  # no record is worth a run
            record.update({f"env/{name}": value for name, value in part()})
    return record


def _versions() -> Iterator[tuple[str, str]]:
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            yield package.replace("-", "_"), version(package)


def _system() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    yield "platform", f"{platform.system()} {platform.release()} {platform.machine()}"


def _gpus() -> Iterator[tuple[str, Any]]:
    if torch.version.cuda:
        yield "cuda", torch.version.cuda
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    else:  # asking torch would initialise CUDA, which takes a second, and memory, and forbids forks
        files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        names = [re.search(r"^Model:\s*(.*)$", file.read_text(), re.MULTILINE)[1] for file in files]  # type: ignore[index]
    if names:
        yield "gpu", names


def _command() -> Iterator[tuple[str, str]]:
    yield "command", command_without_secrets(sys.orig_argv)[:_LONGEST_COMMAND]


def command_without_secrets(arguments: Sequence[str]) -> str:
    """A command line as a shell would take it, without what looks like a secret or names the user."""
    shown, hide = [Path(arguments[0]).name], False
    for argument, before in zip(arguments[1:], arguments, strict=False):
        name, equals, _ = argument.partition("=")
        if hide or before == "-c":
            argument, hide = "..." if before == "-c" else _HIDDEN, False
        elif _SECRET_OPTION.fullmatch(name):
            argument, hide = (f"{name}={_HIDDEN}", False) if equals else (argument, argument.startswith("-"))
        shown.append(_without_secrets(argument))
    return shlex.join(shown)


def _without_secrets(text: str) -> str:
    for pattern, kept in ((_SECRET_IN_TEXT, r"\1"), (_LOGIN_IN_URL, ""), (_TOKEN, "")):
        text = pattern.sub(kept + _HIDDEN, text)
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    return text.replace(home, "~") if len(home) > 1 else text


def _git() -> Iterator[tuple[str, Any]]:
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    folder = Path(main).resolve().parent if main else Path.cwd()
    command = ["git", "-C", str(folder), "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    found = subprocess.run(  # noqa: S603 - the folder is the script's own
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_GIT_SECONDS,
        check=True,
        env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},  # a script that commits must not find the index locked
    )
    lines = found.stdout.splitlines()
    commit = next(line.split()[-1] for line in lines if line.startswith("# branch.oid"))
    yield "git_commit", commit
    yield "git_dirty", any(not line.startswith("#") for line in lines)
