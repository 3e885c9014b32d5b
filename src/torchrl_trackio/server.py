"""Asking a self-hosted Trackio server, with a time limit."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

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
    request = urllib.request.Request(  # noqa: S310 - the address is the user's own
        f"{url.rstrip('/')}/api/{function}",
        json.dumps({"args": [], "kwargs": arguments}).encode(),
        {"Content-Type": "application/json", "x-trackio-write-token": token or ""},
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:  # noqa: S310
            answer = json.load(response)
    except (OSError, ValueError) as error:
        raise ConnectionError(f"the Trackio server at {url} did not answer: {error}") from None
    if answer.get("error") is not None:
        raise ConnectionError(f"the Trackio server at {url} answered: {answer['error']}")
    return answer.get("data")


def check_token(url: str, token: str) -> bool:
    """Whether the server is there.

    Raises:
        ValueError: if it is, but refuses the write token.
    """
    try:
        status = ask(url, token, "get_run_mutation_status")
    except ConnectionError:
        return False
    if isinstance(status, dict) and status.get("allowed") is False:
        raise ValueError(
            f"the Trackio server at {url} refuses the write token: `trackio show` prints the right one; pass it in "
            "server_url (…/?write_token=…) or set TRACKIO_WRITE_TOKEN"
        )
    return True
