"""The bridge: makes a torchrl that does not read the entry-point group itself find the loggers in it."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, make_dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torchrl_trackio.discovery import GROUP, describe_offers, load_logger, offered_loggers

if TYPE_CHECKING:
    from torchrl.record.loggers.common import Logger


def bridge(module: ModuleType) -> None:
    """Make a module of torchrl that was just imported find the plugins."""
    if not torchrl_reads_the_group():
        _BRIDGES[module.__name__](module)


def torchrl_reads_the_group() -> bool:
    """Whether torchrl needs no bridge any more: the module of its ``get_logger`` names the group."""
    try:
        return f'"{GROUP}"' in inspect.getsource(sys.modules["torchrl.record.loggers.utils"]).replace("'", '"')
    except (KeyError, OSError):  # not imported; no source installed
        return False


def _bridge_get_logger(utils: Any) -> None:
    package, original = sys.modules.get("torchrl.record.loggers"), utils.get_logger
    utils.get_logger = _with_plugins(original)
    if package is not None and vars(package).get("get_logger") is original:
        vars(package)["get_logger"] = utils.get_logger


def _with_plugins(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)
    has_backends = "service_backend" in signature.parameters  # torchrl >= 0.14

    @functools.wraps(original)  # a function, unlike wrapt's proxy of one, can be pickled
    def get_logger(*args: Any, **kwargs: Any) -> Any:
        name, offers = args[0] if args else kwargs.get("logger_type"), offered_loggers()
        if not isinstance(name, str) or name not in offers:
            return _get_torchrls_own(original, offers, args, kwargs)
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        _refuse_misplaced(name, call.kwargs.keys() - signature.parameters.keys())
        if has_backends and call.kwargs.get("use_ray_service"):  # torchrl's own warning would blame this module
            text = "use_ray_service is deprecated and will be removed in v0.16. Use service_backend='ray' instead."
            warnings.warn(text, FutureWarning, stacklevel=2)
        service = _service_options(call.kwargs) if has_backends else _ray_options(call.kwargs)
        return _build(name, call.args[2], call.kwargs, service)

    return get_logger


def _refuse_misplaced(name: str, extra: Iterable[str]) -> None:
    """Torchrl ignores what it does not know; a run in the wrong project is no way to learn of a typo."""
    known = ("state_dict", "service_backend", "service_backend_options", "use_ray_service", "ray_actor_options")
    if misplaced := sorted(key for key in extra if not key.endswith("_kwargs") and key not in known):
        raise TypeError(
            f"get_logger takes no {', '.join(misplaced)}: pass the logger's options in {name}_kwargs={{...}}"
        )


def _get_torchrls_own(original: Callable[..., Any], offers: Any, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        return original(*args, **kwargs)
    except NotImplementedError as error:
        if str(error).startswith("Unsupported logger_type"):
            error.args = (f"{error} by torchrl itself; {describe_offers(offers)}",)
        raise


def _service_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """As torchrl's own ``get_logger`` hands them on."""
    options, ray_options = dict(given["service_backend_options"] or {}), given.get("ray_actor_options")
    if ray_options is not None:
        if options:
            raise ValueError("ray_actor_options and service_backend_options are mutually exclusive.")
        options = {"actor_options": ray_options}
    backend = "ray" if given.get("use_ray_service") else given["service_backend"]
    return {"service_backend": backend, "service_backend_options": options}


def _ray_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same before torchrl 0.14: a class refuses, instead of ignoring, the ones it is too old for."""
    names = ("service_backend", "service_backend_options", "use_ray_service", "ray_actor_options")
    return {name: given[name] for name in names if given.get(name) and given[name] != "direct"}


def _build(name: str, exp_name: str, given: Mapping[str, Any], service: Mapping[str, Any]) -> Logger:
    logger_class, saved, options = load_logger(name), given.get("state_dict"), given.get(f"{name}_kwargs")
    if options is None and name == "trackio":
        options = _from_wandb(given.get("wandb_kwargs") or {})
    options = {"exp_name": exp_name, **(options or {}), **service}
    if saved is None:
        return logger_class(**options)
    options["exp_name"] = saved["exp_name"]
    if name == "trackio":
        options.pop("resume", None)
        return logger_class(**{**options, "state_dict": saved})
    logger = logger_class(**options)
    logger.load_state_dict(saved)
    return logger


def _from_wandb(wandb: Mapping[str, Any]) -> dict[str, Any]:
    """What torchrl's training scripts, which pass ``wandb_kwargs`` only, mean for Trackio."""
    given = {key: wandb[key] for key in ("project", "group", "config", "resume", "id") if key in wandb}
    options = {key: value for key, value in given.items() if value is not None}
    run, resume = options.pop("id", None), options.pop("resume", False)
    if run is not None:  # W&B continues the run of that id if there is one, and starts it otherwise
        options.update(exp_name=run, resume="allow")
    if resume is not False:
        options["resume"] = "allow" if resume in (True, "auto") else resume
    return options


def _bridge_record(record: Any) -> None:
    for module in (record, record.loggers):
        _resolve_trackio_logger(module)


def _resolve_trackio_logger(module: Any) -> None:
    """Have ``module.TrackioLogger`` looked up among the plugins whenever it is asked for."""
    builtin, chained = vars(module).pop("TrackioLogger", None), vars(module).get("__getattr__")

    def __getattr__(name: str) -> Any:  # noqa: N807 - PEP 562
        if name == "TrackioLogger" and "trackio" in offered_loggers():
            return load_logger("trackio")
        if name == "TrackioLogger" and builtin is not None:
            return builtin
        if chained is not None:
            return chained(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)

    module.__getattr__ = __getattr__


def _bridge_hydra(configs: Any) -> None:
    builtin = getattr(configs, "_make_trackio_logger", None)
    configs._make_trackio_logger = _preferring_plugin(builtin)
    if builtin is None:  # torchrl < 0.13
        _add_trackio_config(configs)


def _preferring_plugin(builtin: Callable[..., Any] | None) -> Callable[..., Any]:
    def _make_trackio_logger(
        exp_name: str, project: str = "torchrl", video_fps: int = 32, trackio_kwargs: Any = None, **service: Any
    ) -> Any:
        options = {"exp_name": exp_name, "project": project, "video_fps": video_fps, **service}
        if builtin is not None and "trackio" not in offered_loggers():
            return builtin(**options, trackio_kwargs=trackio_kwargs)
        return load_logger("trackio")(**{**options, **(trackio_kwargs or {})})

    return _make_trackio_logger


def _add_trackio_config(configs: Any) -> None:
    """Give a torchrl without the node ``logger: trackio`` the one of later versions."""
    from hydra.core.config_store import ConfigStore

    node = make_dataclass(
        "TrackioLoggerConfig",
        [
            ("exp_name", str),
            ("project", str, "torchrl"),
            ("video_fps", int, 32),
            ("trackio_kwargs", dict[str, Any], field(default_factory=dict)),
            ("_target_", str, f"{configs.__name__}._make_trackio_logger"),
        ],
        bases=(configs.LoggerConfig,),
        namespace={"__module__": configs.__name__, "__post_init__": lambda _: None},
    )
    configs.TrackioLoggerConfig = vars(sys.modules[configs.__package__])["TrackioLoggerConfig"] = node
    ConfigStore.instance().store(group="logger", name="trackio", node=node)


_BRIDGES: dict[str, Callable[[Any], None]] = {
    "torchrl.record.loggers.utils": _bridge_get_logger,
    "torchrl.record": _bridge_record,
    "torchrl.trainers.algorithms.configs.logging": _bridge_hydra,
}
