"""What tracking adds while the whole map is optimized follows the result."""

import threading
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from graphopt.geometry import SE3, SO3
from slam_bridge import ImuNoise, ImuSamples, Map, preintegrate
from slam_bridge.pipeline import PipelineOptions
from slam_bridge.pipeline.mapping import Mapper, pass_on_states, write_with_newer


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_newer_keyframes_and_landmarks_move_along(scale):
    """They stay where the last keyframe of the result sees them, in its new unit, velocity included."""
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
    found.extra = {"scale": np.array([1.0, scale])} if scale != 1.0 else {}
    found.write_to = write
    write_with_newer(world, found)
    old, new = SE3(poses[1]).inverse(), SE3(moved).inverse()
    now = world.keyframes
    np.testing.assert_array_equal(now["world_T_body"][0], before.keyframes["world_T_body"][0])
    seen = [(old * SE3(poses[2])).to_matrix(), (new * SE3(now["world_T_body"][2])).to_matrix()]
    seen[0][:3, 3] *= scale
    np.testing.assert_allclose(seen[0], seen[1], atol=1e-12)
    for row, (was, found_at) in enumerate(
        zip(before.landmarks["position"], world.landmarks["position"], strict=True)
    ):
        expected = was + 1.0 if row < 2 else np.asarray(new.inverse().act(scale * np.asarray(old.act(was))))
        np.testing.assert_allclose(found_at, expected, atol=1e-12)
    velocities = (old.rotation.act(before.keyframes["velocity"][2]), new.rotation.act(now["velocity"][2]))
    np.testing.assert_allclose(*map(np.asarray, velocities), atol=1e-12)


def test_each_keyframe_is_judged_once_however_far_tracking_is_ahead():
    """The one that left the window of the keyframe that is worked in, with three newer ones in the map."""
    world, removed = Map(), []
    pose = [0.0, 0, 0, 0, 0, 0, 1]
    frames = world.add_keyframes(np.arange(12) * 10**8, np.tile(pose, (12, 1)))  # none sees what others don't
    loops = SimpleNamespace(index=SimpleNamespace(remove=removed.append))
    log = SimpleNamespace(remove_keyframe=lambda gone, parent, relative: None)
    options = PipelineOptions(mode="stereo", single_thread=True, local_keyframes=4)
    mapper = Mapper(None, world, log, loops, options)
    mapper._first = 0
    for newest in frames[4:9].tolist():
        mapper._cull_keyframe(newest)
    assert removed == [1, 2, 3, 4]  # 0 is the first and stays


def test_frames_are_tracked_while_a_loop_is_computed():
    """They wait only while the map is written; those of a file, which asks for it, for all of it."""
    world, calls = Map(), []
    keyframes = world.add_keyframes(np.arange(2), np.tile([0.0, 0, 0, 0, 0, 0, 1], (2, 1)))
    frames: list[threading.Thread] = []

    def track():
        with mapper.turns.frame():
            calls.append("frame")

    def corrected():
        frames.append(threading.Thread(target=track))
        frames[0].start()
        frames[0].join(10.0)
        assert calls == ["frame"]
        catching_up.start()
        catching_up.join(0.05)
        assert catching_up.is_alive()
        return SimpleNamespace(
            keyframes=SimpleNamespace(ids=keyframes), landmarks=np.zeros(0, np.int64), is_usable=True,
            extra={"loop_inliers": np.array([True])}, write_to=write,
        )  # fmt: skip

    def write(target):
        target.keyframes["world_T_body"][1, 0] = 2.0
        frames.append(threading.Thread(target=track))
        frames[1].start()
        calls.append("written")

    def fuse(loop, tracker):
        frames[1].join(0.05)
        assert frames[1].is_alive()
        calls.append("fused")

    loops = SimpleNamespace(found=[SimpleNamespace(old=0, now=1)], corrected=corrected, fuse=fuse)
    tracker = SimpleNamespace(moved=lambda: calls.append("moved"))
    mapper = Mapper(tracker, world, None, loops, PipelineOptions(single_thread=True))
    catching_up = threading.Thread(target=mapper.catch_up)
    mapper._close_loop()
    catching_up.join(10.0)
    frames[1].join(10.0)
    assert not catching_up.is_alive()
    assert calls == ["frame", "written", "fused", "moved", "frame"]
    assert mapper.steps[0]["moved"] == 2.0 and mapper.steps[0]["accepted"]


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
