"""Geometry of two views on rays, for every camera model: essential matrix, relative pose.

Rays are unit vectors; an error of a ray is an angle [rad], about sigma / focal length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.geometry import SE3, SO3
from slam_bridge.cameras import Camera
from slam_bridge.rays import triangulate
from slam_bridge.readers.sequence import opencv

_NARROW = np.cos(np.deg2rad(65.0))
"""Hypotheses come from rays this close to the axis: on the plane z = 1 noise grows beyond."""

_SAME_TURN = np.deg2rad(1.0)
_AMBIGUOUS = 0.8
"""A motion that turns otherwise and explains this fraction of the best one's matches: ORB-SLAM: 0.75."""


def angular_sigma(camera: Camera, sigma: float) -> float:
    """Error of a ray [rad] of an error of its pixel [px], near the image's centre."""
    return sigma / float(np.sqrt(camera.intrinsics[0] * camera.intrinsics[1]))


def rays_of(camera: Camera, pixels: np.ndarray, widest: float) -> np.ndarray:
    """Unit rays (n, 3) in the camera's frame; NaN further than `widest` [rad] from the axis."""
    rays = camera.unproject(pixels)
    with np.errstate(invalid="ignore"):
        rays[~(rays[:, 2] >= np.cos(widest))] = np.nan
    return rays


@dataclass(frozen=True, eq=False)
class TwoViews:
    """Relative pose of two views, up to scale."""

    b_T_a: np.ndarray
    """(7,) with a translation of length 1."""
    inliers: np.ndarray
    """(n,) bool: the rays meet ahead of both."""
    points: np.ndarray
    """(n, 3) in the first view's frame."""
    parallax: np.ndarray
    """(n,) [rad]."""


def two_views(ray_a: np.ndarray, ray_b: np.ndarray, sigma: float) -> TwoViews | None:
    """Relative pose of matched unit rays (n, 3) by five-point RANSAC; None where it is open.

    Nothing is returned where two different motions explain the matches, as of points on a wall.

    sigma: error of a ray [rad]; matches within 2.45 sigma of the epipolar plane count (95 %, two numbers).
    """
    cv2 = opencv()
    usable = (ray_a[:, 2] > _NARROW) & (ray_b[:, 2] > _NARROW)
    if int(usable.sum()) < 8:
        return None
    planes = [rays[usable, :2] / rays[usable, 2:] for rays in (ray_a, ray_b)]
    essential, _ = cv2.findEssentialMat(
        planes[0], planes[1], np.eye(3), method=cv2.RANSAC, prob=0.999, threshold=2.45 * sigma
    )
    if essential is None or essential.shape[0] < 3:
        return None
    candidates = [
        motion for k in range(0, essential.shape[0], 3) for motion in _motions(essential[k : k + 3])
    ]
    candidates += _motions_of_plane(planes[0], planes[1], sigma)
    found = [_checked(motion, ray_a, ray_b, sigma) for motion in candidates]
    counts = [int(view.inliers.sum()) for view in found]
    best = found[int(np.argmax(counts))]
    turn = SE3(best.b_T_a).rotation.inverse()
    for view, count in zip(found, counts, strict=True):
        differs = np.linalg.norm(np.asarray((turn * SE3(view.b_T_a).rotation).log())) > _SAME_TURN
        if differs and count > _AMBIGUOUS * max(counts):
            return None
    return best if max(counts) >= 8 else None


def _motions_of_plane(
    plane_a: np.ndarray, plane_b: np.ndarray, sigma: float
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The motions of b_T_a for which the points lie on a wall; on one, two motions may fit all of them."""
    cv2 = opencv()
    homography, _ = cv2.findHomography(plane_a, plane_b, cv2.RANSAC, 2.45 * sigma)
    if homography is None:
        return []
    _, turns, shifts, _ = cv2.decomposeHomographyMat(homography, np.eye(3))
    pairs = zip(turns, (np.ravel(shift) for shift in shifts), strict=True)
    return [(turn, shift / np.linalg.norm(shift)) for turn, shift in pairs if np.linalg.norm(shift) > 1e-6]


def _motions(essential: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The four (rotation, translation) of b_T_a that an essential matrix stands for."""
    left, _, right = np.linalg.svd(essential)
    left, right = left * np.sign(np.linalg.det(left)), right * np.sign(np.linalg.det(right))
    w = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    turns = left @ w @ right, left @ w.T @ right
    return [(turn, sign * left[:, 2]) for turn in turns for sign in (1.0, -1.0)]


def _checked(
    motion: tuple[np.ndarray, np.ndarray], ray_a: np.ndarray, ray_b: np.ndarray, sigma: float
) -> TwoViews:
    turn, shift = motion
    seen = triangulate(np.zeros(3), ray_a, -turn.T @ shift, ray_b @ turn)
    inliers = seen.error <= 2.45 * sigma
    pose = np.concatenate([shift, np.asarray(SO3.from_matrix(turn).storage)])
    return TwoViews(pose, inliers, seen.points, seen.parallax)


def turned(turn: SO3, vector: np.ndarray) -> np.ndarray:
    """Vectors (n, 3) turned by one rotation: by its matrix, faster than by its quaternion."""
    return vector @ np.asarray(turn.to_matrix()).T


def placed(pose: SE3, point: np.ndarray) -> np.ndarray:
    """Points (n, 3) moved by one pose."""
    return turned(pose.rotation, point) + np.asarray(pose.translation)


def camera_pose(world_T_body: np.ndarray, camera: Camera) -> SE3:
    """world_T_cam of bodies (7,) or (n, 7)."""
    mounting = np.broadcast_to(camera.body_T_cam, np.shape(world_T_body))
    return SE3(np.asarray(world_T_body, float)) * SE3(mounting)
