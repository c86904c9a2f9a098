"""Packed records on the device: of each vertex its estimate and its part of a vector x, side by side.

Kernels of products (`codegen.gpu.packed_products`) read both from there, in the type of H. The estimates are
packed once per linearisation, x before each product. Where all products of a vertex set read stored Jacobians
(`codegen.gpu.stored_products`), its records are of x alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from graphopt.codegen.gpu import narrow_record_dim, record_dim
from graphopt.codegen.gpu.packed_products import packed_record_dim
from graphopt.codegen.gpu.product_shapes import STOPPABLE
from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.context import VECTOR_WORKGROUP, Context, Launch
from graphopt.solver.vulkan.records import DeviceEstimates, RecordSet
from graphopt.solver.vulkan.transfer import DeviceArray


@dataclass(frozen=True)
class _Set:
    num_rows: int
    storage_dim: int
    """Numbers of the estimate, 0: records of x alone."""
    tangent_dim: int
    packed_dim: int
    packed: DeviceArray


class PackedRecords:
    """Records of some vertex sets."""

    def __init__(
        self, context: Context, structure: Structure, estimates: DeviceEstimates, sets: Mapping[int, bool]
    ):
        """sets: vertex sets, and whether their records hold estimates."""
        self._context = context
        self._sets = {number: self._make(structure, estimates, number, one) for number, one in sets.items()}

    def _make(
        self, structure: Structure, estimates: DeviceEstimates, number: int, holds_estimate: bool
    ) -> _Set:
        num_rows, storage_dim = estimates.working[number].array.shape
        storage_dim = storage_dim if holds_estimate else 0
        tangent_dim = structure.selection.vertex_sets[number].type.tangent_dim
        dim = packed_record_dim(storage_dim, tangent_dim)
        packed = DeviceArray(self._context, num_rows * dim * self._context.real.itemsize)
        return _Set(num_rows, storage_dim, tangent_dim, dim, packed)

    def buffer(self, number: int) -> Any:
        """Records of a vertex set."""
        return self._sets[number].packed.buffer

    def holds_estimate(self, number: int) -> bool:
        """The records of a vertex set are not of x alone."""
        return self._sets[number].storage_dim > 0

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return sum(one.packed.nbytes for one in self._sets.values())

    def estimate_launches(self, version: Mapping[int, RecordSet]) -> list[Launch]:
        """Pack the estimates of a version."""
        kernel = self._context.shader("pack_estimates", 2, 4, {0: VECTOR_WORKGROUP})
        launches = []
        for number, one in self._sets.items():
            if not one.storage_dim:
                continue
            records = version[number]
            narrow = records.narrow
            source, dim = (
                (records.wide.buffer, record_dim(one.storage_dim))
                if narrow is None or self._context.precision == "double"
                else (narrow.buffer, narrow_record_dim(one.storage_dim))
            )
            count = one.num_rows * one.storage_dim
            params = (one.num_rows, one.storage_dim, dim, one.packed_dim)
            groups = -(-count // VECTOR_WORKGROUP)
            nbytes = 2.0 * count * self._context.real.itemsize
            launches.append(Launch(kernel, (source, one.packed.buffer), params, groups, nbytes))
        return launches

    def vector_launches(
        self,
        numbers: Iterable[int],
        offsets: Mapping[int, DeviceArray],
        x: Any,
        status: Any,
        parity: int | None,
    ) -> list[Launch]:
        """Pack x of some vertex sets; 0 where `offsets` says NOTHING."""
        constants = {0: VECTOR_WORKGROUP, STOPPABLE: int(parity is not None)}
        kernel = self._context.shader("pack_vector", 4, 5, constants)
        launches = []
        for number in numbers:
            one = self._sets[number]
            count = one.num_rows * one.tangent_dim
            params = (one.num_rows, one.storage_dim, one.tangent_dim, one.packed_dim, parity or 0)
            buffers = (offsets[number].buffer, x, one.packed.buffer, status)
            groups = -(-count // VECTOR_WORKGROUP)
            nbytes = 2.0 * count * self._context.real.itemsize
            launches.append(Launch(kernel, buffers, params, groups, nbytes))
        return launches
