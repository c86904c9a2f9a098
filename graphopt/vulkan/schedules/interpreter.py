"""Linearisation that starts with the interpreter and goes on with compiled kernels.

`TieredLinearizer` has the interface of `DeviceLinearizer`. The bytecode that the CPU runs is interpreted on
the device at once; a thread makes the views and kernels of the compiled linearisation, and `advance`, which
the solver calls between submissions, changes over. Programs recorded before are outdated then.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from graphopt import pyglslang
from graphopt.codegen import gpu
from graphopt.codegen.cache import compiler_hash
from graphopt.codegen.interpreter import DeviceProgram, pack_program
from graphopt.device import VulkanDevice, spirv
from graphopt.device.tiers import BuiltKernels, Tier, TieredKernel, tier_choice
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.cpu import compiled_edge, compiled_vertex
from graphopt.types.base import working_edge_type, working_vertex_type
from graphopt.types.cache import per_type_cache
from graphopt.vulkan.kernels.edges import DeviceEdges
from graphopt.vulkan.kernels.linearize import DeviceLinearizer
from graphopt.vulkan.plan.storage import Storage
from graphopt.vulkan.program import Context, Launch
from graphopt.vulkan.schedules.gather import gather_lists
from graphopt.vulkan.schedules.interpreted import (
    SCRATCH_BYTES,
    EdgeArrays,
    InterpretedEdges,
    InterpretedLinearization,
    InterpretedOplus,
    Interpreter,
    Records,
)

MAX_INTERPRETED_ENTRIES = 1 << 23
"""Blocks that edges contribute to, at most, for `auto`: lists of more take longer to make than kernels."""


@per_type_cache
def _packed(edge_type: Any, information: str, kernel: int) -> tuple[DeviceProgram, DeviceProgram]:
    """chi2 and linearize."""
    compiled = compiled_edge(edge_type, information, kernel)
    return pack_program(compiled.chi2, compiled.kernel), pack_program(compiled.linearize, compiled.kernel)


@per_type_cache
def _packed_vertex(vertex_type: Any) -> DeviceProgram:
    return pack_program(compiled_vertex(vertex_type))


def make_device_linearizer(
    context: Context, structure: Structure, storage: Storage, merged: frozenset[int] = frozenset()
) -> DeviceLinearizer:
    """The tiered linearizer, or one with compiled kernels only. merged: as `DeviceLinearizer`.

    Compiled only: where they have been built before, where GRAPHOPT_TIER says so, where products come from
    edges (they are compiled anyway) and over Kompute.
    """
    device, choice = context.device, tier_choice()
    can_interpret = storage.is_whole and isinstance(device, VulkanDevice)
    if choice == "auto" and not pyglslang.is_available():
        choice = "interpreter"  # there is nothing that could compile
    if can_interpret and choice == "interpreter":
        return TieredLinearizer(context, structure, storage, merged, None)
    if can_interpret and choice == "auto":
        built = _not_built_yet(context, structure, storage, merged)
        num_entries = sum(
            group.vertex_rows.size * (len(group.vertex_sets) + 1) // 2 for group in structure.groups
        )
        if num_entries <= MAX_INTERPRETED_ENTRIES and built is not None:
            return TieredLinearizer(context, structure, storage, merged, built)
    return DeviceLinearizer(context, structure, storage, merged)


def _not_built_yet(
    context: Context, structure: Structure, storage: Storage, merged: frozenset[int]
) -> BuiltKernels | None:
    """The kernels of a problem; None: they have been built before."""
    determined = _determined(context, structure, storage, merged)
    built = BuiltKernels(context.device, _hashed(*determined, spirv.headers_hash()))
    return None if built.are_there() else built


Determined = tuple[tuple[tuple[Any, str, int], ...], tuple[Any, ...], str]
"""What determines kernels: edges (type, information, robust kernel), vertices, and what else there is."""


def _determined(
    context: Context, structure: Structure, storage: Storage, merged: frozenset[int]
) -> Determined:
    edges = tuple((working_edge_type(g.edge_set.type), g.information, g.kernel) for g in structure.groups)
    vertices = tuple(working_vertex_type(vertex_set.type) for vertex_set in structure.selection.vertex_sets)
    words = f"{context.precision} {context.device.access} {sorted(merged)} {' '.join(storage.evaluations)}"
    return edges, vertices, words


@per_type_cache
def _hashed(
    edges: tuple[tuple[Any, str, int], ...], vertices: tuple[Any, ...], words: str, headers: bytes
) -> bytes:
    """Hash of what determines the kernels: the bytecode says what they compute, the sources how."""
    digest = hashlib.sha256(compiler_hash())
    digest.update(headers)
    digest.update(words.encode())
    programs = [program for kind in edges for program in _packed(*kind)] + [*map(_packed_vertex, vertices)]
    for program in programs:
        for array in (program.words, program.constants, program.input_rows, program.output_rows):
            digest.update(repr(array.shape).encode() + array.tobytes())
    return digest.digest()


class TieredLinearizer(DeviceLinearizer):
    """See the module's header."""

    def __init__(
        self,
        context: Context,
        structure: Structure,
        storage: Storage,
        merged: frozenset[int],
        built: BuiltKernels | None,
    ):
        """built: is told when compiled kernels are there; None: stay with the interpreter.

        merged: as `DeviceLinearizer`; the interpreter sums edge set after edge set.
        """
        super().__init__(context, structure, storage, merged)
        self._views_made = threading.Event()
        self._tiers: TieredKernel[InterpretedLinearizer | None] = TieredKernel(
            context.device,
            interpreted=lambda: InterpretedLinearizer(context, structure, self),
            kernels=self._all_kernels,
            compiled=lambda: None,
            choice="interpreter" if built is None else "auto",
            built=built,
        )

    def _all_kernels(self) -> Iterator[gpu.GpuKernel]:
        """Everything that the compiled linearisation runs; in the thread."""
        try:
            super().prepare()
        finally:
            self._views_made.set()
        yield from super().kernels()
        yield from self.oplus_kernels()

    def prepare(self) -> None:
        """What `linearize_steps` needs now."""
        if self._tiers.active is not None:
            self._tiers.active.prepare()

    # ---------------------------------------------------------------- tiers

    @property
    def tier(self) -> Tier:
        """Which one runs."""
        return self._tiers.tier

    @property
    def tier_seconds(self) -> dict[Tier, float]:
        """From the start until each tier was ready."""
        return dict(self._tiers.seconds)

    def advance(self) -> bool:
        """Call between submissions: True where compiled kernels have just taken over, or buffers are new."""
        self._has_moved |= self._tiers.advance()
        return super().advance()

    def in_context(self, context: Context) -> DeviceLinearizer | None:
        """None: the interpreter's lists belong to a precision."""
        return None

    def wait_compiled(self) -> None:
        """Wait until `advance` takes compiled kernels; where there never are any, not at all."""
        self._tiers.wait()

    def refresh(self) -> bool:
        """Take what has changed in the graph beside estimates; False: nothing."""
        if self._tiers.choice == "auto":
            self._views_made.wait()  # data of views that are being made would be missed
        return super().refresh()

    # ---------------------------------------------------------------- launches

    def chi2_steps(self, version: int, partial: Any, firsts: list[int]) -> Iterator[list[Launch]]:
        """As `DeviceLinearizer`."""
        active = self._tiers.active
        yield from (active or super()).chi2_steps(version, partial, firsts)

    @property
    def sums_by_vertex(self) -> bool:
        """As `DeviceLinearizer`; the interpreter has none."""
        return self._tiers.active is None

    @property
    def clears(self) -> bool:
        """As `DeviceLinearizer`."""
        return self._tiers.active is not None or super().clears

    def linearize_steps(self, version: int, values: Any, b: Any) -> Iterator[list[Launch]]:
        """As `DeviceLinearizer`."""
        active = self._tiers.active
        yield from (active or super()).linearize_steps(version, values, b)

    def oplus_steps(self, dx: Any, source: int, target: int) -> Iterator[list[Launch]]:
        """As `DeviceLinearizer`."""
        active = self._tiers.active
        yield from (active or super()).oplus_steps(dx, source, target)


class InterpretedLinearizer:
    """The launches of a linearizer by the interpreter."""

    def __init__(
        self,
        context: Context,
        structure: Structure,
        linearizer: DeviceLinearizer,
        scratch_bytes: int = SCRATCH_BYTES,
    ):
        self._structure = structure
        self._all_edges, self._estimates = linearizer.edges, linearizer.estimates
        self._interpreter = Interpreter(context, scratch_bytes, linearizer.planes)
        self._arrays = [_edge_arrays(edges) for edges in self._all_edges]
        self._chi2 = [
            InterpretedEdges(self._interpreter, _packed_of(edges)[0], arrays)
            for edges, arrays in zip(self._all_edges, self._arrays, strict=True)
        ]
        self._oplus = {}
        for number in self._estimates.moving:
            working = self._estimates.working[number]
            self._oplus[number] = InterpretedOplus(
                self._interpreter,
                _packed_vertex(working.type),
                len(working.array),
                working.type.storage_dim,
                gpu.record_dim(working.type.storage_dim),
            )
        self._linearize: list[InterpretedLinearization] = []

    def prepare(self) -> None:
        """Make the lists of contributions."""
        for edges, arrays in zip(self._all_edges, self._arrays, strict=True):
            group, order = edges.group, edges.primary.view.order
            packed = _packed_of(edges)[1]
            offsets = [
                self._structure.vertex_offsets[number][group.vertex_rows[order, slot]]
                for slot, number in enumerate(group.vertex_sets)
            ]
            lists = gather_lists(
                [vertex.tangent_dim for vertex in edges.signature.edge_type.vertices],
                np.stack(offsets, axis=1),
                group.block_offset[order],
                group.block_transposed[order],
                _on_diagonal(group)[order],
                self._interpreter.chunk(packed.num_rows, arrays.num_edges),
            )
            self._linearize.append(InterpretedLinearization(self._interpreter, packed, arrays, lists))

    def chi2_steps(self, version: int, partial: Any, firsts: list[int]) -> Iterator[list[Launch]]:
        """As `DeviceLinearizer`."""
        records = self._estimates.version(version)
        for edges, kernels, first in zip(self._all_edges, self._chi2, firsts, strict=False):
            yield from kernels.chi2(edges.record_buffers(records), partial, first)

    def linearize_steps(self, version: int, values: Any, b: Any) -> Iterator[list[Launch]]:
        """As `DeviceLinearizer`; H and b are zeros before."""
        records = self._estimates.version(version)
        for edges, kernels in zip(self._all_edges, self._linearize, strict=True):
            yield from kernels.steps(edges.record_buffers(records), values, b)

    def oplus_steps(self, dx: Any, source: int, target: int) -> Iterator[list[Launch]]:
        """As `DeviceLinearizer`."""
        before, after = self._estimates.version(source), self._estimates.version(target)
        for number, oplus in self._oplus.items():
            records, offset = after[number], self._estimates.offsets[number].buffer
            narrow = None if records.narrow is None else records.narrow.buffer
            narrow_record = gpu.narrow_record_dim(self._estimates.working[number].type.storage_dim)
            buffers = (before[number].wide.buffer, records.wide.buffer, dx, offset, narrow)
            yield from oplus.steps(*buffers, narrow_record)


def _on_diagonal(group: EdgeGroup) -> np.ndarray:
    """(m, num_pairs) bool: the two slots of a pair name the same vertex."""
    pairs = combinations_with_replacement(enumerate(group.vertex_sets), 2)
    columns = [
        (group.vertex_rows[:, a] == group.vertex_rows[:, b]) & (a != b and own == other)
        for (a, own), (b, other) in pairs
    ]
    return np.stack(columns, axis=1)


def _packed_of(edges: DeviceEdges) -> tuple[DeviceProgram, DeviceProgram]:
    own = edges.signature
    return _packed(own.edge_type, own.information, own.kernel)


def _edge_arrays(edges: DeviceEdges) -> EdgeArrays:
    view, own = edges.primary, edges.signature
    kinds = [*own.edge_type.vertices, *own.edge_type.parameters]
    sources = [Records(gpu.record_dim(kind.storage_dim), kind.storage_dim) for kind in kinds]
    return EdgeArrays(view.view.num_edges, view.buffers["rows"], view.buffers["data"], own.num_data, sources)
