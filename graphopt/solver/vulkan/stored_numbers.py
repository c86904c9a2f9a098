"""What the view of a slot stores per linearisation for the products of schedule "jacobians"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphopt.codegen.gpu import EDGE_BLOCK, EdgeSignature
from graphopt.codegen.gpu.stored_products import store_kernel, stored_entries
from graphopt.solver.vulkan.context import Context, Launch
from graphopt.solver.vulkan.edge_views import EdgeView
from graphopt.solver.vulkan.generated import arithmetic_of, bound


class StoredNumbers:
    """The numbers of one view's edges, see `codegen.gpu.stored_products`."""

    def __init__(self, context: Context, signature: EdgeSignature, view: EdgeView, sources: tuple[int, ...]):
        """sources: slots whose x products of this view read."""
        self._context, self._signature, self._view = context, signature, view
        self.sources = sources
        self._num_edges = int(view.first[-1])  # after them come edges of no destination
        self.count = stored_entries(signature, view.slot, sources).count
        """Numbers per edge; 0: all are constants, and nothing is stored."""
        num = -(-self._num_edges // EDGE_BLOCK) * EDGE_BLOCK * self.count
        self.nbytes = num * context.real.itemsize
        self.buffer: Any = context.reals(num) if num else None

    def launches(self, buffers: Mapping[str, Any], bytes_read: float) -> list[Launch]:
        """Store the numbers; buffers: estimates, parameters and edges by the kernel's names."""
        if self.buffer is None:
            return []
        arithmetic = arithmetic_of(self._context)
        kernel = store_kernel(self._signature, self._view.slot, self.sources, arithmetic)
        named = {**buffers, "stored": self.buffer}
        groups = -(-self._num_edges // kernel.workgroup_size)
        params = {"num_edges": self._num_edges}
        return [bound(self._context, kernel, named, params, groups, bytes_read + self.nbytes)]
