"""Several devices on one problem: whole calls of ten iterations, and iterations of a fixed amount of work.

Levenberg-Marquardt with a fixed number of conjugate gradients on the implicit Schur complement does the same
work with every number of ranks. Ranks are threads of this process with a device each, or of a communicator.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from graphopt.graph import Graph
from graphopt.optimizer.summary import Summary
from graphopt.reproduce.graphs import Source, facts, graph_of

FEW, MANY, STEPS = 10, 40, 10
"""Conjugate gradients per step, and steps."""
_WHOLE = 100  # conjugate gradients per step of an ordinary call, at most: a street bends softly
_WARM_UP_CALLS = 4  # of a kind, of which the last one is timed: idle devices run on low clocks
_LAMBDA = 1e-4  # so little damping that no number of products above solves a system: all of them are done


def measure(graph: Source, device: str, ranks: int, precision: str = "double") -> dict[str, Any]:
    """The entry of a row: `ranks` devices of this machine, which `devices_of` names."""
    made = graph_of(graph)
    entry = facts(made)
    found = run(made, None, devices_of(device, ranks), precision)
    seconds = {
        "other ids": found["call_seconds"],
        "again": found["second_call_seconds"],
        f"step of {FEW}": found["iteration_seconds"],
        f"step of {MANY}": found["long_iteration_seconds"],
    }
    device_name = ", ".join(dict.fromkeys(found["devices"]))
    return {**entry, "seconds": seconds, "chi2": found["call_chi2"], "device_name": device_name}


def devices_of(device: str, ranks: int) -> str:
    """Of the ranks of one process: "vulkan" is as many different ones, another device is taken repeatedly."""
    if device == "vulkan":
        return ",".join(f"vulkan:{number}" for number in range(ranks))
    return ",".join([device] * ranks)


def run(
    graph: Graph | None, comm: Any, device: str, precision: str, iterations: int = STEPS
) -> dict[str, Any]:
    """What the ranks do with the problem; over a communicator what rank 0 finds (others pass no graph)."""
    from graphopt.solver.reuse import forget

    starts = [] if graph is None else [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]

    def again(products: int | None, **more: Any) -> tuple[Summary, float]:
        _put_back(graph, starts)
        return _optimized(graph, comm, device, products, precision=precision, **more)

    first, _ = again(None, max_iterations=1)  # compiles
    (few, few_call), (many, many_call) = (
        [again(products) for _ in range(_WARM_UP_CALLS)][-1] for products in (FEW, MANY)
    )
    whole, call = again(None, max_iterations=iterations)
    repeated, second_call = again(None, max_iterations=iterations)  # with what the first one has left
    if graph is not None:
        forget(graph)  # and its memory on the device
        _put_back(graph, starts)
    few_step, many_step = _seconds_of_trial(few), _seconds_of_trial(many)
    return {
        "precision": many.precision if precision == "auto" else precision,
        "switched_at": many.switched_at,
        "edges": many.edges,
        "product_seconds": (many_step - few_step) / (MANY - FEW),
        "iteration_seconds": few_step,
        "long_iteration_seconds": many_step,
        "first_call_seconds": few_call,
        "call_seconds": call,
        "second_call_seconds": second_call,
        "second_call_parts": {name: value for name, value in repeated.seconds.items() if value > 1e-3},
        "call_iterations": len(whole.iterations),
        "call_chi2": whole.final_chi2,
        "call_parts": {name: value for name, value in whole.seconds.items() if value > 1e-3},
        "long_call_seconds": many_call,
        "partition": many.partition,
        "memory_bytes": [rank["memory_bytes"] for rank in many.ranks] or [many.memory_bytes],
        "devices": [rank["device_name"] for rank in many.ranks] or [many.device_name],
        "chi2": [first.initial_chi2, few.final_chi2, many.final_chi2],
        "step_seconds": [iteration.seconds for iteration in many.iterations],
        "trials": [iteration.trials for iteration in many.iterations],
    }


def _put_back(graph: Graph | None, starts: list[np.ndarray]) -> None:
    if graph is not None:
        for vertex_set, values in zip(graph.vertex_sets, starts, strict=True):
            vertex_set.estimate[...] = values


def _optimized(
    graph: Graph | None, comm: Any, device: str, products: int | None, **options: Any
) -> tuple[Summary, float]:
    """The summary and seconds of a call; products: of each step, None: an ordinary call."""
    import graphopt
    from graphopt.distributed.options import distributed_rules

    options |= {"pcg_iterations": _WHOLE, "ranks": "all" if comm is not None or "," in device else "auto"}
    options["options"] = distributed_rules(graphopt.AutoOptions())  # on one rank, too
    if products is not None:
        options |= {"method": "lm", "max_iterations": STEPS, "schur": "implicit"}
        options |= {"pcg_iterations": products, "pcg_tolerance": 1e-30}
        options["options"] = graphopt.LevenbergMarquardtOptions(initial_lambda=_LAMBDA)
    start = time.perf_counter()
    summary = graphopt.distributed.optimize(graph, comm, device=device, **options)
    return summary, time.perf_counter() - start


def _seconds_of_trial(summary: Summary) -> float:
    """Of the later steps: the first ones wait for what is being prepared, and record their programs."""
    steps = summary.iterations[len(summary.iterations) // 2 :]
    return float(np.median([step.seconds / step.trials for step in steps]))
