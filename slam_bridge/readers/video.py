"""Video files with an IMU's table beside them, and webcams, as sources."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slam_bridge.imu import ImuSamples
from slam_bridge.readers.calibration import Calibration
from slam_bridge.readers.euroc import StateTable, read_samples
from slam_bridge.readers.events import ImageEvent, ImuEvent
from slam_bridge.readers.folders import samples_until
from slam_bridge.readers.sequence import SequenceError, opencv

if TYPE_CHECKING:
    from slam_bridge.pipeline.options import PipelineOptions


class VideoSource:
    """Frames of one camera from a file that OpenCV reads; the IMU from EuRoC's data.csv."""

    is_live = False
    truth: StateTable | None = None

    def __init__(
        self, path: str | Path, calibration: Calibration, imu: str | Path | None = None, start: int = 0
    ):
        """start [ns]: of the first frame, in the time of the IMU's stamps."""
        self.name, self.calibration = Path(path).name, calibration
        self._path, self._start = Path(path), start
        self._imu: ImuSamples | None = None
        self.notes: tuple[str, ...] = ()
        if imu is not None:
            self._imu, self.notes = read_samples(imu)
        if self._imu is not None and start == 0 and len(self._imu) and self._imu.stamps[0] > 0:
            self._start = int(self._imu.stamps[0])
            self.notes += (f"the video begins with the IMU's first sample, at {self._start} ns",)

    def events(self, options: PipelineOptions) -> Iterator[ImuEvent | ImageEvent]:
        """Samples up to and past each frame, then the frame."""
        if options.is_stereo or options.has_depth:
            raise SequenceError(f"{self.name}: a video is of one camera; choose mode mono or mono-inertial.")
        if options.is_inertial and self._imu is None:
            raise SequenceError(f"{self.name}: mode {options.mode} needs the IMU's samples: --imu FILE.csv.")
        cv2 = opencv()
        capture = cv2.VideoCapture(str(self._path))
        rate = float(capture.get(cv2.CAP_PROP_FPS)) if capture.isOpened() else 0.0
        if not rate > 0.0:
            raise SequenceError(f"{self._path}: no video that OpenCV reads, or without a frame rate.")
        offset = round(1e9 * (self.calibration.rig[0].time_offset if self.calibration.rig else 0.0))
        first, number = 0, 0
        try:
            while True:
                ok, image = capture.read()
                if not ok:
                    return
                stamp = self._start + round(1e9 * number / rate)
                number += 1
                if self._imu is not None:
                    rows = samples_until(self._imu, first, stamp + offset)
                    first = max(first, rows.stop)
                    yield ImuEvent(self._imu.stamps[rows], self._imu.gyro[rows], self._imu.acc[rows])
                yield ImageEvent(stamp, (image,))
        finally:
            capture.release()


class WebcamSource:
    """A camera of this machine, without IMU; stamps are of when OpenCV delivers an image."""

    is_live = True
    truth: StateTable | None = None
    notes: tuple[str, ...] = ()

    def __init__(self, number: int, calibration: Calibration, capture: Any = None):
        """capture: what OpenCV's `VideoCapture` is, None: the camera of this number."""
        self.name, self.calibration = f"webcam {number}", calibration
        self._number, self._capture = number, capture

    def events(self, options: PipelineOptions) -> Iterator[ImuEvent | ImageEvent]:
        """Images until the camera stops or the consumer does."""
        if options.mode != "mono":
            raise SequenceError(
                f"{self.name}: mode is {options.mode}; a webcam has one camera and no IMU: mode mono."
            )
        capture = self._capture if self._capture is not None else opencv().VideoCapture(self._number)
        if not capture.isOpened():
            raise SequenceError(f"{self.name}: there is no such camera, or another program has it.")
        try:
            while True:
                ok, image = capture.read()
                if not ok:
                    return
                yield ImageEvent(time.time_ns(), (image,))
        finally:
            capture.release()
