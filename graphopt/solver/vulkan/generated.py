"""Launches of generated kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphopt.codegen import gpu
from graphopt.codegen.glsl import Arithmetic
from graphopt.device.protocol import Precision
from graphopt.errors import SolverError
from graphopt.solver.vulkan.context import LARGE, LARGE_BYTES, Context, Launch


def arithmetic_of(context: Context) -> Arithmetic:
    """How generated kernels compute: "double", "mixed" with float64 where chi2 needs it, or "two_float"."""
    return arithmetic_for(context.precision, context.device.has_float64)


def arithmetic_for(precision: Precision, has_float64: bool) -> Arithmetic:
    """The same by the precision of H, and whether the device has float64."""
    if precision == "double":
        return "double"
    return "mixed" if has_float64 else "two_float"


def check_near(kernel: str, sizes: Mapping[str, int]) -> None:
    """Raise where a buffer that a kernel reaches with 32 bits takes 4 GiB or more. sizes: by its name."""
    for name, size in sizes.items():
        if size >= LARGE_BYTES:
            raise SolverError(
                f"Kernel '{kernel}' reads '{name}', which takes {size} bytes here, with 32-bit offsets: it "
                f"reaches {LARGE_BYTES} bytes. Use device='cpu', or fewer vertices or edges per call."
            )


def bound(
    context: Context,
    kernel: gpu.GpuKernel,
    buffers: Mapping[str, Any],
    params: Mapping[str, int],
    groups: int,
    nbytes: float = 0.0,
    constants: Mapping[int, int] | None = None,
) -> Launch:
    """A launch of a generated kernel; buffers and params by the kernel's names."""
    sizes = {name: buffers[name].size for name in kernel.buffers}
    check_near(kernel.name, {name: size for name, size in sizes.items() if name not in kernel.far})
    is_large = context.is_large or any(size >= LARGE_BYTES for size in sizes.values())
    large = {LARGE: 1} if is_large else {}
    compiled = context.device.generated(kernel, {**large, **(constants or {})})
    return Launch(
        compiled,
        tuple(buffers[name] for name in kernel.buffers),
        tuple(params[name] for name in kernel.params),
        groups,
        nbytes,
    )
