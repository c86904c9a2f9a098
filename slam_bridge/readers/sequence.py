"""One sequence of images: stamps, files, cameras, IMU, truth. `Sequence.images` loads one frame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.errors import GraphOptError, OptionError
from graphopt.geometry import SE3
from slam_bridge.cameras import Camera, Rig
from slam_bridge.imu import ImuNoise, ImuSamples
from slam_bridge.readers.euroc import StateTable


class SequenceError(GraphOptError, ValueError):
    """A folder does not hold a sequence that can be read."""


@dataclass(frozen=True, eq=False)
class Sequence:
    """One sequence of images with what belongs to it."""

    name: str
    kind: str
    """ "euroc", "tumvi" or "kitti"."""
    rig: Rig
    """Cameras that see the frames, one per column of `paths`."""
    stamps: np.ndarray
    """(n,) int64 [ns] of the frames, in the IMU's time."""
    paths: tuple[tuple[Path | None, ...], ...]
    """(n, cameras) image files, None: the camera has none then."""
    imu: ImuSamples | None = None
    noise: ImuNoise | None = None
    gravity: float = 9.81
    """Magnitude [m/s^2]."""
    truth: StateTable | None = None
    """True states of the body; None where nobody published them."""
    equalize: bool = False
    """Images need their contrast evened out (CLAHE), as ORB-SLAM3 does with TUM-VI's."""
    widest: float = np.deg2rad(80.0)
    """Rays further from the axis than this are not used [rad]: vignetting."""
    notes: tuple[str, ...] = ()
    """What the reader left out."""
    lags: np.ndarray | None = None
    """(n, cameras) int64 [ns] by which images are later than the first camera's; None: all of one moment."""
    depth_paths: tuple[Path | None, ...] = ()
    """(n,) depth images in the first camera, None: none; empty where there are none at all."""
    depth_per_metre: float = 1000.0
    """Of depth images of whole numbers."""

    def __len__(self) -> int:
        return len(self.stamps)

    @property
    def seconds(self) -> float:
        """Duration [s]."""
        return float(self.stamps[-1] - self.stamps[0]) * 1e-9

    def images(self, row: int) -> list[np.ndarray | None]:
        """Images (height, width) uint8 of one frame; `SequenceError` names a file that cannot be read."""
        return [self.image(row, camera) for camera in range(len(self.paths[row]))]

    def image(self, row: int, camera: int) -> np.ndarray | None:
        """One of them."""
        path = self.paths[row][camera]
        return None if path is None else _image(path, self.rig[camera], self.equalize)

    def depth(self, row: int) -> np.ndarray | None:
        """Depth image (height, width) float32 [m] of one frame, 0: not measured; None: it has none."""
        path = self.depth_paths[row] if self.depth_paths else None
        if path is None:
            return None
        image = opencv().imread(str(path), -1)
        if image is None or image.ndim != 2:
            raise SequenceError(f"{path}: missing, or no depth image that OpenCV reads.")
        return image.astype(np.float32) / np.float32(self.depth_per_metre)

    def stamps_of(self, row: int, count: int) -> tuple[int, ...] | None:
        """Stamps [ns] of a frame's images in their cameras' time; None: all of one moment."""
        if self.lags is None:
            return None
        offsets = [round(1e9 * camera.time_offset) for camera in self.rig]
        start = int(self.stamps[row])
        return tuple(start + int(self.lags[row, k]) - offsets[k] for k in range(count))

    def first(self, count: int | None) -> Sequence:
        """The first `count` frames; None: all."""
        return self if count is None or count >= len(self) else self.part(slice(count))

    def part(self, rows: slice | np.ndarray) -> Sequence:
        """Some of the frames: a slice, or (n,) bool."""
        chosen = np.arange(len(self))[rows].tolist()
        parts: dict[str, Any] = {"paths": tuple(self.paths[row] for row in chosen)}
        parts["depth_paths"] = tuple(self.depth_paths[row] for row in chosen) if self.depth_paths else ()
        parts["lags"] = None if self.lags is None else self.lags[rows]
        return replace(self, stamps=self.stamps[rows], **parts)

    def with_cameras(self, count: int) -> Sequence:
        """With the first cameras only."""
        if len(self.rig) < count:
            raise SequenceError(
                f"{self.name}: has 1 camera, a stereo mode needs two. Choose --mode mono, or add cam1."
            )
        rig = Rig(list(self.rig)[:count])
        lags = None if self.lags is None else self.lags[:, :count]
        found = replace(self, rig=rig, paths=tuple(path[:count] for path in self.paths), lags=lags)
        has_image = np.array([any(paths) for paths in found.paths])
        return found if has_image.all() else found.part(has_image)

    def of_camera(self) -> Sequence:
        """The same with the left camera as body: without an IMU a mono map knows no lever arm in metres."""
        mounting = SE3(self.rig[0].body_T_cam)
        cameras = [
            replace(camera, body_T_cam=np.asarray((mounting.inverse() * SE3(camera.body_T_cam)).storage))
            for camera in self.rig
        ]
        truth = self.truth
        if truth is not None:
            repeated = SE3(np.tile(self.rig[0].body_T_cam, (len(truth), 1)))
            poses = np.asarray((SE3(truth.world_T_body) * repeated).storage)
            truth = StateTable(truth.stamps, poses, None, None, None)
        return replace(self, rig=Rig(cameras), truth=truth)


def _image(path: Path, camera: Camera, equalize: bool) -> np.ndarray:
    cv2 = opencv()
    image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)  # 16 bits become 8
    if image is None:
        raise SequenceError(f"{path}: missing, or no image that OpenCV reads.")
    if camera.resolution is not None and image.shape[::-1] != tuple(camera.resolution):
        raise SequenceError(
            f"{path}: is {image.shape[1]} x {image.shape[0]} pixels, the calibration is for "
            f"{camera.resolution[0]} x {camera.resolution[1]}."
        )
    return cv2.createCLAHE(3.0, (8, 8)).apply(image) if equalize else image


def opencv() -> Any:
    """The module cv2 (4 or 5); `OptionError` says how to get it."""
    try:
        import cv2
    except ImportError as error:
        raise OptionError(
            "the pipeline needs OpenCV: pip install graphopt[slam], or opencv-python-headless."
        ) from error
    return cv2
