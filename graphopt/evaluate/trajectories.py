"""Trajectories in files and their errors, which `report.trajectory` defines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import FormatError, OptionError
from graphopt.evaluate.report.trajectory import PoseErrors, compare_poses, match_by_time
from graphopt.evaluate.runner import Unit
from graphopt.geometry import SO3
from graphopt.option_names import ALIGNMENTS, DELTA_UNITS, Alignment

__all__ = [
    "ALIGNMENTS",
    "DELTA_UNITS",
    "Errors",
    "Trajectory",
    "associate",
    "compare",
    "curve",
    "load",
    "units",
]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Trajectory:
    """Poses over time."""

    times: Array
    """(n,) [s], ascending."""
    world_T_body: Array
    """(n, 7) x y z qx qy qz qw."""

    def __post_init__(self) -> None:
        if len(self.times) != len(self.world_T_body):
            raise FormatError(f"{len(self.times)} times for {len(self.world_T_body)} poses.")

    def __len__(self) -> int:
        return len(self.times)

    @property
    def path_length(self) -> float:
        """Length [m]."""
        return float(np.linalg.norm(np.diff(self.world_T_body[:, :3], axis=0), axis=1).sum())

    def rows(self, chosen: NDArray[np.int64]) -> Trajectory:
        """Some of the poses."""
        return Trajectory(self.times[chosen], self.world_T_body[chosen])


@dataclass(frozen=True, eq=False)
class Errors(PoseErrors):
    """Errors of an estimate against its truth."""

    times: Array
    """(n,) [s] of the matched poses."""
    truth: Array
    """(n, 7)"""
    path_length: float
    """[m] of the matched truth."""

    @property
    def scale(self) -> float:
        """Of the alignment; 1 unless it is "sim3"."""
        return self.alignment[0]

    def statistics(self) -> dict[str, Any]:
        """For results.json; the names are evo's with their unit."""
        return {
            "matched_poses": len(self.times),
            "path_length_m": self.path_length,
            "scale": self.scale,
            **{f"ate_{name}_m": value for name, value in _statistics(self.absolute).items()},
            "rpe": {
                "translation_m": _statistics(self.relative_translation),
                "rotation_deg": _statistics(np.degrees(self.relative_rotation)),
                "pairs": len(self.relative_translation),
            },
        }


def associate(
    estimate: Trajectory, truth: Trajectory, tolerance: float = 0.01
) -> tuple[Trajectory, Trajectory]:
    """Poses of both that are nearest to each other in time [s]; see `match_by_time`."""
    if len(truth) == 0 or len(estimate) == 0:
        raise OptionError("A trajectory is empty, there is nothing to compare.")
    rows, others = match_by_time(estimate.times, truth.times, tolerance)
    if not len(rows):
        spans = [
            f"{trajectory.times[0]:.6f} to {trajectory.times[-1]:.6f} s" for trajectory in (estimate, truth)
        ]
        raise OptionError(
            f"No pose of the estimate ({spans[0]}) is within {tolerance} s of one of the truth ({spans[1]}). "
            "Are both in seconds of the same clock? --max-time-difference allows larger gaps."
        )
    return estimate.rows(rows), truth.rows(others)


def compare(
    estimate: Trajectory,
    truth: Trajectory,
    *,
    align: Alignment = "se3",
    delta: float = 1.0,
    delta_unit: str = "frames",
    tolerance: float = 0.01,
) -> Errors:
    """Match by time, align, and take absolute and relative errors; options as of `compare_poses`."""
    matched, reference = associate(estimate, truth, tolerance)
    if len(matched) < 3 and align != "none":
        raise OptionError(f"Only {len(matched)} poses match, 3 are needed for an alignment.")
    errors = compare_poses(
        matched.world_T_body,
        reference.world_T_body,
        align=align,
        delta=delta,
        delta_unit=delta_unit,
        times=matched.times,
    )
    return Errors(
        **vars(errors),
        times=matched.times,
        truth=reference.world_T_body,
        path_length=reference.path_length,
    )


def _statistics(values: Array) -> dict[str, float]:
    return {
        "rmse": float(np.sqrt(np.mean(values**2))),
        "mean": float(values.mean()),
        "median": float(np.median(values)),
        "std": float(values.std()),
        "min": float(values.min()),
        "max": float(values.max()),
    }


def load(path: str | Path) -> Trajectory:
    """Read TUM, KITTI (times are row numbers) or EuRoC's `data.csv` of states; `FormatError` otherwise."""
    from graphopt.io.trajectory import read_euroc, read_kitti, read_tum

    first = _first_line(Path(path))
    if len(first.replace(",", " ").split()) == 12:
        poses = read_kitti(path)
        return Trajectory(np.arange(len(poses), dtype=float), poses)
    if "," in first and len(first.split(",")) >= 8:
        stamps, poses, _ = read_euroc(path)
        return Trajectory(stamps * 1e-9, poses)
    times, poses = read_tum(path)
    order = np.argsort(times, kind="stable")
    return Trajectory(times[order], poses[order])


def _first_line(path: Path) -> str:
    from graphopt.io.files import read_bytes

    lines = (line.strip() for line in read_bytes(path).decode("utf-8", "replace").splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), None)
    if first is None:
        raise FormatError(f"{path}: no pose in it. Expected TUM, KITTI or EuRoC's states.")
    return first


def units(paths: dict[str, Path], truth: Path, options: dict[str, Any]) -> list[Unit]:
    """One unit per estimate."""
    return [
        Unit(
            name,
            "graphopt.evaluate.trajectories:evaluate",
            {"name": name, "path": str(path), "truth": str(truth), "options": options},
        )
        for name, path in paths.items()
    ]


def evaluate(name: str, path: str, truth: str, options: dict[str, Any]) -> dict[str, Any]:
    """The entry of one trajectory file against a file of truth."""
    estimate, reference = load(path), load(truth)
    try:
        errors = compare(estimate, reference, **options)
    except OptionError as error:
        raise OptionError(f"{path} against {truth}: {error}") from error
    return {
        "trajectory": name,
        "poses": len(estimate),
        **errors.statistics(),
        "curve": curve(errors),
    }


def curve(errors: Errors, body_R_cam: Array | None = None) -> dict[str, Any]:
    """Aligned estimate, truth and absolute errors for drawing, of 2,000 poses at most.

    body_R_cam: (4,) quaternion of a camera on the body; then `world_R_cam` says where it looked.
    """
    rows = np.unique(np.linspace(0, len(errors.times) - 1, min(2000, len(errors.times))).astype(int))
    looks = {}
    if body_R_cam is not None:
        mounted = SO3(errors.aligned[rows, 3:]) * SO3(np.tile(body_R_cam, (len(rows), 1)))
        looks = {"world_R_cam": np.asarray(mounted.storage).round(6).tolist()}
    return {
        **looks,
        "times_s": (errors.times[rows] - errors.times[0]).round(6).tolist(),
        "estimate": errors.aligned[rows, :3].round(6).tolist(),
        "truth": errors.truth[rows, :3].round(6).tolist(),
        "error_m": errors.absolute[rows].round(6).tolist(),
    }
