"""How well places of landmarks are known, and what that adds to the pixels of a frame that sees them.

    places      Sigma = inv( sum_k D_k' D_k / sigma_k^2 )      D_k: observation k by the point; poses held
    a frame     sigma'^2 = sigma^2 + largest eigenvalue of D Sigma D'

A point that a stereo pair has seen once is known along its ray far worse than across; seen from elsewhere it
is pixels away from where an exact one would be. sigma' bounds sigma^2 I + D Sigma D' from above: no match is
an outlier that would be none with the full matrix. D by central differences.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.errors import OptionError, ShapeError
from graphopt.geometry import SE3
from slam_bridge.cameras import Camera, Rig
from slam_bridge.map import Map
from slam_bridge.problems.frame import FrameObservations
from slam_bridge.tables import MapError, whole_numbers

_STEP = 1e-5
"""Of the differences, as a fraction of the point's distance."""
_OPEN = 1e-12
"""Smallest eigenvalue of an information, as a fraction of the largest; below, the place is open."""


def landmark_covariances(world: Map, landmarks: Any) -> np.ndarray:
    """Covariances (m, 3, 3) [m^2] of landmarks (ids) in the world, from their inliers, poses held.

    Infinite where these do not determine the place (none, or one pixel). For `FrameObservations.of(...,
    covariance=)`; errors of the poses are not in it: a frame near these keyframes shares them.
    """
    with world.lock:
        ids = whole_numbers(landmarks)
        wanted, place = np.unique(ids, return_inverse=True)
        world.landmarks.rows(wanted)  # refuses ids that the map does not have
        rig, table = world.rig, world.observations
        if rig is None:
            raise MapError("landmark_covariances: the map has no cameras; make it with Map(rig).")
        rows = table.rows_where("landmark", wanted)
        rows = rows[table["inlier"][rows]]
        names = ("camera", "right", "depth", "sigma", "depth_sigma")
        seen = {name: table[name][rows] for name in names}
        poses = world.keyframes["world_T_body"][world.keyframes.rows(table["keyframe"][rows])]
        of = table["landmark"][rows]
        points = world.landmarks["position"][world.landmarks.rows(of)]
    information = informations(rig, poses, points, np.searchsorted(wanted, of), len(wanted), **seen)
    return _inverses(information)[place]


def informations(
    rig: Rig,
    poses: np.ndarray,
    points: np.ndarray,
    landmark: np.ndarray,
    count: int,
    *,
    camera: np.ndarray,
    right: np.ndarray,
    depth: np.ndarray,
    sigma: np.ndarray,
    depth_sigma: np.ndarray,
) -> np.ndarray:
    """Information (count, 3, 3) [1/m^2] of landmarks in the world from o observations, poses held.

    Per observation world_T_body (o, 7), the point (o, 3), which landmark (o,) it is of, and its columns.
    """
    information = np.zeros((count, 3, 3))
    for number, rig_camera in enumerate(rig):
        mine = np.flatnonzero(camera == number)
        by_point = _by_point(rig_camera, poses[mine], points[mine], np.isfinite(right[mine]))
        known = np.einsum("oij,oik->ojk", by_point[:, :3], by_point[:, :3])
        known /= sigma[mine, None, None] ** 2
        deep = np.flatnonzero(np.isfinite(depth[mine]))
        axis = by_point[deep, 3] / depth_sigma[mine[deep], None]
        known[deep] += axis[:, :, None] * axis[:, None, :]
        np.add.at(information, landmark[mine], known)
    return information


def _inverses(information: np.ndarray) -> np.ndarray:
    values, axes = np.linalg.eigh(information)
    is_open = ~(values[:, 0] > _OPEN * values[:, 2])
    values[is_open] = 1.0
    covariance = np.einsum("mij,mj,mkj->mik", axes, 1.0 / values, axes)
    covariance[is_open] = np.inf
    return covariance


def widened(rig: Rig, world_T_body: np.ndarray, seen: FrameObservations) -> FrameObservations:
    """The same observations with sigmas that hold the covariance of their points, seen from a pose (7,).

    Points whose covariance is infinite become infinite: they take no part.
    """
    if seen.covariance is None:
        return seen
    covariance = np.asarray(seen.covariance, float)
    if covariance.shape != (len(seen), 3, 3):
        raise ShapeError(
            f"FrameObservations.covariance has shape {covariance.shape}, expected ({len(seen)}, 3, 3): one "
            "of each point, in the world [m^2]."
        )
    is_open = np.logical_not(np.isfinite(covariance).all(axis=(1, 2)))
    covariance = np.where(is_open[:, None, None], 0.0, covariance)
    diagonal = np.einsum("nii->ni", covariance)
    odd = np.abs(covariance - np.swapaxes(covariance, 1, 2)).max(axis=(1, 2), initial=0.0)
    bad = (diagonal < 0.0).any(axis=1) | (odd > 1e-6 * np.abs(covariance).max(axis=(1, 2), initial=0.0))
    if bad.any():
        row = int(np.argmax(bad))
        raise OptionError(
            f"covariance of point {row} is {covariance[row].tolist()}, expected a symmetric matrix with "
            "variances >= 0 on its diagonal [m^2]."
        )
    points = np.where(is_open[:, None], np.inf, seen.points)
    sigma, depth_sigma = np.array(seen.sigma, float), np.array(seen.depth_sigma, float)
    for number, camera in enumerate(rig):
        mine = np.flatnonzero((seen.camera == number) & np.isfinite(points).all(axis=1))
        poses = np.broadcast_to(world_T_body, (len(mine), 7))
        by_point = _by_point(camera, poses, points[mine], np.isfinite(seen.right[mine]))
        added = np.einsum("oij,ojk,olk->oil", by_point, covariance[mine], by_point)
        sigma[mine] = np.sqrt(sigma[mine] ** 2 + np.linalg.eigvalsh(added[:, :3, :3])[:, 2])
        depth_sigma[mine] = np.sqrt(depth_sigma[mine] ** 2 + added[:, 3, 3])
    return replace(seen, points=points, sigma=sigma, depth_sigma=depth_sigma, covariance=None)


def _by_point(camera: Camera, poses: np.ndarray, points: np.ndarray, paired: np.ndarray) -> np.ndarray:
    """(o, 4, 3) derivatives of pixel, right column (0 where not `paired`) and depth by points of the world.

    Zero where the camera's model does not hold.
    """
    world_T_cam = SE3(poses) * SE3(camera.body_T_cam)
    result = np.zeros((len(points), 4, 3))
    with np.errstate(all="ignore"):
        local = np.asarray(world_T_cam.inverse_act(points)).reshape(-1, 3)
        step = _STEP * np.linalg.norm(local, axis=1)
        for axis in range(3):
            push = step[:, None] * np.eye(3)[axis]
            ways = [_image(camera, pair, paired) for pair in (local + push, local - push)]
            result[:, :3, axis] = (ways[0] - ways[1]) / (2.0 * step[:, None])
        result[:, 3, 2] = 1.0
        holds = camera.kind.sees(camera.intrinsics, local) & np.isfinite(result).all(axis=(1, 2))
    result[~holds] = 0.0
    return result @ np.swapaxes(np.asarray(world_T_cam.rotation.to_matrix()).reshape(-1, 3, 3), 1, 2)


def _image(camera: Camera, local: np.ndarray, paired: np.ndarray) -> np.ndarray:
    """(o, 3) pixel and right column, 0 where not paired."""
    right = np.zeros(len(local))
    if camera.baseline is not None:
        right = np.where(paired, camera.right_column(local), 0.0)
    return np.concatenate([camera.project(local), right[:, None]], axis=1)
