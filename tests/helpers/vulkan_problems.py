"""Random block systems for the tests of the Vulkan solver, with dense numpy references."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.vulkan.data.layout import BlockLayout


@dataclass
class DenseProblem:
    """A symmetric positive definite block system, stored and dense."""

    layout: BlockLayout
    values: np.ndarray
    b: np.ndarray
    matrix: np.ndarray

    @property
    def kept(self) -> int:
        """Scalar rows of the kept part."""
        return self.layout.kept_dim

    def damped(self, damping) -> np.ndarray:
        """H + D."""
        return self.matrix + np.diag(np.broadcast_to(damping, len(self.b)))

    def schur(self, damping) -> tuple[np.ndarray, np.ndarray]:
        """Dense S and reduced right-hand side."""
        n, h = self.kept, self.damped(damping)
        w, inverse = h[:n, n:], np.linalg.inv(h[n:, n:])
        return h[:n, :n] - w @ inverse @ w.T, self.b[:n] - w @ inverse @ self.b[n:]


def unpack(layout: BlockLayout, values: np.ndarray) -> np.ndarray:
    """Dense symmetric matrix of stored blocks."""
    dense = np.zeros((layout.dim, layout.dim))
    for k, (row, col) in enumerate(zip(layout.row_idx, layout.col, strict=True)):
        r, c = layout.dims[row], layout.dims[col]
        block = values[layout.block_offset[k] : layout.block_offset[k + 1]].reshape(c, r).T
        i, j = layout.scalar[row], layout.scalar[col]
        dense[i : i + r, j : j + c] = block
        dense[j : j + c, i : i + r] = block.T
    return dense


def make_problem(kept_dims, landmark_dims, *, degree=4, kept_edges=0.3, seed=0) -> DenseProblem:
    """A sum of J'J over random edges; each landmark is seen by `degree` kept vertices (or all, if fewer)."""
    rng = np.random.default_rng(seed)
    dims = np.concatenate([kept_dims, landmark_dims]).astype(np.int32)
    num_kept, num = len(kept_dims), len(dims)
    scalar = np.concatenate([[0], np.cumsum(dims)])
    pairs = {(i, i) for i in range(num)}
    for i in range(num_kept):
        for j in range(i + 1, num_kept):
            if rng.random() < kept_edges:
                pairs.add((i, j))
    for landmark in range(num_kept, num):
        seen = rng.choice(num_kept, size=min(degree, num_kept), replace=False)
        pairs.update((int(i), landmark) for i in seen)
    ordered = sorted(pairs, key=lambda p: (p[1], p[0]))
    col_ptr = np.concatenate([[0], np.cumsum(np.bincount([c for _, c in ordered], minlength=num))])
    layout = BlockLayout(
        dims, col_ptr.astype(np.int64), np.array([r for r, _ in ordered], np.int32), num_kept
    )
    matrix = np.zeros((scalar[-1], scalar[-1]))
    for row, col in ordered:
        rows = np.r_[scalar[row] : scalar[row + 1]]
        places = rows if row == col else np.concatenate([rows, np.r_[scalar[col] : scalar[col + 1]]])
        jacobian = rng.normal(size=(len(places), len(places)))
        matrix[np.ix_(places, places)] += jacobian.T @ jacobian + 0.1 * np.eye(len(places))
    values = np.concatenate(
        [matrix[scalar[r] : scalar[r + 1], scalar[c] : scalar[c + 1]].T.ravel() for r, c in ordered]
    )
    return DenseProblem(layout, values, rng.normal(size=scalar[-1]), matrix)
