"""Files, models and checkpoints as Trackio artifacts."""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import trackio
from tensordict import is_tensor_collection
from trackio import cas
from trackio.utils import TRACKIO_DIR

from torchrl_trackio.arrays import describe
from torchrl_trackio.values import to_scalar

STATE_FILE = "state_dict.pt"
CHECKPOINT_FILE = "log_checkpoint.json"
_LONGEST_SLUG = 80  # characters of a run's name that are in an artifact's


def new_artifact(
    source: Any,
    name: str | None,
    type: str,  # noqa: A002
    run: tuple[str, str],
    checkpoint: Mapping[str, Any] | None = None,
) -> trackio.Artifact:
    """An artifact that has no files yet.

    Args:
        source: a path; a module, optimizer or other object with a ``state_dict``, or a mapping with such values; a
            tensordict or tensorclass; or, unless it is to be a checkpoint, an artifact, which is taken as it is.
        name: the artifact's name; ``None`` for the file's, or, of an object or a checkpoint, one of the run's own.
        type: its category.
        run: the run's name and id.
        checkpoint: what is stored with it, from :func:`checkpoint_metadata`.

    Raises:
        TypeError: if the source is none of these, or the name or type is no string.
        ValueError: if a name has other characters than letters, digits, ``.``, ``-`` and ``_``; or an artifact has
            been stored, or is given a name.
    """
    if isinstance(source, trackio.Artifact) and checkpoint is None:
        return _unstored(source, name)
    for what, text in (("name", "" if name is None else name), ("type", type)):
        if not isinstance(text, str):
            raise TypeError(f"an artifact's {what} must be a string, got {describe(text)}")
    if not (isinstance(source, (str, os.PathLike)) or is_tensor_collection(source) or _has_state(source)):
        raise TypeError(
            "an artifact is a path, a module or other object with a state_dict, a mapping of such, or a tensordict; "
            f"got {describe(source)}: save it to a file, and pass its path"
        )
    if name is None and checkpoint is None and isinstance(source, (str, os.PathLike)):
        name = _slug(Path(source).resolve().name)
    elif name is None:
        name = f"{type}-{_slug(run[0])}-{run[1][:8]}"
    return trackio.Artifact(name, type, metadata=dict(checkpoint or {}))


def _unstored(artifact: trackio.Artifact, name: str | None) -> trackio.Artifact:
    if artifact.version is not None:
        raise ValueError(f"artifact {artifact.qualified_name!r} is stored already: make a new one")
    if name is not None:
        raise ValueError(f"a trackio.Artifact has a name of its own, {artifact.name!r}: leave out name={name!r}")
    return artifact


@contextmanager
def filled(
    artifact: trackio.Artifact, source: Any, checkpoint: Mapping[str, Any] | None = None
) -> Iterator[trackio.Artifact]:
    """The artifact with its files, for as long as the block lasts.

    An object's state is written by :func:`torch.save` as ``state_dict.pt``, a tensordict by its ``memmap``, and what is
    stored with a checkpoint as ``log_checkpoint.json``, too: what has the content of an older version would be no new
    one.

    Raises:
        TypeError: if the state of the source cannot be saved.
        ValueError: if there is no such file.
        OSError: if the disk is full.
    """
    if artifact is source:
        yield artifact
        return
    TRACKIO_DIR.mkdir(parents=True, exist_ok=True)  # the folder for temporary files may have less room than it has
    with tempfile.TemporaryDirectory(prefix=".torchrl-trackio-", dir=TRACKIO_DIR) as name:
        folder = Path(name)
        if isinstance(source, (str, os.PathLike)):
            _add(artifact, Path(source).expanduser(), without=None if checkpoint is None else CHECKPOINT_FILE)
        else:
            _write(source, folder)
        if checkpoint is not None:
            (folder / CHECKPOINT_FILE).write_text(json.dumps(checkpoint))
        if any(folder.iterdir()):
            artifact.add_dir(folder)
        yield artifact


def _add(artifact: trackio.Artifact, path: Path, without: str | None) -> None:
    if path.is_file():
        artifact.add_file(path)
    elif path.is_dir():
        for file in sorted(path.rglob("*")):
            name = file.relative_to(path).as_posix()
            if file.is_file() and not file.is_symlink() and name != without:
                artifact.add_file(file, name)
    else:
        raise ValueError(f"there is no file or folder {str(path)!r}: pass the path of one, or an object to store")


def _write(source: Any, folder: Path) -> None:
    try:
        if is_tensor_collection(source) and not isinstance(source, torch.nn.Module):
            source.memmap(folder, copy_existing=True)
        else:
            torch.save(_states(source), folder / STATE_FILE)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise TypeError(f"its state cannot be saved: {error}; got {describe(source)}") from None


def _has_state(source: Any) -> bool:
    return isinstance(source, Mapping) or callable(getattr(source, "state_dict", None))


def _states(source: Any) -> Any:
    """State dicts in the place of what has them, so that ``torch.load`` needs no classes to load it."""
    if callable(getattr(source, "state_dict", None)):
        return source.state_dict()
    if type(source) is dict:
        return {key: _states(value) for key, value in source.items()}
    return source


def checkpoint_metadata(step: int, metric: Any, mode: str) -> dict[str, Any]:
    """What is stored with a checkpoint.

    Raises:
        TypeError: if the metric is no number.
        ValueError: if the mode is neither ``"max"`` nor ``"min"``.
    """
    if mode not in ("max", "min"):
        raise ValueError(f"mode must be 'max' or 'min', got {mode!r}")
    if metric is None:
        return {"step": step}
    try:
        number = to_scalar(metric)
    except TypeError as error:
        raise TypeError(f"metric is the number that the checkpoint has reached: {error}") from None
    return {"step": step, "metric": number if math.isfinite(number) else str(number), "mode": mode}


def improves(new: Mapping[str, Any], best: Mapping[str, Any] | None) -> bool:
    """Whether a checkpoint's metric is better than that of the best one so far; NaN and infinities never are."""
    metric, before = new.get("metric"), (best or {}).get("metric")
    if not isinstance(metric, (int, float)):
        return False
    if not isinstance(before, (int, float)):
        return True
    return metric > before if new["mode"] == "max" else metric < before


def checked_aliases(aliases: Sequence[str] | None) -> list[str]:
    """Aliases as a list.

    Raises:
        TypeError: if it is no list or tuple of strings.
        ValueError: if one has other characters than letters, digits, ``.``, ``-`` and ``_``, or is ``v`` and a number.
    """
    if not isinstance(aliases, (list, tuple, type(None))) or any(not isinstance(alias, str) for alias in aliases or ()):
        raise TypeError(f"aliases must be a list of strings, as ['candidate'], got {describe(aliases)}")
    return cas.validate_aliases(aliases)  # type: ignore[no-any-return]


def _slug(name: str) -> str:
    """A name in the characters that Trackio takes for an artifact."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:_LONGEST_SLUG].strip("-.") or "run"
