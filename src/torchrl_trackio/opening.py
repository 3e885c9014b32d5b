"""Opening Trackio's runs: new ones, and a second time in another process."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Mapping
from typing import Any

import trackio
from trackio import fragments
from trackio.utils import parse_trackio_server_url, resolve_space_id_and_server_url

from torchrl_trackio.errors import warn
from torchrl_trackio.hub import bounded_hub
from torchrl_trackio.run import StoredRun, Warn
from torchrl_trackio.server import check_token
from torchrl_trackio.server_run import ServerRun


def start(options: Mapping[str, Any]) -> trackio.Run:
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
        url, token = _server(server_url)
        if token is None or check_token(url, token):
            return _init(options)
        return _start_without_server(options, url, token)


def stored_run(run: trackio.Run, warn: Warn, *, reopened: bool) -> StoredRun:
    """The run with what it needs to lose nothing where it is stored."""
    kind: Callable[..., StoredRun] = ServerRun if (run.url or "").startswith("http") else StoredRun
    return kind(run, warn, reopened=reopened)


def reopen(spec: Mapping[str, Any], config: dict[str, Any]) -> trackio.Run:
    """A second :class:`trackio.Run` for a run that is open elsewhere: another process, or this one before a fork."""
    with bounded_hub():
        run = trackio.Run(**spec)
    run.config, run._config_logged = config, True  # whoever opened the run first stores it
    return run


def _init(options: Mapping[str, Any]) -> trackio.Run:
    current_config = trackio.config
    try:
        return contextvars.Context().run(lambda: trackio.init(**options))
    finally:
        trackio.config = current_config


def _server(server_url: str) -> tuple[str, str | None]:
    if not server_url.startswith(("http://", "https://")):
        shown = server_url.partition("?")[0]  # what follows may hold the token
        raise ValueError(f"server_url must start with http:// or https://, got {shown!r}")
    url, token = parse_trackio_server_url(server_url)
    return url, token or os.environ.get("TRACKIO_WRITE_TOKEN")


def _start_without_server(options: Mapping[str, Any], url: str, token: str) -> trackio.Run:
    """A run that is kept on disk until the server is there: ``trackio.init`` would wait 15 s for it."""
    if options["resume"] == "must":
        raise ConnectionError(
            f"resume='must' has to ask the Trackio server at {url} for the run, and it does not answer"
        )
    warn(f"the Trackio server at {url} does not answer: what is logged is kept and sent once it does")
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
