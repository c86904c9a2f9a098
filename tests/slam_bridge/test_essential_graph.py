"""Loop closing with a pose graph: drift goes, what the IMU knows stays, wrong loops are named."""

from __future__ import annotations

import numpy as np
import pytest

import slam_bridge as sb
from graphopt.errors import OptionError
from graphopt.geometry import SE3, SO3, Sim3

TIGHT = np.diag([0.002**-2.0] * 3 + [0.01**-2.0] * 3 + [0.002**-2.0])


def circle(count=40):
    """Poses on a circle, looking along it, with some roll and pitch."""
    angle = 2.0 * np.pi * np.arange(count) / count
    position = np.stack([np.cos(angle), np.sin(angle), 0.1 * np.sin(2.0 * angle)], axis=1) * 5.0
    zeros = np.zeros(count)
    heading = SO3.exp(np.stack([zeros, zeros, angle], axis=1))
    tilt = SO3.exp(np.stack([0.1 * np.sin(angle), 0.05 * np.cos(angle), zeros], axis=1))
    return np.concatenate([position, np.asarray((heading * tilt).storage)], axis=1)


def drifted(truth, heading=0.01, scale=1.0):
    """Odometry with a heading and a scale error that add up."""
    relative = np.asarray((SE3(truth[:-1]).inverse() * SE3(truth[1:])).storage)
    down = np.asarray(SE3(truth[:-1]).rotation.inverse().act(np.array([0.0, 0.0, 1.0])))
    poses, size = [truth[0]], 1.0
    for step, axis in zip(relative, down, strict=True):
        size *= scale
        wrong = SE3.from_parts(np.zeros(3), SO3.exp(heading * axis).quaternion)
        moved = SE3.from_parts(size * step[:3], step[3:])
        poses.append(np.asarray((SE3(poses[-1]) * wrong * moved).storage))
    return np.stack(poses), scale ** np.arange(len(truth))


def world_of(poses, size=1.0):
    """Map of keyframes, each with a landmark 2 units ahead of it that moves with it."""
    world = sb.Map()
    frames = world.add_keyframes(np.arange(len(poses)) * 10**8, poses, np.ones((len(poses), 3)))
    ahead = SE3(poses).act(np.array([2.0, 0.0, 0.0]) * np.reshape(size, (-1, 1)))
    world.add_landmarks(ahead, frames)
    return world, frames


def loop(truth, first, second):
    return np.asarray((SE3(truth[first]).inverse() * SE3(truth[second])).storage)[None]


def down(poses):
    return np.asarray(SE3(poses).rotation.inverse().act(np.array([0.0, 0.0, -1.0])))


@pytest.mark.parametrize("mode", ["4dof", "se3"])
def test_a_loop_removes_the_drift(mode):
    """Heading and position come back; with four degrees of freedom roll and pitch stay to the last bit."""
    truth = circle()
    start, _ = drifted(truth)
    world, frames = world_of(start)
    world.add_loops(frames[0], frames[39], loop(truth, 0, 39), TIGHT)
    result = sb.essential_graph_optimization(world, mode)
    assert result.is_usable and not len(result.rejected["loop"])
    found = world.keyframes["world_T_body"]
    before, after = (np.linalg.norm(poses[:, :3] - truth[:, :3], axis=1).max() for poses in (start, found))
    assert after < 0.35 * before
    assert np.abs(down(found) - down(start)).max() < (1e-9 if mode == "4dof" else 0.05)
    local = SE3(found).inverse().act(world.landmarks["position"])
    np.testing.assert_allclose(local, np.tile([2.0, 0.0, 0.0], (40, 1)), atol=1e-9)
    turned = SE3(found).rotation.inverse().act(world.keyframes["velocity"])
    np.testing.assert_allclose(turned, SE3(start).rotation.inverse().act(np.ones((40, 3))), atol=1e-9)


def test_scale_drift_goes_with_sim3():
    """1 % per keyframe: the loop's similarity brings the scale back; landmarks get their keyframe's scale."""
    truth = circle()
    start, size = drifted(truth, heading=0.0, scale=1.01)
    world, frames = world_of(start, size)
    world.add_loops(frames[0], frames[39], loop(truth, 0, 39), TIGHT, scale=1.0 / size[39])
    result = sb.essential_graph_optimization(world, "sim3")
    assert result.is_usable
    np.testing.assert_allclose(result.extra["scale"] * size, 1.0, atol=0.03)
    found = world.keyframes["world_T_body"]
    before, after = (np.linalg.norm(poses[:, :3] - truth[:, :3], axis=1).max() for poses in (start, found))
    assert after < 0.25 * before
    distance = np.linalg.norm(world.landmarks["position"] - found[:, :3], axis=1)
    np.testing.assert_allclose(distance, 2.0, atol=0.06)


def test_a_wrong_loop_is_named():
    """Four right loops and one that is 3 m off: that one is rejected, the others do their work."""
    truth = circle()
    start, _ = drifted(truth)
    world, frames = world_of(start)
    for first, second in ((0, 39), (1, 38), (2, 37), (3, 36)):
        world.add_loops(frames[first], frames[second], loop(truth, first, second), TIGHT)
    wrong = loop(truth, 10, 30)
    wrong[0, :3] += 3.0
    bad = world.add_loops(frames[10], frames[30], wrong, TIGHT)
    result = sb.essential_graph_optimization(world, "4dof")
    np.testing.assert_array_equal(result.rejected["loop"], bad)
    np.testing.assert_array_equal(world.loops["inlier"], [True] * 4 + [False])
    found = world.keyframes["world_T_body"]
    assert (
        np.linalg.norm(found[:, :3] - truth[:, :3], axis=1).max()
        < 0.35 * np.linalg.norm(start[:, :3] - truth[:, :3], axis=1).max()
    )


def test_neighbours_that_share_landmarks_are_linked():
    """Links are those of time and of enough shared landmarks, with the relative poses of the map."""
    rng = np.random.default_rng(0)
    camera = sb.Camera.pinhole([0, 0, 0, 0, 0, 0, 1.0], 1.0, 1.0, 0.0, 0.0)
    poses = np.asarray(SE3.exp(rng.normal(size=(4, 6))).storage)
    world = sb.Map(camera)
    frames = world.add_keyframes(np.arange(4), poses)
    points = world.add_landmarks(rng.normal(size=(30, 3)))
    for frame in frames[[0, 3]]:
        world.add_observations(frame, points, np.zeros((30, 2)))
    links = sb.essential_links(world, min_shared=30)
    pairs = set(zip(links.first.tolist(), links.second.tolist(), strict=True))
    assert pairs == {(0, 1), (1, 2), (2, 3), (0, 3)}
    relative = Sim3(np.column_stack([poses[links.first], np.ones(4)])).inverse() * Sim3(
        np.column_stack([poses[links.second], np.ones(4)])
    )
    np.testing.assert_allclose(relative.to_matrix(), Sim3(links.first_S_second).to_matrix(), atol=1e-12)
    assert len(sb.essential_links(world, min_shared=31).first) == 3


def test_misuse_is_named():
    """An unknown mode, no fixed keyframe."""
    world, frames = world_of(circle())
    with pytest.raises(OptionError, match="mode is '5dof'"):
        sb.essential_graph_optimization(world, "5dof")
    with pytest.raises(OptionError, match="at least one keyframe"):
        sb.essential_graph_optimization(world, fixed=[])
    assert len(frames) == 40


@pytest.mark.parametrize("gravity", [(0.0, 9.81, 0.0), (3.0, 2.0, -9.0)])
def test_four_degrees_of_freedom_of_any_gravity(gravity):
    """The same graph in a world that is turned: the same answer, turned; gravity stays in each keyframe."""
    truth, down = circle(), np.array([0.0, 0.0, -1.0])
    axis = np.cross(down, gravity)
    angle = np.arctan2(np.linalg.norm(axis), np.dot(down, gravity))
    turn = SO3.exp(0.4 * np.array(gravity) / np.linalg.norm(gravity)) * SO3.exp(
        axis / np.linalg.norm(axis) * angle
    )
    found = []
    for motion in (SO3.exp(np.zeros(3)), turn):
        start, _ = drifted(truth)
        start = np.asarray((SE3.from_parts(np.zeros(3), motion.storage) * SE3(start)).storage)
        world, frames = world_of(start)
        world.gravity = 9.81 * np.asarray(motion.act(down))
        world.add_loops(frames[39], frames[0], loop(truth, 39, 0), TIGHT)
        result = sb.essential_graph_optimization(world, "4dof")
        assert result.is_usable
        poses = world.keyframes["world_T_body"]
        seen = SE3(poses).rotation.inverse().act(world.gravity)
        np.testing.assert_allclose(seen, SE3(start).rotation.inverse().act(world.gravity), atol=1e-7)
        found.append((SE3.from_parts(np.zeros(3), motion.storage).inverse() * SE3(poses)).to_matrix())
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)


@pytest.mark.parametrize("mode", ["4dof", "se3", "sim3"])
@pytest.mark.parametrize("wrong", [(3, 25), (38, 5), (0, 20)])
def test_right_loops_come_back(mode, wrong):
    """A wrong loop pulls right ones out of their places; it alone is rejected at the end."""
    truth = circle()
    start, _ = drifted(truth)
    world, frames = world_of(start)
    for first, second in ((0, 20), (0, 30), (0, 39)):
        world.add_loops(frames[first], frames[second], loop(truth, first, second), TIGHT)
    away = [[3.0, 5.0, 1.0, *np.asarray(SO3.exp(np.array([0.0, 0.0, 1.0])).storage)]]
    bad = world.add_loops(*frames[list(wrong)], away, TIGHT)
    result = sb.essential_graph_optimization(world, mode)
    assert result.is_usable
    assert (
        result.rejected["loop"].tolist() == bad.tolist() == world.loops.ids[~world.loops["inlier"]].tolist()
    )
    before, after = (
        np.linalg.norm(poses[:, :3] - truth[:, :3], axis=1).max()
        for poses in (start, world.keyframes["world_T_body"])
    )
    assert after < 0.2 * before


def test_keyframes_that_the_map_does_not_have_are_refused():
    """Fixed, or corrected; and corrections that are none."""
    truth = circle(8)
    world, frames = world_of(truth)
    with pytest.raises(sb.MapError, match="no keyframe 99"):
        sb.essential_graph_optimization(world, fixed=[int(frames[0]), 99])
    with pytest.raises(sb.MapError, match="no keyframe 99"):
        sb.essential_graph_optimization(world, corrected={99: np.append(truth[0], 1.0)})
    for wrong in (truth[0], np.append(truth[0], 0.0), np.zeros(8), np.full(8, np.nan)):
        with pytest.raises(OptionError, match=r"corrected\[3\] is"):
            sb.essential_graph_optimization(world, corrected={3: wrong})
