"""Folders of image sequences as their archives unpack: EuRoC, TUM-VI (exported 512), KITTI odometry and raw.

    EuRoC    MH_01_easy/mav0/cam0/data/*.png, data.csv, sensor.yaml, imu0, state_groundtruth_estimate0
    TUM-VI   dataset-room1_512_16/mav0 with the same files, mocap0 as truth, dso/camchain.yaml, dso/imu_config
    KITTI    sequences/06/image_0, calib.txt, times.txt, and poses/06.txt;
             raw: 2011_09_30/2011_09_30_drive_0020_sync/image_00/data, with calib_cam_to_cam.txt beside it

`find_sequences` lists what lies below a root; `Sequence.images` loads one frame. The body is the IMU's frame,
of KITTI odometry the left camera's.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from graphopt.errors import OptionError
from slam_bridge.readers.asl import IMAGES, open_asl
from slam_bridge.readers.kitti import is_odometry, open_kitti
from slam_bridge.readers.kitti_raw import is_drive
from slam_bridge.readers.sequence import Sequence, SequenceError

KINDS = ("euroc", "tumvi", "kitti")


def find_sequences(kind: str, root: str | Path, names: Iterable[str] | None = None) -> dict[str, Path]:
    """Folders of sequences at or below a root, by name; `names` chooses some ("MH_01" is "MH_01_easy").

    Raises `SequenceError` where there are none, or a name is not among them.
    """
    root = Path(root)
    if kind not in KINDS:
        raise OptionError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}.")
    if not root.is_dir():
        raise SequenceError(f"{root}: no such folder.")
    folders = (_find_kitti if kind == "kitti" else _find_asl)(root)
    if not folders:
        packed = sorted(path.name for path in root.iterdir() if path.name.endswith(_PACKED))
        hint = f" Unpack {', '.join(packed[:3])} there first." if packed else ""
        raise SequenceError(f"{root}: holds no sequence of {kind}. Expected {_EXPECTED[kind]}.{hint}")
    if names is None:
        return folders
    chosen: dict[str, Path] = {}
    for name in names:
        fits = [sequence for sequence in folders if sequence == name] or [
            sequence for sequence in folders if name in sequence
        ]
        if len(fits) != 1:
            several = f"fits {', '.join(fits)}" if fits else f"is not among {', '.join(folders)}"
            raise SequenceError(f"{root}: sequence {name!r} {several}.")
        chosen[fits[0]] = folders[fits[0]]
    return chosen


_PACKED = (".zip", ".tar", ".tar.gz", ".tgz", ".bag")
_EXPECTED = {
    "euroc": "folders such as MH_01_easy with mav0/cam0/data.csv in them, at most three levels below",
    "tumvi": "folders such as dataset-room1_512_16 with mav0/cam0/data.csv in them",
    "kitti": "sequences/00 to 21 with image_0, calib.txt, times.txt, or DATE_drive_NNNN_sync with image_00",
}


def _find_asl(root: Path) -> dict[str, Path]:
    if root.name == "mav0":
        root = root.parent
    folders = {}
    for pattern in ("mav0", "*/mav0", "*/*/mav0", "*/*/*/mav0"):
        for path in sorted(root.glob(pattern)):
            if (path / "cam0").is_dir():
                folders.setdefault(path.parent.resolve().name, path.parent)
    for pattern in ("cam0", "*/cam0", "*/*/cam0"):  # extracted from bags by Kalibr
        for each_path in sorted(root.glob(pattern)):
            if each_path.parent.name != "mav0" and any(
                path.suffix.lower() in IMAGES for path in each_path.iterdir()
            ):
                folders.setdefault(each_path.parent.resolve().name, each_path.parent)
    return folders


def _find_kitti(root: Path) -> dict[str, Path]:
    found = {}
    for folders in ([root], *(sorted(root.glob(pattern)) for pattern in ("*", "*/*", "*/*/*"))):
        for folder in folders:
            if is_odometry(folder) or is_drive(folder):
                found.setdefault(folder.resolve().name, folder)
    return found


def open_sequence(kind: str, folder: str | Path, calibration: str | Path | None = None) -> Sequence:
    """Read calibration, stamps, IMU and truth of a folder that `find_sequences` names."""
    folder = Path(folder)
    return open_kitti(folder, calibration) if kind == "kitti" else open_asl(kind, folder, calibration)
