"""Docstrings as the site's Markdown: their roles name what is on the page, and a one-example section is a section."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Rewrites what Griffe does not read: ``:meth:`name``` and ``Example:``."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called for each object that was found."""
        if obj.docstring:
            text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", obj.docstring.value)
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
