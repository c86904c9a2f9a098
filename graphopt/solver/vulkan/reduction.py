"""What the conjugate gradients solve: the whole H, or the Schur complement of its landmarks.

A reduction gives `Pcg` a product q = A d with block-Jacobi, and before and after it what elimination needs:

    record                     inverses of H_ll, S or its diagonal, and the right-hand side of A x = r
    record_product             q = A d with the parts of d'q
    record_back_substitution   the landmarks' part of dx

Here from stored blocks of H; `matrix_free` has the same from the edges.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from graphopt.solver.vulkan.configuration import Configuration
from graphopt.solver.vulkan.context import record_step
from graphopt.solver.vulkan.equations import Equations
from graphopt.solver.vulkan.gpu_queues import SchurLookup
from graphopt.solver.vulkan.inverse import BlockInverse
from graphopt.solver.vulkan.layout import BlockLayout
from graphopt.solver.vulkan.pcg import Pcg
from graphopt.solver.vulkan.products import (
    NORMAL,
    LandmarkProduct,
    RowProduct,
    symmetric_product,
    symmetric_uses,
)
from graphopt.solver.vulkan.schur import SchurBlocks, explicit_schur, schur_diagonal
from graphopt.solver.vulkan.sequence import Sequence


class Reduction(Protocol):
    """See the module's header."""

    dims: np.ndarray
    """Dimensions of the block rows of A."""
    direction: Any
    """Buffer of d; its first rows are those of A."""
    num_dots: int
    """Parts of d'q that a product leaves."""
    bytes_per_product: float

    @property
    def jacobi(self) -> BlockInverse | None:
        """Block-Jacobi; None where no conjugate gradients run."""
        ...

    def record(self, sequence: Sequence, residual: Any) -> None:
        """Everything that depends on the damping, and r."""
        ...

    def record_jacobi(self, sequence: Sequence) -> None:
        """Invert the diagonal blocks of A."""
        ...

    def record_product(self, recorder: Any, pcg: Pcg, parity: int) -> None:
        """q = A d and the parts of d'q, without last barrier."""
        ...

    def record_back_substitution(self, sequence: Any) -> None:
        """The eliminated part of dx."""
        ...


class WholeReduction:
    """No elimination: A = H + D."""

    landmark_inverse: BlockInverse | None = None
    schur: SchurBlocks | SchurLookup | None = None

    def __init__(self, equations: Equations):
        self._equations = equations
        context, layout = equations.context, equations.layout
        self.dims = layout.dims
        self.direction = context.reals(layout.dim)
        self.jacobi = BlockInverse(context, layout.dims, layout.diagonal_offset, layout.scalar[:-1])
        self._product = symmetric_product(context, layout)
        self.num_dots = self._product.num_groups
        self.bytes_per_product = 2.0 * layout.values_size * context.real.itemsize

    def record(self, sequence: Sequence, residual: Any) -> None:
        """r = b."""
        context, layout = self._equations.context, self._equations.layout
        sequence.copy(self._equations.b, residual, layout.dim * context.real.itemsize)

    def record_jacobi(self, sequence: Sequence) -> None:
        """Invert the diagonal blocks of H + D."""
        own = self._equations
        sequence.step(self.jacobi.launches(own.values, own.damping, own.status))

    def record_product(self, recorder: Any, pcg: Pcg, parity: int) -> None:
        """q = (H + D) d."""
        own = self._equations
        record_step(recorder, self._product.chunk_launches(own.values, pcg.d, own.status, parity))
        launch = self._product.product_launch(pcg.d, pcg.q, pcg.dots_dq, own.status, own.damping, parity)
        launch.record(recorder)

    def record_back_substitution(self, sequence: Any) -> None:
        """Nothing was eliminated."""


class SchurReduction:
    """A = S, formed (explicit) or as products with H's blocks (implicit)."""

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
        if self._chosen.linear_solver == "pcg":
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
        if self._chosen.preconditioner == "hschur":
            self.schur = schur_diagonal(context, layout, self.landmark_inverse.offset)
            source = self.schur.offset
        self.jacobi = BlockInverse(context, kept.dims, source, kept.scalar[:-1], kept.diagonal_offset)

    def record(self, sequence: Sequence, residual: Any) -> None:
        """Inverses of H_ll, S or its diagonal, and the reduced right-hand side."""
        own = self._equations
        values, damping, status, inverse = own.values, own.damping, own.status, self.landmark_inverse.buffer
        sequence.fill(self._work)
        sequence.step(self.landmark_inverse.launches(values, damping, status))
        step = self._landmarks.launches(values, inverse, self._work, status, base=own.b, product=False)
        if self.schur is not None:
            step += self.schur.pair_launches(values, inverse, damping)
        sequence.step(step)
        step = self._reduction.chunk_launches(values, self._work, status)
        if self.schur is not None:
            step += self.schur.combine_launches(values, damping)
        sequence.step(step)
        sequence.step([self._reduction.residual_launch(own.b, residual, status)])

    def record_jacobi(self, sequence: Sequence) -> None:
        """Invert the diagonal blocks of S, or of H_pp; rounding may leave one of S indefinite."""
        own = self._equations
        assert self.jacobi is not None
        if self.schur is None:
            sequence.step(self.jacobi.launches(own.values, own.damping, own.status))
            return
        # S has the damping in it
        blocks = self.schur.buffer
        sequence.step(self.jacobi.launches(blocks, own.damping, own.status, damped=False, spare=own.values))

    def record_product(self, recorder: Any, pcg: Pcg, parity: int) -> None:
        """q = S d."""
        own = self._equations
        values, damping, status = own.values, own.damping, own.status
        if self._chosen.schur == "implicit":
            inverse = self.landmark_inverse.buffer
            step = self._landmarks.launches(values, inverse, pcg.d, status, base=None, parity=parity)
            record_step(recorder, step)
        else:
            assert self.schur is not None
            values, damping = self.schur.buffer, None
        record_step(recorder, self._product.chunk_launches(values, pcg.d, status, parity))
        self._product.product_launch(pcg.d, pcg.q, pcg.dots_dq, status, damping, parity).record(recorder)

    def record_back_substitution(self, sequence: Any) -> None:
        """x_l = (H_ll + D_l)^-1 (b_l - H_pl' x_p)."""
        own, inverse = self._equations, self.landmark_inverse.buffer
        sequence.step(self._landmarks.launches(own.values, inverse, own.dx, own.status, base=own.b))
