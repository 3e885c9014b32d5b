"""The command line as it may be stored: without what looks like a secret."""

from __future__ import annotations

import getpass
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

_HIDDEN = "***"
# What torchrl's own options name the keys of; `sign_in_key` is none of them.
_TENSORDICTS = r"""
    (?<![a-z][_-])in out action reward rewards done terminated truncated reset init end priority observation obs state
    value target advantage mask prob probs logits traj trajectory step count time pixels lives score chunk
"""
_NO_SECRET = "".join(rf"(?<!(?<![a-z]){word}[_-])" for word in _TENSORDICTS.split())
# In the name of an option or a key, anywhere in it; `tokenizer` and `author` tell of nothing.
_TELLTALE = rf"""[\w.+-]*(?:
    token(?!iz) | passw | passphrase | secret | credential | auth(?!or(?!iz)) | jwt | signature | webhook | cookie
    | (?:(?<![a-z]) | api | access) (?:pass | pwd | sig) (?![a-z])
    | (?:(?<![a-z]){_NO_SECRET} | api | access) keys? (?![a-z]) | (?-i:[a-z]Key)
)[\w.-]*"""
_OPTION = re.compile(rf"-{{0,2}}{_TELLTALE}", re.IGNORECASE | re.VERBOSE)
_HARMLESS = re.compile(r"[-+]?[\d.]+(?:e[-+]?\d+)?|true|false|none|null", re.IGNORECASE)
_OWN = re.compile(r"(?:-[bBdEiIOPqRsSuvx]*([cmWX])|--check-hash-based-pycs)(.*)", re.DOTALL)  # takes a value
_ENTRY = re.compile(  # of a mapping in a text
    rf"""((?:^|(?<=[\s'"{{\[(,;?&])){_TELLTALE}['"]?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s'",;&}})\]]+)""",
    re.IGNORECASE | re.VERBOSE,
)
_FORMS = [
    (re.compile(r"((?:auth(?:orization)?|cookie)['\"]?\s*[=:]\s*['\"]?)[^'\",}\])]+", re.IGNORECASE), rf"\1{_HIDDEN}"),
    (re.compile(r"\b(bearer|basic)\s+[^\s'\",}]+", re.IGNORECASE), rf"\1 {_HIDDEN}"),
    (re.compile(r"(?<=://)[^/@\s]+(?=@)"), _HIDDEN),  # a login
    (re.compile(r"(://[^\s?#'\"]*\?)[^\s#'\"]+"), rf"\1{_HIDDEN}"),  # a query
    (re.compile(r"(://[^/\s]*(?:hooks|webhook|discord)[^/\s]*)/[^\s'\"]+", re.IGNORECASE), rf"\1/{_HIDDEN}"),
    (re.compile(r"\b(?:hf_|sk-|gh[pousr]_|github_pat_|glpat-|AKIA|xox[abp]-|eyJ)[\w.-]{8,}"), _HIDDEN),
    (re.compile(r"(?<![\w/.-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{32,}(?![\w/.-])"), _HIDDEN),  # what is no word
]


def command_without_secrets(arguments: Sequence[str]) -> str:
    """A command line as a shell would take it.

    What follows a name that tells of a secret, logins and queries of URLs, and what has the form of a token are hidden,
    and so are code given with ``-c`` and the user's name in paths.
    """
    own, rest = _split(arguments[1:])
    shown, hide = [Path(arguments[0]).name, *map(_without_secrets, own)], False
    for argument in rest:
        if hide:
            shown.append(_hidden(argument))
            hide = False
            continue
        name, equals, value = argument.partition("=")
        if _OPTION.fullmatch(name):
            argument = f"{name}={_hidden(value)}" if equals else name
            hide = not equals and name.startswith("-")
        shown.append(_without_secrets(argument))
    return shlex.join(shown)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The interpreter's own options, with ``...`` for code, and what is the program's."""
    own: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        argument = rest.pop(0)
        option = _OWN.fullmatch(argument)
        letter, attached = option.groups() if option else (None, "")
        value = [rest.pop(0)] if option and not attached and rest else []
        own += ["-c", "..."] if letter == "c" else [argument, *value]
        if letter in ("c", "m"):
            break
    return own, rest


def _without_secrets(text: str) -> str:
    for pattern, kept in _FORMS:
        text = pattern.sub(kept, text)
    text = _ENTRY.sub(lambda found: found[1] + _hidden(found[2]), text)
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    text = re.sub(rf"(?<![\w/.~-]){re.escape(home)}(?=/|$)", "~", text) if len(home) > 1 else text
    return re.sub(rf"/{re.escape(_user())}(?=/|$)", f"/{_HIDDEN}", text)


def _hidden(value: str) -> str:
    return value if _HARMLESS.fullmatch(value) else _HIDDEN


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # of a container that does not know its own user
        return _HIDDEN
