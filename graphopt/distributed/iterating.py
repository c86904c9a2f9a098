"""A rank's side of conjugate gradients (`protocol.Iterating`) with numpy; `resident` does it on a device."""

from __future__ import annotations

import numpy as np

from graphopt.distributed.interface import Interface
from graphopt.distributed.protocol import TAIL, HostPart
from graphopt.linear.vectors import dot
from graphopt.solver.trial import Damping, Trial


class BlockInverses:
    """The inverses of diagonal blocks, which are column-major, one after the other."""

    def __init__(self, dims: np.ndarray):
        dims = dims.astype(np.int64)
        first, scalars = np.cumsum(dims**2) - dims**2, np.cumsum(dims) - dims
        self._kinds = []
        """Per size of blocks: places of their scalars in a vector (n, d), and of their numbers (n, d, d)."""
        for size in np.unique(dims).tolist():
            blocks = np.flatnonzero(dims == size)
            numbers = first[blocks][:, None] + np.arange(size * size)
            self._kinds.append((scalars[blocks][:, None] + np.arange(size), numbers.reshape(-1, size, size)))
        self._inverses: list[np.ndarray] = []

    def invert(self, numbers: np.ndarray, damping: np.ndarray, spare: np.ndarray) -> bool:
        """Take blocks + damping; False: one is neither positive definite nor its spare diagonal."""
        self._inverses = []
        for scalars, places in self._kinds:
            blocks = numbers[places]
            diagonal = np.arange(blocks.shape[1])
            blocks[:, diagonal, diagonal] += damping[scalars]
            inverse = _inverted(blocks, spare[scalars])
            if inverse is None:
                return False
            self._inverses.append(inverse)
        return True

    def apply(self, vector: np.ndarray) -> np.ndarray:
        """Each block by itself."""
        result = np.empty_like(vector)
        for (scalars, _), inverse in zip(self._kinds, self._inverses, strict=True):
            result[scalars] = np.einsum("nij,nj->ni", inverse, vector[scalars])
        return result


def _inverted(blocks: np.ndarray, spare: np.ndarray) -> np.ndarray | None:
    """(n, d, d) inverses; None where one cannot be.

    Subtraction may leave a block of S indefinite: then H's damped diagonal (n, d) takes its place, and the
    iteration finds out itself whether S is definite.
    """
    if not np.isfinite(blocks).all():
        return None
    try:
        np.linalg.cholesky(blocks)
    except np.linalg.LinAlgError:
        wrong = np.linalg.eigvalsh(blocks)[:, 0] <= 0.0
        if not (spare[wrong] > 0.0).all():
            return None
        blocks = np.where(wrong[:, None, None], spare[:, :, None] * np.eye(blocks.shape[1]), blocks)
    return np.linalg.inv(blocks)


class HostIterating:
    """On the CPU."""

    def __init__(self, part: HostPart, shared: Interface, dims: np.ndarray, of_h: bool = False):
        """dims: of the rank's kept blocks. of_h: block-Jacobi of H_pp instead of S."""
        self._part, self._shared, self._of_h = part, shared, of_h
        self._jacobi = BlockInverses(dims)
        self._dim = int(dims.sum())
        self._failed = False

    def linearize(self) -> np.ndarray:
        """Of the part."""
        chi2, b, self._diagonal = self._part.linearize()
        rows = self._shared.rows
        return np.concatenate([rows.pack(b), rows.pack(self._diagonal), [chi2]])

    def linearized(self, total: np.ndarray) -> None:
        """b where this rank owns the row; H's diagonal, for blocks that are not definite."""
        rows, b = self._shared.rows, self.kept("b")
        self._diagonal = np.array(self._diagonal)
        rows.unpack(total, b)
        rows.unpack(total[rows.size :], self._diagonal)
        b[~self._shared.is_owned] = 0.0

    def kept(self, name: str) -> np.ndarray:
        """The part's."""
        return self._part.b[: self._dim] if name == "b" else self._diagonal

    def largest(self, name: str) -> float:
        """Of both."""
        solver = self._part.solver
        own = np.empty(0) if solver is None else np.asarray(getattr(solver, name))[self._dim :]
        return float(np.abs(np.concatenate([self.kept(name), own])).max(initial=0.0))

    def reduce(self, damping: Damping | np.ndarray) -> np.ndarray:
        """Eliminate; the rank that owns a row damps it."""
        part, shared = self._part, self._shared
        if isinstance(damping, Damping):
            own = np.empty(0) if part.solver is None else np.asarray(part.solver.diagonal)[self._dim :]
            diagonal = np.concatenate([self._diagonal, own])
            damping = np.broadcast_to(damping.of(diagonal), len(diagonal))
        self._kept, self._damping = damping[: self._dim], np.array(damping)
        self._damping[: self._dim][~shared.is_owned] = 0.0
        sizes = [shared.rows.size, shared.rows.size + shared.numbers.size]
        if not part.reduce(self._damping):
            return np.concatenate([np.zeros(sizes[1]), [1.0]])
        self._r = np.array(part.reduced_b())
        self._blocks = np.array(part.diagonal_blocks(self._of_h))
        return np.concatenate([shared.rows.pack(self._r), shared.numbers.pack(self._blocks), [0.0]])

    def start(self, total: np.ndarray) -> np.ndarray:
        """Take b_s and the blocks of all ranks."""
        rows = self._shared.rows
        rows.unpack(total, self._r)
        self._shared.numbers.unpack(total[rows.size :], self._blocks)
        self._failed = not self._jacobi.invert(self._blocks, self._kept, self._diagonal + self._kept)
        self._d, self._q, self._x = (np.zeros(self._dim) for _ in range(3))
        return self._message()

    def advance(self, total: np.ndarray, alpha: float, beta: float) -> np.ndarray:
        """The vectors of an iteration."""
        self._shared.rows.unpack(total, self._w)
        self._d = self._s + beta * self._d
        self._q = self._w + beta * self._q
        self._x += alpha * self._d
        self._r -= alpha * self._q
        return self._message()

    def _message(self) -> np.ndarray:
        if self._failed:
            return np.concatenate([np.zeros(self._shared.rows.size + TAIL - 1), [1.0]])
        self._s = self._jacobi.apply(self._r)
        self._w = np.array(self._part.product(self._s))
        is_owned = self._shared.is_owned
        rs, sw = dot(self._r[is_owned], self._s[is_owned]), dot(self._s, self._w)
        return np.concatenate([self._shared.rows.pack(self._w), [rs, 0.0, sw, 0.0, 0.0]])

    def solution(self) -> np.ndarray:
        """What this rank owns."""
        return self._shared.owned.pack(self._x)

    def substitute(self, total: np.ndarray) -> None:
        """x_l."""
        self._shared.rows.unpack(total, self._x)
        step = self._part.back_substitute(self._x)
        if self._part.solver is not None:
            self._part.solver.dx = step

    def substitute_and_move(self, total: np.ndarray) -> Trial:
        """One after the other."""
        self.substitute(total)
        solver = self._part.solver
        if solver is None:
            return Trial(True, self._part.linearize()[0], 0.0, 0.0)
        dx = np.asarray(solver.dx)
        gain = float(np.sum(dx * (self._damping * dx + self._part.b)))
        return Trial(True, solver.move().chi2, gain, float(np.abs(dx).max()))
