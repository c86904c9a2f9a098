"""Schedule "matrix-free": nothing is stored but H's diagonal blocks, products compute the Jacobians anew.

The least memory, and the fastest where the device computes a Jacobian in the time of reading it: the large
bundle adjustments of the benchmark. What takes functions of one vertex alone, as a camera's rotation does, is
computed once per vertex where its edges are many (`codegen.gpu.vertex_values`).
"""

from __future__ import annotations

from typing import Any

from graphopt.codegen.gpu.staged_products import product_in_workgroups
from graphopt.codegen.gpu.vertex_values import (
    VALUES_WORKGROUP,
    WithVertexValues,
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
        self._shares = shared_slots(self.edges.structure, self.edges.group)
        self._values: dict[tuple[int, int], Any] = {}
        for slot, sources in self.sources.items():
            for k, stored in self._product(slot, sources).values.items():
                self._values[slot, k] = self.context.reals(4 * words_of(len(stored)) * self._num_rows(k))

    def _product(self, slot: int, sources: tuple[int, ...]) -> WithVertexValues:
        """With values of vertices, where the sources are those of the view."""
        is_whole = sources == self.sources[slot]
        sharing = tuple(k for k in sources if k != slot and self._shares[k]) if is_whole else ()
        shared_bytes = int(self.context.device.info.get("max_shared_memory", 0))
        own = (self.edges.signature, slot, sources, self.context.arithmetic, sharing)
        return product_in_workgroups(*own, shared_bytes)

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
            kernel, num_rows = (
                vertex_values_kernel(self._product(slot, self.sources[slot]), k),
                self._num_rows(k),
            )
            named = {**self.edges.buffers(self.edges.views[slot], version), "values": values}
            groups = -(-num_rows // VALUES_WORKGROUP)
            launches.append(self.context.generated(kernel, named, {"num_rows": num_rows}, groups))
        return launches

    def product(
        self, slot: int, sources: tuple[int, ...], holds_estimate: tuple[bool, ...]
    ) -> WithVertexValues:
        """Records hold estimates in any case."""
        return self._product(slot, sources)

    def buffers(self, slot: int, sources: tuple[int, ...]) -> dict[str, Any]:
        """The values."""
        return {f"values{k}": self._values[slot, k] for k in self._product(slot, sources).values}


SCHEDULES = {"matrix-free": MatrixFree}
