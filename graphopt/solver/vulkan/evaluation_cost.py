"""What it costs to evaluate edges once ("scatter") or anew for each sum ("gather"), and the cheaper one.

    gather    per slot and stored pair of slots a pass that evaluates the edges
    scatter   one pass that evaluates them and writes records; per slot and pair one that reads these

Both only change the linearisation, edge set by edge set, so the choice is made for each by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from graphopt.device.figures import DeviceFigures
from graphopt.device.protocol import Precision
from graphopt.solver.vulkan.context import LARGE_BYTES
from graphopt.solver.vulkan.edge_costs import Pass, bytes_of, edge_pass
from graphopt.solver.vulkan.sizes import GroupSize, ProblemSize
from graphopt.solver.vulkan.storage import Evaluation, Products, describe_products, split_pin

if TYPE_CHECKING:
    from graphopt.solver.vulkan.cost import Prediction

_WORD = 16  # bytes of a scattered read
Seconds = Callable[[GroupSize, Products, Evaluation], float]


def record_dim(g: GroupSize, stored: Products) -> int:
    """Numbers of an edge's record, if none is constant or there twice; see `codegen.gpu.scattered`."""
    vertices = sum(d * (d + 3) // 2 for d in g.tangent_dims)
    pairs = sum(a * b for a, b in combinations(g.tangent_dims, 2)) if stored == "blocks" else 0
    return -(-min(_factors(g, g.tangent_dims), vertices + pairs) // 4) * 4


def _factors(g: GroupSize, dims: Iterable[int]) -> int:
    return g.residual_dim * (sum(dims) + 1) + g.weight_dim


def can_scatter(g: GroupSize, stored: Products, real: int) -> bool:
    """Kernels can count the bytes of its records."""
    return g.num_edges * record_dim(g, stored) * real < LARGE_BYTES


def gather_passes(g: GroupSize, stored: Products) -> list[Pass]:
    """Passes over the edges for H_aa and b_a of all slots, and for H_ab; without writing these."""
    flops = float(g.linearize_flops)
    pairs = g.num_pairs if stored == "blocks" else 0
    return [*(edge_pass(g, flops, skip=slot) for slot in range(g.arity)), *(pairs * [edge_pass(g, flops)])]


def scatter_passes(g: GroupSize, stored: Products, real: int) -> list[Pass]:
    """The same from records. One slot's view has the records in its own order."""
    record = record_dim(g, stored)
    evaluation = edge_pass(g, float(g.linearize_flops), more_bytes=float(g.num_edges * real * record))
    primary = max(range(g.arity), key=lambda slot: (g.is_eliminated[slot], -slot))
    sums: list[tuple[int, ...]] = [(a,) for a in range(g.arity)]
    if stored == "blocks":
        sums += combinations(range(g.arity), 2)
    passes = [evaluation]
    for slots in sums:
        dims = [g.tangent_dims[slot] for slot in slots]
        read = min(_factors(g, dims), dims[0] * (dims[0] + 3) // 2 if len(dims) == 1 else dims[0] * dims[1])
        words = 0 if slots == (primary,) else -(-read * real // _WORD)
        passes.append(
            Pass(
                nbytes=float(g.num_edges * (real * read + 4)),
                flops=2.0 * g.num_edges * g.residual_dim * dims[0] * (g.residual_dim + dims[-1]),
                gathers=2.0 * g.num_edges * words,  # no two edges share a record
            )
        )
    return passes


def with_evaluations(
    predictions: Sequence[Prediction],
    size: ProblemSize,
    figures: DeviceFigures,
    precision: Precision,
    pins: Mapping[str, str],
) -> list[Prediction]:
    """Predictions for "gather"; beside each the same with "scatter", or with what is cheaper per edge set.

    pins: by tag of some edge sets.
    """
    real, seconds = bytes_of(precision), _seconds(figures, precision)
    found = []
    for one in predictions:
        allowed = [
            _allowed(g, stored, real, pins) for g, stored in zip(size.groups, one.products, strict=True)
        ]
        if all(allowed):
            found += [
                _evaluated(one, size, chosen, seconds, real)
                for chosen in _combined(one, size, allowed, seconds)
            ]
    return found


def evaluated(
    prediction: Prediction,
    size: ProblemSize,
    figures: DeviceFigures,
    precision: Precision,
    evaluations: tuple[Evaluation, ...],
) -> Prediction:
    """A prediction for "gather" with these evaluations."""
    return _evaluated(prediction, size, evaluations, _seconds(figures, precision), bytes_of(precision))


def _seconds(figures: DeviceFigures, precision: Precision) -> Seconds:
    """Of the linearisation of a group."""
    real = bytes_of(precision)

    def seconds(g: GroupSize, stored: Products, evaluation: Evaluation) -> float:
        is_gather = evaluation == "gather"
        passes = gather_passes(g, stored) if is_gather else scatter_passes(g, stored, real)
        return sum(one.seconds(figures, precision) for one in passes)

    return seconds


def _allowed(g: GroupSize, stored: Products, real: int, pins: Mapping[str, str]) -> tuple[Evaluation, ...]:
    """Evaluations of a group: a single sum is not worth a record, unless the user says so."""
    pin = split_pin(pins.get(g.tag, "auto"))[1]
    if pin == "scatter":
        return ("scatter",) if can_scatter(g, stored, real) else ()
    if pin == "gather" or g.arity == 1 or not can_scatter(g, stored, real):
        return ("gather",)
    return ("gather", "scatter")


def _combined(
    prediction: Prediction, size: ProblemSize, allowed: Sequence[tuple[Evaluation, ...]], seconds: Seconds
) -> list[tuple[Evaluation, ...]]:
    """Gathered where that is allowed; of one edge set scattered as well, of several what is cheaper."""
    first: tuple[Evaluation, ...] = tuple(one[0] for one in allowed)
    other: tuple[Evaluation, ...]
    if len(size.tags) == 1:
        other = tuple(one[-1] for one in allowed)
    else:
        groups = list(zip(size.groups, prediction.products, allowed, strict=True))
        gains: dict[str, float] = dict.fromkeys(size.tags, 0.0)
        for g, stored, choice in groups:
            if len(choice) > 1:
                gains[g.tag] += seconds(g, stored, "gather") - seconds(g, stored, "scatter")
        other = tuple(one[-1] if gains[g.tag] > 0.0 else one[0] for g, _, one in groups)
    return list(dict.fromkeys([first, other]))


def _evaluated(
    prediction: Prediction,
    size: ProblemSize,
    evaluations: tuple[Evaluation, ...],
    seconds: Seconds,
    real: int,
) -> Prediction:
    """A prediction for "gather" with these evaluations."""
    more, memory = 0.0, 0.0
    for g, stored, evaluation in zip(size.groups, prediction.products, evaluations, strict=True):
        if evaluation == "scatter":
            more += seconds(g, stored, "scatter") - seconds(g, stored, "gather")
            memory += float(g.num_edges * (real * record_dim(g, stored) + 4 * g.arity))
    return replace(
        prediction,
        evaluations=evaluations,
        schedule=describe_products([g.tag for g in size.groups], prediction.products, evaluations),
        seconds={**prediction.seconds, "linearize": prediction.seconds["linearize"] + more},
        memory_bytes=prediction.memory_bytes + memory,
    )
