"""What a source of images and samples gives: events, and images of several cameras brought together.

A source is anything with `calibration`, `is_live` and `events`, which yields `ImuEvent` and `ImageEvent` in
about the order of time. What it guessed is in `notes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from slam_bridge.readers.calibration import Calibration
from slam_bridge.readers.euroc import StateTable
from slam_bridge.readers.sequence import SequenceError

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
    faults: tuple[str, ...] = ()
    """What was left out before this frame or in it: the middle of a sentence, see `Complaints`."""


FIRST = 10
"""Images that may be left out before there is one: all of them are, or the calibration is another's."""


class LeftOut:
    """Images that cannot be read are left out and said."""

    def __init__(self) -> None:
        self._counts: dict[int, int | None] = {}
        """By camera, how many were left out before the first that was read; None: there is one."""
        self._faults: list[str] = []

    def read(self, camera: int, load: Callable[[], np.ndarray | None]) -> np.ndarray | None:
        """An image of a camera, None where it cannot be read.

        Raises the `SequenceError` of an image where the first `FIRST` of a camera cannot be read.
        """
        try:
            image = load()
        except SequenceError as error:
            self._faults.append(f"images of camera {camera} were left out: {_reason(error)}")
            count = self._counts.setdefault(camera, 0)
            if count is not None:
                self._counts[camera] = count + 1
                if count + 1 >= FIRST:
                    raise
            return None
        if image is not None:
            self._counts[camera] = None
        return image

    def faults(self) -> tuple[str, ...]:
        """What was left out since this was asked last."""
        found, self._faults = tuple(self._faults), []
        return found


def _reason(error: SequenceError) -> str:
    """Its sentence without the file's name and the full stop."""
    return str(error.args[0]).split(": ", 1)[-1].rstrip(".")


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


_PATIENCE, _STOPPED = 2, 10
"""Images of another camera without one of the first, after which that one has stopped."""


class Pairing:
    """Brings the images of several cameras together that are not taken, or not stamped, at the same time.

    To each image of the first camera belongs the nearest one of each other camera within half the time
    between two of the first. It waits for it until the others have later ones, or `_PATIENCE` more of the
    first have come: a camera that stops holds nobody up. Where the first one gives none while another gives
    `_STOPPED`, that one takes its part.
    """

    def __init__(self, offsets: tuple[int, ...], depth: bool = False):
        """offsets [ns]: to be added to each camera's stamps (`Camera.time_offset`). depth: the last one's."""
        self._offsets, self._stopped = offsets, _STOPPED
        self._num_leading = len(offsets) - depth
        self._waiting: list[list[tuple[int, np.ndarray]]] = [[] for _ in offsets]
        self._intervals: list[int | None] = [None] * len(offsets)
        self._last: list[int | None] = [None] * len(offsets)

    def add(self, camera: int, stamp: int, image: np.ndarray) -> Iterator[ImageEvent]:
        """Take an image; the frames that are complete now."""
        self._waiting[camera].append((stamp + self._offsets[camera], image))
        self._waiting[camera].sort(key=lambda item: item[0])
        last, least = self._last[camera], self._intervals[camera]
        if last is not None and stamp > last:
            self._intervals[camera] = stamp - last if least is None else min(least, stamp - last)
        self._last[camera] = stamp
        while self._is_complete():
            yield self._next()

    def rest(self) -> Iterator[ImageEvent]:
        """The frames that still wait."""
        self._stopped = 1
        while self._waiting[self._lead()]:
            yield self._next()

    def _lead(self) -> int:
        """The camera to whose images others are found: the first one, unless that has none at the time."""
        first, interval = self._waiting[0], self._intervals[0]
        for camera, waiting in enumerate(self._waiting[: self._num_leading]):
            if first and waiting and interval is not None:
                is_alone = first[0][0] - waiting[0][0] > 0.75 * interval
            else:
                is_alone = not first and len(waiting) >= self._stopped
            if is_alone:
                return camera
        return 0

    def _is_complete(self) -> bool:
        lead = self._lead()
        if len(self._waiting[lead]) > _PATIENCE:
            return True
        if not self._waiting[lead]:
            return False
        start = self._waiting[lead][0][0]
        others = [waiting for camera, waiting in enumerate(self._waiting) if camera != lead]
        exact = all(any(stamp == start for stamp, _ in other) for other in others)
        return exact or (
            self._intervals[lead] is not None and all(other and other[-1][0] >= start for other in others)
        )

    def _next(self) -> ImageEvent:
        lead = self._lead()
        start, interval = self._waiting[lead][0][0], self._intervals[lead]
        farthest = interval // 2 if interval is not None else 0
        images: list[np.ndarray | None] = []
        stamps = []
        for camera, waiting in enumerate(self._waiting):
            near = min(waiting, key=lambda item: abs(item[0] - start), default=None)
            chosen = None if near is None or abs(near[0] - start) > farthest else near
            images.append(None if chosen is None else chosen[1])
            stamps.append((start if chosen is None else chosen[0]) - self._offsets[camera])
            limit = start if chosen is None else chosen[0] + 1
            waiting[:] = [item for item in waiting if item[0] >= limit]
        return ImageEvent(stamps[0], tuple(images), None, tuple(stamps))
