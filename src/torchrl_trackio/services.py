"""torchrl's logger services (``service_backend="process"`` or ``"ray"``), made to lose nothing when they end."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torchrl.record.loggers.common import Logger

from torchrl_trackio.errors import warn

try:
    from torchrl.record.loggers.process import ProcessLogger
    from torchrl.record.loggers.ray import RayLogger
except ImportError:  # torchrl < 0.14
    ProcessLogger = RayLogger = object

if TYPE_CHECKING:
    from typing_extensions import Self


class ServedLogger(Logger):  # type: ignore[misc]
    """A logger whose services are ended patiently, and by the interpreter's end at the latest."""

    experiment: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if ProcessLogger is not object:
            cls._ServiceClass = staticmethod(functools.partial(_serve, cls._ServiceClass))

    def start(self) -> Self:
        """Return this logger, which has started already.

        Raises:
            RuntimeError: after :meth:`shutdown`.
        """
        if not self.is_alive:
            raise RuntimeError(
                "A shut down logger cannot be restarted: make a new one, with resume='must' for the same run."
            )
        return self

    def client(self) -> Self:
        """Return this logger: without a service it is its own client."""
        return self

    @property
    def is_alive(self) -> bool:
        """Whether the logger still takes values."""
        return not self.experiment.finished

    @property
    def service_backend(self) -> str:
        """``"direct"``: torchrl's services have owners of their own."""
        return "direct"


class _Owner:
    """What starts a service, logs to it, and ends it.

    torchrl waits 5 s for each of the service's flush, shutdown and exit, then kills it with all that is not stored yet.
    And where nobody ends it, a process service keeps the interpreter from ending.
    """

    def shutdown(self, timeout: float | None = None) -> None:
        """End the service.

        Args:
            timeout: the longest to wait for each of its flush, its shutdown and its exit, in seconds, before it is
                killed; ``None`` for as long as it takes to store everything.
        """
        atexit.unregister(self.shutdown)
        super().shutdown(timeout)  # type: ignore[misc]

    def close(self, timeout: float | None = None) -> None:
        """Alias for :meth:`shutdown`."""
        self.shutdown(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()


class _ProcessOwner(_Owner, ProcessLogger):  # type: ignore[misc]
    pass


class _RayOwner(_Owner, RayLogger):  # type: ignore[misc]
    _closed: bool

    def shutdown(self, timeout: float | None = None) -> None:
        if self._closed or self._ray.is_initialized():
            super().shutdown(timeout)
        else:  # asked for anything now, Ray would start anew
            self._closed = True
            warn("Ray was shut down before the logger, which lost what it had not stored: call its shutdown() first")


_OWNERS = {"process": _ProcessOwner, "ray": _RayOwner}


def _serve(start: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    owner = start(*args, **kwargs)
    owner.__class__ = _OWNERS[owner.service_backend]  # torchrl's factory names its classes itself
    atexit.register(owner.shutdown)
    return owner
