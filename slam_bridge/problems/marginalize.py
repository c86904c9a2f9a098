"""Marginalization: keyframes and landmarks leave a map, what they said about the others stays as a prior.

    all edges of the states that go, linearised:    H d = b
    prior over their neighbours:                    H_kk - H_kg inv(H_gg) H_gk,   b_k - H_kg inv(H_gg) b_g

The prior holds every neighbour: keyframes linked by IMU measurements or by landmarks that go, and landmarks
that a keyframe that goes observes and that stay. Priors of the map that hold a state that goes are taken
in.

*First estimates* (Huang, Mourikis, Roumeliotis, ICRA 2008; FEJ): a state that an earlier prior holds is
linearised where that prior was, so that all priors agree on what is unobservable, and the new prior refers to
that place again. Without, everything is linearised at the present estimates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import graphopt
from graphopt.errors import OptionError
from slam_bridge.dense import dense_system, eliminated, offset_of
from slam_bridge.map import Map
from slam_bridge.marginal_prior import LANDMARK, POSE, STATE_COLUMNS, MarginalPrior
from slam_bridge.options import Clock, SolveOptions
from slam_bridge.problems.result import Result
from slam_bridge.selection import Observations, Selection, select
from slam_bridge.tables import whole_numbers
from slam_bridge.window import Window


def marginalize(
    world: Map,
    keyframes: Any = (),
    landmarks: Any = None,
    first_estimates: bool = False,
    inertial: bool = True,
    options: SolveOptions | None = None,
) -> Result:
    """Remove keyframes and landmarks (ids) from a map and leave a prior on their neighbours.

    landmarks: None takes all that these keyframes observe, with all their observations. inertial: False
    leaves velocities, biases and IMU measurements out. Observations marked as outliers say nothing. With
    `options.update` False the map stays as it is. `extra["prior"]`: the new prior, None where no neighbour
    is left.
    """
    options = options or SolveOptions()
    clock = Clock(options)
    with world.lock:
        gone = np.unique(whole_numbers(keyframes))
        seen_by = world.observed_landmarks(gone) if len(world.observations) else np.zeros(0, np.int64)
        points = seen_by if landmarks is None else np.unique(whole_numbers(landmarks))
        world.keyframes.rows(gone)
        world.landmarks.rows(points)
        if not len(gone) and not len(points):
            raise OptionError("marginalize: neither keyframes nor landmarks were given.")
        selection, absorbed = _involved(world, gone, points, np.union1d(points, seen_by), inertial)
        clock.lap("select")
        prior, summary = _prior(selection, gone, points, first_estimates)
        clock.lap("marginalize")
        if options.update:
            _remove(world, gone, points, absorbed)
            if prior is not None:
                world.priors.append(prior)
        clock.lap("write")
    return Result("marginalize", summary, seconds=clock.total(), extra={"prior": prior, "landmarks": points})


def _remove(world: Map, gone: np.ndarray, points: np.ndarray, absorbed: list[MarginalPrior]) -> None:
    world.priors = [prior for prior in world.priors if not any(prior is other for other in absorbed)]
    world.remove_landmarks(points)
    world.remove_keyframes(gone, join_imu=False)


def _involved(
    world: Map, gone: np.ndarray, points: np.ndarray, seen: np.ndarray, inertial: bool
) -> tuple[Selection, list[MarginalPrior]]:
    """Selection of all edges that have a state that goes; the priors among them."""
    absorbed = [
        prior
        for prior in world.priors
        if np.isin(prior.keyframes, gone).any() or np.isin(prior.landmarks, points).any()
    ]
    frames = [gone, *(prior.keyframes for prior in absorbed)]
    for a, b in (("first", "second"), ("second", "first")):
        frames.append(world.imu[b][np.isin(world.imu[a], gone)] if inertial else np.zeros(0, np.int64))
    frames.append(world.observations["keyframe"][np.isin(world.observations["landmark"], points)])
    ids = np.unique(np.concatenate(frames))
    places = np.unique(np.concatenate([seen, *(prior.landmarks for prior in absorbed)]))
    with_states = ids[world.keyframes["has_states"][world.keyframes.rows(ids)]] if inertial else ()
    s = select(world, ids, inertial=with_states, landmarks=places, visual=len(world.observations) > 0)
    inlier = world.observations["inlier"][world.observations.rows(s.observations.ids)]
    o = s.observations
    takes = np.isin(s.keyframes[o.keyframe], gone) | np.isin(s.landmarks[o.landmark], points)
    rows = np.flatnonzero(takes & inlier & s.holds())
    imu = np.flatnonzero(np.isin(s.keyframes[s.imu_ends], gone).any(axis=1))
    own = np.isin(s.keyframes[s.pose_prior_keyframe], gone)
    return s.with_changes(
        observations=Observations(*(getattr(o, name)[rows] for name in Observations.__dataclass_fields__)),
        imu=s.imu[imu],
        imu_ends=s.imu_ends[imu],
        imu_measurement=s.imu_measurement[imu],
        imu_information=s.imu_information[imu],
        preintegrated=tuple(s.preintegrated[k] for k in imu.tolist()),
        priors=tuple(absorbed),
        pose_prior_keyframe=s.pose_prior_keyframe[own],
        pose_prior=s.pose_prior[own],
        pose_prior_information=s.pose_prior_information[own],
    ), absorbed


def _prior(
    s: Selection, gone: np.ndarray, points: np.ndarray, first_estimates: bool
) -> tuple[MarginalPrior | None, graphopt.Summary]:
    if first_estimates:
        s = _at_first_estimates(s)
    window = Window(hold_gauge=False)
    graph = window.load(s, SolveOptions(kernel=None))
    summary = graphopt.Summary(
        graph.num_vertices, graph.num_edges, "marginalize", graphopt.TerminationType.CONVERGENCE
    )
    summary.initial_chi2 = summary.final_chi2 = graph.chi2()
    h, b, places = dense_system(graph)
    k = len(s.keyframes)
    names = []  # (kind, id, rows, goes, storage)
    for vertex, rows in places.items():
        if vertex >= 4 * k:
            id_ = int(s.landmarks[vertex - 4 * k])
            names.append((LANDMARK, id_, rows, id_ in points, s.points[vertex - 4 * k]))
        else:
            number, kind = divmod(vertex, 4)
            id_ = int(s.keyframes[number])
            names.append((kind, id_, rows, id_ in gone, getattr(s, STATE_COLUMNS[kind])[number]))
    goes = np.zeros(len(b), bool)
    for *_, rows, is_gone, _ in names:
        goes[rows] = is_gone
    kept = [name for name in names if not name[3]]
    if not kept:
        return None, summary
    h, b = eliminated(h, b, goes)
    reference = np.zeros((len(kept), 7))
    for row, (*_, storage) in enumerate(kept):
        reference[row, : len(storage)] = storage
    kinds, owners = np.array([state[0] for state in kept]), np.array([state[1] for state in kept])
    return MarginalPrior(kinds, owners, reference, h, offset_of(h, b)), summary


def _at_first_estimates(s: Selection) -> Selection:
    """The selection with the states of its priors where these were linearised."""
    changes = {name: getattr(s, name).copy() for name in (*STATE_COLUMNS, "points")}
    for prior in s.priors:
        for kind, owner, storage in zip(
            prior.kind.tolist(), prior.owner.tolist(), prior.reference, strict=True
        ):
            if kind == LANDMARK:
                changes["points"][np.searchsorted(s.landmarks, owner)] = storage[:3]
            else:
                size = 7 if kind == POSE else 3
                changes[STATE_COLUMNS[kind]][np.searchsorted(s.keyframes, owner)] = storage[:size]
    return s.with_changes(**changes)
