"""How far a map is from the truth, after the directions that no measurement knows are taken out.

Alignment: with an IMU position and the turn about gravity (4 directions), without one position and rotation.
The scale is measured apart, by Umeyama's alignment (PAMI 1991), and not taken out. Normalised errors:
e' inv(C) e / dim(e) of keyframes against the first one, with marginal covariances C; 1 is expected.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.errors import GraphOptError
from graphopt.evaluate.report.trajectory import alignment
from graphopt.geometry import SE3, SO3
from slam_bridge.imu import GRAVITY
from slam_bridge.map import Map
from slam_bridge.problems.result import Result
from slam_bridge.vib_problem import Truth

_NORMALISED = 5  # keyframes


def truth_errors(world: Map, truth: Truth, inertial: bool = True) -> dict[str, Any]:
    """Root mean square errors of the keyframes and landmarks that the truth knows, ready for JSON.

    `position_m`, `rotation_deg`, `landmark_median_m`, `scale`; with inertial also `velocity_mps`,
    `gyro_bias_rps`, `acc_bias_mps2`.
    """
    rows = world.keyframes.find(truth.keyframes)
    kept = rows >= 0
    estimates = {name: world.keyframes[name][rows[kept]] for name in _STATES}
    true = {name: getattr(truth, name)[kept] for name in _STATES}
    motion = aligning(estimates["world_T_body"], true["world_T_body"], inertial, world.gravity)
    moved = motion * SE3(estimates["world_T_body"])
    away = np.asarray(moved.translation) - true["world_T_body"][:, :3]
    turned = np.asarray((moved.rotation.inverse() * SO3(true["world_T_body"][:, 3:])).log())
    errors: dict[str, Any] = {
        "keyframes": int(kept.sum()),
        "position_m": _rms(away),
        "position_max_m": float(np.linalg.norm(away, axis=1).max()),
        "rotation_deg": float(np.degrees(_rms(turned))),
        "scale": alignment(estimates["world_T_body"][:, :3], true["world_T_body"][:, :3], "sim3")[0],
    }
    if inertial:
        errors |= {
            "velocity_mps": _rms(np.asarray(motion.rotation.act(estimates["velocity"])) - true["velocity"]),
            "gyro_bias_rps": _rms(estimates["gyro_bias"] - true["gyro_bias"]),
            "acc_bias_mps2": _rms(estimates["acc_bias"] - true["acc_bias"]),
        }
    return {**errors, **_landmark_errors(world, truth, motion)}


_STATES = ("world_T_body", "velocity", "gyro_bias", "acc_bias")


def _landmark_errors(world: Map, truth: Truth, motion: SE3) -> dict[str, Any]:
    rows = world.landmarks.find(truth.landmarks)
    if not (rows >= 0).any():
        return {}
    place = world.landmarks["position"][rows[rows >= 0]]
    finite = np.asarray(np.isfinite(place).all(axis=1))
    points = np.asarray(motion.act(np.where(finite[:, None], place, 0.0)))
    away = np.linalg.norm(points - truth.points[rows >= 0], axis=1)
    away = away[finite]
    if not len(away):
        return {"landmarks": 0}
    return {"landmarks": len(away), "landmark_median_m": float(np.median(away))}


def aligning(estimate: np.ndarray, true: np.ndarray, inertial: bool, gravity: Any = GRAVITY) -> SE3:
    """The motion that brings poses (n, 7) nearest to the true ones: 4 directions, 6 if not inertial."""
    if not inertial and len(estimate) > 2:
        _, rotation, shift = alignment(estimate[:, :3], true[:, :3], "se3")
        return SE3(np.concatenate([shift, np.asarray(SO3.from_matrix(rotation).storage)]))
    down = np.asarray(gravity, float) / np.linalg.norm(gravity)
    a, b = estimate[:, :3] - estimate[:, :3].mean(axis=0), true[:, :3] - true[:, :3].mean(axis=0)
    turn = np.arctan2(np.sum(np.cross(a, b) @ down), np.sum(a * b) - np.sum((a @ down) * (b @ down)))
    rotation = SO3.exp(turn * down)
    shift = true[:, :3].mean(axis=0) - np.asarray(rotation.act(estimate[:, :3].mean(axis=0)))
    return SE3.from_parts(shift, rotation.storage)


def normalised_errors(
    result: Result, truth: Truth, inertial: bool = True, gravity: Any = GRAVITY, held: bool = False
) -> dict[str, Any]:
    """Mean of e' inv(C) e / dim over a few keyframes of a result; None, and why, without covariances.

    held: as of `normalised_squares`.
    """
    ids = result.keyframes.ids
    common = np.flatnonzero(np.isin(ids, truth.keyframes))
    if len(common) < 2:
        return {}
    picked = common[np.unique(np.linspace(0, len(common) - 1, _NORMALISED + 1).round().astype(int))[1:]]
    try:
        squares = normalised_squares(result, truth, ids[picked], inertial, gravity, held)
    except GraphOptError as error:
        return {"normalised": None, "normalised_note": str(error)}
    dim = 15 if inertial else 6
    return {
        "normalised": float(np.mean(squares)) / dim,
        "normalised_keyframes": len(squares),
        "normalised_dim": dim,
    }


def normalised_squares(
    result: Result,
    truth: Truth,
    keyframes: Any,
    inertial: bool = True,
    gravity: Any = GRAVITY,
    held: bool = False,
) -> np.ndarray:
    """e' inv(C) e (k,) of keyframes (ids): chi-square of 15 numbers, of 6 if not inertial, if C is right.

    Errors are those after the truth was moved onto the first keyframe of the result by what no measurement
    knows (4 directions, 6 if not inertial), as the covariances' gauge is. held: a keyframe was fixed, a pose
    measured: nothing is moved. Raises as `Result.covariance`.
    """
    states = result.keyframes
    covariances = result.covariance(keyframes=keyframes)
    rows = np.searchsorted(truth.keyframes, states.ids)
    first = int(np.flatnonzero(np.isin(states.ids, truth.keyframes))[0])
    start = states.world_T_body[first], truth.world_T_body[rows[first]]
    motion = SE3(SE3.identity_storage) if held else _first_motion(*start, inertial, gravity)
    values = []
    for k in np.searchsorted(states.ids, keyframes).tolist():
        pose = motion * SE3(truth.world_T_body[rows[k]])
        between = SE3(states.world_T_body[k]).inverse() * pose
        quaternion = np.asarray(between.storage)[3:]
        error = [between.translation, quaternion[:3] * np.sign(quaternion[3])]
        if inertial:
            error += [
                motion.rotation.act(truth.velocity[rows[k]]) - states.velocity[k],
                truth.gyro_bias[rows[k]] - states.gyro_bias[k],
                truth.acc_bias[rows[k]] - states.acc_bias[k],
            ]
        off = np.concatenate(error)
        covariance = covariances["keyframe", int(states.ids[k])][: len(off), : len(off)]
        values.append(float(off @ np.linalg.solve(covariance, off)))
    return np.array(values)


def _first_motion(estimate: np.ndarray, true: np.ndarray, inertial: bool, gravity: Any) -> SE3:
    """found = motion true for one keyframe: position and the turn about gravity, or the whole pose."""
    whole = SE3(estimate) * SE3(true).inverse()
    if not inertial:
        return whole
    down = np.asarray(gravity, float) / np.linalg.norm(gravity)
    quaternion = np.asarray(whole.storage)[3:]
    rotation = SO3.exp(2.0 * np.arctan2(quaternion[:3] @ down, quaternion[3]) * down)
    return SE3.from_parts(estimate[:3] - np.asarray(rotation.act(true[:3])), rotation.storage)


def _rms(rows: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.sum(rows * rows, axis=1))))
