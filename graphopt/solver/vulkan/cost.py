"""What an iteration of Levenberg-Marquardt costs on a device, by schedule, and the cheapest one.

A schedule says what is stored of H beside its diagonal, per edge set (`storage`): its blocks ("blocks"),
what products read of the Jacobians ("jacobians"), values of the products' programs ("expressions"), or
nothing, so that products compute the Jacobians anew ("matrix-free"; "jp": first those of J x, then those of
J'); and whether Schur elimination forms S ("explicit"), multiplies through H_pl ("implicit") or is left out
("off"). Who evaluates the edges for H and b is a choice of its own (`evaluation_cost`).
Each pass over edges, blocks or vectors takes the longest of

    bytes / bandwidth,   operations / rate,   scattered 16-byte reads / their rate

and its dispatches (`device.figures`). Operations come from the compiled programs; a product J'w Omega J x
costs about `PRODUCT_FLOPS` times the residual (`edge_costs`: one forward and one reverse derivative).
Launches that sum to the same vertices may be one (`merge_cost`). Conjugate gradients are taken to run
`PCG_ITERATIONS` times. The space is that of Thallo (Mara et al. 2021), with the Schur complement as a part of
it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Literal

from graphopt.device.figures import DeviceFigures
from graphopt.device.protocol import Precision
from graphopt.solver.registry import PRODUCTS
from graphopt.solver.vulkan.context import ACCUMULATOR_BYTES, MAX_QUEUE_ITEMS
from graphopt.solver.vulkan.edge_costs import EdgeCosts, Pass, bytes_of, edge_pass
from graphopt.solver.vulkan.evaluation_cost import evaluated, with_evaluations
from graphopt.solver.vulkan.layout import MAX_VALUES
from graphopt.solver.vulkan.merge_cost import (
    MergeChoice,
    linearized_views,
    merge_choices,
    merged_sets,
    passes_of,
    product_views,
)
from graphopt.solver.vulkan.sizes import GroupSize, ProblemSize
from graphopt.solver.vulkan.storage import Evaluation, Products, describe_products, split_pin

PCG_ITERATIONS = 20
SETUP_ITERATIONS = 50
"""Iterations that share what is done once."""
CUT_SECONDS = 0.3
"""What finding the cuts of an edge type takes, once per type and device: shorter runs do without."""
MAX_COMBINATIONS = 27
"""Of the edge sets' schedules that are all compared; of more, those that differ in one edge set at a time."""
_PAIR_SECONDS = 3e-8  # to find a pair of observations and put it into S's work queue, on the host
_PAIR_EFFICIENCY = 0.25  # of arithmetic: forming S, measured on an H200
_ITEM_BYTES = 8.0  # of a stored block in a work queue

Elimination = Literal["explicit", "implicit", "off"]


@dataclass(frozen=True)
class Prediction:
    """The cost of one schedule."""

    schur: Elimination
    products: tuple[Products, ...]
    """Per edge group."""
    schedule: str
    """The same for people: "blocks", or "EDGE_SE2=blocks, EDGE_SE2_XY=jacobians"."""
    seconds: dict[str, float]
    """Per iteration: linearize, eliminate, solve, update."""
    memory_bytes: float
    setup: float = 0.0
    """Seconds of a set-up that others lack, per iteration of `SETUP_ITERATIONS`."""
    merging: tuple[MergeChoice, ...] = ()
    """Of the vertex sets that several views have as destinations."""
    evaluations: tuple[Evaluation, ...] = ()
    """Per edge group; set by `predict`."""

    @property
    def merged(self) -> frozenset[int]:
        """Numbers of the vertex sets whose sums come from one launch."""
        return merged_sets(self.merging)

    @property
    def summation(self) -> str:
        """Which sums of vertices come from one kernel: "VERTEX_SE2 merged"; empty: there is no choice."""
        return ", ".join(f"{one.tag} {one.name}" for one in self.merging)

    @property
    def name(self) -> str:
        """Short name: "implicit, matrix-free"."""
        return f"{self.schur}, {self.schedule}"

    @property
    def total(self) -> float:
        """Seconds per iteration."""
        return sum(self.seconds.values()) + self.setup


def predict(
    size: ProblemSize, figures: DeviceFigures, precision: Precision, pins: Mapping[str, str] | None = None
) -> list[Prediction]:
    """The schedules that a problem allows, the cheapest first. pins: by tag of some edge and vertex sets.

    All of them, or where several edge sets make too many, the uniform ones and what is found from the best of
    these by changing one edge set at a time. Left out is what the solver's work queues cannot count.
    """
    pins = pins or {}
    found = _by_gathering(EdgeCosts(size, figures, precision), pins)
    return _sorted(with_evaluations(found, size, figures, precision, pins))


def _by_gathering(costs: EdgeCosts, pins: Mapping[str, str]) -> list[Prediction]:
    """Without a choice of who evaluates; with "expressions" where that is worth looking for cuts."""
    asked = [split_pin(pins.get(tag, "auto"))[0] for tag in costs.size.tags]
    without: list[Products] = [one for one in PRODUCTS if one != "expressions"]
    plain: list[list[Products]] = [[one for one in without if pin in ("auto", one)] for pin in asked]
    if all(plain):
        found = _of_choices(costs, plain, pins)
        best = min((one.total for one in found), default=math.inf)
        if "auto" not in asked or best * SETUP_ITERATIONS < CUT_SECONDS:
            return found
    choices = [_choices(costs, tag, pin) for tag, pin in zip(costs.size.tags, asked, strict=True)]
    return _of_choices(costs, choices, pins)


def _of_choices(
    costs: EdgeCosts, choices: Sequence[Sequence[Products]], pins: Mapping[str, str]
) -> list[Prediction]:
    """choices: by tag."""
    size = costs.size
    if not size.eliminates:
        return _of_elimination(costs, "off", choices, pins)
    found = _of_elimination(costs, "implicit", choices, pins)
    whole: tuple[Products, ...] = ("blocks",) * len(size.groups)
    if all("blocks" in one for one in choices) and is_countable(size, "explicit", whole):
        found.append(_predict(costs, "explicit", whole, pins))
    return found


def other_summations(
    size: ProblemSize, figures: DeviceFigures, precision: Precision, prediction: Prediction
) -> list[Prediction]:
    """The same schedule with another choice of what is merged for one vertex set each."""
    costs, own = EdgeCosts(size, figures, precision), {one.tag: one.name for one in prediction.merging}
    others = [
        _predict(costs, prediction.schur, prediction.products, {**own, one.tag: other})
        for one in prediction.merging
        for other in ["separate" if one.is_merged else "merged"]
    ]
    return [evaluated(one, size, figures, precision, prediction.evaluations) for one in others]


def _choices(costs: EdgeCosts, tag: str, pin: str) -> list[Products]:
    """Of an edge set. "expressions" only where that is no other schedule."""
    chosen: list[Products] = [one for one in PRODUCTS if pin in ("auto", one)]
    if "expressions" not in chosen or (one := costs.expressions_of(tag)) == "expressions":
        return chosen
    return [one] if pin == "expressions" else [other for other in chosen if other != "expressions"]


def cheapest(predictions: Sequence[Prediction], memory_limit: float) -> Prediction:
    """The schedule predicted to be fastest of those that fit; that with the least memory if none does."""
    fitting = [one for one in predictions if one.memory_bytes <= memory_limit]
    return (
        min(fitting, key=lambda one: one.total)
        if fitting
        else min(predictions, key=lambda one: one.memory_bytes)
    )


def is_countable(size: ProblemSize, schur: Elimination, products: Sequence[Products]) -> bool:
    """The solver can count the scalars of H and S that are stored, and the items of its work queues."""
    stored = [g for g, one in zip(size.groups, products, strict=True) if one == "blocks"]
    values = size.diagonal + sum(g.kept_off_diagonal + g.coupling for g in stored)
    items = 2 * sum(g.num_blocks for g in stored)
    if schur == "explicit":
        values, items = max(values, size.schur), max(items, size.num_pairs)
    return values < MAX_VALUES and items < MAX_QUEUE_ITEMS


def _sorted(found: Sequence[Prediction]) -> list[Prediction]:
    return sorted(found, key=lambda one: one.total)


def _of_elimination(
    costs: EdgeCosts,
    schur: Elimination,
    choices: Sequence[Sequence[Products]],
    pins: Mapping[str, str],
) -> list[Prediction]:
    """Schedules without a stored S. choices: by tag. pins: of vertex sets."""
    size = costs.size
    known: dict[tuple[Products, ...], Prediction] = {}

    def add(by_tag: Sequence[Products]) -> None:
        chosen: dict[str, Products] = dict(zip(size.tags, by_tag, strict=True))
        products: tuple[Products, ...] = tuple(chosen[g.tag] for g in size.groups)
        if products not in known and _is_allowed(size, schur, products):
            known[products] = _predict(costs, schur, products, pins)

    if prod(map(len, choices)) <= MAX_COMBINATIONS:
        for by_tag in product(*choices):
            add(by_tag)
        return list(known.values())
    for one in PRODUCTS:
        add([one if one in own else own[-1] for own in choices])
    for place, own in enumerate(choices):
        best = min(known.values(), key=lambda one: one.total, default=None)
        chosen: dict[str, Products] = {}
        if best is not None:
            chosen.update(zip((g.tag for g in size.groups), best.products, strict=True))
        others: list[Products] = [
            chosen.get(tag, one[-1]) for tag, one in zip(size.tags, choices, strict=True)
        ]
        for one in own:
            add([*others[:place], one, *others[place + 1 :]])
    return list(known.values())


def _is_allowed(size: ProblemSize, schur: Elimination, products: Sequence[Products]) -> bool:
    mixes = "blocks" in products and len(set(products)) > 1
    return is_countable(size, schur, products) and not (mixes and size.names_a_vertex_twice)


def _predict(
    costs: EdgeCosts, schur: Elimination, products: tuple[Products, ...], pins: Mapping[str, str]
) -> Prediction:
    size, figures, precision = costs.size, costs.figures, costs.precision
    real = bytes_of(precision)
    views = linearized_views(costs), [] if schur == "explicit" else product_views(costs, products)
    times = zip(views, (1, PCG_ITERATIONS), strict=True)
    merging = tuple(merge_choices(times, size.vertex_tags, pins, figures, precision))
    linearized, multiplied = (passes_of(one, merged_sets(merging), figures) for one in views)
    product = [*_product(costs, schur, products), *multiplied]
    phases = {
        "linearize": [*_linearize(costs, products), *linearized],
        "eliminate": _eliminate(costs, schur, products, product),
        "solve": [
            *(PCG_ITERATIONS * product),
            *(PCG_ITERATIONS * _vectors(size.dim if schur == "off" else size.kept_dim, real)),
        ],
        "update": [*_residuals(size), Pass(nbytes=4.0 * 8 * size.dim)],
    }
    seconds = {
        name: sum(one.seconds(figures, precision) for one in passes) for name, passes in phases.items()
    }
    setup = size.num_pairs * _PAIR_SECONDS / SETUP_ITERATIONS if schur == "explicit" else 0.0
    schedule = describe_products([g.tag for g in size.groups], products, ("gather",) * len(products))
    memory = _memory(costs, schur, products)
    return Prediction(schur, products, schedule, seconds, memory, setup, merging)


def _residuals(size: ProblemSize) -> list[Pass]:
    return [
        Pass(
            nbytes=float(g.num_edges * g.edge_bytes),
            flops=float(g.num_edges * g.chi2_flops),
            gathers=float(g.num_edges * (sum(g.record_words) + g.pixel_words)),
        )
        for g in size.groups
    ]


def _linearize(costs: EdgeCosts, products: Sequence[Products]) -> list[Pass]:
    """Beside `linearized_views`: writing sums; passes for blocks or stored numbers."""
    size, real = costs.size, bytes_of(costs.precision)
    passes = [Pass(nbytes=float(real * (size.diagonal + size.dim)), dispatches=1)]
    for g, stored in zip(size.groups, products, strict=True):
        flops = float(g.linearize_flops)
        if stored == "blocks":
            dims = g.tangent_dims
            for a in range(g.arity):
                for b in range(a + 1, g.arity):
                    written = g.num_edges * real * dims[a] * dims[b]
                    passes.append(edge_pass(g, flops, more_bytes=float(written)))
        for slot in range(g.arity):
            if numbers := costs.stored(g, slot, stored):
                written = float(g.num_edges * real * numbers)
                passes.append(edge_pass(g, flops, skip=slot, more_bytes=written))
    return passes


def _eliminate(
    costs: EdgeCosts, schur: Elimination, products: Sequence[Products], product: Sequence[Pass]
) -> list[Pass]:
    """Inverses of H_ll, S or its diagonal, the reduced right-hand side. product: a whole one."""
    size, real = costs.size, bytes_of(costs.precision)
    if schur == "off":
        return [Pass(nbytes=2.0 * real * size.diagonal)]
    if schur == "implicit" and set(products) != {"blocks"}:
        once = Pass(nbytes=2.0 * real * size.diagonal, dispatches=5)
        diagonal = [edge_pass(g, float(g.linearize_flops)) for g in size.groups if any(g.is_eliminated)]
        return [once, *diagonal, *product]
    once = Pass(nbytes=real * (size.coupling + 2.0 * size.diagonal), dispatches=5)
    if schur == "implicit":
        return [once]
    queue = Pass(
        nbytes=12.0 * size.num_pairs + real * (size.schur + size.coupling),
        flops=size.pair_flops,
        efficiency=_PAIR_EFFICIENCY,
        dispatches=2,
    )
    return [once, queue]


def _product(costs: EdgeCosts, schur: Elimination, products: Sequence[Products]) -> list[Pass]:
    """What a product of the conjugate gradients is beside `product_views`."""
    size, real = costs.size, bytes_of(costs.precision)
    if schur == "explicit":
        return [Pass(nbytes=real * size.schur, dispatches=2)]
    if set(products) == {"blocks"}:
        return list(_whole_blocks(size, real, schur))
    passes = [
        Pass(nbytes=2.0 * real * size.dim),
        Pass(nbytes=float(real * (size.diagonal + 3 * size.kept_dim))),
        *costs.first_halves(products, schur),
    ]
    for g, stored in zip(size.groups, products, strict=True):
        if stored == "blocks":
            passes += _own_blocks(g, real)
    return passes


def _whole_blocks(size: ProblemSize, real: int, schur: Elimination) -> Iterator[Pass]:
    """Of all blocks of H: of each block of a symmetric product a vector is written and read."""
    if schur == "off":
        count = sum(g.num_blocks for g in size.groups)
        vectors = 2.0 * ACCUMULATOR_BYTES * (count * size.kept_off_diagonal) ** 0.5
        yield Pass(nbytes=real * size.values + vectors, dispatches=2)
    else:
        yield Pass(nbytes=float(real * size.coupling))
        yield Pass(nbytes=float(real * (size.coupling + 2 * size.kept_off_diagonal)), dispatches=2)


def _own_blocks(g: GroupSize, real: int) -> list[Pass]:
    """Of one group's blocks, by block rows: each is read twice."""
    passes = []
    if g.coupling:
        passes.append(Pass(nbytes=real * g.coupling + _ITEM_BYTES * g.num_blocks, dispatches=2))
    values = g.coupling + 2.0 * g.kept_off_diagonal
    return [*passes, Pass(nbytes=real * values + 2.0 * _ITEM_BYTES * g.num_blocks, dispatches=2)]


def _vectors(dim: int, real: int) -> list[Pass]:
    """Updates of the conjugate gradients."""
    return [Pass(nbytes=10.0 * real * dim, dispatches=2)]


def _memory(costs: EdgeCosts, schur: Elimination, products: Sequence[Products]) -> float:
    """Images, edges once per slot, stored numbers, S and its queue, vectors, two versions of estimates."""
    size, real = costs.size, bytes_of(costs.precision)
    views = size.image_bytes + sum(g.num_edges * g.edge_bytes * g.arity for g in size.groups)
    numbers = size.diagonal + costs.all_stored(products, schur)
    for g, stored in zip(size.groups, products, strict=True):
        if stored == "blocks":
            numbers += g.kept_off_diagonal + g.coupling
            views += 2 * _ITEM_BYTES * g.num_blocks
    explicit = real * size.schur + 12.0 * size.num_pairs if schur == "explicit" else 0.0
    return views + real * (numbers + size.diagonal + 12.0 * size.dim) + explicit + 16.0 * size.dim
