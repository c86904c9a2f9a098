"""Folders of image sequences as their archives unpack: EuRoC, TUM-VI (exported 512), KITTI odometry and raw.

    EuRoC    MH_01_easy/mav0/cam0/data/*.png, data.csv, sensor.yaml, imu0, state_groundtruth_estimate0
    TUM-VI   dataset-room1_512_16/mav0 with the same files, mocap0 as truth, dso/camchain.yaml, dso/imu_config
    KITTI    sequences/06/image_0, calib.txt, times.txt, and poses/06.txt;
             raw: 2011_09_30_drive_0020_sync/image_00/data, with calib_cam_to_cam.txt beside it

`find_sequences` lists what lies below a root; `Sequence.images` loads one frame. The body is the IMU's frame,
of KITTI the left camera's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.errors import FormatError, GraphOptError, OptionError
from graphopt.geometry import SE3, SO3
from slam_bridge.cameras import Camera, Rig, pose_of_matrix
from slam_bridge.imu import ImuNoise, ImuSamples
from slam_bridge.readers import Calibration, StateTable, read_calibration, read_imu, read_states

KINDS = ("euroc", "tumvi", "kitti")
_IDENTITY = np.array(SE3.identity_storage)


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
    paths: tuple[tuple[Path, ...], ...]
    """(n, cameras) image files."""
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
    notes: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.stamps)

    @property
    def seconds(self) -> float:
        """Duration [s]."""
        return float(self.stamps[-1] - self.stamps[0]) * 1e-9

    def images(self, row: int) -> list[np.ndarray]:
        """Images (height, width) uint8 of one frame; `SequenceError` names a file that cannot be read."""
        return [_image(path, self.rig[k], self.equalize) for k, path in enumerate(self.paths[row])]

    def first(self, count: int | None) -> Sequence:
        """The first `count` frames; None: all."""
        if count is None or count >= len(self):
            return self
        return replace(self, stamps=self.stamps[:count], paths=self.paths[:count])

    def with_cameras(self, count: int) -> Sequence:
        """With the first cameras only."""
        if len(self.rig) < count:
            raise SequenceError(
                f"{self.name}: has {len(self.rig)} camera, a stereo mode needs two. Choose --mode mono."
            )
        rig = Rig(list(self.rig)[:count])
        return replace(self, rig=rig, paths=tuple(one[:count] for one in self.paths))

    def of_camera(self) -> Sequence:
        """The same with the left camera as body: without an IMU a mono map knows no lever arm in metres."""
        mounting = SE3(self.rig[0].body_T_cam)
        cameras = [
            replace(one, body_T_cam=np.asarray((mounting.inverse() * SE3(one.body_T_cam)).storage))
            for one in self.rig
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


# ------------------------------------------------------------------------ finding


def find_sequences(kind: str, root: str | Path, names: Iterable[str] | None = None) -> dict[str, Path]:
    """Folders of sequences at or below a root, by name; `names` chooses some ("MH_01" is "MH_01_easy").

    Raises `SequenceError` where there are none, or a name is not among them.
    """
    root = Path(root)
    if kind not in KINDS:
        raise OptionError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}.")
    if not root.is_dir():
        raise SequenceError(f"{root}: no such folder.")
    found = (_find_kitti if kind == "kitti" else _find_asl)(root)
    if not found:
        raise SequenceError(f"{root}: holds no sequence of {kind}. Expected {_EXPECTED[kind]}.")
    if names is None:
        return found
    chosen: dict[str, Path] = {}
    for name in names:
        fits = [one for one in found if one == name] or [one for one in found if name in one]
        if len(fits) != 1:
            several = f"fits {', '.join(fits)}" if fits else f"is not among {', '.join(found)}"
            raise SequenceError(f"{root}: sequence {name!r} {several}.")
        chosen[fits[0]] = found[fits[0]]
    return chosen


_EXPECTED = {
    "euroc": "folders such as MH_01_easy with mav0/cam0/data.csv in them, at most three levels below",
    "tumvi": "folders such as dataset-room1_512_16 with mav0/cam0/data.csv in them",
    "kitti": "sequences/00 to 21 with image_0, calib.txt, times.txt, or DATE_drive_NNNN_sync with image_00",
}


def _find_asl(root: Path) -> dict[str, Path]:
    if root.name == "mav0":
        root = root.parent
    found = {}
    for pattern in ("mav0", "*/mav0", "*/*/mav0", "*/*/*/mav0"):
        for one in sorted(root.glob(pattern)):
            if (one / "cam0").is_dir():
                found.setdefault(one.parent.resolve().name, one.parent)
    return found


def _find_kitti(root: Path) -> dict[str, Path]:
    found = {}
    for folders in ([root], *(sorted(root.glob(pattern)) for pattern in ("*", "*/*", "*/*/*"))):
        for one in folders:
            is_odometry = (one / "image_0").is_dir() and (one / "calib.txt").is_file()
            is_raw = (one / "image_00" / "data").is_dir()
            if is_odometry or is_raw:
                found.setdefault(one.resolve().name, one)
    return found


def open_sequence(kind: str, folder: str | Path, calibration: str | Path | None = None) -> Sequence:
    """Read calibration, stamps, IMU and truth of a folder that `find_sequences` names."""
    folder = Path(folder)
    if kind == "kitti":
        is_raw = (folder / "image_00").is_dir()
        return _kitti_raw(folder) if is_raw else _kitti_odometry(folder)
    return _asl(kind, folder, calibration)


# ------------------------------------------------------------------------ EuRoC, TUM-VI


def _asl(kind: str, folder: Path, given: str | Path | None) -> Sequence:
    mav = folder / "mav0" if (folder / "mav0").is_dir() else folder
    calibration = _asl_calibration(kind, folder, mav, given)
    if calibration.rig is None:
        raise SequenceError(f"{mav}: no calibration of a camera, expected cam0/sensor.yaml.")
    lists = [_asl_images(mav / name) for name in ("cam0", "cam1") if (mav / name).is_dir()]
    rig = Rig(list(calibration.rig)[: len(lists)])
    stamps, rows = lists[0][0], [np.arange(len(lists[0][0]))]
    if len(lists) == 2:
        stamps, *rows = np.intersect1d(lists[0][0], lists[1][0], return_indices=True)
        if len(stamps) < 2:
            raise SequenceError(f"{mav}: cam0 and cam1 have {len(stamps)} stamps in common.")
    paths = tuple(
        tuple(files[row] for (_, files), row in zip(lists, places, strict=True))
        for places in zip(*rows, strict=True)
    )
    offset = round(1e9 * rig[0].time_offset)
    imu = read_imu(mav / "imu0" / "data.csv") if (mav / "imu0" / "data.csv").is_file() else None
    if imu is not None and calibration.imu is not None:
        imu = calibration.imu.corrected(imu)
    return Sequence(
        folder.resolve().name,
        kind,
        rig,
        stamps + offset,
        paths,
        imu,
        calibration.noise,
        calibration.gravity or 9.81,
        _asl_truth(mav),
        equalize=kind == "tumvi",
    )


def _asl_calibration(kind: str, folder: Path, mav: Path, given: str | Path | None) -> Calibration:
    if given is not None:
        return read_calibration(given)
    if any(mav.glob("cam*/sensor.yaml")):
        return read_calibration(mav)
    chains = [one for one in (folder / "dso" / "camchain.yaml", folder / "camchain.yaml") if one.is_file()]
    noise = [folder / "dso" / "imu_config.yaml", mav / "imu0" / "sensor.yaml"]
    noise = [one for one in noise if one.is_file()]
    if not chains:
        raise SequenceError(
            f"{folder}: no calibration. Expected mav0/cam0/sensor.yaml"
            + (" or dso/camchain.yaml" if kind == "tumvi" else "")
            + "; --calibration names a file of Kalibr, OpenVINS or ORB-SLAM3."
        )
    return read_calibration(*chains, *noise[:1])


def _asl_images(camera: Path) -> tuple[np.ndarray, list[Path]]:
    """Stamps [ns] and files of one camera, in order of time; from data.csv, or the names of the files."""
    table = camera / "data.csv"
    if table.is_file():
        lines = [one.strip() for one in table.read_text().splitlines()]
        rows = [one.split(",") for one in lines if one and not one.startswith("#")]
        try:
            pairs = [(int(row[0]), camera / "data" / row[1].strip()) for row in rows]
        except (ValueError, IndexError) as error:
            raise SequenceError(f"{table}: {error}; expected lines of stamp [ns], file name.") from error
    else:
        pairs = [(int(one.stem), one) for one in (camera / "data").glob("*.png") if one.stem.isdigit()]
    pairs = sorted(pairs)
    if len(pairs) < 2:
        raise SequenceError(f"{camera}: {len(pairs)} images, expected data/*.png named by their stamps [ns].")
    return np.array([stamp for stamp, _ in pairs], np.int64), [path for _, path in pairs]


def _asl_truth(mav: Path) -> StateTable | None:
    for name in ("state_groundtruth_estimate0", "mocap0"):
        if (mav / name / "data.csv").is_file():
            return read_states(mav / name / "data.csv")
    return None


# ------------------------------------------------------------------------ KITTI


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
        from graphopt.io.trajectory import read_kitti

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
