"""What an iteration of Levenberg-Marquardt costs on a device, by schedule.

A schedule says what is stored of H beside its diagonal, per edge set (`schedules`), and whether Schur
elimination forms S ("explicit"), multiplies through H_pl ("implicit") or is left out ("off"). Each pass over
edges, blocks or vectors takes the longest of

    bytes / bandwidth,   operations / rate,   scattered 16-byte reads / their rate

and its dispatches (`device.figures`). Operations come from the compiled programs; a product J'w Omega J x
costs about `PRODUCT_FLOPS` times the residual (`passes`: one forward and one reverse derivative). Launches
that sum to the same vertices may be one (`schedules.merged`). Conjugate gradients are taken to run
`PCG_ITERATIONS` times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphopt.option_names import Elimination, Evaluation, Products
from graphopt.vulkan.operators.table import PRODUCTS
from graphopt.vulkan.plan.passes import EdgeCosts, PassCost, bytes_of, edge_pass
from graphopt.vulkan.plan.problem import GroupSize, ProblemSize
from graphopt.vulkan.plan.storage import describe_products
from graphopt.vulkan.plan.summation import (
    MergeChoice,
    linearized_views,
    merge_choices,
    merged_sets,
    passes_of,
    product_views,
)
from graphopt.vulkan.program import ACCUMULATOR_BYTES

PCG_ITERATIONS = 20
SETUP_ITERATIONS = 50
"""Iterations that share what is done once."""
_PAIR_SECONDS = 3e-8  # to find a pair of observations and put it into S's work queue, on the host
_PAIR_EFFICIENCY = 0.25  # of arithmetic: forming S, measured on an H200
_ITEM_BYTES = 8.0  # of a stored block in a work queue
PAIR_BYTES = 12.0
"""Of a pair of observations in S's work queue."""


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
        return ", ".join(f"{sum_choice.tag} {sum_choice.name}" for sum_choice in self.merging)

    @property
    def name(self) -> str:
        """Short name: "implicit, matrix-free"."""
        return f"{self.schur}, {self.schedule}"

    @property
    def total(self) -> float:
        """Seconds per iteration."""
        return sum(self.seconds.values()) + self.setup


def predict_one(
    costs: EdgeCosts, schur: Elimination, products: tuple[Products, ...], pins: Mapping[str, str]
) -> Prediction:
    """A schedule with evaluation "gather"; pins: of vertex sets, "merged" or "separate"."""
    size, figures, precision = costs.size, costs.figures, costs.precision
    real = bytes_of(precision)
    views = linearized_views(costs), [] if schur == "explicit" else product_views(costs, products)
    times = zip(views, (1, PCG_ITERATIONS), strict=True)
    merging = tuple(merge_choices(times, size.vertex_tags, pins, figures, precision))
    linearized, multiplied = (passes_of(view, merged_sets(merging), figures) for view in views)
    product = [*_product(costs, schur, products), *multiplied]
    phases = {
        "linearize": [*_linearize(costs, products), *linearized],
        "eliminate": _eliminate(costs, schur, products, product),
        "solve": [
            *(PCG_ITERATIONS * product),
            *(PCG_ITERATIONS * _vectors(size.dim if schur == "off" else size.kept_dim, real)),
        ],
        "update": [*_residuals(size), PassCost(nbytes=4.0 * 8 * size.dim)],
    }
    seconds = {
        name: sum(pass_.seconds(figures, precision) for pass_ in passes) for name, passes in phases.items()
    }
    setup = size.num_pairs * _PAIR_SECONDS / SETUP_ITERATIONS if schur == "explicit" else 0.0
    schedule = describe_products([g.tag for g in size.groups], products, ("gather",) * len(products))
    memory = _memory(costs, schur, products)
    return Prediction(schur, products, schedule, seconds, memory, setup, merging)


def _residuals(size: ProblemSize) -> list[PassCost]:
    return [
        PassCost(
            nbytes=float(g.num_edges * g.edge_bytes),
            flops=float(g.num_edges * g.chi2_flops),
            gathers=float(g.num_edges * (sum(g.record_words) + g.pixel_words)),
        )
        for g in size.groups
    ]


def _linearize(costs: EdgeCosts, products: Sequence[Products]) -> list[PassCost]:
    """Beside `linearized_views`: writing sums; passes for blocks or stored numbers."""
    size, real = costs.size, bytes_of(costs.precision)
    passes = [PassCost(nbytes=float(real * (size.diagonal + size.dim)), dispatches=1)]
    for g, stored in zip(size.groups, products, strict=True):
        flops = float(g.linearize_flops)
        if stored == "blocks":
            dims = g.tangent_dims
            for a in range(g.arity):
                for b in range(a + 1, g.arity):
                    written = g.num_edges * real * dims[a] * dims[b]
                    passes.append(edge_pass(g, flops, more_bytes=float(written)))
        for slot in range(g.arity):
            if numbers := PRODUCTS[stored].stored_numbers(costs, g, slot):
                written = float(g.num_edges * real * numbers)
                passes.append(edge_pass(g, flops, skip=slot, more_bytes=written))
    return passes


def _eliminate(
    costs: EdgeCosts, schur: Elimination, products: Sequence[Products], product: Sequence[PassCost]
) -> list[PassCost]:
    """Inverses of H_ll, S or its diagonal, the reduced right-hand side. product: a whole one."""
    size, real = costs.size, bytes_of(costs.precision)
    if schur == "off":
        return [PassCost(nbytes=2.0 * real * size.diagonal)]
    if schur == "implicit" and set(products) != {"blocks"}:
        once = PassCost(nbytes=2.0 * real * size.diagonal, dispatches=5)
        diagonal = [edge_pass(g, float(g.linearize_flops)) for g in size.groups if any(g.is_eliminated)]
        return [once, *diagonal, *product]
    once = PassCost(nbytes=real * (size.coupling + 2.0 * size.diagonal), dispatches=5)
    if schur == "implicit":
        return [once]
    queue = PassCost(
        nbytes=PAIR_BYTES * size.num_pairs + real * (size.schur + size.coupling),
        flops=size.pair_flops,
        efficiency=_PAIR_EFFICIENCY,
        dispatches=2,
    )
    return [once, queue]


def _product(costs: EdgeCosts, schur: Elimination, products: Sequence[Products]) -> list[PassCost]:
    """What a product of the conjugate gradients is beside `product_views`."""
    size, real = costs.size, bytes_of(costs.precision)
    if schur == "explicit":
        return [PassCost(nbytes=real * size.schur, dispatches=2)]
    if set(products) == {"blocks"}:
        return list(_whole_blocks(size, real, schur))
    passes = [
        PassCost(nbytes=2.0 * real * size.dim),
        PassCost(nbytes=float(real * (size.diagonal + 3 * size.kept_dim))),
    ]
    for g, stored in zip(size.groups, products, strict=True):
        passes += PRODUCTS[stored].first_passes(costs, g, products, schur)
        if PRODUCTS[stored].stores_blocks:
            passes += _own_blocks(g, real)
    return passes


def _whole_blocks(size: ProblemSize, real: int, schur: Elimination) -> Iterator[PassCost]:
    """Of all blocks of H: of each block of a symmetric product a vector is written and read."""
    if schur == "off":
        count = sum(g.num_blocks for g in size.groups)
        vectors = 2.0 * ACCUMULATOR_BYTES * (count * size.kept_off_diagonal) ** 0.5
        yield PassCost(nbytes=real * size.values + vectors, dispatches=2)
    else:
        yield PassCost(nbytes=float(real * size.coupling))
        yield PassCost(nbytes=float(real * (size.coupling + 2 * size.kept_off_diagonal)), dispatches=2)


def _own_blocks(g: GroupSize, real: int) -> list[PassCost]:
    """Of one group's blocks, by block rows: each is read twice."""
    passes = []
    if g.coupling:
        passes.append(PassCost(nbytes=real * g.coupling + _ITEM_BYTES * g.num_blocks, dispatches=2))
    values = g.coupling + 2.0 * g.kept_off_diagonal
    return [*passes, PassCost(nbytes=real * values + 2.0 * _ITEM_BYTES * g.num_blocks, dispatches=2)]


def _vectors(dim: int, real: int) -> list[PassCost]:
    """Updates of the conjugate gradients."""
    return [PassCost(nbytes=10.0 * real * dim, dispatches=2)]


def _memory(costs: EdgeCosts, schur: Elimination, products: Sequence[Products]) -> float:
    """Images, edges once per slot, stored numbers, S and its queue, vectors, two versions of estimates."""
    size, real = costs.size, bytes_of(costs.precision)
    views = size.image_bytes + sum(g.num_edges * g.edge_bytes * g.arity for g in size.groups)
    numbers = float(size.diagonal)
    for g, stored in zip(size.groups, products, strict=True):
        own = PRODUCTS[stored]
        per_edge = sum(own.stored_numbers(costs, g, slot) for slot in range(g.arity))
        numbers += g.num_edges * (per_edge + own.shared_numbers(costs, g, products, schur))
        if own.stores_blocks:
            numbers += g.kept_off_diagonal + g.coupling
            views += 2 * _ITEM_BYTES * g.num_blocks
    explicit = real * size.schur + PAIR_BYTES * size.num_pairs if schur == "explicit" else 0.0
    return views + real * (numbers + size.diagonal + 12.0 * size.dim) + explicit + 16.0 * size.dim
