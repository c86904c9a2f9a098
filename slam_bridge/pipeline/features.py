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

_HALF = 15  # of the patch that gives a corner its orientation, as in ORB


@dataclass(eq=False)
class Tracks:
    """n corners that are being followed in the left image."""

    ids: np.ndarray
    """(n,) int64, given once."""
    pixel: np.ndarray
    """(n, 2) [px] in the present frame."""
    ray: np.ndarray
    """(n, 3) unit, in the left camera's frame."""
    landmark: np.ndarray
    """(n,) id in the map, -1: none yet."""
    age: np.ndarray
    """(n,) frames since detection."""

    @classmethod
    def none(cls) -> Tracks:
        """No tracks."""
        return cls.new(np.zeros(0, np.int64), np.zeros((0, 2)), np.zeros((0, 3)))

    @classmethod
    def new(cls, ids: np.ndarray, pixel: np.ndarray, ray: np.ndarray) -> Tracks:
        """Tracks without landmarks that begin in this frame."""
        return cls(ids, pixel, ray, np.full(len(ids), -1), np.zeros(len(ids), np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def keep(self, mask: np.ndarray) -> Tracks:
        """Some of them."""
        return Tracks(*(getattr(self, field.name)[mask] for field in fields(self)))

    def joined(self, more: Tracks) -> Tracks:
        """These and more."""
        return Tracks(
            *(
                np.concatenate([getattr(self, field.name), getattr(more, field.name)])
                for field in fields(self)
            )
        )


def follow(
    before: np.ndarray, after: np.ndarray, pixel: np.ndarray, guess: np.ndarray, options: PipelineOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Where pixels (n, 2) of one image are in another, from guesses (n, 2): (n, 2), and (n,) bool: found.

    Found: the patch matches, inside the image, and tracked back it ends where it came from.
    """
    if not len(pixel):
        return np.zeros((0, 2)), np.zeros(0, bool)
    cv2 = opencv()
    height, width = after.shape
    with np.errstate(invalid="ignore"):
        inside = np.min((guess >= 0.0) & (guess < [width, height]), axis=1)  # false where it is not finite
    start = np.where(inside[:, None], guess, pixel)
    side = (options.window, options.window)
    rules: dict[str, Any] = {
        "winSize": side,
        "criteria": (cv2.TERM_CRITERIA_COUNT + cv2.TERM_CRITERIA_EPS, 30, 0.01),
        "flags": cv2.OPTFLOW_USE_INITIAL_FLOW,
        "minEigThreshold": 1e-4,
    }
    source = np.ascontiguousarray(pixel[:, None], np.float32)
    target = np.ascontiguousarray(start[:, None], np.float32)
    there, ok, _ = cv2.calcOpticalFlowPyrLK(before, after, source, target, maxLevel=options.levels, **rules)
    back, ok_back, _ = cv2.calcOpticalFlowPyrLK(after, before, there, source.copy(), maxLevel=1, **rules)
    found = (ok[:, 0] > 0) & (ok_back[:, 0] > 0)
    found &= np.linalg.norm((back - source)[:, 0], axis=1) <= options.back_tolerance
    there = there[:, 0].astype(float)
    found &= (there >= 1.0).all(axis=1) & (there < [width - 1.0, height - 1.0]).all(axis=1)
    return there, found


class Detector:
    """New corners where no track is: the best of each free cell of a grid."""

    def __init__(self, shape: tuple[int, int], usable: np.ndarray, options: PipelineOptions):
        """shape: (height, width); usable (height, width) bool: pixels that may have corners."""
        self._options = options
        self._usable = usable
        self.cell = max(8, int(np.sqrt(shape[0] * shape[1] / options.max_features)))
        self.grid = shape[0] // self.cell, shape[1] // self.cell

    def detect(self, image: np.ndarray, occupied: np.ndarray) -> np.ndarray:
        """Pixels (m, 2) of new corners; occupied (n, 2): tracks in the image."""
        cv2 = opencv()
        size, (rows, columns) = self.cell, self.grid
        strength = cv2.cornerMinEigenVal(image, 5)
        peaks = strength >= cv2.dilate(strength, np.ones((7, 7), np.uint8))
        limit = self._options.quality * float(strength[self._usable].max(initial=0.0))
        strength = np.where(peaks & self._usable & (strength > limit), strength, 0.0)
        cells = strength[: rows * size, : columns * size].reshape(rows, size, columns, size)
        cells = cells.transpose(0, 2, 1, 3).reshape(rows * columns, size * size)
        best = cells.argmax(axis=1)
        free = cells[np.arange(len(cells)), best] > 0.0
        taken = (occupied // size).astype(int)
        taken = taken[(taken < [columns, rows]).all(axis=1)]
        free[taken[:, 1] * columns + taken[:, 0]] = False
        number = np.flatnonzero(free)
        x = (number % columns) * size + best[number] % size
        y = (number // columns) * size + best[number] // size
        found = np.stack([x, y], axis=1).astype(float)
        if len(occupied) and len(found):  # neighbours across the border of a cell
            near = ((found[:, None] - occupied[None]) ** 2).sum(axis=2).min(axis=1) < (0.5 * size) ** 2
            found = found[~near]
        return found


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
    offset = np.arange(-_HALF, _HALF + 1)
    disc = (offset[:, None] ** 2 + offset[None] ** 2) <= _HALF**2
    patches = image[
        row[rows, None, None] + offset[None, :, None], column[rows, None, None] + offset[None, None, :]
    ]
    weights = np.where(disc, patches, 0).astype(np.float32)
    angle = np.degrees(
        np.arctan2((weights.sum(axis=2) @ offset), (weights.sum(axis=1) @ offset))
    )  # of the centroid, x to the right, y down
    keypoints = [
        cv2.KeyPoint(float(x), float(y), 31.0, float(a % 360.0), 1.0, 0, k)
        for k, ((x, y), a) in enumerate(zip(pixel[rows], angle, strict=True))
    ]
    kept, found = cv2.ORB_create(len(keypoints)).compute(image, keypoints)
    if found is None:
        return np.zeros((0, 32), np.uint8), rows[:0]
    return found, rows[[keypoint.class_id for keypoint in kept]]


def matched(first: np.ndarray, second: np.ndarray, farthest: int = 64, ratio: float = 0.8) -> np.ndarray:
    """(k, 2) rows of descriptors that are each other's nearest, well before the second nearest."""
    if len(first) < 2 or len(second) < 2:
        return np.zeros((0, 2), int)
    distance, number = nearest(first, second, 2)
    good = (distance[:, 0] <= farthest) & (distance[:, 0] < ratio * distance[:, 1])
    good &= nearest(second, first, 1)[1][number[:, 0], 0] == np.arange(len(first))
    rows = np.flatnonzero(good)
    return np.stack([rows, number[rows, 0]], axis=1)


def nearest(first: np.ndarray, second: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Bits (n, count) that differ to the nearest of m descriptors, ascending, and (n, count) their rows.

    first (n, 32), second (m, 32) uint8, m >= count.
    """
    cv2 = opencv()
    bits, rows = cv2.batchDistance(first, second, cv2.CV_32S, normType=cv2.NORM_HAMMING, K=count)
    return bits, rows
