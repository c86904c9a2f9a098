"""Schedule "jacobians": per edge and view, what a product reads of the Jacobians is stored.

w Omega J_a and the J_t, or J_a' w Omega J_t where these are fewer numbers (`codegen.gpu.stored_products`).
Products read long arrays at 94 to 100 % of the bandwidth; it pays where Jacobians take long to compute, or
where the device computes slowly in float64.
"""

from __future__ import annotations

from typing import Any

from graphopt.codegen.gpu import EDGE_BLOCK, GpuKernel
from graphopt.codegen.gpu.product_shapes import EdgeProduct
from graphopt.codegen.gpu.stored_products import StoredProduct, store_kernel, stored_entries
from graphopt.option_names import Products
from graphopt.vulkan.kernels.edges import Version
from graphopt.vulkan.operators.interface import EdgeSchedule
from graphopt.vulkan.plan.passes import STREAM_EFFICIENCY, EdgeCosts, PassCost, bytes_of
from graphopt.vulkan.plan.problem import GroupSize
from graphopt.vulkan.program import Launch


class StoredView:
    """The numbers of one view's edges."""

    def __init__(self, count: int, num_edges: int):
        self.count, self.num_edges = count, num_edges
        self.buffer: Any = None
        """None where all numbers are constants or computed anew."""
        self.nbytes = 0


class Jacobians(EdgeSchedule):
    """Numbers per edge and view."""

    name: Products = "jacobians"

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.stored: dict[int, StoredView] = {}
        """By slot."""
        self.reserve()

    def count(self, slot: int) -> int:
        """Numbers per edge."""
        return stored_entries(self.edges.signature, slot, self.sources[slot]).count

    def kernel(self, slot: int) -> GpuKernel:
        """What stores them."""
        return store_kernel(
            self.edges.views[slot].signature, slot, self.sources[slot], self.context.arithmetic
        )

    def reserve(self) -> None:
        """Edges of no destination, the last ones of a view, have none."""
        self.stored = {}
        for slot in self.sources:
            num_edges = int(self.edges.views[slot].view.first[-1])
            view = self.stored[slot] = StoredView(self.count(slot), num_edges)
            num = -(-num_edges // EDGE_BLOCK) * EDGE_BLOCK * view.count
            view.nbytes = num * self.context.real.itemsize
            view.buffer = self.context.reals(num) if num else None

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return sum(view.nbytes for view in self.stored.values())

    def bytes_of(self, slot: int) -> int:
        """Of one view."""
        return self.stored[slot].nbytes if slot in self.stored else 0

    def store_launches(self, version: Version) -> list[Launch]:
        """One per view."""
        launches = []
        for slot, view in self.stored.items():
            if view.buffer is None:
                continue
            arrays, kernel = self.edges.views[slot], self.kernel(slot)
            named = {**self.edges.buffers(arrays, version), "stored": view.buffer}
            groups = -(-view.num_edges // kernel.workgroup_size)
            nbytes = self.edges.bytes_of(arrays.view.num_edges) + view.nbytes
            params = {"num_edges": view.num_edges}
            launches.append(self.context.generated(kernel, named, params, groups, nbytes))
        return launches

    def reads_estimate(self, slot: int) -> bool:
        """Stored numbers need none."""
        return False

    def product(self, slot: int, sources: tuple[int, ...], holds_estimate: tuple[bool, ...]) -> EdgeProduct:
        """Products with stored factors or blocks."""
        own, arithmetic = self.edges.signature, self.context.arithmetic
        return StoredProduct(own, slot, sources, self.sources[slot], holds_estimate, arithmetic)

    def buffers(self, slot: int, sources: tuple[int, ...]) -> dict[str, Any]:
        """The numbers."""
        return {"stored": self.stored[slot].buffer}

    @classmethod
    def stored_numbers(cls, costs: EdgeCosts, g: GroupSize, slot: int) -> int:
        """If none is constant or there twice."""
        return g.stored_dim(slot)

    @classmethod
    def product_pass(cls, costs: EdgeCosts, g: GroupSize, slot: int) -> PassCost:
        """Reads numbers, rows of the other ends, and x there."""
        numbers = g.stored_dim(slot)
        return PassCost(
            nbytes=float(g.num_edges * (bytes_of(costs.precision) * numbers + 4 * (g.arity - 1))),
            flops=2.0 * g.num_edges * numbers,
            gathers=float(g.num_edges * costs.words_of_x(g, slot)),
            bandwidth=STREAM_EFFICIENCY,
        )

    @classmethod
    def live_values(cls, g: GroupSize) -> int:
        """J x."""
        return g.residual_dim
