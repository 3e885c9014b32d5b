"""The record of the environment: what a run ran on, in, and from."""

from __future__ import annotations

import functools
import multiprocessing
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from torchrl_trackio.commands import command_without_secrets

_PACKAGES = ("torch", "torchrl", "tensordict", "gymnasium", "trackio", "torchrl-trackio")
_GIT_SECONDS = 2.0
_LONGEST_COMMAND = 2000  # characters

RECORDED = frozenset(
    f"env/{name}"
    for name in (
        *("python", "platform", "cuda", "gpu", "command", "git_commit", "git_dirty"),
        *(package.replace("-", "_") for package in _PACKAGES),
    )
)


@functools.cache
def environment() -> dict[str, Any]:
    """What is recorded of this process, by the name under which the configuration holds it: one of ``RECORDED``.

    ``env/python``, ``env/platform``, versions as ``env/torchrl``, ``env/cuda`` (that torch was built for), ``env/gpu``
    (names of the machine's; of those that torch sees, if it has initialised CUDA), ``env/command``, ``env/git_commit``
    and ``env/git_dirty`` (whether a tracked file differs from it; both of the repository that the script lies in). What
    cannot be found out is left out. Environment variables, names of the user or the host, and arguments that look like
    secrets are not in it.
    """
    record: dict[str, Any] = {}
    for part in (_git, _versions, _system, _gpus, _command):
        with suppress(Exception):  # no record is worth a run
            record.update({f"env/{name}": value for name, value in part()})
    return record


def _versions() -> Iterator[tuple[str, str]]:
    for package in _PACKAGES:
        name = package.replace("-", "_")
        said = str(getattr(sys.modules.get(name), "__version__", "unknown"))
        with suppress(PackageNotFoundError):  # looking one up takes far longer, but torchrl 0.10 says "0.0.0+unknown"
            yield name, version(package) if "unknown" in said else said


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
    # A process that multiprocessing started has its parent's arguments, and a command line that tells of nothing.
    child = multiprocessing.parent_process() is not None
    arguments = [sys.executable, *sys.argv] if child else sys.orig_argv
    yield "command", command_without_secrets(arguments)[:_LONGEST_COMMAND]


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
