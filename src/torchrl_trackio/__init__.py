"""The Trackio logger for torchrl: what is accepted is stored, and logging costs the training loop next to nothing."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from torchrl_trackio._autoload import register

if TYPE_CHECKING:
    from torchrl_trackio.errors import TrackioWarning
    from torchrl_trackio.experiment import TrackioRun
    from torchrl_trackio.logger import TrackioLogger

__version__ = "0.1.0"
__all__ = ["TrackioLogger", "TrackioRun", "TrackioWarning", "__version__"]

_HOMES = {"TrackioLogger": "logger", "TrackioRun": "experiment", "TrackioWarning": "errors"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: importing the package imports neither torch nor trackio."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__


register()  # PyTorch has called it already, unless its autoload is switched off
