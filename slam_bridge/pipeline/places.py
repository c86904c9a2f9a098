"""Places seen before: an index of keyframes by their ORB descriptors, and what two views of one place say.

Each keyframe keeps all its descriptors and puts an even sample of at most 64 into the index, so that the
index grows by a fixed size. A query votes: its own sample's descriptors, each for every keyframe in which it
has a neighbour within `CLOSE` bits. The best are matched in full and then judged by geometry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slam_bridge.pipeline.features import hamming, matched

SAMPLE = 64
"""Descriptors of a keyframe in the index, at most."""
CLOSE = 40
"""Bits by which descriptors of one corner differ, mostly (Rublee et al. 2011, figure 6: below 64)."""


@dataclass(frozen=True, eq=False)
class Place:
    """What a keyframe looks like."""

    keyframe: int
    stamp: int
    descriptor: np.ndarray
    """(n, 32) uint8."""
    track: np.ndarray
    """(n,) ids of the tracks."""
    pixel: np.ndarray
    """(n, 2)."""


class PlaceIndex:
    """Places by keyframe."""

    def __init__(self) -> None:
        self.places: dict[int, Place] = {}
        self._samples = np.zeros((0, SAMPLE, 32), np.uint8)
        self._sizes = np.zeros(0, int)
        self._keyframes = np.zeros(0, np.int64)

    def add(self, place: Place) -> None:
        """Add a keyframe."""
        self.places[place.keyframe] = place
        one = _sample(place.descriptor)
        padded = np.zeros((1, SAMPLE, 32), np.uint8)
        padded[0, : len(one)] = one
        self._samples = np.concatenate([self._samples, padded])
        self._sizes = np.append(self._sizes, len(one))
        self._keyframes = np.append(self._keyframes, place.keyframe)

    def remove(self, keyframe: int) -> None:
        """Forget a keyframe."""
        if self.places.pop(keyframe, None) is None:
            return
        mask = self._keyframes != keyframe
        self._samples, self._sizes = self._samples[mask], self._sizes[mask]
        self._keyframes = self._keyframes[mask]

    def query(self, descriptor: np.ndarray, before: int, most: int = 3) -> list[Place]:
        """Keyframes up to `before` [ns] that most of a view's descriptors speak for, best first."""
        stamps = np.array([self.places[one].stamp for one in self._keyframes.tolist()], np.int64)
        rows = np.flatnonzero(stamps <= before)
        wanted = _sample(descriptor)
        if not len(rows) or not len(wanted):
            return []
        table = hamming(wanted, self._samples[rows].reshape(-1, 32)).reshape(len(wanted), len(rows), SAMPLE)
        table = np.where(np.arange(SAMPLE) < self._sizes[rows][:, None], table, 256)
        votes = (table.min(axis=2) <= CLOSE).sum(axis=0)
        order = np.argsort(-votes, kind="stable")[:most]
        return [self.places[int(self._keyframes[rows[k]])] for k in order if votes[k] >= 4]


def _sample(descriptor: np.ndarray) -> np.ndarray:
    chosen = np.unique(np.linspace(0, max(len(descriptor) - 1, 0), min(SAMPLE, len(descriptor))).astype(int))
    return descriptor[chosen]


def common(now: Place, old: Place) -> tuple[np.ndarray, np.ndarray]:
    """Rows of both places that show the same corners."""
    pairs = matched(now.descriptor, old.descriptor)
    return pairs[:, 0], pairs[:, 1]
