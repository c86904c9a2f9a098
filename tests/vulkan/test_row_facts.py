"""What information matrices on a device have in common is found there, whatever their strides."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vulkan_devices import shared_device

from graphopt.cpu_kernels import kernels
from graphopt.vulkan.data.foreign import RowFacts
from graphopt.vulkan.program import Context

MADE = {
    "identity": lambda many: None,
    "last entry": lambda many: many.__setitem__((-1, 2, 1), 1e-300),
    "scaled": lambda many: many.__setitem__((50, 1, 1), 1.0 + 1e-15),
    "both": lambda many: many.__setitem__((3,), 2.0),
    "not a number": lambda many: many.__setitem__((7, 0, 2), np.nan),
    "negative zero": lambda many: many.__setitem__((7, 0, 2), -0.0),
}


@pytest.mark.parametrize("access", ["address", "storage"])
@pytest.mark.parametrize("layout", ["whole", "transposed", "strided"])
def test_kind_is_the_hosts(access, layout):
    context = Context(shared_device(access), "double")
    for name, change in MADE.items():
        matrices = np.tile(np.eye(3), (1000, 1, 1))
        change(matrices)
        held, offset = matrices, 0
        if layout == "transposed":
            held = np.ascontiguousarray(matrices.transpose(1, 2, 0)).transpose(2, 0, 1)
        if layout == "strided":
            whole = np.full((1000, 3, 8), 7.0)
            whole[..., 2::2] = matrices
            held, offset = whole[..., 2::2], 2
        kept: Any = SimpleNamespace(
            buffer=context.device.upload(held if held.base is None else held.base),
            offset=offset,
            shape=held.shape,
            strides=lambda held=held: tuple(stride // 8 for stride in held.strides),
        )
        assert RowFacts.of(context, kept).kind == kernels.information_kind(matrices, None), name
