"""Initialization: gravity, scale and biases are found, and refused where the motion does not show them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from simulation import (
    ACC_BIAS,
    GYRO_BIAS,
    NOISE,
    TIMES,
    poses_and_velocities,
    position,
    residual,
    rotation,
    samples,
    simulated_map,
    turn_rate,
)

import slam_bridge as sb
from graphopt.geometry import SE3, SO3
from slam_bridge.generator.problem import generate_problem
from slam_bridge.options import Clock, SolveOptions
from slam_bridge.problems import full_inertial_ba
from slam_bridge.problems.inertial_initialization import _apart as apart

STAMPS = np.rint(TIMES * 1e9).astype(np.int64)
TILT, SCALE = SO3.exp(np.array([0.6, -1.2, 0.5])), 0.4


def factors():
    return sb.preintegrate_intervals(samples(TIMES[-1], 1000.0, GYRO_BIAS, ACC_BIAS), STAMPS, NOISE)


def turned(poses):
    """Poses in a turned map whose unit is 0.4 m."""
    return np.concatenate([TILT.act(poses[:, :3]) / SCALE, (TILT * SE3(poses).rotation).storage], axis=1)


def test_gravity_scale_and_biases_are_found():
    """Scale to 1e-3, down to 1e-3 rad, biases, velocities; and the deviations say so."""
    poses, velocities = poses_and_velocities(TIMES)
    start = sb.initialize(turned(poses), factors(), acc_bias_sigma=1.0)
    assert start.is_usable, start.refused
    assert start.scale == pytest.approx(SCALE, rel=1e-3)
    up = (SO3(start.world_R_map) * TILT).act(np.array([0.0, 0.0, 1.0]))
    assert np.hypot(up[0], up[1]) < 1e-3
    np.testing.assert_allclose(start.keyframes.gyro_bias[0], GYRO_BIAS, atol=1e-4)
    np.testing.assert_allclose(start.keyframes.acc_bias[0], ACC_BIAS, atol=1e-2)
    lengths = (np.linalg.norm(velocity, axis=1) for velocity in (start.keyframes.velocity, velocities))
    np.testing.assert_allclose(*lengths, atol=5e-3)
    assert 0.0 < start.deviations["log_scale"] < 0.05 and start.deviations["gravity"] < 0.01


ZERO = np.zeros(3)
DOWN = np.array([0.0, 0.0, -9.81])


def motion(seed, position, turn_rate, acceleration, jitter):
    """Poses of 5 s and noisy measurements, of a turn rate in the body and an acceleration in the world."""
    rng = np.random.default_rng(seed)
    t, stamps = np.arange(0.0, 5.001, 0.005), (np.arange(21) * 250_000_000).astype(np.int64)
    rotation = SO3.exp(np.outer(t, turn_rate))
    acc = rotation.inverse().act(np.tile(acceleration - DOWN, (len(t), 1)))
    spread = np.sqrt(200.0)
    gyro = turn_rate + 0.02 + NOISE.gyro_density * spread * rng.normal(size=(len(t), 3))
    acc = acc + 0.05 + NOISE.acc_density * spread * rng.normal(size=acc.shape)
    imu = sb.preintegrate_intervals(sb.ImuSamples.from_seconds(t, gyro, acc), stamps, NOISE)
    at = 1e-9 * stamps
    places = position(at) + jitter * rng.normal(size=(len(at), 3))
    return np.concatenate([places, SO3.exp(np.outer(at, turn_rate)).storage], axis=1), imu


@pytest.mark.parametrize("down", [(0.0, 9.78, 0.0), (3.0, -4.0, 8.0), (0.0, 0.0, 9.81)])
def test_gravity_of_a_world_may_point_anywhere(down):
    """A map whose world has y down, as cameras have it: found with that gravity, its length included."""
    down = np.array(down)
    poses, _ = poses_and_velocities(TIMES)
    t = np.arange(round(TIMES[-1] * 1000) + 1) / 1000.0
    pull = np.array([0.0, 0.0, -np.linalg.norm(down)])
    acc = rotation(t).inverse().act(position(t)[2] - pull) + ACC_BIAS
    raw = sb.ImuSamples.from_seconds(t, turn_rate(t) + GYRO_BIAS, acc)
    measured = sb.preintegrate_intervals(raw, STAMPS, NOISE)
    world = sb.Map(gravity=down)
    frames = world.add_keyframes(STAMPS, turned(poses))
    world.add_imu(frames[:-1], frames[1:], measured)
    result = sb.inertial_initialization(world, acc_bias_sigma=1.0)
    assert result.is_usable, result.refused
    assert result.extra["scale"] == pytest.approx(SCALE, rel=1e-3)
    turn = SE3(world.keyframes["world_T_body"][0]).rotation * SE3(poses[0]).rotation.inverse()
    np.testing.assert_allclose(turn.act(pull), down, atol=0.02)
    for k in range(len(frames) - 1):
        first = (world.keyframes[name][k] for name in ("world_T_body", "velocity"))
        second = (world.keyframes[name][k + 1] for name in ("world_T_body", "velocity"))
        bias = world.keyframes["gyro_bias"][k], world.keyframes["acc_bias"][k]
        error = residual(world.preintegrated[k], first, second, *bias, gravity=down)
        assert np.abs(error).max() < 1e-3
    with pytest.raises(sb.MapError, match="gravity"):
        sb.initialize(poses, measured, gravity=(0.0, 0.0, 0.0))


MOTIONS = {
    "still camera": (lambda t: np.zeros((len(t), 3)), ZERO, ZERO),
    "constant velocity": (lambda t: np.outer(t, [1.0, 0.5, 0.2]), ZERO, ZERO),
    "free fall": (lambda t: np.outer(0.5 * t * t, DOWN), ZERO, DOWN),
    "rotation only": (lambda t: np.zeros((len(t), 3)), np.array([0.5, 0.3, 0.8]), ZERO),
}


@pytest.mark.parametrize("jitter", [0.0, 1e-3], ids=["exact", "1 mm"])
@pytest.mark.parametrize("name", MOTIONS)
def test_motions_that_show_nothing_are_refused(name, jitter):
    """Poses exact or 1 mm off: a monocular start is refused, with deviations that say what is open."""
    for seed in range(3):
        start = sb.initialize(*motion(seed, *MOTIONS[name], jitter))
        assert not start.is_usable and not start.summary.is_usable
        assert "deviation" in start.refused and "allowed" in start.refused
        assert any(f"{deviation:.3g}" in start.refused for deviation in start.deviations.values())
        assert np.isfinite(start.keyframes.world_T_body).all()


@pytest.mark.parametrize("name", ["still camera", "constant velocity", "free fall"])
def test_metric_maps_need_motion_too(name):
    """With the scale known, biases and gravity still mix where nothing turns."""
    start = sb.initialize(*motion(0, *MOTIONS[name], 1e-3), with_scale=False)
    assert not start.is_usable and "accelerometer's bias" in start.refused
    assert "log_scale" not in start.deviations


def test_rotation_is_enough_for_a_metric_map():
    """Turning in place shows gravity and biases; only the scale needs accelerations."""
    start = sb.initialize(*motion(0, *MOTIONS["rotation only"], 0.0), with_scale=False)
    assert start.is_usable, start.refused


def test_a_map_is_turned_scaled_and_refined():
    """All stages on a monocular map of another unit: states, landmarks and IMU measurements fit the truth."""
    rng = np.random.default_rng(0)
    world, points = simulated_map(rng, stereo=False, pixels=0.3)
    poses, velocities = poses_and_velocities(TIMES)
    world.transform(np.concatenate([[0.3, -0.2, 1.0], TILT.quaternion, [1.0 / SCALE]]))
    frames = world.keyframes
    for name in ("velocity", "gyro_bias", "acc_bias"):
        frames[name][:] = 0.0
    result = sb.inertial_initialization(world, acc_bias_sigma=1.0)
    assert result.is_usable, result.report()
    assert result.extra["scale"] == pytest.approx(SCALE, rel=0.01)
    motion = sb.umeyama(poses[:, :3], frames["world_T_body"][:, :3])
    assert abs(np.log(motion[7])) < 3.0 * result.extra["deviations"]["log_scale"] < 0.05
    assert np.hypot(*SO3(motion[3:7]).log()[:2]) < 5e-3  # only heading is free
    speeds = (np.linalg.norm(velocity, axis=1) for velocity in (motion[7] * frames["velocity"], velocities))
    np.testing.assert_allclose(*speeds, atol=0.02)
    np.testing.assert_allclose(frames["gyro_bias"], np.tile(GYRO_BIAS, (13, 1)), atol=1e-3)
    assert len(points) == len(result.landmarks)


def test_a_refused_map_stays():
    """A map whose camera stands still is left bit by bit as it was, and the result says why."""
    poses, imu = motion(0, *MOTIONS["still camera"], 1e-3)
    world = sb.Map()
    frames = world.add_keyframes(np.arange(21) * 250_000_000, poses)
    world.add_imu(frames[:-1], frames[1:], imu)
    result = sb.inertial_initialization(world)
    assert not result.is_usable and "scale" in result.refused and "scale" in result.report()
    np.testing.assert_array_equal(world.keyframes["world_T_body"], SE3(poses).storage)
    with pytest.raises(sb.MapError, match=r"no IMU measurement from keyframe 0 to 2"):
        sb.inertial_initialization(world, frames[[0, 2, 3]])
    with pytest.raises(sb.MapError, match="n >= 3"):
        sb.initialize(poses[:2], imu[:1])


class StopsAfter:
    """A stop flag that is set once it was asked so many times; None: never. `asked` counts."""

    def __init__(self, limit=None):
        self.limit, self.asked = limit, 0

    def is_set(self):
        """Count, and say whether it is."""
        self.asked += 1
        return self.limit is not None and self.asked > self.limit


def contents(world):
    """All that a map holds, as bytes."""
    tables = {
        (name, column): table[column].tobytes()
        for name, table in world.tables.items()
        for column in table.columns
    }
    return {
        **tables,
        "gravity": world.gravity.tobytes(),
        "measured": tuple(map(id, world.preintegrated.values())),
    }


def unscaled_map():
    """A monocular map in another unit, without velocities and biases."""
    world, _ = simulated_map(np.random.default_rng(0), stereo=False, pixels=0.3)
    world.transform(np.concatenate([[0.3, -0.2, 1.0], TILT.quaternion, [1.0 / SCALE]]))
    for name in ("velocity", "gyro_bias", "acc_bias"):
        world.keyframes[name][:] = 0.0
    return world


@pytest.mark.parametrize("stage", [1, 2])
def test_a_stopped_initialization_leaves_the_map(monkeypatch, stage):
    """Ended before a result, in stage 1 or in stage 2 before its first step: not a bit of the map moves."""
    world, flag = unscaled_map(), StopsAfter(0 if stage == 1 else None)

    def interrupted(*arguments, **named):
        flag.limit = 0
        return full_inertial_ba(*arguments, **named)

    module = sys.modules["slam_bridge.problems.inertial_initialization"]
    monkeypatch.setattr(module, "full_inertial_ba", interrupted)
    before = contents(world)
    result = sb.inertial_initialization(world, options=sb.SolveOptions(stop=flag), acc_bias_sigma=1.0)
    assert not result.is_usable and not result.summary.is_usable and "map is as it was" in result.refused
    assert contents(world) == before and flag.asked > 0


def test_a_time_limit_leaves_the_map():
    """However short the limit is: the map is as it was, or holds a usable result."""
    for limit in (1e-6, 1e-3, 1e-2):
        world = unscaled_map()
        before = contents(world)
        result = sb.inertial_initialization(
            world, options=sb.SolveOptions(time_limit=limit), acc_bias_sigma=1.0
        )
        assert result.is_usable == (contents(world) != before)
    assert result.is_usable or result.refused


def test_lasting_errors_of_poses_count():
    """Slow errors of the accelerometer, 0.05 m/s^2 for half a second: the scale's deviation covers them."""
    squares = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        clean = samples(TIMES[-1], 200.0, GYRO_BIAS, ACC_BIAS)
        drift, decay = np.zeros((len(clean), 3)), np.exp(-0.01)
        for k in range(1, len(clean)):
            drift[k] = decay * drift[k - 1] + np.sqrt(1.0 - decay**2) * 0.05 * rng.normal(size=3)
        slow = sb.ImuSamples(clean.stamps, clean.gyro, clean.acc + drift)
        poses, _ = poses_and_velocities(TIMES)
        start = sb.initialize(
            turned(poses), sb.preintegrate_intervals(slow, STAMPS, NOISE), acc_bias_sigma=1.0
        )
        squares.append((np.log(start.scale / SCALE) / start.deviations["log_scale"]) ** 2)
    assert np.mean(squares) < 1.88  # 99 % of chi-square of 20 numbers, over 20


def test_a_clock_that_is_over_ends_stage_1():
    """`initialize` obeys the time limit of the clock that it is given."""
    world = generate_problem("MH01", keyframes=10, landmarks=20, observations=100, seed=0).map
    imu = [world.preintegrated[link] for link in world.imu.ids.tolist()]
    clock = Clock(SolveOptions(time_limit=1e-9))
    start = sb.initialize(world.keyframes["world_T_body"], imu, clock=clock)
    assert not start.is_usable and start.refused.startswith("Stopped before gravity")


def test_poses_close_together_do_not_hide_the_scale():
    """Of keyframes 50 ms apart, which are 3 mm off, stage 1 gets those a quarter of a second apart."""
    times = np.sort(np.concatenate([np.arange(0.0, 4.01, 0.25), np.arange(1.05, 3.0, 0.25)]))
    stamps = np.rint(1e9 * times).astype(np.int64)
    imu = sb.preintegrate_intervals(samples(times[-1], 1000.0, GYRO_BIAS, ACC_BIAS), stamps, NOISE)
    poses, _ = poses_and_velocities(times)
    poses[:, :3] += 0.003 * np.random.default_rng(0).normal(size=(len(times), 3))
    world = sb.Map()
    chain = np.array(
        [world.add_keyframe(*one, np.zeros(3)) for one in zip(stamps.tolist(), poses, strict=True)]
    )
    for before, now, part in zip(chain, chain[1:], imu, strict=False):
        world.add_imu(before, now, part)
    chosen, joined = apart(world, chain)
    rows = world.keyframes.rows(chosen)
    np.testing.assert_allclose([part.dt for part in joined], np.diff(times[rows]))
    assert rows[0] == 0 and rows[-1] == len(times) - 1 and min(np.diff(times[rows])[:-1]) > 0.249
    found = [sb.initialize(poses, imu), sb.initialize(poses[rows], joined)]
    deviations = [start.deviations["log_scale"] for start in found]
    assert deviations[1] < 0.5 * deviations[0]
    assert abs(np.log(found[1].scale)) < 3.0 * deviations[1] < 0.3
