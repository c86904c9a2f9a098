"""Frames move with their keyframes, also with those that have left the map."""

import errno

import numpy as np
import pytest

from graphopt.geometry import SE3, SO3
from slam_bridge import Map
from slam_bridge.pipeline import trajectory
from slam_bridge.pipeline.trajectory import FrameLog


def pose(x, y, z, turn=(0.0, 0.0, 0.0)):
    return np.concatenate([[x, y, z], np.asarray(SO3.exp(np.array(turn)).storage)])


def test_frames_follow_their_keyframes():
    """Moving the keyframe moves the frame; removing it hangs the frame on its parent, where it was."""
    world, log = Map(), FrameLog()
    first = world.add_keyframe(0, pose(0, 0, 0))
    second = world.add_keyframe(10, pose(1, 0, 0, (0, 0, np.pi / 2)))
    log.add(0, first, pose(0, 0, 0))
    log.add(12, second, pose(0.5, 0, 0))
    stamps, poses = log.poses(world)
    assert stamps.tolist() == [0, 12]
    np.testing.assert_allclose(poses[1, :3], [1.0, 0.5, 0.0], atol=1e-12)
    relative = SE3(pose(0, 0, 0)).inverse() * SE3(pose(1, 0, 0, (0, 0, np.pi / 2)))
    log.remove_keyframe(second, first, np.array(relative.storage))
    world.remove_keyframes([second])
    np.testing.assert_allclose(log.poses(world)[1][1], poses[1], atol=1e-12)
    log.scale(2.0)
    world.transform(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0]))
    np.testing.assert_allclose(log.poses(world)[1][1, :3], [2.0, 1.0, 0.0], atol=1e-12)


def test_the_trajectory_passes_through_keyframes_that_were_moved_apart():
    """Frames between two keyframes take their share of what moved the second one; rest stays rest."""
    world, log = Map(), FrameLog()
    first, second = world.add_keyframe(0, pose(0, 0, 0)), world.add_keyframe(40, pose(2, 0, 0))
    log.add_keyframe(0, first)
    log.add_keyframe(40, second)
    log.add(0, first, pose(0, 0, 0))
    for stamp, x in ((10, 0.0), (20, 0.0), (30, 1.0), (40, 2.0)):
        log.add(stamp, first, pose(x, 0, 0))
    log.add(50, second, pose(1, 0, 0))
    np.testing.assert_allclose(log.poses(world)[1][:, 0], [0, 0, 0, 1, 2, 3], atol=1e-12)
    turn = (0.0, 0.0, np.pi / 2)
    world.keyframes["world_T_body"][1] = pose(3, 0, 0.4, turn)
    poses = log.poses(world)[1]
    np.testing.assert_allclose(poses[1:3, :3], 0.0, atol=1e-12)
    np.testing.assert_allclose(poses[4], pose(3, 0, 0.4, turn), atol=1e-12)
    np.testing.assert_allclose(poses[5, :3], [3, 1, 0.4], atol=1e-12)
    assert 1.0 < poses[3, 0] < 2.0 and 0.1 < poses[3, 2] < 0.3
    parent = np.array((SE3(pose(0, 0, 0)).inverse() * SE3(poses[4])).storage)
    log.remove_keyframe(second, first, parent)
    world.remove_keyframes([second])
    np.testing.assert_allclose(log.poses(world)[1], poses, atol=1e-12)


@pytest.mark.parametrize("is_full", [False, True], ids=["written", "disk full"])
def test_many_frames_leave_memory(monkeypatch, is_full):
    """Poses are the same with most frames in a file, and in memory where the disk takes none."""
    world = Map()
    keyframes = world.add_keyframes([0, 1000], np.tile([0.0, 0, 0, 0, 0, 0, 1], (2, 1)))
    steps = np.random.default_rng(0).normal(size=(500, 7))
    steps[:, 3:] /= np.linalg.norm(steps[:, 3:], axis=1, keepdims=True)

    def logged():
        log = FrameLog()
        for number, step in enumerate(steps):
            log.add(10 * number, int(keyframes[number % 2]), step)
        log.scale(2.0)
        log.add(5000, 0, steps[0])
        return log

    expected = logged().poses(world)
    monkeypatch.setattr(trajectory, "_HELD", 1000)
    if is_full:
        monkeypatch.setattr(trajectory.os, "pwrite", refuse)
    log = logged()
    assert len(log) == 501
    for mine, theirs in zip(log.poses(world), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def refuse(*_):
    """As a full disk does."""
    raise OSError(errno.ENOSPC, "No space left on device")
