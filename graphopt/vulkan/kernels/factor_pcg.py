"""Conjugate gradients on the device with a Cholesky factor as preconditioner: see `linear.factor_pcg`.

    u = inv(M) r    "factor": M = an A of before;  "clusters": M = A's blocks within clusters, as they are now

The recurrence is `Pcg`'s, with two triangular solves where that multiplies by block-Jacobi. Their kernels do
not look at the flag that ends a run; a device that can skips them by it, and few iterations are submitted at
once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from graphopt.device import VulkanDevice
from graphopt.errors import OptionError
from graphopt.linear.factor_pcg import clusters_of, iterations_worth_a_factorization, within_clusters
from graphopt.vulkan.cholesky import DeviceCholesky
from graphopt.vulkan.data.layout import BlockLayout
from graphopt.vulkan.kernels.equations import Equations
from graphopt.vulkan.kernels.pcg import Pcg, PcgOutcome, Reduction
from graphopt.vulkan.program import Program

AT_ONCE = 4
"""Iterations of a submission."""


class FactorPcg(Pcg):
    """`Pcg` with a factor; it also decides when a new one is due, by counts, not by the clock."""

    def __init__(
        self,
        equations: Equations,
        reduction: Reduction,
        layout: BlockLayout,
        matrix: tuple[Any, Any],
        kind: Literal["factor", "clusters"],
    ):
        """layout, matrix: of A = values + damping, buffers (the latter None where A has it in it)."""
        super().__init__(equations, reduction)
        context = equations.context
        if not isinstance(context.device, VulkanDevice):
            raise OptionError(
                f"preconditioner '{kind}' needs device 'vulkan' or 'cpu', got {context.device.name}. "
                "Use preconditioner='hschur'."
            )
        pattern = own = layout.pattern
        taken = None
        if kind == "clusters":
            own, taken = within_clusters(pattern, clusters_of(pattern))
        precision = "double" if context.device.has_float64 else "mixed"
        self.solver = DeviceCholesky(
            context.device, own, precision, narrow_numbers=context.real == np.float32, taken=taken
        )
        self._matrix, self._is_older = matrix, kind == "factor"
        analysis = self.solver.analysis
        self._worth = iterations_worth_a_factorization(
            analysis.flops, analysis.factor_size, pattern.values_size
        )
        self.is_due = True
        """The next solve factors A first."""
        self._back = context.device.allocate(8, "readback")

    def forget(self) -> None:
        """At the start of an optimization."""
        self.is_due = True

    def takes_too_long(self, outcome: PcgOutcome) -> bool:
        """The factor of before is too different: half a factorization's time has gone."""
        return self._is_older and not self.is_due and outcome.iterations >= self._worth

    def is_good(self, outcome: PcgOutcome) -> bool:
        """After a run: A, and what was factored for it, is positive definite."""
        pivots = not self.is_due or self._back.array(np.dtype(np.uint32), 0, 1)[0] == 0
        return bool(pivots and outcome.is_definite and np.isfinite(outcome.squared_norm))

    def note(self, *, solved: bool) -> None:
        """After a solve: what the next one does."""
        self.is_due = not (self._is_older and solved)

    def record_start(self, program: Program) -> None:
        """Factor A, if that is due; then the first direction."""
        if self.is_due:
            self.solver.record_factorize(program, *self._matrix)
            program.copy(self.solver.status, self._back, 4)
        super().record_start(program)
        self._record_preconditioned(program, self.r[0], None)
        program.step([self._start()])

    def record_iterations(
        self, program: Program, count: int, record_product: Callable[[Program, Pcg, int], None]
    ) -> None:
        """As `Pcg`'s."""
        with program.repeated(count // 2), program.unless(self.status.buffer, 0):
            for parity in (0, 1):
                record_product(program, self, parity)
                program.barrier().step([self._update(parity, preconditions=False)])
                self._record_preconditioned(program, self.r[1 - parity], parity)
        self._record_state(program)

    def _record_preconditioned(self, program: Program, residual: Any, parity: int | None) -> None:
        """parity: of the iteration that it ends, None: of none."""
        self.solver.record_solve(program, residual, self.u)
        buffers = (residual, self.u, self.dots_rs, self.scalars.buffer, self.status.buffer)
        params, ends = (self.num_rows, self.num_groups, parity or 0), {1: int(parity is not None)}
        program.step([self._context.launch("pcg_factor", buffers, params, self.num_groups, ends)])
