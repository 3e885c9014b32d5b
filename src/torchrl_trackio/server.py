"""Asking a self-hosted Trackio server, with a time limit."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlsplit

import httpx
from trackio.utils import parse_trackio_server_url

_SECONDS = 3.0
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
_LOGIN_WANTED = (401, 403)  # the answers of what is in front of a server; its own to a wrong token is none of them


class LoginRefusedError(ConnectionError):
    """What is in front of the server lets nobody through with this login, or with none."""


def url_and_token(server_url: str) -> tuple[str, str | None]:
    """The server's address, with a login, and the write token that is in it or in ``TRACKIO_WRITE_TOKEN``.

    Raises:
        ValueError: if it is no address. No text of it holds a login or token.
    """
    if not server_url.startswith(("http://", "https://")):
        shown = server_url.partition("?")[0].rpartition("@")[2]
        raise ValueError(f"server_url must start with http:// or https://, got {shown!r}")
    try:
        url, token = parse_trackio_server_url(server_url)
        urlsplit(url).port  # noqa: B018 - reading it is what raises
    except ValueError:  # whose text holds a part of the address
        raise ValueError(
            "server_url cannot be read: it has to be http://HOST:PORT/?write_token=TOKEN, with a name and password "
            "before the host percent-encoded (urllib.parse.quote)"
        ) from None
    return url, token or os.environ.get("TRACKIO_WRITE_TOKEN")


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
    place, parts = without_secrets(url), urlsplit(url)
    try:
        response = httpx.post(
            f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/api/{function}",
            json={"args": [], "kwargs": arguments},
            headers={"x-trackio-write-token": token or ""},
            timeout=_SECONDS,
            verify=parts.scheme == "https",  # or httpx would read all certificates, 20 ms, for http, too
        )
        response.raise_for_status()
        answer = response.json()
    # Among them a proxy or a file of certificates that the environment names and that cannot be used.
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ImportError, ValueError) as error:
        if isinstance(error, httpx.HTTPStatusError) and error.response.status_code in _LOGIN_WANTED:
            raise LoginRefusedError(
                f"the Trackio server at {place} cannot be reached with this login: {reason(error)}; pass it in "
                "server_url (https://name:password@host/), percent-encoded"
            ) from None
        raise ConnectionError(f"the Trackio server at {place} did not answer: {reason(error)}") from None
    if answer.get("error") is not None:
        raise ConnectionError(f"the Trackio server at {place} answered: {answer['error']}")
    return answer.get("data")


def reason(error: Exception) -> str:
    """What went wrong with a request, without the login or token that httpx's and Trackio's own texts may hold."""
    if isinstance(error, httpx.HTTPStatusError):
        return own_answer(error.response) or f"{error.response.status_code} {error.response.reason_phrase}"
    if isinstance(error, (httpx.LocalProtocolError, UnicodeEncodeError)):
        return "the write token has characters that cannot be sent"
    return without_login(str(error))


def own_answer(response: httpx.Response) -> str | None:
    """What the server says of an error; ``None`` where something in front of it has answered."""
    try:
        return str(response.json()["error"])
    except (KeyError, TypeError, ValueError):
        return None


def without_login(text: str) -> str:
    """A text without the logins of the addresses in it."""
    return _LOGIN.sub("", text)


def without_secrets(url: str) -> str:
    """A server's address without what may be a login or a token."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def check_token(url: str, token: str) -> bool:
    """Whether the server is there.

    Raises:
        ValueError: if it is, but refuses the write token, or is behind a login that is not the right one.
    """
    try:
        taken = takes_token(url, token)
    except LoginRefusedError as error:
        raise ValueError(str(error)) from None
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
