"""Where a factorisation is faster: expected seconds on the device and on the CPU.

    device   operations / (share of the measured rate) + steps * (a panel's chain of pivots + a dispatch)
    CPU      operations / (rate of a core * cores) + the way of H there and of x back

The shares and the chain (`rates`) were measured on an H200 and its host.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.device.errors import DeviceMemoryError
from graphopt.device.figures import device_figures
from graphopt.linear import LINEAR_SOLVERS
from graphopt.vulkan.cholesky.analysis import BLOCK, Analysis, analyse_ahead, analyse_once
from graphopt.vulkan.cholesky.memory import check_memory
from graphopt.vulkan.cholesky.rates import (
    CORE_FLOPS,
    ROUND_TRIP,
    TRANSFER_BYTES,
    cpu_panels_seconds,
    device_rate,
    panel_seconds,
)
from graphopt.vulkan.cholesky.trial import TrialFactorization

_HOST_TRIPS = 7  # submissions of a factorisation and a solve with numbers of the host


def device_seconds(device: Any, analysis: Analysis) -> float:
    """Expected time of a factorisation and a solve on the device; infinite where it cannot hold them."""
    try:
        check_memory(device, analysis, 8 if device.has_float64 else 4)
    except DeviceMemoryError:
        return float("inf")
    figures = device_figures(device)
    panels = float(np.ceil(_widest(analysis) / BLOCK).sum())
    solve = 2.0 * analysis.factor_size * 8 / figures.bytes_per_second
    return analysis.flops / device_rate(figures) + panels * panel_seconds(figures) + solve


def _widest(analysis: Analysis) -> np.ndarray:
    """(num_levels,) pivots of the widest front of each level."""
    widest = np.zeros(analysis.num_levels)
    np.maximum.at(widest, analysis.level, analysis.num_pivots)
    return widest


def cpu_seconds(analysis: Analysis) -> float:
    """Expected time of the same on the CPU, from and to a device."""
    pattern = analysis.pattern
    moved = 8.0 * (pattern.values_size + 2 * pattern.dim) / TRANSFER_BYTES
    solve = 2.0 * analysis.factor_size * 8 / 1e10
    threads = kernels.num_threads()
    waits = cpu_panels_seconds(float(_widest(analysis).max(initial=0.0))) if threads > 1 else 0.0
    return analysis.symbolic.flops / (CORE_FLOPS * threads) + waits + moved + solve + ROUND_TRIP


def expected_seconds(device: Any, layout: Any) -> float:
    """Time of a factorisation of a block layout with a solve, by device or CPU, whichever is faster."""
    analysis = analyse_once(layout.pattern)
    on_cpu = cpu_seconds(analysis)
    return on_cpu if device.info.get("kind") == "cpu" else min(on_cpu, device_seconds(device, analysis))


def is_faster_on_device(device: Any, analysis: Analysis) -> bool:
    """Whether `auto` factorizes on the device. Software drivers never do: the CPU is that device."""
    if device.info.get("kind") == "cpu":
        return False
    return device_seconds(device, analysis) < cpu_seconds(analysis)


def is_faster_from_host(device: Any, analysis: Analysis) -> bool:
    """The same where matrix and right-hand side stand on the host: the device's way is the longer one."""
    if device.info.get("kind") == "cpu":
        return False
    pattern = analysis.pattern
    moved = 8.0 * (pattern.values_size + 3 * pattern.dim) / TRANSFER_BYTES + _HOST_TRIPS * ROUND_TRIP
    return device_seconds(device, analysis) + 2.0 * moved < cpu_seconds(analysis)


def factorization_on_device(
    context: Any, layout: Any, linear_solver: str, *, is_chosen: bool
) -> TrialFactorization | None:
    """Cholesky of a block layout on the context's device; None: the CPU is to do it.

    is_chosen: "auto" took Cholesky, and may as well take the CPU; who asks for Cholesky on a device gets it
    there, or `DeviceMemoryError`.
    """
    ordering = _ordering(context, linear_solver, is_chosen)
    if ordering is None:
        return None
    analysis = analyse_once(layout.pattern, ordering)
    if is_chosen and not is_faster_on_device(context.device, analysis):
        return None
    return TrialFactorization(context, layout.pattern, analysis=analysis)


def order_ahead(context: Any, layout: Any, linear_solver: str, *, is_chosen: bool) -> None:
    """Start in a thread what `factorization_on_device` with these arguments will begin with."""
    ordering = _ordering(context, linear_solver, is_chosen)
    if ordering is not None:
        analyse_ahead(layout.pattern, ordering)


def _ordering(context: Any, linear_solver: str, is_chosen: bool) -> str | None:
    """How a factorization on the device orders; None: it will not be asked for."""
    if not context.device.submits_whole_programs:
        return None
    if is_chosen and context.device.info.get("kind") == "cpu":
        return None
    return LINEAR_SOLVERS.row(linear_solver).ordering
