"""Schedule "jp": each product first computes t = w Omega J x per edge, then J_a' t per vertex.

Of n vertices per edge "matrix-free" computes all Jacobians n times in a product. t lies in the order of a
group's primary view. There is one t per set of slots that x is read of; products of slots that leave out
their own x have one each. Where all edge sets have this schedule no product leaves out its own x, so that one
t serves all slots. See `codegen.gpu.moved_products`.

It was the fastest on none of the six problems of the benchmark (ba-large: 24.3 ms against 17.2): `auto` never
takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from graphopt.codegen.gpu.moved_products import moved_kernel, transposed_product
from graphopt.codegen.gpu.product_shapes import STOPPABLE, EdgeProduct
from graphopt.option_names import Products
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.kernels.edges import DeviceEdges
from graphopt.vulkan.kernels.parts import PackedRecords
from graphopt.vulkan.operators.interface import EdgeSchedule
from graphopt.vulkan.plan.passes import PRODUCT_FLOPS, EdgeCosts, PassCost, bytes_of, edge_pass
from graphopt.vulkan.plan.problem import GroupSize
from graphopt.vulkan.program import Launch


class Jp(EdgeSchedule):
    """The t of a group."""

    name: Products = "jp"
    wins = False

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.reserve()

    def reserve(self) -> None:
        """A t is made when a product first needs it."""
        self.moved: dict[tuple[int, ...], Any] = {}
        self._places: dict[int, DeviceArray] = {}

    @classmethod
    def needs_diagonal(cls, everybody: Sequence[DeviceEdges]) -> bool:
        """Slots share t, and so multiply their own x, too."""
        return any(
            sum(arrays.view.num_kept_tiles > 0 for arrays in edges.views.values()) > 1 for edges in everybody
        )

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return len(self.moved) * self._size + sum(place.nbytes for place in self._places.values())

    @property
    def _size(self) -> int:
        """Bytes of t."""
        count = self.edges.primary.view.num_edges * self.edges.signature.edge_type.residual_dim
        return count * self.context.real.itemsize

    def first_launches(
        self, wanted: Iterable[tuple[int, ...]], records: PackedRecords, status: Any, ping_pong: int | None
    ) -> list[Launch]:
        """One t for each set of sources."""
        return [self._launch(sources, records, status, ping_pong) for sources in dict.fromkeys(wanted)]

    def _launch(
        self, sources: tuple[int, ...], records: PackedRecords, status: Any, ping_pong: int | None
    ) -> Launch:
        edges = self.edges
        kernel = moved_kernel(edges.signature, sources, self.context.arithmetic)
        buffers = {**edges.product_buffers(edges.primary_slot), "moved": self._buffer(sources)}
        buffers["status"] = status
        for slot, number in enumerate(edges.group.vertex_sets):
            buffers[f"packed{slot}"] = records.buffer(number)
        num = edges.primary.view.num_edges
        params, constants = (
            {"num_edges": num, "ping_pong": ping_pong or 0},
            {STOPPABLE: int(ping_pong is not None)},
        )
        groups = -(-num // kernel.workgroup_size)
        nbytes = edges.bytes_of(num) + self._size
        return self.context.generated(kernel, buffers, params, groups, nbytes, constants)

    def product(self, slot: int, sources: tuple[int, ...], holds_estimate: tuple[bool, ...]) -> EdgeProduct:
        """The second half."""
        is_ordered, own = slot == self.edges.primary_slot, self.edges.signature
        return transposed_product(own, slot, sources, is_ordered, self.context.arithmetic)

    def buffers(self, slot: int, sources: tuple[int, ...]) -> dict[str, Any]:
        """t, and its places in the order of a view that is not the primary one."""
        named = {"moved": self._buffer(sources)}
        if slot != self.edges.primary_slot:
            if slot not in self._places:
                places = self.edges.views[slot].view.places_in(self.edges.primary.view)
                self._places[slot] = DeviceArray.of(self.context, places)
            named["edge_place"] = self._places[slot].buffer
        return named

    def _buffer(self, sources: tuple[int, ...]) -> Any:
        if sources not in self.moved:
            self.moved[sources] = self.context.reals(self._size // self.context.real.itemsize)
        return self.moved[sources]

    # ---------------------------------------------------------------- what it costs

    @classmethod
    def num_moved(cls, costs: EdgeCosts, g: GroupSize, everybody: Sequence[Products], schur: str) -> int:
        """How many vectors t a product computes."""
        kept = [_num_kept(group, schur) for group in costs.size.groups]
        shares = set(everybody) == {"jp"} and max(kept) > 1
        own = _num_kept(g, schur)
        of_kept = 1 if shares and own else own if g.arity > 1 else 0
        return of_kept + (1 if 0 < own < g.arity else 0)

    @classmethod
    def shared_numbers(cls, costs: EdgeCosts, g: GroupSize, everybody: Sequence[Products], schur: str) -> int:
        """Those of all t."""
        return g.residual_dim * cls.num_moved(costs, g, everybody, schur)

    @classmethod
    def first_passes(
        cls, costs: EdgeCosts, g: GroupSize, everybody: Sequence[Products], schur: str
    ) -> list[PassCost]:
        """J x per edge."""
        real = bytes_of(costs.precision)
        moved, words = float(g.num_edges * real * g.residual_dim), costs.words_of_x(g, 0)
        half = edge_pass(g, _half_flops(costs, g), skip=0, more_bytes=moved, more_words=words)
        return cls.num_moved(costs, g, everybody, schur) * [half]

    @classmethod
    def product_pass(cls, costs: EdgeCosts, g: GroupSize, slot: int) -> PassCost:
        """The second half."""
        read = float(g.num_edges * (bytes_of(costs.precision) * g.residual_dim + 4))
        return edge_pass(g, _half_flops(costs, g), skip=slot, more_bytes=read)


def _half_flops(costs: EdgeCosts, g: GroupSize) -> float:
    return 0.5 * PRODUCT_FLOPS[costs.precision] * g.chi2_flops


def _num_kept(g: GroupSize, schur: str) -> int:
    """Slots that Schur does not eliminate."""
    return g.arity - sum(g.is_eliminated) if schur == "implicit" else g.arity
