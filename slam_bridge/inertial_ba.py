"""Visual-inertial bundle adjustment of a window of keyframes.

State of keyframe k: pose world_T_body (body: the IMU's frame), velocity in the world, biases in the body.
Edges:

    EdgeInertial                  k, k + 1        preintegrated samples between them
    Edge{Gyro,Acc}RandomWalk      k, k + 1        variance density^2 dt
    EdgeSE3PointXYZDisparity      k, landmark     (u, v, 1/z) in a camera mounted on the body
    EdgeSE3Prior, ...             k               measured poses; priors of the first biases; the gauge

*Stereo* (u, v, u_right) is a linear image of (u, v, 1/z), because 1/z = (u - u_right) / (fx baseline). So
that edge with the information carried over has exactly the chi2 of the pixels. *Mono* has no information
about 1/z.

*Gauge*: an IMU sees down, but neither north nor the origin. Where no keyframe is fixed and no pose measured,
the first keyframe's position and its turn about gravity are held by a prior that is zero at the answer;
fixing the pose would take roll and pitch, too.

`solve` optimizes, integrates anew where a bias moved far, and optimizes again until none did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import graphopt
from graphopt.errors import OptionError
from graphopt.geometry import SE3
from slam_bridge.arrays import Keyframes, PosePriors, Visual, WindowError
from slam_bridge.imu import GRAVITY
from slam_bridge.preintegration import Preintegrated

POSE, VELOCITY, GYRO_BIAS, ACC_BIAS = range(4)
"""Vertex id of a part of keyframe k: 4 k + part. Landmark p has id 4 num_keyframes + p."""

_STATES = (
    (POSE, "VERTEX_SE3:QUAT", "world_T_body"),
    (VELOCITY, "VERTEX_IMU_VELOCITY", "velocity"),
    (GYRO_BIAS, "VERTEX_IMU_GYRO_BIAS", "gyro_bias"),
    (ACC_BIAS, "VERTEX_IMU_ACC_BIAS", "acc_bias"),
)
_BODY, _CAMERA = 0, 1  # parameter ids


@dataclass(frozen=True, eq=False)
class InertialOptions:
    """Options of `build_graph` and `solve`."""

    gravity: np.ndarray = field(default_factory=GRAVITY.copy)
    """(3,) in the world's frame [m/s^2]."""
    gyro_bias_sigma: float = 0.1
    """Prior of the first gyroscope bias about zero [rad/s]; weak, holds what the motion leaves open."""
    acc_bias_sigma: float = 1.0
    """The same for the accelerometer [m/s^2]."""
    mono_huber: float = 5.991**0.5
    """Width of the Huber kernel of mono observations: chi2 of 95 % at 2 degrees of freedom."""
    stereo_huber: float = 7.815**0.5
    """The same at 3 degrees of freedom."""
    gyro_tolerance: float = 0.01
    """Integrate again where the bias moved by more [rad/s]."""
    acc_tolerance: float = 0.1
    """Integrate again where the bias moved by more [m/s^2]."""
    max_rounds: int = 5
    """Optimizations at most; each but the first follows a new integration."""
    max_iterations: int = 100
    """Of each optimization."""

    def __post_init__(self) -> None:
        if np.shape(self.gravity) != (3,):
            raise OptionError(f"InertialOptions.gravity has shape {np.shape(self.gravity)}, expected (3,).")
        for name, value in vars(self).items():
            if name != "gravity" and not value > 0:
                raise OptionError(f"InertialOptions.{name} is {value}, must be > 0.")


@dataclass(frozen=True, eq=False)
class InertialWindow:
    """What is known: states to start from and measurements."""

    keyframes: Keyframes
    imu: Sequence[Preintegrated | None]
    """(n - 1) measurements between keyframes k and k + 1; None where there is none."""
    visual: Visual | None = None
    pose_priors: PosePriors | None = None

    def __post_init__(self) -> None:
        if len(self.imu) != len(self.keyframes) - 1:
            raise WindowError(
                f"InertialWindow.imu has {len(self.imu)} entries, expected one between each two of "
                f"{len(self.keyframes)} keyframes. Put None where there are no samples."
            )
        for name, part in (("visual", self.visual), ("pose_priors", self.pose_priors)):
            if part is not None and part.max_keyframe >= len(self.keyframes):
                raise WindowError(
                    f"InertialWindow.{name} names keyframe {part.max_keyframe}, "
                    f"the window has {len(self.keyframes)}."
                )

    def with_free(self, num_free: int) -> InertialWindow:
        """Local window: the last num_free keyframes are free, all older ones fixed."""
        if not 0 < num_free <= len(self.keyframes):
            raise OptionError(f"num_free is {num_free}, must be 1 to {len(self.keyframes)}.")
        fixed = np.arange(len(self.keyframes)) < len(self.keyframes) - num_free
        return replace(self, keyframes=replace(self.keyframes, fixed=fixed))


@dataclass(frozen=True, eq=False)
class InertialResult:
    """What `solve` found."""

    keyframes: Keyframes
    points: np.ndarray
    """(m, 3) landmarks in the world's frame [m]."""
    imu: list[Preintegrated | None]
    """The measurements, integrated with biases near the result."""
    summary: graphopt.Summary
    """Of the last optimization."""
    rounds: int
    """Optimizations that were run."""


def build_graph(window: InertialWindow, options: InertialOptions | None = None) -> graphopt.Graph:
    """Graph of a window; ids as in `POSE` and `Visual`."""
    options = options or InertialOptions()
    graph = graphopt.Graph()
    frames = window.keyframes
    numbers = np.arange(len(frames))
    for part, tag, name in _STATES:
        graph.add_vertices(tag, 4 * numbers + part, getattr(frames, name), fixed=frames.fixed)
    graph.add_parameters("PARAMS_SE3OFFSET", [_BODY], [SE3.identity_storage])
    _add_imu(graph, window, options)
    _add_bias_priors(graph, options)
    if window.visual is not None:
        _add_visual(graph, window.visual, len(frames), options)
    if window.pose_priors is not None:
        priors = window.pose_priors
        _add_pose_priors(graph, priors.keyframe, priors.world_T_body, priors.information)
    elif not frames.fixed.any():
        _add_gauge(graph, frames.world_T_body[0], options.gravity)
    return graph


def solve(window: InertialWindow, options: InertialOptions | None = None) -> InertialResult:
    """Optimize a window. Fixed keyframes keep their states; the window itself is not changed."""
    options = options or InertialOptions()
    rounds = 0
    while True:
        graph = build_graph(window, options)
        summary = graphopt.optimize(graph, max_iterations=options.max_iterations, fix="none")
        rounds += 1
        window = _with_estimates(window, graph)
        imu, changed = _reintegrate(window, options)
        if not changed or rounds == options.max_rounds or not summary.is_usable:
            break
        window = replace(window, imu=imu)
    points = window.visual.points if window.visual is not None else np.zeros((0, 3))
    return InertialResult(window.keyframes, points, list(window.imu), summary, rounds)


def _add_imu(graph: graphopt.Graph, window: InertialWindow, options: InertialOptions) -> None:
    linked = [(k, one) for k, one in enumerate(window.imu) if one is not None]
    if not linked:
        return
    first = 4 * np.array([k for k, _ in linked])[:, None]
    graph.add_edges(
        "EDGE_IMU_INERTIAL",
        first + np.array([POSE, VELOCITY, GYRO_BIAS, ACC_BIAS, 4 + POSE, 4 + VELOCITY]),
        np.stack([one.measurement(options.gravity) for _, one in linked]),
        np.stack([one.information for _, one in linked]),
    )
    for part, tag, name in (
        (GYRO_BIAS, "EDGE_IMU_GYRO_RANDOM_WALK", "gyro_bias_density"),
        (ACC_BIAS, "EDGE_IMU_ACC_RANDOM_WALK", "acc_bias_density"),
    ):
        variance = np.array([getattr(one.noise, name) ** 2 * one.dt for _, one in linked])
        information = np.eye(3) / variance[:, None, None]
        graph.add_edges(tag, first + np.array([part, 4 + part]), np.zeros((len(linked), 3)), information)


def _add_bias_priors(graph: graphopt.Graph, options: InertialOptions) -> None:
    for part, tag, sigma in (
        (GYRO_BIAS, "EDGE_IMU_GYRO_BIAS_PRIOR", options.gyro_bias_sigma),
        (ACC_BIAS, "EDGE_IMU_ACC_BIAS_PRIOR", options.acc_bias_sigma),
    ):
        graph.add_edges(tag, [[part]], [np.zeros(3)], np.eye(3) / sigma**2)


def _add_visual(graph: graphopt.Graph, visual: Visual, num_frames: int, options: InertialOptions) -> None:
    graph.add_parameters(
        "PARAMS_CAMERACALIB",
        [_CAMERA],
        [np.concatenate([visual.camera.body_T_cam, visual.camera.intrinsics])],
    )
    ids = 4 * num_frames + np.arange(len(visual.points))
    graph.add_vertices("VERTEX_TRACKXYZ", ids, visual.points, marginalized=True)
    measured, information = visual.disparity_measurements()
    stereo = visual.is_stereo
    graph.add_edges(
        "EDGE_PROJECT_DISPARITY",
        np.stack([4 * visual.keyframe + POSE, ids[visual.point]], axis=1),
        measured,
        information,
        kernel="Huber",
        kernel_width=np.where(stereo, options.stereo_huber, options.mono_huber),
        parameters=np.full((len(measured), 1), _CAMERA),
    )


def _add_pose_priors(graph: graphopt.Graph, keyframe: Any, poses: Any, information: Any) -> None:
    parameters = np.full((len(keyframe), 1), _BODY)
    graph.add_edges("EDGE_SE3_PRIOR", 4 * keyframe[:, None] + POSE, poses, information, parameters=parameters)


def _add_gauge(graph: graphopt.Graph, world_T_body: np.ndarray, gravity: np.ndarray, sigma=1e-3) -> None:
    """Hold the first keyframe's position and its turn about gravity, to sigma [m, rad]."""
    down = np.asarray(SE3(world_T_body).rotation.inverse().act(gravity / np.linalg.norm(gravity)))
    information = np.zeros((1, 6, 6))
    information[0, :3, :3] = np.eye(3) / sigma**2
    information[0, 3:, 3:] = 4.0 * np.outer(down, down) / sigma**2  # the residual is half the turn
    _add_pose_priors(graph, np.array([0]), world_T_body[None], information)


def _with_estimates(window: InertialWindow, graph: graphopt.Graph) -> InertialWindow:
    states = {name: graph.vertex_set(tag).estimate.copy() for _, tag, name in _STATES}
    poses = states["world_T_body"]
    poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
    visual = window.visual
    if visual is not None:
        visual = replace(visual, points=graph.vertex_set("VERTEX_TRACKXYZ").estimate.copy())
    return replace(window, keyframes=replace(window.keyframes, **states), visual=visual)


def _reintegrate(window: InertialWindow, options: InertialOptions) -> tuple[list[Preintegrated | None], bool]:
    """Measurements integrated anew where the bias of their first keyframe is far; whether any is."""
    imu, changed = list(window.imu), False
    for k, one in enumerate(imu):
        biases = window.keyframes.gyro_bias[k], window.keyframes.acc_bias[k]
        if one is not None and one.is_far(*biases, options.gyro_tolerance, options.acc_tolerance):
            imu[k], changed = one.reintegrated(*biases), True
    return imu, changed
