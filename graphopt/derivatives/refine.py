"""Newton's steps from where an optimization has ended, and what makes a derivative there doubtful.

An optimization ends where chi2 hardly falls any more, which leaves its estimates with half of chi2's digits.
Newton's steps with the exact Hessian double the digits each: derivatives of an optimum need it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.derivatives.equations import GROWTH, ExactEquations
from graphopt.linear.vectors import dot
from graphopt.problem.structure import EdgeGroup
from graphopt.types.robust_kernels import robust_kernel

STEPS = 5
NEAR = 1e-3
"""Share of chi2 that a step may promise to be taken: further away it may lead to another minimum."""
REACHED = 1e-12
"""Share of chi2 that the last step promised at most: what it leaves is the square of that."""
_LEFT = 1e-6
"""Share of chi2 that the step that is left may promise, for a derivative to be trusted."""
ROUNDING = 1e-12  # of chi2
TINY = 1e-10  # of a step, in units of an estimate's size: nothing is left although chi2 is zero
_KINK = 1e-6  # relative distance of chi2 from a kink
_JUMP = 1e-3


@dataclass(frozen=True)
class Doubts:
    """What was found at the end of a solve; all three numbers are small where a derivative can be trusted."""

    left: float
    """Share of chi2 by which it would fall with one more Newton step; `inf`: there is no such step."""
    growth: float
    """Of a vector under inv(K) diag(K): above 1e12 the Hessian K is singular up to rounding."""
    kinks: int
    """Edges whose chi2 is at a kink of their robust kernel."""

    @property
    def is_singular(self) -> bool:
        """The Hessian is singular up to rounding, or not positive definite."""
        return not self.growth < GROWTH

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is wrong; empty if nothing is."""
        found = []
        if self.is_singular:
            found.append("The Hessian at the end is singular, or not positive definite.")
        elif not self.left <= _LEFT:
            found.append(
                f"The solve has not ended at an optimum: one more step promises {self.left:.1e} of chi2, "
                f"more than {_LEFT:.0e}. Allow more iterations."
            )
        if self.kinks:
            found.append(
                f"{self.kinks} edges are at a kink of their robust kernel, where the optimum has no "
                "derivative. Use a smooth kernel (PseudoHuber, Cauchy), or another width."
            )
        return tuple(found)

    def numbers(self) -> np.ndarray:
        """(3,) float64."""
        return np.array([self.left, self.growth, self.kinks], np.float64)

    @classmethod
    def of_numbers(cls, numbers: np.ndarray) -> Doubts:
        """What `numbers` has returned."""
        left, growth, kinks = np.asarray(numbers, np.float64).tolist()
        return cls(left, growth, int(kinks))


def refine(equations: ExactEquations, damp: bool) -> Doubts:
    """Newton's steps from the block solver's estimates, which become the optimum."""
    solver = equations.solver
    left = growth = np.inf
    for number in range(STEPS):
        chi2 = equations.linearize()
        right = solver.b.copy()  # solutions may take its place
        step = equations.factorize(None, damp)
        if step is None:
            return Doubts(np.inf, np.inf, _kinks(equations))
        if number == 0:
            growth = equations.growth()
            if not growth < GROWTH:
                break
        left = _share_left(dot(right, step), chi2, step, equations)
        if left > NEAR or not _takes(equations, step, chi2) or left <= REACHED:
            break
    return Doubts(left, growth, _kinks(equations))


def _share_left(promised: float, chi2: float, step: np.ndarray, equations: ExactEquations) -> float:
    sets = equations.structure.selection.vertex_sets
    size = max((float(np.abs(one.look("estimate")).max(initial=0.0)) for one in sets), default=0.0)
    if float(np.abs(step).max(initial=0.0)) <= TINY * max(size, 1.0):
        return 0.0
    return promised / chi2 if chi2 > 0.0 else np.inf


def _takes(equations: ExactEquations, step: np.ndarray, chi2: float) -> bool:
    """Take a step unless chi2 rises by more than rounding."""
    solver = equations.solver
    if equations.move(step) <= (1.0 + ROUNDING) * chi2:
        solver.discard_top()
        return True
    solver.pop()
    return False


def _kinks(equations: ExactEquations) -> int:
    """Edges at which the weight, or its slope, jumps."""
    return sum(
        int(np.count_nonzero(at_kink(group.kernel, chi2, _widths(group))))
        for group, chi2 in equations.edge_chi2()
        if group.kernel
    )


def _widths(group: EdgeGroup) -> np.ndarray:
    rows, widths = group.chosen_rows, group.edge_set.look("kernel_width")
    return widths if rows is None else widths[rows]


def at_kink(kernel: int, chi2: np.ndarray, width: np.ndarray) -> np.ndarray:
    """bool by edge: compared are w and s w' at both sides of s, what the Hessian is made of."""
    function = robust_kernel(kernel).function
    with np.errstate(all="ignore"):
        weights = [
            np.broadcast_to(np.asarray(function(chi2 * (1.0 + k * _KINK), width)[1], np.float64), chi2.shape)
            for k in (-2.0, -1.0, 1.0, 2.0)
        ]
    below, above = (weights[1] - weights[0]) / _KINK, (weights[3] - weights[2]) / _KINK
    return (np.abs(above - below) > _JUMP) | (np.abs(weights[2] - weights[1]) > _JUMP)
