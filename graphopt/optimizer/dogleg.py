"""Powell's dogleg as in g2o 2.3 (`OptimizationAlgorithmDogleg`).

    h_sd = (b'b / b'Hb) b             steepest descent to the minimum along b
    h_gn = inv(H) b                   Gauss-Newton
    h    = h_gn                       where |h_gn| < delta
           delta h_sd / |h_sd|        where |h_sd| > delta
           h_sd + beta (h_gn - h_sd)  else, beta such that |h| = delta
    rho  = (chi2 - chi2_new) / (2 b'h - h'Hh)
    rho > 3/4: delta <- max(delta, 3 |h|);   rho < 1/4: delta <- delta / 2;   rho > 0: accept

If H is once not positive definite, h_gn is damped from then on. Where g2o gives up, at a damping of 1e3, it
goes on to the largest diagonal entry of H: 1e3 is nothing where pixels and radians make entries of 1e20.

`ScaledDogleg` is Ceres' (TRADITIONAL_DOGLEG): the same in coordinates sqrt(diag(H)) dx, in which pixels,
radians and metres weigh alike, with h_gn damped by 1e-8 diag(H), more where H is not positive definite.

g2o multiplies by H_pp only when vertices are marginalized; here it is the whole H.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.linear.vectors import dot, norm
from graphopt.optimizer.algorithm import Outcome, Signals, Step, predicted_relative_decrease
from graphopt.optimizer.methods import Method
from graphopt.optimizer.options import DoglegOptions
from graphopt.optimizer.scaled_damping import LARGEST_DIAGONAL, SMALLEST_DIAGONAL
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.trial import Damping

_MIN_LAMBDA, _MAX_LAMBDA = kernels.LoopConstants.MIN_LAMBDA, kernels.LoopConstants.MAX_LAMBDA
_LEAST_GAIN = kernels.LoopConstants.LEAST_LINEAR_GAIN
_MOST_DAMPINGS = 1000  # tried from one linearization
_LEAST_MU, _MOST_MU = 1e-8, 1.0  # of Ceres: damping of h_gn, times diag(H)


class Dogleg:
    """Powell's dogleg; see the module's header."""

    note = ""
    multiplies = True

    def __init__(self, options: DoglegOptions):
        self.options = options
        self.last_step = "Undefined"
        """g2o's name of the last step tried: GN, Descent or Dogleg."""
        self.resume()

    def native_method(self) -> tuple[Any, Callable[[], None]]:
        """See `native_loop`."""
        method = kernels.Dogleg(self.options)
        method.delta, method.damping = self._delta, self._lambda
        method.was_positive_definite = self._was_positive_definite

        def give_back() -> None:
            self._delta, self._lambda = method.delta, method.damping
            self._was_positive_definite = method.was_positive_definite

        return method, give_back

    def start(self, solver: BlockSolver, chi2: float) -> None:
        """Remember the block solver."""
        self.solver = solver
        self.chi2 = chi2

    @property
    def delta(self) -> float:
        """Radius of the trust region."""
        return self._delta

    def damping(self) -> Damping:
        """Nothing, while H is positive definite."""
        return Damping(0.0 if self._was_positive_definite else self._lambda)

    def resume(self) -> None:
        """As at the start."""
        self._delta = self.options.initial_delta
        self._lambda = self.options.initial_lambda
        self._was_positive_definite = True

    def loosen(self, tolerance: float) -> bool:
        """Back to the first radius, if it is smaller and a Gauss-Newton step promises more."""
        if (
            self._delta >= self.options.initial_delta
            or predicted_relative_decrease(self.solver, tolerance) <= tolerance
        ):
            return False
        self._delta = self.options.initial_delta
        return True

    def step(self, iteration: int, signals: Signals) -> Step:
        """Shrink the trust region until a step lowers chi2."""
        solver, options = self.solver, self.options
        current = solver.linearize()
        b = solver.b.copy()
        scales = self._scales()
        slope = b / scales
        curvature = dot(slope / scales, solver.multiply(slope / scales))
        steepest = slope * (dot(slope, slope) / curvature if curvature > 0.0 else 0.0)
        if not self._solve_gauss_newton():
            return Step(Outcome.LINEAR_SOLVER_FAILURE, current, self._lambda, 1)
        newton = solver.dx * scales
        trials, accepted, step = 0, False, newton
        while not accepted and trials < options.max_trials and not (trials and signals.should_stop()):
            trials += 1
            self.last_step = _step_type(steepest, newton, self._delta)
            step = _dogleg_step(steepest, newton, self._delta)
            accepted, chi2 = self._trial(step, step / scales, current, b)
            if accepted:
                current = chi2
        self.chi2 = current
        damping = self.damping().value or None
        if trials >= options.max_trials or not accepted:
            return Step(Outcome.NO_IMPROVEMENT, current, damping, trials)
        return Step(Outcome.CONTINUE, current, damping, trials, float(np.abs(step / scales).max()))

    def _scales(self) -> np.ndarray | float:
        """Of dx in the norm of the trust region."""
        return 1.0

    def _solve_gauss_newton(self) -> bool:
        """Solve H dx = b, damped if H was ever indefinite; False beyond the largest damping."""
        solver = self.solver
        for _ in range(_MOST_DAMPINGS):
            solved = solver.solve(0.0 if self._was_positive_definite else self._lambda)
            self._was_positive_definite &= solved
            if solved:
                if not self._was_positive_definite:
                    self._lambda = max(_MIN_LAMBDA, self._lambda / (0.5 * self.options.lambda_factor))
                return True
            self._lambda *= self.options.lambda_factor
            if self._lambda > _MAX_LAMBDA and not self._lambda <= solver.largest_diagonal() < np.inf:
                break
        self._lambda = min(self._lambda, _MAX_LAMBDA)
        return False

    def _trial(
        self, scaled: np.ndarray, step: np.ndarray, current: float, b: np.ndarray
    ) -> tuple[bool, float]:
        """Take the step, keep it if rho > 0, and adapt the trust region."""
        solver = self.solver
        linear_gain = 2.0 * dot(b, step) - dot(step, solver.multiply(step))
        if abs(linear_gain) < _LEAST_GAIN:
            linear_gain = _LEAST_GAIN
        solver.dx = step
        chi2 = solver.move().chi2
        rho = (current - chi2) / linear_gain
        if linear_gain < 0.0 and solver.precision == "mixed":
            rho = -np.inf  # rounding made the model rise along its own descent
        if rho > 0.0:
            solver.discard_top()
        else:
            solver.pop()
        if rho > 0.75:
            self._delta = max(self._delta, 3.0 * norm(scaled))
        elif not rho >= 0.25:  # also NaN
            self._delta *= 0.5
        return rho > 0.0, chi2


class ScaledDogleg(Dogleg):
    """Ceres' dogleg; see the module's header."""

    def damping(self) -> Damping:
        """Of h_gn."""
        return Damping(self._lambda, True, SMALLEST_DIAGONAL, LARGEST_DIAGONAL)

    def _scales(self) -> np.ndarray:
        return np.sqrt(np.clip(self.solver.diagonal, SMALLEST_DIAGONAL, LARGEST_DIAGONAL))

    def _solve_gauss_newton(self) -> bool:
        self._lambda = max(_LEAST_MU, 2.0 * self._lambda / self.options.lambda_factor)
        while self._lambda <= _MOST_MU:
            if self.solver.solve(self._lambda * self._scales() ** 2):
                return True
            self._lambda *= self.options.lambda_factor
        return False


def _step_type(steepest: np.ndarray, newton: np.ndarray, delta: float) -> str:
    """g2o's name of the part of the dogleg path that ends at radius delta."""
    if norm(newton) < delta:
        return "GN"
    return "Descent" if norm(steepest) > delta else "Dogleg"


def _dogleg_step(steepest: np.ndarray, newton: np.ndarray, delta: float) -> np.ndarray:
    """The dogleg path's point at radius delta."""
    if norm(newton) < delta:
        return newton
    steepest_norm = norm(steepest)
    if steepest_norm > delta:
        return steepest * (delta / steepest_norm)
    leg = newton - steepest
    c = dot(steepest, leg)
    leg_squared = dot(leg, leg)
    missing = delta * delta - steepest_norm * steepest_norm
    root = np.sqrt(c * c + leg_squared * missing)
    beta = (-c + root) / leg_squared if c <= 0.0 else missing / (c + root)
    return steepest + beta * leg


def make(options: DoglegOptions) -> Dogleg:
    """The one that the options ask for."""
    return ScaledDogleg(options) if options.scaled else Dogleg(options)


METHOD = Method(make, DoglegOptions)
