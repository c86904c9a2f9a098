"""Covariance of a frame's pose or state, when asked for: inv(H) of its inliers without robust kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphopt.errors import OptionError, SolverError
from slam_bridge.cameras import Rig
from slam_bridge.dense import dense_hessian
from slam_bridge.problems.frame import FrameGraph, FrameObservations
from slam_bridge.problems.result import Covariances

_OPEN = 1e-12
"""Smallest eigenvalue of H, its diagonal scaled to 1; below, a direction is open."""


def covariance_of_pose(
    rig: Rig, world_T_body: np.ndarray, seen: FrameObservations, inliers: np.ndarray, owner: int = 0
) -> Callable[[list[tuple[str, int]]], Covariances]:
    """`Result.covariance_of` of one pose (7,), on a graph of its own; owner: its id in the result."""
    arrays = seen.points, seen.pixel, seen.camera, seen.right, seen.depth, seen.sigma, seen.depth_sigma
    held = [*(array.copy() for array in arrays), inliers, world_T_body]  # programs fill the same arrays again

    def hessian() -> np.ndarray:
        graph = FrameGraph(rig)
        graph.load(FrameObservations(*held[:7]), held[8])
        return dense_hessian(graph.linearized(held[7]))

    return covariance_of_frame(hessian, owner)


def covariance_of_frame(
    hessian: Callable[[], np.ndarray], owner: int
) -> Callable[[list[tuple[str, int]]], Covariances]:
    """`Result.covariance_of` of the one state that has this H (d, d)."""

    def covariance_of(wanted: list[tuple[str, int]]) -> Covariances:
        for kind, id_ in wanted:
            if (kind, id_) != ("keyframe", owner):
                raise OptionError(f"{kind} {id_} was not free in this problem; keyframe {owner} was.")
        return {key: _inverse(hessian()) for key in wanted}

    return covariance_of


def _inverse(h: np.ndarray) -> np.ndarray:
    size = np.sqrt(np.maximum(h.diagonal(), 1e-300))
    values, vectors = np.linalg.eigh(h / size / size[:, None])
    if not values[0] > _OPEN:
        raise SolverError(
            "the frame has no covariance: its inliers leave a direction open (as points on one ray, or fewer "
            "than three of them do)."
        )
    scaled = vectors / size[:, None]
    return (scaled / values) @ scaled.T
