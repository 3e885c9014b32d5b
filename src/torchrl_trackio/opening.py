"""Starting and continuing runs."""

from __future__ import annotations

import contextvars
import difflib
import inspect
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import trackio
from trackio import fragments
from trackio.utils import TRACKIO_DIR, resolve_space_id_and_server_url

from torchrl_trackio import lifecycle
from torchrl_trackio.errors import warn
from torchrl_trackio.experiment import TrackioRun
from torchrl_trackio.hparams import flatten_config, to_config
from torchrl_trackio.hub import bounded_hub
from torchrl_trackio.names import project_name, run_name
from torchrl_trackio.quiet import hushed
from torchrl_trackio.server import check_token, url_and_token, without_secrets
from torchrl_trackio.silent import SilentRun
from torchrl_trackio.versions import warn_of_untested_versions

_RESUME = ("never", "allow", "must")
_OWN_OPTIONS = (  # of TrackioLogger, for which a typo may have been meant
    *("exp_name", "project", "video_fps", "resume", "state_dict"),
    *("rank_zero_only", "log_env", "alert_on_nonfinite", "quiet"),
)


def open_run(
    name: str,
    project: str,
    *,
    resume: str,
    saved: Mapping[str, Any] | None = None,
    silent: bool = False,
    log_env: bool = True,
    alert_on_nonfinite: bool = True,
    quiet: bool = False,
    options: Mapping[str, Any],
) -> TrackioRun | SilentRun:
    """Start or continue a run.

    Args:
        name: the run's name.
        project: its project's name.
        resume: ``"never"``, ``"allow"`` or ``"must"``, as :func:`trackio.init` takes it.
        saved: the run to continue, from :meth:`TrackioRun.identity`.
        silent: whether another process opens the run, and this one only says what is wrong with its arguments.
        log_env: whether the record of the environment is stored with the configuration.
        alert_on_nonfinite: whether the first NaN or infinity of a metric is an alert.
        quiet: whether nothing is printed.
        options: further options of :func:`trackio.init`.

    Raises:
        TypeError: if an option is none of :func:`trackio.init`'s, or a name is no string.
        ValueError: if a name cannot be stored, or the run to continue does not exist.
        ConnectionError: if a server has to be asked for the run to continue, and does not answer.
    """
    warn_of_untested_versions()
    _refuse_unknown(options)
    if resume not in _RESUME:
        raise ValueError(f"resume must be one of {', '.join(map(repr, _RESUME))}, got {resume!r}")
    if saved:
        resume = "never"  # what continues a run by its state need not find it by its name
    name, project = run_name(name), project_name(project)
    config = to_config(options.get("config") or {})
    if silent:
        return SilentRun(name, project, config)
    _check_folder()
    if resume != "never":
        _flush_live(project, name)
    init = {**options, "name": name, "project": project, "resume": resume, "config": flatten_config(config)}
    with hushed(saved is not None, lines="* Created new run"), hushed(quiet):
        run = _start(init)
    experiment = TrackioRun(run, config, log_env=log_env, alert_on_nonfinite=alert_on_nonfinite, quiet=quiet)
    try:
        _continue(experiment, saved, quiet)
    except BaseException:
        experiment.abandon()
        raise
    return experiment


def _continue(experiment: TrackioRun, saved: Mapping[str, Any] | None, quiet: bool) -> None:
    if saved:
        experiment.adopt(saved)
        if not quiet:  # as Trackio says of those that it continues
            sys.stdout.write(f"* Resumed existing run: {experiment.name}\n")
    elif experiment.resumed:
        experiment.resume_config()


def _refuse_unknown(options: Mapping[str, Any]) -> None:
    known = inspect.signature(trackio.init).parameters.keys() - {"name", "project", "resume"}
    if unknown := sorted(options.keys() - known):
        names = [*_OWN_OPTIONS, *known]
        meant = [name for option in unknown for name in difflib.get_close_matches(option, names, 1)]
        raise TypeError(
            f"unknown options {', '.join(map(repr, unknown))}; trackio.init takes {', '.join(sorted(known))}"
            + (f"; did you mean {', '.join(map(repr, meant))}?" if meant else "")
        )


def _check_folder() -> None:
    """Warn at once of a folder that nothing can be stored in."""
    try:
        TRACKIO_DIR.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=TRACKIO_DIR):
            pass
    except OSError as error:
        warn(
            f"nothing can be stored in Trackio's folder {str(TRACKIO_DIR)!r}: {error}; set TRACKIO_DIR, before trackio "
            "is imported, to another one"
        )


def _flush_live(project: str, name: str) -> None:
    """Have a run of this process that is still open found in the store, by what continues it."""
    for live in list(lifecycle.live):
        if (live.project, live.name) == (project, name):
            live.flush()


def _start(options: Mapping[str, Any]) -> trackio.Run:
    """``trackio.init``, but it neither ends the run that the user's own ``trackio.log`` writes to, nor waits for long.

    Raises:
        ConnectionError: if a server has to be asked for the run, and does not answer.
        ValueError: if the server refuses the write token, or for what ``trackio.init`` refuses.
    """
    space_id, server_url = resolve_space_id_and_server_url(options.get("space_id"), options.get("server_url"))
    if space_id is not None:
        return _init(options)
    with bounded_hub():
        if server_url is None:
            if options["resume"] != "never":
                fragments.import_inbox_dir()  # rows of the JSONL mode are found only once they are imported
            return _init(options)
        url, token = url_and_token(server_url)
        if token is None or check_token(url, token):
            return _init(options)
        return _start_without_server(options, url, token)


def _init(options: Mapping[str, Any]) -> trackio.Run:
    current_config = trackio.config
    try:
        return contextvars.Context().run(lambda: trackio.init(**options))
    finally:
        trackio.config = current_config


def _start_without_server(options: Mapping[str, Any], url: str, token: str) -> trackio.Run:
    """A run that is kept on disk until the server is there: ``trackio.init`` would wait 15 s for it."""
    place = without_secrets(url)
    if options["resume"] == "must":
        raise ConnectionError(
            f"resume='must' has to ask the Trackio server at {place} for the run, and it does not answer"
        )
    new = ", as a new run, since nobody knows whether there is one to continue" if options["resume"] == "allow" else ""
    warn(f"the Trackio server at {place} does not answer: what is logged is kept and sent once it does{new}")
    taken = ("group", "config", "auto_log_gpu", "auto_log_cpu", "gpu_log_interval", "cpu_log_interval")
    given = {key: options[key] for key in (*taken, "webhook_url", "webhook_min_level") if options.get(key) is not None}
    return trackio.Run(
        url,
        options["project"],
        None,
        name=options["name"],
        server_base_url=url,
        write_token=token,
        existing_runs=[],
        **given,
    )
