"""Actions that run before or after each iteration, the terminate action, and the stop flag."""

from __future__ import annotations

from typing import Any

from graphopt.g2o.elements.base import native


class Flag:
    """A bool that another thread may set while `optimize` runs; see `SparseOptimizer.set_force_stop_flag`."""

    __slots__ = ("value",)

    def __init__(self, value: bool = False) -> None:
        self.value = bool(value)

    def __bool__(self) -> bool:
        return self.value

    def __repr__(self) -> str:
        return f"Flag({self.value})"


class HyperGraphAction:
    """Something to call at each iteration; override `__call__(graph, parameters)`.

    `parameters["iteration"]` is the number of the iteration, -1 before the first.
    """

    def __call__(self, graph: Any, parameters: Any = None) -> Any:
        """Override it."""
        return graph


class SparseOptimizerTerminateAction(HyperGraphAction):
    """Stops when an iteration gains too little: (last - chi2) / chi2 in [0, gain_threshold)."""

    def __init__(self) -> None:
        self._gain_threshold = 1e-6
        self._max_iterations = 2**31 - 1
        self._last_chi2 = 0.0

    def gain_threshold(self) -> float:
        """Relative gain below which to stop."""
        return self._gain_threshold

    def set_gain_threshold(self, value: float) -> None:
        """Set the relative gain below which to stop."""
        self._gain_threshold = float(value)

    def max_iterations(self) -> int:
        """Iterations at most."""
        return self._max_iterations

    def set_max_iterations(self, value: int) -> None:
        """Set the iterations at most."""
        self._max_iterations = int(value)

    def __call__(self, graph: Any, parameters: Any = None) -> bool:
        """Look at chi2 after an iteration."""
        iteration = -1 if parameters is None else int(parameters["iteration"])
        if iteration < 0:
            graph._action_stop = False
            return True
        chi2 = native(graph).active_robust_chi2(graph)
        stop = iteration >= self._max_iterations
        if iteration > 0 and not stop:
            gain = (self._last_chi2 - chi2) / chi2 if chi2 else 0.0
            stop = 0.0 <= gain < self._gain_threshold
        self._last_chi2 = chi2
        if stop:
            graph._action_stop = True
        return True
