"""torchrl's Logger contract in Trackio's terms: values are converted here and handed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np
import torch
import trackio
from tensordict import TensorDictBase

from torchrl_trackio.arrays import describe, to_python
from torchrl_trackio.experiment import TrackioRun
from torchrl_trackio.handle import saved_identity
from torchrl_trackio.histograms import Bins, PendingHistogram
from torchrl_trackio.names import check_text, metric_name
from torchrl_trackio.objects import ObjectLogger
from torchrl_trackio.opening import open_run
from torchrl_trackio.services import ServedLogger
from torchrl_trackio.silent import SilentRun, rank
from torchrl_trackio.values import flatten_metrics, to_metrics, to_scalar
from torchrl_trackio.values import to_step as _to_step
from torchrl_trackio.video import Video, checked_fps


class TrackioLogger(ObjectLogger, ServedLogger):
    """Logs to Trackio: what is accepted is stored, and logging costs the training loop next to nothing.

    Everything logged for one step shares one row of Trackio. Values are converted in the caller's thread, so that a
    tensor may be reused as soon as the call returns; rows are written, histograms counted and videos encoded in the
    background. The interpreter's end stores what is left, so that :meth:`shutdown` need not be called.

    In every ``log_*`` call, ``step`` is any integer-like number (``int``, numpy integer, 0-d tensor, integral float)
    within int64. ``None`` continues the metric's own count: its last step plus one, starting with 0, or where the last
    logger of that project and name in this process ended.

    Args:
        exp_name: the run's name. 1 to 200 characters; ``/`` is fine, ``..`` and absolute paths are not, since Trackio
            stores media in a folder of that name.
        project: the project's name: letters, digits, ``-`` and ``_``; others become ``-``, with a warning.
        video_fps: frames per second of videos, above 0, where :meth:`log_video` names none.
        resume: ``"never"`` starts a new run, also where one of that name exists; ``"allow"`` continues the latest run
            of that name, if there is one; ``"must"`` continues it or raises.
        state_dict: a :meth:`state_dict` whose run is continued, whatever ``exp_name`` and ``project`` are.
        rank_zero_only: whether, of several distributed processes, only that of rank 0 logs; the others' loggers take
            everything and store nothing. The rank is the environment variable ``RANK``, which ``torchrun`` sets, or
            else that in :mod:`torch.distributed`'s process group, if there is one yet.
        log_env: whether Python, platform, torch, CUDA and GPUs, versions, command line and git commit are stored in
            the configuration, under ``env/…``. No environment variables, nor what looks like a secret.
        alert_on_nonfinite: whether the first NaN or infinity of a metric raises an alert that names metric and step.
            Those within a histogram do not.
        quiet: whether nothing is printed: neither Trackio's lines nor the progress of :meth:`close`. Warnings are.
        **trackio_init_options: any other option of :func:`trackio.init`: ``config``, ``group``, ``server_url``,
            ``space_id``, ``auto_log_gpu``...

    Raises:
        TypeError: for an unknown option, or a name that is no string.
        ValueError: for a name that cannot be stored, or a run to resume that does not exist.
        ConnectionError: if a server has to be asked for that run, and does not answer.

    Example:
        >>> from torchrl_trackio import TrackioLogger
        >>> with TrackioLogger("ppo", project="cartpole") as logger:
        ...     logger.log_hparams({"optim": {"lr": 3e-4}})
        ...     logger.log_scalar("train/reward", 21.0, step=0)
    """

    exp_name: str

    def __init__(
        self,
        exp_name: str,
        project: str = "torchrl",
        *,
        video_fps: float = 30,
        resume: str = "never",
        state_dict: Mapping[str, Any] | None = None,
        rank_zero_only: bool = False,
        log_env: bool = True,
        alert_on_nonfinite: bool = True,
        quiet: bool = False,
        **trackio_init_options: Any,
    ) -> None:
        checked_fps(video_fps)
        self.video_fps = video_fps
        saved = None if state_dict is None else saved_identity(state_dict)
        project = saved["project"] if saved else project
        silent = rank_zero_only and rank() != 0
        self._open: Any = partial(
            open_run,
            resume=resume,
            saved=saved,
            silent=silent,
            log_env=log_env,
            alert_on_nonfinite=alert_on_nonfinite,
            quiet=quiet,
            options=trackio_init_options,
        )
        super().__init__(exp_name=exp_name, log_dir=project)

    def _create_experiment(self) -> TrackioRun | SilentRun:
        """Open the run; torchrl's base class calls this once."""
        open_run_once, self._open = self._open, None  # options may hold what cannot be pickled
        run: TrackioRun | SilentRun = open_run_once(self.exp_name, self.log_dir)
        self.exp_name = run.name
        return run

    def log_scalar(self, name: str, value: float, step: int | None = None) -> None:
        """Log a number.

        Args:
            name: the metric's name. ``train/loss`` is drawn in the section ``train``.
            value: a number, bool (0 or 1), or tensor or array with one element, of any real dtype and device. NaN and
                infinities are stored, and left out of the plot.
            step: see the class.

        Raises:
            TypeError: if the name, value or step is of another type.
            ValueError: if an integer is out of range.
            RuntimeError: after :meth:`shutdown`.
        """
        self.experiment.add_number(metric_name(name), to_scalar(value), step if step is None else _to_step(step))

    def log_metrics(
        self,
        metrics: Mapping[Any, Any] | TensorDictBase,
        step: int | None = None,
        *,
        keys_sep: str = "/",
        override_global_step: bool = False,  # noqa: ARG002 - W&B's; torchrl's service clients pass it on
    ) -> dict[Any, Any]:
        """Log many values as one row; with CUDA tensors, the device is waited for once.

        Args:
            metrics: a mapping or tensordict, nested at will, from names (strings or tuples of strings) to values. A
                number is stored as such, several (tensor, array, list) as a histogram, a string as text, and Trackio's
                own objects and figures as what they are. Of a lazy stack, what differs between the parts is named by
                their number (``agents/0/observation``), or along the batch is one histogram.
            step: see the class; ``None`` gives all names one step.
            keys_sep: joins the keys of nested values.
            override_global_step: ignored.

        Returns:
            The metrics by their full names, tensors as numbers or lists.

        Raises:
            TypeError: if a name, value or step is of another type. All other values are stored.
            ValueError: if an integer is out of range, or two metrics have one name. All other values are stored.
            RuntimeError: after :meth:`shutdown`.
        """
        step = step if step is None else _to_step(step)
        flat = flatten_metrics(metrics, keys_sep)
        values, errors = to_metrics(flat, keys_sep)
        self.experiment.add(values, errors, step)
        return {key: to_python(value) for key, value in flat.items()}

    def log_histogram(
        self,
        name: str,
        data: Sequence[float] | np.ndarray | torch.Tensor,
        step: int | None = None,
        *,
        bins: Bins | None = 64,
    ) -> None:
        """Log a histogram. The call costs one copy of the data.

        Args:
            name: the metric's name.
            data: numbers of any shape, real dtype and device. NaN and infinities are not counted.
            step: see the class.
            bins: number of bins, 1 to 512; or an estimator of :func:`numpy.histogram_bin_edges` by name; or rising
                edges.

        Raises:
            TypeError: if the name, data, step or bins are of another type.
            ValueError: if ``bins`` is out of range.
            RuntimeError: after :meth:`shutdown`.
        """
        self._add(name, PendingHistogram(data, bins), step)

    def log_video(
        self,
        name: str,
        video: torch.Tensor,
        step: int | None = None,
        *,
        fps: float | None = None,
        format: str = "mp4",  # noqa: A002
    ) -> None:
        """Log a video. The call costs one copy of the frames; at most four videos wait to be encoded, then it waits.

        Args:
            name: the metric's name.
            video: frames ``(T, C, H, W)`` or ``(N, T, C, H, W)``, or with the channels last; C of 1, 3 or 4; uint8 in
                [0, 255] or float in [0, 1], on any device. N videos are tiled in a grid.
            step: see the class.
            fps: frames per second, above 0 and at most 1000 (a gif: 100). Defaults to ``video_fps``.
            format: ``"mp4"`` (H.264), ``"webm"`` (VP9) or ``"gif"`` (256 colours, shown as an image that moves).

        Raises:
            TypeError: if the name, video, step or fps is of another type.
            ValueError: if the shape, fps or format is none of these.
            RuntimeError: after :meth:`shutdown`.
        """
        frames = Video(video, self.video_fps if fps is None else fps, format)
        self.experiment.add_video(metric_name(name), frames, step if step is None else _to_step(step))

    def log_str(self, name: str, value: str, step: int | None = None) -> None:
        """Log text, shown as Markdown in the dashboard's reports.

        Args:
            name: the metric's name.
            value: the text.
            step: see the class.

        Raises:
            TypeError: if the name, text or step is of another type.
            ValueError: if the text is no valid Unicode.
            RuntimeError: after :meth:`shutdown`.
        """
        if not isinstance(value, str):
            raise TypeError(f"log_str takes a string, got {describe(value)}: log str(value), or use log_metrics")
        check_text("text", value)
        self._add(name, trackio.Markdown(value), step)

    def log_hparams(self, cfg: Any) -> None:
        """Add hyperparameters to the run's configuration, at any time; the later value wins.

        Args:
            cfg: a mapping, OmegaConf ``DictConfig``, dataclass instance or ``argparse.Namespace``, nested at will, with
                any values. Stored as one entry for each leaf (``optim/lr``), which the dashboard can compare and group
                by.

        Raises:
            TypeError: if ``cfg`` is none of these.
            RuntimeError: after :meth:`shutdown`.
        """
        self.experiment.update_config(cfg)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything logged so far is stored, videos included.

        Args:
            timeout: the longest to wait, in seconds; ``None`` for as long as it takes.
        """
        self.experiment.flush(timeout)

    def shutdown(self, timeout: float | None = None) -> None:
        """Store everything and end the run. May be called twice.

        Args:
            timeout: the longest to wait, in seconds; ``None`` for as long as the disk takes, and 30 s for a server.
        """
        self.experiment.finish(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Alias for :meth:`shutdown`."""
        self.shutdown(timeout)

    def state_dict(self) -> dict[str, Any]:
        """Flush, and return what identifies the run and where its steps stand, for a checkpoint."""
        self.flush()
        return {"exp_name": self.exp_name, "log_dir": self.log_dir, "local": self.experiment.identity()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue the saved run.

        Args:
            state_dict: from :meth:`state_dict`, of this run; or of another run of the project, if nothing has been
                logged to this one.

        Raises:
            RuntimeError: if this logger has already logged to another run.
            ValueError: if the saved run is not in the store.
        """
        self.experiment.adopt(saved_identity(state_dict))
        self.exp_name = self.experiment.name

    def __enter__(self) -> TrackioLogger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        run = self.experiment
        return f"TrackioLogger(exp_name={run.name!r}, project={run.project!r}, place={run.place!r})"

    def _add(self, name: str, value: Any, step: int | None) -> None:
        self.experiment.add({metric_name(name): value}, step=step if step is None else _to_step(step))
