"""`auto`: this library's own trust-region schedule.

Two ways to limit a step, chosen by the problem:

* **Dogleg** (`TrustRegion`), for poses and points without elimination. It starts with an unlimited radius,
  that is with Gauss-Newton, which takes pose graphs to their minimum in few iterations, and limits the step
  only when chi2 rises. A rejected step costs no new factorization: the shorter step is a point on the path
  from steepest descent to Gauss-Newton, and its predicted gain follows from scalar products.
* **Damping scaled by the diagonal of H** (`ScaledDamping`), where vertices are marginalized (bundle
  adjustment) or hold numbers of different units. It limits weak directions, such as a scale that nothing
  fixes, more than strong ones.

Where the first iterations gain little, the start is poor. Then a convex relaxation of the whole problem
(`strategies.relaxation`) is solved, and its estimates are taken if chi2 is lower there: large loops that no
local method closes, and fewer iterations for the others.

At the end of such runs the relaxation may prove that no other minimum is much lower (`Relaxation.gap`). Where
it does not, and where robust kernels are not convex, g2o's methods run from the start as well, and the lowest
point of all is kept (`multi_start`): a jump that lowers chi2 is not always worth it in the end. So do bundle
adjustments of up to 50,000 edges where kernels are bounded (an outlier pulls no more, so all may become one)
or chi2 is far above noise.

Neither is done in large problems where chi2 of the start is the number of residuals, or chi2 of the end the
number of residuals less that of unknowns, within the spread of the chi-square distribution: then the start is
the truth, or the end explains all measurements to their noise.

Where chi2 first falls slowly, and again before the end if that helped, eliminated landmarks with a large
chi2 are tried in other places (`strategies.retriangulation`): a few of them behind their cameras or far away
make all others wait, and no joint step brings them back. At the start this is done where they hold most of
chi2. Where kernels are not convex, landmarks are tried in their other minima at the end.

Where closures contradict each other, chi2 may creep for hundreds of expensive iterations: such a run is given
up (`AutoOptions.patience`), and says so.

It ends when chi2 falls by less than `function_tolerance`. The dogleg converges fast enough to wait for the
minimum in all digits as well: the last two decreases, taken as a geometric series, must promise less than
`remaining_tolerance`. Of damped steps the quadratic model must promise as little with a weak lambda, or some
steps in a row be small: landmarks that recede for ever would keep them going.

All accept only what lowers chi2, so the estimate is the best one at any time. Quaternions of files with few
digits are made unit before (`unit_quaternions`); chi2 below zero (indefinite information) ends it.

References: Powell 1970 (dogleg); Marquardt 1963; Nielsen IMM-REP-1999-05; Ceres Solver (initial radius 1e4).
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from graphopt.optimizer.algorithm import Algorithm, AlgorithmBase, Outcome, Step, is_below_zero
from graphopt.optimizer.methods import Method
from graphopt.optimizer.options import AutoOptions
from graphopt.optimizer.scaled_damping import ScaledDamping
from graphopt.optimizer.signals import StopSignals
from graphopt.optimizer.trust_region import TrustRegion
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.capabilities import capabilities_of, factor_flops_of, snapshot
from graphopt.solver.cpu import SMALL_DIM
from graphopt.solver.trial import Damping
from graphopt.strategies.multi_start import MultiStart, has_convex_kernels, has_unbounded_kernels
from graphopt.strategies.relaxation import Relaxation
from graphopt.strategies.retriangulation import images_of_landmarks, retriangulate_landmarks

_POSES_AND_POINTS = ("pose", "point")  # roles whose units are metres and radians
_LARGEST_RATIO = 0.99  # of two decreases in a row, for the sum of those to come
_DOMINANT = 0.5  # of chi2 at the start: if landmarks in wrong places hold more, they are moved first
_SLOW = 0.01  # relative decrease of chi2 at which landmarks in wrong places hold the others up
_FAR, _FALLS = 0.05, 1e-3  # chi2 after three iterations creeps: part of the start left, and not converged
_LONG = 0.75  # of max_iterations: then a run without an end is compared with others
_PROVEN = 0.9  # of the relaxation's cost: what a minimum may be above the best of all
_EXACT = 1e-13  # of chi2: what a small system may leave, where a further iteration costs next to nothing
_CONSISTENT = 2.0  # chi2 per residual that noise explains
_CONTRADICTION = 10.0  # chi2 per residual that no noise explains
_AFFORDABLE = 50_000  # edges up to which damped runs of wrong measurements are compared with others
_CREEPING, _FEWEST = 0.1, 5  # relative decrease of chi2 that patience waits for, iterations at least
_MANY, _SIGMAS = (
    10_000,
    5.0,
)  # degrees of freedom from which chi2's agreement with them within these is a proof
_LOOKS = 3  # for minima of landmarks by kernels that are not convex, each where the run would end
_ROUNDING = 1e-28  # chi2 below this fraction of its start is rounding error


def has_uniform_units(structure: Structure) -> bool:
    """Every optimized vertex is a pose or a point of a map, and none is eliminated."""
    return structure.num_kept == structure.num_blocks and all(
        vertex_set.type.role in _POSES_AND_POINTS
        for vertex_set, blocks in zip(structure.selection.vertex_sets, structure.vertex_blocks, strict=True)
        if (blocks >= 0).any()
    )


def _is_noise(chi2: float, freedom: int) -> bool:
    """chi2 is what noise alone makes, as the chi-square distribution says, and that is no accident."""
    return freedom >= _MANY and abs(chi2 - freedom) <= _SIGMAS * np.sqrt(2.0 * freedom)


class Auto(AlgorithmBase):
    """Chooses the algorithm when the problem is known."""

    def __init__(self, options: AutoOptions):
        self.options = options
        self.note = ""
        self._algorithm: Algorithm | None = None
        self._chi2 = self._initial_chi2 = 0.0
        self._decrease = np.inf
        self._relaxation: Relaxation | None = None
        self._start: list[np.ndarray] | None = None
        self._jumped = self._has_multi_started = self._is_small = self._is_affordable = False
        self._loosened_at = np.inf
        self._num_retriangulated = self._num_looks = 0
        self._looked_early = False
        self._creeping: list[float] = []
        """chi2 from where it was last higher by more than `_CREEPING` on."""

    def start(self, solver: BlockSolver, chi2: float) -> None:
        """Pick by what the block solver says about the problem."""
        self._solver = solver
        self._chi2 = self._initial_chi2 = chi2
        # a damped step within bounds is the minimum of its model, a shortened one is not
        uniform = has_uniform_units(solver.structure) and not capabilities_of(solver).keeps_bounds
        self._algorithm = TrustRegion(self.options) if uniform else ScaledDamping(self.options)
        self._algorithm.start(solver, chi2)
        structure = solver.structure
        self._is_small = structure.dim <= SMALL_DIM and structure.num_kept == structure.num_blocks
        self._is_affordable = structure.num_edges <= _AFFORDABLE
        may_multi_start = self.options.contest and (uniform or self._is_small or self._is_affordable)
        self._start = snapshot(solver) if may_multi_start else None

    def first_looks(self, structure: Structure) -> list[tuple[EdgeGroup, int]]:
        """Groups and slots whose chi2 by vertex the first iteration asks for."""
        is_asked = np.isfinite(self.options.reseat_gain) and structure.num_kept < structure.num_blocks
        return images_of_landmarks(structure) if is_asked else []

    def first_damping(self, structure: Structure, chi2: float) -> Damping | None:
        """Of the first trial from a start with this chi2, where that is known before H is."""
        return None if has_uniform_units(structure) else ScaledDamping(self.options).damping_at_start(chi2)

    def damping(self) -> Damping:
        """The chosen algorithm's."""
        assert self._algorithm is not None
        return self._algorithm.damping()

    def resume(self) -> None:
        """The chosen algorithm's."""
        assert self._algorithm is not None
        self._decrease = np.inf
        self._algorithm.resume()

    def loosen(self, tolerance: float) -> bool:
        """The chosen algorithm's; `step` asks itself."""
        assert self._algorithm is not None
        return self._algorithm.loosen(tolerance)

    def step(self, iteration: int, signals: StopSignals) -> Step:
        """One iteration of the chosen algorithm; it may end at estimates found in another way."""
        assert self._algorithm is not None
        before = self._chi2
        waste = 0.0
        if iteration == 0 and self._has_landmarks():
            first = self._retriangulate(Step(Outcome.CONTINUE, before, None, 0), _DOMINANT)
            before, waste = first.chi2, first.restart_seconds
        step = self._algorithm.step(iteration, signals)
        step = replace(step, settles_chi2=True, restart_seconds=waste)
        if is_below_zero(step.chi2, self._initial_chi2):
            return replace(step, outcome=Outcome.UNBOUNDED)
        if self._is_stuck(iteration, before, step.chi2):
            step = self._relax(step)
        step = self._settle(step, before)
        if self._may_retriangulate(step, before):
            self._looked_early = True
            step = self._retriangulate(step, self.options.reseat_gain)
        if self._may_look_for_minima(step):
            self._num_looks += 1
            step = self._retriangulate(step, self.options.function_tolerance, minima=True)
        if step.outcome is Outcome.CONTINUE and self._is_hopeless(step.chi2):
            return self._give_up(step)
        if self._may_multi_start(step, iteration):
            step = self._multi_start(step, iteration, signals)
        self._chi2 = step.chi2
        return step

    def _settle(self, step: Step, before: float) -> Step:
        """CONVERGED if chi2 is rounding error, or has met its tolerance and would not fall much further."""
        if step.outcome is not Outcome.CONTINUE:
            return step
        decrease, last = before - step.chi2, self._decrease
        self._decrease = decrease
        tolerance = self.options.function_tolerance
        took_a_step = tolerance > 0.0 and np.isfinite(step.step_size)
        small = is_settled = took_a_step and decrease <= tolerance * before
        if small and isinstance(self._algorithm, TrustRegion):
            # the geometric series after `decrease`; without a decrease before it, only the next term
            ratio = min(decrease / last, _LARGEST_RATIO) if last > 0.0 else 0.0
            remaining = decrease * ratio / (1.0 - ratio)
            is_settled = remaining <= self.options.remaining_tolerance * before
        if took_a_step and isinstance(self._algorithm, ScaledDamping):
            is_settled = self._algorithm.has_settled(decrease, tolerance * before)
            if small and self._algorithm.refine():
                is_settled = False  # a coarse step falls short of what there is to gain
        left = min(tolerance, _EXACT) if self._is_small else tolerance
        is_settled = is_settled and not self._may_loosen(step, left)
        if is_settled or step.chi2 <= _ROUNDING * self._initial_chi2:
            return replace(step, outcome=Outcome.CONVERGED)
        return step

    def _may_loosen(self, step: Step, tolerance: float) -> bool:
        """Damping has made the decrease small, and the next step will be without."""
        assert self._algorithm is not None
        if step.chi2 >= (1.0 - tolerance) * self._loosened_at or not self._algorithm.loosen(tolerance):
            return False
        self._loosened_at = step.chi2
        return True

    def _is_stuck(self, iteration: int, before: float, chi2: float) -> bool:
        """The first iteration gained little; the third ended far above noise, or is still on its way."""
        if (
            self._relaxation is not None
            or iteration not in (0, 2)
            or not np.isfinite(self.options.relax_above)
        ):
            return False
        noise = self._num_residuals()
        if _is_noise(self._initial_chi2, noise):
            return False  # it started at the truth
        limited = isinstance(self._algorithm, TrustRegion) and self._algorithm.was_limited
        if self._initial_chi2 <= _CONSISTENT * noise and not limited:
            return False  # the start is as good as the measurements, and steps go where they should
        if iteration == 0:
            return chi2 > self.options.relax_above * self._initial_chi2
        creeps = chi2 > _FAR * self._initial_chi2 and before - chi2 > _FALLS * before
        return chi2 > noise or creeps

    def _num_residuals(self) -> int:
        groups = self._solver.structure.groups
        return sum(len(group.rows) * group.edge_set.type.residual_dim for group in groups)

    def _is_hopeless(self, chi2: float) -> bool:
        """It creeps far above noise, and has done so for long (`AutoOptions.patience`)."""
        if not isinstance(self._algorithm, TrustRegion) or self._solver.structure.has_kernels:
            return False
        last = [previous for previous in self._creeping if chi2 > (1.0 - _CREEPING) * previous]
        self._creeping = [*last, chi2]
        flops = factor_flops_of(self._solver)
        is_long = len(last) >= _FEWEST and len(last) * flops > self.options.patience
        return is_long and chi2 > _CONTRADICTION * self._num_residuals()

    def _give_up(self, step: Step) -> Step:
        ratio = step.chi2 / self._num_residuals()
        self.note = (
            f"chi2 is {ratio:.3g} per residual and fell by less than {_CREEPING:.0%} in the last "
            f"{len(self._creeping) - 1} iterations: some closures contradict the others. robust='graduated' "
            "finds out which; options=AutoOptions(patience=math.inf) goes on."
        )
        return replace(step, outcome=Outcome.GIVEN_UP)

    def _relax(self, step: Step) -> Step:
        """Go to the relaxation's estimates if chi2 is lower there than after `step`."""
        solver = self._solver
        solver.finish()
        start = time.perf_counter()
        self._relaxation = Relaxation(solver.structure)
        update = self._relaxation.step()
        step = replace(step, restart_seconds=step.restart_seconds + time.perf_counter() - start)
        if update is None:
            return step
        solver.dx = update
        chi2 = solver.move().chi2
        if not chi2 < step.chi2:
            solver.pop()
            return step
        solver.discard_top()
        self._jumped = True
        self.note = f"Went on from a convex relaxation, where chi2 is {chi2:.6g}."
        self._algorithm = TrustRegion(self.options)
        self._algorithm.start(solver, chi2)
        return replace(
            step, outcome=Outcome.CONTINUE, chi2=chi2, lambda_=None, trials=step.trials + 1, step_size=np.inf
        )

    def _may_multi_start(self, step: Step, iteration: int) -> bool:
        """It ends or takes long, in a minimum that may be one of several."""
        due = step.outcome in (Outcome.CONVERGED, Outcome.NO_IMPROVEMENT, Outcome.LINEAR_SOLVER_FAILURE)
        due |= iteration + 1 == max(int(_LONG * self.options.max_iterations), 1)
        if self._has_multi_started or self._start is None or not due:
            return False
        assert isinstance(self._algorithm, TrustRegion | ScaledDamping)
        structure = self._solver.structure
        if _is_noise(step.chi2, self._num_residuals() - structure.dim) and has_convex_kernels(structure):
            return False  # nothing is left to explain
        is_large_bundle = isinstance(self._algorithm, ScaledDamping) and not self._is_small
        if not has_convex_kernels(structure) and not (is_large_bundle and has_unbounded_kernels(structure)):
            return True
        if is_large_bundle:
            return step.chi2 > _CONTRADICTION * self._num_residuals()
        return self._jumped or self._algorithm.was_limited

    def _multi_start(self, step: Step, iteration: int, signals: StopSignals) -> Step:
        """Go on from the best point that other methods find, unless this one is known to be it."""
        assert self._start is not None and isinstance(self._algorithm, TrustRegion | ScaledDamping)
        solver = self._solver
        if not solver.structure.has_kernels and self._is_proven():
            return step
        self._has_multi_started = True
        uniform = isinstance(self._algorithm, TrustRegion)
        is_newton = uniform and not self._jumped and not self._algorithm.was_limited
        candidates = MultiStart(solver, self._start, signals, self.options.max_iterations)
        result = candidates.run(step.chi2, iteration + 1, is_newton, has_plateaus=uniform)
        step = replace(step, trials=step.trials + result.num_steps)
        if result.winner is None:
            return step
        self._decrease = np.inf
        self._algorithm.start(solver, result.chi2)
        if uniform:
            self._algorithm.resume()
        self.note = f"Went on from where {result.winner} led from the start, chi2 {result.chi2:.6g}."
        return replace(step, outcome=Outcome.CONTINUE, chi2=result.chi2, step_size=np.inf)

    def _is_proven(self) -> bool:
        """The relaxation shows that no other minimum is much lower."""
        self._relaxation = self._relaxation or Relaxation(self._solver.structure)
        if not self._relaxation.applies:
            return False
        self._solver.finish()
        return self._relaxation.gap() < _PROVEN

    def _has_landmarks(self) -> bool:
        """There are eliminated vertices, and their places are to be looked at."""
        structure = self._solver.structure
        return np.isfinite(self.options.reseat_gain) and structure.num_kept < structure.num_blocks

    def _may_retriangulate(self, step: Step, before: float) -> bool:
        """It has slowed down for the first time, or would end and the last look was not in vain."""
        if not self._has_landmarks():
            return False
        if step.outcome is Outcome.CONTINUE:
            slow = np.isfinite(step.step_size) and before - step.chi2 <= _SLOW * before
            return slow and not self._looked_early
        ending = step.outcome in (Outcome.CONVERGED, Outcome.NO_IMPROVEMENT)
        return ending and (self._num_retriangulated > 0 or not self._looked_early)

    def _may_look_for_minima(self, step: Step) -> bool:
        """It ends, and landmarks may be in one of several minima by kernels that are not convex."""
        ending = step.outcome in (Outcome.CONVERGED, Outcome.NO_IMPROVEMENT)
        structure = self._solver.structure
        may = ending and self._num_looks < _LOOKS and structure.num_kept < structure.num_blocks
        return may and not has_convex_kernels(structure)

    def _retriangulate(self, step: Step, share: float, minima: bool = False) -> Step:
        """Go on from better places of the landmarks if chi2 is lower by this share there."""
        assert self._algorithm is not None
        solver = self._solver
        start = time.perf_counter()
        result = retriangulate_landmarks(solver.structure, share * step.chi2, solver, minima)
        for number, rows in result.moved:
            solver.take(number, rows)
        seconds = step.restart_seconds + time.perf_counter() - start
        step = replace(step, restart_seconds=seconds)
        if not result.num_landmarks:
            return step
        chi2 = solver.chi2()
        self._num_retriangulated += result.num_landmarks
        self._decrease = np.inf
        self._algorithm.start(solver, chi2)
        self.note = f"Moved {self._num_retriangulated} landmarks to other places, each to a lower chi2."
        return replace(step, outcome=Outcome.CONTINUE, chi2=chi2, step_size=np.inf)


METHOD = Method(Auto, AutoOptions, has_tolerances=True)
