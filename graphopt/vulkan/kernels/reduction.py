"""What the conjugate gradients solve: the whole H, or the Schur complement of its landmarks.

A reduction gives `Pcg` a product A u with block-Jacobi, and before and after it what elimination needs:

    record                     inverses of H_ll, S or its diagonal, and the right-hand side of A x = r
    record_product             d = u + beta d, q = A u + beta q, and the parts of d'q
    record_back_substitution   the landmarks' part of dx

`WholeReduction` and `SchurReduction` have stored blocks of H. The matrix-free ones, for large problems, have
its diagonal blocks only, for (H_ll + D)^-1, block-Jacobi and their part of the product; the rest of a product
comes from the edges (`products`):

    whole      A u = H u + D u
    implicit   v = -(H_ll + D_l)^-1 (H_lp u),   A u = H_pp u + D_p u + H_pl v
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.linear.table import PRECONDITIONERS, iterates
from graphopt.problem.structure import Structure
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.data.layout import BlockLayout
from graphopt.vulkan.kernels.blocks import (
    NORMAL,
    BlockInverse,
    LandmarkProduct,
    RowProduct,
    record_stored_product,
    row_table,
    symmetric_product,
    symmetric_uses,
)
from graphopt.vulkan.kernels.equations import Equations
from graphopt.vulkan.kernels.linearize import DeviceLinearizer
from graphopt.vulkan.kernels.pcg import Pcg, Reduction
from graphopt.vulkan.kernels.products import EdgeProducts
from graphopt.vulkan.kernels.schur import SchurBlocks, explicit_schur, schur_diagonal
from graphopt.vulkan.kernels.schur_lookup import SchurLookup
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.program import NOTHING, VECTOR_WORKGROUP, Context, Launch, Program


@dataclass(frozen=True, eq=False)
class DiagonalBlocks:
    """What block-Jacobi inverts, before the damping is added."""

    buffer: Any
    offset: np.ndarray
    """(n,) int64: where each block begins."""


class WholeReduction:
    """No elimination: A = H + D."""

    landmark_inverse: BlockInverse | None = None
    schur: SchurBlocks | SchurLookup | None = None
    packing: tuple[Any, Any] | None = None

    def __init__(self, equations: Equations):
        self._equations = equations
        context, layout = equations.context, equations.layout
        self.dims = layout.dims
        self.direction = context.reals(layout.dim)
        self.jacobi = BlockInverse(context, layout.dims, layout.diagonal_offset, layout.scalar[:-1])
        self._product = symmetric_product(context, layout)
        self.num_dots = self._product.num_groups
        self.bytes_per_product = 2.0 * layout.values_size * context.real.itemsize

    def record(self, program: Program, residual: Any) -> None:
        """r = b."""
        context, layout = self._equations.context, self._equations.layout
        program.copy(self._equations.b, residual, layout.dim * context.real.itemsize)

    def record_blocks(self, program: Program) -> DiagonalBlocks:
        """The diagonal blocks of H; nothing is left to do."""
        return DiagonalBlocks(self._equations.values, self._equations.layout.diagonal_offset)

    def record_jacobi(self, program: Program) -> None:
        """Invert the diagonal blocks of H + D."""
        equations = self._equations
        program.step(self.jacobi.launches(equations.values, equations.damping, equations.status))

    def record_product(self, program: Program, pcg: Pcg, ping_pong: int) -> None:
        """(H + D) u."""
        equations = self._equations
        program.step(self._product.chunk_launches(equations.values, pcg.u, equations.status, ping_pong))
        own = (pcg.u, pcg.q, pcg.dots_dq, equations.status, equations.damping)
        program.launch(self._product.product_launch(*own, ping_pong, pcg.follows))

    def record_again(self, program: Program) -> None:
        """Nothing else touches u."""

    def record_back_substitution(self, program: Program) -> None:
        """Nothing was eliminated."""

    def record_whole_product(self, program: Program, x: Any, y: Any) -> None:
        """y = H x."""
        record_stored_product(program, self._equations, x, y)


class SchurReduction:
    """A = S, formed (explicit) or as products with H's blocks (implicit)."""

    packing: tuple[Any, Any] | None = None

    def __init__(self, equations: Equations, configuration: Configuration):
        self._equations = equations
        self._chosen = configuration
        context, layout = equations.context, equations.layout
        first = layout.num_kept
        self._kept = layout.kept()
        self.dims = self._kept.dims
        self.landmark_inverse: BlockInverse = BlockInverse(
            context, layout.dims[first:], layout.diagonal_offset[first:], layout.scalar[first:-1]
        )
        self._landmarks = LandmarkProduct(context, layout, self.landmark_inverse.offset)
        self.direction = self._work = context.reals(layout.dim)
        self.jacobi: BlockInverse | None = None
        self.num_dots = 0
        self.schur: SchurBlocks | SchurLookup | None = None
        self.reduced: BlockLayout = self._kept
        """Layout of S, where it is formed."""
        items = layout.items
        uses = np.full(len(items), NORMAL, np.uint8)
        if configuration.schur == "explicit":
            self._prepare_explicit(items, uses)
        else:
            self._prepare_implicit(items, uses)

    def _prepare_explicit(self, items: np.ndarray, uses: np.ndarray) -> None:
        context, layout, kept = self._equations.context, self._equations.layout, self._kept
        self.schur, self.reduced = explicit_schur(
            context, layout, self.landmark_inverse.offset, self._chosen.work_queues
        )
        self._reduction = RowProduct(context, layout, items, uses, layout.num_kept)
        self.bytes_per_product = 2.0 * self.schur.size * context.real.itemsize
        if iterates(self._chosen.linear_solver):
            self._product = symmetric_product(context, self.reduced)
            self.num_dots = self._product.num_groups
            self.jacobi = BlockInverse(
                context, kept.dims, self.reduced.diagonal_offset, kept.scalar[:-1], kept.diagonal_offset
            )

    def _prepare_implicit(self, items: np.ndarray, uses: np.ndarray) -> None:
        context, layout, kept = self._equations.context, self._equations.layout, self._kept
        blocks = np.concatenate([np.arange(len(kept.row_idx)), items])
        all_uses = np.concatenate([symmetric_uses(kept.row_idx, kept.col), uses])
        self._reduction = self._product = RowProduct(context, layout, blocks, all_uses, layout.num_kept)
        self.num_dots = self._product.num_groups
        self.bytes_per_product = 2.0 * layout.values_size * context.real.itemsize
        source = kept.diagonal_offset
        if not PRECONDITIONERS[self._chosen.preconditioner].is_of_h:
            self.schur = schur_diagonal(context, layout, self.landmark_inverse.offset)
            source = self.schur.offset
        self.jacobi = BlockInverse(context, kept.dims, source, kept.scalar[:-1], kept.diagonal_offset)

    def record(self, program: Program, residual: Any) -> None:
        """Inverses of H_ll, S or its diagonal, and the reduced right-hand side."""
        self._record(program, self.schur, self._equations.b, residual)

    def record_residual(self, program: Program, b: Any, residual: Any) -> None:
        """The reduced right-hand side of another b; S stays."""
        self._record(program, None, b, residual)

    def _record(
        self, program: Program, schur: SchurBlocks | SchurLookup | None, b: Any, residual: Any
    ) -> None:
        equations = self._equations
        values, damping, status, inverse = (
            equations.values,
            equations.damping,
            equations.status,
            self.landmark_inverse.buffer,
        )
        program.fill(self._work)
        program.step(self.landmark_inverse.launches(values, damping, status))
        step = self._landmarks.launches(values, inverse, self._work, status, base=b, product=False)
        if schur is not None:
            step += schur.pair_launches(values, inverse, damping)
        program.step(step)
        step = self._reduction.chunk_launches(values, self._work, status)
        if schur is not None:
            step += schur.combine_launches(values, damping)
        program.step(step)
        program.step([self._reduction.residual_launch(b, residual, status)])

    def record_blocks(self, program: Program) -> DiagonalBlocks:
        """The diagonal blocks of an implicit S, or of H_pp; after `record` nothing is left to do."""
        if self.schur is None:
            return DiagonalBlocks(self._equations.values, self._kept.diagonal_offset)
        return DiagonalBlocks(self.schur.buffer, self.schur.offset)

    def record_jacobi(self, program: Program) -> None:
        """Invert the diagonal blocks of S, or of H_pp; rounding may leave one of S indefinite."""
        equations, blocks = self._equations, self.record_blocks(program).buffer
        assert self.jacobi is not None
        damped = self._chosen.schur == "implicit"  # a formed S has the damping in it
        spare = None if self.schur is None else equations.values
        program.step(
            self.jacobi.launches(blocks, equations.damping, equations.status, damped=damped, spare=spare)
        )

    def record_product(self, program: Program, pcg: Pcg, ping_pong: int) -> None:
        """S u."""
        equations = self._equations
        values, damping, status = equations.values, equations.damping, equations.status
        if self._chosen.schur == "implicit":
            inverse = self.landmark_inverse.buffer
            step = self._landmarks.launches(values, inverse, pcg.u, status, base=None, ping_pong=ping_pong)
            program.step(step)
        else:
            assert self.schur is not None
            values, damping = self.schur.buffer, None
        program.step(self._product.chunk_launches(values, pcg.u, status, ping_pong))
        own = (pcg.u, pcg.q, pcg.dots_dq, status, damping)
        program.launch(self._product.product_launch(*own, ping_pong, pcg.follows))

    def record_again(self, program: Program) -> None:
        """Nothing else touches u."""

    def record_back_substitution(self, program: Program) -> None:
        """x_l = (H_ll + D_l)^-1 (b_l - H_pl' x_p)."""
        self.record_landmarks(program, self._equations.b, self._equations.dx)

    def record_landmarks(self, program: Program, b: Any, x: Any) -> None:
        """The same of another b and x."""
        equations, inverse = self._equations, self.landmark_inverse.buffer
        program.step(self._landmarks.launches(equations.values, inverse, x, equations.status, base=b))

    def record_whole_product(self, program: Program, x: Any, y: Any) -> None:
        """y = H x."""
        record_stored_product(program, self._equations, x, y)


def matrix_free_reduction(
    equations: Equations,
    linearizer: DeviceLinearizer,
    structure: Structure,
    configuration: Configuration,
) -> MatrixFreeWhole:
    """The reduction of a configuration."""
    layout = equations.layout
    products = EdgeProducts(equations.context, linearizer, structure, layout.num_kept)
    kind = MatrixFreeWhole if configuration.schur == "off" else MatrixFreeSchur
    reduction = kind(equations, products, linearizer.edge_bytes)
    if isinstance(reduction, MatrixFreeSchur) and not PRECONDITIONERS[configuration.preconditioner].is_of_h:
        reduction.precondition_by_schur(structure)
    return reduction


class MatrixFreeWhole:
    """No elimination: A = H + D."""

    schur = None
    landmark_inverse: BlockInverse | None = None

    def __init__(self, equations: Equations, products: EdgeProducts, edge_bytes: float):
        """edge_bytes: what one pass over all edges moves."""
        self._equations, self.products = equations, products
        self.packing = products.packing
        context, layout = equations.context, equations.layout
        num_kept = layout.num_kept
        self.dims = layout.dims[:num_kept]
        self._num_rows = layout.kept_dim
        self.direction = context.reals(layout.kept_dim if products.keeps_direction else layout.dim)
        places = layout.diagonal_offset[:num_kept]
        self.jacobi = BlockInverse(context, self.dims, places, layout.scalar[:num_kept], places)
        self.num_dots = num_kept if products.can_end else context.vector_groups(self._num_rows)
        self._sum: Any = None if products.can_end else context.reals(self._num_rows)
        self.bytes_per_product = 2.0 * edge_bytes
        self._rows = context.indices(row_table(self.dims, layout.diagonal_offset[:num_kept]))

    def record(self, program: Program, residual: Any) -> None:
        """r = b."""
        context, layout = self._equations.context, self._equations.layout
        packing = self.products.pack_launches(self.direction)
        program.step([*self.products.estimate_launches(), *packing])
        program.copy(self._equations.b, residual, layout.dim * context.real.itemsize)

    def record_blocks(self, program: Program) -> DiagonalBlocks:
        """The diagonal blocks of H_pp; nothing is left to do."""
        layout = self._equations.layout
        places = layout.diagonal_offset[: layout.num_kept]
        return DiagonalBlocks(self._equations.values, places)

    def record_jacobi(self, program: Program) -> None:
        """Invert the diagonal blocks of H_pp + D."""
        equations = self._equations
        program.step(self.jacobi.launches(equations.values, equations.damping, equations.status))

    def record_product(self, program: Program, pcg: Pcg, ping_pong: int) -> None:
        """A u."""
        end = self._end(pcg)
        self._record_edges(program, "kept", pcg.u, self._sum, ping_pong, end)
        self._record_end(program, pcg, ping_pong)

    def record_again(self, program: Program) -> None:
        """Pack u: back-substitution has packed dx."""
        program.step(self.products.pack_launches(self.direction))

    def record_back_substitution(self, program: Program) -> None:
        """Nothing was eliminated."""

    def record_whole_product(self, program: Program, x: Any, y: Any) -> None:
        """y = H x, over all rows, with last barrier."""
        program.step(self.products.estimate_launches())
        self._record_edges(program, "whole", x, y, None)
        context, layout = self._equations.context, self._equations.layout
        dots = context.accumulators(context.vector_groups(layout.dim))
        rows = context.indices(row_table(layout.dims, layout.diagonal_offset))
        launch = finish_launch(
            self._equations,
            (rows, layout.dim),
            (x, y, dots),
            None,
            uses_diagonal=self.products.uses_diagonal,
        )
        program.step([launch])

    # ---------------------------------------------------------------- parts

    def _record_edges(
        self,
        program: Program,
        part: str,
        x: Any,
        y: Any,
        ping_pong: int | None,
        end: Mapping[str, Any] | None = None,
    ) -> None:
        """y = a part of H x, without diagonal blocks and damping; with last barrier.

        end: what the kernel of a product reads and writes that makes d and q itself.
        """
        self.products.record(program, part, x, y, self._equations, ping_pong, end)

    def _end(self, pcg: Pcg) -> Mapping[str, Any] | None:
        """None: the product leaves sums, and `_record_end` has more to do."""
        if not self.products.can_end:
            return None
        own = self._equations
        return {
            "values": own.values,
            "damping": own.damping,
            "pcg_u": pcg.u,
            "pcg_d": pcg.d,
            "pcg_q": pcg.q,
            "pcg_scalars": pcg.scalars.buffer,
            "pcg_dots": pcg.dots_dq,
        }

    def _record_end(self, program: Program, pcg: Pcg, ping_pong: int) -> None:
        if not self.products.can_end:
            vectors = (pcg.u, self._sum, pcg.dots_dq)
            uses_diagonal, follows = self.products.uses_diagonal, (pcg.d, pcg.q, pcg.scalars.buffer)
            damping, rows = self._equations.damping, (self._rows, self._num_rows)
            program.launch(
                finish_launch(
                    self._equations,
                    rows,
                    vectors,
                    damping,
                    ping_pong,
                    uses_diagonal=uses_diagonal,
                    follows=follows,
                )
            )


def finish_launch(
    equations: Equations,
    rows: tuple[Any, int],
    vectors: tuple[Any, Any, Any],
    damping: Any | None,
    ping_pong: int | None = None,
    *,
    uses_diagonal: bool,
    follows: tuple[Any, Any, Any] | None = None,
) -> Launch:
    """y += (diagonal blocks, if used, + D) x, and the parts of x' y; damping None: D = 0.

    rows: places of the diagonal blocks' rows, and how many rows; vectors: x, y, the parts. follows: d, q and
    the scalars of conjugate gradients, which follow with this y, see `pcg`; then y stays, and the parts are
    those of d' q.
    """
    context, (places, num_rows), (x, y, dots) = equations.context, rows, vectors
    groups = context.vector_groups(num_rows)
    constants = {1: int(damping is not None), 2: int(uses_diagonal), 3: int(ping_pong is not None)}
    constants[4] = int(follows is not None)
    own = (places, equations.values, x, damping or x, y, dots or context.accumulators(groups))
    buffers = (*own, equations.status, *(follows or (x, x, x)))
    params = (num_rows, groups, ping_pong or 0)
    return context.launch("finish_product", buffers, params, groups, constants)


class MatrixFreeSchur(MatrixFreeWhole):
    """A = S, as products; block-Jacobi of H_pp, or after `precondition_by_schur` of S."""

    def __init__(self, equations: Equations, products: EdgeProducts, edge_bytes: float):
        super().__init__(equations, products, edge_bytes)
        context, layout = equations.context, equations.layout
        first = layout.num_kept
        places = layout.diagonal_offset[first:], layout.scalar[first:-1]
        self._inverse = BlockInverse(context, layout.dims[first:], *places, upper=True)
        self.landmark_inverse = self._inverse
        self._schur_diagonal: Any = None
        self._work = self._sums = equations.dx  # H_lp x in the rows of landmarks, before dx is there
        if not products.keeps_direction:
            self._work, self._sums = self.direction, context.reals(layout.dim)
        self._landmarks = LandmarkInverses(context, self._inverse)

    def precondition_by_schur(self, structure: Structure) -> None:
        """Take the diagonal blocks of S for block-Jacobi."""
        context, layout = self._equations.context, self._equations.layout
        self._schur_diagonal = context.reals(int(layout.diagonal_offset[layout.num_kept]))
        offset = np.full(structure.num_blocks + 1, NOTHING, np.uint32)  # the last one: not optimized
        offset[layout.num_kept : -1] = self._inverse.offset
        self._inverse_offsets = {
            number: DeviceArray.places(context, offset[blocks])
            for number, blocks in enumerate(structure.vertex_blocks)
        }

    def record_blocks(self, program: Program) -> DiagonalBlocks:
        """The diagonal blocks of S or of H_pp."""
        diagonal = self._schur_diagonal
        if diagonal is None:
            return super().record_blocks(program)
        layout = self._equations.layout
        size = int(layout.diagonal_offset[layout.num_kept]) * self._equations.context.real.itemsize
        program.copy(self._equations.values, diagonal, size)
        program.barrier()
        inverse = self._inverse.buffer
        for step in self.products.schur_diagonal_steps(inverse, self._inverse_offsets, diagonal):
            program.step(step)
        return DiagonalBlocks(diagonal, layout.diagonal_offset[: layout.num_kept])

    def record_jacobi(self, program: Program) -> None:
        """Invert the diagonal blocks of S or of H_pp + D."""
        equations, blocks = self._equations, self.record_blocks(program).buffer
        # rounding may leave a block of S indefinite
        spare = None if self._schur_diagonal is None else equations.values
        program.step(self.jacobi.launches(blocks, equations.damping, equations.status, spare=spare))

    def record(self, program: Program, residual: Any) -> None:
        """Inverses of H_ll and r = b_p - H_pl (H_ll + D)^-1 b_l."""
        equations, context = self._equations, self._equations.context
        packing = self.products.pack_launches(self.direction)
        program.step([*self.products.estimate_launches(), *packing])
        program.fill(self._work)
        program.step(self._inverse.launches(equations.values, equations.damping, equations.status))
        program.step(self._landmarks.launches(equations.b, None, self._work, equations.status, None))
        self._record_edges(program, "kept", self._work, residual, None)
        groups = -(-self._num_rows // VECTOR_WORKGROUP)
        program.step([context.launch("subtract_from", (equations.b, residual), (self._num_rows,), groups)])

    def record_product(self, program: Program, pcg: Pcg, ping_pong: int) -> None:
        """S u; the landmarks' part of the direction is -(H_ll + D)^-1 H_lp u."""
        equations, status = self._equations, self._equations.status
        if self.products.can_solve and self.landmark_inverse is not None:
            vectors = (pcg.u, self._sum)
            self.products.record_solve(
                program, self.landmark_inverse, *vectors, equations, ping_pong, self._end(pcg)
            )
            self._record_end(program, pcg, ping_pong)
            return
        self._record_edges(program, "eliminated", pcg.u, self._sums, ping_pong)
        program.step(self._landmarks.launches(None, self._sums, pcg.u, status, ping_pong))
        super().record_product(program, pcg, ping_pong)

    def record_back_substitution(self, program: Program) -> None:
        """x_l = (H_ll + D)^-1 (b_l - H_lp x_p)."""
        equations = self._equations
        self._record_edges(program, "eliminated", equations.dx, self._sums, None)
        program.step(self._landmarks.launches(equations.b, self._sums, equations.dx, equations.status, None))


class LandmarkInverses:
    """x_l = (H_ll + D)^-1 (base_l - sum_l) for all eliminated blocks."""

    def __init__(self, context: Context, inverse: BlockInverse):
        self._context, self._inverse = context, inverse

    def launches(
        self, base: Any | None, total: Any | None, x: Any, status: Any, ping_pong: int | None
    ) -> list[Launch]:
        """base, total None: 0; total may be x."""
        result = []
        for bin_ in self._inverse.bins:
            (dim,) = bin_.dims
            constants = {
                1: dim,
                2: int(base is not None),
                3: int(total is not None),
                4: int(ping_pong is not None),
                5: int(self._inverse.is_affine),
            }
            buffers = (self._inverse.blocks, self._inverse.buffer, base or x, total or x, x, status)
            groups = -(-bin_.num_chunks // (VECTOR_WORKGROUP // dim))
            params = (bin_.first, bin_.num_chunks, ping_pong or 0)
            result.append(self._context.launch("apply_inverse", buffers, params, groups, constants))
        return result


def record_back_substitution(program: Program, reduction: Reduction | None) -> None:
    """After a solution: the eliminated part of dx, where there is one."""
    program.phase("landmarks")
    if reduction is not None:
        reduction.record_back_substitution(program)
