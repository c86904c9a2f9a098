"""Sequences of KITTI: odometry (sequences/06/image_0, poses/06.txt) and raw (DATE_drive_NNNN_sync)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphopt.errors import FormatError
from graphopt.geometry import SE3, SO3
from graphopt.io.trajectory import read_kitti
from slam_bridge.cameras import Camera, Rig, pose_of_matrix
from slam_bridge.readers.euroc import StateTable
from slam_bridge.readers.sequence import Sequence, SequenceError

_IDENTITY = np.array(SE3.identity_storage)


def open_kitti(folder: Path) -> Sequence:
    """A sequence of KITTI odometry, or a drive of KITTI raw."""
    return _kitti_raw(folder) if (folder / "image_00").is_dir() else _kitti_odometry(folder)


def _rectified(left: np.ndarray, right: np.ndarray) -> Rig:
    """Pinhole pair of projection matrices (3, 4) that share a body, the left camera's frame."""
    cameras = []
    for name, matrix in (("cam0", left), ("cam1", right)):
        fx, fy, cx, cy = matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2]
        pose = _IDENTITY.copy()
        pose[0] = -matrix[0, 3] / fx
        cameras.append(Camera.pinhole(pose, fx, fy, cx, cy, name=name))
    return Rig(cameras)


def _matrices(path: Path) -> dict[str, np.ndarray]:
    """Lines "name: numbers" of KITTI's calibration files."""
    found = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(":")
        try:
            found[name.strip()] = np.array([float(one) for one in rest.split()])
        except ValueError:
            continue  # dates
    return found


def _projection(matrices: dict[str, np.ndarray], name: str, path: Path) -> np.ndarray:
    if name not in matrices or matrices[name].size != 12:
        raise FormatError(f"{path}: no line '{name}:' with twelve numbers.")
    return matrices[name].reshape(3, 4)


def _pairs(left: Path, right: Path, stamps: np.ndarray) -> tuple[tuple[Path, ...], ...]:
    """Files of both cameras by number; those of the left decide how many there are."""
    files = sorted(left.glob("*.png"))
    if not files or len(files) > len(stamps):
        raise SequenceError(f"{left}: {len(files)} images for {len(stamps)} times.")
    if right.is_dir():
        return tuple((one, right / one.name) for one in files)
    return tuple((one,) for one in files)


def _table(stamps: np.ndarray, poses: np.ndarray) -> StateTable:
    return StateTable(stamps, poses, None, None, None)


def _kitti_odometry(folder: Path) -> Sequence:
    times = folder / "times.txt"
    if not times.is_file():
        raise SequenceError(f"{times}: missing; it comes with KITTI's calibration archive.")
    stamps = np.rint(1e9 * np.loadtxt(times, ndmin=1)).astype(np.int64)
    calibration = folder / "calib.txt"
    matrices = _matrices(calibration)
    rig = _rectified(_projection(matrices, "P0", calibration), _projection(matrices, "P1", calibration))
    paths = _pairs(folder / "image_0", folder / "image_1", stamps)
    name = folder.resolve().name
    places = (folder.resolve().parent.parent / "poses" / f"{name}.txt", folder / "poses.txt")
    file = next((one for one in places if one.is_file()), None)
    truth = None
    if file is not None:
        poses = read_kitti(file)
        truth = _table(stamps[: len(poses)], poses[: len(stamps)])
    rig = Rig(list(rig)[: len(paths[0])])
    return Sequence(name, "kitti", rig, stamps[: len(paths)], paths, truth=truth)


def _kitti_raw(folder: Path) -> Sequence:
    calibration = folder.resolve().parent / "calib_cam_to_cam.txt"
    if not calibration.is_file():
        raise SequenceError(f"{calibration}: missing; unpack the calibration of that day beside the drives.")
    matrices = _matrices(calibration)
    left, right = (_projection(matrices, name, calibration) for name in ("P_rect_00", "P_rect_01"))
    rig = _rectified(left, right)
    stamps = _datetimes(folder / "image_00" / "timestamps.txt")
    paths = _pairs(folder / "image_00" / "data", folder / "image_01" / "data", stamps)
    rig = Rig(list(rig)[: len(paths[0])])
    truth = _kitti_raw_truth(folder, matrices, stamps)
    return Sequence(folder.resolve().name, "kitti", rig, stamps[: len(paths)], paths, truth=truth)


def _datetimes(path: Path) -> np.ndarray:
    """Stamps [ns] of lines such as 2011-09-30 12:40:25.074389760."""
    if not path.is_file():
        raise SequenceError(f"{path}: missing.")
    lines = [one.strip().replace(" ", "T") for one in path.read_text().splitlines() if one.strip()]
    return np.array(lines, "datetime64[ns]").astype(np.int64)


def _kitti_raw_truth(folder: Path, cameras: dict[str, np.ndarray], stamps: np.ndarray) -> StateTable | None:
    """Poses of the left camera from GPS and IMU: Mercator's projection, as in KITTI's development kit."""
    files = sorted((folder / "oxts" / "data").glob("*.txt"))
    parent = folder.resolve().parent
    steps = [parent / name for name in ("calib_imu_to_velo.txt", "calib_velo_to_cam.txt")]
    if not files or not all(one.is_file() for one in steps) or "R_rect_00" not in cameras:
        return None
    rows = np.stack([np.loadtxt(one)[:6] for one in files])[: len(stamps)]
    latitude, longitude, height, roll, pitch, yaw = rows.T
    scale, radius = np.cos(np.deg2rad(latitude[0])), 6378137.0
    east = scale * radius * np.deg2rad(longitude)
    north = scale * radius * np.log(np.tan(np.deg2rad(90.0 + latitude) / 2.0))
    position = np.stack([east, north, height], axis=1)
    turn = [_axis_turn(axis, angle) for axis, angle in ((2, yaw), (1, pitch), (0, roll))]
    world_T_imu = np.concatenate([position - position[0], np.zeros((len(rows), 4))], axis=1)
    world_T_imu[:, 3:] = np.asarray(SO3.from_matrix(turn[0] @ turn[1] @ turn[2]).storage)
    cam_T_imu = SE3(_IDENTITY)
    for path in steps:
        one = _matrices(path)
        rows4 = np.eye(4)
        rows4[:3, :3], rows4[:3, 3] = one["R"].reshape(3, 3), one["T"]
        cam_T_imu = SE3(pose_of_matrix(rows4, str(path))) * cam_T_imu
    rectified = np.eye(4)
    rectified[:3, :3] = cameras["R_rect_00"].reshape(3, 3)
    cam_T_imu = SE3(pose_of_matrix(rectified, "R_rect_00")) * cam_T_imu
    return _table(stamps[: len(rows)], np.asarray((SE3(world_T_imu) * cam_T_imu.inverse()).storage))


def _axis_turn(axis: int, angle: np.ndarray) -> np.ndarray:
    """(n, 3, 3) rotations about a coordinate axis."""
    result = np.tile(np.eye(3), (len(angle), 1, 1))
    a, b = (axis + 1) % 3, (axis + 2) % 3
    result[:, a, a] = result[:, b, b] = np.cos(angle)
    result[:, a, b], result[:, b, a] = -np.sin(angle), np.sin(angle)
    return result
