"""Memory of a factorisation on a device: predicted before it is taken."""

from __future__ import annotations

from typing import Any

from graphopt.device.errors import DeviceMemoryError
from graphopt.vulkan.cholesky.analysis import Analysis

_SHARED_BYTES = 32 << 10
"""Shared memory that the kernels need."""


def predict_memory(analysis: Analysis, itemsize: int) -> dict[str, int]:
    """Bytes by purpose: factor, updates, vectors, indices (lists of work not included: a few percent)."""
    pattern = analysis.pattern
    vectors = 5 * pattern.dim + analysis.num_carried
    indices = pattern.values_size + 2 * pattern.dim + 2 * analysis.num_carried + 12 * len(analysis.level)
    return {
        "factor": analysis.factor_size * itemsize,
        "updates": sum(analysis.arena_size) * itemsize,
        "vectors": vectors * itemsize,
        "indices": 4 * indices,
    }


def check_memory(device: Any, analysis: Analysis, itemsize: int) -> None:
    """Raise `DeviceMemoryError` where the device cannot hold the factorisation, before anything is taken."""
    info = device.info
    shared = info.get("max_shared_memory", _SHARED_BYTES)
    if shared < _SHARED_BYTES:
        raise DeviceMemoryError(
            f"{device.name} has {shared} bytes of shared memory per workgroup; Cholesky on the device needs "
            f"{_SHARED_BYTES}. Use linear_solver='pcg', or device='cpu'."
        )
    need = predict_memory(analysis, itemsize)
    total = sum(need.values())
    heaps = [heap["size"] for heap in info.get("heaps", ()) if heap["device_local"]]
    room = max(heaps, default=total)
    if total > room:
        raise DeviceMemoryError(_too_large(device, analysis, need, f"the device has {room / 2**20:,.0f} MiB"))
    limit = _largest_buffer(device)
    largest = max(analysis.factor_size, *analysis.arena_size, analysis.pattern.values_size) * itemsize
    if largest > limit:
        what = f"one buffer may have {limit / 2**20:,.0f} MiB, {largest / 2**20:,.0f} are needed"
        raise DeviceMemoryError(_too_large(device, analysis, need, what))


def _largest_buffer(device: Any) -> int:
    """Bytes that a kernel reaches in one buffer.

    With addresses all of them: what drivers promise for one allocation (4 GiB on devices with 140) is less
    than they give, and `device.allocate` says where one refuses.
    """
    return device.info["max_storage_range"] if device.access == "storage" else 1 << 62


def fits(device: Any, nbytes: list[int]) -> bool:
    """Whether arrays of so many bytes can be had beside what is held already."""
    heaps = [heap["size"] for heap in device.info.get("heaps", ()) if heap["device_local"]]
    room = max(heaps, default=1 << 62) - device.memory_statistics()["used"]
    return sum(nbytes) <= room and max(nbytes) <= _largest_buffer(device)


def _too_large(device: Any, analysis: Analysis, need: dict[str, int], limit: str) -> str:
    parts = ", ".join(f"{name} {size / 2**20:,.0f}" for name, size in need.items())
    return (
        f"Cholesky of {analysis.dim} rows on {device.name} takes {sum(need.values()) / 2**20:,.0f} MiB "
        f"({parts}): {limit}. Use linear_solver='pcg', precision='mixed', which takes half, or device='cpu'."
    )
