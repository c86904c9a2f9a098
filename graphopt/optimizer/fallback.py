"""Where a GPU that nobody asked for fails, in the middle of a run too, the CPU goes on."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, ParamSpec

from graphopt.linear.options import SolverOptions
from graphopt.optimizer.summary import Summary
from graphopt.solver.auto_device import FAILURES, may_stay, say_why
from graphopt.solver.reuse import forget

P = ParamSpec("P")


def staying_on_the_cpu(optimize: Callable[P, Summary]) -> Callable[P, Summary]:
    """`optimize` that warns and goes on, with device "cpu", from the estimates that a GPU has left.

    Out of memory, a kernel that does not compile, a lost device: much of a solver is set up by threads, so
    this may come at any time. Only where the device was left to choose.
    """

    @functools.wraps(optimize)
    def either(*arguments: P.args, **options: P.kwargs) -> Summary:
        start = time.perf_counter()
        try:
            return optimize(*arguments, **options)
        except FAILURES as error:
            if not _may_stay(options):
                raise
            say_why(error)
            forget(arguments[0] if arguments else options["graph"])  # type: ignore[arg-type]
            return optimize(*arguments, **_on_cpu(options, time.perf_counter() - start))

    return either


def _may_stay(options: dict[str, Any]) -> bool:
    chosen = {name: options[name] for name in ("device", "precision", "schedule") if name in options}
    return options.get("configuration") is None and may_stay(SolverOptions(**chosen))


def _on_cpu(options: dict[str, Any], elapsed: float) -> dict[str, Any]:
    """The same for the CPU, in the time that is left."""
    limit = options.get("time_limit")
    left = {} if limit is None else {"time_limit": max(limit - elapsed, 1e-3)}
    return {**options, **left, "device": "cpu"}
