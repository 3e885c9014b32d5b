"""From converted values to the store: rows, videos, objects and the configuration of one run, in the background."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import trackio

from torchrl_trackio.alerts import newly_nonfinite, nonfinite_alert
from torchrl_trackio.configuration import Configuration
from torchrl_trackio.errors import cause_of, warn_in_background
from torchrl_trackio.media import MediaQueue
from torchrl_trackio.quiet import hushed
from torchrl_trackio.rows import RowBuffer
from torchrl_trackio.server_run import stored_run
from torchrl_trackio.video import Video


class RunWriter:
    """Writes one run. What fails in the background is warned about once per cause, never raised.

    Args:
        run: the run.
        config: its configuration.
        alert_on_nonfinite: whether the first NaN or infinity of a metric is an alert.
        quiet: whether Trackio prints nothing.
        reopened: whether another process, or this one before a fork, opened the run first.

    Attributes:
        store: the run in the store.
        rows: the row buffer.
        media: the media queue.
        config: its configuration.
        options: ``alert_on_nonfinite`` and ``quiet``.
    """

    def __init__(
        self,
        run: trackio.Run,
        config: Configuration,
        *,
        alert_on_nonfinite: bool,
        quiet: bool,
        reopened: bool = False,
    ) -> None:
        self.config = config
        self.options = {"alert_on_nonfinite": alert_on_nonfinite, "quiet": quiet}
        self._warned: set[str] = set()
        self._nonfinite: set[str] = set()
        self.store = stored_run(run, self.warn, reopened=reopened)
        self.rows = RowBuffer(self._write_row, self.store.stored_step)
        self.media = MediaQueue()

    def reopened(self, run: trackio.Run) -> RunWriter:
        """In a forked child, what goes on for this one: its threads and locks are the parent's."""
        writer = RunWriter(run, self.config, reopened=True, **self.options)
        writer.rows.last_steps.update(self.rows.last_steps)
        writer._warned |= self._warned
        writer._nonfinite |= self._nonfinite
        return writer

    def add_video(self, name: str, video: Video, step: int | None) -> None:
        """Encode a video in the background and store it in a row of its own."""
        step = self.rows.count([name], step)
        self.media.put(lambda: self._store_video(name, video, step))

    def store_objects(self, names: Iterable[str], values: dict[str, Any], step: int) -> list[Exception]:
        """Replace Trackio's objects by what is stored of them: the caller may change them or delete their files.

        Returns:
            An error for each that cannot be stored.
        """
        errors: list[Exception] = []
        for name in names:
            value = values.pop(name)
            try:
                values[name] = self.store.stored_form(value, step)
            except OSError as error:
                self.warn_of(error, name, step)
            except Exception as error:  # noqa: BLE001 - an object's own code can raise anything
                errors.append(TypeError(f"{name!r}: {type(value).__name__} cannot be stored: {error}"))
        return errors

    def alert(self, title: str, text: str | None, level: trackio.AlertLevel, step: int, url: str | None = None) -> None:
        """Raise an alert."""
        with hushed(self.options["quiet"]):
            self.store.run.alert(title, text, level, step, url)

    def flush(self, until: float) -> bool:
        """Store everything added so far; tell whether that was possible until ``time.monotonic()`` is at ``until``."""
        done = self.rows.drain(timeout=max(until - time.monotonic(), 0))
        done = self.media.flush(until) and done
        self._write_config(until)
        self.store.write_out(until)
        return done

    def end(self, timeout: float) -> None:
        """Store everything, and end the run; the store is waited for ``timeout`` seconds."""
        self.media.stop()
        self.rows.stop()
        until = time.monotonic() + timeout
        self._write_config(until)
        with hushed(self.options["quiet"]):
            self.store.end(until)

    def left(self) -> tuple[int, int]:
        """How many videos, and how many rows, are still to be stored."""
        return self.media.waiting, self.rows.waiting + self.store.waiting

    def hold(self, timeout: float) -> list[Callable[[], None]]:
        """Keep background threads out while the process forks; returns what lets them in again."""
        return [*self.rows.hold(timeout), *self.store.hold(timeout)]

    def warn_of(self, error: Exception, name: str, step: int) -> None:
        """Warn that something could not be stored."""
        text = f"{name!r} at step {step} could not be stored: {type(error).__name__}: {error}"
        self.warn(cause_of(error), text)

    def warn_of_delay(self, call: str, seconds: float) -> None:
        """Warn that a call returned before everything was stored."""
        self.warn(call, f"{call} of run {self.store.run.name!r} took over {seconds} s: the rest is stored later")

    def warn(self, cause: str, message: str) -> None:
        """Warn of a cause, once."""
        if cause not in self._warned:
            self._warned.add(cause)
            warn_in_background(message)

    def _write_row(self, step: int, values: Mapping[str, Any]) -> None:
        try:
            if self.config.changed or self.store.needs_config():
                self.config.prepare(self.store)
            self.store.write(step, values)
            if self.options["alert_on_nonfinite"] and (new := newly_nonfinite(values, self._nonfinite)):
                self._nonfinite.update(new)
                self.alert(*nonfinite_alert(new, step), step)
        except Exception as error:  # noqa: BLE001 - one row must not keep the next ones from being written
            self.warn_of(error, ", ".join(values), step)

    def _write_config(self, until: float) -> None:
        if not self.rows.used and self.config.as_found:
            return
        if self.rows.writing.acquire(timeout=max(until - time.monotonic(), 0)):
            try:
                self.config.prepare(self.store)
                self.store.write_config()
            finally:
                self.rows.writing.release()

    def _store_video(self, name: str, video: Video, step: int) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="torchrl-trackio-") as folder:
                path = Path(folder) / f"video.{video.format}"
                video.encode(path)
                # The dashboard plays no gif in its <video>, but animates an image.
                media = trackio.Image(path) if video.format == "gif" else trackio.Video(path)
                form = self.store.stored_form(media, step)
            with self.rows.writing:
                self._write_row(step, {name: form})
        except Exception as error:  # noqa: BLE001 - whatever the encoder or the disk raises, training goes on
            self.warn_of(error, name, step)
