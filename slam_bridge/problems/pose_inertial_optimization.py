"""The state of one frame from known landmarks and the IMU measurement since the last one.

As in ORB-SLAM3 (`Optimizer::PoseInertialOptimizationLastFrame` and `...LastKeyFrame`):

    previous state   fixed (a keyframe of the map), or free and held by a marginal prior (the last frame)
    IMU              EDGE_IMU_INERTIAL_COMBINED from it to the frame
    landmarks        EDGE_VI_POSE_*, judged between the rounds

What the two states and all edges say about the frame's state alone is `extra["prior"]`: the previous state is
minimised over (Schur complement). It is the prior of the next frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import graphopt
from graphopt.errors import OptionError
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.types import inertial, marginal, slam3d
from slam_bridge.cameras import Rig
from slam_bridge.dense import dense_hessian, eliminated, offset_of, places_of
from slam_bridge.imu import GRAVITY
from slam_bridge.marginal_prior import ACC_BIAS, POSE, MarginalPrior
from slam_bridge.options import NOT_BEGUN, Clock, SolveOptions, has_begun
from slam_bridge.preintegration import Preintegrated
from slam_bridge.problems.frame import FrameGraph, FrameObservations
from slam_bridge.problems.frame_covariance import covariance_of_frame
from slam_bridge.problems.landmark_covariance import widened
from slam_bridge.problems.pose_optimization import (
    DEFAULTS,
    ahead,
    by_chance,
    pose_numbers,
    pose_optimization,
    rounds_of,
)
from slam_bridge.problems.result import Result, States

_VECTORS = (inertial.VertexVelocity, inertial.VertexGyroBias, inertial.VertexAccBias)
_PREVIOUS = 4  # vertex ids: 0 to 3 the frame's state, 4 to 7 the previous one's
_AGREEING = 10  # landmarks that may contradict an IMU
STATE_KINDS = np.arange(POSE, ACC_BIAS + 1)
"""Of a `MarginalPrior` over a frame's state."""


@dataclass(frozen=True, eq=False)
class FrameState:
    """State of one frame."""

    world_T_body: np.ndarray
    """(7,)."""
    velocity: np.ndarray
    """(3,) in the world [m/s]."""
    gyro_bias: np.ndarray
    """(3,) [rad/s]."""
    acc_bias: np.ndarray
    """(3,) [m/s^2]."""

    @property
    def vectors(self) -> tuple[np.ndarray, ...]:
        """Velocity and biases."""
        return self.velocity, self.gyro_bias, self.acc_bias

    @property
    def reference(self) -> np.ndarray:
        """(4, 7) of a `MarginalPrior` over it."""
        numbers = np.zeros((4, 7))
        numbers[0] = self.world_T_body
        for row, values in zip(numbers[1:], self.vectors, strict=True):
            row[:3] = values
        return numbers

    def predicted(self, measured: Preintegrated, gravity: Any = GRAVITY) -> FrameState:
        """The state after an IMU measurement, the biases unchanged.

        A measurement that was integrated with other biases is integrated anew with these.
        """
        measured = measured.near(self.gyro_bias, self.acc_bias, 1e-5, 1e-4)
        pose, velocity = measured.predict(self.world_T_body, self.velocity, gravity)
        return FrameState(np.asarray(pose), np.asarray(velocity), self.gyro_bias, self.acc_bias)


class InertialFrameGraph(FrameGraph):
    """Graph of a frame and the state before it; `previous_is_free` where a prior holds that."""

    def __init__(self, rig: Rig, previous_is_free: bool):
        super().__init__(rig, self._extend_states)
        self.previous_is_free = previous_is_free
        self._order: tuple[CpuBlockSolver, np.ndarray, np.ndarray] | None = None

    def _extend_states(self, graph: graphopt.Graph) -> None:
        held = not self.previous_is_free
        graph.add_vertices(slam3d.VertexSE3, [_PREVIOUS], fixed=held)
        for part, kind in enumerate(_VECTORS, 1):
            graph.add_vertices(kind, [part, _PREVIOUS + part], fixed=[False, held])
        ends = [[4, 5, 6, 7, 0, 1, 2, 3]]
        graph.add_edges(inertial.EdgeInertialCombined, ends, None, _full(15))
        if self.previous_is_free:
            graph.add_edges(marginal.EdgePriorState, [[4, 5, 6, 7]], None, _full(15))
            self._prior = graph.edge_set(marginal.EdgePriorState)
        self._inertial = graph.edge_set(inertial.EdgeInertialCombined)
        self._vectors = [graph.vertex_set(kind) for kind in _VECTORS]

    def load_states(
        self,
        frame: FrameState,
        previous: FrameState,
        measured: Preintegrated,
        prior: MarginalPrior | None,
        gravity: np.ndarray,
    ) -> None:
        """Take both states, the IMU measurement between them and the prior of the previous one."""
        self._poses.estimate[1] = previous.world_T_body
        for vertices, new, old in zip(self._vectors, frame.vectors, previous.vectors, strict=True):
            vertices.estimate[0], vertices.estimate[1] = new, old
        edges = self._inertial
        edges.measurement[0] = measured.measurement(gravity)
        edges.information[0] = measured.combined_information
        if prior is not None:
            edges = self._prior
            edges.measurement[0] = np.concatenate(
                [prior.reference[0], *(state[:3] for state in prior.reference[1:]), prior.offset]
            )
            edges.information[0] = prior.information

    def order_of_states(self) -> tuple[np.ndarray, np.ndarray]:
        """(d,) scalars of H, those of the frame first, and bool (d,) which are the previous state's."""
        if self._order is None or self._order[0] is not self.solver:
            places = places_of(self.solver.structure)
            mine = np.concatenate([np.arange(places[k].start, places[k].stop) for k in range(4)])
            every = np.arange(len(self.solver.b))
            order = np.concatenate([mine, np.setdiff1d(every, mine)])
            self._order = self.solver, order, every >= len(mine)
        return self._order[1:]

    def state(self) -> FrameState:
        """The frame's state as found."""
        return self.state_in_row(0)

    def state_in_row(self, row: int) -> FrameState:
        """The frame's state (0) or the previous one (1), as found."""
        return FrameState(self.pose_in_row(row), *(vector.estimate[row].copy() for vector in self._vectors))


def _full(dim: int) -> np.ndarray:
    """An information matrix without zeros, so that programs are for full ones."""
    return np.eye(dim) + 0.01


def pose_inertial_optimization(
    rig: Rig,
    frame: FrameState | None,
    previous: FrameState,
    measured: Preintegrated,
    seen: FrameObservations,
    prior: MarginalPrior | None = None,
    options: SolveOptions | None = None,
    graph: InertialFrameGraph | None = None,
    gravity: Any = GRAVITY,
    owner: int = 0,
) -> Result:
    """Find a frame's state from landmarks and the IMU measurement since the previous state.

    frame: start; None: as the IMU predicts. prior: holds the previous state, which then is free (15 numbers:
    pose, velocity, biases, as an earlier call's `extra["prior"]`); None: the previous state is fixed.
    measured: integrated anew if its biases are far from the previous state's. graph: keep one
    `InertialFrameGraph(rig, previous_is_free)` from frame to frame. owner: id in the new prior.

    `extra`: "state" and "previous" (`FrameState`), "prior" (`MarginalPrior` of the frame's state). Too few
    landmarks do not refuse the frame: the IMU alone then says where it is, and `rejected["keyframe without
    inliers"]` holds `owner`. It drifts with the square of the time: relocalize, or start another map. Refused
    where the IMU leaves no inliers and at least half of the landmarks, and ten, agree on another pose
    (`extra["by_images"]`, (7,)): one of both is wrong, which they cannot say.
    """
    options = options or DEFAULTS
    clock, rig = Clock(options), Rig.of(rig)
    down = _checked(frame, previous, measured, prior, gravity)
    graph = _graph_of(graph, rig, prior is not None)
    measured = measured.near(previous.gyro_bias, previous.acc_bias)
    start = frame or previous.predicted(measured, down)
    seen = widened(rig, start.world_T_body, seen)
    graph.load(seen, start.world_T_body)
    graph.load_states(start, previous, measured, prior, down)
    clock.lap("build")
    holds = ahead(rig, start.world_T_body, seen)
    summary, inliers, chi2, rounds = rounds_of(graph, holds, options, clock, min_observations=0)
    state = graph.state()
    holds = ahead(rig, state.world_T_body, seen)
    clock.lap("judge")
    new_prior = _prior_of(graph, state, inliers, options, owner, clock)
    extra: dict[str, Any] = {"state": state, "prior": new_prior, "previous": graph.state_in_row(1)}
    lost, refused = by_chance(inliers), ""
    judged = not (rounds == 1 and not has_begun(summary))
    if not judged:
        lost, refused, inliers = False, NOT_BEGUN, np.zeros(len(seen), bool)
    if lost and not clock.is_over:
        visual = _by_images(rig, (state, previous), seen, options.with_changes(time_limit=clock.left))
        if visual is not None:
            extra["by_images"], refused = visual.keyframes.world_T_body[0], _contradiction(visual, inliers)
        clock.lap("images alone")
    return Result(
        "pose_inertial_optimization",
        summary,
        States(np.array([owner]), state.world_T_body[None], *(vector[None] for vector in state.vectors)),
        observations=np.arange(len(seen)),
        inliers=inliers,
        observation_chi2=chi2,
        chi2={"all": summary.final_chi2},
        rejected={
            "behind camera": np.flatnonzero(~holds),
            "chi2": np.flatnonzero(holds & ~inliers & judged),
            "keyframe without inliers": np.array([owner])[: int(lost)],
        },
        seconds=clock.total(),
        rounds=rounds,
        extra=extra,
        refused=refused,
        covariance_of=covariance_of_frame(lambda: new_prior.information, owner),
    )


def _graph_of(graph: InertialFrameGraph | None, rig: Rig, previous_is_free: bool) -> InertialFrameGraph:
    """The graph that was given, checked, or a new one."""
    graph = graph or InertialFrameGraph(rig, previous_is_free)
    if graph.previous_is_free != previous_is_free:
        raise OptionError("the graph was made with previous_is_free the other way round; make another one.")
    graph.refuse_other(rig)
    return graph


def _checked(
    frame: FrameState | None,
    previous: FrameState,
    measured: Preintegrated,
    prior: MarginalPrior | None,
    gravity: Any,
) -> np.ndarray:
    """Gravity (3,) [m/s^2]; `OptionError` for a state, measurement or prior that is none."""
    for name, given_state in (("frame", frame), ("previous", previous)):
        if given_state is not None:
            _refuse_state(name, given_state)
    if not isinstance(measured, Preintegrated):
        raise OptionError(
            f"measured is {measured!r}, expected Preintegrated. Where samples are missing there is none: "
            "`pose_optimization`."
        )
    down = np.asarray(gravity, float)
    if down.shape != (3,) or not np.isfinite(down).all():
        raise OptionError(f"gravity is {gravity!r}, expected three finite numbers [m/s^2].")
    if prior is not None and not np.array_equal(prior.kind, STATE_KINDS):
        raise OptionError(
            f"the prior is over kinds {prior.kind.tolist()}, expected one state: pose, velocity, biases of "
            "gyroscope and accelerometer."
        )
    return down


def _refuse_state(name: str, state: FrameState) -> None:
    """`OptionError` for a state of numbers that are none."""
    pose_numbers(f"{name}.world_T_body", state.world_T_body)
    for part, vector in zip(("velocity", "gyro_bias", "acc_bias"), state.vectors, strict=True):
        numbers = np.asarray(vector, float)
        if numbers.shape != (3,) or not np.isfinite(numbers).all():
            raise OptionError(f"{name}.{part} is {vector!r}, expected three finite numbers.")


def _by_images(
    rig: Rig, starts: tuple[FrameState, ...], seen: FrameObservations, options: SolveOptions
) -> Result | None:
    """The pose that most landmarks agree on without the IMU; None where there is none."""
    if len(seen) < _AGREEING:
        return None
    for start in starts:
        found = pose_optimization(rig, start.world_T_body, seen, options)
        if found.is_usable and found.num_inliers >= max(_AGREEING, 0.5 * len(seen)):
            return found
    return None


def _contradiction(visual: Result, inliers: np.ndarray) -> str:
    return (
        f"The IMU measurement contradicts the images: {visual.num_inliers} of {len(inliers)} landmarks "
        f"agree on a pose without it, {int(inliers.sum())} with it. If the IMU is in doubt (an impact, "
        'saturation), go on from extra["by_images"]; if the images are (something that moves fills '
        'them), from extra["state"].'
    )


def _prior_of(
    graph: InertialFrameGraph,
    state: FrameState,
    inliers: np.ndarray,
    options: SolveOptions,
    owner: int,
    clock: Clock,
) -> MarginalPrior:
    """What all edges say about the frame's state, the previous one minimised over."""
    solver = graph.linearized(inliers)
    order, gone = graph.order_of_states()
    h, b = dense_hessian(solver)[order[:, None], order], solver.b[order]
    if gone.any():
        h, b = eliminated(h, b, gone)
    clock.lap("marginalize")
    return MarginalPrior(STATE_KINDS, np.full(4, owner), state.reference, h, offset_of(h, b))
