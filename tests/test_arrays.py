"""What tensors and arrays become on their way into what Trackio stores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from torchrl_trackio.arrays import rounded_numbers

HALF = [0.1, -2.5, 0.3]
NUMBERS: dict[str, tuple[Any, Any]] = {
    "float32": (torch.tensor([[0.1, 1e-7], [16777215, 0.3333333]]), [[0.1, 1e-7], [16777215.0, 0.3333333]]),
    "float64": (torch.tensor(0.1, dtype=torch.float64) + 0.2, 0.1 + 0.2),
    "float16": (torch.tensor([*HALF, 2047], dtype=torch.float16), [*HALF, 2047.0]),
    "bfloat16": (torch.tensor([*HALF, 255], dtype=torch.bfloat16), [*HALF, 255.0]),
    "bfloat16 of four digits": (torch.tensor(1 + 2**-6, dtype=torch.bfloat16), 1.016),
    "float8": (torch.tensor([0.1, 15], dtype=torch.float8_e4m3fn), [0.1, 15.0]),
    "int64": (torch.tensor([2**62 + 1]), [2**62 + 1]),
    "uint8": (torch.tensor([[255]], dtype=torch.uint8), [[255]]),
    "bool": (torch.tensor([True, False]), [True, False]),
    "no dimension": (torch.tensor(0.1), 0.1),
    "no elements": (torch.zeros(2, 0, dtype=torch.bfloat16), [[], []]),
    "gradient": (torch.tensor([0.1], requires_grad=True), [0.1]),
    "conjugate": (torch.tensor([1 + 2j]).conj(), [1 - 2j]),
    "negative view": (torch.tensor([1 + 0.1j]).conj().imag, [-0.1]),
    "infinity": (torch.tensor([math.inf, -math.inf], dtype=torch.bfloat16), [math.inf, -math.inf]),
    "array": (np.array([0.1], np.float32), [0.1]),
}


@pytest.mark.parametrize(("data", "expected"), NUMBERS.values(), ids=NUMBERS)
def test_rounded_numbers(data: Any, expected: Any) -> None:
    """Numbers of few bits have the digits that they were written with; those of others are exact."""
    found = rounded_numbers(data)
    assert found == expected
    assert str(found) == str(expected)  # 1 is True, and equals 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_rounded_numbers_are_read_back_as_the_same(dtype: torch.dtype) -> None:
    """Nothing that the dtype holds is lost; NaN stays NaN."""
    torch.manual_seed(0)
    data = torch.cat([torch.randn(1000) * 10 ** torch.linspace(-4, 4, 1000), torch.tensor([math.nan])]).to(dtype)
    back = torch.tensor(rounded_numbers(data), dtype=torch.float64).to(dtype)
    assert torch.equal(back[:-1], data[:-1])
    assert math.isnan(rounded_numbers(data)[-1])
