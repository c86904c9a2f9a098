"""Ground truth of a sequence as a trajectory: a file that the user names, or one in $GRAPHOPT_DATA."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from graphopt.errors import FormatError
from graphopt.evaluate.datasets.registry import data_folders
from graphopt.io.files import read_bytes
from slam_bridge.generator.characters import Character, plain_name
from slam_bridge.generator.trajectory import Trajectory, TrajectoryError
from slam_bridge.readers import read_states

_IN_FOLDER = ("state_groundtruth_estimate0/data.csv", "mocap0/data.csv", "gt/data.csv")
_TRUTH_NAME = re.compile(r"(gt|groundtruth)(_tum)?\.(csv|txt)(\.(xz|gz|bz2))?$", re.IGNORECASE)


def read_truth(path: str | os.PathLike[str], knot_spacing: float | None = None) -> Trajectory:
    """Trajectory through a truth: EuRoC's or TUM-VI's .csv, TUM's text, or a folder mav0 that has one."""
    file = Path(path)
    if file.is_dir():
        inside = [file / base / name for base in ("", "mav0") for name in _IN_FOLDER]
        file = next((path for path in inside if path.exists()), file)
        if file.is_dir():
            raise FormatError(f"{path}: has none of {', '.join(_IN_FOLDER)}, here or in mav0.")
    stamps, poses = _poses(file)
    try:
        return Trajectory.fit(stamps, poses, knot_spacing, str(file))
    except TrajectoryError as error:
        raise FormatError(f"{file}: {error}") from error


def find_truth(character: Character) -> Path | None:
    """A ground truth of the sequence below the folders of $GRAPHOPT_DATA; None if there is none."""
    plain = plain_name(character.name)
    for root in data_folders():
        for folder, folders, files in os.walk(root):
            folders.sort()
            if plain_name(Path(folder).name) == plain:
                inside = [Path(folder, base, name) for base in ("", "mav0") for name in _IN_FOLDER]
                if present := [path for path in inside if path.exists()]:
                    return present[0]
            for name in sorted(files):
                if _TRUTH_NAME.search(name) and plain_name(_TRUTH_NAME.sub("", name)) == plain:
                    return Path(folder, name)
    return None


def _poses(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Stamps (n,) int64 [ns] and poses (n, 7)."""
    lines = [line for line in read_bytes(path).splitlines() if line.strip() and not line.startswith(b"#")]
    if lines and b"," in lines[0]:
        states = read_states(path)
        stamps, poses = states.stamps, states.world_T_body
    else:
        stamps, poses = _tum(path, lines)
    ascending = np.concatenate([[True], np.diff(stamps) > 0]) if len(stamps) else np.zeros(0, bool)
    return stamps[ascending], poses[ascending]


def _tum(path: Path, lines: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Of TUM's text: seconds x y z qx qy qz qw. Seconds are read by digits: float64 has 0.2 us of them."""
    stamps, poses = [], []
    for number, line in enumerate(lines, 1):
        words = line.split()
        try:
            seconds, _, rest = words[0].decode().partition(".")
            stamps.append(int(seconds) * 10**9 + int((rest + "000000000")[:9]))
            poses.append([float(word) for word in words[1:8]])
            if len(words) < 8:
                raise ValueError("fewer than eight columns")
        except (ValueError, IndexError) as error:
            raise FormatError(
                f"{path}: pose {number} is {line[:80]!r} ({error}); expected TUM's columns: seconds x y z "
                "qx qy qz qw, or EuRoC's .csv."
            ) from error
    return np.array(stamps, np.int64), np.array(poses, float).reshape(-1, 7)
