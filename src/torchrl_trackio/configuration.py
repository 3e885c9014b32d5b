"""A run's configuration: hyperparameters that may change at any time, and the record of the environment."""

from __future__ import annotations

import threading
from typing import Any

from torchrl_trackio.environment import RECORDED, environment
from torchrl_trackio.hparams import merge_config, nest_config, to_config
from torchrl_trackio.run import StoredRun


class Configuration:
    """The hyperparameters of a run, nested as given, and what of them the store has not yet got.

    Args:
        values: the first ones.
        record: whether the record of the environment is stored beside them. It is made when it is first stored, which
            is in the background, but for a run that ends at once.
    """

    def __init__(self, values: dict[str, Any], *, record: bool) -> None:
        self.values = values
        self.changed = True
        self._record = record
        self._old_record: dict[str, Any] = {}  # of the job that this one continues
        self.new_lock()

    def new_lock(self) -> None:
        """In a forked child: another thread of the parent may hold the old one for ever."""
        self._lock = threading.Lock()

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
        self._old_record = {key: stored.pop(key) for key in RECORDED & stored.keys()}
        with self._lock:
            new = dict(self.values)
            self.values.clear()
            self.values.update(nest_config(stored))
            merge_config(self.values, new)
            self.changed = True

    def prepare(self, store: StoredRun) -> None:
        """Have the next row carry the configuration, if it has changed."""
        record = {**self._old_record, **(environment() if self._record else {})}
        with self._lock:
            self.changed = False
            try:
                store.set_config(self.values, record)
            except RuntimeError:  # the user's own thread is changing the values just now: with the next row, then
                self.changed = True
