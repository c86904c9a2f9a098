"""Visual-inertial problems of any size with known truth: a map as it is before an optimization.

    problem = generate_problem("MH01")          126 keyframes, 9,403 landmarks, 42,327 observations
    full_inertial_ba(problem.map)

Keyframes are chosen along the trajectory where the view changes: a step of 8 % of the scene's depth counts as
much as a turn of 5 degrees or a second of time. Pixels have noise of `pixel_noise` 1.2^octave, as features of
an image pyramid; the octave follows from the distance. A share of observations are mismatches, tens of pixels
away. Start values drift like odometry; biases start at zero.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import graphopt
from graphopt.errors import OptionError
from graphopt.geometry import SE3, SO3
from slam_bridge.cameras import Camera, Rig
from slam_bridge.exchange.solve import WINDOW
from slam_bridge.generator.characters import Character, character
from slam_bridge.generator.imu import simulate_imu
from slam_bridge.generator.scene import scene_around
from slam_bridge.generator.sensors import Sensors, sensors
from slam_bridge.generator.sequence import trajectory_like
from slam_bridge.generator.sizes import SIZES
from slam_bridge.generator.tracks import Tracks, tracks
from slam_bridge.generator.trajectory import Trajectory
from slam_bridge.map import Map
from slam_bridge.preintegration import preintegrate_intervals
from slam_bridge.vib_problem import Truth, VibProblem

_SCALE = 1.2  # between octaves, as ORB-SLAM3's pyramid
_OCTAVES = 8
STARTS = ("odometry", "window", "truth")


@dataclass(frozen=True)
class ProblemOptions:
    """What a problem is like. Counts that are None are those of the thesis' table 5.8."""

    keyframes: int | None = None
    landmarks: int | None = None
    observations: int | None = None
    """Rows of the map: a rectified stereo pair is one, the two cameras of a fisheye rig are two."""
    sensor: str | None = None
    """"euroc" (rectified stereo) or "tumvi" (stereo fisheye); None: that of the sequence."""
    place: str | None = None
    """"room", "hall", "corridor", "outdoors"; None: that of the sequence."""
    truth: str | os.PathLike[str] | None = None
    """Ground truth to move along, see `trajectory_like`."""
    seconds: float | None = None
    """Of the trajectory, from its begin on; None: all of it."""
    calibration: tuple[str, ...] = ()
    """Calibration files in place of the built-in numbers."""
    pixel_noise: float = 0.7
    """Standard deviation in octave 0 [px]."""
    mismatches: float = 0.01
    """Share of observations."""
    drift: float = 0.005
    """Of the start values: metres per metre of path; 0 with rotation_error 0: exact."""
    rotation_error: float = 0.3
    """Of the start values [degrees]."""
    start: str = "odometry"
    """"odometry": drifted from the first keyframe on; "window": from the last 25 on, as before a local bundle
    adjustment, the others being exact; "truth"."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("keyframes", "landmarks", "observations"):
            value = getattr(self, name)
            if value is not None and value < 2:
                raise OptionError(f"{name} is {value}, must be at least 2.")
        if not 0.0 <= self.mismatches <= 0.5:
            raise OptionError(f"mismatches is {self.mismatches}, expected a share of 0 to 0.5.")
        if not self.pixel_noise > 0.0 or self.drift < 0.0 or self.rotation_error < 0.0:
            raise OptionError("pixel_noise must be > 0 px, drift and rotation_error at least 0.")
        if self.start not in STARTS:
            raise OptionError(f"start is {self.start!r}, expected one of {', '.join(STARTS)}.")


def generate_problem(like: str, options: ProblemOptions | None = None, **changes: Any) -> VibProblem:
    """A problem like a published sequence's map; `changes` are fields of `ProblemOptions`."""
    options = replace(options or ProblemOptions(), **changes)
    known = character(like)
    counts = _counts(known, options)
    kind = _sensors(known, options)
    trajectory = _part_of(trajectory_like(known, kind.rig, options.truth, options.seed), options.seconds)
    place = options.place or known.place
    scene = scene_around(trajectory, place, options.seed, textured=False)
    stamps = keyframe_stamps(trajectory, counts[0], kind.camera_rate, _DEPTH[place])
    motion = trajectory.at(stamps)
    seen = tracks(kind.rig, motion.world_T_body, scene, counts[1], counts[2], options.seed)

    generator = np.random.default_rng([options.seed, 6])
    imu = simulate_imu(trajectory.at(trajectory.stamps(kind.imu_rate)), kind.noise, generator)
    world = Map(kind.rig)
    rows = np.searchsorted(imu.samples.stamps, stamps)
    truth_states = (motion.world_T_body, motion.velocity, imu.gyro_bias[rows], imu.acc_bias[rows])
    poses, velocity = _start(motion.world_T_body, motion.velocity, options, generator)
    ids = world.add_keyframes(stamps, poses, velocity)
    points = _started_points(seen, motion.world_T_body, poses, options, generator)
    landmarks = world.add_landmarks(points, ids[seen.reference])
    mismatch = _observe(world, kind.rig, seen, motion.world_T_body, ids, landmarks, options, generator)
    measured = preintegrate_intervals(imu.samples, stamps, kind.noise)
    world.add_imu(ids[:-1], ids[1:], [interval for interval in measured if interval is not None])
    truth = Truth(ids, *truth_states, landmarks, seen.points, world.observations.ids[mismatch])
    return VibProblem(world, truth, imu.samples, kind.noise, _provenance(known, trajectory, options, place))


def _part_of(trajectory: Trajectory, seconds: float | None) -> Trajectory:
    if seconds is None:
        return trajectory
    if not 0.0 < seconds <= trajectory.duration:
        raise OptionError(
            f"seconds is {seconds}; the trajectory ({trajectory.source}) lasts {trajectory.duration:.1f} s."
        )
    return replace(trajectory, duration=float(seconds))


def _counts(known: Character, options: ProblemOptions) -> tuple[int, int, int]:
    given = (options.keyframes, options.landmarks, options.observations)
    table = SIZES.get(known.name, (None, None, None))
    counts = [mine if mine is not None else theirs for mine, theirs in zip(given, table, strict=True)]
    if None in counts:
        raise OptionError(
            f"{known.name} is not in the table of sizes ({', '.join(SIZES)}); say how many keyframes, "
            "landmarks and observations."
        )
    return tuple(counts)  # type: ignore[return-value]


def _sensors(known: Character, options: ProblemOptions) -> Sensors:
    kind = sensors(options.sensor or known.sensor, options.calibration)
    if (options.sensor or known.sensor) != "euroc" or options.calibration:
        return kind
    left, right = kind.rig[0], kind.rig[1]
    baseline = float(np.linalg.norm((SE3(left.body_T_cam).inverse() * SE3(right.body_T_cam)).translation))
    rectified = Camera.pinhole(
        left.body_T_cam, 435.2, 435.2, 367.5, 252.2, baseline, resolution=left.resolution, name="rectified"
    )
    return replace(kind, rig=Rig(rectified))


_DEPTH = {"room": 3.0, "hall": 8.0, "corridor": 4.0, "outdoors": 15.0}
"""Typical distance of what is seen [m]."""


def keyframe_stamps(trajectory: Trajectory, count: int, rate: float, depth: float) -> np.ndarray:
    """Stamps (count,) of images, so that the view changes by as much between each two."""
    frames = trajectory.stamps(rate)
    if len(frames) < count:
        raise OptionError(
            f"{count} keyframes were asked for; {trajectory.duration:.1f} s have {len(frames)} images."
        )
    motion = trajectory.at(frames)
    change = (
        np.linalg.norm(motion.velocity, axis=1) / (0.08 * depth)
        + np.linalg.norm(motion.rate, axis=1) / 0.09
        + 1.0
    )
    done = np.concatenate([[0.0], np.cumsum(0.5 * (change[1:] + change[:-1]))])
    frames_at = np.rint(np.interp(np.linspace(0.0, done[-1], count), done, np.arange(len(frames)))).astype(
        int
    )
    order = np.arange(count)
    frames_at = np.maximum.accumulate(frames_at - order) + order
    frames_at = np.minimum(frames_at, len(frames) - count + order)
    return frames[frames_at]


def _start(
    poses: np.ndarray, velocity: np.ndarray, options: ProblemOptions, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Poses and velocities that drift from the first keyframe on."""
    if options.start == "truth":
        return poses, velocity
    steps = np.linalg.norm(np.diff(poses[:, :3], axis=0, prepend=poses[:1, :3]), axis=1, keepdims=True)
    shift = np.cumsum(options.drift * steps * generator.standard_normal((len(poses), 3)), axis=0)
    velocity_error = 10.0 * options.drift * generator.standard_normal(velocity.shape)
    angle = np.radians(options.rotation_error)
    turn = angle * generator.standard_normal((len(poses), 3))
    turn[:, 2] = np.cumsum(angle / np.sqrt(len(poses)) * generator.standard_normal(len(poses)))
    turn[0] = 0.0
    if options.start == "window":
        known = max(len(poses) - WINDOW, 1)
        shift = shift - shift[known - 1]
        shift[:known], turn[:known], velocity_error[:known] = 0.0, 0.0, 0.0
    rotation = SO3.exp(turn) * SO3(poses[:, 3:])
    moved = np.asarray(SE3.from_parts(poses[:, :3] + shift, rotation.storage).storage)
    return moved, velocity + velocity_error


def _started_points(
    seen: Tracks,
    true_poses: np.ndarray,
    poses: np.ndarray,
    options: ProblemOptions,
    generator: np.random.Generator,
) -> np.ndarray:
    """Landmarks that moved with the keyframe that saw them first, at a depth that is not exact."""
    if options.start == "truth":
        return seen.points
    local = SE3(true_poses[seen.reference]).inverse_act(seen.points)
    factor = np.exp(6.0 * options.drift * generator.standard_normal((len(local), 1)))
    if options.start == "window":
        factor[seen.reference < len(poses) - WINDOW] = 1.0
    local = local * factor
    return np.asarray(SE3(poses[seen.reference]).act(local))


def _observe(
    world: Map,
    rig: Rig,
    seen: Tracks,
    poses: np.ndarray,
    keyframes: np.ndarray,
    landmarks: np.ndarray,
    options: ProblemOptions,
    generator: np.random.Generator,
) -> np.ndarray:
    """Add the observations with noise; returns the rows of mismatches."""
    inside = rig.in_cameras(seen.camera, poses[seen.keyframe], seen.points[seen.landmark])
    pixels, _ = rig.project(seen.camera, inside)
    octave = _octaves(seen, inside, generator)
    sigma = options.pixel_noise * _SCALE**octave
    measured = pixels + sigma[:, None] * generator.standard_normal(pixels.shape)
    right = np.full(len(pixels), np.nan)
    for number, camera in enumerate(rig):
        if camera.baseline is not None:
            rows = np.flatnonzero(seen.camera == number)
            column = camera.right_column(inside[rows])
            paired = (pixels[rows, 0] - column > 1.0) & (column > 0.0) & (generator.random(len(rows)) < 0.9)
            noise = sigma[rows] * generator.standard_normal(len(rows))
            right[rows] = np.where(paired, column + noise, np.nan)
    wrong = generator.permutation(len(pixels))[: round(options.mismatches * len(pixels))]
    angle, far = generator.uniform(0.0, 2.0 * np.pi, len(wrong)), generator.uniform(10.0, 60.0, len(wrong))
    measured[wrong] += far[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    world.add_observations(
        keyframes[seen.keyframe], landmarks[seen.landmark], measured, seen.camera, right, sigma=sigma
    )
    return np.sort(wrong)


def _octaves(seen: Tracks, inside: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """(o,) octave of each observation: a landmark has a size, which looks smaller from afar."""
    far = np.linalg.norm(inside, axis=1)
    first = np.full(len(seen.points), np.inf)
    np.minimum.at(first, seen.landmark, far)
    base = np.minimum(generator.geometric(0.35, len(seen.points)) - 1, _OCTAVES - 1)
    shift = np.rint(np.log(first[seen.landmark] / far) / np.log(_SCALE))
    return np.clip(base[seen.landmark] + shift, 0, _OCTAVES - 1)


def _provenance(
    known: Character, trajectory: Trajectory, options: ProblemOptions, place: str
) -> dict[str, Any]:
    return {
        "generator": f"graphopt {graphopt.__version__}, generate vi",
        "like": known.name,
        "trajectory": trajectory.source,
        "place": place,
        "options": {name: _plain(value) for name, value in vars(options).items()},
    }


def _plain(value: Any) -> Any:
    """As JSON has it."""
    return (
        list(value)
        if isinstance(value, tuple)
        else os.fspath(value)
        if isinstance(value, os.PathLike)
        else value
    )
