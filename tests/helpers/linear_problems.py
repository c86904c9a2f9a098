"""Random block systems and their dense form, for the tests of the linear solvers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.linear import BlockPattern


def make_pattern(dims, edges) -> BlockPattern:
    """Pattern with every diagonal block and the blocks of `edges` (n, 2)."""
    num_blocks = len(dims)
    edges = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    low, high = edges.min(axis=1), edges.max(axis=1)
    keys = np.concatenate([high * num_blocks + low, np.arange(num_blocks) * (num_blocks + 1)])
    col, row = np.divmod(np.unique(keys), max(num_blocks, 1))
    return BlockPattern(dims, np.searchsorted(col, np.arange(num_blocks + 1)), row)


def neighbours(*sides: int) -> np.ndarray:
    """(n, 2) pairs of neighbours of a chain, a grid or a cube with these sides."""
    index = np.arange(np.prod(sides)).reshape(sides)
    ahead = [np.moveaxis(index, axis, 0) for axis in range(len(sides))]
    return np.concatenate([np.stack([each[:-1].ravel(), each[1:].ravel()], axis=1) for each in ahead])


def scattered(num: int, pairs: int) -> np.ndarray:
    """Random pairs."""
    return np.random.default_rng(3).integers(0, num, (pairs, 2))


def lattice(side: int, dim: int) -> tuple[BlockPattern, np.ndarray]:
    """A square lattice of blocks that are not symmetric but on the diagonal, and values below one."""
    pattern = make_pattern([dim] * side * side, neighbours(side, side))
    values = np.random.default_rng(0).uniform(-1.0, 1.0, pattern.values_size).reshape(-1, dim, dim)
    diagonal = pattern.col_ptr[1:] - 1
    values[diagonal] += values[diagonal].transpose(0, 2, 1)
    return pattern, values.ravel()


def to_dense(pattern: BlockPattern, values: np.ndarray) -> np.ndarray:
    """Full symmetric matrix (dim, dim)."""
    dense = np.zeros((pattern.dim, pattern.dim))
    for col in range(pattern.num_blocks):
        c = slice(pattern.offsets[col], pattern.offsets[col + 1])
        for k in range(pattern.col_ptr[col], pattern.col_ptr[col + 1]):
            row = pattern.row_idx[k]
            r = slice(pattern.offsets[row], pattern.offsets[row + 1])
            block = values[pattern.value_offsets[k] : pattern.value_offsets[k + 1]]
            dense[r, c] = block.reshape((pattern.dims[row], pattern.dims[col]), order="F")
            dense[c, r] = dense[r, c].T
    return dense


def from_dense(pattern: BlockPattern, dense: np.ndarray) -> np.ndarray:
    """Values of a full symmetric matrix on a pattern."""
    values = np.empty(pattern.values_size)
    for col in range(pattern.num_blocks):
        for k in range(pattern.col_ptr[col], pattern.col_ptr[col + 1]):
            row = pattern.row_idx[k]
            block = dense[
                pattern.offsets[row] : pattern.offsets[row + 1],
                pattern.offsets[col] : pattern.offsets[col + 1],
            ]
            values[pattern.value_offsets[k] : pattern.value_offsets[k + 1]] = block.ravel(order="F")
    return values


@dataclass
class Problem:
    """A positive definite system on a pattern, with its dense solution."""

    pattern: BlockPattern
    num_kept: int
    values: np.ndarray
    damping: np.ndarray | None
    b: np.ndarray

    @property
    def dense(self) -> np.ndarray:
        """H + D."""
        full = to_dense(self.pattern, self.values)
        return full if self.damping is None else full + np.diag(self.damping)

    @property
    def x(self) -> np.ndarray:
        """Reference solution."""
        return np.linalg.solve(self.dense, self.b)


def spd_values(pattern: BlockPattern, rng: np.random.Generator) -> np.ndarray:
    """Random values that make a diagonally dominant, hence positive definite matrix."""
    dense = to_dense(pattern, rng.standard_normal(pattern.values_size))
    dense = (dense + dense.T) / 2
    np.fill_diagonal(dense, 0.0)
    np.fill_diagonal(dense, np.abs(dense).sum(axis=1) + 0.1 + rng.random(pattern.dim))
    return from_dense(pattern, dense)


def make_problem(dims, edges, seed: int, num_kept: int | None = None, damped: bool = False) -> Problem:
    """Random positive definite system on the blocks of `edges`."""
    rng = np.random.default_rng(seed)
    pattern = make_pattern(dims, edges)
    damping = 3.0 * rng.random(pattern.dim) if damped else None
    kept = pattern.num_blocks if num_kept is None else num_kept
    return Problem(pattern, kept, spd_values(pattern, rng), damping, rng.standard_normal(pattern.dim))


def chain_with_loops(num_blocks: int, dims, seed: int, num_loops: int):
    """Edges of a chain plus random loop closures, and dims repeated cyclically."""
    rng = np.random.default_rng(seed)
    chain = np.stack([np.arange(num_blocks - 1), np.arange(1, num_blocks)], axis=1)
    loops = rng.integers(0, num_blocks, (num_loops, 2))
    edges = np.concatenate([chain, loops[loops[:, 0] != loops[:, 1]]])
    return np.resize(dims, num_blocks), edges


def bundle(num_kept: int, num_eliminated: int, kept_dims, eliminated_dims, seed: int, degree: int = 4):
    """Dims and edges of a bundle adjustment: kept blocks see eliminated ones, some kept ones are coupled."""
    rng = np.random.default_rng(seed)
    edges = [(i, j) for j in range(num_kept) for i in range(j) if rng.random() < 0.3]
    for block in range(num_eliminated):
        seen = rng.choice(num_kept, size=min(num_kept, int(rng.integers(0, degree + 1))), replace=False)
        edges += [(int(i), num_kept + block) for i in seen]
    dims = np.concatenate([np.resize(kept_dims, num_kept), np.resize(eliminated_dims, num_eliminated)])
    return dims, edges
