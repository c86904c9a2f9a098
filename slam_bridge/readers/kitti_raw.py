"""Drives of KITTI raw as their archives unpack, with the calibration of the day beside them.

    DATE/calib_cam_to_cam.txt, calib_imu_to_velo.txt, calib_velo_to_cam.txt
    DATE/DATE_drive_NNNN_sync/image_00 .. image_03/{timestamps.txt, data/0000000000.png}
                              oxts/{timestamps.txt, data/0000000000.txt}      30 numbers, see dataformat.txt

    _sync      images undistorted and rectified, one oxts record per image: poses, but 10 Hz are no IMU
    _extract   images as taken, oxts at 100 Hz: poses and an IMU; one that lies beside _sync serves that, too

The grey cameras are read, or the colour ones where those are missing. The body is the oxts box: x ahead, y
left, z up; without its calibration the left camera. Poses are those of KITTI's development kit, Mercator's
projection of the first record's latitude:

    east = s r lon,  north = s r log tan(pi/4 + lat/2),  s = cos(lat_0), r = 6378137 m,  R = Rz Ry Rx

(Geiger et al., Vision meets Robotics: The KITTI Dataset, IJRR 2013.)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphopt.errors import FormatError
from graphopt.geometry import SE3, SO3
from slam_bridge.cameras import Camera, Rig, pose_of_matrix
from slam_bridge.imu import ImuNoise, ImuSamples
from slam_bridge.readers.euroc import StateTable
from slam_bridge.readers.sequence import Sequence, SequenceError

NOISE = ImuNoise(1.75e-4, 1.0e-2, 2.91e-6, 1.67e-4)
"""Of the OXTS RT3003 in a moving car, as in GTSAM's examples/Data/KittiEquivBiasedImu_metadata.txt."""
PAIRS = (("image_00", "image_01"), ("image_02", "image_03"))
LEAST_RATE = 50.0
"""[Hz] Fewer samples do not show how a body shakes between them; every published method has 100 and more."""
EARTH_RADIUS = 6378137.0
_NUM_VALUES = 30
_ACCELERATION, _RATE, _VELOCITY = slice(11, 14), slice(17, 20), [7, 6, 10]
"""Columns of a record: ax ay az, wx wy wz of the body; ve, vn, vu."""
_PAUSE = 0.1
"""[s] without a record that is worth a note."""


def is_drive(folder: Path) -> bool:
    """Images of a drive are in this folder."""
    return any((folder / left / "data").is_dir() for left, _ in PAIRS)


def open_drive(folder: Path, noise: ImuNoise | None) -> Sequence:
    """A drive. noise: of the IMU, in place of `NOISE`."""
    pair = next(pair for pair in PAIRS if (folder / pair[0] / "data").is_dir())
    calibration = _Calibration.read(folder.resolve().parent)
    is_rectified = not folder.resolve().name.endswith("_extract")
    names = tuple(name for name in pair if (folder / name / "data").is_dir())
    stamps, paths, notes = _frames(folder, names, is_rectified)
    make = calibration.rectified if is_rectified else calibration.unrectified
    rig = Rig([make(name.removeprefix("image_"), f"cam{k}") for k, name in enumerate(names)])
    records, imu = None, None
    if calibration.has_body:
        records, imu, more = _motion(folder, stamps)
        notes = [*notes, *more]
    return Sequence(
        folder.resolve().name,
        "kitti",
        rig,
        stamps,
        paths,
        imu,
        None if imu is None else noise or NOISE,
        truth=None if records is None else records.states_at(stamps),
        notes=tuple(notes),
    )


# -------------------------------------------------------------------- calibration


def read_lines(path: Path) -> dict[str, np.ndarray]:
    """Lines "name: numbers" of KITTI's calibration files."""
    lines = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(":")
        try:
            lines[name.strip()] = np.array([float(word) for word in rest.split()])
        except ValueError:
            continue  # dates
    return lines


def matrix_of(lines: dict[str, np.ndarray], name: str, shape: tuple[int, ...], path: Path) -> np.ndarray:
    """One of them as a matrix; `FormatError` where it is missing or has another size."""
    count = int(np.prod(shape))
    if name not in lines or lines[name].size != count:
        raise FormatError(f"{path}: no line '{name}:' with {count} numbers.")
    return lines[name].reshape(shape)


def projecting(
    projection: np.ndarray, body_T_rectified: SE3, name: str, size: tuple[int, int] | None = None
) -> Camera:
    """Camera of a matrix P = K [I | -centre] (3, 4), in the frame of rectified camera 0."""
    centre = np.append(-np.linalg.solve(projection[:, :3], projection[:, 3]), [0.0, 0.0, 0.0, 1.0])
    pose = np.asarray((body_T_rectified * SE3(centre)).storage)
    fx, fy, cx, cy = projection[[0, 1, 0, 1], [0, 1, 2, 2]].tolist()
    return Camera.pinhole(pose, fx, fy, cx, cy, resolution=size, name=name)


@dataclass(frozen=True, eq=False)
class _Calibration:
    """What the three files of a day say."""

    path: Path
    lines: dict[str, np.ndarray]
    body_T_first: SE3
    """Of camera 00 as it is, not rectified."""
    has_body: bool
    """The oxts box is the body; else camera 00, rectified."""

    @classmethod
    def read(cls, day: Path) -> _Calibration:
        path = _of_day(day, "calib_cam_to_cam.txt")
        if path is None:
            path = day / "calib_cam_to_cam.txt"
            raise SequenceError(f"{path}: missing; unpack the calibration of that day beside the drives.")
        lines = read_lines(path)
        steps = [path.parent / "calib_imu_to_velo.txt", path.parent / "calib_velo_to_cam.txt"]
        if not all(step.is_file() for step in steps):
            return cls(path, lines, SE3(_turned(lines, "R_rect_00", path)).inverse(), False)
        velo_T_body, cam_T_velo = (_rigid(read_lines(step), "R", "T", step) for step in steps)
        return cls(path, lines, (cam_T_velo * velo_T_body).inverse(), True)

    def rectified(self, number: str, name: str) -> Camera:
        """Camera `number` of images that were rectified."""
        projection = matrix_of(self.lines, f"P_rect_{number}", (3, 4), self.path)
        rectified_T_first = SE3(_turned(self.lines, "R_rect_00", self.path))
        body_T_rectified = self.body_T_first * rectified_T_first.inverse()
        return projecting(projection, body_T_rectified, name, self._size(f"S_rect_{number}"))

    def unrectified(self, number: str, name: str) -> Camera:
        """Camera `number` as it is: K, five coefficients of distortion, place relative to camera 00."""
        focal = matrix_of(self.lines, f"K_{number}", (3, 3), self.path)
        distortion = matrix_of(self.lines, f"D_{number}", (5,), self.path)
        cam_T_first = _rigid(self.lines, f"R_{number}", f"T_{number}", self.path)
        pose = np.asarray((self.body_T_first * cam_T_first.inverse()).storage)
        numbers = np.append(focal[[0, 1, 0, 1], [0, 1, 2, 2]], distortion)
        return Camera(pose, "radtan", numbers, resolution=self._size(f"S_{number}"), name=name)

    def _size(self, name: str) -> tuple[int, int] | None:
        if name not in self.lines:
            return None
        width, height = matrix_of(self.lines, name, (2,), self.path)
        return int(width), int(height)


def _of_day(day: Path, name: str) -> Path | None:
    """A file or folder of that day, beside its drives or where `graphopt datasets fetch` unpacks it."""
    fetched = [] if len(day.parents) < 3 else day.parents[2].glob(f"kitti-raw*/*/{day.name}/{name}")
    return next((path for path in (day / name, *sorted(fetched)) if path.exists()), None)


def _rigid(lines: dict[str, np.ndarray], turn: str, shift: str, path: Path) -> SE3:
    rows = np.eye(4)
    rows[:3, :3], rows[:3, 3] = matrix_of(lines, turn, (3, 3), path), matrix_of(lines, shift, (3,), path)
    return SE3(pose_of_matrix(rows, f"{path}: {turn}"))


def _turned(lines: dict[str, np.ndarray], turn: str, path: Path) -> np.ndarray:
    rows = np.eye(4)
    rows[:3, :3] = matrix_of(lines, turn, (3, 3), path)
    return pose_of_matrix(rows, f"{path}: {turn}")


# -------------------------------------------------------------------- images


def _frames(
    folder: Path, names: tuple[str, ...], is_rectified: bool
) -> tuple[np.ndarray, tuple[tuple[Path, ...], ...], list[str]]:
    """Stamps [ns], files of each camera, and what was left out."""
    cameras = [_images(folder / name) for name in names]
    stamps, files = cameras[0]
    if len(cameras) == 1:
        return stamps, tuple((file,) for file in files), []
    other, theirs = cameras[1]
    if is_rectified:
        rows = np.array(
            [{their.name: k for k, their in enumerate(theirs)}.get(file.name, -1) for file in files]
        )
    else:
        rows = _nearest(stamps, other)
    has = np.flatnonzero(rows >= 0)
    if len(has) < 2:
        raise SequenceError(
            f"{folder}: {len(has)} images of {names[0]} have one of {names[1]} taken with them."
        )
    paths = tuple((files[k], theirs[rows[k]]) for k in has.tolist())
    left_out = len(stamps) - len(has)
    notes = [f"{left_out} of {len(stamps)} images of {names[0]} have none of {names[1]}"] if left_out else []
    return stamps[has], paths, notes


def _images(camera: Path) -> tuple[np.ndarray, list[Path]]:
    """Stamps [ns] and files of one camera; file N was taken at line N of timestamps.txt."""
    stamps = read_stamps(camera / "timestamps.txt")
    files = sorted(each_path for each_path in (camera / "data").glob("*.png") if each_path.stem.isdigit())
    numbers = np.array([int(file.stem) for file in files], int)
    if len(numbers) and numbers[-1] >= len(stamps):
        raise SequenceError(
            f"{camera}: image {files[-1].name} has no line in timestamps.txt, which has {len(stamps)}."
        )
    good = np.flatnonzero(~np.isnat(stamps[numbers])) if len(numbers) else numbers
    if len(good) < 2:
        raise SequenceError(f"{camera}: {len(good)} images with a time, expected data/0000000000.png, ...")
    order = good[np.argsort(stamps[numbers[good]], kind="stable")]
    return stamps[numbers[order]].astype(np.int64), [files[k] for k in order.tolist()]


def read_stamps(path: Path) -> np.ndarray:
    """Times datetime64[ns] of lines such as 2011-09-30 12:40:25.074389760; empty lines are not-a-time."""
    if not path.is_file():
        raise SequenceError(f"{path}: missing.")
    lines = [line.strip().replace(" ", "T") or "NaT" for line in path.read_text().splitlines()]
    try:
        return np.array(lines, "datetime64[ns]")
    except ValueError as error:
        raise SequenceError(f"{path}: {error}; expected lines as 2011-09-30 12:40:25.074389760.") from None


def _nearest(stamps: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Rows of `other` taken with each of `stamps`, within a quarter of their spacing; -1: none."""
    place = np.clip(np.searchsorted(other, stamps), 1, len(other) - 1)
    place -= stamps - other[place - 1] < other[place] - stamps
    near = np.abs(other[place] - stamps) < 0.25 * np.median(np.diff(stamps))
    return np.where(near, place, -1)


# -------------------------------------------------------------------- motion


@dataclass(frozen=True, eq=False)
class Records:
    """Records of the oxts box, in order of time."""

    stamps: np.ndarray
    """(n,) int64 [ns]."""
    values: np.ndarray
    """(n, 30) as listed in dataformat.txt."""

    @property
    def rate(self) -> float:
        """[Hz]."""
        return 1e9 / float(np.median(np.diff(self.stamps)))

    def world_T_body(self) -> np.ndarray:
        """(n, 7): x east, y north, z up, from the place of the first record."""
        latitude, longitude, height, roll, pitch, yaw = self.values[:, :6].T
        radius = np.cos(np.deg2rad(latitude[0])) * EARTH_RADIUS
        north = radius * np.log(np.tan(np.deg2rad(90.0 + latitude) / 2.0))
        position = np.stack([radius * np.deg2rad(longitude), north, height], axis=1)
        turns = [
            SO3.exp(angle[:, None] * axis) for axis, angle in zip(np.eye(3), (roll, pitch, yaw), strict=True)
        ]
        rotation = turns[2] * turns[1] * turns[0]
        return np.concatenate([position - position[0], np.asarray(rotation.storage)], axis=1)

    def states_at(self, stamps: np.ndarray) -> StateTable | None:
        """States between the records on both sides, in a straight line; none outside and across pauses."""
        step = np.diff(self.stamps)
        before = np.clip(np.searchsorted(self.stamps, stamps, side="right") - 1, 0, len(step) - 1)
        part = (stamps - self.stamps[before]) / step[before]
        has = (part >= 0.0) & (part <= 1.0) & (step[before] < 3.0 * np.median(step))
        before, part = before[has], part[has, None]
        if not len(before):
            return None
        poses = SE3(self.world_T_body())
        place, turn = np.asarray(poses.translation), SO3(np.asarray(poses.storage)[:, 3:])
        first, second = SO3(turn.storage[before]), SO3(turn.storage[before + 1])
        between = np.asarray((first * SO3.exp(part * (first.inverse() * second).log())).storage)
        velocity = self.values[:, _VELOCITY]
        place, velocity = (
            column[before] + part * (column[before + 1] - column[before]) for column in (place, velocity)
        )
        return StateTable(stamps[has], np.concatenate([place, between], axis=1), velocity, None, None)


def _motion(folder: Path, stamps: np.ndarray) -> tuple[Records | None, ImuSamples | None, list[str]]:
    """Records of a drive, IMU samples where the rate suffices, and what there is to say about them."""
    name = folder.resolve().name
    dense, sparse = f"{name.removesuffix('_sync')}_extract", folder / "oxts"
    beside = _of_day(folder.resolve().parent, f"{dense}/oxts/data") if name.endswith("_sync") else None
    source = sparse if beside is None else beside.parent
    if not (source / "data").is_dir():
        return None, None, [f"{sparse}: missing, so there is neither truth nor IMU"]
    records, notes = read_oxts(source, stamps if name.endswith("_sync") and beside is None else None)
    if records.rate < LEAST_RATE:
        return records, None, [
            *notes,
            f"{source} has {records.rate:.0f} records per second, an IMU needs {LEAST_RATE:.0f}: unpack "
            f"{dense} (100 Hz) beside it",
        ]  # fmt: skip
    if beside is not None:
        notes.append(f"IMU and truth from {dense}")
    gyro, acc = records.values[:, _RATE], records.values[:, _ACCELERATION]
    return records, ImuSamples(records.stamps, gyro, acc), notes


def read_oxts(folder: Path, stamps: np.ndarray | None = None) -> tuple[Records, list[str]]:
    """Records of a folder oxts, sorted, each time once, and notes about what was not in order.

    stamps: of the images [ns], for a _sync drive without oxts/timestamps.txt: it has one record per image.
    """
    table = folder / "timestamps.txt"
    times = read_stamps(table) if stamps is None or table.is_file() else stamps.astype("datetime64[ns]")
    files = sorted(each_path for each_path in (folder / "data").glob("*.txt") if each_path.stem.isdigit())
    files = [file for file in files if int(file.stem) < len(times) and not np.isnat(times[int(file.stem)])]
    if len(files) < 2:
        raise SequenceError(f"{folder}: {len(files)} records with a time, expected data/0000000000.txt, ...")
    order = times[[int(file.stem) for file in files]].astype(np.int64)
    values = np.array([_record(file) for file in files])
    kept = np.argsort(order, kind="stable")
    kept = kept[np.append(True, np.diff(order[kept]) > 0)]
    records = Records(order[kept], values[kept])
    notes = []
    if (np.diff(order) <= 0).any():
        notes.append(f"{folder}: {int((np.diff(order) <= 0).sum())} records are not after the one before")
    pauses = np.diff(records.stamps) * 1e-9
    long = pauses > max(_PAUSE, 3.0 * float(np.median(pauses)))
    if long.any():
        notes.append(f"{folder}: {int(long.sum())} pauses of up to {pauses.max():.2f} s")
    return records, notes


def _record(path: Path) -> list[float]:
    try:
        values = [float(word) for word in path.read_text().split()]
    except ValueError:
        values = []
    if len(values) != _NUM_VALUES or not np.isfinite(values).all():
        raise FormatError(f"{path}: expected {_NUM_VALUES} numbers. Is the archive unpacked completely?")
    return values
