"""What an operator is: what it stores, what it launches, what it costs.

`EdgeSchedule` is for the products of the conjugate gradients,

    y_a = sum over edges of J_a' w Omega sum over t of J_t x_t,

`Evaluation` for H and b. One object of each belongs to an edge group on a device; class methods say what they
would cost. The base classes are the ways that store nothing: products "matrix-free", evaluation "gather".
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

from graphopt.codegen import gpu
from graphopt.codegen.gpu.packed_products import recomputed_product
from graphopt.codegen.gpu.product_shapes import EdgeProduct
from graphopt.option_names import Evaluation as EvaluationName
from graphopt.option_names import Products
from graphopt.vulkan.data.layout import BlockLayout
from graphopt.vulkan.kernels.edges import BlocksOfPairs, DeviceEdges, Version
from graphopt.vulkan.kernels.parts import PackedRecords
from graphopt.vulkan.kernels.writers import Writer
from graphopt.vulkan.plan.passes import EdgeCosts, PassCost, edge_pass
from graphopt.vulkan.plan.problem import GroupSize
from graphopt.vulkan.program import Context, Launch


@dataclass(frozen=True)
class Operators:
    """What the linearisation and the products of a problem are made of, per edge group."""

    products: tuple[type[EdgeSchedule], ...]
    evaluations: tuple[type[Evaluation], ...]


class EdgeSchedule:
    """The products of an edge group: nothing is stored, Jacobians are computed anew in each of them."""

    name: ClassVar[Products] = "matrix-free"
    wins: ClassVar[bool] = True
    """On some problem of the benchmark: else only who names it gets it."""
    stores_blocks: ClassVar[bool] = False
    """The group's blocks of H are stored, and take its part in products."""

    def __init__(self, context: Context, edges: DeviceEdges, uses_diagonal: bool):
        """edges: with all views. uses_diagonal: products leave out a vertex's part of its own row."""
        self.context, self.edges = context, weakref.proxy(edges)  # which own this object
        self.sources = edges.sources(uses_diagonal)
        """By slot, those whose x its products may read."""

    def in_context(self, context: Context, edges: DeviceEdges) -> EdgeSchedule:
        """The same over the same edges in another precision."""
        own = copy.copy(self)
        own.context, own.edges = context, weakref.proxy(edges)
        own.reserve()
        return own

    @classmethod
    def needs_diagonal(cls, everybody: Sequence[DeviceEdges]) -> bool:
        """Products of these groups, all of this schedule, multiply what H's diagonal blocks hold, too."""
        return False

    # ---------------------------------------------------------------- what it stores

    def reserve(self) -> None:
        """Make room for it."""

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return 0

    def bytes_of(self, slot: int) -> int:
        """Of it, what a product over a slot's view reads."""
        return 0

    # ---------------------------------------------------------------- what it launches

    def store_launches(self, version: Version) -> list[Launch]:
        """After a linearisation."""
        return []

    def first_launches(
        self, wanted: Iterable[tuple[int, ...]], records: PackedRecords, status: Any, ping_pong: int | None
    ) -> list[Launch]:
        """Before the sums of a product, once x is packed; wanted: the sources of these sums."""
        return []

    def reads_estimate(self, slot: int) -> bool:
        """Products read estimates of a slot."""
        return True

    def product(self, slot: int, sources: tuple[int, ...], holds_estimate: tuple[bool, ...]) -> EdgeProduct:
        """What an edge contributes; holds_estimate: per slot, of packed records."""
        return recomputed_product(self.edges.views[slot].signature, slot, sources, self.context.arithmetic)

    def buffers(self, slot: int, sources: tuple[int, ...]) -> dict[str, Any]:
        """What the product reads beside edges and packed records."""
        return {}

    # ---------------------------------------------------------------- what it costs

    @classmethod
    def stored_numbers(cls, costs: EdgeCosts, g: GroupSize, slot: int) -> int:
        """Of an edge in the view of a slot."""
        return 0

    @classmethod
    def shared_numbers(cls, costs: EdgeCosts, g: GroupSize, everybody: Sequence[Products], schur: str) -> int:
        """Of an edge for all of its views; everybody: schedules of all groups."""
        return 0

    @classmethod
    def product_pass(cls, costs: EdgeCosts, g: GroupSize, slot: int) -> PassCost:
        """A product over the view of a slot."""
        return costs.anew(g, slot)

    @classmethod
    def first_passes(
        cls, costs: EdgeCosts, g: GroupSize, everybody: Sequence[Products], schur: str
    ) -> list[PassCost]:
        """What precedes the sums of a product."""
        return []

    @classmethod
    def live_values(cls, g: GroupSize) -> int:
        """At the same time, in a product."""
        return g.chi2_values


class Evaluation:
    """Who evaluates a group's edges for H and b: each sum over them anew."""

    name: ClassVar[EvaluationName] = "gather"
    wins: ClassVar[bool] = True
    stands_alone: ClassVar[bool] = False
    """Sums of the group are not joined with those of others."""
    writes_alone: ClassVar[bool] = False
    """It has writers of its own for all sums (`own_writers`), and where H is stored needs one view only."""
    is_predicted: ClassVar[bool] = True
    """The cost model compares it with others; else only a rule or the user takes it."""

    def __init__(self, context: Context, edges: DeviceEdges):
        """edges: with all views and pair lists."""
        self.context, self.edges = context, weakref.proxy(edges)  # which own this object

    def in_context(self, context: Context, edges: DeviceEdges) -> Evaluation:
        """The same over the same edges in another precision."""
        own = copy.copy(self)
        own.context, own.edges = context, weakref.proxy(edges)
        own.reserve()
        return own

    def reserve(self) -> None:
        """Make room for what it stores."""

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return 0

    def launches(self, version: Version) -> list[Launch]:
        """Before the sums."""
        return []

    def own_writers(self, layout: BlockLayout, places: BlocksOfPairs) -> list[Writer]:
        """Of one that `writes_alone`. places: of the group's off-diagonal blocks."""
        raise NotImplementedError(self.name)

    def linearize_kernel(self, slot: int, parts: bool) -> gpu.GpuKernel:
        """H_aa and b_a of a slot."""
        return gpu.linearize_kernel(self.edges.views[slot].signature, slot, self.context.arithmetic, parts)

    def pair_kernel(self, slots: tuple[int, int]) -> gpu.GpuKernel:
        """H_ab."""
        return gpu.pair_kernel(self.edges.signature, *slots, self.context.arithmetic)

    def buffers(self, slot: int) -> Mapping[str, Any]:
        """What these read beside the edges of a slot's view."""
        return {}

    @classmethod
    def is_possible(cls, g: GroupSize, stored: Products, real: int) -> bool:
        """Kernels can count it. real: bytes of a number."""
        return True

    @classmethod
    def memory(cls, g: GroupSize, stored: Products, real: int) -> float:
        """Bytes."""
        return 0.0

    @classmethod
    def passes(cls, g: GroupSize, stored: Products, real: int) -> list[PassCost]:
        """Over the edges for H_aa and b_a of all slots, and for H_ab; without writing these."""
        flops = float(g.linearize_flops)
        pairs = len(list(combinations(range(g.arity), 2))) if stored == "blocks" else 0
        views = [edge_pass(g, flops, skip=slot) for slot in range(g.arity)]
        return [*views, *(pairs * [edge_pass(g, flops)])]
