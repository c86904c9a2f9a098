"""Where a frame is, without a start: landmarks matched to pixels, some of them wrongly.

Start from OpenCV's `solvePnPRansac` on the rays of the pixels (so for every camera model, up to 80 degrees
from the axis), refined by `pose_optimization` with the observations that agree with it roughly: of the others
one that falls close to a camera's centre outweighs all, with a robust kernel too. Needs
opencv-python-headless (extra `slam`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import graphopt
from graphopt.errors import OptionError
from graphopt.geometry import SE3, SO3
from slam_bridge.cameras import Camera, Rig, world_T_body_from_cam_T_world
from slam_bridge.options import NOT_BEGUN, Clock, SolveOptions
from slam_bridge.problems.frame import FrameGraph, FrameObservations
from slam_bridge.problems.landmark_covariance import widened
from slam_bridge.problems.pose_optimization import DEFAULTS, ahead, pose_optimization
from slam_bridge.problems.result import Result

_WIDEST = np.cos(np.deg2rad(80.0))
_MIN_POINTS = 4
_ROUGHLY = 30.0
"""Standard deviations of a pixel; matches that RANSAC takes for right have 3."""


def relocalize(
    rig: Rig,
    seen: FrameObservations,
    options: SolveOptions | None = None,
    graph: FrameGraph | None = None,
    min_inliers: int = 10,
    trials: int = 300,
) -> Result:
    """Find the pose of a frame from matches of landmarks and pixels alone.

    The camera with most observations gives the start. Refused where RANSAC finds no pose, or fewer than
    min_inliers are left after refinement. `keyframes.world_T_body[0]` is the pose, `extra["start"]` the
    start.
    """
    options = options or DEFAULTS
    clock, rig = Clock(options), Rig.of(rig)
    number = int(np.argmax(np.bincount(seen.camera, minlength=len(rig)))) if len(seen) else 0
    start = _start(rig[number], seen, seen.camera == number, options, trials)
    clock.lap("start")
    if start is None:
        refused = (
            f"RANSAC found no pose from {len(seen)} matches; at least {_MIN_POINTS} right ones are needed."
        )
        return _refused(seen, refused, clock)
    points = np.where(_agree(rig, start, seen)[:, None], seen.points, np.nan)  # those take no part
    rough = replace(seen, points=points)
    found = pose_optimization(rig, start, rough, options.with_changes(time_limit=clock.left), graph)
    clock.lap("refine")
    refused = found.refused
    if not refused and found.num_inliers < min_inliers:
        refused = f"{found.num_inliers} of {len(seen)} matches agree with the pose, {min_inliers} are needed."
    holds = ahead(rig, found.keyframes.world_T_body[0], seen)
    rejected = {
        "behind camera": np.flatnonzero(~holds),
        "chi2": np.flatnonzero(holds & ~found.inliers & (found.refused != NOT_BEGUN)),
    }
    parts = {**vars(found), "problem": "relocalize", "extra": {"start": start}, "refused": refused}
    return Result(**{**parts, "rejected": rejected, "seconds": clock.total()})


def _agree(rig: Rig, start: np.ndarray, seen: FrameObservations) -> np.ndarray:
    """(n,) bool: observations that are not far from where a pose (7,) has their points."""
    wide = widened(rig, start, seen)
    poses = np.tile(start, (len(seen), 1))
    with np.errstate(all="ignore"):
        pixel, _ = rig.project(seen.camera, rig.in_cameras(seen.camera, poses, wide.points))
        return np.linalg.norm(pixel - seen.pixel, axis=1) <= _ROUGHLY * wide.sigma


def _refused(seen: FrameObservations, refused: str, clock: Clock) -> Result:
    nobody = np.zeros(len(seen), bool)
    summary = graphopt.Summary(0, 0, "ransac", graphopt.TerminationType.NO_CONVERGENCE)
    return Result(
        "relocalize",
        summary,
        observations=np.arange(len(seen)),
        inliers=nobody,
        observation_chi2=np.full(len(seen), np.inf),
        rejected={"chi2": np.arange(len(seen))},
        seconds=clock.total(),
        refused=refused,
    )


def _start(
    camera: Camera, seen: FrameObservations, own: np.ndarray, options: SolveOptions, trials: int
) -> np.ndarray | None:
    """world_T_body (7,) by RANSAC, None where it fails."""
    try:
        import cv2
    except ImportError as error:
        raise OptionError(
            "relocalize needs OpenCV for its start: pip install graphopt[slam], or opencv-python-headless."
        ) from error
    rays = camera.unproject(seen.pixel)
    with np.errstate(invalid="ignore"):
        rows = np.flatnonzero(own & (rays[:, 2] > _WIDEST) & np.isfinite(seen.points).all(axis=1))
    if len(rows) < _MIN_POINTS:
        return None
    focal = float(np.sqrt(camera.intrinsics[0] * camera.intrinsics[1]))
    width = 3.0 * float(np.median(seen.sigma[rows])) / focal
    ok, turn, shift, inliers = cv2.solvePnPRansac(
        np.ascontiguousarray(seen.points[rows]),
        np.ascontiguousarray(rays[rows, :2] / rays[rows, 2:]),
        np.eye(3),
        None,
        iterationsCount=trials,
        reprojectionError=width,
        confidence=0.9999,
        flags=cv2.SOLVEPNP_AP3P,
    )
    if not ok or inliers is None or len(inliers) < _MIN_POINTS:
        return None
    rotation = np.asarray(SO3.exp(np.ravel(turn)).storage)
    pose = world_T_body_from_cam_T_world(np.concatenate([np.ravel(shift), rotation]), camera.body_T_cam)
    return pose if np.isfinite(pose).all() and abs(SE3(pose).translation).max() < 1e9 else None
