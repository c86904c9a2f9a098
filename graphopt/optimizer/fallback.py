"""Where a GPU that nobody asked for fails, in the middle of a run too, the CPU goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from graphopt.optimizer.request import Request
from graphopt.optimizer.summary import Summary
from graphopt.solver.auto_device import FAILURES, may_stay, say_why
from graphopt.solver.configurations import configured
from graphopt.solver.reuse import forget

R = TypeVar("R", bound=Request)


def or_on_the_cpu(optimize: Callable[[Any, R], Summary], graph: Any, request: R) -> Summary:
    """`optimize(graph, request)`; where a GPU fails, a warning, and the CPU goes on from its estimates.

    Out of memory, a kernel that does not compile, a lost device: much of a solver is set up by threads, so
    this may come at any time. Only where the device was left to choose.
    """
    start = time.perf_counter()
    try:
        return optimize(graph, request)
    except FAILURES as error:
        forget(graph)  # the next call makes a solver of its own, on the device opened anew
        if not may_stay(configured(request.solver)):
            raise
        say_why(error)
        limit = request.time_limit
        if limit is not None:
            limit = max(limit - (time.perf_counter() - start), 1e-3)
        on_cpu = replace(request.solver, device="cpu")
        return optimize(graph, replace(request, time_limit=limit, solver=on_cpu))
