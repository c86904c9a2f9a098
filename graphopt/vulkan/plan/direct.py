"""Whether to factor S or to iterate with it: expected seconds of an iteration of Levenberg-Marquardt.

    conjugate gradients  10 + 16 diameter iterations, 600 at most, at the rate of the best schedule
    Cholesky             H's blocks and S are formed; S is factored on the device or on the CPU, by nested
                         dissection of its levels, whichever is faster

With block-Jacobi a correction travels one level of S per iteration, and soft modes take several passes:
counted on generated problems, 3 iterations per level and solve where photographs look at a place from all
around, 10 to 26 along streets. So long chains of cameras are factored, whose factor is sparse, and compact
sets are iterated with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphopt.cpu_kernels import kernels
from graphopt.device.figures import DeviceFigures
from graphopt.device.protocol import Precision
from graphopt.vulkan.cholesky.rates import (
    CORE_FLOPS,
    PANEL,
    ROUND_TRIP,
    TRANSFER_BYTES,
    cpu_panels_seconds,
    device_rate,
    panel_seconds,
)
from graphopt.vulkan.plan.cost import PAIR_BYTES, PCG_ITERATIONS, Prediction
from graphopt.vulkan.plan.problem import ProblemSize
from graphopt.vulkan.plan.reduced import ReducedShape

FIRST_ITERATIONS, ITERATIONS_PER_LEVEL = 10.0, 16.0
MOST_ITERATIONS = 600.0
"""What stops a solve before: as much as is needed of the step."""
MIXED_ITERATIONS = 1.5
"""As a multiple of those in double: float32 loses directions; measured were 1.3 to 5."""
DISSECTION_FLOPS = 2.5
"""Operations of nested dissection of a chain of levels, as a multiple of going along it."""
PAIR_SECONDS = 1.7e-8
"""To find a pair of observations and put it into S's work queue on a device, measured on an H200."""
SHARED_BY = 5.0
"""Iterations that share the set-up of S, counted low: some calls have few."""
MARGIN = 0.7
"""Of the time of conjugate gradients that Cholesky may be expected to take: it needs more memory."""


def iterations_of(shape: ReducedShape, precision: Precision) -> float:
    """Conjugate gradients of a trial."""
    found = min(FIRST_ITERATIONS + ITERATIONS_PER_LEVEL * shape.diameter, shape.rows, MOST_ITERATIONS)
    return found if precision == "double" else MIXED_ITERATIONS * found


def factor_seconds(shape: ReducedShape, figures: DeviceFigures, *, software: bool) -> float:
    """To factor S and solve with it, on the device or on the CPU. software: the CPU is the device."""
    dense = shape.rows**3 / 3.0
    moved = 8.0 * (shape.stored + 2.0 * shape.rows) / TRANSFER_BYTES
    along = min(shape.flops, dense)
    threads = kernels.num_threads()
    waits = cpu_panels_seconds(min(shape.widest, shape.rows)) if threads > 1 else 0.0
    on_cpu = along / (CORE_FLOPS * threads) + waits + moved + ROUND_TRIP
    if software or not device_rate(figures):
        return on_cpu
    ways = [(dense, shape.rows / PANEL)]
    if shape.diameter > 2:
        depth = math.log2(shape.diameter) + 1.0
        ways.append((DISSECTION_FLOPS * shape.flops, depth * math.ceil(shape.widest / PANEL)))
    rate, chain = device_rate(figures), panel_seconds(figures)
    return min(on_cpu, *(flops / rate + panels * chain for flops, panels in ways))


def is_factored(
    found: Sequence[Prediction],
    shape: ReducedShape,
    size: ProblemSize,
    figures: DeviceFigures,
    precision: Precision,
    *,
    software: bool,
    memory_limit: float,
) -> bool:
    """Cholesky of S is expected to be faster by `MARGIN` than conjugate gradients with the best schedule.

    found: what is possible, with and without an explicit S. memory_limit [bytes]: on the device.
    """
    explicit = [prediction for prediction in found if prediction.schur == "explicit"]
    if not explicit:
        return False
    formed = explicit[0]
    factor = 8.0 * min(4.0 * shape.stored, 0.5 * shape.rows**2)
    if formed.memory_bytes + factor > memory_limit or PAIR_BYTES * size.num_pairs > memory_limit:
        return False
    factored = sum(seconds for name, seconds in formed.seconds.items() if name != "solve")
    factored += PAIR_SECONDS * size.num_pairs / SHARED_BY
    factored += factor_seconds(shape, figures, software=software)
    rate = iterations_of(shape, precision) / PCG_ITERATIONS
    iterated = min(prediction.total + (rate - 1.0) * prediction.seconds["solve"] for prediction in found)
    return factored < MARGIN * iterated
