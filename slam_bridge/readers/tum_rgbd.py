"""Sequences of TUM RGB-D (Sturm et al., IROS 2012) and folders of the same layout.

    rgb.txt, depth.txt     time [s], file; depth images have 16 bits, 5000 per metre
    groundtruth.txt        time [s], tx ty tz qx qy qz qw of the colour camera

Colour and depth images are not taken together: to each colour image belongs the nearest depth image within
20 ms, as the data set's associate.py has it. The body is the camera.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphopt.geometry import SE3
from slam_bridge.cameras import Camera, Rig
from slam_bridge.readers.calibration import read_calibration
from slam_bridge.readers.euroc import StateTable
from slam_bridge.readers.sequence import Sequence, SequenceError

_CAMERAS = {
    "freiburg1": (517.3, 516.5, 318.6, 255.3, 0.2624, -0.9531, -0.0054, 0.0026, 1.1633),
    "freiburg2": (520.9, 521.0, 325.1, 249.7, 0.2312, -0.7849, -0.0033, -0.0001, 0.9172),
    "freiburg3": (535.4, 539.2, 320.1, 247.6, 0.0, 0.0, 0.0, 0.0, 0.0),
}
"""fx fy cx cy k1 k2 p1 p2 k3 as the data set's page on file formats lists them."""
_PER_METRE = 5000.0
_FARTHEST = 20_000_000


def is_tum_rgbd(folder: Path) -> bool:
    """The folder has lists of colour and depth images."""
    return (folder / "rgb.txt").is_file() and (folder / "depth.txt").is_file()


def open_tum_rgbd(folder: Path, calibration: str | Path | None = None) -> Sequence:
    """A sequence; calibration: a file, for folders that are none of the data set's."""
    name = folder.resolve().name
    stamps, paths = _listed(folder / "rgb.txt")
    depth_stamps, depth_paths = _listed(folder / "depth.txt")
    place = np.clip(np.searchsorted(depth_stamps, stamps), 1, max(len(depth_stamps) - 1, 1))
    pair = np.stack([place - 1, np.minimum(place, len(depth_stamps) - 1)])
    off = np.abs(depth_stamps[pair] - stamps)
    rows = np.take_along_axis(pair, off.argmin(axis=0)[None], axis=0)[0]
    near = off.min(axis=0) <= _FARTHEST
    alone = int((~near).sum())
    return Sequence(
        name,
        "tum-rgbd",
        _rig(name, calibration),
        stamps,
        tuple((path,) for path in paths),
        truth=_truth(folder / "groundtruth.txt"),
        depth_paths=tuple(
            depth_paths[row] if has else None for row, has in zip(rows.tolist(), near.tolist(), strict=True)
        ),
        depth_per_metre=_PER_METRE,
        notes=(f"{alone} of {len(stamps)} images have no depth image within 20 ms",) if alone else (),
    )


def _rig(name: str, calibration: str | Path | None) -> Rig:
    if calibration is not None:
        rig = read_calibration(calibration).rig
        if rig is None:
            raise SequenceError(f"{calibration}: has no camera.")
        return Rig([rig[0]])
    known = [numbers for key, numbers in _CAMERAS.items() if key in name]
    if not known:
        raise SequenceError(
            f"{name}: which camera is this? Its name has none of {', '.join(_CAMERAS)}; --calibration "
            f"names a file."
        )
    identity = np.array(SE3.identity_storage, float)
    return Rig([Camera(identity, "radtan", np.array(known[0]), resolution=(640, 480))])


def _listed(table: Path) -> tuple[np.ndarray, list[Path]]:
    found = []
    for number, line in enumerate(table.read_text().splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        try:
            found.append((round(1e9 * float(words[0])), table.parent / words[1]))
        except (ValueError, IndexError):
            raise SequenceError(
                f"{table}, line {number}: {line[:60]!r}; expected a time [s] and a file."
            ) from None
    if len(found) < 2:
        raise SequenceError(f"{table}: lists {len(found)} images.")
    found.sort(key=lambda item: item[0])
    return np.array([stamp for stamp, _ in found], np.int64), [path for _, path in found]


def _truth(table: Path) -> StateTable | None:
    if not table.is_file():
        return None
    try:
        rows = np.loadtxt(table, ndmin=2)
        stamps, poses = np.rint(1e9 * rows[:, 0]).astype(np.int64), rows[:, 1:8].copy()
        poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
    except (ValueError, IndexError) as error:
        raise SequenceError(
            f"{table}: {error}; expected a time [s] and 7 numbers of a pose per line."
        ) from None
    return StateTable(stamps, poses, None, None, None)
