"""Hyperparameters: from torchrl's many kinds of configuration to the flat one that Trackio stores, and back."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import enum
import functools
import math
import sys
import types
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np
import torch

from torchrl_trackio.arrays import describe, is_plain, rounded_numbers, size_of
from torchrl_trackio.names import config_key
from torchrl_trackio.values import STORABLE_INT

_LONGEST_ARRAY = 1000  # elements of a tensor or array that are written out
_LONGEST_INT = 10_000  # bits of an integer that Python writes in decimals


def to_config(cfg: Any) -> dict[str, Any]:
    """Hyperparameters in plain Python, as nested as they came.

    Args:
        cfg: a mapping, an OmegaConf ``DictConfig``, a dataclass instance or an ``argparse.Namespace``, nested at will.
            Tuples stay tuples; enums become their value or name, classes and functions their name, tensors and arrays
            numbers or lists (of over 1000 elements: a description), everything unknown its ``str``.

    Raises:
        TypeError: if ``cfg`` is none of these.
    """
    config = _plain(cfg, ())
    if not isinstance(config, dict):
        raise TypeError(
            f"hyperparameters must be a mapping, a DictConfig, a dataclass instance or a Namespace, got {describe(cfg)}"
        )
    return config


def merge_config(into: dict[str, Any], update: Mapping[str, Any]) -> None:
    """Add ``update`` to ``into``, level by level; the later value wins."""
    for key, value in update.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge_config(into[key], value)
        else:
            into[key] = value


def flatten_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What Trackio stores of a nested configuration: ``{"optim": {"lr": 1}}`` as ``{"optim/lr": 1}``.

    The dashboard groups runs by top-level keys only. Non-finite numbers become the strings that Trackio reads back as
    such, since the JSON of a server's request cannot hold them.
    """
    return {
        _text("/".join((config_key(keys[0]), *keys[1:]))): _json(value)
        for keys, value in _leaves(_plain(config, ()), ())
    }


def nest_config(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The nested configuration that :func:`flatten_config` was given; ``a/b`` beside a leaf ``a`` stays one key."""
    config: dict[str, Any] = {}
    for path, value in flat.items():
        keys, inner = path.split("/"), config
        depth = next((d for d in range(1, len(keys)) if "/".join(keys[:d]) in flat), len(keys))
        for key in keys[: depth - 1]:
            inner = inner.setdefault(key, {})
        inner["/".join(keys[depth - 1 :])] = value
    return config


def to_json(value: Any) -> Any:
    """What the JSON of every one of Trackio's stores can hold of any value, as :func:`to_config` converts it."""
    return _json(_plain(value, ()))


def key_to_json(key: Any) -> str:
    """The text that :func:`to_json` makes of a mapping's key."""
    return _text(_key(key))


def _plain(value: Any, inside: tuple[int, ...]) -> Any:
    """Plain Python for one hyperparameter; ``inside`` are the containers it lies in."""
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value.value, (str, int, float)) else value.name
    if value is None or type(value) in (bool, int, float, str):
        return value
    if id(value) in inside:
        return "..."
    inside = (*inside, id(value))
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is not None and isinstance(value, (omegaconf.DictConfig, omegaconf.ListConfig)):
        return _plain(_resolved(value), inside)
    if isinstance(value, Mapping):
        return {_key(key): _plain(item, inside) for key, item in list(value.items())}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name), inside) for f in dataclasses.fields(value)}
    if isinstance(value, (argparse.Namespace, types.SimpleNamespace)):
        return {key: _plain(item, inside) for key, item in vars(value).items()}
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        items = [_plain(item, inside) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, torch.Size):
        return list(value)
    if isinstance(value, Set):
        return _sorted([_plain(item, inside) for item in value])
    try:
        return _leaf(value)
    except Exception:  # noqa: BLE001 - an object's own __str__ can raise anything
        return describe(value)


def _leaf(value: Any) -> Any:
    if isinstance(value, (torch.Tensor, np.ndarray)):
        if size_of(value) > _LONGEST_ARRAY or (isinstance(value, torch.Tensor) and not is_plain(value)):
            return describe(value)
        return _plain(rounded_numbers(value), ())
    if isinstance(value, np.generic):
        return _plain(value.item(), ()) if not isinstance(value.item(), np.generic) else str(value)
    if isinstance(value, (bool, int, float, str)):  # their subclasses
        return next(base for base in (bool, int, float, str) if isinstance(value, base))(value)
    if isinstance(value, functools.partial):
        return f"partial({_leaf(value.func)})"
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return value.__qualname__
    return str(value)


def _resolved(node: Any) -> Any:
    """The items of an OmegaConf container; where one cannot be resolved, its text: better than no configuration."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    items = OmegaConf.to_container(node, resolve=False)
    if isinstance(items, (dict, list)):
        for key in items if isinstance(items, dict) else range(len(items)):
            with contextlib.suppress(OmegaConfBaseException):
                items[key] = node[key]
    return items


def _sorted(items: list[Any]) -> list[Any]:
    try:
        return sorted(items)
    except TypeError:  # of several types
        return sorted(items, key=lambda item: (type(item).__name__, str(item)))


def _key(key: Any) -> str:
    if isinstance(key, tuple):
        return "/".join(map(str, key))
    return key if type(key) is str else str(_plain(key, ()))


def _leaves(config: Mapping[str, Any], prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in config.items():
        keys = (*prefix, str(key))
        if isinstance(value, dict) and value:
            yield from _leaves(value, keys)
        else:
            yield keys, value


def _json(value: Any) -> Any:
    """A value of a plain configuration as the JSON of every one of Trackio's stores can hold it."""
    if isinstance(value, dict):
        return {_text(key): _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and value not in STORABLE_INT:
        return str(value) if value.bit_length() < _LONGEST_INT else hex(value)
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    """Without lone surrogates, which no store can write."""
    return text.encode(errors="replace").decode()
