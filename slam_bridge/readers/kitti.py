"""Sequences of KITTI: odometry, here, and raw (`kitti_raw`).

    sequences/06/{image_0, image_1}/000000.png (grey; else image_2 and image_3, colour), calib.txt, times.txt
    poses/06.txt, or sequences/06/poses.txt

The body is the left grey camera, as of the published poses.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphopt.geometry import SE3
from graphopt.io.trajectory import read_kitti
from slam_bridge.cameras import Rig
from slam_bridge.readers.calibration import read_calibration
from slam_bridge.readers.euroc import StateTable
from slam_bridge.readers.kitti_raw import is_drive, matrix_of, open_drive, projecting, read_lines
from slam_bridge.readers.sequence import Sequence, SequenceError

_PAIRS = (("image_0", "image_1"), ("image_2", "image_3"))


def open_kitti(folder: Path, given: str | Path | None = None) -> Sequence:
    """A sequence of KITTI odometry, or a drive of KITTI raw. given: noise of the latter's IMU, a file."""
    noise = None if given is None else read_calibration(given).noise
    if given is not None and (noise is None or not is_drive(folder)):
        raise SequenceError(
            f"--calibration {given}: KITTI's folders have their calibration with them; only the noise of the "
            "IMU of a drive of KITTI raw may be given."
        )
    return open_drive(folder, noise) if is_drive(folder) else _open_odometry(folder)


def is_odometry(folder: Path) -> bool:
    """Images of a sequence of KITTI odometry are in this folder."""
    return any((folder / left).is_dir() for left, _ in _PAIRS) and (folder / "calib.txt").is_file()


def _open_odometry(folder: Path) -> Sequence:
    times = folder / "times.txt"
    if not times.is_file():
        raise SequenceError(f"{times}: missing; it comes with KITTI's calibration archive.")
    try:
        stamps = np.rint(1e9 * np.loadtxt(times, ndmin=1)).astype(np.int64)
    except ValueError as error:
        raise SequenceError(f"{times}: {error}; expected one time [s] per line.") from None
    pair = next((pair for pair in _PAIRS if (folder / pair[0]).is_dir()), None)
    if pair is None:
        there = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_dir())) or "none"
        raise SequenceError(
            f"{folder}: no folder of images; KITTI calls the left camera's image_0 (grey) or "
            f"image_2 (colour). Folders that are there: {there}."
        )
    names = [name for name in pair if (folder / name).is_dir()]
    rows, paths, notes = _frames(folder, names, len(stamps))
    calibration = folder / "calib.txt"
    lines, body_T_rectified = read_lines(calibration), SE3(np.array(SE3.identity_storage))
    matrices = [matrix_of(lines, f"P{name[-1]}", (3, 4), calibration) for name in names]
    rig = Rig([projecting(matrix, body_T_rectified, f"cam{k}") for k, matrix in enumerate(matrices)])
    name = folder.resolve().name
    return Sequence(name, "kitti", rig, stamps[rows], paths, truth=_truth(folder, name, stamps), notes=notes)


def _frames(
    folder: Path, names: list[str], num_times: int
) -> tuple[np.ndarray, tuple[tuple[Path, ...], ...], tuple[str, ...]]:
    """Rows of times.txt that all cameras have an image of, these images, and what was left out."""
    numbered = [
        {int(path.stem): path for path in (folder / name).glob("*.png") if path.stem.isdigit()}
        for name in names
    ]
    rows = sorted(set.intersection(*(set(numbers) for numbers in numbered)))
    if len(rows) < 2 or rows[-1] >= num_times:
        raise SequenceError(
            f"{folder}: {len(rows)} images of {' and '.join(names)}, numbered up to "
            f"{rows[-1] if rows else 'nothing'}, for {num_times} times in times.txt."
        )
    most = max(len(numbers) for numbers in numbered)
    notes = (
        (f"{most - len(rows)} of {most} images have none of the other camera",) if most > len(rows) else ()
    )
    return np.array(rows), tuple(tuple(numbers[row] for numbers in numbered) for row in rows), notes


def _truth(folder: Path, name: str, stamps: np.ndarray) -> StateTable | None:
    places = (folder.resolve().parent.parent / "poses" / f"{name}.txt", folder / "poses.txt")
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        return None
    poses = read_kitti(file)[: len(stamps)]
    return StateTable(stamps[: len(poses)], poses, None, None, None)
