"""Which kept vertices several ranks have: what they have to tell each other, and who owns what.

A message of the conjugate gradients has one place per scalar of a vertex that two or more ranks have, by
ascending vertex; nobody else needs the others. The first rank that has a vertex owns it: it alone
counts its scalars in sums over vectors, and damps it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.distributed.communicator import Communicator
from graphopt.problem.segments import within


@dataclass(frozen=True, eq=False)
class Places:
    """Numbers of a rank that are in messages."""

    own: np.ndarray
    """(k,) int64: their places among the rank's own numbers."""
    message: np.ndarray
    """(k,) int64: their places in a message."""
    size: int
    """Numbers of a message."""

    def pack(self, values: np.ndarray) -> np.ndarray:
        """A message (size,) with the rank's numbers, 0 elsewhere."""
        message = np.zeros(self.size)
        message[self.message] = values[self.own]
        return message

    def unpack(self, message: np.ndarray, values: np.ndarray) -> None:
        """Put the sums of all ranks over the rank's own numbers."""
        values[self.own] = message[self.message]


@dataclass(frozen=True, eq=False)
class Interface:
    """What a rank shares with others."""

    rows: Places
    """Scalars of vectors of the rank's kept vertices."""
    owned: Places
    """Those of them that the rank owns."""
    numbers: Places
    """Numbers of the diagonal blocks of its kept vertices, column-major, one after the other."""
    is_owned: np.ndarray
    """(kept_dim,) bool: scalars of its kept vertices that the rank owns."""


def interface(comm: Communicator, kept_blocks: np.ndarray, dims: np.ndarray) -> Interface:
    """Collective. kept_blocks: (k,) ascending, the rank's, among those of all; dims: of all."""
    every = comm.share(kept_blocks)
    count, speaker = np.zeros(len(dims), np.int64), np.full(len(dims), comm.size)
    for rank, blocks in reversed(list(enumerate(every))):
        count[blocks] += 1
        speaker[blocks] = rank
    shared = np.flatnonzero(count > 1)
    own_dims, all_dims = dims[kept_blocks].astype(np.int64), dims[shared].astype(np.int64)
    of_shared = np.searchsorted(shared, kept_blocks)
    is_shared = count[kept_blocks] > 1
    mine = speaker[kept_blocks] == comm.rank

    def places(chosen: np.ndarray, power: int) -> Places:
        return Places(
            within(own_dims**power, np.flatnonzero(chosen)),
            within(all_dims**power, of_shared[chosen]),
            int((all_dims**power).sum()),
        )

    is_owned = np.repeat(mine, own_dims)
    return Interface(places(is_shared, 1), places(is_shared & mine, 1), places(is_shared, 2), is_owned)
