"""The block solver on a Vulkan device: the CPU linearises into mapped memory, the device solves.

linearize()      H and b on the CPU, written in place into memory that the device reads or copies
solve(damping)   Schur complement, PCG or host Cholesky, back-substitution: `system.VulkanSystem`
update(), ...    on the CPU, as in `solver.cpu`
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.device import VulkanDevice, open_device
from graphopt.device.kompute import KomputeDevice
from graphopt.errors import DeviceError, OptionError
from graphopt.graph import Graph
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.linear_systems import (
    _PCG_TOLERANCE,
)  # the CPU's rule, so that both stop at the same iteration
from graphopt.solver.registry import SolverOptions
from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.configuration import Configuration
from graphopt.solver.vulkan.layout import BlockLayout
from graphopt.solver.vulkan.system import VulkanSystem

MIXED_PCG_TOLERANCE = 1e-9
"""float32 does not resolve more of r' J r."""


class VulkanBlockSolver(CpuBlockSolver):
    """Implements `BlockSolver`; linearisation, update and backups are inherited from the CPU's."""

    def __init__(
        self,
        graph: Graph,
        structure: Structure,
        options: SolverOptions,
        *,
        device: VulkanDevice | KomputeDevice | None = None,
        configuration: Configuration | None = None,
    ):
        """device: an open one, None: that of `options.device`. configuration overrides `options`."""
        start = time.perf_counter()
        self.structure = structure
        self.dim = structure.dim
        self._start_system(structure, options, device, configuration)
        self._linearizer = kernels.Linearizer()
        self._add_sets(graph)
        self._groups = [(self._add_group(group), group) for group in structure.groups]
        self._linearizer.prepare(structure.values_size, self.dim)
        self._diagonal = self.system.layout.diagonal_scalars
        self.host_prepare_seconds = time.perf_counter() - start
        """Preparation that the caller waited for; the device's own runs beside the first linearisation."""

    def _start_system(
        self,
        structure: Structure,
        options: SolverOptions,
        device: VulkanDevice | KomputeDevice | None,
        configuration: Configuration | None,
    ) -> None:
        self.device = device or open_device(options.device)
        precision = options.precision
        if precision == "auto":
            precision = "double" if self.device.has_float64 else "mixed"
        if precision == "double" and not self.device.has_float64:
            raise DeviceError(f"{self.device.name} has no float64. Use precision='mixed' or 'auto'.")
        if configuration is None:
            tolerance = _PCG_TOLERANCE if precision == "double" else MIXED_PCG_TOLERANCE
            configuration = Configuration(
                options.linear_solver, options.schur, tolerance=tolerance, absolute_tolerance=False
            )
        if configuration.schur in ("explicit", "implicit") and not structure.has_schur:
            raise OptionError(
                f"schur '{configuration.schur}' needs marginalized vertices beside others that stay. "
                "Mark landmarks with vertex_set.marginalized = True, or use schur='off'."
            )
        eliminate = structure.has_schur and configuration.schur != "off"
        layout = BlockLayout(
            structure.dims,
            structure.col_ptr,
            structure.row_idx,
            structure.num_kept if eliminate else structure.num_blocks,
        )
        self.system = VulkanSystem(self.device, layout, configuration, precision)
        self.values = self.system.values
        self._b = self.system.b
        self._dx = np.zeros(self.dim)

    def refresh(self) -> None:
        """Take the graph's present measurements; the stop rule of PCG starts anew."""
        super().refresh()
        self.system.reset()

    def linearize(self) -> float:
        """H, b and the robustified chi2; H and b are on their way to the device when it returns."""
        self.system.wait_upload()
        chi2 = super().linearize()
        self.system.upload()
        return chi2

    def solve(self, damping: float | np.ndarray) -> bool:
        """(H + D) dx = b."""
        solved = self.system.solve(damping)
        if solved:
            self._dx[:] = self.system.dx
        return solved

    def multiply(self, vector: np.ndarray) -> np.ndarray:
        """H times a vector, on the device."""
        return self.system.multiply(vector)

    def describe(self) -> dict[str, Any]:
        """What solves what, where."""
        statistics = self.device.memory_statistics()
        configuration = self.system.configuration
        return {
            "linear_solver": configuration.linear_solver,
            "schur": configuration.schur,
            "device": self.device.spec,
            "device_name": self.device.name,
            "precision": self.system.context.precision,
            "memory_bytes": self.structure.nbytes + statistics["used"],
            "seconds": self.system.overlap(),
        }
