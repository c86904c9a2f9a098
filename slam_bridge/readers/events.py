"""What a source of images and samples gives: events, and images of several cameras brought together.

A source is anything with `calibration`, `is_live` and `events`, which yields `ImuEvent` and `ImageEvent` in
about the order of time. What it guessed is in `notes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from slam_bridge.readers.calibration import Calibration
from slam_bridge.readers.euroc import StateTable

if TYPE_CHECKING:
    from slam_bridge.pipeline.options import PipelineOptions


@dataclass(frozen=True, eq=False)
class ImuEvent:
    """n samples."""

    stamps: np.ndarray
    """(n,) int64 [ns]."""
    gyro: np.ndarray
    """(n, 3) [rad/s]."""
    acc: np.ndarray
    """(n, 3) [m/s^2]."""


@dataclass(frozen=True, eq=False)
class ImageEvent:
    """Images of one moment, or nearly so."""

    stamp: int
    """[ns] of the first one, in the camera's time."""
    images: tuple[np.ndarray | None, ...]
    depth: np.ndarray | None = None
    stamps: tuple[int, ...] | None = None
    """[ns] of each image; None: all of one moment."""


class Source(Protocol):
    """What a `Slam` can be fed with."""

    name: str
    calibration: Calibration
    is_live: bool
    """Frames come whether or not anybody is ready for them."""
    notes: tuple[str, ...]
    """What was guessed."""
    truth: StateTable | None

    def events(self, options: PipelineOptions) -> Iterator[ImuEvent | ImageEvent]:
        """Samples and images, about in the order of time; what the mode does not use may be left out."""
        ...


class Pairing:
    """Brings the images of several cameras together that are not taken, or not stamped, at the same time.

    To each image of the first camera belongs the nearest one of each other camera within half the time
    between two of the first. It waits for it until the others have later ones, or `patience` more of the
    first have come: a camera that stops holds nobody up.
    """

    def __init__(self, offsets: tuple[int, ...], patience: int = 2):
        """offsets [ns]: to be added to each camera's stamps (`Camera.time_offset`)."""
        self._offsets, self._patience = offsets, patience
        self._waiting: list[list[tuple[int, np.ndarray]]] = [[] for _ in offsets]
        self._interval: int | None = None
        self._last: int | None = None

    def add(self, camera: int, stamp: int, image: np.ndarray) -> Iterator[ImageEvent]:
        """Take an image; the frames that are complete now."""
        self._waiting[camera].append((stamp + self._offsets[camera], image))
        self._waiting[camera].sort(key=lambda item: item[0])
        if camera == 0 and self._last is not None and stamp > self._last:
            step = stamp - self._last
            self._interval = step if self._interval is None else min(self._interval, step)
        self._last = stamp if camera == 0 else self._last
        while self._waiting[0] and self._is_complete():
            yield self._first()

    def rest(self) -> Iterator[ImageEvent]:
        """The frames that still wait."""
        while self._waiting[0]:
            yield self._first()

    def _is_complete(self) -> bool:
        if len(self._waiting[0]) > self._patience:
            return True
        start = self._waiting[0][0][0]
        others = self._waiting[1:]
        exact = all(any(stamp == start for stamp, _ in other) for other in others)
        return exact or (
            self._interval is not None and all(other and other[-1][0] >= start for other in others)
        )

    def _first(self) -> ImageEvent:
        start, image = self._waiting[0].pop(0)
        images: list[np.ndarray | None] = [image]
        stamps = [start - self._offsets[0]]
        farthest = self._interval // 2 if self._interval is not None else 0
        for camera, other in enumerate(self._waiting[1:], 1):
            near = min(other, key=lambda item: abs(item[0] - start), default=None)
            chosen = None if near is None or abs(near[0] - start) > farthest else near
            images.append(None if chosen is None else chosen[1])
            stamps.append((start if chosen is None else chosen[0]) - self._offsets[camera])
            limit = start if chosen is None else chosen[0] + 1
            other[:] = [item for item in other if item[0] >= limit]
        return ImageEvent(stamps[0], tuple(images), None, tuple(stamps))
