"""Directions in which a positive semidefinite block matrix is singular, and inverses that cope with them.

    H v = lambda D v,  D = diag H:   lambda is free of units, and 0 for a direction that changes no residual

Found by block Lanczos iterations with the inverse of H + shift D, from random directions until these show no
more, and refined by an inverse iteration. A symmetric generalized inverse is made of G = (H + E K E')^-1,
where springs K hold one scalar per direction (E):

    C = T G T',   T = I - N M      pseudo-inverse: M = N';   hold: M = (E' N)^-1 E', held scalars do not move

with directions N: orthonormal for the pseudo-inverse, any basis for hold. Scalars are held, and that basis is
chosen, in units of D^1/2: a point far away moves by large numbers although little holds it. Reference: Golub
and Van Loan, Matrix Computations, section 10.3.6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from graphopt.cpu_kernels import kernels
from graphopt.errors import SolverError
from graphopt.linear.cholesky import SparseCholesky
from graphopt.linear.schur import SchurComplement
from graphopt.problem.pattern import BlockPattern

SINGULAR = 1e-13
"""lambda of a direction that counts as singular: rounding leaves 1e-16 to 1e-14."""
_SHIFT = 1e-11
_MOST = 64  # directions that are looked for
_HELD = 1e-7
"""Least eigenvalue of landmarks, likewise: below, the Schur complement loses digits that tell singular."""
_BLOCK, _STEPS = 8, 8  # directions of one iteration, iterations from one start
_CLOSE = 0.5  # of a singular direction's: Ritz values of the inverse that are looked at
_LOST = 1e-12  # square of what orthogonalization leaves of a direction that is in the space already


@dataclass(frozen=True, eq=False)
class NullSpace:
    """Singular directions of a matrix."""

    pattern: BlockPattern
    scaled: np.ndarray
    """(dim, k) float64: D^1/2 v, orthonormal columns."""
    root: np.ndarray
    """(dim, 1): D^1/2."""

    @cached_property
    def basis(self) -> np.ndarray:
        """(dim, k) directions v, orthonormal columns."""
        found = self.scaled / self.root
        return np.linalg.qr(found)[0] if found.size else found

    @property
    def num_directions(self) -> int:
        """k."""
        return self.scaled.shape[1]

    def movement(self) -> np.ndarray:
        """(num_blocks,) how much of all directions is in each block: of 0 it does not move."""
        squares = (self.basis**2).sum(axis=1)
        return np.sqrt(np.add.reduceat(squares, self.pattern.offsets[:-1]))

    def moved_blocks(self) -> np.ndarray:
        """Blocks that move by at least 1e-6 of the one that moves most, most moved first."""
        movement = self.movement()
        order = np.argsort(-movement, kind="stable")
        return order[movement[order] > 1e-6 * movement.max(initial=0.0)]

    def scalars_to_hold(self) -> np.ndarray:
        """(k,) scalars which, held, leave nothing that moves and H as well conditioned as can be."""
        return self._held

    @cached_property
    def _held(self) -> np.ndarray:
        return _pivots(self.scaled)


def _pivots(basis: np.ndarray) -> np.ndarray:
    """(k,) rows of a basis (dim, k), ascending: the pivots of a QR decomposition."""
    pivots = np.asarray(scipy.linalg.qr(basis.T, mode="r", pivoting=True)[-1])
    return np.sort(pivots[: basis.shape[1]])


def find_null_space(
    pattern: BlockPattern,
    values: np.ndarray,
    num_kept: int | None = None,
    complement: SchurComplement | None = None,
) -> NullSpace:
    """Singular directions of a positive semidefinite H; raises `SolverError` if it is indefinite.

    values: (values_size,) in the layout of the pattern. num_kept: blocks before the landmarks, which are
    coupled with those only; where these hold each landmark well, directions of the Schur complement are
    looked for, and say how landmarks move. complement: the Schur complement, where it is formed already. At
    most 64 directions are found.
    """
    diagonal = _scales(pattern, values)
    root = np.sqrt(diagonal)
    spaces = _reduced(pattern, values, root, num_kept, complement) or _whole(pattern, values, root)
    return NullSpace(pattern, _singular(pattern, values, root, *spaces), root[:, None])


Operator = Callable[[np.ndarray], np.ndarray]
"""Of vectors (k, n), row by row."""


def _whole(pattern: BlockPattern, values: np.ndarray, root: np.ndarray) -> tuple[Operator, Operator, int]:
    """D^1/2 (H + shift D)^-1 D^1/2, the identity, and their size."""
    solver = SparseCholesky(pattern)
    if not solver.factorize(values, _SHIFT * root**2):
        raise SolverError(
            f"H is not positive semidefinite (found at block {solver.failed_block}): its singular directions "
            "say nothing about the graph. Check informations and robust kernels."
        )
    return _scaled_inverse(solver, root), lambda x: x, pattern.dim


def _reduced(
    pattern: BlockPattern,
    values: np.ndarray,
    root: np.ndarray,
    num_kept: int | None,
    complement: SchurComplement | None,
) -> tuple[Operator, Operator, int] | None:
    """The same of the Schur complement, and what landmarks add to a direction; None: H has to do.

    D^1/2 (x_p, -inv(H_ll) H_lp x_p) of D_p^1/2 x_p.
    """
    if num_kept is None or num_kept in (0, pattern.num_blocks):
        return None
    if not _least_eigenvalue(pattern, values, root, num_kept) > _HELD:
        return None
    if complement is None:
        complement = SchurComplement(pattern, num_kept)
        if not complement.form(values, None, np.zeros(pattern.dim)):
            return None
    size = complement.kept_dim
    solver = SparseCholesky(complement.reduced_pattern)
    if not solver.factorize(complement.reduced_values, _SHIFT * root[:size] ** 2):
        return None  # rounding alone does that where landmarks are far away

    def expand(x: np.ndarray) -> np.ndarray:
        rows = [complement.back_substitute(row) for row in x / root[:size]]
        return root * np.reshape(rows, (len(x), pattern.dim))

    return _scaled_inverse(solver, root[:size]), expand, size


def _least_eigenvalue(pattern: BlockPattern, values: np.ndarray, root: np.ndarray, first: int) -> float:
    """Of the diagonal blocks from `first` on, in units of D."""
    dims, least = pattern.dims[first:], np.inf
    for dim in np.unique(dims).tolist():
        blocks = first + np.flatnonzero(dims == dim)
        places = pattern.value_offsets[pattern.col_ptr[blocks + 1] - 1][:, None] + np.arange(dim * dim)
        weight = root[pattern.offsets[blocks][:, None] + np.arange(dim)]
        scaled = values[places].reshape(-1, dim, dim) / (weight[:, :, None] * weight[:, None, :])
        least = min(least, float(np.linalg.eigvalsh(scaled).min()))
    return least


def _scaled_inverse(solver: SparseCholesky, root: np.ndarray) -> Operator:
    return lambda x: solver.solve(np.ascontiguousarray((root * x).T)).T * root


def diagonal_of(pattern: BlockPattern, values: np.ndarray) -> np.ndarray:
    """(dim,) the scalars on the diagonal of H."""
    return values[pattern.diagonal_indices()]


def _scales(pattern: BlockPattern, values: np.ndarray) -> np.ndarray:
    """(dim,) the diagonal, where it is 0 the largest entry of it."""
    diagonal = diagonal_of(pattern, values)
    return np.where(diagonal > 0.0, diagonal, max(diagonal.max(initial=0.0), 1e-300))


def _singular(
    pattern: BlockPattern,
    values: np.ndarray,
    root: np.ndarray,
    inverse: Operator,
    expand: Operator,
    size: int,
) -> np.ndarray:
    """Singular directions, (dim, at most 64), as `NullSpace.scaled`.

    inverse: of vectors of this size; expand: to whole ones.
    """
    product, generator = kernels.SymmetricProduct(pattern), np.random.default_rng(0)
    found = start = np.empty((0, size))
    num_new = _BLOCK
    while num_new >= _BLOCK and len(found) < min(_MOST, size):
        fresh = generator.standard_normal((_BLOCK, size))
        ritz, theta = _largest(inverse, np.vstack([start, fresh]), found)
        close = ritz[theta * (SINGULAR + _SHIFT) > _CLOSE]
        whole = expand(close)
        square, turn = np.linalg.eigh(whole @ whole.T)
        turn = turn / np.sqrt(square)  # orthonormal whole ones
        v = turn.T @ whole / root
        images = np.reshape([product.multiply(values, row) for row in v], v.shape)
        quotient, again = np.linalg.eigh(v @ images.T)
        close, is_singular = (turn @ again).T @ close, quotient < SINGULAR
        num_new = int(is_singular.sum())
        found = np.vstack([found, _orthonormal(close[is_singular], found)])
        start = close[~is_singular]
    found = found[:_MOST]
    return (_orthonormal(expand(inverse(found)), np.empty((0, len(root)))) if len(found) else expand(found)).T


def _largest(operator: Operator, start: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ritz vectors (k, dim), orthonormal and orthogonal to `known`, and Ritz values (k,) of an operator.

    Of the space of start, operator(start), operator(operator(start)), ...; `known` is an invariant one.
    """
    basis = np.empty((len(known) + _STEPS * len(start), start.shape[1]))
    images = np.empty_like(basis)
    first = end = len(known)
    basis[:first], block = known, start
    for _ in range(_STEPS):
        block = _orthonormal(block, basis[:end])
        size = len(block)
        if not size:
            break
        basis[end : end + size], images[end : end + size] = block, operator(block)
        block, end = images[end : end + size], end + size
    inverse, turn = np.linalg.eigh(basis[first:end] @ images[first:end].T)
    return turn.T @ basis[first:end], inverse


def _orthonormal(block: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Orthonormal rows of what a block has beside an orthonormal basis."""
    block = block / np.linalg.norm(block, axis=1, keepdims=True)
    for _ in range(2):
        block = block - (block @ basis.T) @ basis
        square, turn = np.linalg.eigh(block @ block.T)
        is_new = square > _LOST
        block = (turn[:, is_new] / np.sqrt(square[is_new])).T @ block
    return block


class GeneralizedInverse:
    """Blocks of a generalized inverse of a singular H.

    kind: "pseudo-inverse", or "hold": covariances given that `held` scalars do not move. factorize: for
    "hold", a solver of the first `size` scalars of H + diag(springs), which are all that is held; None: of H.
    """

    def __init__(
        self,
        null_space: NullSpace,
        values: np.ndarray,
        kind: str,
        factorize: Callable[[np.ndarray], Any] | None = None,
        size: int | None = None,
    ):
        pattern = null_space.pattern
        if kind == "hold":
            basis, self.held = null_space.scaled / null_space.root, null_space.scalars_to_hold()
        else:  # T has little to take away where what moves most is held
            basis, self.held = null_space.basis, _pivots(null_space.basis)
        springs = np.zeros(pattern.dim)
        springs[self.held] = _scales(pattern, values)[self.held]
        self._pattern, self._basis = pattern, basis
        factorize = factorize or (lambda springs: _factorized(pattern, values, springs))
        solver = factorize(springs)
        if solver is None:
            other = "" if kind == "hold" else " Use singular='hold', for which it is scaled."
            raise SolverError(
                f"H stays singular with its singular directions held: it is too ill-conditioned.{other}"
            )
        self._solver = solver
        chosen = np.zeros(basis.shape)
        if kind == "hold":
            chosen[self.held] = np.linalg.inv(basis[self.held]).T
        else:
            chosen = np.ascontiguousarray(basis)
        chosen = chosen[:size]
        self._image = self._solver.solve(chosen)  # G M', (dim, k)
        self._core = chosen.T @ self._image  # M G M'

    def marginals(self, pairs: np.ndarray) -> list[np.ndarray]:
        """Blocks (row, col) of C, one array per pair."""
        return [
            block - self._correction(int(i), int(j))
            for (i, j), block in zip(pairs, self._solver.marginals(pairs), strict=True)
        ]

    def _correction(self, i: int, j: int) -> np.ndarray:
        rows, cols = (slice(int(self._pattern.offsets[k]), int(self._pattern.offsets[k + 1])) for k in (i, j))
        left, right = self._basis[rows], self._basis[cols]
        cross = left @ self._image[cols].T + self._image[rows] @ right.T
        return cross - left @ self._core @ right.T


def _factorized(pattern: BlockPattern, values: np.ndarray, damping: np.ndarray) -> SparseCholesky | None:
    solver = SparseCholesky(pattern)
    return solver if solver.factorize(values, damping) else None
