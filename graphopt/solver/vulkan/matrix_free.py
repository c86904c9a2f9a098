"""Reductions without all off-diagonal blocks of H, for large problems: see `reduction`.

    whole      q = H d + D d
    implicit   u = -(H_ll + D_l)^-1 (H_lp d),   q = H_pp d + D_p d + H_pl u

Products with H without its diagonal come from `edge_products`. H's diagonal blocks are stored, for
(H_ll + D)^-1, for block-Jacobi, and for their part of the product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.chunks import bins_of_blocks, index_table
from graphopt.solver.vulkan.configuration import Configuration
from graphopt.solver.vulkan.context import NOTHING, VECTOR_WORKGROUP, Context, Launch, record_step
from graphopt.solver.vulkan.edge_products import EdgeProducts
from graphopt.solver.vulkan.equations import Equations
from graphopt.solver.vulkan.inverse import BlockInverse, row_table
from graphopt.solver.vulkan.linearization import DeviceLinearizer
from graphopt.solver.vulkan.pcg import Pcg
from graphopt.solver.vulkan.sequence import Sequence


def matrix_free_reduction(
    equations: Equations,
    linearizer: DeviceLinearizer,
    structure: Structure,
    configuration: Configuration,
    point: Callable[[], int],
) -> MatrixFreeWhole:
    """The reduction of a configuration; point(): version of the estimates that H is linearised at."""
    layout = equations.layout
    products = EdgeProducts(equations.context, linearizer, structure, layout.num_kept)
    kind = MatrixFreeWhole if configuration.schur == "off" else MatrixFreeSchur
    reduction = kind(equations, products, point, linearizer.edge_bytes)
    if isinstance(reduction, MatrixFreeSchur) and configuration.preconditioner == "hschur":
        reduction.precondition_by_schur(structure)
    return reduction


class MatrixFreeWhole:
    """No elimination: A = H + D."""

    schur = None
    landmark_inverse: BlockInverse | None = None

    def __init__(
        self, equations: Equations, products: EdgeProducts, point: Callable[[], int], edge_bytes: float
    ):
        """edge_bytes: what one pass over all edges moves."""
        self._equations, self._products, self._point = equations, products, point
        context, layout = equations.context, equations.layout
        num_kept = layout.num_kept
        self.dims = layout.dims[:num_kept]
        self._num_rows = layout.kept_dim
        self.direction = context.reals(layout.dim)
        self.jacobi = BlockInverse(
            context, self.dims, layout.diagonal_offset[:num_kept], layout.scalar[:num_kept]
        )
        self.num_dots = context.vector_groups(self._num_rows)
        self.bytes_per_product = 2.0 * edge_bytes
        self._rows = context.indices(row_table(layout.dims, layout.diagonal_offset))

    def record(self, sequence: Sequence, residual: Any) -> None:
        """r = b."""
        context, layout = self._equations.context, self._equations.layout
        sequence.step(self._products.estimate_launches(self._point()))
        sequence.copy(self._equations.b, residual, layout.dim * context.real.itemsize)

    def record_jacobi(self, sequence: Sequence) -> None:
        """Invert the diagonal blocks of H_pp + D."""
        own = self._equations
        sequence.step(self.jacobi.launches(own.values, own.damping, own.status))

    def record_product(self, recorder: Any, pcg: Pcg, parity: int) -> None:
        """q = A d."""
        self._record_kept(recorder, pcg.d, pcg.q, parity)
        own = self._equations
        self._finish(pcg.d, own.damping, pcg.q, pcg.dots_dq, parity).record(recorder)

    def record_back_substitution(self, sequence: Any) -> None:
        """Nothing was eliminated."""

    def record_whole_product(self, recorder: Any, x: Any, y: Any) -> None:
        """y = H x, over all rows, with last barrier."""
        record_step(recorder, self._products.estimate_launches(self._point()))
        self._record_edges(recorder, "whole", x, y, None)
        context, layout = self._equations.context, self._equations.layout
        dots = context.accumulators(context.vector_groups(layout.dim))
        record_step(recorder, [self._finish(x, None, y, dots, None, layout.dim)])

    # ---------------------------------------------------------------- parts

    def _record_kept(self, recorder: Any, x: Any, y: Any, parity: int | None) -> None:
        self._record_edges(recorder, "kept", x, y, parity)

    def _record_edges(self, recorder: Any, part: str, x: Any, y: Any, parity: int | None) -> None:
        """y = a part of H x, without diagonal blocks and damping; with last barrier."""
        self._products.record(recorder, part, x, y, self._equations, parity)

    def _finish(
        self, x: Any, damping: Any | None, y: Any, dots: Any, parity: int | None, num_rows: int = 0
    ) -> Launch:
        """y += (diagonal blocks + D) x, and the parts of x' y."""
        own, context = self._equations, self._equations.context
        num_rows = num_rows or self._num_rows
        groups = context.vector_groups(num_rows)
        constants = {
            0: VECTOR_WORKGROUP,
            1: int(damping is not None),
            2: int(self._products.uses_diagonal),
            3: int(parity is not None),
        }
        kernel = context.shader("finish_product", 7, 3, constants)
        buffers = (self._rows, own.values, x, damping or x, y, dots, own.status)
        return Launch(kernel, buffers, (num_rows, groups, parity or 0), groups)


class MatrixFreeSchur(MatrixFreeWhole):
    """A = S, as products; block-Jacobi of H_pp, or after `precondition_by_schur` of S."""

    def __init__(
        self, equations: Equations, products: EdgeProducts, point: Callable[[], int], edge_bytes: float
    ):
        super().__init__(equations, products, point, edge_bytes)
        context, layout = equations.context, equations.layout
        first = layout.num_kept
        self._inverse = BlockInverse(
            context, layout.dims[first:], layout.diagonal_offset[first:], layout.scalar[first:-1]
        )
        self.landmark_inverse = self._inverse
        self._schur_diagonal: Any = None
        self._sums = context.reals(layout.dim)  # H_lp d in the rows of landmarks
        self._landmarks = LandmarkInverses(
            context, layout.dims[first:], layout.scalar[first:-1], self._inverse
        )

    def precondition_by_schur(self, structure: Structure) -> None:
        """Take the diagonal blocks of S for block-Jacobi."""
        context, layout = self._equations.context, self._equations.layout
        self._schur_diagonal = context.reals(int(layout.diagonal_offset[layout.num_kept]))
        offset = np.full(structure.num_blocks + 1, NOTHING, np.uint32)  # the last one: not optimized
        offset[layout.num_kept : -1] = self._inverse.offset
        self._inverse_offsets = {
            number: context.indices(offset[blocks]) for number, blocks in enumerate(structure.vertex_blocks)
        }

    def record_jacobi(self, sequence: Sequence) -> None:
        """Invert the diagonal blocks of S or of H_pp + D."""
        own, diagonal = self._equations, self._schur_diagonal
        if diagonal is not None:
            size = int(own.layout.diagonal_offset[own.layout.num_kept]) * own.context.real.itemsize
            sequence.copy(own.values, diagonal, size)
            sequence.barrier()
            inverse = self._inverse.buffer
            for step in self._products.schur_diagonal_steps(
                self._point(), inverse, self._inverse_offsets, diagonal
            ):
                sequence.step(step)
        spare = None if diagonal is None else own.values  # rounding may leave a block of S indefinite
        blocks = diagonal or own.values
        sequence.step(self.jacobi.launches(blocks, own.damping, own.status, spare=spare))

    def record(self, sequence: Sequence, residual: Any) -> None:
        """Inverses of H_ll and r = b_p - H_pl (H_ll + D)^-1 b_l."""
        own, context = self._equations, self._equations.context
        sequence.step(self._products.estimate_launches(self._point()))
        sequence.fill(self.direction)
        sequence.step(self._inverse.launches(own.values, own.damping, own.status))
        sequence.step(self._landmarks.launches(own.b, None, self.direction, own.status, None))
        self._record_edges(sequence, "kept", self.direction, residual, None)
        kernel = context.shader("subtract_from", 2, 1, {0: VECTOR_WORKGROUP})
        groups = -(-self._num_rows // VECTOR_WORKGROUP)
        sequence.step([Launch(kernel, (own.b, residual), (self._num_rows,), groups)])

    def record_product(self, recorder: Any, pcg: Pcg, parity: int) -> None:
        """q = S d; the landmarks' part of the direction is -(H_ll + D)^-1 H_lp d."""
        own, status = self._equations, self._equations.status
        if self._products.can_solve and self.landmark_inverse is not None:
            self._products.record_solve(recorder, self.landmark_inverse, pcg.d, pcg.q, own, parity)
            self._finish(pcg.d, own.damping, pcg.q, pcg.dots_dq, parity).record(recorder)
            return
        self._record_edges(recorder, "eliminated", pcg.d, self._sums, parity)
        record_step(recorder, self._landmarks.launches(None, self._sums, pcg.d, status, parity))
        super().record_product(recorder, pcg, parity)

    def record_back_substitution(self, sequence: Any) -> None:
        """x_l = (H_ll + D)^-1 (b_l - H_lp x_p)."""
        own = self._equations
        self._record_edges(sequence, "eliminated", own.dx, self._sums, None)
        sequence.step(self._landmarks.launches(own.b, self._sums, own.dx, own.status, None))


class LandmarkInverses:
    """x_l = (H_ll + D)^-1 (base_l - sum_l) for all eliminated blocks."""

    def __init__(self, context: Context, dims: np.ndarray, scalars: np.ndarray, inverse: BlockInverse):
        self._context, self._inverse = context, inverse
        order, self._bins = bins_of_blocks(dims)
        self._blocks = context.indices(index_table(scalars, inverse.offset, order=order))

    def launches(
        self, base: Any | None, total: Any | None, x: Any, status: Any, parity: int | None
    ) -> list[Launch]:
        """base, total None: 0."""
        result = []
        for one in self._bins:
            (dim,) = one.dims
            constants = {
                0: VECTOR_WORKGROUP,
                1: dim,
                2: int(base is not None),
                3: int(total is not None),
                4: int(parity is not None),
            }
            kernel = self._context.shader("apply_inverse", 6, 3, constants)
            buffers = (self._blocks, self._inverse.buffer, base or x, total or x, x, status)
            groups = -(-one.num_chunks * dim // VECTOR_WORKGROUP)
            params = (one.first, one.num_chunks, parity or 0)
            result.append(Launch(kernel, buffers, params, groups))
        return result
