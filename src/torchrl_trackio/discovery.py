"""The entry-point group ``torchrl.loggers``: the loggers that installed packages offer to torchrl.

A package offers a logger to torchrl by an entry point whose name is the logger's, and whose value is a
``torchrl.record.loggers.Logger`` subclass::

    [project.entry-points."torchrl.loggers"]
    mine = "my_package:MyLogger"

Then ``get_logger("mine", name, exp_name, mine_kwargs={...})`` builds ``MyLogger(exp_name=exp_name, ...)``. Of two
distributions that offer one name, the one whose own name comes first in the alphabet is taken. The environment
variable ``TORCHRL_LOGGER_PLUGINS`` lists the names that may be used, separated by commas: unset means all, empty none.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from torchrl_trackio.errors import warn

if TYPE_CHECKING:
    from torchrl.record.loggers.common import Logger

GROUP = "torchrl.loggers"
SWITCH = "TORCHRL_LOGGER_PLUGINS"


@dataclass(frozen=True, order=True)
class LoggerPlugin:
    """A logger that an installed distribution offers to torchrl.

    Args:
        name: what ``get_logger`` is asked for.
        value: where its class is, as ``module:attribute``.
        distribution: name of the distribution that offers it.
        version: version of that distribution.
    """

    name: str
    value: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.name!r} ({self.distribution} {self.version})"


def available_loggers() -> dict[str, LoggerPlugin]:
    """The logger plugins that are installed and not switched off, by name; imports none of them."""
    return {name: _choose(offers) for name, offers in offered_loggers().items()}


def load_logger(name: str) -> type[Logger]:
    """Import the logger class that is offered under a name.

    Raises:
        ValueError: if no plugin of that name is installed, or it is switched off.
        ImportError: if it cannot be imported.
        TypeError: if it is not a subclass of torchrl's ``Logger``.
    """
    offers = offered_loggers()
    if name not in offers:
        raise ValueError(f"no logger plugin is named {name!r}: {describe_offers(offers)}")
    plugin = _choose(offers[name])
    what = f"the logger plugin {plugin}, entry point {plugin.value!r} of the group {GROUP!r},"
    how = f"To do without it, set {SWITCH}={','.join(sorted(offers.keys() - {name}))!r} in the environment."
    try:
        from torchrl.record.loggers.common import Logger

        loaded = EntryPoint(plugin.name, plugin.value, GROUP).load()
    except Exception as error:
        raise ImportError(f"{what} cannot be imported: {type(error).__name__}: {error}. {how}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, Logger)):
        raise TypeError(f"{what} must be a subclass of torchrl.record.loggers.Logger, got {loaded!r}. {how}")
    return loaded


def offered_loggers() -> dict[str, list[LoggerPlugin]]:
    """What is offered and not switched off, by name; the offer to take comes first."""
    switch = os.environ.get(SWITCH)
    allowed = None if switch is None else {name.strip() for name in switch.split(",")}
    return {name: found for name, found in installed_loggers().items() if allowed is None or name in allowed}


def installed_loggers() -> dict[str, list[LoggerPlugin]]:
    """The same, switched off or not."""
    offers: dict[str, list[LoggerPlugin]] = {}
    for entry in entry_points(group=GROUP):
        # Both are None in what a half-finished uninstall leaves behind.
        distribution, version = (getattr(entry.dist, key, None) or "?" for key in ("name", "version"))
        offers.setdefault(entry.name, []).append(LoggerPlugin(entry.name, entry.value, distribution, version))
    for found in offers.values():
        found.sort(key=lambda plugin: (re.sub(r"[-_.]+", "-", plugin.distribution).lower(), plugin))
    return dict(sorted(offers.items()))


def _choose(offers: list[LoggerPlugin]) -> LoggerPlugin:
    distributions = tuple(dict.fromkeys(f"{plugin.distribution} {plugin.version}" for plugin in offers))
    if len(distributions) > 1:
        _warn_of_rivals(offers[0].name, distributions)
    return offers[0]


@functools.cache
def _warn_of_rivals(name: str, distributions: tuple[str, ...]) -> None:
    warn(
        f"the logger plugin {name!r} is offered by {' and by '.join(distributions)}: that of {distributions[0]}, first "
        "in the alphabet, is taken. To choose another, uninstall it."
    )


def describe_offers(offers: Mapping[str, list[LoggerPlugin]]) -> str:
    """What is installed, and the switch if it is set, for an error's text."""
    switch = f"; {SWITCH}={os.environ[SWITCH]!r} allows no others" if SWITCH in os.environ else ""
    return f"the logger plugins are {', '.join(str(found[0]) for found in offers.values()) or 'none'}{switch}"
