"""Rendered sequences as drives of KITTI raw: the car's sensors, and their folders as the archives unpack.

    DIR/DATE/calib_cam_to_cam.txt, calib_imu_to_velo.txt, calib_velo_to_cam.txt
    DIR/DATE/DATE_drive_0001_sync/image_00 .. 03, oxts       rectified images, 10 records per second, or
    DIR/DATE/DATE_drive_0001_extract/image_00 .. 03, oxts    images as taken, 100 records per second

`slam_bridge.readers.kitti_raw` says what the numbers mean. Cameras 02 and 03 are the colour ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graphopt.geometry import SE3, SO3
from slam_bridge.cameras import Camera, Rig
from slam_bridge.generator.imu import SimulatedImu
from slam_bridge.generator.trajectory import Motion
from slam_bridge.readers.kitti_raw import EARTH_RADIUS

NUMBERS = ("00", "01", "02", "03")
LATITUDE, LONGITUDE, HEIGHT = 49.011, 8.416, 112.8
"""Of the world's origin [deg, deg, m]: Karlsruhe."""
_CENTRES = (0.0, 0.537, -0.060, 0.473)
"""Of the rectified cameras along x [m]."""
_MOUNTED = ((0.004, -0.009, 0.002), (-0.006, 0.007, 0.004), (0.003, 0.005, -0.007), (-0.005, -0.004, 0.006))
"""rect_R_cam as rotation vectors [rad]: how the cameras are turned before rectification."""
_RECTIFIED = (721.5, 721.5, 609.6, 172.9), (1242, 375)
_AS_TAKEN = (984.2, 980.8, 690.0, 233.2, -0.373, 0.205, 0.0022, 0.0014, -0.0723), (1392, 512)
_VELO_T_IMU = (-0.808, 0.320, -0.800, -0.00078, 0.00041, 0.0074)
"""Translation [m] and rotation vector [rad]."""
_DATAFORMAT = """\
lat:   latitude of the oxts-unit (deg)
lon:   longitude of the oxts-unit (deg)
alt:   altitude of the oxts-unit (m)
roll:  roll angle (rad),    0 = level, positive = left side up,      range: -pi   .. +pi
pitch: pitch angle (rad),   0 = level, positive = front down,        range: -pi/2 .. +pi/2
yaw:   heading (rad),       0 = east,  positive = counter clockwise, range: -pi   .. +pi
vn, ve:          velocity towards north, towards east (m/s)
vf, vl, vu:      forward, leftward, upward velocity (m/s)
ax, ay, az:      acceleration in x, y, z of the vehicle (m/s^2)
af, al, au:      forward, leftward, upward acceleration (m/s^2)
wx, wy, wz:      angular rate around x, y, z (rad/s)
wf, wl, wu:      angular rate around forward, leftward, upward axis (rad/s)
pos_accuracy, vel_accuracy, navstat, numsats, posmode, velmode, orimode
"""


def _pose(translation: tuple[float, ...], rotation_vector: tuple[float, ...]) -> SE3:
    turn = np.asarray(SO3.exp(np.array(rotation_vector)).storage)
    return SE3(np.concatenate([translation, turn]))


def _velo_T_imu() -> SE3:
    return _pose(_VELO_T_IMU[:3], _VELO_T_IMU[3:])


def _cam_T_velo() -> SE3:
    """Of camera 00 as it is: velo x ahead, y left, z up; camera x right, y down, z ahead."""
    axes = np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])
    ideal = SE3(np.concatenate([[-0.004, -0.076, -0.272], np.asarray(SO3.from_matrix(axes).storage)]))
    return _pose((0.0, 0.0, 0.0), (0.004, -0.012, 0.008)) * ideal


def _rect_T_cam(k: int) -> SE3:
    return _pose((_CENTRES[k], 0.0, 0.0), _MOUNTED[k])


def kitti_rig(is_rectified: bool) -> Rig:
    """The car's two grey and two colour cameras, 0.54 and 0.53 m apart, on the oxts box: x ahead, z up."""
    imu_T_cam = (_cam_T_velo() * _velo_T_imu()).inverse()
    imu_T_rect = imu_T_cam * _rect_T_cam(0).inverse()
    cameras = []
    for k in range(len(NUMBERS)):
        mounting = _pose((_CENTRES[k], 0.0, 0.0), (0.0, 0.0, 0.0)) if is_rectified else _rect_T_cam(k)
        numbers, size = _RECTIFIED if is_rectified else _AS_TAKEN
        pose = np.asarray((imu_T_rect * mounting).storage)
        model = "pinhole" if is_rectified else "radtan"
        cameras.append(Camera(pose, model, np.array(numbers), resolution=size, name=f"image_{NUMBERS[k]}"))
    return Rig(cameras)


def write_kitti(
    folder: Path, rig: Rig, motion: Motion, imu: SimulatedImu, stamps: np.ndarray, is_rectified: bool
) -> list[Path]:
    """All but the images; returns the folders that these go to, one per camera, named 0000000000.png, ...

    motion: at the IMU's stamps; stamps: of the images. The world's origin is where the first record is.
    """
    date = str(stamps[:1].astype("datetime64[ns]")[0])[:10].replace("-", "_")
    drive = folder / date / f"{date}_drive_0001_{'sync' if is_rectified else 'extract'}"
    records = _records(motion, imu)
    times = motion.stamps
    if is_rectified:
        rows = np.abs(times[None] - stamps[:, None]).argmin(axis=1)
        records, times = records[rows], times[rows]
    (drive / "oxts" / "data").mkdir(parents=True)
    (drive / "oxts" / "dataformat.txt").write_text(_DATAFORMAT)
    _write_stamps(drive / "oxts", times)
    for row, record in enumerate(records.tolist()):
        line = " ".join([*(f"{number:.14g}" for number in record), *_STATUS])
        (drive / "oxts" / "data" / f"{row:010d}.txt").write_text(line + "\n")
    _write_calibration(folder / date, rig, is_rectified)
    images = [drive / f"image_{number}" for number in NUMBERS]
    for image in images:
        (image / "data").mkdir(parents=True)
        _write_stamps(image, stamps)
    return [image / "data" for image in images]


_STATUS = ("0.05", "0.02", "4", "10", "4", "4", "0")


def _write_stamps(folder: Path, stamps: np.ndarray) -> None:
    lines = [str(stamp).replace("T", " ") for stamp in stamps.astype("datetime64[ns]")]
    (folder / "timestamps.txt").write_text("\n".join(lines) + "\n")


def _records(motion: Motion, imu: SimulatedImu) -> np.ndarray:
    """(n, 23): place, angles, velocities, accelerations and rates, of the body and of its level frame."""
    turn = np.asarray(SO3(motion.world_T_body[:, 3:]).to_matrix())
    yaw = np.arctan2(turn[:, 1, 0], turn[:, 0, 0])
    pitch = -np.arcsin(np.clip(turn[:, 2, 0], -1.0, 1.0))
    roll = np.arctan2(turn[:, 2, 1], turn[:, 2, 2])
    east, north, up = (motion.world_T_body[:, :3] - motion.world_T_body[0, :3]).T
    radius = np.cos(np.deg2rad(LATITUDE)) * EARTH_RADIUS
    start = radius * np.log(np.tan(np.pi / 4.0 + np.deg2rad(LATITUDE) / 2.0))
    latitude = 2.0 * np.rad2deg(np.arctan(np.exp((start + north) / radius))) - 90.0
    longitude = LONGITUDE + np.rad2deg(east / radius)
    place = np.stack([latitude, longitude, HEIGHT + up, roll, pitch, yaw], axis=1)
    c, s = np.cos(yaw), np.sin(yaw)
    level_R_world = np.zeros((len(c), 3, 3))
    level_R_world[:, 0, :2], level_R_world[:, 1, :2] = np.stack([c, s], axis=1), np.stack([-s, c], axis=1)
    level_R_world[:, 2, 2] = 1.0
    level_R_body = level_R_world @ turn
    moved = [np.einsum("nij,nj->ni", level_R_world, motion.velocity)]
    felt = [
        column
        for vectors in (imu.samples.acc, imu.samples.gyro)
        for column in (vectors, np.einsum("nij,nj->ni", level_R_body, vectors))
    ]
    return np.concatenate([place, motion.velocity[:, [1, 0]], *moved, *felt], axis=1)


def _write_calibration(day: Path, rig: Rig, is_rectified: bool) -> None:
    """The three files; of smaller images everything in pixels is smaller."""
    scale = float(rig[0].intrinsics[0]) / (_RECTIFIED if is_rectified else _AS_TAKEN)[0][0]
    both = zip(kitti_rig(False).scaled(scale), kitti_rig(True).scaled(scale), strict=True)
    lines = ["calib_time: 09-Jan-2012 13:57:47", "corner_dist: 9.950000e-02"]
    for k, (taken, flat) in enumerate(both):
        number, cam_T_first = NUMBERS[k], _rect_T_cam(k).inverse() * _rect_T_cam(0)
        projection = np.append(_intrinsic(flat), np.zeros((3, 1)), axis=1)
        projection[0, 3] = -flat.intrinsics[0] * _CENTRES[k]
        lines += [
            _line(f"S_{number}", taken.resolution),
            _line(f"K_{number}", _intrinsic(taken)),
            _line(f"D_{number}", taken.intrinsics[4:]),
            _line(f"R_{number}", cam_T_first.rotation.to_matrix()),
            _line(f"T_{number}", cam_T_first.translation),
            _line(f"S_rect_{number}", flat.resolution),
            _line(f"R_rect_{number}", _rect_T_cam(k).rotation.to_matrix()),
            _line(f"P_rect_{number}", projection),
        ]
    (day / "calib_cam_to_cam.txt").write_text("\n".join(lines) + "\n")
    for name, pose in (("calib_imu_to_velo", _velo_T_imu()), ("calib_velo_to_cam", _cam_T_velo())):
        rows = [_line("R", pose.rotation.to_matrix()), _line("T", pose.translation)]
        (day / f"{name}.txt").write_text("\n".join(["calib_time: 25-May-2012 16:47:16", *rows]) + "\n")


def _intrinsic(camera: Camera) -> np.ndarray:
    fx, fy, cx, cy = camera.intrinsics[:4]
    return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])


def _line(name: str, values: Any) -> str:
    return f"{name}: " + " ".join(f"{number:.12e}" for number in np.ravel(np.asarray(values, float)).tolist())
