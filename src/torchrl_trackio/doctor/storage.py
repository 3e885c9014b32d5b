"""The doctor's checks of where runs are stored."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from torchrl_trackio.doctor.checks import FAILED, OK, WARNING, Check
from torchrl_trackio.doctor.roundtrip import RoundTrip, said

_LITTLE = 2**30  # bytes


def storage(trip: RoundTrip) -> Iterator[Check]:
    """Where runs are stored, and whether that can be written to."""
    if trip.folder is None:
        raise trip.refused or RuntimeError("Trackio has no folder")
    yield _folder(trip.folder, trip.refused)
    yield from _mode()
    yield from _remote()


def _folder(folder: Path, refused: BaseException | None) -> Check:
    if refused:
        advice = "Set TRACKIO_DIR, before trackio is imported, to a folder that can be made and written to."
        return Check("folder", FAILED, f"{folder} cannot be written to: {said(refused)}", advice)
    free = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
    text = f"{folder}, writable, {free / 2**30:,.1f} GiB free"
    if free < _LITTLE:
        return Check("folder", WARNING, text, "Make room, or set TRACKIO_DIR before trackio is imported.")
    given = os.environ.get("TRACKIO_DIR")
    if given and not Path(given).is_absolute():
        text += f"; TRACKIO_DIR={given!r} is another folder in scripts that are started elsewhere"
        return Check("folder", WARNING, text, "Give it as an absolute path; Trackio does not expand '~' or '$'.")
    return Check("folder", OK, text)


def _mode() -> Iterator[Check]:
    from trackio.utils import get_storage_mode

    mode, given = get_storage_mode(), os.environ.get("TRACKIO_STORAGE_MODE", "auto")
    if given.strip().lower() not in ("auto", "sqlite", "jsonl"):
        advice = f"TRACKIO_STORAGE_MODE is {given!r}, which is none of auto, sqlite and jsonl."
        yield Check("storage mode", WARNING, mode, advice)
        return
    advice = "The dashboard, while it runs, imports what was logged every 15 s." if mode == "jsonl" else ""
    yield Check("storage mode", OK, mode, advice)


def _remote() -> Iterator[Check]:
    """The Space or server that runs are sent to; Trackio prefers the Space."""
    from trackio.utils import resolve_space_id_and_server_url

    space, url = resolve_space_id_and_server_url(None, None)
    if space:
        yield _space(space)
    if space is not None and os.environ.get("TRACKIO_SERVER_URL"):  # an empty one, too
        yield Check("server", WARNING, "TRACKIO_SERVER_URL is ignored, since TRACKIO_SPACE_ID is set")
    elif url:
        yield _server(url)
    elif not space:
        yield Check("server", OK, "none is set; runs are stored in the folder")


def _space(space: str) -> Check:
    from huggingface_hub import get_token

    if get_token() is None:
        advice = "Run `hf auth login`, or set HF_TOKEN."
        return Check("Space", FAILED, f"{space}, and no Hugging Face token to log to it with", advice)
    return Check("Space", OK, f"{space}; a token is there, the Space itself was not asked")


def _server(given: str) -> Check:
    """Whether the server is there and takes the token. No text of it holds anything but the address."""
    from torchrl_trackio.server import url_and_token, without_secrets

    try:
        url, token = url_and_token(given)
    except ValueError:
        url, token = "", None
    parts = urlsplit(url)
    if parts.query or parts.fragment or not parts.hostname:
        advice = "It has to be http://HOST:PORT/?write_token=TOKEN, or http://HOST:PORT/ with TRACKIO_WRITE_TOKEN set."
        return Check("server", FAILED, "TRACKIO_SERVER_URL cannot be used", advice)
    advice = "`trackio show` prints the right one where it is run. Put it in TRACKIO_WRITE_TOKEN, or into the URL."
    if not token or not (token.isascii() and token.isprintable()):
        text = "has characters that cannot be sent, such as a line break" if token else "is missing"
        return Check("server", FAILED, f"{without_secrets(url)}, whose write token {text}", advice)
    return _answer(url, token, advice)


def _answer(url: str, token: str, advice: str) -> Check:
    from torchrl_trackio.server import LoginRefusedError, takes_token, without_secrets

    address = without_secrets(url)
    try:
        taken = takes_token(url, token)
    except LoginRefusedError as error:
        return Check("server", FAILED, str(error))
    except ConnectionError as error:
        advice = "Until it does, what is logged is kept in the folder. Does `trackio show --host 0.0.0.0` run there?"
        return Check("server", FAILED, str(error), advice)
    if not taken:
        return Check("server", FAILED, f"{address} refuses the write token", advice)
    return Check("server", OK, f"{address} answers, and takes the write token")
