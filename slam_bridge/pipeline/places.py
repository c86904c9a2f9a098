"""Places seen before: an index of keyframes by their ORB descriptors, and what two views of one place say.

Corners of a place are its tracks and, as in VINS-Mono, many more that are only described (`look`): tracks of
another view rarely are the same corners. Each keyframe keeps the descriptors of its tracks and puts an even
sample of at most 64 into the index, so that the index grows by a fixed size. A query votes: its own
descriptors, each for every keyframe in which it has a neighbour within `CLOSE` bits. The best are matched in
full and then judged by geometry.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import numpy as np

from slam_bridge.pipeline.features import Detector, descriptors, hamming, matched

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
    pixel: np.ndarray
    """(n, 2)."""
    num_tracks: int
    """The first of them are tracks."""

    @property
    def tracks(self) -> np.ndarray:
        """Descriptors of the tracks, which may have landmarks."""
        return self.descriptor[: self.num_tracks]


def look(image: np.ndarray, detector: Detector, keyframe: int, stamp: int, pixel: np.ndarray) -> Place:
    """Describe a view: its tracks (n, 2), and what a detector finds beside them."""
    found, rows = descriptors(image, pixel)
    beside = detector.detect(image, pixel)
    more, rows_beside = descriptors(image, beside)
    everything = np.concatenate([pixel[rows], beside[rows_beside]])
    return Place(keyframe, stamp, np.concatenate([found, more]), everything, len(found))


class PlaceIndex:
    """Places by keyframe."""

    def __init__(self) -> None:
        self.places: dict[int, Place] = {}
        self._lock = threading.Lock()
        self._samples = np.zeros((0, SAMPLE, 32), np.uint8)
        self._sizes = np.zeros(0, int)
        self._keyframes = np.zeros(0, np.int64)

    def add(self, place: Place) -> None:
        """Add a keyframe."""
        known = replace(place, descriptor=place.tracks, pixel=place.pixel[: place.num_tracks])
        one = _sample(place.tracks, SAMPLE)
        padded = np.zeros((1, SAMPLE, 32), np.uint8)
        padded[0, : len(one)] = one
        with self._lock:
            self._append(known, padded, len(one))

    def _append(self, place: Place, padded: np.ndarray, size: int) -> None:
        self.places[place.keyframe] = place
        self._samples = np.concatenate([self._samples, padded])
        self._sizes = np.append(self._sizes, size)
        self._keyframes = np.append(self._keyframes, place.keyframe)

    def remove(self, keyframe: int) -> None:
        """Forget a keyframe."""
        with self._lock:
            if self.places.pop(keyframe, None) is not None:
                mask = self._keyframes != keyframe
                self._samples, self._sizes = self._samples[mask], self._sizes[mask]
                self._keyframes = self._keyframes[mask]

    def query(self, descriptor: np.ndarray, before: int, most: int = 3) -> list[Place]:
        """Keyframes up to `before` [ns] that most of a view's descriptors speak for, best first."""
        with self._lock:
            return self._best(descriptor, before, most)

    def _best(self, descriptor: np.ndarray, before: int, most: int) -> list[Place]:
        stamps = np.array([self.places[one].stamp for one in self._keyframes.tolist()], np.int64)
        rows = np.flatnonzero(stamps <= before)
        wanted = _sample(descriptor, 8 * SAMPLE)
        if not len(rows) or not len(wanted):
            return []
        table = hamming(wanted, self._samples[rows].reshape(-1, 32)).reshape(len(wanted), len(rows), SAMPLE)
        table = np.where(np.arange(SAMPLE) < self._sizes[rows][:, None], table, 256)
        votes = (table.min(axis=2) <= CLOSE).sum(axis=0)
        order = np.argsort(-votes, kind="stable")[:most]
        return [self.places[int(self._keyframes[rows[k]])] for k in order if votes[k] >= 4]


def _sample(descriptor: np.ndarray, most: int) -> np.ndarray:
    count = len(descriptor)
    return descriptor[np.unique(np.linspace(0, max(count - 1, 0), min(most, count)).astype(int))]


def common(now: Place, old: Place) -> tuple[np.ndarray, np.ndarray]:
    """Rows of both places that show the same corners."""
    pairs = matched(now.descriptor, old.descriptor)
    return pairs[:, 0], pairs[:, 1]
