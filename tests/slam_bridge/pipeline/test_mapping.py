"""What tracking adds while the whole map is optimized follows the result."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np

from graphopt.geometry import SE3, SO3
from slam_bridge import ImuNoise, ImuSamples, Map, preintegrate
from slam_bridge.pipeline.mapping import pass_on_states, write_with_newer


def test_newer_keyframes_and_landmarks_move_along():
    """They stay where the last keyframe of the result sees them, velocity included."""
    rng, world = np.random.default_rng(0), Map()
    poses = np.concatenate(
        [rng.normal(size=(3, 3)), np.asarray(SO3.exp(rng.normal(size=(3, 3))).storage)], axis=1
    )
    keyframes = world.add_keyframes(np.arange(3), poses, rng.normal(size=(3, 3)))
    points = world.add_landmarks(rng.normal(size=(4, 3)))
    moved = np.concatenate([rng.normal(size=3), np.asarray(SO3.exp(rng.normal(size=3)).storage)])
    before = world.snapshot()

    def write(target):
        target.keyframes["world_T_body"][1] = moved
        target.landmarks["position"][:2] += 1.0

    found = SimpleNamespace(keyframes=SimpleNamespace(ids=keyframes[:2]), landmarks=points[:2])
    found.write_to = write
    write_with_newer(world, found)
    old, new = SE3(poses[1]).inverse(), SE3(moved).inverse()
    now = world.keyframes
    np.testing.assert_array_equal(now["world_T_body"][0], before.keyframes["world_T_body"][0])
    seen = [(old * SE3(poses[2])).to_matrix(), (new * SE3(now["world_T_body"][2])).to_matrix()]
    np.testing.assert_allclose(seen[0], seen[1], atol=1e-12)
    for row, (was, found_at) in enumerate(
        zip(before.landmarks["position"], world.landmarks["position"], strict=True)
    ):
        expected = was + 1.0 if row < 2 else np.asarray(new.inverse().act(np.asarray(old.act(was))))
        np.testing.assert_allclose(found_at, expected, atol=1e-12)
    velocities = (old.rotation.act(before.keyframes["velocity"][2]), new.rotation.act(now["velocity"][2]))
    np.testing.assert_allclose(*map(np.asarray, velocities), atol=1e-12)


def test_velocities_are_passed_on():
    """Half a second of free motion at constant velocity, with a bias of the gyroscope that is known."""
    world, bias = Map(), np.array([0.01, -0.02, 0.03])
    stamps = 250_000_000 * np.arange(3)
    poses = np.tile([0.0, 0, 0, 0, 0, 0, 1], (3, 1))
    poses[:, 0] = 2e-9 * stamps
    velocity = np.zeros((3, 3))
    velocity[0, 0] = 2.0
    keyframes = world.add_keyframes(stamps, poses, velocity, gyro_bias=np.stack([bias, 0 * bias, 0 * bias]))
    times = 5_000_000 * np.arange(101)
    samples = ImuSamples(times, np.tile(bias, (101, 1)), np.tile(-world.gravity, (101, 1)))
    for first, second in pairwise(keyframes.tolist()):
        part = samples.between(*stamps[[first, second]].tolist())
        world.add_imu(first, second, preintegrate(part, ImuNoise(1e-3, 1e-2, 1e-5, 1e-4)))
    pass_on_states(world, int(keyframes[0]))
    np.testing.assert_allclose(world.keyframes["velocity"], np.tile([2.0, 0, 0], (3, 1)), atol=1e-9)
    np.testing.assert_array_equal(world.keyframes["gyro_bias"], np.tile(bias, (3, 1)))
    world.keyframes["velocity"][1:] = 7.0
    pass_on_states(world, int(keyframes[1]))
    np.testing.assert_array_equal(world.keyframes["velocity"][1], [7.0, 7.0, 7.0])
