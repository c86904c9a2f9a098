"""Pose graph of keyframes: what a loop closure does to a visual-inertial map.

    EdgeSE3         links of neighbouring keyframes (odometry) and of loops, the latter with a robust kernel
    EdgeSE3Prior    holds each keyframe's direction of gravity as it is

An IMU sees down, so roll and pitch do not drift; a loop corrects position and heading. The prior of a
keyframe has information about the two directions across gravity only, which leaves four degrees of freedom
as in VINS-Mono (Qin, Li, Shen: TRO 2018, section VIII). `gravity_sigma=None` gives all six.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import graphopt
from graphopt.errors import OptionError
from graphopt.geometry import SE3
from slam_bridge.arrays import WindowError, _expect_shape
from slam_bridge.imu import GRAVITY

_BODY = 0  # parameter id


@dataclass(frozen=True, eq=False)
class PoseLinks:
    """k relative poses of keyframes."""

    first: np.ndarray
    """(k,) int: keyframe numbers."""
    second: np.ndarray
    """(k,) int."""
    first_T_second: np.ndarray
    """(k, 7) x, y, z, qx, qy, qz, qw."""
    information: np.ndarray
    """(k, 6, 6) of (translation, quaternion's vector part) in the second one's frame, as EdgeSE3 has it."""

    def __post_init__(self) -> None:
        k = len(self.first)
        _expect_shape("PoseLinks.second", self.second, (k,))
        _expect_shape("PoseLinks.first_T_second", self.first_T_second, (k, 7))
        _expect_shape("PoseLinks.information", self.information, (k, 6, 6))

    @classmethod
    def isotropic(
        cls, first: Any, second: Any, first_T_second: Any, position_sigma: float, rotation_sigma: float
    ) -> PoseLinks:
        """Links with standard deviations [m] and [rad]; the residual has half the rotation vector."""
        diagonal = np.repeat([position_sigma**-2, 4.0 * rotation_sigma**-2], 3)
        information = np.tile(np.diag(diagonal), (len(first), 1, 1))
        return cls(np.asarray(first), np.asarray(second), np.asarray(first_T_second, float), information)

    @classmethod
    def odometry(cls, world_T_body: Any, position_sigma: float, rotation_sigma: float) -> PoseLinks:
        """Links of each keyframe and the next, as the poses (n, 7) are now."""
        poses = np.asarray(world_T_body, float)
        relative = np.asarray((SE3(poses[:-1]).inverse() * SE3(poses[1:])).storage)
        numbers = np.arange(len(poses))
        return cls.isotropic(numbers[:-1], numbers[1:], relative, position_sigma, rotation_sigma)


@dataclass(frozen=True, eq=False)
class PoseGraphOptions:
    """Options of `close_loops`."""

    gravity: tuple[float, float, float] = tuple(GRAVITY)
    """In the world's frame [m/s^2]; only the direction counts."""
    gravity_sigma: float | None = np.deg2rad(0.1)
    """How far roll and pitch may move [rad]; None: freely."""
    loop_kernel: str = "Huber"
    """Robust kernel of the loops. Cauchy lets wrong loops go, and right ones too where the drift is large."""
    loop_width: float = 12.59**0.5
    """Its width: chi2 of 95 % at 6 degrees of freedom."""
    max_iterations: int = 100

    def __post_init__(self) -> None:
        if np.shape(self.gravity) != (3,) or not np.linalg.norm(self.gravity) > 0.0:
            raise OptionError(
                f"PoseGraphOptions.gravity is {self.gravity}, expected three numbers, not all zero."
            )
        for name in ("gravity_sigma", "loop_width", "max_iterations"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise OptionError(f"PoseGraphOptions.{name} is {value}, must be > 0.")


@dataclass(frozen=True, eq=False)
class PoseGraphResult:
    """What `close_loops` found."""

    world_T_body: np.ndarray
    """(n, 7)."""
    loop_chi2: np.ndarray
    """(k,) chi2 of each loop at the result: far above `loop_width` squared, it contradicts the others."""
    summary: graphopt.Summary


def pose_graph(
    world_T_body: Any, odometry: PoseLinks, loops: PoseLinks, fixed: Any = (0,), options: Any = None
) -> graphopt.Graph:
    """Graph of poses (n, 7); the id of a vertex is its keyframe's number. `fixed`: keyframes that stay."""
    options = options or PoseGraphOptions()
    poses = np.array(world_T_body, float)
    numbers = np.arange(len(poses))
    held = np.isin(numbers, np.asarray(fixed, int))
    if not held.any():
        raise WindowError(f"fixed is {fixed!r}: at least one of keyframes 0 to {len(poses) - 1} has to stay.")
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE3:QUAT", numbers, poses, fixed=held)
    for name, links in (("odometry", odometry), ("loops", loops)):
        _add_links(graph, name, links, len(poses), options)
    if options.gravity_sigma is not None:
        graph.add_parameters("PARAMS_SE3OFFSET", [_BODY], [SE3.identity_storage])
        information = _across_gravity(poses, options)
        parameters = np.full((len(poses), 1), _BODY)
        graph.add_edges("EDGE_SE3_PRIOR", numbers[:, None], poses, information, parameters=parameters)
    return graph


def _add_links(graph: graphopt.Graph, name: str, links: PoseLinks, count: int, options: Any) -> None:
    pairs = np.stack([links.first, links.second], axis=1).astype(int)
    if pairs.size and not (0 <= pairs.min() and pairs.max() < count):
        raise WindowError(
            f"{name} names keyframes {pairs.min()} to {pairs.max()}, there are 0 to {count - 1}."
        )
    kernel = {"kernel": options.loop_kernel, "kernel_width": options.loop_width} if name == "loops" else {}
    if len(pairs):
        graph.add_edges("EDGE_SE3:QUAT", pairs, links.first_T_second, links.information, **kernel)


def _across_gravity(poses: np.ndarray, options: Any) -> np.ndarray:
    """(n, 6, 6) information of the priors: rotations that would tilt the body."""
    gravity = np.asarray(options.gravity, float)
    down = np.asarray(SE3(poses).rotation.inverse().act(gravity / np.linalg.norm(gravity)))
    information = np.zeros((len(poses), 6, 6))
    across = np.eye(3) - down[:, :, None] * down[:, None, :]
    information[:, 3:, 3:] = 4.0 * across / options.gravity_sigma**2  # the residual is half the turn
    return information


def close_loops(
    world_T_body: Any,
    odometry: PoseLinks,
    loops: PoseLinks,
    fixed: Any = (0,),
    options: PoseGraphOptions | None = None,
) -> PoseGraphResult:
    """Poses that agree with odometry and loops. The arguments are not changed; see `pose_graph`."""
    options = options or PoseGraphOptions()
    graph = pose_graph(world_T_body, odometry, loops, fixed, options)
    summary = graphopt.optimize(graph, max_iterations=options.max_iterations, fix="none")
    poses = graph.vertex_set("VERTEX_SE3:QUAT").estimate.copy()
    poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
    between = SE3(poses[np.asarray(loops.first, int)]).inverse() * SE3(poses[np.asarray(loops.second, int)])
    error = np.asarray((SE3(np.asarray(loops.first_T_second, float)).inverse() * between).storage)
    error = error[:, :6] * np.where(np.arange(6) < 3, 1.0, np.copysign(1.0, error[:, 6:7]))
    loop_chi2 = np.einsum("ki,kij,kj->k", error, loops.information, error)
    return PoseGraphResult(poses, loop_chi2, summary)


def moved_points(points: Any, keyframe: Any, before: Any, after: Any) -> np.ndarray:
    """Landmarks (m, 3) that move with one keyframe each (m,), from poses `before` to `after` (n, 7)."""
    numbers = np.asarray(keyframe, int)
    _expect_shape("moved_points: keyframe", numbers, (len(points),))
    local = SE3(np.asarray(before, float)[numbers]).inverse().act(np.asarray(points, float))
    return np.asarray(SE3(np.asarray(after, float)[numbers]).act(local))
