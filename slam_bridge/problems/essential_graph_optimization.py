"""Pose graph of a map's keyframes after loop closures: what drifted is spread over the way.

    mode "sim3"   VertexSim3Expmap, EdgeSim3: seven degrees of freedom, for a monocular map (scale drifts)
    mode "4dof"   VertexPose4DoF, Edge4DoF: position and heading, for a visual-inertial map (roll, pitch,
                  scale known)
    mode "se3"    VertexSE3, EdgeSE3: six, for a stereo or RGB-D map

The essential graph, as ORB-SLAM3's: links of neighbours in time, of keyframes that share many observations,
both as the poses are now, and loops as they were measured, with a robust kernel. Landmarks move with their
reference keyframe. Relative poses of links are first_T_second = inv(world_T_first) world_T_second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import graphopt
from graphopt import edge_errors
from graphopt.errors import OptionError
from graphopt.geometry import SE3, SO3, Sim3
from graphopt.strategies.quantiles import chi2_quantile
from slam_bridge.map import Map
from slam_bridge.options import NOT_BEGUN, Clock, SolveOptions, has_begun, is_usable, optimize
from slam_bridge.problems.result import Result, States
from slam_bridge.tables import whole_numbers

MODES = {
    "sim3": ("VERTEX_SIM3:EXPMAP", "EDGE_SIM3:EXPMAP", 7),
    "4dof": ("VERTEX_VI_POSE_4DOF", "EDGE_VI_4DOF", 6),
    "se3": ("VERTEX_SE3:QUAT", "EDGE_SE3:QUAT", 6),
}
"""Mode -> tags of vertex and edge, numbers of an error."""
DEFAULTS = SolveOptions(iterations=50, rounds=6, kernel="Cauchy", confidence=0.99)
_MIN_SHARED, _SIGMAS = 100, (0.05, 0.01, 0.01)
"""Of links: landmarks that keyframes share, and deviations of position [m], rotation [rad], log of scale."""
_WORST = 0.1
"""Loops with a chi2 beyond this share of the worst one's go together."""


@dataclass(frozen=True, eq=False)
class Links:
    """k relative poses between keyframes."""

    first: np.ndarray
    """(k,) int64 ids."""
    second: np.ndarray
    """(k,) int64 ids."""
    first_S_second: np.ndarray
    """(k, 8) x, y, z, qx, qy, qz, qw, scale."""
    information: np.ndarray
    """(k, 7, 7) of (rotation, translation, log of scale) [rad, m]."""


def essential_links(world: Map, min_shared: int = _MIN_SHARED) -> Links:
    """Links of neighbours in time and of keyframes that share min_shared landmarks, as poses are now."""
    with world.lock:
        frames, shown = _frames(world), _shown(world)
    return _links(frames, shown, min_shared)


_Frames = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Ids (k,), stamps (k,) [ns] and world_T_body (k, 7) of keyframes."""
_Shown = tuple[np.ndarray, np.ndarray, tuple[int, int]]
"""Rows (o,) of the keyframe and of the landmark of each observation, and how many of both there are."""


def _frames(world: Map) -> _Frames:
    """Copies of the map's columns."""
    frames = world.keyframes
    return frames.ids.copy(), frames["stamp"].copy(), frames["world_T_body"].copy()


def _shown(world: Map) -> _Shown:
    """Which keyframe shows which landmark."""
    seen, frames, points = world.observations, world.keyframes, world.landmarks
    return frames.rows(seen["keyframe"]), points.rows(seen["landmark"]), (len(frames), len(points))


def _links(frames: _Frames, shown: _Shown, min_shared: int) -> Links:
    """See `essential_links`; of copies, so that the map's lock need not be held meanwhile."""
    ids, stamps, poses = frames
    order, sharing = ids[np.argsort(stamps, kind="stable")], ids[_sharing(*shown, min_shared)]
    pairs = np.concatenate([np.stack([order[:-1], order[1:]], axis=1), sharing])
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    first, second = (SE3(poses[np.searchsorted(ids, pairs[:, k])]) for k in (0, 1))
    relative = np.asarray((first.inverse() * second).storage)
    sigma = np.repeat([_SIGMAS[1], _SIGMAS[0], _SIGMAS[2]], (3, 3, 1))
    return Links(
        pairs[:, 0],
        pairs[:, 1],
        np.concatenate([relative, np.ones((len(pairs), 1))], axis=1),
        np.tile(np.diag(sigma**-2.0), (len(pairs), 1, 1)),
    )


def _sharing(frame: np.ndarray, point: np.ndarray, shape: tuple[int, int], min_shared: int) -> np.ndarray:
    """(k, 2) rows of keyframes that share at least so many landmarks.

    frame, point, shape: see `_Shown`.
    """
    from scipy.sparse import coo_array, triu

    if not len(frame):
        return np.zeros((0, 2), np.int64)
    seen = coo_array((np.ones(len(frame), np.int32), (frame, point)), shape=shape).tocsr()
    seen.data[:] = 1  # two cameras of one keyframe count once
    shared = triu(seen @ seen.T, k=1).tocoo()
    return np.stack([coord[shared.data >= min_shared] for coord in shared.coords], axis=1)


def essential_graph_optimization(
    world: Map,
    mode: str = "4dof",
    fixed: Any = None,
    links: Links | None = None,
    options: SolveOptions | None = None,
    corrected: dict[int, np.ndarray] | None = None,
) -> Result:
    """Optimize the poses of all keyframes with the map's loops (`Map.add_loops`); landmarks follow.

    fixed: ids of keyframes that stay; None: the first in time. links: what holds the map together, by default
    `essential_links`. corrected: world_S_body (8,) of some keyframes to start from, as a loop's correction
    says; links are still as the map has it. "4dof" leaves the direction of `world.gravity` in each keyframe.

    A loop whose chi2 at the end of a round lies beyond the quantile of `confidence` is left out of the next,
    first those within a factor of ten of the worst, since a wrong loop pulls right ones from their places;
    it comes back where the map agrees with it later (with two rounds there is no later). What is out at the
    end is rejected. `extra`: "loops"
    (ids), "loop_chi2", "loop_inliers", and "scale" (k,) of the keyframes with "sim3": landmarks and positions
    are in the new scale, IMU measurements know only metres.
    """
    options = options or DEFAULTS
    clock = Clock(options)
    if mode not in MODES:
        raise OptionError(f"mode is {mode!r}, expected one of {', '.join(MODES)}.")
    if not len(world.keyframes):
        raise OptionError("essential_graph_optimization: the map has no keyframes.")
    links, state = _state(world, links, fixed)
    ids, poses, loop_ids, stays = state.ids, state.poses, state.loop_ids, state.stays
    start = np.concatenate([poses, np.ones((len(poses), 1))], axis=1)
    for key, similarity in (corrected or {}).items():
        start[int(world.keyframes.rows(key))] = _corrected(key, similarity)
    clock.lap("select")
    up = _up(world.gravity) if mode == "4dof" else None
    turned_up = start if up is None else np.asarray((Sim3(up) * Sim3(start)).storage)
    graph, loop_set = _graph(mode, ids, turned_up, stays, links, state.closures, options)
    clock.lap("build")
    summary, rounds, chi2, inliers = _rounds(graph, loop_set, mode, state.closures, options, clock)
    found = _poses(mode, graph)
    if up is not None:
        found = np.asarray((Sim3(up).inverse() * Sim3(found)).storage)
        found[stays] = start[stays]
    moved = _moved(
        world, ids, start if corrected is None else np.column_stack([poses, np.ones(len(ids))]), found
    )
    clock.lap("landmarks")
    turned = _turned(state.velocity, poses, found)
    states = States(ids[~stays], found[~stays, :7], turned[~stays], *(bias[~stays] for bias in state.biases))
    extra = {"loops": loop_ids, "loop_chi2": chi2, "loop_inliers": inliers, "scale": found[:, 7]}
    result = Result(
        "essential_graph_optimization",
        summary,
        states,
        landmarks=moved[0],
        points=moved[1],
        chi2={"loops": float(chi2[inliers].sum()), "all": summary.final_chi2},
        rejected={"loop": loop_ids[~inliers]},
        rounds=rounds,
        extra=extra,
        refused="" if rounds > 1 or has_begun(summary) else NOT_BEGUN,
        writer=lambda target: _write(target, ids, found, turned, moved, loop_ids, inliers),
    )
    if options.update and result.is_usable:
        result.write_to(world)
    clock.lap("write")
    result.seconds.update(clock.total())
    return result


@dataclass(frozen=True, eq=False)
class _State:
    """Copies of what a map says of its k keyframes and of its loops."""

    ids: np.ndarray
    poses: np.ndarray
    """(k, 7) world_T_body."""
    velocity: np.ndarray
    biases: tuple[np.ndarray, np.ndarray]
    """Of gyroscope and accelerometer, (k, 3) each."""
    stays: np.ndarray
    """(k,) bool: the pose is fixed."""
    loop_ids: np.ndarray
    closures: Links


def _state(world: Map, links: Links | None, fixed: Any) -> tuple[Links, _State]:
    """Links and copies, taken under the map's lock; `fixed` as of `essential_graph_optimization`."""
    with world.lock:
        copied, shown = _frames(world), _shown(world)
        loops, frames = world.loops, world.keyframes
        ids = frames.ids.copy()
        closures = Links(
            *(loops[name].copy() for name in ("first", "second", "first_S_second", "information"))
        )
        chosen = ids[[np.argmin(frames["stamp"])]] if fixed is None else np.atleast_1d(whole_numbers(fixed))
        frames.rows(chosen)  # refuses ids that the map does not have
        state = _State(
            ids,
            frames["world_T_body"].copy(),
            frames["velocity"].copy(),
            (frames["gyro_bias"].copy(), frames["acc_bias"].copy()),
            np.isin(ids, chosen) | frames["fixed"],
            loops.ids.copy(),
            closures,
        )
    if not state.stays.any():
        raise OptionError(f"fixed is {fixed!r}: at least one keyframe of the map has to stay.")
    return links or _links(copied, shown, _MIN_SHARED), state


def _rounds(
    graph: graphopt.Graph, loops: slice, mode: str, closures: Links, options: SolveOptions, clock: Clock
) -> tuple[graphopt.Summary, int, np.ndarray, np.ndarray]:
    """Optimize until the loops' verdicts repeat: summary, rounds, chi2 of the loops, which are inliers."""
    inliers = np.ones(len(closures.first), bool)
    summary, rounds = optimize(graph, options, clock), 1
    chi2 = _chi2(graph, loops)
    limit = chi2_quantile(options.confidence, MODES[mode][2])
    while rounds < options.rounds and is_usable(summary) and not clock.is_over:
        now = _judged(chi2, limit, inliers, rounds + 1 == options.rounds)
        if np.array_equal(now, inliers):
            break
        inliers = now
        _take_part(graph, loops, _measured(mode, closures)[1], inliers)
        summary, rounds = optimize(graph, options, clock), rounds + 1
        chi2 = _chi2(graph, loops, closures, mode)
    return summary, rounds, chi2, inliers


def _corrected(key: int, given: Any) -> np.ndarray:
    """A similarity (8,) of `corrected`."""
    similarity = np.asarray(given, float)
    if (
        similarity.shape != (8,)
        or not np.isfinite(similarity).all()
        or abs(np.linalg.norm(similarity[3:7]) - 1.0) > 1e-2
        or not similarity[7] > 0.0
    ):
        raise OptionError(
            f"corrected[{key}] is {given!r}, expected finite (8,): x, y, z, a unit quaternion, scale > 0."
        )
    return similarity


def _graph(
    mode: str,
    ids: np.ndarray,
    start: np.ndarray,
    held: np.ndarray,
    links: Links,
    closures: Links,
    options: SolveOptions,
) -> tuple[graphopt.Graph, slice]:
    """The graph, and the rows of its edges that are loops."""
    vertex, edge, dim = MODES[mode]
    graph = graphopt.Graph()
    graph.add_vertices(vertex, ids, _storage(mode, start), fixed=held)
    ends = (np.stack([edges.first, edges.second], axis=1) for edges in (links, closures))
    graph.add_edges(edge, next(ends), *_measured(mode, links))
    loop_ends = next(ends)
    if not len(loop_ends):
        return graph, slice(0, 0)
    width = chi2_quantile(options.confidence, dim) ** 0.5
    return graph, graph.add_edges(
        edge, loop_ends, *_measured(mode, closures), kernel=options.kernel, kernel_width=width
    )


def _up(gravity: np.ndarray) -> np.ndarray | None:
    """Sim3 (8,) that turns gravity onto the z axis; None where it lies there."""
    if np.linalg.norm(gravity[:2]) <= 1e-9 * abs(gravity[2]):
        return None
    axis = np.cross(gravity, [0.0, 0.0, 1.0])
    angle = np.arctan2(np.linalg.norm(axis), gravity[2])
    turn = SO3.exp(axis / np.linalg.norm(axis) * angle)
    return np.concatenate([np.zeros(3), np.asarray(turn.storage), [1.0]])


def _storage(mode: str, world_S_body: np.ndarray) -> np.ndarray:
    """Estimates of the vertices; VertexSim3Expmap holds body_S_world, and intrinsics without use here."""
    if mode != "sim3":
        return world_S_body[:, :7]
    rest = np.tile([1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0], (len(world_S_body), 1))
    return np.concatenate([np.asarray(Sim3(world_S_body).inverse().storage), rest], axis=1)


def _measured(mode: str, links: Links) -> tuple[np.ndarray, np.ndarray]:
    """Measurements and information of the edges; the errors of EdgeSim3 are in the frame of the second."""
    if mode == "sim3":
        # log(measured first second^-1) with first, second = body_S_world: measured = second_S_first
        return np.asarray(Sim3(links.first_S_second).inverse().storage), links.information
    order = [3, 4, 5, 0, 1, 2]
    information = links.information[:, order][:, :, order].copy()
    information[:, 3:, :] *= 2.0  # the error has half the turn
    information[:, :, 3:] *= 2.0
    return links.first_S_second[:, :7], information


def _chi2(graph: graphopt.Graph, rows: slice, closures: Links | None = None, mode: str = "") -> np.ndarray:
    edges = graph.edge_sets[0]
    error = edge_errors(graph, edges)[rows]
    information = edges.information[rows] if closures is None else _measured(mode, closures)[1]
    return np.einsum("kd,kde,ke->k", error, information, error)


def _judged(chi2: np.ndarray, limit: float, inliers: np.ndarray, is_last: bool) -> np.ndarray:
    """Which loops (k,) the next round has: of the present ones, before the last round, all but the worst."""
    worst = float(chi2[inliers].max(initial=0.0))
    if is_last or worst <= limit:
        return chi2 <= limit
    return (chi2 <= limit) | (inliers & (chi2 < max(limit, _WORST * worst)))


def _take_part(graph: graphopt.Graph, rows: slice, information: np.ndarray, inliers: np.ndarray) -> None:
    graph.edge_sets[0].information[rows] = information * inliers[:, None, None]


def _poses(mode: str, graph: graphopt.Graph) -> np.ndarray:
    """(n, 8) world_S_body as found."""
    estimate = graph.vertex_sets[0].estimate
    if mode == "sim3":
        return np.asarray(Sim3(estimate[:, :8]).inverse().storage)
    poses = estimate.copy()
    poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
    return np.concatenate([poses, np.ones((len(poses), 1))], axis=1)


def _moved(
    world: Map, ids: np.ndarray, before: np.ndarray, after: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Landmarks with a reference among these keyframes: ids (m,), and where they moved with it (m, 3)."""
    with world.lock:
        reference = world.landmarks["reference"]
        finite = np.isfinite(world.landmarks["position"]).all(axis=1)
        rows = np.flatnonzero(np.isin(reference, ids) & finite)
        frame = np.searchsorted(ids, reference[rows])
        points, names = world.landmarks["position"][rows], world.landmarks.ids[rows].copy()
    if not len(rows):
        return names, points.copy()
    local = Sim3(before[frame]).inverse().act(points)
    return names, np.asarray(Sim3(after[frame]).act(local))


def _turned(velocity: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Velocities turned with their keyframes."""
    turn = SE3(after[:, :7]).rotation * SE3(before).rotation.inverse()
    return np.asarray(turn.act(velocity))


def _write(
    world: Map,
    ids: np.ndarray,
    found: np.ndarray,
    velocity: np.ndarray,
    moved: tuple[np.ndarray, np.ndarray],
    loops: np.ndarray,
    inliers: np.ndarray,
) -> None:
    with world.lock:
        for table, names, columns in (
            (world.keyframes, ids, {"world_T_body": found[:, :7], "velocity": velocity}),
            (world.landmarks, moved[0], {"position": moved[1]}),
            (world.loops, loops, {"inlier": inliers}),
        ):
            rows = table.find(names)
            for column, values in columns.items():
                table[column][rows[rows >= 0]] = values[rows >= 0]
