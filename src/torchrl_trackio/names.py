"""Names that Trackio stores, draws and keeps apart: of metrics, runs and projects."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from torchrl_trackio.errors import warn

# trackio.utils.RESERVED_KEYS, and the row fields that the dashboard shadows metrics with.
_RESERVED = frozenset(
    "data_type metrics project run run_id series_key step time timestamp x_axis".split()  # noqa: SIM905
)
_LONGEST = 200
_MOST_BYTES = 240  # a run's name becomes folders', a project's a file's, and file systems end names at 255 bytes


def metric_name(name: Any, keys_sep: str = "/") -> str:
    """The name that Trackio stores and draws a metric under.

    Args:
        name: a string, or a torchrl ``NestedKey`` (tuple of strings), whose parts are joined by ``keys_sep``.
        keys_sep: separator of the parts.

    Returns:
        The name itself; with an underscore behind it (and a warning, once a name) where Trackio reserves it.

    Raises:
        TypeError: if it is neither a string nor a tuple of strings.
        ValueError: if it cannot be written as UTF-8.
    """
    if isinstance(name, tuple) and name and all(isinstance(part, str) for part in name):
        name = keys_sep.join(name)
    if not isinstance(name, str):
        raise TypeError(f"a metric's name must be a string or a tuple of strings, got {name!r} ({type(name).__name__})")
    return _drawable(name)


@lru_cache(maxsize=4096)
def _drawable(name: str) -> str:
    check_text("a metric's name", name)
    if name in _RESERVED or name.startswith("__"):
        kept = (name.lstrip("_") if name.startswith("__") else name) + "_"
        warn(f"Trackio keeps the name {name!r} for itself: the metric is stored as {kept!r}")
        return kept
    return name


def config_key(key: str) -> str:
    """The key that Trackio stores a hyperparameter under: it keeps a leading underscore for itself."""
    return (key.lstrip("_") or "underscore") + "_" if key.startswith("_") else key


def run_name(name: Any) -> str:
    """Check a run's name, which Trackio uses as a path below its media folder.

    Raises:
        TypeError: if it is not a string.
        ValueError: if it is empty, longer than 200 characters (or 240 bytes between slashes), absolute, or holds
            ``..`` or a NUL.
    """
    if not isinstance(name, str):
        raise TypeError(f"exp_name must be a string, got {name!r} ({type(name).__name__})")
    check_text("exp_name", name)
    path = PurePosixPath(name.replace("\\", "/"))
    escapes = path.is_absolute() or ".." in path.parts or "\0" in name
    if escapes or not name.strip() or len(name) > _LONGEST or any(map(_is_too_long, path.parts)):
        raise ValueError(
            f"exp_name must have 1 to {_LONGEST} characters (at most {_MOST_BYTES} bytes between slashes) and be "
            "neither an absolute path nor hold '..' or a NUL, since Trackio stores media in a folder of that name; "
            f"got {name!r}"
        )
    return name


def project_name(name: Any) -> str:
    """A project's name as Trackio keeps it apart: letters, digits, ``-`` and ``_``.

    Trackio drops every other character from the file it stores a project in, so that ``a/b`` and ``ab`` would
    share one. Such characters become ``-``, with a warning.

    Raises:
        TypeError: if it is not a string.
        ValueError: if nothing is left, or it is longer than 200 characters or 240 bytes.
    """
    if not isinstance(name, str):
        raise TypeError(f"project must be a string, got {name!r} ({type(name).__name__})")
    kept = re.sub(r"[^\w-]+", "-", name).strip("-")
    if not kept or len(kept) > _LONGEST or _is_too_long(kept):
        raise ValueError(
            f"project must have 1 to {_LONGEST} letters, digits, '-' or '_' (at most {_MOST_BYTES} bytes); got {name!r}"
        )
    if kept != name:
        warn(f"Trackio stores projects under letters, digits, '-' and '_' only: {name!r} is logged to {kept!r}")
    return kept


def _is_too_long(part: str) -> bool:
    return len(part.encode()) > _MOST_BYTES


def check_text(what: str, text: str) -> None:
    """Raise a ``ValueError`` for lone surrogates, which cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} must be valid Unicode, got {text!r}: {error}") from None
