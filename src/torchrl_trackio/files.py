"""What images, sounds and figures have in common: captions, and files that the user has."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any, TypeVar

from trackio.media import TrackioMedia

from torchrl_trackio.arrays import describe
from torchrl_trackio.names import check_text

Media = TypeVar("Media", bound=TrackioMedia)


def check_caption(caption: Any) -> None:
    """Raise a ``TypeError`` or ``ValueError`` for what is neither text nor ``None``."""
    if caption is not None:
        if not isinstance(caption, str):
            raise TypeError(f"a caption must be a string, got {describe(caption)}")
        check_text("a caption", caption)


def captioned(media: Media, caption: str | None) -> Media:
    """The object of Trackio; with another caption, a copy."""
    if caption is not None:
        media = copy.copy(media)
        media.caption = caption
    return media


def existing_file(path: str | os.PathLike[Any], what: str) -> Path:
    """The path of a file that is there.

    Args:
        path: the path.
        what: the file's content, for the error.

    Raises:
        ValueError: if there is no such file.
    """
    name = os.fsdecode(path)
    try:
        if (found := Path(name)).is_file():
            return found
        why = "which is no file" if found.exists() else "where there is nothing"
    except (OSError, ValueError) as error:  # too long for the file system, or with a NUL in it
        why = str(error)
    raise ValueError(f"{what} was to be read from {name!r}, {why}: pass the path of an existing file")
