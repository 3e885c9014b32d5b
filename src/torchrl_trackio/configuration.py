"""A run's configuration: hyperparameters that may change at any time, and the record of the environment."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from torchrl_trackio.environment import RECORDED, environment
from torchrl_trackio.hparams import flatten_config, merge_config, nest_config, to_config
from torchrl_trackio.run import StoredRun


class Configuration:
    """The hyperparameters of a run, nested as given, and what of them the store has not yet got.

    Args:
        values: the first ones.
        record: whether the record of the environment is stored beside them. It is made when it is first stored, which
            is in the background, but for a run that ends at once.
        stored: whether they are in the store, by whoever opened the run first, who makes the record, too.
    """

    def __init__(self, values: dict[str, Any], *, record: bool, stored: bool = False) -> None:
        self.values = values
        self.changed = not stored
        self._record = record and not stored
        self._old_record: dict[str, Any] = {}  # of the job that this one continues
        self._found: dict[str, Any] = flatten_config(values) if stored else {}
        self.new_lock()

    def new_lock(self) -> None:
        """In a forked child: another thread of the parent may hold the old one for ever."""
        self._lock = threading.Lock()

    @property
    def as_found(self) -> bool:
        """Whether the hyperparameters are those that were in the store when the run was opened."""
        try:
            return flatten_config(self.values) == self._found
        except RuntimeError:  # the user's own thread is changing them just now
            return False

    def update(self, cfg: Any) -> None:
        """Add hyperparameters, level by level; the later value wins.

        Raises:
            TypeError: if ``cfg`` is no configuration.
        """
        new = to_config(cfg)
        with self._lock:
            merge_config(self.values, new)
            self.changed = True

    def resume(self, store: StoredRun) -> None:
        """Merge these hyperparameters into those in the store: Trackio would put them in their place."""
        stored = store.stored_config()
        self._old_record = _taken_out(stored)
        with self._lock:
            new = dict(self.values)
            self.values.clear()
            self.values.update(nest_config(stored))
            self._found = flatten_config(self.values)
            merge_config(self.values, new)
            self.changed = True

    def prepare(self, store: StoredRun) -> None:
        """Have the next row carry the configuration, if it has changed."""
        record = {**self._old_record, **(environment() if self._record else {})}
        with self._lock:
            self.changed = False
            try:
                values = flatten_config(self.values)
            except RuntimeError:  # the user's own thread is changing them just now: with the next row, then
                self.changed = True
                return
        store.set_config({**_renamed(record, values), **values})


def _renamed(record: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A record beside hyperparameters: where these have an entry of that name, its name gets a ``_``."""
    return {f"{name}_" if name in values else name: value for name, value in record.items()}


def _taken_out(stored: dict[str, Any]) -> dict[str, Any]:
    """Take the record out of a stored configuration."""
    found = {name: f"{name}_" if f"{name}_" in stored else name for name in RECORDED}
    return {name: stored.pop(key) for name, key in found.items() if key in stored}
