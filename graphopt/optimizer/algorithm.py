"""What every optimization algorithm shares: the step it reports, the signals it listens to, an honest end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.trial import Damping


class Outcome(Enum):
    """How a step ended."""

    CONTINUE = auto()
    CONVERGED = auto()
    NO_IMPROVEMENT = auto()
    GIVEN_UP = auto()
    UNBOUNDED = auto()
    LINEAR_SOLVER_FAILURE = auto()
    NON_FINITE = auto()


@dataclass(frozen=True)
class Step:
    """What one iteration of an algorithm did."""

    outcome: Outcome
    chi2: float
    """At the estimate the iteration ended with."""
    lambda_: float | None
    trials: int
    step_size: float = float("inf")
    """Largest entry of the accepted dx; infinite if none was accepted."""
    settles_chi2: bool = False
    """The algorithm looks at chi2's tolerance itself and says CONVERGED."""
    restart_seconds: float = 0.0
    """Time spent on finding estimates in another way."""


class Signals(Protocol):
    """Asks an algorithm to end its iteration early."""

    def should_stop(self) -> bool:
        """Looked at before each trial but the first."""
        ...


class Algorithm(Protocol):
    """One optimization algorithm; `step` leaves the estimate at the point it accepted."""

    note: str
    """What the user should know about the run, a sentence or nothing."""

    def start(self, solver: BlockSolver, chi2: float) -> None:
        """Called once, before the first step, with chi2 at the start."""
        ...

    def damping(self) -> Damping:
        """What the next step would be damped by first, before its length is limited."""
        ...

    def resume(self) -> None:
        """The solver computes in double from here on: forget what failed steps did to dampings and radii."""
        ...

    def step(self, iteration: int, signals: Signals) -> Step:
        """Linearize at the estimate, try steps, accept one."""
        ...

    def loosen(self, tolerance: float) -> bool:
        """Asked before a small decrease ends a run: whether damping is what made it small.

        True: a step that is hardly held back promises to lower chi2 by more than `tolerance` of it, and the
        next one will be such a step.
        """
        ...


class AlgorithmBase:
    """What an algorithm needs beside `step`, for one whose steps are not held back by anything it remembers.

    `start` leaves the block solver in `solver` and chi2 in `chi2`, which `step` keeps up to date.
    """

    note = ""

    def __init__(self, options: Any):
        self.options = options

    def start(self, solver: BlockSolver, chi2: float) -> None:
        """Remember the block solver."""
        self.solver = solver
        self.chi2 = chi2

    def damping(self) -> Damping:
        """None at all."""
        return Damping(0.0)

    def resume(self) -> None:
        """There is nothing to forget."""

    def first_looks(self, structure: Structure) -> list[tuple[EdgeGroup, int]]:
        """Groups and slots whose chi2 by vertex the first iteration asks for."""
        return []

    def first_damping(self, structure: Structure, chi2: float) -> Damping | None:
        """Of the first trial from a start with this chi2; None where that needs H."""
        return None

    def loosen(self, tolerance: float) -> bool:
        """No: its steps are never held back."""
        return False


_BELOW_ZERO = 1e-6  # chi2 below minus this, and this times that of the start, is no rounding


def is_below_zero(chi2: float, initial_chi2: float) -> bool:
    """chi2 is negative beyond rounding, which no sum of squares is: an information matrix is indefinite."""
    return chi2 < -_BELOW_ZERO * (1.0 + abs(initial_chi2))


PROBES = kernels.LoopConstants.PROBES
"""Dampings, times diag(H), that hold nothing back: the first one with which H is definite is taken."""
_ACCURACY = 0.1  # of conjugate gradients in a probe


def predicted_relative_decrease(solver: BlockSolver, tolerance: float) -> float:
    """By what share a step that is hardly damped promises to lower chi2; 0 if there is none."""
    chi2 = solver.linearize()
    for value in PROBES:
        trial = solver.trial(Damping(value, True, accuracy=_ACCURACY, worth=_ACCURACY * tolerance * chi2))
        if trial.solved:
            solver.pop()
            return trial.gain / chi2 if np.isfinite(trial.gain) and trial.gain > 0.0 and chi2 > 0.0 else 0.0
    return 0.0
