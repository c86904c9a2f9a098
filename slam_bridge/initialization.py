"""Where down is, how long a metre is, velocities and biases, for a map of poses: inertial-only optimization.

A monocular map has poses in a frame and a unit of its own. With the poses held, the IMU's measurements give
(Campos et al., Inertial-Only Optimization for Visual-Inertial Initialization, ICRA 2020)

    gravity direction R_g (2), scale s (1), velocity of each keyframe (3 each), one pair of biases (6)

The positions must be those of the body's origin, in the map's unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import graphopt
from graphopt.geometry import SE3, SO3
from slam_bridge.arrays import Keyframes, WindowError
from slam_bridge.imu import GRAVITY
from slam_bridge.preintegration import Preintegrated

_DIRECTION, _SCALE, _GYRO, _ACC, _FIRST = range(5)  # vertex ids; poses and velocities follow


@dataclass(frozen=True, eq=False)
class InertialStart:
    """What `initialize` found."""

    world_R_map: np.ndarray
    """(4,) rotation from the map's frame to a world with z up; its yaw is arbitrary."""
    scale: float
    """Metres per unit of the map."""
    keyframes: Keyframes
    """States in metres in the world with z up, whose origin is the map's."""
    summary: graphopt.Summary
    """Of the last optimization."""


def initialize(
    map_T_body: Any,
    imu: Sequence[Preintegrated],
    *,
    with_scale: bool = True,
    gyro_bias_sigma: float = 0.1,
    acc_bias_sigma: float = 0.1,
    max_rounds: int = 4,
) -> InertialStart:
    """Start from poses (n, 7) and the (n - 1) measurements between them.

    with_scale: False where the map is in metres (stereo). The sigmas [rad/s, m/s^2] are priors about zero.
    """
    poses = np.array(map_T_body, dtype=float)
    if poses.ndim != 2 or poses.shape[1] != 7 or len(poses) < 3 or len(imu) != len(poses) - 1:
        raise WindowError(
            f"initialize got poses of shape {poses.shape} and {len(imu)} measurements, expected (n, 7) with "
            "n >= 3 and n - 1 measurements."
        )
    sigmas = gyro_bias_sigma, acc_bias_sigma
    direction = _first_direction(poses, imu)
    for _ in range(max_rounds):
        graph = _graph(poses, imu, direction, with_scale, sigmas)
        summary = graphopt.optimize(graph, fix="none", max_iterations=200)
        direction = graph.vertex(_DIRECTION).estimate.copy()
        biases = graph.vertex(_GYRO).estimate.copy(), graph.vertex(_ACC).estimate.copy()
        if not summary.is_usable or not any(one.is_far(*biases, 1e-3, 1e-2) for one in imu):
            break
        imu = [one.reintegrated(*biases) for one in imu]
    scale = float(graph.vertex(_SCALE).estimate[0])
    velocity = graph.vertex_set("VERTEX_IMU_VELOCITY").estimate.copy()
    return _in_metres(poses, velocity, direction, scale, biases, summary)


def _graph(
    poses: np.ndarray,
    imu: Sequence[Preintegrated],
    direction: np.ndarray,
    with_scale: bool,
    sigmas: tuple[float, float],
) -> graphopt.Graph:
    graph, n = graphopt.Graph(), len(poses)
    graph.add_vertices("VERTEX_IMU_GRAVITY_DIRECTION", [_DIRECTION], [direction])
    graph.add_vertices("VERTEX_IMU_SCALE", [_SCALE], [[1.0]], fixed=not with_scale)
    graph.add_vertices("VERTEX_IMU_GYRO_BIAS", [_GYRO], [imu[0].gyro_bias])
    graph.add_vertices("VERTEX_IMU_ACC_BIAS", [_ACC], [imu[0].acc_bias])
    pose_ids = _FIRST + np.arange(n)
    graph.add_vertices("VERTEX_SE3:QUAT", pose_ids, poses, fixed=True)
    seconds = np.array([one.dt for one in imu])
    way = np.diff(poses[:, :3], axis=0) / seconds[:, None]
    graph.add_vertices("VERTEX_IMU_VELOCITY", n + pose_ids, np.concatenate([way, way[-1:]]))
    i, j = pose_ids[:-1], pose_ids[1:]
    shared = [np.full(n - 1, one) for one in (_GYRO, _ACC, _DIRECTION, _SCALE)]
    graph.add_edges(
        "EDGE_IMU_INERTIAL_GRAVITY_SCALE",
        np.stack([i, n + i, shared[0], shared[1], j, n + j, shared[2], shared[3]], axis=1),
        np.stack([one.measurement(GRAVITY) for one in imu]),
        np.stack([one.information for one in imu]),
    )
    for tag, vertex, sigma in zip(
        ("EDGE_IMU_GYRO_BIAS_PRIOR", "EDGE_IMU_ACC_BIAS_PRIOR"), (_GYRO, _ACC), sigmas, strict=True
    ):
        graph.add_edges(tag, [[vertex]], [np.zeros(3)], np.eye(3) / sigma**2)
    return graph


def _first_direction(poses: np.ndarray, imu: Sequence[Preintegrated]) -> np.ndarray:
    """Rotation that turns down onto minus the mean specific force: it is mostly gravity's."""
    pushes = [SE3(pose).rotation.act(one.delta_velocity) for pose, one in zip(poses[:-1], imu, strict=True)]
    down = -np.sum(pushes, axis=0)
    down /= np.linalg.norm(down)
    axis = np.cross([0.0, 0.0, -1.0], down)
    sine, cosine = np.linalg.norm(axis), -down[2]
    unit = axis / sine if sine > 1e-9 else np.array([1.0, 0.0, 0.0])
    return np.asarray(SO3.exp(unit * np.arctan2(sine, cosine)).storage)


def _in_metres(
    poses: np.ndarray,
    velocity: np.ndarray,
    map_R_world: np.ndarray,
    scale: float,
    biases: tuple[np.ndarray, np.ndarray],
    summary: graphopt.Summary,
) -> InertialStart:
    """Convert poses and velocities of the map (map_T_body, its unit) to world_T_body in metres, z up."""
    turn = SO3(map_R_world).inverse()
    rotation = turn * SE3(poses).rotation
    placed = np.concatenate([scale * turn.act(poses[:, :3]), rotation.storage], axis=1)
    frames = Keyframes.start(placed, scale * turn.act(velocity), *biases)
    return InertialStart(np.asarray(turn.storage), scale, frames, summary)
