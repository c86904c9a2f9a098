"""Ground truth of a sequence as a trajectory: a file that the user names, or one in $GRAPHOPT_DATA."""

from __future__ import annotations

import os
import re
from decimal import Decimal
from pathlib import Path

import numpy as np

from graphopt.errors import FormatError
from graphopt.evaluate.datasets.registry import data_folders
from graphopt.io import read_tum
from graphopt.io.files import read_bytes
from slam_bridge.generator.characters import Character, plain_name
from slam_bridge.generator.trajectory import Trajectory, TrajectoryError
from slam_bridge.readers import read_states

_IN_FOLDER = ("state_groundtruth_estimate0/data.csv", "mocap0/data.csv", "gt/data.csv")
_TRUTH_NAME = re.compile(r"(gt|groundtruth)(_tum)?\.(csv|txt)(\.(xz|gz|bz2))?$", re.IGNORECASE)


def read_truth(path: str | os.PathLike[str]) -> Trajectory:
    """Trajectory through a truth: EuRoC's or TUM-VI's .csv, TUM's text, or a folder mav0 that has one."""
    file = Path(path)
    if file.is_dir():
        inside = [file / base / name for base in ("", "mav0") for name in _IN_FOLDER]
        file = next((path for path in inside if path.exists()), file)
        if file.is_dir():
            raise FormatError(f"{path}: has none of {', '.join(_IN_FOLDER)}, here or in mav0.")
    stamps, poses = _poses(file)
    try:
        return Trajectory.fit(stamps, poses, source=str(file))
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
    lines = [line for line in map(bytes.strip, read_bytes(path).splitlines()) if line[:1] not in (b"", b"#")]
    if lines and b"," in lines[0]:
        states = read_states(path)
        stamps, poses = states.stamps, states.world_T_body
    else:
        _, poses = read_tum(path)  # whose seconds in float64 have 0.2 us
        nanoseconds = [Decimal(line.split()[0].decode()) * 10**9 for line in lines]
        stamps = np.array(list(map(int, nanoseconds)), np.int64)
    ascending = np.concatenate([[True], np.diff(stamps) > 0]) if len(stamps) else np.zeros(0, bool)
    return stamps[ascending], poses[ascending]
