"""Loop closing with a pose graph of keyframes."""

from __future__ import annotations

import numpy as np
import pytest

import slam_bridge as sb
from graphopt.geometry import SE3, SO3


def _circle(count=40):
    """Poses on a circle, looking along it, with some roll and pitch."""
    angle = 2.0 * np.pi * np.arange(count) / count
    position = np.stack([np.cos(angle), np.sin(angle), 0.1 * np.sin(2.0 * angle)], axis=1) * 5.0
    zeros = np.zeros(count)
    heading = SO3.exp(np.stack([zeros, zeros, angle], axis=1))
    tilt = SO3.exp(np.stack([0.1 * np.sin(angle), 0.05 * np.cos(angle), zeros], axis=1))
    return np.concatenate([position, np.asarray((heading * tilt).storage)], axis=1)


def _drifted(truth):
    """Odometry with a heading error that adds up, as dead reckoning integrates it."""
    relative = np.asarray((SE3(truth[:-1]).inverse() * SE3(truth[1:])).storage)
    down = np.asarray(SE3(truth[:-1]).rotation.inverse().act(np.array([0.0, 0.0, 1.0])))
    turn = np.concatenate([np.zeros_like(down), np.asarray(SO3.exp(0.01 * down).storage)], axis=1)
    poses = [truth[0]]
    for step, wrong in zip(relative, turn, strict=True):
        poses.append(np.asarray((SE3(poses[-1]) * SE3(wrong) * SE3(step)).storage))
    return np.stack(poses)


def _loop(truth, first, second):
    relative = np.asarray((SE3(truth[first]).inverse() * SE3(truth[second])).storage)[None]
    return sb.PoseLinks.isotropic([first], [second], relative, 0.01, 0.002)


def _down(poses):
    return np.asarray(SE3(poses).rotation.inverse().act(np.array([0.0, 0.0, -1.0])))


def test_loop_removes_the_drift_and_keeps_gravity():
    """One loop over the whole circle: heading and position come back, roll and pitch stay as they are."""
    truth = _circle()
    start = _drifted(truth)
    odometry = sb.PoseLinks.odometry(start, 0.02, 0.01)
    result = sb.close_loops(start, odometry, _loop(truth, 0, 39))
    before = np.linalg.norm(start[:, :3] - truth[:, :3], axis=1).max()
    after = np.linalg.norm(result.world_T_body[:, :3] - truth[:, :3], axis=1).max()
    assert result.summary.is_usable and before > 1.5 and after < 0.1 * before
    assert np.linalg.norm(_down(result.world_T_body) - _down(truth), axis=1).max() < 1e-3
    assert result.loop_chi2[0] < 1.0
    np.testing.assert_array_equal(result.world_T_body[0], start[0])


def test_six_degrees_of_freedom_tilt():
    """Without the prior a loop with a wrong roll tilts the map; with it, gravity holds."""
    truth = _circle()
    relative = np.asarray((SE3(truth[0]).inverse() * SE3(truth[39])).storage)
    tilted = np.asarray(
        (SE3(relative) * SE3(np.array([0, 0, 0, *SO3.exp(np.array([0.1, 0.0, 0.0])).storage]))).storage
    )
    loop = sb.PoseLinks.isotropic([0], [39], tilted[None], 0.01, 0.01)
    odometry = sb.PoseLinks.odometry(truth, 0.02, 0.01)
    tilts = []
    for sigma in (None, 1e-3):
        result = sb.close_loops(truth, odometry, loop, options=sb.PoseGraphOptions(gravity_sigma=sigma))
        tilts.append(np.linalg.norm(_down(result.world_T_body) - _down(truth), axis=1).max())
    assert tilts[0] > 0.03 and tilts[1] < 0.002


def test_wrong_loop_shows():
    """A loop that contradicts two others has a large chi2 and moves little."""
    truth = _circle()
    odometry = sb.PoseLinks.odometry(truth, 0.02, 0.01)
    good = [_loop(truth, 0, 39), _loop(truth, 5, 30)]
    wrong = _loop(truth, 2, 20)
    wrong.first_T_second[0, 0] += 3.0
    parts = [*good, wrong]
    loops = sb.PoseLinks(
        *(np.concatenate([getattr(one, name) for one in parts]) for name in ("first", "second")),
        *(
            np.concatenate([getattr(one, name) for one in parts])
            for name in ("first_T_second", "information")
        ),
    )
    result = sb.close_loops(truth, odometry, loops, options=sb.PoseGraphOptions(loop_kernel="Cauchy"))
    assert result.loop_chi2[2] > 1e3 > 100.0 * result.loop_chi2[:2].max()
    assert np.linalg.norm(result.world_T_body[:, :3] - truth[:, :3], axis=1).max() < 0.5


def test_points_move_with_their_keyframe():
    """In the frame of its keyframe a landmark stays where it is."""
    truth, random = _circle(), np.random.default_rng(3)
    after = _drifted(truth)
    keyframe = random.integers(0, 40, 100)
    points = random.normal(size=(100, 3))
    moved = sb.moved_points(points, keyframe, truth, after)
    for poses, where in ((truth, points), (after, moved)):
        local = np.asarray(SE3(poses[keyframe]).inverse().act(where))
        if where is points:
            expected = local
    np.testing.assert_allclose(local, expected, atol=1e-12)


def test_errors_say_what():
    """Keyframes that do not exist, nothing fixed, wrong shapes."""
    truth = _circle(5)
    odometry = sb.PoseLinks.odometry(truth, 0.1, 0.1)
    with pytest.raises(sb.WindowError, match="loops names keyframes 0 to 9"):
        sb.close_loops(truth, odometry, sb.PoseLinks.isotropic([0], [9], truth[:1], 1.0, 1.0))
    with pytest.raises(sb.WindowError, match="has to stay"):
        sb.close_loops(truth, odometry, _loop(truth, 0, 4), fixed=())
    with pytest.raises(sb.WindowError, match="first_T_second"):
        sb.PoseLinks.isotropic([0, 1], [1, 2], truth[:1], 1.0, 1.0)
    with pytest.raises(ValueError, match="gravity_sigma"):
        sb.PoseGraphOptions(gravity_sigma=0.0)
