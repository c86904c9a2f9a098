"""t = w Omega J x per edge on the device: the first halves of the products of schedule "jp".

See `codegen.gpu.moved_products`. t lies in the order of a group's primary view. There is one t per group and
set of slots that x is read of; products of slots that leave out their own x have one each. Where all edge
sets have schedule "jp" no product leaves out its own x, so that one t serves all slots (`share_moved`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from graphopt.codegen.gpu.moved_products import TransposedProduct, moved_kernel, transposed_product
from graphopt.codegen.gpu.product_shapes import STOPPABLE
from graphopt.solver.vulkan.context import Context, Launch
from graphopt.solver.vulkan.edges import DeviceEdges
from graphopt.solver.vulkan.generated import arithmetic_of, bound
from graphopt.solver.vulkan.packed_records import PackedRecords
from graphopt.solver.vulkan.storage import Products
from graphopt.solver.vulkan.transfer import DeviceArray, array_of


def share_moved(products: Sequence[Products], all_edges: Iterable[DeviceEdges]) -> bool:
    """Whether slots share t, and so multiply their own x, too: H's diagonal is not used then."""
    if set(products) != {"jp"}:
        return False
    return any(
        sum(arrays.view.num_kept_tiles > 0 for arrays in edges.views.values()) > 1 for edges in all_edges
    )


class MovedVectors:
    """The t of all groups with schedule "jp"."""

    def __init__(self, context: Context, records: PackedRecords):
        """records: of estimates and x."""
        self._context, self._records = context, records
        self._moved: dict[tuple[int, tuple[int, ...]], Any] = {}
        self._places: dict[tuple[int, int], DeviceArray] = {}
        self.nbytes = 0
        """Device memory."""

    def product(self, edges: DeviceEdges, slot: int, sources: tuple[int, ...]) -> TransposedProduct:
        """The second half for a slot."""
        is_ordered = slot == edges.primary_slot
        arithmetic = arithmetic_of(self._context)
        return transposed_product(edges.signature, slot, sources, is_ordered, arithmetic)

    def buffers(self, edges: DeviceEdges, slot: int, sources: tuple[int, ...]) -> dict[str, Any]:
        """What the second half reads beside edges and records."""
        named = {"moved": self._buffer(edges, sources)}
        if slot != edges.primary_slot:
            named["edge_place"] = self._place(edges, slot).buffer
        return named

    def launches(
        self, parts: Iterable[tuple[DeviceEdges, tuple[int, ...]]], status: Any, parity: int | None
    ) -> list[Launch]:
        """The first halves for some groups and sources, each once; after x is packed."""
        wanted = {(id(edges), sources): edges for edges, sources in parts}
        return [
            launch
            for (_, sources), edges in wanted.items()
            for launch in self._launches(edges, sources, status, parity)
        ]

    def _launches(
        self, edges: DeviceEdges, sources: tuple[int, ...], status: Any, parity: int | None
    ) -> list[Launch]:
        kernel = moved_kernel(edges.signature, sources, arithmetic_of(self._context))
        moved = self._buffer(edges, sources)
        buffers = {**edges.product_buffers(edges.primary_slot), "moved": moved, "status": status}
        for slot, number in enumerate(edges.group.vertex_sets):
            buffers[f"packed{slot}"] = self._records.buffer(number)
        num = edges.primary.view.num_edges
        params = {"num_edges": num, "parity": parity or 0}
        constants = {STOPPABLE: int(parity is not None)}
        groups = -(-num // kernel.workgroup_size)
        nbytes = edges.bytes_of(num) + self._size(edges)
        return [bound(self._context, kernel, buffers, params, groups, nbytes, constants)]

    def _size(self, edges: DeviceEdges) -> int:
        """Bytes of t."""
        count = edges.primary.view.num_edges * edges.signature.edge_type.residual_dim
        return count * self._context.real.itemsize

    def _buffer(self, edges: DeviceEdges, sources: tuple[int, ...]) -> Any:
        key = id(edges), sources
        if key not in self._moved:
            size = self._size(edges)
            self._moved[key] = self._context.reals(size // self._context.real.itemsize)
            self.nbytes += size
        return self._moved[key]

    def _place(self, edges: DeviceEdges, slot: int) -> DeviceArray:
        """Of each edge of a slot's view its place in the primary view."""
        key = id(edges), slot
        if key not in self._places:
            places = edges.views[slot].view.places_in(edges.primary.view)
            self._places[key] = array_of(self._context, places)
            self.nbytes += self._places[key].nbytes
        return self._places[key]
