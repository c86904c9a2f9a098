"""Errors of trajectories, equal to evo's: association by time, alignment, absolute and relative errors.

    ATE: |s_i - A t_i| of positions after the alignment A (Umeyama 1991; "yaw": rotation about z, translation)
    RPE: (S_i^-1 S_j)^-1 (T_i^-1 T_j) of pairs (i, j), `delta` frames, metres along the path or seconds apart

evo is the reference: github.com/MichaelGrupp/evo, modules core.sync, core.metrics, core.filters.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import FormatError, OptionError
from graphopt.eval.runner import Unit
from graphopt.geometry import SE3, SO3
from graphopt.report.trajectory import alignment

Array = NDArray[np.float64]
Alignment = Literal["none", "se3", "sim3", "yaw"]
ALIGNMENTS: tuple[Alignment, ...] = ("se3", "sim3", "yaw", "none")
DELTA_UNITS = ("frames", "m", "s")


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


@dataclass(frozen=True)
class Errors:
    """Errors of an estimate against its truth."""

    times: Array
    """(n,) [s] of the matched poses."""
    absolute: Array
    """(n,) [m] position errors after the alignment."""
    aligned: Array
    """(n, 7) the estimate in the truth's frame."""
    truth: Array
    """(n, 7)"""
    relative_translation: Array
    """(p,) [m]"""
    relative_rotation: Array
    """(p,) [rad]"""
    scale: float
    """Of the alignment; 1 unless it is "sim3"."""
    path_length: float
    """[m] of the matched truth."""
    alignment: tuple[float, Array, Array]
    """Scale, rotation (3, 3), translation (3,) that took the estimate to `aligned`."""

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
    """Poses of both that are nearest to each other in time [s], found as evo's sync does."""
    is_estimate_shorter = len(estimate) <= len(truth)
    short, long = (estimate, truth) if is_estimate_shorter else (truth, estimate)
    if len(long) == 0 or len(short) == 0:
        raise OptionError("A trajectory is empty, there is nothing to compare.")
    right = np.clip(np.searchsorted(long.times, short.times), 1, max(len(long) - 1, 1))
    left, right = right - 1, np.minimum(right, len(long) - 1)
    gaps = np.abs(long.times[left] - short.times), np.abs(long.times[right] - short.times)
    nearest = np.where(gaps[0] <= gaps[1], left, right)
    matched = np.minimum(*gaps) <= tolerance
    if not matched.any():
        spans = [
            f"{trajectory.times[0]:.6f} to {trajectory.times[-1]:.6f} s" for trajectory in (estimate, truth)
        ]
        raise OptionError(
            f"No pose of the estimate ({spans[0]}) is within {tolerance} s of one of the truth ({spans[1]}). "
            "Are both in seconds of the same clock? --max-time-difference allows larger gaps."
        )
    matches = short.rows(np.flatnonzero(matched)), long.rows(nearest[matched])
    return matches if is_estimate_shorter else (matches[1], matches[0])


def compare(
    estimate: Trajectory,
    truth: Trajectory,
    *,
    align: Alignment = "se3",
    delta: float = 1.0,
    delta_unit: str = "frames",
    tolerance: float = 0.01,
) -> Errors:
    """Match by time, align, and take absolute and relative errors.

    align: "se3", "sim3", "yaw" (rotation about z, for estimates whose gravity is observed), "none".
    delta, delta_unit: how far the ends of a relative error are apart: "frames", "m" along the aligned
    estimate, "s".
    """
    matched, reference = associate(estimate, truth, tolerance)
    if align not in ALIGNMENTS:
        raise OptionError(f"align is '{align}', expected one of {', '.join(ALIGNMENTS)}.")
    if len(matched) < 3 and align != "none":
        raise OptionError(f"Only {len(matched)} poses match, 3 are needed for an alignment.")
    scale, rotation, shift = _alignment(matched.world_T_body[:, :3], reference.world_T_body[:, :3], align)
    aligned = np.empty_like(matched.world_T_body)
    aligned[:, :3] = scale * matched.world_T_body[:, :3] @ rotation.T + shift
    aligned[:, 3:] = np.asarray((SO3.from_matrix(rotation) * SO3(matched.world_T_body[:, 3:])).storage)
    first, second = _pairs(matched.times, aligned[:, :3], delta, delta_unit)
    error = _steps(reference.world_T_body, first, second).inverse() * _steps(aligned, first, second)
    return Errors(
        times=matched.times,
        absolute=np.linalg.norm(aligned[:, :3] - reference.world_T_body[:, :3], axis=1),
        aligned=aligned,
        truth=reference.world_T_body,
        relative_translation=np.linalg.norm(np.asarray(error.translation), axis=-1),
        relative_rotation=np.linalg.norm(np.asarray(SO3(error.quaternion).log()), axis=-1),
        scale=scale,
        path_length=reference.path_length,
        alignment=(scale, rotation, shift),
    )


def _alignment(source: Array, target: Array, kind: Alignment) -> tuple[float, Array, Array]:
    if kind != "yaw":
        return alignment(source, target, kind)
    from_mean, to_mean = source.mean(axis=0), target.mean(axis=0)
    covariance = (target - to_mean).T @ (source - from_mean)
    # argmin over the angle of sum |t_i - Rz s_i|^2, in closed form
    angle = np.arctan2(covariance[1, 0] - covariance[0, 1], covariance[0, 0] + covariance[1, 1])
    rotation = np.asarray(SO3.exp(np.array([0.0, 0.0, angle])).to_matrix())
    return 1.0, rotation, to_mean - rotation @ from_mean


def _pairs(times: Array, positions: Array, delta: float, unit: str) -> tuple[NDArray, NDArray]:
    """Rows of the two ends of each relative error: consecutive pairs, as evo without all_pairs."""
    if unit not in DELTA_UNITS:
        raise OptionError(f"The unit of delta is '{unit}', expected one of {', '.join(DELTA_UNITS)}.")
    if not delta > 0.0:
        raise OptionError(f"delta is {delta}, must be > 0.")
    if unit == "frames":
        places = np.arange(0, len(times), max(int(delta), 1))
    else:
        places = _milestones(positions, delta) if unit == "m" else _instants(times, delta)
    if len(places) < 2:
        raise OptionError(f"No two of {len(times)} poses are {delta:g} {unit} apart; choose a smaller delta.")
    return places[:-1], places[1:]


def _milestones(positions: Array, delta: float) -> NDArray[np.int64]:
    """First rows at which `delta` metres more have been passed."""
    places, passed = [0], 0.0
    for row, step in enumerate(np.linalg.norm(np.diff(positions, axis=0), axis=1), start=1):
        passed += step
        if passed >= delta:
            places.append(row)
            passed = 0.0
    return np.array(places)


def _instants(times: Array, delta: float) -> NDArray[np.int64]:
    """First rows at which `delta` seconds more have passed."""
    places = [0]
    while (after := int(np.searchsorted(times, times[places[-1]] + delta))) < len(times):
        places.append(after)
    return np.array(places)


def _steps(poses: Array, first: NDArray, second: NDArray) -> SE3:
    return SE3(poses[first]).inverse() * SE3(poses[second])


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
    from graphopt.io.trajectory import read_kitti, read_tum

    first = _first_line(Path(path))
    if len(first.replace(",", " ").split()) == 12:
        poses = read_kitti(path)
        return Trajectory(np.arange(len(poses), dtype=float), poses)
    if "," in first and len(first.split(",")) >= 8:
        return _euroc(Path(path))
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


def _euroc(path: Path) -> Trajectory:
    """EuRoC: time [ns], position, quaternion w x y z, then what else is known of the state."""
    from graphopt.io.files import read_bytes
    from graphopt.io.numbers import RaggedRows

    data = read_bytes(path)
    columns = len(_first_line(path).split(","))
    table = RaggedRows(data, str(path), separator=",").matrix(
        columns, "time [ns], x, y, z, qw, qx, qy, qz, ..."
    )
    poses = table[:, [1, 2, 3, 5, 6, 7, 4]]
    poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
    return Trajectory(table[:, 0] * 1e-9, poses)


def units(paths: dict[str, Path], truth: Path, options: dict[str, Any]) -> list[Unit]:
    """One unit per estimate."""
    return [
        Unit(
            name,
            "graphopt.eval.trajectories:evaluate",
            {"name": name, "path": str(path), "truth": str(truth), "options": options},
        )
        for name, path in paths.items()
    ]


def evaluate(name: str, path: str, truth: str, options: dict[str, Any]) -> dict[str, Any]:
    """The entry of one trajectory file against a file of truth."""
    estimate, reference = load(path), load(truth)
    errors = compare(estimate, reference, **options)
    return {
        "trajectory": name,
        "poses": len(estimate),
        **errors.statistics(),
        "curve": curve(errors),
    }


def curve(errors: Errors, most: int = 2000, body_R_cam: Array | None = None) -> dict[str, Any]:
    """Aligned estimate, truth and absolute errors for drawing, of `most` poses.

    body_R_cam: (4,) quaternion of a camera on the body; then `world_R_cam` says where it looked.
    """
    rows = np.unique(np.linspace(0, len(errors.times) - 1, min(most, len(errors.times))).astype(int))
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
