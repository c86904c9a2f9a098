"""Decisions before a block solver is made: precision, configuration, and the schedule of linearisation.

host          the CPU computes residuals, Jacobians, H and b; the device solves
blocks        kernels compute H's blocks into device memory
matrix-free   only H's diagonal blocks are stored; products recompute the Jacobians
"""

from __future__ import annotations

from graphopt import pyglslang
from graphopt.device import VulkanDevice
from graphopt.device.kompute import KomputeDevice
from graphopt.errors import DeviceError, OptionError
from graphopt.solver.linear_systems import (
    _PCG_TOLERANCE,
)  # the CPU's rule, so that both stop at the same iteration
from graphopt.solver.registry import SolverOptions
from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.configuration import Configuration

MIXED_PCG_TOLERANCE = 1e-9
"""float32 does not resolve more of r' J r."""
COMFORTABLE_SHARE = 0.25
"""Of the device's memory that H may take before `auto` prefers not to store it."""


def choose_precision(device: VulkanDevice | KomputeDevice, asked: str) -> str:
    """What "auto" stands for; `DeviceError` where the device cannot do what was asked."""
    if asked == "auto":
        return "double" if device.has_float64 else "mixed"
    if asked == "double" and not device.has_float64:
        raise DeviceError(f"{device.name} has no float64. Use precision='mixed' or 'auto'.")
    return asked


def configuration_of(options: SolverOptions, precision: str) -> Configuration:
    """The configuration that options ask for."""
    tolerance = _PCG_TOLERANCE if precision == "double" else MIXED_PCG_TOLERANCE
    return Configuration(options.linear_solver, options.schur, tolerance=tolerance, absolute_tolerance=False)


def check_schur(configuration: Configuration, structure: Structure) -> None:
    """`OptionError` where elimination is asked for and there is nothing to eliminate."""
    if configuration.schur in ("explicit", "implicit") and not structure.has_schur:
        raise OptionError(
            f"schur '{configuration.schur}' needs marginalized vertices beside others that stay. "
            "Mark landmarks with vertex_set.marginalized = True, or use schur='off'."
        )


def choose_schedule(
    asked: str, device: VulkanDevice | KomputeDevice, structure: Structure, configuration: Configuration
) -> str:
    """What "auto" stands for, by linear solver and memory; configuration: without "auto".

    The one place that decides. `structure.values_size` makes it find the pattern of H.
    """
    needs_blocks = configuration.linear_solver != "pcg" or configuration.schur == "explicit"
    if asked == "matrix-free" and needs_blocks:
        raise OptionError(
            f"schedule 'matrix-free' needs products only, but linear_solver '{configuration.linear_solver}' "
            f"with schur '{configuration.schur}' needs the blocks of H. Use linear_solver='pcg' and "
            "schur='implicit' or 'off', or schedule='blocks'."
        )
    if asked != "auto":
        return asked
    if isinstance(device, KomputeDevice) or not pyglslang.is_available():
        return "host"  # a submission per step there is slow; without a compiler there are no kernels
    if needs_blocks:
        return "blocks"
    if configuration.schur == "implicit":
        return "matrix-free"
    comfortable = COMFORTABLE_SHARE * device_memory(device)
    return "blocks" if 8 * structure.values_size <= comfortable else "matrix-free"


def device_memory(device: VulkanDevice | KomputeDevice) -> float:
    """Bytes of the device's largest local heap."""
    return float(max((heap["size"] for heap in device.info["heaps"] if heap["device_local"]), default=0))
