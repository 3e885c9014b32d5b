"""Values of torch, numpy and Python turned into what Trackio can store and draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import trackio
from tensordict import NonTensorData, NonTensorStack, TensorDictBase
from trackio.media import TrackioMedia

from torchrl_trackio.errors import TrackioWarning
from torchrl_trackio.names import check_text, metric_name

Bins = int | str | Sequence[float]

_INT64 = range(-(2**63), 2**63)
STORABLE_INT = range(-(2**63), 2**64)  # what Trackio's JSON writer takes
_MOST_BINS = 512  # that Trackio keeps
_WIDEST = 8e307  # numpy's edges overflow where the values lie further apart than the largest float
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
        if isinstance(step, (torch.Tensor, np.ndarray, np.generic)) and size_of(step) == 1 and not _is_meta(step):
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


class PendingHistogram:
    """A histogram that is still to be counted: a private copy of its values, and its bins.

    Counting a million values takes milliseconds and copying them takes a tenth of that, so the training thread copies
    and the background counts.

    Args:
        data: numbers of any shape, real dtype and device, as tensor, array or sequence. NaN and infinities do not
            count.
        bins: number of equally wide bins, 1 to 512 (the most that Trackio keeps); or the name of one of
            :func:`numpy.histogram_bin_edges`' estimators; or at least two rising edges.

    Raises:
        TypeError: if ``data`` are not real numbers or ``bins`` is of another type.
        ValueError: if ``bins`` is out of range.
    """

    def __init__(self, data: Any, bins: Bins | None = 64) -> None:
        self.bins = _checked_bins(bins)
        self.data = _numbers(data)

    @property
    def nbytes(self) -> int:
        """Bytes that the copy holds."""
        return self.data.nbytes

    def count(self) -> tuple[np.ndarray, np.ndarray]:
        """Counts ``(bins,)`` and edges ``(bins + 1,)``; both empty where no value is finite."""
        data = self.data.astype(np.float64)
        data = data[np.isfinite(data)].clip(-_WIDEST, _WIDEST)
        if not data.size:
            return np.array([]), np.array([])
        if isinstance(self.bins, np.ndarray):
            return np.histogram(data, self.bins)
        low, high = float(data.min()), float(data.max())
        margin = 1e-12 * max(-low, high) + 1e-300
        if high - low < margin:  # too close together for floats between them to be the edges
            margin = margin if low < high else max(margin, 0.5)  # numpy's own where all are equal
            low, high = low - margin, high + margin
        with np.errstate(all="ignore"):
            return np.histogram(data, _number_of_bins(data, self.bins), (low, high))


def to_metric(value: Any) -> Any:
    """What is stored for one value of ``log_metrics``.

    A number stays a number, several numbers become a :class:`PendingHistogram` (Trackio draws no lists), text, ``None``
    and Trackio's own objects stay what they are.

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
        return value
    if value is None or isinstance(value, (PendingHistogram, *_TRACKIO_TYPES)):
        return value
    if trackio.Html.is_loggable_figure(value):
        return trackio.Html(value)  # drawn at once: a figure may be changed after the call
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, trackio.Trace) for item in value):
            return list(value)
        array = _numbers(value)
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
    """Metrics by their full names: nested mappings and tensordicts are joined with ``keys_sep``, CUDA tensors copied.

    Raises:
        TypeError: if ``metrics`` is neither a mapping nor a tensordict.
    """
    if not isinstance(metrics, (Mapping, TensorDictBase)):
        raise TypeError(f"metrics must be a mapping or a TensorDict, got {describe(metrics)}")
    flat: dict[Any, Any] = {}
    for keys, value in _flattened(metrics, ()):
        name = keys[0] if len(keys) == 1 else keys_sep.join(_joined(key, keys_sep) for key in keys)
        flat[keys if name in flat else name] = value  # the second of one name is refused, when it is joined, too
    devices = {value.device for value in flat.values() if isinstance(value, torch.Tensor) and value.is_cuda}
    if devices:  # all copies are queued first, then each device is waited for once
        flat = {k: v.detach().to("cpu", non_blocking=True) if _on_cuda(v) else v for k, v in flat.items()}
        for device in devices:
            torch.cuda.current_stream(device).synchronize()
    return flat


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


def to_python(value: Any) -> Any:
    """What torchrl's own ``log_metrics`` returns for a value: tensors as numbers or lists, the rest as it is."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return value.item() if value.numel() == 1 else value.tolist()
    return value


def _numbers(data: Any) -> np.ndarray:
    """A private, flat copy of real numbers."""
    if isinstance(data, torch.Tensor):
        if data.is_complex() or not is_plain(data):
            raise TypeError(f"a histogram takes real numbers, got {describe(data)}")
        data = data.detach()
        if data.dtype in (torch.float64, torch.float32, torch.float16) or not data.is_floating_point():
            return np.asarray(data.to("cpu", copy=True)).reshape(-1)
        return np.asarray(data.to("cpu", torch.float32)).reshape(-1)  # bfloat16 and float8 have no numpy form
    if isinstance(data, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in data):
        data = [to_python(item) for item in data]
    try:
        array = np.array(data)
    except (TypeError, ValueError) as error:
        raise TypeError(f"expected numbers (tensor, array or sequence), got {describe(data)}: {error}") from None
    if array.dtype.kind not in "biuf":
        if not array.size:
            return np.array([])
        raise TypeError(f"expected real numbers (tensor, array or sequence), got {describe(data)} of {array.dtype}")
    return array.reshape(-1)


def _checked_bins(bins: Any) -> Any:
    if bins is None:
        return 64
    if isinstance(bins, str):
        try:
            np.histogram_bin_edges([0.0], bins=bins)
        except ValueError as error:
            raise ValueError(f"bins: {error}; numpy.histogram_bin_edges lists the estimators") from None
        return bins
    if isinstance(bins, (int, np.integer)) and not isinstance(bins, bool):
        if not 1 <= bins <= _MOST_BINS:
            raise ValueError(f"bins must be from 1 to {_MOST_BINS}, the most that Trackio keeps, got {bins}")
        return int(bins)
    if isinstance(bins, (Sequence, np.ndarray, torch.Tensor)):
        edges = _numbers(bins)
        if not 2 <= len(edges) <= _MOST_BINS + 1 or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
            raise ValueError(f"bins must be 2 to 513 rising, finite edges, got {describe(bins)}")
        return edges
    raise TypeError(f"bins must be an integer, an estimator's name or a sequence of edges, got {describe(bins)}")


def _number_of_bins(data: np.ndarray, bins: int | str) -> int:
    """Of an estimator, at most what Trackio keeps: an outlier far from the rest makes it ask for billions."""
    if isinstance(bins, int):
        return bins
    try:
        return min(len(np.histogram_bin_edges(data, bins)) - 1, _MOST_BINS)
    except (ValueError, MemoryError):
        return _MOST_BINS


def _flattened(metrics: Any, prefix: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for key, value in metrics.items():
        keys = (*prefix, key)
        if isinstance(value, NonTensorData):
            yield keys, value.data
        elif isinstance(value, NonTensorStack):
            yield keys, value.tolist()
        elif isinstance(value, (Mapping, TensorDictBase)):
            yield from _flattened(value, keys)
        else:
            yield keys, value


def _joined(key: Any, keys_sep: str) -> str:
    return keys_sep.join(map(str, key)) if isinstance(key, tuple) else str(key)


def _on_cuda(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda


def _item(value: torch.Tensor | np.ndarray) -> Any:
    if isinstance(value, torch.Tensor):
        if value.is_complex() or _is_meta(value):
            raise TypeError(f"a scalar must be a real number, got {describe(value)}")
        return value.detach().item()
    if value.dtype.kind not in "biuf":
        raise TypeError(f"a scalar must be a real number, got {describe(value)}")
    return value.item()


def _is_meta(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_meta


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether its elements can be read in order: it is no meta, sparse, nested or quantized tensor."""
    strange = tensor.is_meta or tensor.is_nested or tensor.is_quantized
    return tensor.layout == torch.strided and not strange


def size_of(value: torch.Tensor | np.ndarray | np.generic) -> int:
    """How many elements it has."""
    return value.numel() if isinstance(value, torch.Tensor) else value.size


def describe(value: Any) -> str:
    """The value for an error's text: what it is, its type, its shape."""
    try:
        if isinstance(value, (torch.Tensor, np.ndarray)) and not getattr(value, "is_nested", False):
            where = ""
            if isinstance(value, torch.Tensor) and not is_plain(value):
                where = f", on device {value.device} with layout {value.layout}"
            return f"{type(value).__name__} of shape {tuple(value.shape)} and dtype {value.dtype}{where}"
        text = repr(value)
    except Exception:  # noqa: BLE001 - an object's own code; an int of over 4300 digits, too, has no repr
        text = "something without a repr"
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"
