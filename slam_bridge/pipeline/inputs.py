"""What comes in while a SLAM runs: IMU samples and frames, in whatever order sensors deliver them.

    ImuBuffer    samples sorted by stamp; what no keyframe needs any more is forgotten
    Frame        images of one moment, checked and as tracking wants them: grey, 8 bits
    Complaints   what was left out and why, each kind once with its count

A frame of a mode with an IMU waits until a sample at or after its stamp is there, at most `imu_wait` of the
frames' own time: results then depend on stamps alone, not on when what arrived.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from slam_bridge.cameras import Rig
from slam_bridge.imu import ImuNoise, ImuSamples
from slam_bridge.pipeline.features import Corners
from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.readers.sequence import SequenceError, opencv

_PAUSE = 100_000_000
"""[ns] between IMU samples at most: a longer stretch is not integrated (`ImuSamples.between`)."""
_LONGEST = 30_000_000_000
"""[ns] of samples that are kept at most: a longer stretch without keyframes is not integrated."""


class Complaints:
    """Faults of the input, by kind: how often, and when first."""

    def __init__(self) -> None:
        self._found: dict[str, list[int]] = {}
        self._lock = threading.Lock()

    def add(self, kind: str, stamp: int) -> None:
        """One more of a kind, a sentence's middle: "were left out: ..."."""
        with self._lock:
            count = self._found.setdefault(kind, [0, stamp])
            count[0] += 1

    def sentences(self) -> tuple[str, ...]:
        """One per kind."""
        with self._lock:
            found = [(kind, *counted) for kind, counted in self._found.items()]
        return tuple(f"{count} {kind}, the first at {1e-9 * stamp:.3f} s" for kind, count, stamp in found)


class ImuBuffer:
    """Samples as they come, from some stamp on."""

    def __init__(self, complaints: Complaints):
        self._complaints = complaints
        self._held = ImuSamples(np.zeros(0, np.int64), np.zeros((0, 3)), np.zeros((0, 3)))
        self._new: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._lock = threading.Lock()
        self._newest = self._oldest = np.iinfo(np.int64).min

    def __len__(self) -> int:
        with self._lock:
            return len(self._samples())

    def add(self, stamps: Any, gyro: Any, acc: Any) -> None:
        """Add samples: stamps (n,) or one int64 [ns], gyro (n, 3) [rad/s], acc (n, 3) [m/s^2]."""
        times = np.atleast_1d(np.asarray(stamps))
        if times.dtype.kind not in "iu" or times.ndim != 1:
            raise SequenceError(
                f"add_imu: stamps have type {times.dtype} and shape {times.shape}, expected int64 "
                f"nanoseconds."
            )
        values = [np.array(value, float) for value in (gyro, acc)]
        values = [value[None] if len(times) == 1 and value.ndim == 1 else value for value in values]
        for name, value in zip(("gyro", "acc"), values, strict=True):
            if value.shape != (len(times), 3):
                raise SequenceError(
                    f"add_imu: {len(times)} stamps, and {name} of shape {value.shape}, expected "
                    f"({len(times)}, 3): a row per stamp."
                )
        if not len(times):
            return
        times = times.astype(np.int64)
        fine = np.isfinite(values[0]).all(axis=1) & np.isfinite(values[1]).all(axis=1)
        for stamp in times[~fine].tolist():
            self._complaints.add("IMU samples with NaN or infinity were left out", stamp)
        with self._lock:
            forgotten = times < self._oldest
            for stamp in times[forgotten & fine].tolist():
                self._complaints.add("IMU samples came too late to be used", stamp)
            fine &= ~forgotten
            if fine.any():
                self._note_pauses(times[fine])
                self._new.append((times[fine], values[0][fine], values[1][fine]))
                self._newest = max(self._newest, int(times[fine].max()))

    def _note_pauses(self, times: np.ndarray) -> None:
        """Say where samples are missing before new ones or between them (n,) [ns]; the lock is held."""
        before = times[:1] if self._newest == np.iinfo(np.int64).min else [self._newest]
        moments = np.concatenate([before, times])
        for stamp in moments[:-1][np.diff(moments) > _PAUSE].tolist():
            self._complaints.add("pauses between IMU samples are longer than 0.1 s", stamp)

    def covers(self, stamp: int) -> bool:
        """A sample at or after a stamp [ns] is there."""
        return self._newest >= stamp

    def between_or_none(self, start: int, end: int) -> ImuSamples | None:
        """`ImuSamples.between_or_none` of what is there."""
        with self._lock:
            samples = self._samples()
        return samples.between_or_none(start, end)

    def forget_before(self, stamp: int) -> None:
        """Samples before a stamp [ns] are not needed any more, but for the last one of them."""
        with self._lock:
            held = self._samples()
            stamp = max(stamp, self._newest - _LONGEST)
            first = int(np.searchsorted(held.stamps, stamp, side="right")) - 1
            if first > 256 or (first > 0 and first > len(held) // 2):
                parts = (held.stamps[first:], held.gyro[first:], held.acc[first:])
                self._held = ImuSamples(*(part.copy() for part in parts))
                self._oldest = int(self._held.stamps[0])

    def _samples(self) -> ImuSamples:
        """All that are held, sorted; the lock is held."""
        if not self._new:
            return self._held
        parts = [(self._held.stamps, self._held.gyro, self._held.acc), *self._new]
        stamps, gyro, acc = (np.concatenate(column) for column in zip(*parts, strict=True))
        self._new = []
        if (np.diff(stamps) <= 0).any():
            order = np.argsort(stamps, kind="stable")
            fresh = np.concatenate([[True], np.diff(stamps[order]) > 0])
            for stamp in stamps[order][~fresh].tolist():
                self._complaints.add("IMU samples with a stamp that was there already were left out", stamp)
            order = order[fresh]
            stamps, gyro, acc = stamps[order], gyro[order], acc[order]
        self._held = ImuSamples(stamps, gyro, acc)
        return self._held


@dataclass(frozen=True, eq=False)
class Sensors:
    """What delivers the input."""

    rig: Rig
    noise: ImuNoise | None
    gravity: float
    """Magnitude [m/s^2]."""
    imu: ImuBuffer


@dataclass(frozen=True, eq=False)
class Frame:
    """Images of one moment."""

    stamp: int
    """[ns] of the first image, in the IMU's time."""
    images: list[np.ndarray]
    """Grey, uint8, one per camera that has one."""
    cameras: tuple[int, ...]
    """Their numbers in the rig, ascending: corners are tracked in the first of them."""
    lags: tuple[int, ...]
    """[ns] by which each image is later than the first one."""
    depth: np.ndarray | None = None
    """(height, width) float32 [m] in the rig's first camera, NaN or 0: not measured."""
    arrived: float = 0.0
    """When it was handed in (`time.perf_counter`)."""

    @property
    def shows_metres(self) -> bool:
        """It has images of two cameras, or depth."""
        return len(self.cameras) > 1 or self.depth is not None

    @cached_property
    def corners(self) -> Corners:
        """Of the first image."""
        return Corners.of(self.images[0])


class FrameMaker:
    """Makes frames of images as they come; what is no image of its camera is left out."""

    def __init__(self, rig: Rig, options: PipelineOptions, complaints: Complaints):
        self._rig, self._options, self._complaints = rig, options, complaints
        self._sizes: dict[int, tuple[int, ...]] = {}

    def frame(
        self,
        stamp: Any,
        images: tuple[Any, ...],
        depth: Any,
        stamps: Any,
        arrived: float,
    ) -> Frame | None:
        """A frame; None where no camera has an image that it could use.

        Raises `SequenceError` for what is no array of pixels: that is a mistake of the program, not the data.
        """
        if not images:
            raise SequenceError(f"add_images: no images, the rig has {len(self._rig)} cameras.")
        if depth is not None and not self._options.has_depth:
            raise SequenceError(
                f"add_images: a depth image, of which mode {self._options.mode!r} makes no use. Choose mode "
                f"'rgbd', or 'rgbd-inertial'."
            )
        offsets = [round(1e9 * camera.time_offset) for camera in self._rig]
        moments = [_nanoseconds(one) for one in ([stamp] * len(images) if stamps is None else stamps)]
        if len(moments) != len(images):
            raise SequenceError(f"add_images: {len(moments)} stamps for {len(images)} images.")
        kept, cameras, taken = [], [], []
        for camera, image in enumerate(images):
            moment = moments[camera] + offsets[camera]
            pixels = None if image is None else self._grey(image, camera, moment)
            if pixels is not None:
                kept.append(pixels)
                cameras.append(camera)
                taken.append(moment)
            elif image is None:
                self._complaints.add(f"frames have no image of camera {camera}", moment)
        if not kept:
            return None
        start, lags = taken[0], tuple(moment - taken[0] for moment in taken)
        return Frame(start, kept, tuple(cameras), lags, self._metres(depth, kept[0], start), arrived)

    def _grey(self, image: Any, camera: int, stamp: int) -> np.ndarray | None:
        """An image as (height, width) uint8; None where it has another size than its camera."""
        cv2 = opencv()
        pixels = np.asarray(image)
        if pixels.ndim == 3 and pixels.shape[2] in (1, 3, 4):
            codes = {3: cv2.COLOR_BGR2GRAY, 4: cv2.COLOR_BGRA2GRAY}
            count = pixels.shape[2]
            pixels = pixels[:, :, 0] if count == 1 else cv2.cvtColor(pixels, codes[count])
        if pixels.ndim != 2 or pixels.dtype not in (np.uint8, np.uint16):
            raise SequenceError(
                f"add_images: the image of camera {camera} has shape {np.shape(image)} and type "
                f"{pixels.dtype}, expected (height, width) or (height, width, 3) of uint8 or uint16."
            )
        if pixels.dtype == np.uint16:
            pixels = (pixels >> 8).astype(np.uint8)
        given = self._rig[camera].resolution
        wanted = self._sizes.setdefault(camera, pixels.shape if given is None else given[::-1])
        if pixels.shape != tuple(wanted):
            self._complaints.add(
                f"images of camera {camera} were left out: {pixels.shape[1]} x {pixels.shape[0]} pixels, "
                f"expected {wanted[1]} x {wanted[0]}",
                stamp,
            )
            return None
        pixels = np.ascontiguousarray(pixels)
        return cv2.createCLAHE(3.0, (8, 8)).apply(pixels) if self._options.equalize else pixels

    def _metres(self, depth: Any, image: np.ndarray, stamp: int) -> np.ndarray | None:
        """A depth image in metres."""
        if depth is None:
            if self._options.has_depth:
                self._complaints.add("frames have no depth image", stamp)
            return None
        values = np.asarray(depth)
        if values.shape != image.shape:
            self._complaints.add(
                f"depth images were left out: of shape {values.shape}, the image has {image.shape}", stamp
            )
            return None
        scaled = values.astype(np.float32)
        return scaled * np.float32(self._options.depth_scale) if values.dtype.kind in "iu" else scaled


def _nanoseconds(stamp: Any) -> int:
    """A stamp; `SequenceError` where it is no whole number."""
    if isinstance(stamp, (int, np.integer)):
        return int(stamp)
    raise SequenceError(
        f"add_images: the stamp is {stamp!r}, expected whole nanoseconds: round(1e9 * seconds)."
    )
