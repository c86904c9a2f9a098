"""The block solver of schedule "host": the CPU linearises into mapped memory, the device solves.

linearize()      H and b on the CPU, written in place into memory that the device reads or copies
solve(damping)   Schur complement, PCG or host Cholesky, back-substitution: `system.DampedSystem`
update(), ...    on the CPU, as in `solver.cpu`
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.device import Device, open_device
from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import HostEquations
from graphopt.vulkan.data.layout import whole_layout
from graphopt.vulkan.kernels.system import DampedSystem
from graphopt.vulkan.plan.choice import check_schur, choose_precision, configuration_of, in_double
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.program import Context


class HostLinearizedSolver(HostEquations):
    """Implements `BlockSolver`; linearisation, update and backups are the host's."""

    def __init__(
        self,
        graph: Graph,
        structure: Structure,
        options: SolverOptions,
        *,
        device: Device | None = None,
        configuration: Configuration | None = None,
    ):
        """device: an open one, None: that of `options.device`. configuration overrides `options`."""
        self.precision_note = ""
        """Why the precision is not the one that was asked for."""
        self.schedule_note = ""
        """Why the CPU linearises although nobody asked for it."""
        self._options = options
        self._double: HostLinearizedSolver | None = None
        self.device = device or open_device(options.device)
        self.system = self._system_for(structure, options, configuration)
        super().__init__(graph, structure, self.system.values, self.system.b)

    def _system_for(
        self, structure: Structure, options: SolverOptions, configuration: Configuration | None
    ) -> DampedSystem:
        precision = choose_precision(self.device, options.precision)
        configuration = configuration or configuration_of(options, precision)
        check_schur(configuration, structure)
        eliminate = structure.has_schur and configuration.schur != "off"
        num_kept = structure.num_kept if eliminate else structure.num_blocks
        return DampedSystem(Context(self.device, precision), whole_layout(structure, num_kept), configuration)

    @property
    def precision(self) -> str:
        """Of H and the steps: "double" or "mixed"."""
        return self.system.context.precision

    def in_double(self) -> HostLinearizedSolver | None:
        """The same at the same estimates in float64; kept. The CPU's part of it is shared."""
        if self.precision == "double" or not self.device.has_float64:
            return None
        if self._double is None:
            twin = copy.copy(self)
            options = replace(self._options, precision="double")
            twin.system = self._system_for(self.structure, options, in_double(self.system.configuration))
            twin.values, twin._b, twin._dx = twin.system.values, twin.system.b, np.zeros(self.dim)
            self._double = twin
        return self._double

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

    @contextmanager
    def changing_equations(self) -> Iterator[None]:
        """H and b were on their way to the device already: they go there again."""
        self.system.wait_upload()
        yield
        self.system.upload()

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
        return {
            **self.system.describe(),
            "precision_note": self.precision_note,
            "schedule_note": self.schedule_note,
            "memory_bytes": self.structure.nbytes + self.device.memory_statistics()["used"],
        }
