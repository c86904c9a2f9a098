"""Schedule "matrix-free": nothing is stored but H's diagonal blocks, products compute the Jacobians anew.

The least memory, and the fastest where the device computes a Jacobian in the time of reading it: the large
bundle adjustments of the benchmark. What takes functions of one vertex alone, as a camera's rotation does, is
computed once per vertex where its edges are many (`codegen.gpu.vertex_values`).
"""

from __future__ import annotations

from typing import Any

from graphopt.codegen.gpu.packed_products import recomputed_product
from graphopt.codegen.gpu.product_shapes import EdgeProduct
from graphopt.codegen.gpu.vertex_values import (
    VALUES_WORKGROUP,
    WithVertexValues,
    product_with_values,
    vertex_values_kernel,
    words_of,
)
from graphopt.solver.vulkan.kernels.edges import Version
from graphopt.solver.vulkan.plan.problem import shared_slots
from graphopt.solver.vulkan.program import Launch
from graphopt.solver.vulkan.schedules.interface import EdgeSchedule


class MatrixFree(EdgeSchedule):
    """As the interface has it, with values of vertices."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.reserve()

    def reserve(self) -> None:
        """Room for values of vertices, per view whose products read some."""
        edges = self.edges
        shares = shared_slots(edges.structure, edges.group)
        self._products: dict[int, WithVertexValues] = {}
        self._values: dict[tuple[int, int], Any] = {}
        for slot, sources in self.sources.items():
            sharing = tuple(k for k in sources if k != slot and shares[k])
            product = product_with_values(edges.signature, slot, sources, self.context.arithmetic, sharing)
            if product.values:
                self._products[slot] = product
            for k, stored in product.values.items():
                self._values[slot, k] = self.context.reals(4 * words_of(len(stored)) * self._num_rows(k))

    def _num_rows(self, k: int) -> int:
        sets = self.edges.structure.selection.vertex_sets
        return len(sets[self.edges.group.vertex_sets[k]].estimate)

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return sum(one.size for one in self._values.values())

    def store_launches(self, version: Version) -> list[Launch]:
        """One per view and slot that is read from."""
        launches = []
        for (slot, k), values in self._values.items():
            product, num_rows = self._products[slot], self._num_rows(k)
            kernel = vertex_values_kernel(product, k)
            named = {**self.edges.buffers(self.edges.views[slot], version), "values": values}
            groups = -(-num_rows // VALUES_WORKGROUP)
            launches.append(self.context.generated(kernel, named, {"num_rows": num_rows}, groups))
        return launches

    def product(self, slot: int, sources: tuple[int, ...], holds_estimate: tuple[bool, ...]) -> EdgeProduct:
        """With values of vertices, where these are those of its view."""
        if self._has_values(slot, sources):
            return self._products[slot]
        return recomputed_product(self.edges.signature, slot, sources, self.context.arithmetic)

    def _has_values(self, slot: int, sources: tuple[int, ...]) -> bool:
        return slot in self._products and sources == self.sources[slot]

    def buffers(self, slot: int, sources: tuple[int, ...]) -> dict[str, Any]:
        """The values."""
        if not self._has_values(slot, sources):
            return {}
        return {f"values{k}": self._values[slot, k] for k in self._products[slot].values}


SCHEDULES = {"matrix-free": MatrixFree}
