"""Evaluation "scatter": one kernel evaluates every edge once and leaves a record of it, which the sums read.

    gather    per slot and stored pair of slots a pass that evaluates the edges
    scatter   one pass that evaluates them and writes records; per slot and pair one that reads these

See `codegen.gpu.scattered`. Sums that read records are not merged with those of other edge types.

On an H200 it was slower than "gather" on every problem of the benchmark: `auto` never takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

from graphopt.codegen.gpu import GpuKernel
from graphopt.codegen.gpu.scattered import (
    Scattered,
    evaluate_kernel,
    scattered_linearize_kernel,
    scattered_pair_kernel,
)
from graphopt.option_names import Evaluation as EvaluationName
from graphopt.option_names import Products
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.kernels.edges import DeviceEdges, Version
from graphopt.vulkan.operators.interface import Evaluation
from graphopt.vulkan.plan.passes import WORD, PassCost, edge_pass
from graphopt.vulkan.plan.problem import GroupSize
from graphopt.vulkan.program import NEAR_BYTES, Context, Launch


class Scatter(Evaluation):
    """Records of a group, in the order of its primary view."""

    name: EvaluationName = "scatter"
    wins = False
    stands_alone = True

    def __init__(self, context: Context, edges: DeviceEdges):
        super().__init__(context, edges)
        pairs = tuple(sorted({pair.pairs.slots for pair in edges.pairs}))
        self._records = Scattered(edges.signature, tuple(sorted(edges.views)), pairs)
        primary = edges.primary.view
        self._places: dict[int, DeviceArray] = {
            slot: DeviceArray.of(context, arrays.view.places_in(primary))
            for slot, arrays in edges.views.items()
        }
        self.reserve()

    def reserve(self) -> None:
        """The records, which depend on the precision."""
        count = self._records.record_dim() * self.edges.primary.view.num_edges
        self._record_bytes = count * self.context.real.itemsize
        self._numbers = self.context.reals(count)

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return self._record_bytes + sum(place.nbytes for place in self._places.values())

    def buffers(self, slot: int) -> Mapping[str, Any]:
        """What kernels over a slot's view read, and pair kernels of the records alone."""
        return {"numbers": self._numbers, "place": self._places[slot].buffer}

    def linearize_kernel(self, slot: int, parts: bool) -> GpuKernel:
        """H_aa and b_a of a slot."""
        return scattered_linearize_kernel(self._records, slot, self.context.arithmetic, parts)

    def pair_kernel(self, slots: tuple[int, int]) -> GpuKernel:
        """H_ab."""
        return scattered_pair_kernel(self._records, *slots, self.context.arithmetic)

    def launches(self, version: Version) -> list[Launch]:
        """Evaluate all edges."""
        kernel, edges = evaluate_kernel(self._records, self.context.arithmetic), self.edges
        num = edges.primary.view.num_edges
        named = {**edges.buffers(edges.primary, version), "numbers": self._numbers}
        nbytes = edges.bytes_of(num) + self._record_bytes
        groups = -(-num // kernel.workgroup_size)
        return [self.context.generated(kernel, named, {"num_edges": num}, groups, nbytes)]

    # ---------------------------------------------------------------- what it costs

    @classmethod
    def is_possible(cls, g: GroupSize, stored: Products, real: int) -> bool:
        """Kernels can count the bytes of its records."""
        return g.num_edges * record_dim(g, stored) * real < NEAR_BYTES

    @classmethod
    def memory(cls, g: GroupSize, stored: Products, real: int) -> float:
        """Records and places."""
        return float(g.num_edges * (real * record_dim(g, stored) + 4 * g.arity))

    @classmethod
    def passes(cls, g: GroupSize, stored: Products, real: int) -> list[PassCost]:
        """One slot's view has the records in its own order."""
        record = record_dim(g, stored)
        evaluation = edge_pass(g, float(g.linearize_flops), more_bytes=float(g.num_edges * real * record))
        primary = max(range(g.arity), key=lambda slot: (g.is_eliminated[slot], -slot))
        sums: list[tuple[int, ...]] = [(a,) for a in range(g.arity)]
        if stored == "blocks":
            sums += combinations(range(g.arity), 2)
        return [evaluation, *(_sum_pass(g, slots, real, slots == (primary,)) for slots in sums)]


def _sum_pass(g: GroupSize, slots: tuple[int, ...], real: int, in_order: bool) -> PassCost:
    dims = [g.tangent_dims[slot] for slot in slots]
    read = min(_factors(g, dims), dims[0] * (dims[0] + 3) // 2 if len(dims) == 1 else dims[0] * dims[1])
    words = 0 if in_order else -(-read * real // WORD)
    return PassCost(
        nbytes=float(g.num_edges * (real * read + 4)),
        flops=2.0 * g.num_edges * g.residual_dim * dims[0] * (g.residual_dim + dims[-1]),
        gathers=2.0 * g.num_edges * words,  # no two edges share a record
    )


def record_dim(g: GroupSize, stored: Products) -> int:
    """Numbers of an edge's record, if none is constant or there twice; see `codegen.gpu.scattered`."""
    vertices = sum(d * (d + 3) // 2 for d in g.tangent_dims)
    pairs = sum(a * b for a, b in combinations(g.tangent_dims, 2)) if stored == "blocks" else 0
    return -(-min(_factors(g, g.tangent_dims), vertices + pairs) // 4) * 4


def _factors(g: GroupSize, dims: Iterable[int]) -> int:
    return g.residual_dim * (sum(dims) + 1) + g.weight_dim
