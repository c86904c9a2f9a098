"""Linear solvers, block solvers and optimization algorithms by g2o's names.

They are configurations of ours: a linear solver class says which of our linear solvers is used (sparse
Cholesky, dense Cholesky, PCG). The dimensions in the names of block solvers do not matter here: every block
may have any size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from graphopt.errors import OptionError
from graphopt.optimizer.dogleg import Dogleg
from graphopt.optimizer.gauss_newton import GaussNewton
from graphopt.optimizer.levenberg_marquardt import LevenbergMarquardt
from graphopt.optimizer.options import DoglegOptions, GaussNewtonOptions, LevenbergMarquardtOptions

if TYPE_CHECKING:
    from graphopt.g2o.active_graph import ActiveGraph


class LinearSolver:
    """Which linear solver to use."""

    __slots__ = ("_block_ordering", "_write_debug")
    _linear_solver: ClassVar[str] = "auto"

    def __init__(self) -> None:
        self._block_ordering = True
        self._write_debug = False

    def set_block_ordering(self, value: bool) -> None:
        """Kept for programs: our ordering is always by blocks."""
        self._block_ordering = bool(value)

    def block_ordering(self) -> bool:
        """What `set_block_ordering` set."""
        return self._block_ordering

    def set_write_debug(self, value: bool) -> None:
        """Kept for programs: failing systems are not written to files."""
        self._write_debug = bool(value)

    def write_debug(self) -> bool:
        """What `set_write_debug` set."""
        return self._write_debug


SUFFIXES = ("X", "SE2", "SE3", "Sim3")
"""Dimension names: X any, SE2 = (3, 2), SE3 = (6, 3), Sim3 = (7, 3)."""
_BACKENDS = {
    "Eigen": "cholesky",
    "Cholmod": "cholesky",
    "CSparse": "cholesky",
    "Dense": "dense",
    "PCG": "pcg",
}

LINEAR_SOLVERS: dict[str, type[LinearSolver]] = {}
"""Name -> class."""
for _backend, _ours in _BACKENDS.items():
    for _suffix in SUFFIXES:
        _name = f"LinearSolver{_backend}{_suffix}"
        LINEAR_SOLVERS[_name] = type(
            _name,
            (LinearSolver,),
            {
                "__slots__": (),
                "_linear_solver": _ours,
                "__module__": __name__,
                "__doc__": f"Solve with our {_ours}.",
            },
        )


class Solver:
    """A block solver."""

    __slots__ = ("_additional", "_levenberg", "_linear", "_optimizer", "_write_debug")
    _suffix: ClassVar[str] = "X"

    def __init__(self, linear_solver: LinearSolver) -> None:
        if not isinstance(linear_solver, LinearSolver):
            raise TypeError(f"{type(self).__name__} takes a linear solver, got {linear_solver!r}.")
        self._linear = linear_solver
        self._optimizer: ref[ActiveGraph] | None = None
        self._write_debug = False
        self._levenberg = False
        self._additional = 0

    def linear_solver(self) -> LinearSolver:
        """The linear solver."""
        return self._linear

    def optimizer(self) -> ActiveGraph | None:
        """The optimizer that uses this block solver."""
        return None if self._optimizer is None else self._optimizer()

    def set_optimizer(self, optimizer: ActiveGraph | None) -> None:
        """Note the optimizer; `SparseOptimizer.set_algorithm` does it."""
        self._optimizer = None if optimizer is None else ref(optimizer)

    def supports_schur(self) -> bool:
        """Marginalized vertices are eliminated."""
        return True

    def write_debug(self) -> bool:
        """What `set_write_debug` set."""
        return self._write_debug

    def set_write_debug(self, value: bool) -> None:
        """Kept for programs: failing systems are not written to files."""
        self._write_debug = bool(value)

    def levenberg(self) -> bool:
        """What `set_levenberg` set."""
        return self._levenberg

    def set_levenberg(self, value: bool) -> None:
        """Kept for programs: the algorithm decides about damping."""
        self._levenberg = bool(value)

    def additional_vector_space(self) -> int:
        """What `set_additional_vector_space` set."""
        return self._additional

    def set_additional_vector_space(self, value: int) -> None:
        """Kept for programs."""
        self._additional = int(value)

    def _last(self) -> Any:
        optimizer = self.optimizer()
        if optimizer is None:
            raise OptionError(
                "This block solver belongs to no optimizer yet; see SparseOptimizer.set_algorithm."
            )
        return optimizer.block_solver()

    def vector_size(self) -> int:
        """Length of x and b of the last optimization."""
        return len(self._last().b)

    def x(self) -> Any:
        """(vector_size,) last solution."""
        return self._last().dx.copy()

    def b(self) -> Any:
        """(vector_size,) last right-hand side."""
        return self._last().b.copy()


BlockSolverBase = PyBlockSolverBase = Solver

BLOCK_SOLVERS: dict[str, type[Solver]] = {
    f"BlockSolver{suffix}": type(
        f"BlockSolver{suffix}",
        (Solver,),
        {
            "__slots__": (),
            "_suffix": suffix,
            "__module__": __name__,
            "__doc__": f"Block solver over a LinearSolver*{suffix} (or any other linear solver).",
        },
    )
    for suffix in SUFFIXES
}
"""Name -> class."""


class OptimizationAlgorithm:
    """An optimization algorithm over a block solver."""

    __slots__ = ("_options", "_rules", "_solver")
    _options_type: ClassVar[Any]
    _algorithm_type: ClassVar[Any]
    _name: ClassVar[str] = ""

    def __init__(self, solver: Solver) -> None:
        if not isinstance(solver, Solver):
            raise TypeError(f"{type(self).__name__} takes a block solver, got {solver!r}.")
        self._solver = solver
        self._options: dict[str, Any] = {}
        self._rules: tuple[Any, Any] | None = None  # of the last optimization, and what they were made of

    def solver(self) -> Solver:
        """The block solver."""
        return self._solver

    def set_write_debug(self, value: bool) -> None:
        """Kept for programs; see `Solver.set_write_debug`."""
        self._solver.set_write_debug(value)

    def write_debug(self) -> bool:
        """What `set_write_debug` set."""
        return self._solver.write_debug()

    def _make(self, iterations: int) -> tuple[Any, Any]:
        """(stop rules, our algorithm)."""
        if self._rules is None or self._rules[0] != (iterations, self._options):
            rules = self._options_type(max_iterations=iterations, **self._options)
            self._rules = ((iterations, dict(self._options)), rules)
        return self._rules[1], self._algorithm_type(self._rules[1])


OptimizationAlgorithmWithHessian = OptimizationAlgorithm


class OptimizationAlgorithmGaussNewton(OptimizationAlgorithm):
    """Gauss-Newton."""

    __slots__ = ()
    _options_type, _algorithm_type, _name = GaussNewtonOptions, GaussNewton, "gn"


class OptimizationAlgorithmLevenberg(OptimizationAlgorithm):
    """Levenberg-Marquardt."""

    __slots__ = ("_last",)
    _options_type, _algorithm_type, _name = LevenbergMarquardtOptions, LevenbergMarquardt, "lm"

    def _make(self, iterations: int) -> tuple[Any, Any]:
        rules, self._last = super()._make(iterations)
        return rules, self._last

    def set_user_lambda_init(self, value: float) -> None:
        """First damping; 0 computes it from H."""
        self._options["initial_lambda"] = float(value)

    def user_lambda_init(self) -> float:
        """First damping, 0 for computed."""
        return float(self._options.get("initial_lambda", 0.0))

    def set_max_trials_after_failure(self, value: int) -> None:
        """Trials in one iteration before giving up."""
        self._options["max_trials"] = int(value)

    def max_trials_after_failure(self) -> int:
        """Trials in one iteration before giving up."""
        return int(self._options.get("max_trials", LevenbergMarquardtOptions().max_trials))

    def current_lambda(self) -> float:
        """Damping at the end of the last `optimize`, -1 before the first."""
        last = getattr(self, "_last", None)
        return -1.0 if last is None else float(last._lambda)


class OptimizationAlgorithmDogleg(OptimizationAlgorithm):
    """Powell's dogleg."""

    __slots__ = ("_last",)
    _options_type, _algorithm_type, _name = DoglegOptions, Dogleg, "dl"

    def _make(self, iterations: int) -> tuple[Any, Any]:
        rules, self._last = super()._make(iterations)
        return rules, self._last

    def trust_region(self) -> float:
        """Radius at the end of the last `optimize`, -1 before the first."""
        last = getattr(self, "_last", None)
        return -1.0 if last is None else float(last._delta)
