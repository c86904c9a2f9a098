"""A trial by Cholesky of H + D, or of the reduced system S.

    DeviceFactor             where the matrix is: the whole trial is one submission
    HostReduced, HostWhole   S, or all of H, goes down, and the step comes up again

All implement `trial_solver.TrialSolver`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from graphopt.solver.trial import Damping
from graphopt.vulkan.cholesky import TrialFactorization
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.kernels.damping import DeviceDamping
from graphopt.vulkan.kernels.equations import Equations, HostNumbers
from graphopt.vulkan.kernels.pcg import INDEFINITE
from graphopt.vulkan.kernels.reduction import SchurReduction, record_back_substitution
from graphopt.vulkan.program import Program
from graphopt.vulkan.programs import Programs


class Exact:
    """What a `TrialSolver` does besides a solution, where it has no stop rules; see `finish` of each."""

    factorized_on = "cpu"
    is_one_program = False

    def reset(self) -> None:
        """Nothing is kept from one trial to the next."""

    def set_rules(self, damping: Damping | None) -> None:
        """There are none."""

    def is_coarse(self, damping: Damping) -> bool:
        """It is exact."""
        return False

    def first_program(self, tail: Program) -> Program | None:
        """The host has its part in a trial."""
        return None


class Another:
    """A right-hand side of the host, and its solution."""

    def __init__(self, equations: Equations):
        context, dim = equations.context, equations.layout.dim
        self.right, self.found = (DeviceArray(context, dim) for _ in range(2))

    def take(self, right: np.ndarray) -> None:
        """Before a program with `right.record_upload`."""
        self.right.staging[:] = right
        self.right.commit()

    def solution(self) -> np.ndarray:
        """(dim,) float64, after a program with `found.record_download`."""
        return self.found.downloaded.astype(np.float64)


class DeviceFactor(Exact):
    """A factor in device memory."""

    factorized_on = "device"
    is_one_program = True

    def __init__(
        self,
        equations: Equations,
        reduction: SchurReduction | None,
        factorization: TrialFactorization,
        damping: DeviceDamping,
        programs: Programs,
    ):
        """reduction: that forms S, None: H itself is factored."""
        self._equations, self._reduction, self.factorization = equations, reduction, factorization
        self._damping, self._programs = damping, programs

    def first_program(self, tail: Program) -> Program:
        """All of it."""
        return self._programs.get(("factorize", tail), self._record, tail)

    def finish(self, tail: Program, damping: Any) -> bool:
        """Whether it went well."""
        return self.factorization.is_definite

    def solve_again(self, right: np.ndarray) -> np.ndarray:
        """With the factor of H, or of S."""
        self._another.take(right)
        self._programs.run("another", self._record_another)
        return self._another.solution()

    @cached_property
    def _another(self) -> Another:
        return Another(self._equations)

    def _record_another(self, program: Program) -> None:
        right, found = self._another.right, self._another.found
        right.record_upload(program.phase("linear_solver"))
        program.barrier()
        b, factorization = right.buffer, self.factorization
        if self._reduction is None:
            factorization.record_another(program, b, found.buffer)
        else:
            self._reduction.record_residual(program, b, factorization.another)
            factorization.record_another(program, factorization.another, found.buffer)
            self._reduction.record_landmarks(program, b, found.buffer)
        found.record_download(program)

    def _matrix(self) -> tuple[Any, Any]:
        """What is factored, and the damping that is not yet in it."""
        if self._reduction is None:
            return self._equations.values, self._equations.damping
        assert self._reduction.schur is not None
        return self._reduction.schur.buffer, None

    def _record(self, program: Program, tail: Program) -> None:
        self._programs.add_part(program, "solution by factors", self._record_solution)
        program.append(tail)

    def _record_solution(self, program: Program) -> None:
        equations, reduction, factorization = self._equations, self._reduction, self.factorization
        factorization.record_clear(program.phase("schur").fill(equations.status))
        self._damping.record(program)
        (matrix, damping), rhs = self._matrix(), equations.b
        if reduction is not None:
            reduction.record(program, factorization.residual)
            rhs = factorization.residual
        factorization.record(program.phase("linear_solver"), matrix, damping, rhs, equations.dx)
        factorization.record_outcome(program, equations.status)
        record_back_substitution(program, reduction)


class HostReduced(Exact):
    """S is factored on the host."""

    def __init__(
        self,
        equations: Equations,
        reduction: SchurReduction,
        linear_solver: str,
        damping: DeviceDamping,
        programs: Programs,
    ):
        assert reduction.schur is not None
        self._equations, self._reduction = equations, reduction
        self._damping, self._programs = damping, programs
        self._matrix, context = reduction.schur.matrix, equations.context
        self._residual, self._step = (DeviceArray(context, equations.layout.kept_dim) for _ in range(2))
        self._solver = _host_solver(reduction.reduced, linear_solver)

    def finish(self, tail: Program, damping: Any) -> bool:
        """All of it."""
        self._programs.run("reduce", self._record_reduce)
        if not self._solve():
            return False
        self._programs.run(("substitute", tail), self._record_substitute, tail)
        return True

    def solve_again(self, right: np.ndarray) -> np.ndarray:
        """With the factor of S."""
        self._another.take(right)
        self._programs.run("reduce another", self._record_reduce_another)
        residual = np.ascontiguousarray(self._residual.downloaded, np.float64)
        self._step.staging[:] = self._solver.solve(residual)
        self._step.commit()
        self._programs.run("substitute another", self._record_substitute_another)
        return self._another.solution()

    @cached_property
    def _another(self) -> Another:
        return Another(self._equations)

    def _record_reduce_another(self, program: Program) -> None:
        self._another.right.record_upload(program.phase("schur"))
        program.barrier()
        self._reduction.record_residual(program, self._another.right.buffer, self._residual.buffer)
        self._residual.record_download(program)

    def _record_substitute_another(self, program: Program) -> None:
        right, found = self._another.right.buffer, self._another.found
        self._step.record_upload(program.phase("landmarks"))
        program.barrier().copy(self._step.buffer, found.buffer, self._step.nbytes).barrier()
        self._reduction.record_landmarks(program, right, found.buffer)
        found.record_download(program)

    def _record_reduce(self, program: Program) -> None:
        state = self._equations.state
        self._damping.record(program.phase("schur"))
        program.fill(state.buffer).barrier()
        self._reduction.record(program, self._residual.buffer)
        for array in (self._matrix, self._residual, state):
            array.record_download(program)

    def _solve(self) -> bool:
        """S x = r with what has come."""
        if self._equations.state.downloaded[INDEFINITE]:
            return False
        matrix, residual = (
            np.ascontiguousarray(array.downloaded, np.float64) for array in (self._matrix, self._residual)
        )
        if not self._solver.factorize(matrix, None):
            return False
        self._step.staging[:] = self._solver.solve(residual)
        self._step.commit()
        return True

    def _record_substitute(self, program: Program, tail: Program) -> None:
        """x into the kept part of dx, and on."""
        self._step.record_upload(program.phase("landmarks"))
        program.barrier().copy(self._step.buffer, self._equations.dx, self._step.nbytes).barrier()
        record_back_substitution(program, self._reduction)
        program.append(tail)


class HostWhole(Exact):
    """All of H is factored on the host."""

    def __init__(
        self,
        equations: Equations,
        numbers: HostNumbers,
        linear_solver: str,
        damping: DeviceDamping,
        programs: Programs,
    ):
        self._layout, self._numbers = equations.layout, numbers
        self._damping, self._programs = damping, programs
        self._solver = _host_solver(equations.layout, linear_solver)

    def solve_again(self, right: np.ndarray) -> np.ndarray:
        """With the factor of H."""
        return self._solver.solve(right)

    def finish(self, tail: Program, damping: float | np.ndarray | Damping) -> bool:
        """All of it."""
        values, b, step = self._numbers.values, self._numbers.b, self._numbers.step
        if isinstance(damping, Damping):
            damping = damping.of(values[self._layout.diagonal_scalars]) if damping.scaled else damping.value
        shift = np.ascontiguousarray(np.broadcast_to(damping, self._layout.dim), np.float64)
        if not self._solver.factorize(values, shift):
            return False
        step.staging[:] = self._solver.solve(b)
        step.commit()
        self._programs.run(("tail", tail), self._record, tail)
        return True

    def _record(self, program: Program, tail: Program) -> None:
        self._numbers.step.record_upload(program.phase("landmarks"))
        self._damping.record(program)
        program.append(tail)


def _host_solver(layout: Any, linear_solver: str) -> Any:
    """layout: with `dims`, `col_ptr` and `row_idx`."""
    # Imported here: conjugate gradients need no CPU module.
    from graphopt.linear import LINEAR_SOLVERS

    pattern = layout.pattern
    return LINEAR_SOLVERS.row(linear_solver).make_direct(pattern)
