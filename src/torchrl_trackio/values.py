"""Values of torch, numpy and Python turned into what Trackio can store and draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import trackio
from tensordict import NonTensorData, NonTensorStack, TensorDictBase
from trackio.media import TrackioMedia

from torchrl_trackio.arrays import describe, is_meta, is_plain, numbers, size_of
from torchrl_trackio.errors import TrackioWarning
from torchrl_trackio.figures import to_html
from torchrl_trackio.histograms import PendingHistogram
from torchrl_trackio.leaves import leaves_of
from torchrl_trackio.names import check_text, metric_name

_INT64 = range(-(2**63), 2**63)
STORABLE_INT = range(-(2**63), 2**64)  # what Trackio's JSON writer takes
_TRACKIO_TYPES = (TrackioMedia, trackio.Histogram, trackio.Markdown, trackio.Table, trackio.Trace)


def to_step(step: Any) -> int:
    """A step as Trackio stores it.

    Args:
        step: any integer-like number: ``int``, numpy integer, 0-d tensor, integral float.

    Raises:
        TypeError: if it is no integral number.
        ValueError: if it lies outside int64.
    """
    if type(step) is not int:
        number = step
        if isinstance(step, (torch.Tensor, np.ndarray, np.generic)) and size_of(step) == 1 and not is_meta(step):
            number = step.item()
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(f"step must be an integer (int, numpy integer, 0-d tensor, integral float), got {step!r}")
        step = int(number)
    if step not in _INT64:
        raise ValueError(f"step must fit in a signed 64-bit integer, got {describe(step)}")
    return step  # type: ignore[no-any-return]


def to_scalar(value: Any) -> int | float:
    """One number.

    Args:
        value: Python or numpy number or bool, or a tensor or array with one element, of any real dtype and any device.
            NaN and infinities are numbers. A bool becomes 0 or 1.

    Raises:
        TypeError: if it is not a real number.
        ValueError: if it is an integer that Trackio cannot store (below -2**63 or from 2**64 on).
    """
    if type(value) is float:
        return value
    if isinstance(value, (torch.Tensor, np.ndarray)):
        if size_of(value) != 1:
            raise TypeError(
                f"a scalar must have one element, got {describe(value)}: reduce it (.mean(), .sum()), "
                "or log it with log_histogram or log_metrics"
            )
        value = _item(value)
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):
        number = int(value)  # one of a subclass is not looked up in a range, but for as long as that takes
        if number not in STORABLE_INT:
            raise ValueError(
                f"Trackio stores integers from -2**63 to 2**64 - 1, got {describe(value)}: log it as float"
            )
        return number
    if isinstance(value, float):
        return float(value)
    if hasattr(value, "__float__") and not isinstance(value, (complex, str, bytes)):
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError(f"a scalar must fit in a float, got {describe(value)}: {error}") from None
    raise TypeError(f"a scalar must be a real number or a tensor or array with one element, got {describe(value)}")


def to_metric(value: Any) -> Any:
    """What is stored for one value of ``log_metrics``.

    A number stays a number, several numbers become a :class:`PendingHistogram` (Trackio draws no lists), text becomes
    Markdown; ``None`` and Trackio's own objects stay what they are.

    Raises:
        TypeError: if the value is none of these.
        ValueError: if it is an integer that Trackio cannot store.
    """
    if type(value) is float:
        return value
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return to_scalar(value) if size_of(value) == 1 else PendingHistogram(value)
    if isinstance(value, str):
        check_text("text", value)
        return trackio.Markdown(str(value))  # a bare string is shown nowhere
    if value is None or isinstance(value, (PendingHistogram, *_TRACKIO_TYPES)):
        return value
    if trackio.Html.is_loggable_figure(value):
        return to_html(value)  # drawn at once: a figure may be changed after the call
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, trackio.Trace) for item in value):
            return list(value)
        array = numbers(value)
        return to_scalar(array) if array.size == 1 else PendingHistogram(array)
    if isinstance(value, (dict, set)):
        raise TypeError(f"a metric must be a number, several numbers, text or a Trackio object, got {describe(value)}")
    try:
        return to_scalar(value)
    except TypeError:
        if hasattr(value, "__array__"):
            return to_metric(np.asarray(value))
        raise TypeError(
            f"a metric must be a number, several numbers (tensor, array, list), text or a Trackio object, "
            f"got {describe(value)}"
        ) from None


def flatten_metrics(metrics: Mapping[Any, Any] | TensorDictBase, keys_sep: str = "/") -> dict[Any, Any]:
    """Metrics by their full names, which ``keys_sep`` joins; tensors on the CPU, those with one element as numbers.

    Raises:
        TypeError: if ``metrics`` is neither a mapping nor a tensordict.
    """
    if not isinstance(metrics, (Mapping, TensorDictBase)):
        raise TypeError(f"metrics must be a mapping or a TensorDict, got {describe(metrics)}")
    flat: dict[Any, Any] = {}
    devices: set[torch.device] = set()
    for keys, value in _flattened(metrics, ()):
        name = keys[0] if len(keys) == 1 else keys_sep.join(_joined(key, keys_sep) for key in keys)
        if isinstance(value, torch.Tensor) and value.is_cuda:
            devices.add(value.device)
            value = value.detach().to("cpu", non_blocking=True)  # all copies are queued before one is waited for
        flat[keys if name in flat else name] = value  # the second of one name is refused, when it is joined, too
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
    return {name: _number_in(value) if isinstance(value, torch.Tensor) else value for name, value in flat.items()}


def to_metrics(flat: Mapping[Any, Any], keys_sep: str = "/") -> tuple[dict[str, Any], list[Exception]]:
    """What Trackio stores for each metric, by the name that it stores; and an error for each that it cannot store."""
    stored: dict[str, Any] = {}
    errors: list[Exception] = []
    for key, value in flat.items():
        try:
            name = metric_name(key, keys_sep)
            if name in stored:
                raise ValueError(f"two metrics of one call would both be stored as {name!r}: rename one of them")
            stored[name] = to_metric(value)
        except Exception as error:  # noqa: BLE001 - an object's own __float__ or __array__ can raise anything
            kind = next((kind for kind in (ValueError, TrackioWarning) if isinstance(error, kind)), TypeError)
            errors.append(kind(f"{key!r}: {error}"))
    return stored, errors


def _number_in(tensor: torch.Tensor) -> Any:
    """The real number in a tensor with one element; any other tensor."""
    if tensor.numel() != 1 or tensor.is_meta:
        return tensor
    number = tensor.item()
    return tensor if type(number) is complex else number


def _flattened(metrics: Any, prefix: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(metrics, TensorDictBase):
        for path, value in leaves_of(metrics, metrics.batch_dims):
            keys = (*prefix, *path)
            if type(value) is torch.Tensor:
                yield keys, value
            else:
                yield keys, _in_a_row(value) if isinstance(value, list) else _data(value)
        return
    for key, value in metrics.items():
        keys = (*prefix, key)
        if type(value) in (float, int, torch.Tensor):  # nearly always, and much faster than the questions below
            yield keys, value
        elif isinstance(value, (Mapping, TensorDictBase)) and not isinstance(value, NonTensorStack):
            yield from _flattened(value, keys)
        else:
            yield keys, _data(value)


def _data(value: Any) -> Any:
    if isinstance(value, NonTensorData):
        return value.data
    return value.tolist() if isinstance(value, NonTensorStack) else value


def _in_a_row(values: list[Any]) -> Any:
    """The numbers of tensors of different shapes as one tensor."""
    found = [value for value in values if value is not None]
    if not found or not all(isinstance(value, torch.Tensor) and is_plain(value) for value in found):
        return values
    return torch.cat([value.detach().cpu().reshape(-1) for value in found])


def _joined(key: Any, keys_sep: str) -> str:
    return keys_sep.join(map(str, key)) if isinstance(key, tuple) else str(key)


def _item(value: torch.Tensor | np.ndarray) -> Any:
    if isinstance(value, torch.Tensor):
        if value.is_complex() or is_meta(value):
            raise TypeError(f"a scalar must be a real number, got {describe(value)}")
        return value.detach().item()
    if value.dtype.kind not in "biuf":
        raise TypeError(f"a scalar must be a real number, got {describe(value)}")
    return value.item()
