"""How long an iteration of Levenberg-Marquardt takes by each schedule: the cost model's numbers, measured."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from graphopt.device import Device
from graphopt.device.errors import DeviceMemoryError
from graphopt.device.protocol import Precision
from graphopt.graph import Graph
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.vulkan.plan.choice import Plan
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.plan.cost import PCG_ITERATIONS, Prediction
from graphopt.vulkan.solver import ResidentBlockSolver

_PHASES = {
    "linearize": "linearize",
    "schur": "eliminate",
    "linear_solver": "solve",
    "landmarks": "update",
    "update": "update",
}
"""Phases of the device's clock -> phases of a prediction."""
_DAMPING = Damping(1e-4, scaled=True, floor=1e-6, ceiling=1e32)
_WARM_UP = 0.5  # [s] on a GPU, whose clocks fell while the host prepared
_NEVER = 1e-200  # a tolerance that is not reached


@dataclass(frozen=True)
class Measurement:
    """Seconds on the device per iteration, by the phases of `cost.Prediction`."""

    prediction: Prediction
    seconds: dict[str, float]

    @property
    def total(self) -> float:
        """Seconds per iteration."""
        return sum(self.seconds.values())


def measure_schedules(
    graph: Graph,
    structure: Structure,
    device: Device,
    precision: Precision,
    predictions: Iterable[Prediction],
    repetitions: int = 5,
) -> list[Measurement]:
    """Run every schedule with `PCG_ITERATIONS` conjugate gradient iterations; medians of the repetitions.

    Estimates of the graph stay as they are. A schedule that does not fit into the device is left out.
    """
    measurements = []
    for prediction in predictions:
        try:
            measurements.append(_measure(graph, structure, device, precision, prediction, repetitions))
        except DeviceMemoryError:
            continue
    return measurements


def _measure(
    graph: Graph,
    structure: Structure,
    device: Device,
    precision: Precision,
    prediction: Prediction,
    repetitions: int,
) -> Measurement:
    configuration = Configuration(
        "pcg",
        prediction.schur,
        tolerance=_NEVER,
        max_iterations=PCG_ITERATIONS,
    )
    plan = Plan(
        configuration,
        prediction.schedule,
        prediction.products,
        prediction.evaluations,
        prediction.merged,
    )
    solver = ResidentBlockSolver(graph.parameter_sets, structure, device, plan, precision)
    for _ in range(2):
        _iteration(solver)  # compiles and records
    end = time.perf_counter() + (0.0 if device.info["kind"] == "cpu" else _WARM_UP)
    while time.perf_counter() < end:
        _iteration(solver)
    samples = [_iteration(solver) for _ in range(repetitions)]
    medians = {name: float(np.median([sample[name] for sample in samples])) for name in prediction.seconds}
    return Measurement(prediction, medians)


def _iteration(solver: ResidentBlockSolver) -> dict[str, float]:
    """Phases of one iteration, whose step is taken back."""
    clock = solver.system.device_seconds
    before = dict(clock)
    solver.linearize()
    solver.largest_diagonal()  # waits for it
    if solver.trial(_DAMPING).solved:
        solver.pop()
    seconds = dict.fromkeys(_PHASES.values(), 0.0)
    for name, phase in _PHASES.items():
        seconds[phase] += clock.get(name, 0.0) - before.get(name, 0.0)
    return seconds
