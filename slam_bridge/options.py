"""What all optimizations of a map have in common: where and how they run, what counts as an outlier."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import graphopt
from graphopt.errors import OptionError
from graphopt.optimizer import options as rules


@dataclass(frozen=True)
class SolveOptions:
    """Options of every function in `slam_bridge.problems`."""

    device: str = "auto"
    """"cpu", "vulkan", "vulkan:1", ...; "auto" takes a GPU where it is faster."""
    configuration: str | None = None
    """Named set of solver options, such as "PCG Implicit (GPU)" (`graphopt.solver.configurations`)."""
    linear_solver: str = "auto"
    schur: str = "auto"
    precision: str = "auto"
    """"double" or "mixed"; these three as in `graphopt.optimize`."""
    schedule: str | Mapping[str, str] = "auto"
    """How a GPU evaluates edges, for all or by edge type's tag, as in `graphopt.optimize`."""
    method: str = "lm"
    """"lm", "gn", "dogleg" or "auto"."""
    iterations: int = 10
    """Of each round, at most; rounds after the first go on with the damping of the one before ("lm")."""
    function_tolerance: float = 1e-6
    """A round ends when a step changes chi2 by no more than this fraction of it; 0: never."""
    rounds: int = 2
    """Optimizations at most. Before each but the first, observations are judged anew: inliers take part."""
    kernel: str | None = "Huber"
    """Robust kernel of observations; None: none."""
    confidence: float = 0.95
    """An observation whose chi2 lies beyond this quantile is an outlier; also the kernel's width."""
    imu_confidence: float = 0.999999
    """The same of an IMU measurement: its kernel's width, and beyond 9 times its chi2 it is rejected."""
    time_limit: float | None = None
    """[s] of the whole call; what was reached by then is the result."""
    stop: threading.Event | Any = None
    """An object with `is_set()`; another thread may set it. What was reached by then is the result."""
    update: bool = True
    """Write the result into the map."""

    def __post_init__(self) -> None:
        for name, low in (("iterations", 0), ("rounds", 1)):
            if getattr(self, name) < low:
                raise OptionError(f"SolveOptions.{name} is {getattr(self, name)}, must be at least {low}.")
        for name in ("confidence", "imu_confidence"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise OptionError(f"SolveOptions.{name} is {getattr(self, name)}, must be between 0 and 1.")
        if self.method not in RULES:
            raise OptionError(f"SolveOptions.method is {self.method!r}, expected one of {', '.join(RULES)}.")
        if self.time_limit is not None and not self.time_limit > 0.0:
            raise OptionError(f"SolveOptions.time_limit is {self.time_limit}, must be > 0 seconds.")

    def with_changes(self, **changes: Any) -> SolveOptions:
        """The same options but for these."""
        return replace(self, **changes)


RULES: dict[str, type[rules.StopRules]] = {
    "lm": rules.LevenbergMarquardtOptions,
    "gn": rules.GaussNewtonOptions,
    "dogleg": rules.DoglegOptions,
    "auto": rules.AutoOptions,
}


class Clock:
    """Seconds by phase, and what is left of a time limit."""

    def __init__(self, options: SolveOptions):
        if not isinstance(options, SolveOptions):
            raise OptionError(f"options is {options!r}, expected SolveOptions(...).")
        self._options = options
        self._start = self._last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @property
    def options(self) -> SolveOptions:
        """With the time limit and the stop flag."""
        return self._options

    def lap(self, phase: str) -> None:
        """Book the time since the last call on a phase."""
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now

    def book(self, summary: graphopt.Summary) -> None:
        """Book an optimization that just ended on its own phases."""
        self.lap("optimize")
        for name, value in summary.seconds.items():
            if name not in ("total", "read", "other") and value:
                self.seconds["optimize"] -= value
                self.seconds[name] = self.seconds.get(name, 0.0) + value

    @property
    def is_over(self) -> bool:
        """The time limit is reached or the stop flag is set."""
        if self._options.stop is not None and self._options.stop.is_set():
            return True
        limit = self._options.time_limit
        return limit is not None and time.perf_counter() - self._start >= limit

    @property
    def left(self) -> float | None:
        """Seconds up to the time limit; None without one."""
        limit = self._options.time_limit
        return None if limit is None else max(limit - (time.perf_counter() - self._start), 1e-6)

    def limits(self) -> dict[str, Any]:
        """What is left of the time limit, and the stop flag, for `graphopt.optimize`."""
        return {"time_limit": self.left, "stop": self._options.stop}

    def total(self) -> dict[str, float]:
        """All phases and their sum."""
        return {**self.seconds, "total": time.perf_counter() - self._start}


def is_usable(summary: graphopt.Summary) -> bool:
    """An estimate to go on with: what was reached when the stop flag was set is one."""
    return summary.is_usable or summary.termination is graphopt.TerminationType.USER_STOP


def was_stopped(summary: graphopt.Summary) -> bool:
    """A time limit or the stop flag ended it."""
    early = graphopt.TerminationType.TIME_LIMIT, graphopt.TerminationType.USER_STOP
    return summary.termination in early


def has_begun(summary: graphopt.Summary) -> bool:
    """Not so: a time limit or the stop flag ended it before its first step."""
    return bool(summary.iterations) or not was_stopped(summary)


NOT_BEGUN = "Stopped before the first step; the map is as it was."


def optimize(
    graph: graphopt.Graph, options: SolveOptions, clock: Clock, before: graphopt.Summary | None = None
) -> graphopt.Summary:
    """`graphopt.optimize` as these options say; nothing is fixed that the graph does not fix.

    before: the round before this one, whose damping goes on. From g2o's first damping ten iterations are too
    few for what residuals hardly see, such as the scale of a slow walk, however many rounds there are.
    """
    kind = RULES[options.method]
    tolerance: dict[str, Any] = {"function_tolerance": options.function_tolerance}
    if kind is rules.LevenbergMarquardtOptions and before is not None:
        dampings = [iteration.lambda_ for iteration in before.iterations if iteration.lambda_]
        tolerance |= {"initial_lambda": min(dampings)} if dampings else {}
    summary = graphopt.optimize(
        graph,
        options.method,
        options=kind(max_iterations=options.iterations, **tolerance),
        device=options.device,
        configuration=options.configuration,
        linear_solver=options.linear_solver,
        schur=options.schur,
        precision=options.precision,
        schedule=options.schedule,
        fix="none",
        look_behind=False,  # windows judge who is ahead of the cameras themselves
        time_limit=clock.left,
        stop=options.stop,
    )
    clock.book(summary)
    return summary
