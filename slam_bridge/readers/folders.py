"""Folders of data sets as sources: which kind one is, and its samples and images in the order of time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from slam_bridge.imu import ImuSamples
from slam_bridge.readers.calibration import Calibration
from slam_bridge.readers.events import FIRST, ImageEvent, ImuEvent, LeftOut
from slam_bridge.readers.kitti import is_odometry
from slam_bridge.readers.kitti_raw import is_drive
from slam_bridge.readers.sequence import Sequence, SequenceError
from slam_bridge.readers.sequences import open_sequence
from slam_bridge.readers.tum_rgbd import is_tum_rgbd, open_tum_rgbd

if TYPE_CHECKING:
    from slam_bridge.pipeline.options import PipelineOptions


def folder_kind(folder: Path) -> str:
    """Which data set a folder is of: "euroc", "tumvi", "kitti", "tum-rgbd", or none (empty)."""
    if is_tum_rgbd(folder):
        return "tum-rgbd"
    if is_odometry(folder) or is_drive(folder):
        return "kitti"
    if (folder / "mav0").is_dir() or (folder / "cam0").is_dir():
        return "tumvi" if (folder / "dso").is_dir() else "euroc"
    return ""


def samples_until(imu: ImuSamples, first: int, stamp: int) -> slice:
    """Rows from `first` on up to the first at or after a stamp [ns]."""
    return slice(first, min(int(np.searchsorted(imu.stamps, stamp)) + 1, len(imu)))


class FolderSource:
    """A `Sequence` as a source."""

    is_live = False

    def __len__(self) -> int:
        return len(self.sequence)

    def __init__(self, kind: str, folder: str | Path, calibration: str | Path | None = None):
        """Raises `SequenceError` as `open_sequence` does."""
        given = Path(folder)
        if kind == "tum-rgbd":
            sequence = open_tum_rgbd(given, calibration)
        else:
            sequence = open_sequence(kind, given, calibration)
        self._take(sequence)

    def _take(self, sequence: Sequence) -> None:
        self.sequence, self.name, self.notes = sequence, sequence.name, sequence.notes
        self.truth = sequence.truth
        self.calibration = Calibration(rig=sequence.rig, noise=sequence.noise, gravity=sequence.gravity)

    @classmethod
    def of(cls, sequence: Sequence) -> FolderSource:
        """The source of a sequence that is open already."""
        source = cls.__new__(cls)
        source._take(sequence)
        return source

    def refuse(self, options: PipelineOptions) -> None:
        """`SequenceError` where a mode needs what the sequence does not have."""
        sequence = self.sequence
        if options.is_inertial and (sequence.imu is None or sequence.noise is None):
            raise SequenceError(
                f"{self.name}: mode {options.mode} needs IMU samples and their noise, which this sequence "
                f"does not have"
                f"{''.join('; ' + note for note in sequence.notes)}. Choose --mode "
                f"{options.mode.removesuffix('-inertial')}."
            )
        if options.has_depth and not sequence.depth_paths:
            raise SequenceError(f"{self.name}: no depth images, mode {options.mode} needs them.")
        if options.is_stereo:
            sequence.with_cameras(2)  # refuses one camera
        for camera in range(len(sequence.rig) if options.is_stereo else 1):
            rows = [row for row, paths in enumerate(sequence.paths) if paths[camera] is not None][:FIRST]
            tried = LeftOut()
            for row in rows:
                if tried.read(camera, partial(sequence.image, row, camera)) is not None:
                    break

    def events(self, options: PipelineOptions) -> Iterator[ImuEvent | ImageEvent]:
        """Samples up to each frame and one beyond, then the frame.

        Raises `SequenceError` where a mode needs what the sequence does not have.
        """
        self.refuse(options)
        return self._events(options)

    def _events(self, options: PipelineOptions) -> Iterator[ImuEvent | ImageEvent]:
        sequence, first, left_out = self.sequence, 0, LeftOut()
        count = len(sequence.rig) if options.is_stereo else 1
        sequence = sequence.with_cameras(count)
        offset = round(1e9 * sequence.rig[0].time_offset)
        for row, stamp in enumerate(sequence.stamps.tolist()):
            if options.is_inertial and sequence.imu is not None:
                imu, rows = sequence.imu, samples_until(sequence.imu, first, stamp)
                first = max(first, rows.stop)
                yield ImuEvent(imu.stamps[rows], imu.gyro[rows], imu.acc[rows])
            images = tuple(left_out.read(k, partial(sequence.image, row, k)) for k in range(count))
            depth = left_out.read(0, partial(sequence.depth, row)) if options.has_depth else None
            stamps = sequence.stamps_of(row, count)
            yield ImageEvent(stamp - offset, images, depth, stamps, left_out.faults())
