"""The block solver that keeps computed values on a device: nothing leaves it between two submissions.

    linearize   H_in, b_in of the edges; derivatives of the values; b = E' b_in, diagonal blocks of H
    product     e = E d,  y = H_in e,  q = E' y + D d         in each iteration of conjugate gradients
    update      vertices oplus dx, then the values there

H = E' H_in E is never formed. Everything but the chain rule (`device_chain`) is `ResidentBlockSolver`'s. The
diagonal leaves out what different values of an edge share, and an edge's value and vertex.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from graphopt.computed.device_chain import TERM_OPERATORS, DeviceChain
from graphopt.computed.structure import ValuesStructure
from graphopt.device import Device, is_driven, open_device
from graphopt.errors import DeviceLimitError, OptionError
from graphopt.graph import Graph, Selection
from graphopt.linear.options import Schedule, SolverOptions
from graphopt.linear.table import factorizes
from graphopt.vulkan.data.layout import MAX_BLOCK_DIM
from graphopt.vulkan.kernels.blocks import BlockInverse, row_table, symmetric_product
from graphopt.vulkan.kernels.equations import Equations
from graphopt.vulkan.kernels.linearize import DeviceLinearizer
from graphopt.vulkan.kernels.pcg import Pcg
from graphopt.vulkan.kernels.products import EdgeProducts
from graphopt.vulkan.kernels.reduction import finish_launch
from graphopt.vulkan.kernels.sums import gather_diagonal
from graphopt.vulkan.plan.choice import choose_plan, choose_precision, configuration_of
from graphopt.vulkan.plan.storage import Storage
from graphopt.vulkan.program import InThread, Program
from graphopt.vulkan.set_up import Deferred
from graphopt.vulkan.solver import ResidentBlockSolver


class StoredProduct:
    """y = H_in x from stored blocks."""

    def __init__(self, equations: Equations):
        self._equations = equations
        self._product = symmetric_product(equations.context, equations.layout)
        self._dots = equations.context.accumulators(self._product.num_groups)
        self.nbytes = 2.0 * equations.layout.values_size * equations.context.real.itemsize

    def record_start(self, program: Program) -> None:
        """Nothing is to be packed."""

    def record(self, program: Program, x: Any, y: Any, ping_pong: int | None) -> None:
        """With last barrier."""
        own = self._equations
        program.step(self._product.chunk_launches(own.values, x, own.status, ping_pong))
        program.step([self._product.product_launch(x, y, self._dots, own.status, None, ping_pong)])


class ProductFromEdges:
    """y = H_in x from the edges and the diagonal blocks."""

    def __init__(self, equations: Equations, linearizer: DeviceLinearizer, structure: ValuesStructure):
        self._equations, layout = equations, equations.layout
        self._products = EdgeProducts(equations.context, linearizer, structure, layout.num_blocks)
        self._products.packing = self._products.packed_set = None  # x is not what conjugate gradients move
        self._rows = equations.context.indices(row_table(layout.dims, layout.diagonal_offset))
        self.nbytes = 2.0 * linearizer.edge_bytes

    def record_start(self, program: Program) -> None:
        """Pack the estimates."""
        program.step(self._products.estimate_launches())

    def record(self, program: Program, x: Any, y: Any, ping_pong: int | None) -> None:
        """With last barrier."""
        own = self._equations
        self._products.record(program, "whole", x, y, own, ping_pong)
        if self._products.uses_diagonal:
            rows = self._rows, own.layout.dim
            program.step([finish_launch(own, rows, (x, y, None), None, ping_pong, uses_diagonal=True)])


class ValuesReduction:
    """What conjugate gradients solve: (E' H_in E + D) x = E' b_in."""

    schur = None
    landmark_inverse: BlockInverse | None = None
    packing: tuple[Any, Any] | None = None

    def __init__(
        self,
        equations: Equations,
        structure: ValuesStructure,
        product: StoredProduct | ProductFromEdges,
        chain: DeviceChain,
        blocks: Any,
    ):
        """blocks: diagonal ones of H, in the chain's layout."""
        self._equations, self._product, self._chain, self._blocks = equations, product, chain, blocks
        context, layout, num = equations.context, chain.layout, structure.num_moved
        self.dims = layout.dims[:num]
        self._num_rows = structure.moved_dim
        self.direction = context.reals(layout.dim)
        self._result = context.reals(layout.dim)
        self.jacobi = BlockInverse(context, self.dims, layout.diagonal_offset[:num], layout.scalar[:num])
        self.num_dots = context.vector_groups(self._num_rows)
        self.bytes_per_product = product.nbytes + chain.nbytes

    def record(self, program: Program, residual: Any) -> None:
        """r = b; the values' rows of dx stay 0."""
        program.fill(self._equations.dx).barrier()
        self._product.record_start(program)
        self._chain.record_start(program)
        program.copy(self._equations.b, residual, self._num_rows * self._equations.context.real.itemsize)

    def record_jacobi(self, program: Program) -> None:
        """Invert the diagonal blocks of H + D."""
        own = self._equations
        program.step(self.jacobi.launches(self._blocks, own.damping, own.status))

    def record_product(self, program: Program, pcg: Pcg, ping_pong: int) -> None:
        """(E' H_in E + D) u."""
        own, y = self._equations, self._result
        self._record(program, pcg.u, y, ping_pong)
        rows, vectors = (own.status, self._num_rows), (pcg.u, y, pcg.dots_dq)
        follows = (pcg.d, pcg.q, pcg.scalars.buffer)
        program.launch(
            finish_launch(own, rows, vectors, own.damping, ping_pong, uses_diagonal=False, follows=follows)
        )

    def _record(self, program: Program, d: Any, y: Any, ping_pong: int | None) -> None:
        """y = E' H_in E d, which leaves E d in d."""
        self._chain.record_forward(program, d, self._equations.status, ping_pong)
        self._product.record(program, d, y, ping_pong)
        self._chain.record_backward(program, y, self._equations.status, ping_pong)

    def record_again(self, program: Program) -> None:
        """Nothing else touches u."""

    def record_back_substitution(self, program: Program) -> None:
        """Nothing was eliminated."""

    def record_whole_product(self, program: Program, x: Any, y: Any) -> None:
        """y = H x, with last barrier."""
        nbytes = self._equations.layout.dim * self._equations.context.real.itemsize
        self._product.record_start(program)
        self._chain.record_start(program)
        program.copy(x, self.direction, nbytes).barrier()
        self._record(program, self.direction, y, None)
        self._chain.record_clear(program, y)


class DeviceValuesSolver(ResidentBlockSolver):
    """Implements `BlockSolver`; see the module's header."""

    def __init__(self, graph: Graph, structure: ValuesStructure, options: SolverOptions, device: Device):
        precision = choose_precision(device, options.precision)
        kept, schedule = _split_schedule(options.schedule, structure)
        configuration = configuration_of(replace(options, linear_solver="pcg", schur="off"), precision)
        plan = choose_plan(schedule, device, structure, configuration, precision)
        self._kept = kept
        self._structure = structure
        self._made: Future[DeviceChain] = Future()
        super().__init__(graph.parameter_sets, structure, device, plan, precision)

    def _reduction_maker(self, storage: Storage, prepared: InThread[None] | Deferred[None]) -> Any:
        self._blocks = self._context.reals(int((self._structure.dims.astype(np.int64) ** 2).sum()) + 1)
        self._context.device.write(
            self._blocks, np.zeros(self._blocks.size // self._context.real.itemsize, self._context.real)
        )
        made = (
            self._structure,
            self.linearizer,
            self._kept,
            self._blocks,
            storage.is_whole,
            prepared,
            self._made,
        )
        return partial(_make_reduction, *made)

    @property
    def _chain(self) -> DeviceChain:
        self.system.wait_prepared()
        return self._made.result()

    def linearize(self) -> float:
        """H_in, b and the robustified chi2."""
        self.system.wait_prepared()
        return super().linearize()

    def _record_equations(self, program: Program, version: int) -> None:
        own, chain = self.system.equations, self._chain
        self.linearizer.record_linearize(program.phase("linearize"), version, own.values, own.b)
        chain.record_derivatives(program, version)
        chain.record_start(program)
        self._record_own_blocks(program)
        chain.record_blocks(program, version, self._blocks, own.status)
        chain.record_backward(program, own.b, own.status, None)
        chain.record_clear(program, own.b)
        self.system.diagonal_is(self._diagonal_places(), self._blocks)

    def _record_own_blocks(self, program: Program) -> None:
        """Diagonal blocks of H_in, in the chain's layout."""
        context, own, layout = self._context, self.system.equations, self._chain.layout
        count = layout.values_size
        if own.layout.values_size == count:
            program.copy(own.values, self._blocks, count * context.real.itemsize).barrier()
            return
        sizes = layout.dims.astype(np.int64) ** 2
        within = np.arange(count) - np.repeat(layout.diagonal_offset, sizes)
        places = context.indices(np.repeat(own.layout.diagonal_offset, sizes) + within)
        read = (places, own.values, own.values)
        program.step([gather_diagonal(context, read, self._blocks, count)])

    def _diagonal_places(self) -> Any:
        """Where each row's entry is; values have none: the 0 past the blocks."""
        layout, structure = self._chain.layout, self._structure
        places = layout.diagonal_scalars.copy()
        places[structure.moved_dim :] = layout.values_size
        return self._context.indices(places)

    def _record_oplus(self, program: Program, source: int, target: int) -> None:
        super()._record_oplus(program, source, target)
        self._chain.record_values(program, target)

    def in_double(self) -> None:
        """None: mixed precision stays."""
        return

    def refresh(self) -> None:
        """Take what has changed in the graph; the values are computed there."""
        super().refresh()
        if self._chain.refresh():
            self._known_chi2.clear()

    def describe(self) -> dict[str, Any]:
        """What solves what, where."""
        found = super().describe()
        return {**found, "schedule": ", ".join([str(found["schedule"]), *self._chain.schedules])}


def _make_reduction(
    structure: ValuesStructure,
    linearizer: DeviceLinearizer,
    kept: dict[str, str],
    blocks: Any,
    is_whole: bool,
    prepared: InThread[None] | Deferred[None],
    made: Future[DeviceChain],
    equations: Equations,
) -> ValuesReduction:
    prepared.result()
    chain = DeviceChain(equations.context, structure, linearizer, kept)
    made.set_result(chain)
    product = StoredProduct(equations) if is_whole else ProductFromEdges(equations, linearizer, structure)
    return ValuesReduction(equations, structure, product, chain, blocks)


def _split_schedule(asked: Schedule, structure: ValuesStructure) -> tuple[dict[str, str], Schedule]:
    """Schedules of the terms by tag ("": of all), and what is left for the edges."""
    if isinstance(asked, str):
        return ({"": asked} if asked in TERM_OPERATORS else {}), asked
    tags = {group.edge_set.type.tag for group in structure.terms}
    by_tag = dict(asked)
    for tag in tags & by_tag.keys():
        if by_tag[tag] not in (*TERM_OPERATORS, "auto"):
            raise OptionError(
                f"schedule of '{tag}' is '{by_tag[tag]}', expected one of {', '.join(TERM_OPERATORS)}: "
                "these are terms of computed values."
            )
    kept = {tag: name for tag, name in by_tag.items() if tag in tags and name != "auto"}
    return kept, tuple((tag, name) for tag, name in by_tag.items() if tag not in tags) or "auto"


def device_values_solver(
    graph: Graph, selection: Selection, options: SolverOptions
) -> DeviceValuesSolver | None:
    """The solver of a Vulkan device; None where conjugate gradients on it are not what is asked for."""
    if not is_driven(options.device) or factorizes(options.linear_solver):
        return None
    device = open_device(options.device)
    if not device.submits_whole_programs or options.schedule == "host":
        return None
    for vertex_set in selection.vertex_sets:
        if vertex_set.type.tangent_dim > MAX_BLOCK_DIM:
            raise DeviceLimitError(
                f"{vertex_set.type.tag} has {vertex_set.type.tangent_dim} numbers; where values are kept "
                f"on a device, "
                f"they and vertices have at most {MAX_BLOCK_DIM}. Use computed='inline', or device='cpu'."
            )
    return DeviceValuesSolver(graph, ValuesStructure(graph, selection), options, device)
