"""Asking a self-hosted Trackio server, with a time limit."""

from __future__ import annotations

import http.client
import json
import urllib.request
from typing import Any
from urllib.parse import urlsplit

_SECONDS = 3.0


def ask(url: str, token: str | None, function: str, **arguments: Any) -> Any:
    """What a function of the server's HTTP interface returns.

    Args:
        url: the server's address, without a token.
        token: the write token.
        function: name of the function.
        **arguments: what it is given.

    Raises:
        ConnectionError: if the server cannot be reached, does not answer within 3 s, or answers with an error.
    """
    place = without_secrets(url)
    try:
        request = urllib.request.Request(  # noqa: S310 - the address is the user's own
            f"{url.rstrip('/')}/api/{function}",
            json.dumps({"args": [], "kwargs": arguments}).encode(),
            {"Content-Type": "application/json", "x-trackio-write-token": token or ""},
        )
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:  # noqa: S310
            answer = json.load(response)
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = str(error).replace(token, "***").replace(url, place) if token else str(error).replace(url, place)
        raise ConnectionError(f"the Trackio server at {place} did not answer: {why}") from None
    if answer.get("error") is not None:
        raise ConnectionError(f"the Trackio server at {place} answered: {answer['error']}")
    return answer.get("data")


def without_secrets(url: str) -> str:
    """A server's address without what may be a login or a token."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def check_token(url: str, token: str) -> bool:
    """Whether the server is there.

    Raises:
        ValueError: if it is, but refuses the write token.
    """
    try:
        taken = takes_token(url, token)
    except ConnectionError:
        return False
    if not taken:
        raise ValueError(
            f"the Trackio server at {without_secrets(url)} refuses the write token: `trackio show` prints the right "
            "one; pass it in server_url (…/?write_token=…) or set TRACKIO_WRITE_TOKEN"
        )
    return True


def takes_token(url: str, token: str) -> bool:
    """Whether the server takes the write token.

    Raises:
        ConnectionError: if it does not answer.
    """
    status = ask(url, token, "get_run_mutation_status")
    return not (isinstance(status, dict) and status.get("allowed") is False)
