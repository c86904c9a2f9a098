"""The scale of a map of one camera: nothing measures it, so bundle adjustment keeps what it was.

    centre_k = anchor + s (centre_k - anchor)        points likewise; s: median distance before / after

Along a direction that no residual sees, damped steps drift: by rounding, and where many landmarks move one
way. Everything outside the problem that has lengths of the map's unit (frames between keyframes, a motion
model) would no longer fit.
"""

from __future__ import annotations

import numpy as np

from graphopt.errors import SolverError
from graphopt.geometry import SE3, SO3
from slam_bridge.problems.result import Result
from slam_bridge.selection import Selection


def is_open(s: Selection, estimate: tuple[str, ...] = ()) -> bool:
    """Whether scaling all of the problem about its held keyframe changes no residual."""
    seen = s.observations
    if s.inertial.any() or len(s.imu) or len(s.pose_prior_keyframe) or s.priors or s.points_fixed or estimate:
        return False
    if s.fixed.sum() > 1 or not len(seen) or not len(s.landmarks):
        return False
    alone = bool((seen.camera == seen.camera[0]).all())
    return alone and bool(np.isnan(seen.right).all() and np.isnan(seen.depth).all())


def kept(before: Selection, after: Selection) -> Selection:
    """The result in the unit of the start; chi2 stays. The held keyframe is the fixed one, else the first."""
    assert before.rig is not None
    lever = before.rig[int(before.observations.camera[0])].body_T_cam[:3]
    anchor = int(np.argmax(after.fixed))
    origin = _centres(before, lever)[anchor]
    sizes = [np.median(np.linalg.norm(cloud.points - origin, axis=1)) for cloud in (before, after)]
    if not (np.isfinite(sizes).all() and min(sizes) > 0.0):
        return after
    factor = sizes[0] / sizes[1]
    poses = after.world_T_body.copy()
    centres = _centres(after, lever)
    poses[:, :3] += (factor - 1.0) * (centres - origin)
    return after.with_changes(world_T_body=poses, points=origin + factor * (after.points - origin))


def _centres(s: Selection, lever: np.ndarray) -> np.ndarray:
    """(k, 3) of the camera, `lever` (3,) from the body."""
    return np.asarray(SE3(s.world_T_body).act(np.tile(lever, (len(s.keyframes), 1))))


def scale_deviation(result: Result) -> float:
    """Standard deviation of a length in a result, as a fraction of it; infinite where nothing measures it.

    That of the distance from the first keyframe to the farthest one, of their marginal covariance.
    """
    poses = result.keyframes.world_T_body
    ways = poses[:, :3] - poses[0, :3]
    distances = np.linalg.norm(ways, axis=1)
    far = int(np.argmax(distances))
    keyframe = int(result.keyframes.ids[far])
    try:
        covariance = result.covariance([keyframe])[("keyframe", keyframe)][:3, :3]
    except SolverError:
        return float("inf")
    along = np.asarray(SO3(poses[far, 3:]).inverse().act(ways[far])) / distances[far] ** 2
    variance = float(along @ covariance @ along)
    return float(np.sqrt(variance)) if variance >= 0.0 else float("inf")
