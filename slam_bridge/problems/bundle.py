"""Bundle adjustment of a selection of a map: rounds of optimization, between which outliers are told apart.

    round 1      all observations whose camera model holds at the start, robust kernel
    round 2...   those whose chi2 lies below the quantile of `SolveOptions.confidence`, both ways: an
                 outlier may come back; landmarks that went astray get another place (`lost_landmarks`);
                 IMU measurements are integrated anew where the biases moved far

An observation of d numbers is an outlier if chi2 > quantile(confidence, d) at the end of a round, or if the
point is where the camera's model does not hold (behind a pinhole camera). An IMU measurement is rejected if
its chi2 exceeds 9 quantiles of `imu_confidence`, and its keyframes are seen well enough to do without; but
first a round with a kernel that lets it go entirely (Cauchy) shows whether it or its neighbours are wrong.

Steps of Gauss-Newton are not damped: for `method="gn"` what the inliers do not determine is held in a round
(landmarks of one pixel, keyframes that nothing measures), which the other methods' damping does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

import graphopt
import slam_bridge.problems.scale as scale
from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError
from graphopt.solver.marginals import compute_marginals
from graphopt.strategies.quantiles import chi2_quantile
from graphopt.types import slam3d
from slam_bridge.map import Map
from slam_bridge.marginal_prior import LANDMARK, POSE
from slam_bridge.options import NOT_BEGUN, Clock, SolveOptions, has_begun, is_usable, optimize
from slam_bridge.preintegration import combined_informations, measurements, reintegrate
from slam_bridge.problems.landmark_covariance import informations
from slam_bridge.problems.lost_landmarks import few_inliers, placed_anew
from slam_bridge.problems.pose_optimization import BY_CHANCE
from slam_bridge.problems.result import Covariances, Result, States
from slam_bridge.selection import Selection
from slam_bridge.window import Window, calibration_ids

GYRO_TOLERANCE, ACC_TOLERANCE = 0.01, 0.1
"""Integrate again where a bias moved by more [rad/s, m/s^2]."""
_MIN_SEEN = 3
"""Observations that a keyframe needs, to be held without its IMU measurement."""
_FAR = 9.0
_BLUNT = "Cauchy"
_EXACT = 1e-6
"""[m, rad] to which the gauge is held for covariances: of what holds it nothing should be in them."""
_PARALLEL = 1e-8
"""Of a landmark's information along its rays to that across: parallel to 1e-4, which no pixel shows."""
_INSIDE = 1e8
"""Of a landmark's information to the usual one: 1e-4 of the usual distance away, in the camera's centre."""


class Tally(NamedTuple):
    """Of the inliers of a judgement."""

    by_keyframe: np.ndarray
    """(k,) int64: how many."""
    by_landmark: np.ndarray
    """(m,) int64."""
    shares: np.ndarray
    """(k,) bool: has one of a landmark that is fixed, in a prior, or that another keyframe has one of."""


@dataclass(eq=False)
class Judgement:
    """Who takes part, and what speaks against the others."""

    inliers: np.ndarray
    """(o,) bool."""
    imu_inliers: np.ndarray
    """(i,) bool."""
    holds: np.ndarray
    """(o,) bool: the camera's model holds."""
    chi2: np.ndarray
    """(o,)."""
    _counted: tuple[np.ndarray, Tally] | None = None

    def tally(self, s: Selection) -> Tally:
        """Counts of the inliers; one pass per array `inliers`. s: a selection with these observations."""
        if self._counted is None or self._counted[0] is not self.inliers:
            seen, known = s.observations, s.landmarks_in_priors() | s.points_fixed
            counts = kernels.tally(self.inliers, seen.keyframe, seen.landmark, len(s.keyframes), known)
            self._counted = self.inliers, Tally(*counts)
        return self._counted[1]


def bundle(
    name: str,
    world: Map | None,
    selection: Selection,
    options: SolveOptions,
    window: Window | None,
    clock: Clock,
    estimate: tuple[str, ...] | str = (),
) -> Result:
    """Optimize a selection and, if asked, write the result into the map."""
    estimate = (estimate,) if isinstance(estimate, str) else tuple(estimate)
    _refuse_impossible(name, selection, estimate)
    window = window or Window()
    start, holds = selection, selection.holds()
    far = selection.landmarks_far()
    if far.any():
        holds = holds & ~far[selection.observations.landmark]
    now = Judgement(holds, np.ones(len(selection.imu), bool), holds, np.where(holds, 0.0, np.inf))
    summary, rounds, imu_kernel, more = None, 0, options.kernel, True
    placed = np.zeros(0, np.int64)
    clock.lap("judge")
    while more:
        undetermined = _undetermined_landmarks(selection, now) if options.method == "gn" else None
        taken = (
            now.inliers
            if undetermined is None
            else now.inliers & ~undetermined[selection.observations.landmark]
        )
        graph = window.load(selection, options, taken, now.imu_inliers, estimate, imu_kernel)
        if undetermined is not None:
            window.hold(selection, _lost_keyframes(selection, now), _unlinked(selection, now), undetermined)
        clock.lap("build")
        summary = optimize(graph, options, clock, summary)
        rounds += 1
        selection = window.states(selection)
        before, now = now, _judged(window, selection, options)
        selection, again = _reintegrated(selection)
        if options.kernel is not None and imu_kernel != _BLUNT and not now.imu_inliers.all():
            imu_kernel, again = _BLUNT, True
            if rounds < options.rounds:
                now.imu_inliers[:] = True
        settled = not again and _agree(before, now) and _converged(summary)
        more = rounds < options.rounds and not clock.is_over and is_usable(summary)
        if more:
            lost = np.setdiff1d(few_inliers(selection, now.inliers, holds), placed)
            if len(lost):
                selection, now.inliers, moved = placed_anew(selection, now.inliers, lost, options.confidence)
                placed = np.union1d(placed, moved)
                settled = settled and not len(moved)
        more = more and not settled
        clock.lap("judge")
    assert summary is not None
    if is_usable(summary) and scale.is_open(selection, estimate):
        selection = scale.kept(start, selection)
    selection = _lost_stay(start, selection, now)
    result = _result(name, window, selection, now, summary, rounds, options, estimate)
    result.extra["placed anew"] = selection.landmarks[placed]
    if estimate:
        result.extra["calibration"] = window.calibration(selection)
    if rounds == 1 and not has_begun(summary):
        result = replace(result, refused=NOT_BEGUN)
    result = replace(result, writer=lambda target: write_back(target, selection, now))
    if options.update and world is not None and result.is_usable:
        result.write_to(world)
    clock.lap("write")
    result.seconds.update(clock.total())
    return result


def _refuse_impossible(name: str, selection: Selection, estimate: tuple[str, ...]) -> None:
    """`OptionError` where nothing is free, a number is not finite, or no pixel shows a time offset."""
    if selection.fixed.all() and (selection.points_fixed or not len(selection.landmarks)):
        raise OptionError(
            f"{name}: every keyframe is fixed and there are no free landmarks; nothing to optimize."
        )
    selection.refuse_non_finite()
    if "time_offset" in estimate and len(selection.observations) and not selection.observations.flow.any():
        raise OptionError(
            f"{name}: no observation has the velocity of its pixel, without which none shows a time offset: "
            "add_observations(..., flow=) [px/s]."
        )


def _lost_stay(start: Selection, found: Selection, now: Judgement) -> Selection:
    """Landmarks without inliers, and keyframes that nothing measures, where they were at the start."""
    nowhere = _lost_keyframes(found, now)
    if nowhere.any():
        now.inliers = now.inliers & ~nowhere[found.observations.keyframe]
        poses = np.where(nowhere[:, None], start.world_T_body, found.world_T_body)
        found = found.with_changes(world_T_body=poses)
    lost = now.tally(found).by_landmark == 0
    lost &= ~found.landmarks_in_priors()
    if found.points_fixed or not lost.any():
        return found
    return found.with_changes(points=np.where(lost[:, None], start.points, found.points))


def _converged(summary: graphopt.Summary) -> bool:
    return summary.termination in (
        graphopt.TerminationType.CONVERGENCE,
        graphopt.TerminationType.NO_IMPROVEMENT,
    )


def _agree(before: Judgement, now: Judgement) -> bool:
    same = np.array_equal(before.inliers, now.inliers)
    return same and np.array_equal(before.imu_inliers, now.imu_inliers)


def _judged(window: Window, s: Selection, options: SolveOptions) -> Judgement:
    chi2, dims = window.observation_chi2(s)
    holds = s.holds()
    limits = np.array([np.inf] + [chi2_quantile(options.confidence, d) for d in range(1, 5)])
    with np.errstate(invalid="ignore"):
        inliers = holds & (chi2 <= limits[dims])
    now = Judgement(inliers, np.ones(len(s.imu), bool), holds, np.where(holds, chi2, np.inf))
    now.imu_inliers = _imu_inliers(window, s, now, options)
    return now


def _imu_inliers(window: Window, s: Selection, now: Judgement, options: SolveOptions) -> np.ndarray:
    """(i,) bool: a measurement is rejected if it is far off, and both its keyframes see enough without it."""
    chi2 = window.imu_chi2(s)
    far = ~(chi2 <= _FAR * chi2_quantile(options.imu_confidence, 15))
    seen = now.tally(s).by_keyframe >= _MIN_SEEN
    seen[s.pose_prior_keyframe] = True
    return ~(far & (seen | s.fixed)[s.imu_ends].all(axis=1))


def _reintegrated(s: Selection) -> tuple[Selection, bool]:
    """The selection with measurements integrated anew where the biases moved far, and whether any did."""
    if not len(s.imu):
        return s, False
    first = s.imu_ends[:, 0]
    g, a = s.gyro_bias[first], s.acc_bias[first]
    d_g = np.linalg.norm(g - s.imu_measurement[:, 11:14], axis=1)
    d_a = np.linalg.norm(a - s.imu_measurement[:, 14:17], axis=1)
    far = np.flatnonzero((d_g > GYRO_TOLERANCE) | (d_a > ACC_TOLERANCE))
    if not len(far) or not np.isfinite(g).all() or not np.isfinite(a).all():
        return s, False
    measured = list(s.preintegrated)
    measurement, information = s.imu_measurement.copy(), s.imu_information.copy()
    again = reintegrate([measured[k] for k in far.tolist()], g[far], a[far])
    for k, fresh in zip(far.tolist(), again, strict=True):
        measured[k] = fresh
    measurement[far], information[far] = measurements(again, s.gravity), combined_informations(again)
    changes = {
        "imu_measurement": measurement,
        "imu_information": information,
        "preintegrated": tuple(measured),
    }
    return s.with_changes(**changes), True


def write_back(world: Map, s: Selection, judgement: Judgement | None = None) -> None:
    """Write states, positions, inliers and measurements into the map, where it still has them."""
    with world.lock:
        free = s.free
        for rows in (world.keyframes.find(s.keyframes[free]),):
            there = rows >= 0
            world.keyframes["world_T_body"][rows[there]] = s.world_T_body[free[there]]
            inertial = there & s.inertial[free]
            for name in ("velocity", "gyro_bias", "acc_bias"):
                world.keyframes[name][rows[inertial]] = getattr(s, name)[free[inertial]]
        if not s.points_fixed:
            rows = world.landmarks.find(s.landmarks)
            world.landmarks["position"][rows[rows >= 0]] = s.points[rows >= 0]
        if judgement is not None:
            rows = world.observations.find(s.observations.ids)
            world.observations["inlier"][rows[rows >= 0]] = judgement.inliers[rows >= 0]
        changed = [
            (id_, measured)
            for id_, measured in zip(s.imu.tolist(), s.preintegrated, strict=True)
            if id_ in world.preintegrated and world.preintegrated[id_] is not measured
        ]
        if changed:
            world.set_imu([id_ for id_, _ in changed], [measured for _, measured in changed])


def _result(
    name: str,
    window: Window,
    s: Selection,
    now: Judgement,
    summary: graphopt.Summary,
    rounds: int,
    options: SolveOptions,
    estimate: tuple[str, ...],
) -> Result:
    free = s.free
    states = States(
        s.keyframes[free], s.world_T_body[free], s.velocity[free], s.gyro_bias[free], s.acc_bias[free]
    )
    landmarks = np.zeros(0, np.int64) if s.points_fixed else s.landmarks
    points = np.zeros((0, 3)) if s.points_fixed else s.points

    def covariance_of(wanted: list[tuple[str, int]]) -> Covariances:
        return _covariances(s, now, options, wanted, estimate)

    return Result(
        name,
        summary,
        states,
        landmarks,
        points,
        s.observations.ids,
        now.inliers,
        now.chi2,
        window.chi2_by_edge_set(),
        _rejected(s, now),
        {},
        rounds,
        {"imu": s.imu, "imu_inliers": now.imu_inliers, "unshared": s.keyframes[_unshared(s, now)]},
        covariance_of=covariance_of,
    )


def _rejected(s: Selection, now: Judgement) -> dict[str, np.ndarray]:
    o, of_point = s.observations.ids, now.tally(s).by_landmark
    unseen = ~s.fixed & _hardly_seen(s, now) & (len(o) > 0)
    return {
        "behind camera": o[~now.holds],
        "chi2": o[now.holds & ~now.inliers],
        "imu": s.imu[~now.imu_inliers],
        "landmark without inliers": s.landmarks[(of_point == 0) & ~s.landmarks_in_priors()],
        "keyframe without inliers": s.keyframes[unseen],
    }


def _covariances(
    s: Selection,
    now: Judgement,
    options: SolveOptions,
    wanted: list[tuple[str, int]],
    estimate: tuple[str, ...],
) -> Covariances:
    """Marginal covariances on a graph of its own, at the result; weights as without robust kernel.

    Landmarks that the inliers do not determine (none, or one pixel) say nothing about poses: they are held
    and their pixels left out, which changes no other covariance. Likewise keyframes that nothing measures,
    and velocity and biases of those whose IMU measurements were all rejected. Landmarks of parallel rays say
    something about rotations: they are held along their rays. Those that ended in a camera's centre, as of
    two views from one place, are left out.
    """
    undetermined, lost = _undetermined_landmarks(s, now), _lost_keyframes(s, now)
    known = _informations(s, now.inliers)
    with_some = known[:, 2] > 0.0
    if with_some.any():
        undetermined |= known[:, 2] > _INSIDE * np.median(known[with_some, 2])
    inliers = now.inliers & ~undetermined[s.observations.landmark]
    window = Window(gauge_sigma=_EXACT)
    graph = window.load(s, options.with_changes(kernel=None), inliers, now.imu_inliers, estimate)
    unlinked = _unlinked(s, now)
    window.hold(s, lost, unlinked, undetermined)
    parallel = ~undetermined & with_some & (known[:, 0] <= _PARALLEL * known[:, 2]) & ~s.landmarks_in_priors()
    if parallel.any():
        _hold_along_rays(graph, s, parallel, known[parallel, 2])
        undetermined = undetermined | parallel
    for kind, id_ in wanted:
        if kind == "camera":
            continue
        ids, open_ones = (s.keyframes, lost) if kind == "keyframe" else (s.landmarks, undetermined)
        if np.isin(id_, ids[open_ones]):
            raise OptionError(
                f"{kind} {id_} has no covariance: its inliers do not determine it. `Result.inliers` says who "
                "is left."
            )
    parts: dict[tuple[str, int], list[int]] = {}
    for kind, id_ in wanted:
        if kind == "camera":
            parts[kind, id_] = _camera_vertices(s, id_, estimate)
            continue
        ids = s.keyframes if kind == "keyframe" else s.landmarks
        place = int(np.searchsorted(ids, id_))
        if place == len(ids) or ids[place] != id_:
            raise OptionError(f"{kind} {id_} took no part in this optimization.")
        if kind == "keyframe":
            count = 4 if s.inertial[place] and not unlinked[place] else 1
            parts[kind, id_] = [4 * place + part for part in range(count)]
        else:
            parts[kind, id_] = [4 * len(s.keyframes) + place]
    pairs = [(a, b) for ids in parts.values() for a in ids for b in ids]
    blocks = compute_marginals(graph, pairs)
    return {key: np.block([[blocks[a, b] for b in ids] for a in ids]) for key, ids in parts.items()}


def _camera_vertices(s: Selection, camera: int, estimate: tuple[str, ...]) -> list[int]:
    count = 0 if s.rig is None else len(s.rig)
    if not estimate or not 0 <= camera < count:
        raise OptionError(
            f"camera {camera} took no part in this optimization: estimate is {estimate!r}, the rig has "
            f"{count} cameras."
        )
    return calibration_ids(s, camera, estimate)


def _informations(s: Selection, inliers: np.ndarray) -> np.ndarray:
    """(m, 3) eigenvalues of the landmarks' informations, poses held, ascending; zero where these are."""
    seen, rows = s.observations, np.flatnonzero(inliers)
    if s.rig is None or s.points_fixed or not len(rows):
        return np.zeros((len(s.landmarks), 3))
    of = seen.landmark[rows]
    columns = {
        name: getattr(seen, name)[rows] for name in ("camera", "right", "depth", "sigma", "depth_sigma")
    }
    poses = s.world_T_body[seen.keyframe[rows]]
    return np.linalg.eigvalsh(informations(s.rig, poses, s.points[of], of, len(s.landmarks), **columns))


def _hold_along_rays(graph: graphopt.Graph, s: Selection, parallel: np.ndarray, across: np.ndarray) -> None:
    """Priors hold what is open of landmarks with parallel rays; across: their largest informations.

    They weigh `_PARALLEL` times those across the rays: of the distance they say next to nothing.
    """
    ids = graph.vertex_set(slam3d.VertexPointXYZ).ids[parallel]
    weights = _PARALLEL * across[:, None, None] * np.eye(3)
    graph.add_edges(slam3d.EdgeXYZPrior, ids[:, None], s.points[parallel], weights)


def _unlinked(s: Selection, now: Judgement) -> np.ndarray:
    """(k,) free keyframes with inertial states of which neither an IMU measurement nor a prior knows."""
    known = s.fixed | ~s.inertial
    known[s.imu_ends[now.imu_inliers].ravel()] = True
    for prior in s.priors:
        known |= np.isin(s.keyframes, prior.owner[(prior.kind != POSE) & (prior.kind != LANDMARK)])
    return ~known


def _undetermined_landmarks(s: Selection, now: Judgement) -> np.ndarray:
    """(m,) bool: without a right column, a depth, pixels of two views, or a prior."""
    if s.points_fixed:
        return np.zeros(len(s.landmarks), bool)
    seen, inliers = s.observations, now.inliers
    view = (seen.keyframe * (len(s.rig or ()) or 1) + seen.camera)[inliers]
    landmark = seen.landmark[inliers]
    some_view = np.full(len(s.landmarks), -1)
    some_view[landmark] = view
    says_more = view != some_view[landmark]
    says_more |= (np.isfinite(seen.right) | np.isfinite(seen.depth))[inliers]
    undetermined = np.bincount(landmark[says_more], minlength=len(s.landmarks)) == 0
    return undetermined & ~s.landmarks_in_priors()


def _lost_keyframes(s: Selection, now: Judgement) -> np.ndarray:
    """(k,) bool: free, without inertial states, inliers (`_hardly_seen`), a measured pose or a prior."""
    open_ones = ~s.inertial & ~s.fixed
    if not open_ones.any():
        return open_ones
    lost = _hardly_seen(s, now) & open_ones
    lost[s.pose_prior_keyframe] = False
    in_prior = [prior.owner[prior.kind != LANDMARK] for prior in s.priors]
    return lost & ~np.isin(s.keyframes, np.concatenate([np.zeros(0, np.int64), *in_prior]))


def _unshared(s: Selection, now: Judgement) -> np.ndarray:
    """(k,) free keyframes none of whose inliers is of a landmark that another keyframe or a prior knows.

    Pixels say nothing of where they are; of those with a measured pose or a prior others do.
    """
    if not len(s.observations.ids):
        return np.zeros(len(s.keyframes), bool)
    known = s.fixed | now.tally(s).shares
    known[s.pose_prior_keyframe] = True
    owners = [prior.owner[prior.kind == POSE] for prior in s.priors]
    return ~known & ~np.isin(s.keyframes, np.concatenate([np.zeros(0, np.int64), *owners]))


def _hardly_seen(s: Selection, now: Judgement) -> np.ndarray:
    """(k,) bool: without inliers, with too few for a pose, or with so few that chance may have made them."""
    good = now.tally(s).by_keyframe
    every = np.bincount(s.observations.keyframe, minlength=len(s.keyframes))
    return (good == 0) | (good < BY_CHANCE * every) | ((good < _MIN_SEEN) & ~s.inertial)
