"""A maximal independent set by rounds of local minima (Luby's algorithm with a fixed priority).

In each round every candidate whose priority is below that of all its candidate neighbours enters the set, and
its neighbours leave. A scrambled number as priority needs O(log n) rounds on any graph and gives the same set
each time.
"""

from __future__ import annotations

import numpy as np


def independent_set(requested: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Mask (n,) bool of a maximal subset of `requested` in which no pair of `pairs` (p, 2) is complete.

    Every requested number that is in no pair is in the set.
    """
    taken = requested.copy()
    if not len(pairs):
        return taken
    taken[pairs.ravel()] = False
    priority = _scramble(np.arange(len(requested)))
    while len(pairs):
        candidates = np.unique(pairs)
        smallest = np.full(len(requested), np.iinfo(np.uint64).max, np.uint64)
        np.minimum.at(smallest, pairs[:, 0], priority[pairs[:, 1]])
        np.minimum.at(smallest, pairs[:, 1], priority[pairs[:, 0]])
        winners = candidates[priority[candidates] < smallest[candidates]]
        taken[winners] = True
        out = np.zeros(len(requested), bool)
        out[winners] = True
        beaten = np.unique(pairs[out[pairs].any(axis=1)])
        out[beaten] = True
        left = candidates[~out[candidates]]
        pairs = pairs[~out[pairs].any(axis=1)]
        alone = np.setdiff1d(left, pairs)  # all their neighbours were beaten
        taken[alone] = True
    return taken


def _scramble(numbers: np.ndarray) -> np.ndarray:
    """Distinct pseudo-random 64-bit numbers (an odd multiplier and xor-shifts are bijections)."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(32))
