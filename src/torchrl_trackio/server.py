"""Asking a self-hosted Trackio server, with a time limit."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx

_SECONDS = 3.0


def ask(url: str, token: str | None, function: str, **arguments: Any) -> Any:
    """What a function of the server's HTTP interface returns, asked as Trackio asks: also behind a login or a proxy.

    Args:
        url: the server's address, with its login, but without a token.
        token: the write token.
        function: name of the function.
        **arguments: what it is given.

    Raises:
        ConnectionError: if the server cannot be reached, does not answer within 3 s, or answers with an error.
    """
    place = without_secrets(url)
    try:
        response = httpx.post(
            f"{url.partition('?')[0].rstrip('/')}/api/{function}",
            json={"args": [], "kwargs": arguments},
            headers={"x-trackio-write-token": token or ""},
            timeout=_SECONDS,
        )
        response.raise_for_status()
        answer = response.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise ConnectionError(f"the Trackio server at {place} did not answer: {reason(error)}") from None
    if answer.get("error") is not None:
        raise ConnectionError(f"the Trackio server at {place} answered: {answer['error']}")
    return answer.get("data")


def reason(error: Exception) -> str:
    """What went wrong with a request, without the address and token that httpx's own texts may hold."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"{error.response.status_code} {error.response.reason_phrase}"
    if isinstance(error, (httpx.LocalProtocolError, UnicodeError)):
        return "the write token has characters that cannot be sent"
    return str(error)


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
