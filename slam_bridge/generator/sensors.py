"""Sensors of the data sets: cameras, IMU noise and rates; round numbers of the published calibrations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.errors import OptionError
from slam_bridge.cameras import Camera, Rig, pose_of_matrix
from slam_bridge.generator.kitti import kitti_rig
from slam_bridge.imu import ImuNoise
from slam_bridge.readers import Calibration, read_calibration
from slam_bridge.readers.kitti_raw import NOISE as KITTI_NOISE


@dataclass(frozen=True, eq=False)
class Sensors:
    """Cameras and IMU on one body."""

    rig: Rig
    noise: ImuNoise
    imu_rate: float = 200.0
    """[Hz]."""
    camera_rate: float = 20.0
    """[Hz]."""

    def joined(self, calibration: Calibration) -> Sensors:
        """These, with what a calibration file says in place of the built-in numbers."""
        rig, noise = calibration.rig or self.rig, calibration.noise or self.noise
        unknown = [name for name, camera in zip(rig.names, rig, strict=True) if camera.resolution is None]
        if unknown:
            raise OptionError(
                f"the calibration states no resolution of {', '.join(unknown)}; images need one."
            )
        return Sensors(rig, noise, calibration.rate or self.imu_rate, self.camera_rate)


def _pose(columns: list[list[float]], position: list[float]) -> np.ndarray:
    """body_T_cam of the directions of the camera's x (right), y (down) and z (ahead), nearly orthogonal."""
    matrix = np.eye(4)
    left, _, right = np.linalg.svd(np.array(columns, float).T)
    matrix[:3, :3], matrix[:3, 3] = left @ right, position
    return pose_of_matrix(matrix)


def euroc() -> Sensors:
    """EuRoC's: two radial-tangential cameras 11 cm apart, looking along the body's z, x up; an ADIS16448."""
    ahead = [[0.015, 1.0, -0.026], [-1.0, 0.015, 0.004], [0.004, 0.026, 1.0]]
    size = (752, 480)
    left = [458.6, 457.3, 367.2, 248.4, -0.2834, 0.0740, 0.00019, 0.00002, 0.0]
    right = [457.6, 456.1, 379.9, 255.2, -0.2837, 0.0745, -0.00010, -0.00004, 0.0]
    cameras = [
        Camera(_pose(ahead, place), "radtan", np.array(numbers), resolution=size, name=name)
        for name, place, numbers in (
            ("cam0", [-0.0216, -0.0647, 0.0098], left),
            ("cam1", [-0.0198, 0.0454, 0.0079], right),
        )
    ]
    return Sensors(Rig(cameras), ImuNoise())


def tumvi() -> Sensors:
    """TUM-VI's: two fisheye cameras (Kannala-Brandt) 10 cm apart, looking along -y, z up; a BMI160."""
    ahead = [[-1.0, 0.0075, -0.030], [0.030, -0.034, -1.0], [-0.0085, -1.0, 0.034]]
    size = (512, 512)
    left = [191.0, 191.0, 254.9, 256.9, 0.0035, 0.0007, -0.0021, 0.0002]
    right = [190.4, 190.4, 252.6, 254.9, 0.0034, 0.0018, -0.0027, 0.0003]
    cameras = [
        Camera(_pose(ahead, place), "kb8", np.array(numbers), resolution=size, name=name)
        for name, place, numbers in (
            ("cam0", [0.0456, -0.0712, -0.0467], left),
            ("cam1", [-0.0555, -0.0694, -0.0476], right),
        )
    ]
    return Sensors(Rig(cameras), ImuNoise(1.6e-4, 2.8e-3, 2.2e-5, 8.6e-4))


SENSORS = {
    "euroc": euroc,
    "tumvi": tumvi,
    "kitti-sync": lambda: Sensors(kitti_rig(True), KITTI_NOISE, 100.0, 10.0),
    "kitti-extract": lambda: Sensors(kitti_rig(False), KITTI_NOISE, 100.0, 10.0),
}


def sensors(kind: str, calibration: tuple[str, ...] = ()) -> Sensors:
    """Sensors of a data set, with the numbers of calibration files where given."""
    if kind not in SENSORS:
        raise OptionError(f"sensor is {kind!r}, expected one of {', '.join(SENSORS)}.")
    rig = SENSORS[kind]()
    if calibration and kind.startswith("kitti"):
        raise OptionError(f"{kind} has KITTI's own cameras and IMU: leave the calibration out.")
    return rig.joined(read_calibration(*calibration)) if calibration else rig
