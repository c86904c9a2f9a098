"""The pose of one frame from landmarks whose places are known.

As in ORB-SLAM3 (`Optimizer::PoseOptimization`): rounds from the same start, after each of which
observations are judged anew; the first half of the rounds has a robust kernel. An outlier may come back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import graphopt
from graphopt.errors import OptionError
from graphopt.strategies.quantiles import chi2_quantile
from slam_bridge.cameras import Rig
from slam_bridge.map import Map
from slam_bridge.options import NOT_BEGUN, Clock, SolveOptions, has_begun
from slam_bridge.problems.frame import FrameGraph, FrameObservations
from slam_bridge.problems.frame_covariance import covariance_of_pose
from slam_bridge.problems.landmark_covariance import widened
from slam_bridge.problems.result import Result, States

DEFAULTS = SolveOptions(rounds=4, device="cpu")
_MIN_OBSERVATIONS = 3
BY_CHANCE = 0.1
"""With fewer inliers among its observations a frame has none: of wrong matches some fit any pose."""


def pose_optimization(
    rig: Rig,
    world_T_body: Any,
    seen: FrameObservations,
    options: SolveOptions | None = None,
    graph: FrameGraph | None = None,
) -> Result:
    """Find the pose (7,) of a frame from a start and observations of known landmarks.

    graph: keep one `FrameGraph(rig)` from frame to frame. `keyframes.world_T_body[0]` of the result is the
    pose, `inliers` are those of `seen`. Refused with fewer than three observations ahead of their cameras.
    Points with a covariance (`FrameObservations.of`) widen the sigmas by which pixels are weighed and judged.
    """
    options = options or DEFAULTS
    clock = Clock(options)
    rig = Rig.of(rig)
    graph = graph or FrameGraph(rig)
    graph.refuse_other(rig)
    start = pose_numbers("world_T_body", world_T_body)
    seen = widened(rig, start, seen)
    graph.load(seen, start)
    holds = ahead(rig, start, seen)
    clock.lap("build")
    if _too_few(holds, holds):
        summary, rounds = graphopt.Summary(1, 0, options.method, graphopt.TerminationType.NO_CONVERGENCE), 0
        inliers, chi2 = holds, np.where(holds, 0.0, np.inf)
    else:
        summary, inliers, chi2, rounds = rounds_of(graph, holds, options, clock)
    refused = _too_few(inliers, holds)
    judged = not (rounds == 1 and not has_begun(summary))
    if not judged:
        refused, inliers = NOT_BEGUN, np.zeros(len(seen), bool)
    pose = start if refused else graph.pose
    states = States(np.zeros(1, np.int64), pose[None])
    holds = ahead(rig, pose, seen)
    clock.lap("judge")
    return Result(
        "pose_optimization",
        summary,
        states,
        observations=np.arange(len(seen)),
        inliers=inliers,
        observation_chi2=chi2,
        chi2={"all": summary.final_chi2},
        rejected={"behind camera": np.flatnonzero(~holds), "chi2": np.flatnonzero(holds & ~inliers & judged)},
        seconds=clock.total(),
        rounds=rounds,
        refused=refused,
        covariance_of=None if refused else covariance_of_pose(rig, pose, seen, inliers),
    )


def pose_numbers(name: str, given: Any) -> np.ndarray:
    """A pose (7,), a copy; `OptionError` for numbers that are none."""
    pose = np.array(given, float)
    if pose.shape != (7,) or not np.isfinite(pose).all():
        raise OptionError(f"{name} has shape {pose.shape}, expected finite (7,): x, y, z, qx, qy, qz, qw.")
    length = float(pose[3:] @ pose[3:]) ** 0.5
    if abs(length - 1.0) > 1e-2:
        raise OptionError(f"{name}: its quaternion has length {length:.4f}, expected 1.")
    return pose


def _too_few(inliers: np.ndarray, holds: np.ndarray) -> str:
    if int(holds.sum()) < _MIN_OBSERVATIONS:
        return f"{int(holds.sum())} landmarks are ahead of their cameras, {_MIN_OBSERVATIONS} are needed."
    if int(inliers.sum()) < _MIN_OBSERVATIONS:
        return f"{int(inliers.sum())} inliers are left, at least {_MIN_OBSERVATIONS} are needed."
    return ""


def by_chance(inliers: np.ndarray) -> bool:
    """Whether so few of a frame's observations (n,) bool are inliers that they show nothing of its pose."""
    good = int(np.count_nonzero(inliers))
    return good < _MIN_OBSERVATIONS or good < BY_CHANCE * len(inliers)


def rounds_of(
    graph: FrameGraph,
    holds: np.ndarray,
    options: SolveOptions,
    clock: Clock,
    min_observations: int = _MIN_OBSERVATIONS,
) -> tuple[graphopt.Summary, np.ndarray, np.ndarray, int]:
    """Run the rounds; (summary, inliers (n,), chi2 (n,), rounds that ran). Stops once nothing changes.

    An outlier comes back where its chi2 falls below the limit; an observation that does not hold at the start
    takes no part, and its chi2 is infinite.
    """
    limits = np.array([np.inf] + [chi2_quantile(options.confidence, d) for d in range(1, 5)])
    if graph.is_native(options):
        return graph.run_rounds(holds, limits, min_observations, options, clock)
    inliers, chi2 = holds, np.where(holds, 0.0, np.inf)
    summary = graphopt.Summary(1, int(holds.sum()), options.method)
    for number in range(options.rounds):
        if (number and clock.is_over) or int(inliers.sum()) < min_observations:
            return summary, inliers, chi2, number
        robust = options.kernel is not None and number < (options.rounds + 1) // 2
        summary = graph.optimize(inliers, limits if robust else None, options, clock)
        chi2, dims = graph.chi2(len(holds))
        chi2[~holds] = np.inf
        now = chi2 <= limits[dims]
        clock.lap("judge")
        if np.array_equal(now, inliers) and not robust:
            return summary, inliers, chi2, number + 1
        inliers = now
    return summary, inliers, chi2, options.rounds


def ahead(rig: Rig, world_T_body: np.ndarray, seen: FrameObservations) -> np.ndarray:
    """(n,) bool: the camera's model holds where the landmark is, seen from a pose (7,)."""
    count = len(seen)
    return rig.in_cones(world_T_body[None], np.zeros(count, int), seen.camera, seen.points, np.arange(count))


def keyframe_pose_optimization(
    world: Map, keyframe: int, options: SolveOptions | None = None, graph: FrameGraph | None = None
) -> Result:
    """`pose_optimization` of a keyframe of a map against its landmarks; ids of the result are the map's."""
    options = options or DEFAULTS
    with world.lock:
        row = int(world.keyframes.rows(keyframe))
        table = world.observations
        rows = table.rows_where("keyframe", [keyframe])
        points = world.landmarks["position"][world.landmarks.rows(table["landmark"][rows])]
        names = ("pixel", "camera", "right", "depth", "sigma", "depth_sigma")
        seen = FrameObservations(points, *(table[name][rows] for name in names))
        ids, pose = table.ids[rows].copy(), world.keyframes["world_T_body"][row].copy()
        rig = world.rig
    if rig is None:
        raise OptionError("this map has no cameras.")
    found = pose_optimization(rig, pose, seen, options, graph)
    rejected = {reason: ids[rows] for reason, rows in found.rejected.items()}
    states = States(np.array([keyframe]), found.keyframes.world_T_body)
    of_pose = None
    if found.covariance_of is not None:
        of_pose = covariance_of_pose(rig, states.world_T_body[0], seen, found.inliers, int(keyframe))
    if options.update and found.is_usable:
        with world.lock:
            world.keyframes["world_T_body"][world.keyframes.rows(keyframe)] = states.world_T_body[0]
            rows = world.observations.find(ids)
            world.observations["inlier"][rows[rows >= 0]] = found.inliers[rows >= 0]
    return Result(
        **{
            **vars(found),
            "observations": ids,
            "keyframes": states,
            "rejected": rejected,
            "covariance_of": of_pose,
        }
    )
