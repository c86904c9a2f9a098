"""Places seen before: an index of keyframes by their ORB descriptors, and what two views of one place say.

Corners of a place are its tracks and, as in VINS-Mono, many more that are only described (`look`): tracks of
another view rarely are the same corners. They are described at several sizes of the image (`LEVELS`), since a
place may be seen again from nearer or farther. Each keyframe keeps the descriptors of its tracks and puts an
even sample of at most 64 into the index, so that the index grows by a fixed size. A query votes: its own
descriptors, each for every keyframe in which it has a neighbour within `CLOSE` bits. The best are matched in
full and then judged by geometry.

Where there are many keyframes, `SHORTLIST` of them may be voted for: those whose descriptors most often have
the same bits as the query's at a few places, for several such choices of places (locality-sensitive hashing:
Indyk and Motwani, STOC 1998).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from slam_bridge.pipeline.features import Corners, Detector, descriptors, matched, nearest, resized
from slam_bridge.pipeline.inputs import Frame

LEVELS = (1.0, 4.0 / 3.0, 3.0 / 4.0)
"""Sizes of the image in which a view is described, of 1. With those of ORB's patches that a keyframe keeps
in between: seen again from 0.65 to 1.5 times the distance. ORB-SLAM3 has eight, each 1.2 times the next."""
SAMPLE = 64
"""Descriptors of a keyframe in the index, at most."""
CLOSE = 40
"""Bits by which descriptors of one corner differ, mostly (Rublee et al. 2011, figure 6: below 64)."""
SHORTLIST = 20
"""Keyframes that a query compares bit by bit."""
_TABLES, _KEY_BITS = 8, 14
"""Of the hashing: of 5,000 keyframes 20 share a key by chance; corners 30 bits apart one of 8 in 77 %."""
_PLACES_OF_BITS = np.random.default_rng(0).permutation(256)[: _TABLES * _KEY_BITS]


def _hashes(descriptor: np.ndarray) -> np.ndarray:
    """(n, _TABLES) keys of descriptors (n, 32), those of different tables apart."""
    bits = np.unpackbits(descriptor, axis=1)[:, _PLACES_OF_BITS].reshape(len(descriptor), _TABLES, _KEY_BITS)
    return bits @ (1 << np.arange(_KEY_BITS)) + (np.arange(_TABLES) << _KEY_BITS)


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
    camera: int = 0
    """Whose image it is."""

    @property
    def tracks(self) -> np.ndarray:
        """Descriptors of the tracks, which may have landmarks."""
        return self.descriptor[: self.num_tracks]


def look(frame: Frame, detectors: list[Detector], keyframe: int, pixel: np.ndarray) -> Place:
    """Describe a view: its tracks (n, 2), and what detectors find beside them.

    detectors: one for each of the first sizes in `LEVELS`.
    """
    bits, places, tracks = [], [], 0
    for level, (size, detector) in enumerate(zip(LEVELS, detectors, strict=False)):
        image, corners, known = frame.images[0], frame.corners, pixel
        if level:
            image = resized(image, size)
            corners, known = Corners.of(image), (pixel + 0.5) * size - 0.5
        everything = np.concatenate([known, detector.detect(corners, known)])
        found, rows = descriptors(image, everything)
        if not level:
            tracks = int((rows < len(pixel)).sum())
        where = (everything[rows] + 0.5) / size - 0.5
        where[rows < len(pixel)] = pixel[rows[rows < len(pixel)]]  # to the bit: they have landmarks
        bits.append(found)
        places.append(where)
    return Place(
        keyframe, frame.stamp, np.concatenate(bits), np.concatenate(places), tracks, frame.cameras[0]
    )


class PlaceIndex:
    """Places by keyframe."""

    def __init__(self) -> None:
        self.places: dict[int, Place] = {}
        self._samples: dict[int, np.ndarray] = {}
        """(SAMPLE, 32) of each that has tracks; some more than once where there are fewer."""
        self._holders: dict[int, list[int]] = {}
        """Keyframes by key of their samples."""
        self.oldest = int(np.iinfo(np.int64).max)
        """Stamp of the oldest keyframe that was added [ns]."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def nbytes(self) -> int:
        """Memory of descriptors, pixels, samples and keys."""
        with self._lock:
            held = [array for place in self.places.values() for array in (place.descriptor, place.pixel)]
            keys = sum(56 + 8 * len(keyframes) + 100 for keyframes in self._holders.values())
            return keys + sum(array.nbytes for array in (*held, *self._samples.values()))

    def take_in(self, other: PlaceIndex) -> None:
        """Add the keyframes of another index, which are older."""
        for place in list(other.places.values()):
            self.add(place)

    def add(self, place: Place) -> None:
        """Add a keyframe."""
        with self._lock:
            self.oldest = min(self.oldest, place.stamp)
            self.places[place.keyframe] = replace(
                place, descriptor=place.tracks, pixel=place.pixel[: place.num_tracks]
            )
            if place.num_tracks:
                rows = np.linspace(0, place.num_tracks - 1, SAMPLE).astype(int)
                self._samples[place.keyframe] = place.tracks[rows]
                for key in np.unique(_hashes(place.tracks[rows])).tolist():
                    self._holders.setdefault(key, []).append(place.keyframe)

    def remove(self, keyframe: int) -> None:
        """Forget a keyframe."""
        with self._lock:
            self.places.pop(keyframe, None)
            sample = self._samples.pop(keyframe, None)
            if sample is not None:
                for key in np.unique(_hashes(sample)).tolist():
                    self._holders[key].remove(keyframe)

    def query(self, descriptor: np.ndarray, before: int, most: int = 3) -> list[Place]:
        """Keyframes up to `before` [ns] that most of a view's descriptors speak for, best first."""
        with self._lock:
            old = [sample for sample in self._samples if self.places[sample].stamp <= before]
            if not old or not len(descriptor):
                return []
            wanted = descriptor[:: -(-len(descriptor) // (24 * SAMPLE))]
            old = self._shortlist(wanted, old)
            votes = np.array(
                [int((nearest(wanted, self._samples[number], 1)[0] <= CLOSE).sum()) for number in old]
            )
            order = np.argsort(-votes, kind="stable")[:most]
            return [self.places[old[k]] for k in order if votes[k] >= 4]

    def _shortlist(self, wanted: np.ndarray, old: list[int]) -> list[int]:
        """Those of the keyframes that share most keys with a view's descriptors, in the given order."""
        if len(old) <= SHORTLIST:
            return old
        some = wanted[:: -(-len(wanted) // (8 * SAMPLE))]
        holders = [self._holders.get(key, ()) for key in _hashes(some).ravel().tolist()]
        shared = np.fromiter(chain.from_iterable(holders), np.int64)
        keyframes = np.array(old)
        first = min(old)
        shared = shared[shared >= first] - first
        counts = np.bincount(shared, minlength=max(old) - first + 1)[keyframes - first]
        return [old[k] for k in np.sort(np.argsort(-counts, kind="stable")[:SHORTLIST]).tolist()]


def common(now: Place, old: Place) -> tuple[np.ndarray, np.ndarray]:
    """Rows of both places that show the same corners."""
    pairs = matched(now.descriptor, old.descriptor)
    return pairs[:, 0], pairs[:, 1]
