"""The logger's methods for what is more than numbers: conversations, pictures, sounds, tables, files, alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trackio

from torchrl_trackio.artifacts import checked_aliases, checkpoint_metadata
from torchrl_trackio.figures import to_html
from torchrl_trackio.images import to_image
from torchrl_trackio.sounds import to_audio
from torchrl_trackio.tables import to_table
from torchrl_trackio.traces import to_traces
from torchrl_trackio.values import to_step


class ObjectLogger:
    """What :class:`TrackioLogger` logs beyond torchrl's contract. ``step`` is that of the class."""

    experiment: Any

    def log_trace(
        self, name: str, trace: Any, step: int | None = None, *, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Log conversations or episodes as Trackio traces, of which the dashboard has a page.

        Args:
            name: the metric's name.
            trace: one or several (a list) of:

                - a conversation: torchrl's ``History`` (batch ``[T]``; of ``[..., T]`` one trace each), its
                  ``ChatHistory``, or a list of message dicts with ``role`` and ``content``. Tool calls are kept (and
                  are the text of a message that has none), placeholders of the role ``"<none>"`` are not.
                - a tensordict that holds a ``History`` or ``ChatHistory`` under any key. Its rewards, other numbers
                  and texts become metadata; the turns of a rollout are one trace.
                - a rollout tensordict, batch ``[..., T]``: a trace for each episode, with one span for each step:
                  action, reward and what of the observation is small. The first 32 episodes of a call are stored, of
                  each the first 500 steps, and values of up to 16 numbers; the trace says what is left out. Entries
                  that differ between agents are named ``agents/0/action``... Conversations are all stored.
                - a :class:`trackio.Trace`.
            step: see the class.
            metadata: a mapping that is added to that of each trace, and wins over what is there. Of a list with one
                element for each of several traces, each gets its own; so of a tensor or array whose first dimensions
                have one for each, as ``(B, 1)`` and ``(1, B)``. One element of a tensor or array is a number. The
                ``reward`` of a conversation is also its status in the dashboard's list, unless there is another.

        Raises:
            TypeError: if the name, trace, step or metadata is of another type.
            ValueError: if there is nothing to store: an empty list, batch or rollout, no message in any conversation
                (where only some have none, these are stored, too, so that each reward stays with its own), a message
                without a role, a tensordict with neither a conversation nor a reward or an action.
            RuntimeError: after :meth:`shutdown`.

        Warns:
            TrackioWarning: over 32 episodes; a tensor or array in the metadata that does not fit several traces.
        """
        self._add(name, to_traces(trace, metadata), step)

    def log_image(self, name: str, image: Any, step: int | None = None, *, caption: str | None = None) -> None:
        """Log an image, or several in a grid.

        Args:
            name: the metric's name.
            image: a tensor or array on any device: ``(C, H, W)``, ``(H, W, C)`` or, gray, ``(H, W)``; or a batch
                ``(N, C, H, W)`` or ``(N, H, W, C)``, tiled in a grid; where both fit, the channels come first. C of 1
                (gray), 3 (RGB) or 4 (RGBA); gray frames ``(N, H, W)`` are a batch as ``frames[:, None]``. Integers in
                [0, 255], bools, or floats in [0, 1] (floats beyond 2 are taken for [0, 255]); what lies outside is
                clipped (with a warning, if floats are negative), NaN is black. Or a PIL image; the path of an image
                file, stored as it is if browsers show its format, else as PNG; or a :class:`trackio.Image`.
            step: see the class.
            caption: the text below it.

        Raises:
            TypeError: if the name, image, step or caption is of another type.
            ValueError: if the shape is none of these, or the file is missing or no image.
            RuntimeError: after :meth:`shutdown`.
        """
        self._add(name, to_image(image, caption), step)

    def log_figure(
        self, name: str, figure: Any, step: int | None = None, *, caption: str | None = None, offline: bool = False
    ) -> None:
        """Log a figure of matplotlib or plotly, as it is drawn now.

        Args:
            name: the metric's name.
            figure: of matplotlib, stored as SVG: a ``Figure``, ``Axes``, animation, the module ``pyplot`` for its
                current figure, or what has a ``figure`` or ``fig``, as seaborn's grids do. Of plotly: a ``Figure``,
                which stays interactive. Or a :class:`trackio.Html`.
            step: see the class.
            caption: the text below it.
            offline: whether a plotly figure brings plotly's own code along (4.8 MB each); otherwise the browser that
                shows it must reach ``cdn.plot.ly``.

        Raises:
            TypeError: if the name, figure, step or caption is of another type.
            ValueError: if the figure cannot be drawn.
            RuntimeError: after :meth:`shutdown`.
        """
        self._add(name, to_html(figure, caption, offline=offline), step)

    def log_table(self, name: str, table: Any, step: int | None = None) -> None:
        """Log a table.

        Args:
            name: the metric's name.
            table: one of

                - a tensordict: a row for each element of its batch, in the order of the memory, a column for each leaf
                  (``agents/0/observation`` where agents differ);
                - a mapping of columns: name to tensor, array or sequence, whose first dimension is the rows; a single
                  value is repeated;
                - a sequence of mappings or tensordicts, a row each (what one lacks stays empty), or of sequences; a
                  tensor or array ``(N, C)``. Their columns are named ``0``, ``1``...;
                - a pandas ``DataFrame``, with its index unless that only counts; a :class:`trackio.Table`.

                The keys of what is nested are joined by ``/``. Cells are numbers, bools, text, ``None``,
                :class:`trackio.Image` or lists of them; tensors of up to 16 numbers, and what else has a text, become
                that text (of larger tensors, shape and dtype), of which the dashboard shows 250 characters. Over 10,000
                rows are stored, with a warning, since the dashboard is slow to draw them.
            step: see the class.

        Raises:
            TypeError: if the name, table or step is of another type, or a cell cannot be shown.
            ValueError: if columns or rows differ in length, or two columns have one name.
            RuntimeError: after :meth:`shutdown`.
        """
        self._add(name, to_table(table), step)

    def log_audio(
        self,
        name: str,
        audio: Any,
        step: int | None = None,
        *,
        sample_rate: int | None = None,
        caption: str | None = None,
    ) -> None:
        """Log a sound, as 16-bit WAV and as loud as it is.

        Args:
            name: the metric's name.
            audio: samples ``(T,)``, ``(T, C)`` or ``(C, T)`` with C of 1 or 2 channels (T above), tensor or array:
                floats in [-1, 1], beyond which they are clipped, NaN as silence; or int8, int16, int32, uint8 or uint16
                over the whole of their range. Or the path of a WAV, MP3, Ogg or FLAC file, stored as it is; or a
                :class:`trackio.Audio`.
            step: see the class.
            sample_rate: samples per second, 3,000 to 384,000; needed for samples, refused for files.
            caption: a text to store with it; Trackio's dashboard does not show it.

        Raises:
            TypeError: if an argument is of another type, or the rate is missing.
            ValueError: if the shape or rate is none of these, or the file is missing or no sound.
            RuntimeError: after :meth:`shutdown`.
        """
        self._add(name, to_audio(audio, sample_rate, caption), step)

    def log_artifact(
        self,
        path_or_object: Any,
        name: str | None = None,
        type: str = "model",  # noqa: A002
        aliases: Sequence[str] | None = None,
    ) -> trackio.Artifact:
        """Store a file, folder or object as a new version of an artifact, before the call returns.

        Args:
            path_or_object: a path to a file or folder, whose bytes are stored unread; an ``nn.Module``, an optimizer or
                anything else with a ``state_dict``, a state dict, or a dict of such, stored by :func:`torch.save` as
                ``state_dict.pt``; a tensordict or tensorclass, stored by its ``memmap`` (read it with
                ``TensorDict.load_memmap``); or a :class:`trackio.Artifact`, which has a name and type of its own.
            name: the artifact's name in the project: letters, digits, ``.``, ``-`` and ``_``. Defaults to the file's or
                folder's, or to type, run's name and run's id.
            type: its category, which every version of that name has.
            aliases: names for this version, beside ``latest``. Trackio moves an alias to newer versions only.

        Returns:
            Trackio's artifact, with ``name``, ``version`` (``"v0"``...), ``aliases`` and the stored ``size`` in bytes.
            The last three are empty if the store did not take it, which is warned about. Content that was stored before
            is the version of then, and ``latest`` stays where it is.

        Raises:
            TypeError: if it is nothing that can be stored, or a name, type or alias is no string.
            ValueError: if there is no such file, a name or alias has other characters, an artifact of that name has
                another type, or a :class:`trackio.Artifact` has been stored or is given a name.
            RuntimeError: after :meth:`shutdown`.

        Example:
            >>> logger.log_artifact(policy, name="policy", aliases=["candidate"]).size  # doctest: +SKIP
            1234567
        """
        artifact: trackio.Artifact = self.experiment.add_artifact(path_or_object, name, type, checked_aliases(aliases))
        return artifact

    def log_checkpoint(
        self,
        obj: Any,
        step: int,
        metric: float | None = None,
        mode: str = "max",
        *,
        name: str | None = None,
    ) -> trackio.Artifact:
        """Store a checkpoint as :meth:`log_artifact` does; the alias ``best`` moves to it if its metric is the best.

        What the best one reached is read from the store, so that a resumed job goes on comparing with it. The step and
        the metric are stored beside the files, as ``log_checkpoint.json``.

        Args:
            obj: as ``path_or_object`` of :meth:`log_artifact`, but for a :class:`trackio.Artifact`. A folder's own
                ``log_checkpoint.json``, of an older checkpoint, is replaced.
            step: any integer-like number.
            metric: a number that tells how good it is. ``None``, NaN and infinities never are the best.
            mode: ``"max"`` if more is better, ``"min"`` if less is.
            name: the artifact's name. Defaults to one of this run's own, also for a file; runs that share a name share
                ``best``.

        Returns:
            As :meth:`log_artifact`.

        Raises:
            TypeError: if an argument is of another type.
            ValueError: if ``mode`` is neither, or as for :meth:`log_artifact`.
            RuntimeError: after :meth:`shutdown`.
        """
        checkpoint = checkpoint_metadata(to_step(step), metric, mode)
        artifact: trackio.Artifact = self.experiment.add_artifact(obj, name, "checkpoint", [], checkpoint)
        return artifact

    def log_alert(self, title: str, text: str | None = None, level: str = "warn", step: int | None = None) -> None:
        """Raise an alert, which the dashboard shows and the terminal prints.

        Args:
            title: its title.
            text: further text.
            level: ``"info"``, ``"warn"`` or ``"error"``.
            step: any integer-like number; ``None`` for the run's largest so far.

        Raises:
            TypeError: if the title, text or step is of another type.
            ValueError: if the level is none of these, the title empty, or a text no valid Unicode.
            RuntimeError: after :meth:`shutdown`.
        """
        self.experiment.alert(title, text, level, step)

    def _add(self, name: str, value: Any, step: int | None) -> None:
        raise NotImplementedError
