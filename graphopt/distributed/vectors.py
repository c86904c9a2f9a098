"""Vectors of which every rank has the kept part and its own landmarks'.

    x = [ x_p | x_l ]     x_p the same on all ranks, x_l of this rank's eliminated vertices

The optimization algorithms compute with them as with any array; `sum`, `max` and `all` go over the ranks, so
that scalar products and norms, and with them every decision, are the same everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.distributed.communicator import Communicator
from graphopt.linear.vectors import dot


class RankVector(np.ndarray):
    """(kept_dim + own_dim,) float64; reductions are collectives."""

    comm: Communicator | None
    kept_dim: int

    def __array_finalize__(self, source: Any) -> None:
        """What arithmetic with vectors makes is one of them."""
        self.comm = getattr(source, "comm", None)
        self.kept_dim = getattr(source, "kept_dim", 0)

    def _over_ranks(self, kept: float, own: float) -> np.ndarray:
        """(1 + size,) the kept part's number, and each rank's own."""
        assert self.comm is not None
        return np.array([kept, *self.comm.share(own)])

    def _added(self, kept: float, own: float) -> float:
        """In the order of the ranks."""
        total = 0.0
        for part in self._over_ranks(kept, own).tolist():
            total += part
        return total

    def _parts(self) -> tuple[np.ndarray, np.ndarray]:
        plain = np.asarray(self)
        return plain[: self.kept_dim], plain[self.kept_dim :]

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        """Over all ranks, the kept part once."""
        kept, own = self._parts()
        return self._added(float(kept.sum()), float(own.sum()))

    def inner(self, other: np.ndarray) -> float:
        """Scalar product, with each rank's own entries once."""
        (kept, own), plain = self._parts(), np.asarray(other)
        return self._added(dot(kept, plain[: self.kept_dim]), dot(own, plain[self.kept_dim :]))

    def __matmul__(self, other: Any) -> Any:
        """As `inner`."""
        return self.inner(other)

    def min(self, *args: Any, **kwargs: Any) -> Any:
        """Over all ranks; NaN where one has it."""
        return -(-self).max()

    def any(self, *args: Any, **kwargs: Any) -> Any:
        """On some rank."""
        kept, own = self._parts()
        return bool(self._over_ranks(float(kept.any()), float(own.any())).any())

    def max(self, *args: Any, **kwargs: Any) -> Any:
        """Over all ranks; NaN where one has it, 0 of nothing."""
        kept, own = self._parts()
        return self._over_ranks(
            *(float(vector.max()) if len(vector) else -np.inf for vector in (kept, own))
        ).max()

    def all(self, *args: Any, **kwargs: Any) -> Any:
        """On all ranks."""
        kept, own = self._parts()
        return bool(self._over_ranks(float(kept.all()), float(own.all())).all())


def rank_vector(values: np.ndarray, comm: Communicator, kept_dim: int) -> RankVector:
    """A view of `values` (kept_dim + own_dim,)."""
    made = values.view(RankVector)
    made.comm, made.kept_dim = comm, kept_dim
    return made
