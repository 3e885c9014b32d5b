"""What PyTorch calls at the end of ``import torch``: it leaves hooks for torchrl's import, and nothing else."""

from __future__ import annotations

from types import ModuleType

_registered = False


def register() -> None:
    """Have torchrl's modules find logger plugins once they are imported, or now if they are; never raises."""
    global _registered
    if _registered:
        return
    _registered = True
    try:
        from wrapt import register_post_import_hook

        # In the order of their import: get_logger must be wrapped before it is imported from its module.
        for name in ("torchrl.record.loggers.utils", "torchrl.record", "torchrl.trainers.algorithms.configs.logging"):
            register_post_import_hook(_bridge, name)
    except Exception as error:  # noqa: BLE001 - whatever it is, `import torch` must go on
        _warn("torchrl will not find logger plugins by itself", error)


def _bridge(module: ModuleType) -> None:
    try:
        from torchrl_trackio.bridge import bridge

        bridge(module)
    except Exception as error:  # noqa: BLE001 - whatever it is, `import torchrl` must go on
        _warn(f"{module.__name__} will not find logger plugins by itself", error)


def _warn(what: str, error: Exception) -> None:
    from torchrl_trackio.errors import warn_in_background  # does not raise under `-W error` either

    warn_in_background(f"{what}: {type(error).__name__}: {error}")
