"""The experiment handle: a Trackio run, and what may be logged to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import trackio

from torchrl_trackio.alerts import alert_of
from torchrl_trackio.artifacts import filled, new_artifact
from torchrl_trackio.errors import warn_in_background
from torchrl_trackio.handle import RunHandle
from torchrl_trackio.histograms import PendingHistogram
from torchrl_trackio.patience import within
from torchrl_trackio.values import flatten_metrics, to_metrics, to_step
from torchrl_trackio.video import Video

_PLAIN = {float, int, type(None), PendingHistogram}


class TrackioRun(RunHandle):
    """A :class:`trackio.Run` whose ``log``, ``flush`` and ``finish`` keep every value.

    ``isinstance(run, trackio.Run)`` holds, and every attribute of the run is there. What differs:

    * :meth:`log` gathers what is logged for one step in one row, and takes tensors and arrays;
    * :meth:`flush` waits until everything is stored; :meth:`finish` may be called twice;
    * :attr:`config` may be changed at any time;
    * the run can be pickled, deep-copied and used after a fork: all go on writing to the same run.

    It is the ``experiment`` of a :class:`TrackioLogger`, which makes it.
    """

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Store metrics in the row of ``step``.

        Args:
            metrics: name to value, as for :meth:`TrackioLogger.log_metrics`.
            step: any integer-like number; ``None`` for the run's largest step so far plus one.

        Raises:
            TypeError: if a name or value cannot be stored; the others are.
            ValueError: likewise.
            RuntimeError: if the run is finished.
        """
        if step is None:
            step = 1 + self._self_largest_step()
        self.add(*to_metrics(flatten_metrics(metrics)), step=to_step(step))

    def add(self, values: dict[str, Any], errors: Iterable[Exception] = (), step: int | None = None) -> None:
        """Put converted values into the row of ``step``, then raise what kept the others from being converted.

        Args:
            values: stored names to what :mod:`torchrl_trackio.values` makes of values.
            errors: one for each value that could not be converted.
            step: an ``int``, or ``None`` to continue the names' own count.
        """
        self._self_catch_up()
        errors, writer = list(errors), self._self_writer
        objects = [name for name, value in values.items() if type(value) not in _PLAIN]
        if objects:
            step = writer.rows.count(values, step)
            errors += writer.store_objects(objects, values, step)
        if values:
            writer.rows.add(values, step)
        if errors:
            raise type(errors[0])("; ".join(map(str, errors)))

    def add_number(self, name: str, number: float, step: int | None) -> None:
        """:meth:`add` for the one value that is logged most often, without the questions that it need not be asked."""
        if self._self_left_behind:
            self._self_catch_up()
        self._self_writer.rows.add({name: number}, step)

    def add_video(self, name: str, video: Video, step: int | None) -> None:
        """Encode a video in the background and store it in a row of its own; ``step`` as for :meth:`add`."""
        self._self_catch_up()
        if not self._self_writer.options["quiet"]:
            self._self_progress.arm()
        self._self_writer.add_video(name, video, step)

    def add_artifact(
        self,
        source: Any,
        name: str | None,
        type: str,  # noqa: A002
        aliases: list[str],
        checkpoint: Mapping[str, Any] | None = None,
    ) -> trackio.Artifact:
        """Store a file, folder or object; of a ``checkpoint``, as ``best`` if its metric is better than that one's.

        Args:
            source: as :func:`new_artifact` takes it.
            name: the artifact's; ``None`` for the file's, or, of an object or a checkpoint, one of the run's own.
            type: its category.
            aliases: beside ``latest``.
            checkpoint: from :func:`checkpoint_metadata`.

        Raises:
            TypeError: if the source, name or type is of another type.
            ValueError: if a name, alias or type is none that Trackio takes there, or there is no such file.
            RuntimeError: if the run is finished.
        """
        artifact = new_artifact(source, name, type, (self.name, self.id), checkpoint)
        self._self_use()
        try:
            with filled(artifact, source, checkpoint):
                return self._self_writer.store.artifacts.log(artifact, aliases, checkpoint)
        except (TypeError, ValueError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever the disk or the store raises, training goes on
            step = f" of step {checkpoint['step']}" if checkpoint else ""
            warn_in_background(f"artifact {artifact.name!r}{step} is not stored: {error.__class__.__name__}: {error}")
        return artifact

    def alert(
        self,
        title: str,
        text: str | None = None,
        level: trackio.AlertLevel | str = "warn",
        step: int | None = None,
        webhook_url: str | None = None,
    ) -> None:
        """Raise an alert, which the dashboard shows and the terminal prints.

        Args:
            title: its title.
            text: further text.
            level: ``"info"``, ``"warn"`` or ``"error"``.
            step: any integer-like number; ``None`` for the run's largest so far.
            webhook_url: where to send it, instead of the run's own.

        Raises:
            TypeError: if the title, text or step is of another type.
            ValueError: if the level is none of these, the title empty, or a text no valid Unicode.
            RuntimeError: if the run is finished.
        """
        alert = alert_of(title, text, level)
        step = max(self._self_largest_step(), 0) if step is None else to_step(step)
        self._self_use()
        self._self_writer.alert(*alert, step, webhook_url)

    @property
    def config(self) -> dict[str, Any]:
        """The run's hyperparameters, nested as given. A change is stored by the next flush at the latest."""
        return self._self_writer.config.values

    def update_config(self, cfg: Any) -> None:
        """Add hyperparameters to those of the run, level by level; the later value wins.

        Raises:
            TypeError: if ``cfg`` is no configuration.
            RuntimeError: if the run is finished.
        """
        self._self_catch_up()
        self._self_writer.rows.check()
        self._self_writer.config.update(cfg)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything logged so far is stored, videos included.

        In local mode it is then on disk and visible to readers. Rows that a server has not taken within 5 s are on the
        local disk and sent later.

        Args:
            timeout: the longest to wait, in seconds; ``None`` for as long as it takes.
        """
        if self._self_left_behind or self._self_finished:
            return
        writer = self._self_writer
        if timeout is None:
            writer.flush(time.monotonic() + threading.TIMEOUT_MAX / 2)
        elif not within(timeout, lambda: writer.flush(time.monotonic() + timeout)):
            writer.warn_of_delay("flush()", timeout)

    def _self_largest_step(self) -> int:
        return max(self._self_writer.rows.largest_step, self._self_writer.store.next_step - 1)

    def _self_use(self) -> None:
        """Have the run listed though it may have no row, and refuse what comes after its end."""
        self._self_catch_up()
        self._self_writer.rows.use()
