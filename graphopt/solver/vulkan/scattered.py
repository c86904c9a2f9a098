"""Evaluation "scatter": the records that one kernel leaves of all edges of a group, and who reads them.

See `codegen.gpu.scattered`. Evaluation "gather" has nothing of the kind: each view evaluates its edges anew.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from graphopt.codegen.gpu import EdgeSignature, GpuKernel
from graphopt.codegen.gpu.scattered import (
    Scattered,
    evaluate_kernel,
    scattered_linearize_kernel,
    scattered_pair_kernel,
)
from graphopt.solver.vulkan.context import Context, Launch
from graphopt.solver.vulkan.edge_views import EdgeView
from graphopt.solver.vulkan.generated import arithmetic_of, bound
from graphopt.solver.vulkan.transfer import DeviceArray, array_of


class ScatteredRecords:
    """Records of a group, in the order of its primary view."""

    def __init__(
        self,
        context: Context,
        signature: EdgeSignature,
        views: Sequence[EdgeView],
        primary: EdgeView,
        pairs: Sequence[tuple[int, int]],
    ):
        """views: of all slots that have one. pairs: slots of the pair lists."""
        slots = tuple(sorted(view.slot for view in views))
        self._what = Scattered(signature, slots, tuple(pairs))
        self._num_edges = primary.num_edges
        self._places: dict[int, DeviceArray] = {
            view.slot: array_of(context, view.places_in(primary)) for view in views
        }
        self._take(context)

    def _take(self, context: Context) -> None:
        self._context, self._arithmetic = context, arithmetic_of(context)
        self.record_bytes = self._what.record_dim() * context.real.itemsize
        self._numbers = context.reals(self._what.record_dim() * self._num_edges)

    def in_context(self, context: Context) -> ScatteredRecords:
        """The same in another precision, with records of its own."""
        own = copy.copy(self)
        own._take(context)
        return own

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return self.record_bytes * self._num_edges + sum(one.nbytes for one in self._places.values())

    def buffers(self, slot: int) -> dict[str, Any]:
        """What kernels over a slot's view read, and pair kernels of the records alone."""
        return {"numbers": self._numbers, "place": self._places[slot].buffer}

    def linearize_kernel(self, slot: int, parts: bool = False) -> GpuKernel:
        """H_aa and b_a of a slot."""
        return scattered_linearize_kernel(self._what, slot, self._arithmetic, parts)

    def pair_kernel(self, slots: tuple[int, int]) -> GpuKernel:
        """H_ab."""
        return scattered_pair_kernel(self._what, *slots, self._arithmetic)

    def evaluate_kernel(self) -> GpuKernel:
        """The records."""
        return evaluate_kernel(self._what, self._arithmetic)

    def launch(self, buffers: Mapping[str, Any], bytes_read: float) -> Launch:
        """Evaluate all edges; buffers: estimates, parameters and edges by the kernel's names."""
        kernel = self.evaluate_kernel()
        groups = -(-self._num_edges // kernel.workgroup_size)
        nbytes = bytes_read + self.record_bytes * self._num_edges
        named = {**buffers, "numbers": self._numbers}
        return bound(self._context, kernel, named, {"num_edges": self._num_edges}, groups, nbytes)
