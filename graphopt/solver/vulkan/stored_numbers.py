"""What the view of a slot stores per linearisation for its products.

jacobians     what a product reads of the Jacobians, see `codegen.gpu.stored_products`
expressions   values of its program, see `codegen.gpu.expression_products`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphopt.codegen.gpu import EDGE_BLOCK, EdgeSignature
from graphopt.codegen.gpu.expression_cuts import ViewCut
from graphopt.codegen.gpu.expression_products import (
    ExpressionProduct,
    expression_product,
    store_expressions_kernel,
)
from graphopt.codegen.gpu.stored_products import StoredProduct, store_kernel, stored_entries
from graphopt.device.figures import device_figures
from graphopt.solver.structure import EdgeGroup, Structure
from graphopt.solver.vulkan.context import Context, Launch
from graphopt.solver.vulkan.edge_views import EdgeView
from graphopt.solver.vulkan.generated import arithmetic_of, bound
from graphopt.solver.vulkan.storage import Products
from graphopt.solver.vulkan.view_cuts import cut_of, shared_slots


class StoredNumbers:
    """The numbers of one view's edges."""

    def __init__(
        self,
        context: Context,
        signature: EdgeSignature,
        view: EdgeView,
        sources: tuple[int, ...],
        cut: ViewCut | None = None,
    ):
        """sources: slots whose x products of this view read. cut: the expressions, None: Jacobians."""
        self._context, self._signature, self._view = context, signature, view
        self.sources = sources
        self._cut = None if cut is None or cut.where == "outputs" else cut
        self._num_edges = int(view.first[-1])  # after them come edges of no destination
        self.count = (
            stored_entries(signature, view.slot, sources).count
            if self._cut is None
            else len(self._cut.stored)
        )
        """Numbers per edge; 0: all are constants or computed anew, and nothing is stored."""
        num = -(-self._num_edges // EDGE_BLOCK) * EDGE_BLOCK * self.count
        self.nbytes = num * context.real.itemsize
        self.buffer: Any = context.reals(num) if num else None

    def launches(self, buffers: Mapping[str, Any], bytes_read: float) -> list[Launch]:
        """Store the numbers; buffers: estimates, parameters and edges by the kernel's names."""
        if self.buffer is None:
            return []
        arithmetic, slot = arithmetic_of(self._context), self._view.slot
        kernel = (
            store_kernel(self._signature, slot, self.sources, arithmetic)
            if self._cut is None
            else store_expressions_kernel(self._signature, slot, self.sources, self._cut, arithmetic)
        )
        named = {**buffers, "stored": self.buffer}
        groups = -(-self._num_edges // kernel.workgroup_size)
        params = {"num_edges": self._num_edges}
        return [bound(self._context, kernel, named, params, groups, bytes_read + self.nbytes)]

    def product(
        self, sources: tuple[int, ...], holds_estimate: tuple[bool, ...]
    ) -> StoredProduct | ExpressionProduct:
        """The product from x of some of the sources; holds_estimate: per slot, of packed records."""
        arithmetic, own = arithmetic_of(self._context), self._signature
        if self._cut is None:
            return StoredProduct(own, self._view.slot, sources, self.sources, holds_estimate, arithmetic)
        slot = self._view.slot
        return expression_product(own, slot, sources, self.sources, holds_estimate, self._cut, arithmetic)

    def reads_estimate(self, slot: int) -> bool:
        """Whether products read estimates of a slot."""
        if self._cut is None:
            return False
        product = self.product(self.sources, (True,) * self._signature.arity)
        return isinstance(product, ExpressionProduct) and product.reads_estimate(slot)


def stored_numbers(
    context: Context,
    structure: Structure,
    group: EdgeGroup,
    signature: EdgeSignature,
    views: Mapping[int, EdgeView],
    sources: Mapping[int, tuple[int, ...]],
    products: Products,
) -> dict[int, StoredNumbers]:
    """Of a group with schedule "jacobians" or "expressions", by slot; sources: of each view's products."""
    cuts: dict[int, ViewCut] = {}
    if products == "expressions":
        shares, figures = shared_slots(structure, group), device_figures(context.device)
        for slot, slots in sources.items():
            cuts[slot] = cut_of(signature, slot, slots, shares[slot], figures, context.precision)
    return {
        slot: StoredNumbers(context, signature, views[slot], slots, cuts.get(slot))
        for slot, slots in sources.items()
    }
