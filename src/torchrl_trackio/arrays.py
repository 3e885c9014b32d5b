"""What tensors and arrays of any kind have in common, as far as logging needs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def size_of(value: torch.Tensor | np.ndarray | np.generic) -> int:
    """How many elements it has."""
    return value.numel() if isinstance(value, torch.Tensor) else value.size


def is_meta(value: Any) -> bool:
    """Whether it is a tensor without values."""
    return isinstance(value, torch.Tensor) and value.is_meta


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether its elements can be read in order: it is no meta, sparse, nested or quantized tensor."""
    strange = tensor.is_meta or tensor.is_nested or tensor.is_quantized
    return tensor.layout == torch.strided and not strange


def to_python(value: Any) -> Any:
    """What torchrl's own ``log_metrics`` returns for a value: tensors as numbers or lists, the rest as it is."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return value.item() if value.numel() == 1 else value.tolist()
    return value


def rounded_numbers(data: torch.Tensor | np.ndarray) -> Any:
    """Python numbers, nested as the dimensions are, with the digits that the dtype holds: 0.1 of float32 is 0.1.

    Each is the shortest that its dtype reads back as the same number.
    """
    if isinstance(data, torch.Tensor):
        data = data.detach().cpu().resolve_neg().resolve_conj()
        if data.is_floating_point() and data.dtype not in (torch.float64, torch.float32, torch.float16):
            return _rounded(data).tolist()
        data = data.numpy()
    if data.dtype.kind == "f" and data.dtype.itemsize < 8:
        data = data.astype(str).astype(float)
    return data.tolist()


def _rounded(tensor: torch.Tensor) -> torch.Tensor:
    """The same of bfloat16 and float8, which have no numpy form: at most 4 digits."""
    exact = tensor.double()
    rounded = exact
    for digits in (4, 3, 2, 1):
        texts = [f"{number:.{digits}g}" for number in exact.flatten().tolist()]
        shorter = torch.tensor(list(map(float, texts)), dtype=torch.float64).reshape(exact.shape)
        rounded = torch.where(shorter.to(tensor.dtype).double() == exact, shorter, rounded)
    return rounded


def numbers(data: Any) -> np.ndarray:
    """A private, flat copy of real numbers."""
    if isinstance(data, torch.Tensor):
        if data.is_complex() or not is_plain(data):
            raise TypeError(f"a histogram takes real numbers, got {describe(data)}")
        data = data.detach()
        if data.dtype in (torch.float64, torch.float32, torch.float16) or not data.is_floating_point():
            # By numpy: torch would share the copy out to threads, and wait for those that others keep busy.
            return np.asarray(data.cpu().resolve_neg()).copy().reshape(-1)
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


def describe(value: Any) -> str:
    """The value for an error's text: what it is, its type, its shape."""
    try:
        if isinstance(value, (torch.Tensor, np.ndarray)) and not getattr(value, "is_nested", False):
            where = ""
            if isinstance(value, torch.Tensor) and not is_plain(value):
                where = f", on device {value.device} with layout {value.layout}"
            return f"{type(value).__name__} of shape {tuple(value.shape)} and dtype {value.dtype}{where}"
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], (torch.Tensor, np.ndarray)):
            return f"{type(value).__name__} of {len(value)}, the first a {describe(value[0])}"
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - an object's own code; an int of over 4300 digits, too, has no repr
        text = "something without a repr"
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"
