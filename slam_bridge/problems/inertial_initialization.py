"""Where down is, how long a metre is, velocities and biases: the start of a visual-inertial map.

Stages, as in ORB-SLAM3 (Campos et al., Inertial-Only Optimization for Visual-Inertial Initialization, ICRA
2020):

    1  inertial only       poses of the map held: gravity direction R_g (2), scale s (1), a velocity per
       keyframe,
                           one pair of biases (6), from IMU measurements and priors on the biases
    2  visual-inertial     `full_inertial_ba` of the map, turned and scaled to metres with gravity down
    3  scale refinement    stage 1 again on the better poses: what is left of scale and direction

Stage 1 starts from a linear solution for g, s and the velocities (6 equations per interval). Whether the
motion shows what is asked of it says the marginal covariance at the answer, times what the residuals say of
the noise (`_inflation`; poses of a map are not exact, nor are data sheets): deviations of log(s), of the
gravity direction and of the biases. An accelerometer that reads 1 % too little makes every map 1 % too small
and shows in no residual: its sensitivity's sigma is part of the deviation of log(s). Noise of the positions
makes least squares find the scale too small; by how much says `position_noise`, and the scale is set right. A
still camera, a constant velocity, free fall and pure rotation leave some of these open, and are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

import graphopt
from graphopt import edge_errors
from graphopt.errors import OptionError, SolverError
from graphopt.geometry import SE3, SO3
from graphopt.solver.marginals import compute_marginals
from slam_bridge.imu import GRAVITY
from slam_bridge.map import Map
from slam_bridge.options import Clock, SolveOptions, was_stopped
from slam_bridge.preintegration import Preintegrated, measurements, reintegrate
from slam_bridge.problems.full_inertial_ba import full_inertial_ba
from slam_bridge.problems.local_ba import local_ba
from slam_bridge.problems.position_noise import MOST, dilution_of
from slam_bridge.problems.result import Result, States
from slam_bridge.problems.scale import scale_deviation
from slam_bridge.tables import MapError, whole_numbers

_DIRECTION, _SCALE, _GYRO, _ACC, _FIRST = range(5)  # vertex ids; poses and velocities follow
_STOPPED = "Stopped before gravity, scale and biases were found; the map is as it was."
_MEMORY = -0.5, 0.95
"""Correlation of neighbouring residuals: of white errors of positions, and as much as few intervals tell."""
_REFINED = 1e-3
"""A scale refinement below this is not worth another bundle adjustment."""


@dataclass(frozen=True)
class InitializationOptions:
    """What `initialize` assumes, and what it accepts."""

    with_scale: bool = True
    """False where the map is in metres already (stereo, RGB-D)."""
    gyro_bias_sigma: float = 0.1
    """Prior of the gyroscope's bias about zero [rad/s]."""
    acc_bias_sigma: float = 0.1
    """Prior of the accelerometer's bias about zero [m/s^2]."""
    acc_scale_sigma: float = 0.01
    """Of the accelerometer's sensitivity, as a fraction: data sheets say 0.5 to 3 %. s has all of it, however
    long the motion lasts. 0 where it was calibrated."""
    max_scale_deviation: float = 0.1
    """Of log(s): 0.1 is 10 %."""
    max_gravity_deviation: float = float(np.deg2rad(3.0))
    """Of the direction [rad]."""
    max_bias_ratio: float = 0.7
    """Of each bias along its worst direction, as a fraction of the prior's sigma."""
    max_rounds: int = 4
    """Optimizations at most; each but the first follows an integration with the biases found."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name == "acc_scale_sigma":
                if not value >= 0:
                    raise OptionError(f"InitializationOptions.{name} is {value}, must be >= 0.")
            elif name != "with_scale" and not value > 0:
                raise OptionError(f"InitializationOptions.{name} is {value}, must be > 0.")


@dataclass(frozen=True, eq=False)
class InertialStart:
    """What `initialize` found."""

    world_R_map: np.ndarray
    """(4,) rotation from the map's frame to a world with that gravity; the turn about it is arbitrary."""
    scale: float
    """Metres per unit of the map."""
    keyframes: States
    """States in metres in that world, whose origin is the map's; ids count the poses."""
    summary: graphopt.Summary
    """Of the last optimization."""
    deviations: dict[str, float] = field(default_factory=dict)
    """Standard deviations: "log_scale", "gravity" [rad], "gyro_bias" [rad/s], "acc_bias" [m/s^2], the latter
    three along their worst directions; infinite where the motion shows nothing at all."""
    refused: str = ""
    """Why the motion does not do, with the deviations that say so; empty: it does."""
    covariance: np.ndarray | None = None
    """(9, 9) of gravity's direction R in the map, where R takes (0, 0, -1) to it: R Exp(x, y, 0) [rad]; of
    log(scale), zero where that is given; of the biases of gyroscope and accelerometer. None where the motion
    leaves something open."""

    @property
    def is_usable(self) -> bool:
        """Converged, and the motion shows scale, gravity and biases."""
        return self.summary.is_usable and not self.refused


def initialize(
    map_T_body: Any,
    imu: Sequence[Preintegrated],
    options: InitializationOptions | None = None,
    gravity: Any = GRAVITY,
    clock: Clock | None = None,
    **changes: Any,
) -> InertialStart:
    """Stage 1 on arrays: poses (n, 7), n >= 3, and the (n - 1) measurements between them.

    The positions must be those of the body's origin, in the map's unit. gravity (3,): in the world that is
    asked for [m/s^2]. clock: a time limit and a stop flag; what they end is refused. `changes`: fields of the
    options. Check `is_usable` before you use the start: `refused` says what the motion did not show.
    """
    options = InitializationOptions(**{**vars(options or InitializationOptions()), **changes})
    clock = clock or Clock(SolveOptions())
    return _initialize(map_T_body, imu, options, gravity, clock.options, clock)


def _initialize(
    map_T_body: Any,
    imu: Sequence[Preintegrated],
    options: InitializationOptions,
    gravity: Any,
    solve: SolveOptions,
    clock: Clock,
) -> InertialStart:
    """Stage 1, under the time limit and the stop flag of `solve`: one that they end is refused."""
    poses = np.array(map_T_body, dtype=float)
    if poses.ndim != 2 or poses.shape[1] != 7 or len(poses) < 3 or len(imu) != len(poses) - 1:
        raise MapError(
            f"initialize got poses of shape {poses.shape} and {len(imu)} measurements, expected (n, 7) with "
            "n >= 3 and n - 1 measurements."
        )
    if not np.isfinite(poses).all():
        raise MapError("initialize got poses with NaN or infinity.")
    down = np.array(gravity, dtype=float)
    if down.shape != (3,) or not 0.0 < np.linalg.norm(down) < np.inf:
        raise MapError(f"initialize got gravity {gravity!r}, expected three finite numbers, not all zero.")
    start = _linear_start(poses, imu, options)
    for _ in range(options.max_rounds):
        graph = _graph(poses, imu, start, options, float(np.linalg.norm(down)))
        summary = graphopt.optimize(
            graph,
            fix="none",
            options=graphopt.AutoOptions(contest=False),  # each of its runs may take 20,000 iterations
            device="cpu",
            time_limit=clock.left,
            stop=solve.stop,
        )
        start = _of_graph(graph)
        biases = graph.vertex(_GYRO).estimate.copy(), graph.vertex(_ACC).estimate.copy()
        if (
            clock.is_over
            or not summary.is_usable
            or not any(interval.is_far(*biases, 1e-3, 1e-2) for interval in imu)
        ):
            break
        imu = reintegrate(imu, *biases)
    is_stopped = clock.is_over or was_stopped(summary)
    covariance = None if is_stopped else _covariance(graph, imu, options)
    if covariance is not None and options.with_scale:
        dilution = dilution_of(graph, "EDGE_IMU_INERTIAL_GRAVITY_SCALE", _SCALE, poses)
        if dilution is not None:
            covariance[2, 2] = max(covariance[2, 2], dilution.variance)
            if dilution.rho < MOST:
                start, biases = _with_scale(graph, start[1] * np.exp(dilution.rho), clock, solve)
        covariance[2, 2] += options.acc_scale_sigma**2
    deviations = _deviations(covariance, options)
    direction, scale, velocity = start
    turn = np.asarray((SO3(_turn_down_onto(down)) * SO3(direction).inverse()).storage)
    frames = _in_metres(poses, velocity, turn, scale, biases)
    refused = _STOPPED if is_stopped else _unobservable(deviations, summary, options)
    summary = _refused_summary(summary, refused)
    return InertialStart(turn, scale, frames, summary, deviations, refused, covariance)


def _with_scale(
    graph: graphopt.Graph, scale: float, clock: Clock, solve: SolveOptions
) -> tuple[_Start, tuple[np.ndarray, np.ndarray]]:
    """All else at a scale, and the biases."""
    graph.vertex(_SCALE).estimate = [scale]
    graph.set_fixed([_SCALE])
    graphopt.optimize(
        graph,
        fix="none",
        options=graphopt.AutoOptions(contest=False),
        device="cpu",
        time_limit=clock.left,
        stop=solve.stop,
    )
    graph.set_fixed([_SCALE], False)
    return _of_graph(graph), (graph.vertex(_GYRO).estimate.copy(), graph.vertex(_ACC).estimate.copy())


_Start = tuple[np.ndarray, float, np.ndarray]
"""map_R_world (4,), scale, velocities (n, 3) in units of the map per second."""


def _linear_start(poses: np.ndarray, imu: Sequence[Preintegrated], options: InitializationOptions) -> _Start:
    """Least squares for g (3), s, and u_i = s v_i from R_i' of e_v and e_p; all in the map's frame."""
    n, rotation = len(poses), SE3(poses).rotation
    dt = np.array([interval.dt for interval in imu])
    dv = np.asarray(
        SO3(rotation.quaternion[:-1]).act(np.stack([interval.delta_velocity for interval in imu]))
    )
    dp = np.asarray(
        SO3(rotation.quaternion[:-1]).act(np.stack([interval.delta_position for interval in imu]))
    )
    way = np.diff(poses[:, :3], axis=0)
    left, right = np.zeros((2 * (n - 1), 3, 3 * n + 4)), np.zeros((2 * (n - 1), 3))
    for i in range(n - 1):
        for axis in range(3):
            left[2 * i, axis, [3 * i + axis, 3 * i + 3 + axis, 3 * n + axis]] = [-1.0, 1.0, -dt[i]]
            left[2 * i + 1, axis, [3 * i + axis, 3 * n + axis]] = [-dt[i], -0.5 * dt[i] ** 2]
        left[2 * i + 1, :, 3 * n + 3] = way[i]
        right[2 * i], right[2 * i + 1] = dv[i], dp[i]
    if not options.with_scale:
        right = right - left[:, :, 3 * n + 3]
        left[:, :, 3 * n + 3] = 0.0
    x = np.linalg.lstsq(left.reshape(-1, 3 * n + 4), right.ravel(), rcond=1e-9)[0]
    gravity = x[3 * n : 3 * n + 3]
    scale = float(x[3 * n + 3]) if options.with_scale and x[3 * n + 3] > 1e-6 else 1.0
    return _turn_down_onto(gravity), scale, x[: 3 * n].reshape(n, 3) / scale


def _turn_down_onto(down: np.ndarray) -> np.ndarray:
    """Rotation (4,) that turns (0, 0, -1) onto a vector; the identity for the zero vector."""
    length = np.linalg.norm(down)
    if not length > 1e-9:
        return np.array([0.0, 0.0, 0.0, 1.0])
    unit = down / length
    axis = np.cross([0.0, 0.0, -1.0], unit)
    sine, cosine = np.linalg.norm(axis), -unit[2]
    axis = axis / sine if sine > 1e-9 else np.array([1.0, 0.0, 0.0])
    return np.asarray(SO3.exp(axis * np.arctan2(sine, cosine)).storage)


def _graph(
    poses: np.ndarray,
    imu: Sequence[Preintegrated],
    start: _Start,
    options: InitializationOptions,
    gravity: float,
) -> graphopt.Graph:
    graph, n = graphopt.Graph(), len(poses)
    direction, scale, velocity = start
    graph.add_vertices("VERTEX_IMU_GRAVITY_DIRECTION", [_DIRECTION], [direction])
    graph.add_vertices("VERTEX_IMU_SCALE", [_SCALE], [[scale]], fixed=not options.with_scale)
    graph.add_vertices("VERTEX_IMU_GYRO_BIAS", [_GYRO], [imu[0].gyro_bias])
    graph.add_vertices("VERTEX_IMU_ACC_BIAS", [_ACC], [imu[0].acc_bias])
    pose_ids = _FIRST + np.arange(n)
    graph.add_vertices("VERTEX_SE3:QUAT", pose_ids, poses, fixed=True)
    graph.add_vertices("VERTEX_IMU_VELOCITY", n + pose_ids, velocity)
    i, j = pose_ids[:-1], pose_ids[1:]
    shared = [np.full(n - 1, sigma) for sigma in (_GYRO, _ACC, _DIRECTION, _SCALE)]
    graph.add_edges(
        "EDGE_IMU_INERTIAL_GRAVITY_SCALE",
        np.stack([i, n + i, shared[0], shared[1], j, n + j, shared[2], shared[3]], axis=1),
        measurements(imu, [0.0, 0.0, -gravity]),
        np.stack([interval.information for interval in imu]),
    )
    for tag, vertex, sigma in (
        ("EDGE_IMU_GYRO_BIAS_PRIOR", _GYRO, options.gyro_bias_sigma),
        ("EDGE_IMU_ACC_BIAS_PRIOR", _ACC, options.acc_bias_sigma),
    ):
        graph.add_edges(tag, [[vertex]], [np.zeros(3)], np.eye(3) / sigma**2)
    return graph


def _of_graph(graph: graphopt.Graph) -> _Start:
    return (
        graph.vertex(_DIRECTION).estimate.copy(),
        float(graph.vertex(_SCALE).estimate[0]),
        graph.vertex_set("VERTEX_IMU_VELOCITY").estimate.copy(),
    )


def _covariance(
    graph: graphopt.Graph, imu: Sequence[Preintegrated], options: InitializationOptions
) -> np.ndarray | None:
    """Covariance at the answer; see `InertialStart.covariance`."""
    parts = {_DIRECTION: slice(0, 2), _SCALE: slice(2, 3), _GYRO: slice(3, 6), _ACC: slice(6, 9)}
    if not options.with_scale:
        del parts[_SCALE]
    try:
        blocks = compute_marginals(graph, [(first, second) for first in parts for second in parts])
    except SolverError:
        return None
    factor = np.ones(9)  # priors hold the biases, which chi2 does not doubt
    factor[:3] = np.sqrt(_inflation(graph, imu, options))
    covariance = np.zeros((9, 9))
    for (first, second), block in blocks.items():
        covariance[parts[first], parts[second]] = block
    return covariance * factor[:, None] * factor


def _inflation(graph: graphopt.Graph, imu: Sequence[Preintegrated], options: InitializationOptions) -> float:
    """Variance of the residuals that show scale and gravity, as a multiple of what IMU noise explains; >= 1.

    chi2 of velocities and positions over their redundancy (a variance component, Helmert 1907; rotations have
    another one, and show neither), times (1 + r) / (1 - r), r: the correlation of residuals with those of the
    next interval. So many fewer independent ones there are of a first-order autoregressive series (Bayley and
    Hammersley, The "Effective" Number of Independent Observations in an Autocorrelated Time Series, 1946):
    errors of real accelerometers last longer than an interval; those of positions alternate, r < 0.
    """
    residuals = edge_errors(graph, graph.edge_set("EDGE_IMU_INERTIAL_GRAVITY_SCALE"))[:, 3:]
    covariances = np.linalg.inv(np.stack([interval.information for interval in imu]))[:, 3:, 3:]
    white = np.linalg.solve(np.linalg.cholesky(covariances), residuals[..., None])[..., 0]
    count, chi2 = len(imu), float(np.sum(white**2))
    redundancy = 6 * count + 3 - (3 * (count + 1) + 5 + int(options.with_scale))
    excess = chi2 / max(redundancy, 1)
    if not (np.isfinite(chi2) and excess > 1.0) or count < 2:
        return max(1.0, excess)
    following = float(np.sum(white[1:] * white[:-1])) / chi2 * count / (count - 1)
    correlation = float(np.clip(following, *_MEMORY))
    return max(1.0, excess * (1.0 + correlation) / (1.0 - correlation))


def _deviations(covariance: np.ndarray | None, options: InitializationOptions) -> dict[str, float]:
    """Standard deviations at the answer; see `InertialStart.deviations`."""
    parts = {"log_scale": slice(2, 3), "gravity": slice(0, 2), "gyro_bias": slice(3, 6)}
    parts["acc_bias"] = slice(6, 9)
    if not options.with_scale:
        del parts["log_scale"]
    if covariance is None:
        return dict.fromkeys(parts, np.inf)
    largest = {name: float(np.linalg.eigvalsh(covariance[part, part])[-1]) for name, part in parts.items()}
    return {
        name: float(np.sqrt(variance)) if variance > 0.0 else np.inf for name, variance in largest.items()
    }


def _unobservable(
    deviations: dict[str, float], summary: graphopt.Summary, options: InitializationOptions
) -> str:
    """Empty, or a sentence with what the motion does not show."""
    if summary.termination is graphopt.TerminationType.REFUSED:
        return summary.message
    if not summary.is_usable:
        return f"The inertial optimization failed: {summary.termination.value} {summary.message}".strip()
    limits = {
        "log_scale": (options.max_scale_deviation, "scale", ""),
        "gravity": (options.max_gravity_deviation, "direction of gravity", " rad"),
        "gyro_bias": (options.max_bias_ratio * options.gyro_bias_sigma, "gyroscope's bias", " rad/s"),
        "acc_bias": (options.max_bias_ratio * options.acc_bias_sigma, "accelerometer's bias", " m/s^2"),
    }
    open_ones = [
        f"{label} (deviation {deviations[name]:.3g}{unit}, allowed {limit:.3g}{unit})"
        for name, (limit, label, unit) in limits.items()
        if name in deviations and not deviations[name] <= limit
    ]
    if not open_ones:
        return ""
    return f"The motion does not show {', '.join(open_ones)}. Move more, with accelerations and turns."


def _in_metres(
    poses: np.ndarray, velocity: np.ndarray, world_R_map: np.ndarray, scale: float, biases: Any
) -> States:
    """Convert poses and velocities of the map (map_T_body, its unit) to world_T_body in metres."""
    turn, n = SO3(world_R_map), len(poses)
    rotation = np.asarray((turn * SE3(poses).rotation).storage)
    placed = np.concatenate([scale * np.asarray(turn.act(poses[:, :3])), rotation], axis=1)
    spread = [np.tile(biase, (n, 1)) for biase in biases]
    return States(np.arange(n), placed, scale * np.asarray(turn.act(velocity)), *spread)


# ------------------------------------------------------------------------ on a map


def inertial_initialization(
    world: Map,
    keyframes: Any = None,
    initial: InitializationOptions | None = None,
    options: SolveOptions | None = None,
    visual: bool = True,
    **changes: Any,
) -> Result:
    """Turn and scale a map to metres with `world.gravity` down; find its keyframes' velocities and biases.

    keyframes: ids in order of time, linked by IMU measurements; None: all that are. initial, changes:
    options of stage 1. visual: go on with stages 2 and 3.

    Where the motion does not show what is asked of it, or the time limit or the stop flag ended a stage
    before it had a result, the map is left bit by bit as it was, `is_usable` is False and `refused` says why.
    `extra`: "scale" (metres per unit of the map as it was), "world_R_map", "deviations": of stage 1, whose
    poses count as exact, until stage 2 knows better ("log_scale": of the distance from the
    first keyframe to the farthest; the others: of the first keyframe).
    """
    options = options or SolveOptions()
    clock = Clock(options)
    with world.lock:
        chain, links = imu_chain(world, keyframes)
        poses = world.keyframes["world_T_body"][world.keyframes.rows(chain)].copy()
        imu = [world.preintegrated[link] for link in links]
    clock.lap("select")
    initial = InitializationOptions(**{**vars(initial or InitializationOptions()), **changes})
    start = _initialize(poses, imu, initial, world.gravity, options, clock)
    clock.lap("inertial only")
    facts = {"scale": start.scale, "world_R_map": start.world_R_map, "deviations": start.deviations}
    if not start.is_usable:
        return _refusal(start.summary, start.refused, facts, clock)
    moved = _Moved(world.snapshot(), chain, links)
    moved.apply(start)
    clock.lap("apply")
    if not visual or moved.world.rig is None or not len(moved.world.observations):
        states = States(chain, *(getattr(start.keyframes, name) for name in _NAMES))
        result = Result("inertial_initialization", start.summary, states, extra=facts)
    else:
        moved, result = _refined(moved, initial, options, clock, facts)
    if not result.is_usable:
        return _refusal(result.summary, result.refused, facts, clock)
    result = replace(result, writer=moved.write_to)
    if options.update:
        result.write_to(world)
        clock.lap("write")
    return replace(result, seconds=clock.total())


_NAMES = ("world_T_body", "velocity", "gyro_bias", "acc_bias")


def _refusal(summary: graphopt.Summary, refused: str, facts: dict[str, Any], clock: Clock) -> Result:
    if not refused:
        refused = f"The optimization failed: {summary.termination.value} {summary.message}".strip()
    return Result(
        "inertial_initialization",
        _refused_summary(summary, refused),
        seconds=clock.total(),
        extra=facts,
        refused=refused,
    )


def _refused_summary(summary: graphopt.Summary, refused: str) -> graphopt.Summary:
    """The summary of an optimization whose result is refused, if it is."""
    if not refused or not summary.is_usable:
        return summary
    return replace(summary, termination=graphopt.TerminationType.REFUSED, message=refused)


@dataclass(eq=False)
class _Moved:
    """A copy of a map that is turned and scaled, and how, so that the map can follow once all went well."""

    world: Map
    chain: np.ndarray
    links: list[int]
    starts: list[InertialStart] = field(default_factory=list)

    def copy(self) -> _Moved:
        """Independent of this one."""
        return _Moved(self.world.snapshot(), self.chain, self.links, list(self.starts))

    def apply(self, start: InertialStart) -> None:
        """Move the copy as a start says."""
        _apply(self.world, self.chain, self.links, start)
        self.starts.append(start)

    def write_to(self, world: Map) -> None:
        """Move the map the same way, what was added to it meanwhile included, and take what was optimized."""
        with world.lock:
            for start in self.starts:
                world.transform(_motion(start))
            world.apply(self.world)
            rows = world.keyframes.find(self.chain)
            world.keyframes["has_states"][rows[rows >= 0]] = True
            changed = {
                id_: measured
                for id_, measured in self.world.preintegrated.items()
                if id_ in world.preintegrated and world.preintegrated[id_] is not measured
            }
            world.set_imu(list(changed), list(changed.values()))


def _refined(
    moved: _Moved, initial: InitializationOptions, options: SolveOptions, clock: Clock, facts: dict[str, Any]
) -> tuple[_Moved, Result]:
    """Stages 2 and 3: the moved copy, and the result on it."""
    inner = options.with_changes(update=True)
    result = full_inertial_ba(moved.world, options=inner.with_changes(time_limit=clock.left))
    clock.lap("visual-inertial")
    if not result.is_usable:
        return moved, result
    world, chain = moved.world, moved.chain
    poses = world.keyframes["world_T_body"][world.keyframes.rows(chain)].copy()
    imu = [world.preintegrated[link] for link in moved.links]
    again = _initialize(poses, imu, initial, world.gravity, options, clock)
    clock.lap("scale refinement")
    if again.is_usable and abs(np.log(again.scale)) > _REFINED:
        trial = moved.copy()
        trial.apply(again)
        refined = full_inertial_ba(trial.world, options=inner.with_changes(time_limit=clock.left))
        clock.lap("visual-inertial")
        if refined.is_usable:
            moved, result = trial, refined
            facts["scale"] *= again.scale
    known = facts["deviations"]
    found = _deviations_of_map(moved.world, result, chain, initial)
    facts["deviations"] = {**known, **found}
    clock.lap("covariance")
    return moved, replace(result, problem="inertial_initialization", extra={**result.extra, **facts})


_SHORTEST = 0.25
"""[s] between poses of pixels whose accelerations say something of the scale: with errors of 3 mm those of
poses 50 ms apart are off by 1 m/s^2. ORB-SLAM3 initializes from keyframes so far apart."""
_STRETCH = 40
"""Keyframes whose scale counts as one: drift of images alone is small over so few."""


def scale_by_stages(world: Map, options: SolveOptions | None = None) -> tuple[float, float]:
    """Log of the scale of a metric map as images and IMU show it one after the other, and its deviation.

    Stretches of keyframes that IMU measurements link are adjusted to their pixels alone, which needs no
    weight against the IMU's, then stage 1 scales them; the mean is weighted by stage 1's deviations, which
    follow the residuals. Zero is expected: where visual-inertial adjustment weighs pixels or IMU wrongly, it
    is not. (0, infinity) where nothing shows a scale. Landmarks need one camera; the map stays as it is.
    """
    options = (options or SolveOptions()).with_changes(update=True)
    trial = world.snapshot()
    linked = set(zip(trial.imu["first"].tolist(), trial.imu["second"].tolist(), strict=True))
    chain = _linked(trial)
    breaks = [k + 1 for k, pair in enumerate(pairwise(chain.tolist())) if pair not in linked]
    logs, weights = [0.0], [0.0]
    for part in np.split(chain, breaks):
        for stretch in np.array_split(part, -(-len(part) // _STRETCH)):
            if len(stretch) < 3:
                continue
            local_ba(trial, stretch[1:], stretch[:1], options)
            chosen, imu = _apart(trial, stretch)
            if len(chosen) < 3:
                continue
            poses = trial.keyframes["world_T_body"][trial.keyframes.rows(chosen)]
            start = initialize(poses, imu, gravity=trial.gravity, acc_scale_sigma=0.0)  # common to all
            if start.scale > 0.0 and np.isfinite(start.deviations["log_scale"]):
                logs.append(float(np.log(start.scale)))
                weights.append(start.deviations["log_scale"] ** -2)
    total = float(np.sum(weights))
    if not total > 0.0:
        return 0.0, np.inf
    spread = np.hypot(total**-0.5, InitializationOptions().acc_scale_sigma)
    return float(np.dot(logs, weights)) / total, float(spread)


def _apart(world: Map, chain: np.ndarray) -> tuple[np.ndarray, list[Preintegrated]]:
    """Keyframes of a chain that are `_SHORTEST` apart, and the measurements between these."""
    stamps = world.keyframes["stamp"][world.keyframes.rows(chain)]
    chosen, measured, since = [chain[0]], [], None
    for keyframe, stamp, link in zip(chain[1:], stamps[1:], _links(world, chain), strict=True):
        part = world.preintegrated[link]
        since = part if since is None else since.joined(part)
        if since.dt >= _SHORTEST or stamp == stamps[-1]:
            chosen.append(keyframe)
            measured.append(since)
            since = None
    return np.array(chosen), measured


def _deviations_of_map(
    world: Map, result: Result, chain: np.ndarray, options: InitializationOptions
) -> dict[str, float]:
    """Standard deviations after stage 2; none of them where the problem leaves a direction open."""
    first = int(chain[0])
    if not result.is_usable or first not in result.keyframes.ids:
        return {}
    try:
        covariance = result.covariance([first])["keyframe", first]
    except (SolverError, OptionError):
        return {}
    if len(covariance) < 15:
        return {}
    pose = result.keyframes.world_T_body[np.searchsorted(result.keyframes.ids, first)]
    turned = np.asarray(SO3(pose[3:]).to_matrix())
    tilt = 4.0 * turned @ covariance[3:6, 3:6] @ turned.T  # of half angles in the body
    down = world.gravity / np.linalg.norm(world.gravity)
    level = np.eye(3) - np.outer(down, down)
    blocks = {"gravity": level @ tilt @ level, "gyro_bias": covariance[9:12, 9:12]}
    blocks["acc_bias"] = covariance[12:15, 12:15]
    found = {name: float(np.sqrt(np.linalg.eigvalsh(block)[-1])) for name, block in blocks.items()}
    if not options.with_scale:
        return found
    return {"log_scale": float(np.hypot(scale_deviation(result), options.acc_scale_sigma)), **found}


def _apply(world: Map, chain: np.ndarray, links: list[int], start: InertialStart) -> None:
    """Move the whole map as the start says; states and measurements of the chain get what was found."""
    with world.lock:
        world.transform(_motion(start))
        rows = world.keyframes.rows(chain)
        for name in ("velocity", "gyro_bias", "acc_bias"):
            world.keyframes[name][rows] = getattr(start.keyframes, name)
        world.keyframes["has_states"][rows] = True
        biases = start.keyframes.gyro_bias[0], start.keyframes.acc_bias[0]
        world.set_imu(links, reintegrate([world.preintegrated[link] for link in links], *biases))


def _motion(start: InertialStart) -> np.ndarray:
    """Sim3 (8,) from the map to the world."""
    return np.concatenate([np.zeros(3), start.world_R_map, [start.scale]])


def imu_chain(world: Map, keyframes: Any = None) -> tuple[np.ndarray, list[int]]:
    """Ids of keyframes in order of time, and of the IMU measurements from each to the next.

    keyframes: ids in that order; None: all that have an IMU measurement. Raises `MapError` where there are
    fewer than three, or where one is not linked to the next.
    """
    chain = whole_numbers(keyframes) if keyframes is not None else _linked(world)
    return chain, _links(world, chain)


def _linked(world: Map) -> np.ndarray:
    """Ids of keyframes that have an IMU measurement, in order of time."""
    ids = np.union1d(world.imu["first"], world.imu["second"])
    return ids[np.argsort(world.keyframes["stamp"][world.keyframes.rows(ids)], kind="stable")]


def _links(world: Map, chain: np.ndarray) -> list[int]:
    """Ids of the IMU measurements along a chain of keyframes."""
    known = {
        (int(a), int(b)): int(id_)
        for a, b, id_ in zip(world.imu["first"], world.imu["second"], world.imu.ids, strict=True)
    }
    missing = [(a, b) for a, b in pairwise(chain.tolist()) if (a, b) not in known]
    if missing or len(chain) < 3:
        what = (
            f"no IMU measurement from keyframe {missing[0][0]} to {missing[0][1]}" if missing else "too few"
        )
        raise MapError(
            f"inertial_initialization: {what}; {len(chain)} keyframes were given, at least 3 are needed, "
            "each linked to the next by an IMU measurement."
        )
    return [known[a, b] for a, b in pairwise(chain.tolist())]
