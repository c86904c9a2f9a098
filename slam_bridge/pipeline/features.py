"""Corners of an image and where they went: grid-balanced detection, KLT there and back, stereo matches, ORB.

A track is a corner followed from frame to frame; `Tracks` holds them as arrays. OpenCV (4 or 5) does what
touches pixels, numpy the rest: no loop over features.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.readers.sequence import opencv

_NEAR_LEVELS, _MOSTLY = 2, 0.7
"""Levels of the image pyramid where guesses are good, and the fraction of patches found that shows it; after
VINS-Fusion, which takes 1 with a prediction."""
_BACK = 0.1
"""[px] to which the way back is found: what it is compared with is larger."""
_FARTHEST = 64  # bits between descriptors of one landmark
_HALF = 15  # of the patch that gives a corner its orientation, as in ORB


def _moments() -> np.ndarray:
    """(31 * 31, 2) float32 weights of a patch's first moments in x and y over a disc."""
    offset = np.arange(-_HALF, _HALF + 1)
    inside = (offset[:, None] ** 2 + offset**2) <= _HALF**2
    return np.stack([offset * inside, offset[:, None] * inside], axis=-1).reshape(-1, 2).astype(np.float32)


_MOMENTS = _moments()


@dataclass(eq=False)
class Tracks:
    """n corners that are being followed in the images of one camera."""

    ids: np.ndarray
    """(n,) int64, given once."""
    pixel: np.ndarray
    """(n, 2) [px] in the present frame."""
    ray: np.ndarray
    """(n, 3) unit, in the camera's frame."""
    landmark: np.ndarray
    """(n,) id in the map, -1: none yet."""
    age: np.ndarray
    """(n,) frames since detection."""
    camera: int = 0
    """Number in the rig."""

    @classmethod
    def none(cls) -> Tracks:
        """No tracks."""
        return cls.new(np.zeros(0, np.int64), np.zeros((0, 2)), np.zeros((0, 3)))

    @classmethod
    def new(cls, ids: np.ndarray, pixel: np.ndarray, ray: np.ndarray, camera: int = 0) -> Tracks:
        """Tracks without landmarks that begin in this frame."""
        return cls(ids, pixel, ray, np.full(len(ids), -1), np.zeros(len(ids), np.int64), camera)

    def __len__(self) -> int:
        return len(self.ids)

    def keep(self, mask: np.ndarray) -> Tracks:
        """Some of them."""
        return Tracks(*[getattr(self, name)[mask] for name in _ARRAYS], camera=self.camera)

    def joined(self, more: Tracks) -> Tracks:
        """These and more of the same camera."""
        pairs = ((getattr(self, name), getattr(more, name)) for name in _ARRAYS)
        return Tracks(*[np.concatenate(pair) for pair in pairs], camera=self.camera)


_ARRAYS = [field.name for field in fields(Tracks) if field.name != "camera"]


@dataclass(frozen=True, eq=False)
class Corners:
    """Where an image has corners: peaks of the smaller eigenvalue of Shi and Tomasi's matrix."""

    pixel: np.ndarray
    """(n, 2) int64: column, row."""
    strength: np.ndarray
    """(n,) float32."""

    @classmethod
    def of(cls, image: np.ndarray) -> Corners:
        """All peaks among their 7 x 7 neighbours."""
        cv2 = opencv()
        strength = cv2.cornerMinEigenVal(image, 5)
        is_peak = cv2.compare(strength, cv2.dilate(strength, np.ones((7, 7), np.uint8)), cv2.CMP_GE)
        row, column = np.divmod(np.flatnonzero(is_peak), image.shape[1])
        return cls(np.stack([column, row], axis=1), strength[row, column])


def follow(
    before: np.ndarray,
    after: np.ndarray,
    pixel: np.ndarray,
    guess: np.ndarray,
    options: PipelineOptions,
    is_near: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Where pixels (n, 2) of one image are in another, from guesses (n, 2): (n, 2), and (n,) bool: found.

    Found: the patch matches, inside the image, and tracked back it ends where it came from. is_near: guesses
    are good to a few pixels; the coarsest levels of the pyramid are then searched only for what is not found,
    where that is much.
    """
    if not is_near or options.levels <= _NEAR_LEVELS:
        return _followed(before, after, pixel, guess, options, options.levels)
    there, found = _followed(before, after, pixel, guess, options, _NEAR_LEVELS)
    if found.sum() < _MOSTLY * len(found):
        lost = ~found
        there[lost], found[lost] = _followed(before, after, pixel[lost], guess[lost], options, options.levels)
    return there, found


def _followed(
    before: np.ndarray,
    after: np.ndarray,
    pixel: np.ndarray,
    guess: np.ndarray,
    options: PipelineOptions,
    levels: int,
) -> tuple[np.ndarray, np.ndarray]:
    if not len(pixel):
        return np.zeros((0, 2)), np.zeros(0, bool)
    cv2 = opencv()
    height, width = after.shape
    with np.errstate(invalid="ignore"):
        inside = np.min((guess >= 0.0) & (guess < [width, height]), axis=1)  # false where it is not finite
    start = np.where(inside[:, None], guess, pixel)
    if before.shape != after.shape:  # cameras of different size
        before, after = _of_one_size(before, after)
    side = (options.window, options.window)
    rules: dict[str, Any] = {
        "winSize": side,
        "flags": cv2.OPTFLOW_USE_INITIAL_FLOW,
        "minEigThreshold": 1e-4,
    }
    until = cv2.TERM_CRITERIA_COUNT + cv2.TERM_CRITERIA_EPS
    source = np.ascontiguousarray(pixel[:, None], np.float32)
    target = np.ascontiguousarray(start[:, None], np.float32)
    there, ok, _ = cv2.calcOpticalFlowPyrLK(
        before, after, source, target, maxLevel=levels, criteria=(until, 30, 0.01), **rules
    )
    back, ok_back, _ = cv2.calcOpticalFlowPyrLK(
        after, before, there, source.copy(), maxLevel=1, criteria=(until, 30, _BACK), **rules
    )
    found = (ok[:, 0] > 0) & (ok_back[:, 0] > 0)
    found &= np.linalg.norm((back - source)[:, 0], axis=1) <= options.back_tolerance
    there = there[:, 0].astype(float)
    found &= (there >= 1.0).all(axis=1) & (there < [width - 1.0, height - 1.0]).all(axis=1)
    return there, found


def _of_one_size(*images: np.ndarray) -> list[np.ndarray]:
    """Images (height, width) with their last row and column repeated up to the largest of each."""
    size = np.max([image.shape for image in images], axis=0)
    return [np.pad(image, [(0, more) for more in size - image.shape], mode="edge") for image in images]


class Detector:
    """New corners where no track is: the best of each free cell of a grid."""

    def __init__(self, shape: tuple[int, int], usable: np.ndarray, options: PipelineOptions):
        """shape: (height, width); usable (height, width) bool: pixels that may have corners."""
        self._options = options
        self._usable = usable
        self.cell = max(8, int(np.sqrt(shape[0] * shape[1] / options.max_features)))
        self.grid = shape[0] // self.cell, shape[1] // self.cell

    def detect(self, corners: Corners, occupied: np.ndarray) -> np.ndarray:
        """Pixels (m, 2) of new corners among those of an image; occupied (n, 2): tracks in it."""
        size, (rows, columns) = self.cell, self.grid
        usable = self._usable[corners.pixel[:, 1], corners.pixel[:, 0]]
        pixel, strength = corners.pixel[usable], corners.strength[usable]
        good = strength > self._options.quality * strength.max(initial=0.0)
        cells = pixel // size
        good &= (cells < [columns, rows]).all(axis=1)
        is_free = np.ones((rows, columns), bool)
        taken = (occupied // size).astype(int)
        taken = taken[(taken < [columns, rows]).all(axis=1)]
        is_free[taken[:, 1], taken[:, 0]] = False
        good &= is_free[np.minimum(cells[:, 1], rows - 1), np.minimum(cells[:, 0], columns - 1)]
        pixel, number = pixel[good], cells[good] @ [1, columns]
        order = np.lexsort((-strength[good], number))
        first = np.ones(len(order), bool)
        first[1:] = number[order[1:]] != number[order[:-1]]
        found = pixel[order[first]].astype(float)
        if len(occupied) and len(found):  # neighbours across the border of a cell
            near = ((found[:, None] - occupied[None]) ** 2).sum(axis=2).min(axis=1) < (0.5 * size) ** 2
            found = found[~near]
        return found


def resized(image: np.ndarray, size: float) -> np.ndarray:
    """An image `size` times as large: pixel (u, v) is at ((u, v) + 1/2) size - 1/2."""
    cv2 = opencv()
    way = cv2.INTER_AREA if size < 1.0 else cv2.INTER_LINEAR
    return cv2.resize(image, None, fx=size, fy=size, interpolation=way)


def descriptors(image: np.ndarray, pixel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ORB's descriptors (m, 32) uint8 of pixels (n, 2), and (m,) rows of those far enough from the border.

    The orientation is that of the intensity centroid (Rublee et al., ORB, ICCV 2011, section 3.2).
    """
    cv2 = opencv()
    height, width = image.shape
    column, row = np.rint(pixel).astype(int).T if len(pixel) else np.zeros((2, 0), int)
    margin = 32
    rows = np.flatnonzero(
        (column >= margin) & (row >= margin) & (column < width - margin) & (row < height - margin)
    )
    if not len(rows):
        return np.zeros((0, 32), np.uint8), rows
    patches = np.lib.stride_tricks.sliding_window_view(image, (2 * _HALF + 1, 2 * _HALF + 1))
    disc = patches[row[rows] - _HALF, column[rows] - _HALF].reshape(len(rows), -1).astype(np.float32)
    moment = (disc[:, None] @ _MOMENTS)[:, 0]  # a product per patch keeps OpenBLAS to this thread
    angle = np.degrees(np.arctan2(moment[:, 1], moment[:, 0]))  # of the centroid, x to the right, y down
    keypoints = [
        cv2.KeyPoint(x, y, 31.0, turn, 1.0, 0, k)
        for k, ((x, y), turn) in enumerate(zip(pixel[rows].tolist(), (angle % 360.0).tolist(), strict=True))
    ]
    kept, found = cv2.ORB_create(len(keypoints)).compute(image, keypoints)
    if found is None:
        return np.zeros((0, 32), np.uint8), rows[:0]
    return found, rows[[keypoint.class_id for keypoint in kept]]


def matched(first: np.ndarray, second: np.ndarray, ratio: float = 0.8) -> np.ndarray:
    """(k, 2) rows of descriptors that are each other's nearest, well before the second nearest."""
    if len(first) < 2 or len(second) < 2:
        return np.zeros((0, 2), int)
    distance, number = nearest(first, second, 2)
    good = (distance[:, 0] <= _FARTHEST) & (distance[:, 0] < ratio * distance[:, 1])
    good &= nearest(second, first, 1)[1][number[:, 0], 0] == np.arange(len(first))
    rows = np.flatnonzero(good)
    return np.stack([rows, number[rows, 0]], axis=1)


def matched_near(first: np.ndarray, second: np.ndarray, near: np.ndarray) -> np.ndarray:
    """(k, 2) rows of descriptors (n, 32), (m, 32) that are each other's nearest among those near (n, m)."""
    bits = np.full((len(first), len(second) + 1), 256)  # a column more: none
    rows, columns = np.nonzero(near)
    differing = np.bitwise_xor(first[rows], second[columns], dtype=np.uint8)
    bits[rows, columns] = np.unpackbits(differing, axis=1).sum(axis=1)
    number = bits.argmin(axis=1)
    rows = np.arange(len(first))
    good = (bits[rows, number] <= _FARTHEST) & (bits.argmin(axis=0)[number] == rows)
    return np.stack([rows[good], number[good]], axis=1)


def nearest(first: np.ndarray, second: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Bits (n, count) that differ to the nearest of m descriptors, ascending, and (n, count) their rows.

    first (n, 32), second (m, 32) uint8, m >= count.
    """
    cv2 = opencv()
    bits, rows = cv2.batchDistance(first, second, cv2.CV_32S, normType=cv2.NORM_HAMMING, K=count)
    return bits, rows
