"""Frames against landmarks that are not exact, and keyframes that no landmark ties: judged rightly, named."""

from __future__ import annotations

import numpy as np
import pytest
from simulation import CAMERA, NOISE, disturb, poses_and_velocities, samples, simulated_map

import slam_bridge as sb
from graphopt.errors import GraphOptError, ShapeError
from graphopt.geometry import SE3

RIG = sb.Rig(CAMERA)
SIGMA = 0.7
NO_TURN = [0.0, 0.0, 0.0, 1.0]


def seen_once(rng, count=300, wrong=0.1):
    """Points that one stereo pair located, 3 to 12 m away; a frame 0.8 m beside and 0.5 m ahead sees them."""
    local = rng.uniform([-0.5, -0.4, 1.0], [0.5, 0.4, 1.0], (count, 3)) * rng.uniform(3.0, 12.0, (count, 1))
    pose = np.array([0.8, 0.3, 0.5, *NO_TURN])
    points = CAMERA.in_world([0.0, 0.0, 0.0, *NO_TURN], local)
    world = sb.Map(RIG)
    pixel = CAMERA.project(local) + SIGMA * rng.normal(size=(count, 2))
    right = CAMERA.right_column(local) + SIGMA * rng.normal(size=count)
    frame = world.add_keyframe(0, [0.0, 0.0, 0.0, *NO_TURN])
    located = CAMERA.in_world([0.0, 0.0, 0.0, *NO_TURN], CAMERA.locate(pixel, right))
    ids = world.add_landmarks(located, frame)
    world.add_observations(frame, ids, pixel, right=right, sigma=SIGMA)
    there = CAMERA.in_camera(pose, points)
    pixel = CAMERA.project(there) + SIGMA * rng.normal(size=(count, 2))
    right = CAMERA.right_column(there) + SIGMA * rng.normal(size=count)
    bad = rng.random(count) < wrong
    pixel[bad] += rng.choice([-1.0, 1.0], (int(bad.sum()), 2)) * rng.uniform(60.0, 120.0, (int(bad.sum()), 2))
    return world, ids, pose, pixel, right, bad


@pytest.mark.parametrize("seed", range(4))
def test_right_matches_of_noisy_points_are_inliers(seed):
    """With the points' covariance nearly all right matches are inliers and wrong ones are not."""
    world, ids, pose, pixel, right, bad = seen_once(np.random.default_rng(seed))
    points = world.landmarks["position"]
    covariance = sb.landmark_covariances(world, ids)
    seen = sb.FrameObservations.of(points, pixel, right=right, sigma=SIGMA, covariance=covariance)
    start = np.array([0.6, 0.2, 0.3, *NO_TURN])
    for result in (sb.pose_optimization(RIG, start, seen), sb.relocalize(RIG, seen)):
        assert result.is_usable, result.report()
        assert result.inliers[~bad].mean() > 0.95
        assert result.inliers[bad].mean() < 0.1
        assert np.linalg.norm(result.keyframes.world_T_body[0, :3] - pose[:3]) < 0.15


def test_covariance_of_landmarks_is_that_of_a_bundle_adjustment_with_held_poses():
    """Of stereo points seen by many keyframes."""
    world, _ = simulated_map(np.random.default_rng(1), pixels=0.5)
    last = world.keyframes.ids[-1]
    world.add_pose_priors(last, world.keyframes["world_T_body"][-1:], 1e-7, 1e-7)
    result = sb.global_ba(world, world.keyframes.ids[:-1], options=sb.SolveOptions(device="cpu", kernel=None))
    chosen = result.landmarks[result.landmarks % 7 == 0][::-1]
    expected = result.covariance(landmarks=chosen)
    found = sb.landmark_covariances(world, chosen)
    for landmark, covariance in zip(chosen.tolist(), found, strict=True):
        np.testing.assert_allclose(covariance, expected["landmark", landmark], rtol=1e-4, atol=1e-12)


def test_open_places_take_no_part():
    """A point that one pixel has seen has an infinite covariance; a frame goes without it."""
    rng = np.random.default_rng(2)
    world, ids, pose, pixel, right, _ = seen_once(rng, wrong=0.0)
    ray = world.add_landmarks([[0.3, 0.2, 4.0]])
    world.add_observations(world.keyframes.ids[0], ray, CAMERA.project([[0.3, 0.2, 4.0]]))
    every = np.append(ids, ray)
    covariance = sb.landmark_covariances(world, every)
    assert np.isinf(covariance[-1]).all() and np.isfinite(covariance[:-1]).all()
    points = world.landmarks["position"]
    pixels, rights = np.append(pixel, [[5.0, 5.0]], axis=0), np.append(right, np.nan)
    seen = sb.FrameObservations.of(points, pixels, right=rights, sigma=SIGMA, covariance=covariance)
    result = sb.pose_optimization(RIG, pose, seen)
    assert result.rejected["behind camera"].tolist() == [len(ids)]
    with pytest.raises(ShapeError, match="covariance has shape"):
        sb.pose_optimization(RIG, pose, sb.FrameObservations.of(points, pixels, covariance=covariance[:-1]))
    with pytest.raises(GraphOptError, match="10000"):
        sb.landmark_covariances(world, [10000])


@pytest.mark.parametrize("wrong", [True, False])
def test_a_frame_that_the_imu_alone_holds_is_named(wrong):
    """Matches that all are wrong, or none: `rejected` has the frame; with right ones it has not."""
    rng = np.random.default_rng(3)
    poses, velocity = poses_and_velocities(np.array([0.0, 2.0]))
    measured = sb.preintegrate(samples(2.0), NOISE)
    zero = np.zeros(3)
    previous = sb.FrameState(poses[0], velocity[0], zero, zero)
    local = rng.uniform([-0.5, -0.4, 1.0], [0.5, 0.4, 1.0], (200, 3)) * rng.uniform(3.0, 12.0, (200, 1))
    points = CAMERA.in_world(poses[1], local)
    pixel = rng.uniform(0.0, 480.0, (200, 2)) if wrong else CAMERA.project(local)
    for chosen in (slice(None), slice(0, 0)):
        seen = sb.FrameObservations.of(points[chosen], pixel[chosen])
        result = sb.pose_inertial_optimization(RIG, None, previous, measured, seen, owner=7)
        lost = wrong or len(seen) == 0
        assert result.rejected["keyframe without inliers"].tolist() == [7] * lost


def test_keyframes_that_share_no_landmark_are_named():
    """The last keyframe sees points of its own only: all are inliers, and only the IMU says where it is."""
    rng = np.random.default_rng(4)
    world, _ = simulated_map(rng, pixels=0.5)
    last = int(world.keyframes.ids[-1])
    options = sb.SolveOptions(device="cpu", confidence=0.999)
    assert not len(sb.local_inertial_ba(world, world.keyframes.ids[-5:], options=options).extra["unshared"])
    rows = world.observations.rows_where("keyframe", [last])
    table = world.observations
    old = world.landmarks["position"][world.landmarks.rows(table["landmark"][rows])]
    numbers = {name: table[name][rows].copy() for name in ("pixel", "camera", "right", "sigma")}
    world.remove_observations(table.ids[rows])
    own = world.add_landmarks(old, last)
    world.add_observations(last, own, **numbers)
    disturb(world, rng, turn=0.002, shift=0.01, speed=0.01, points=0.01, fixed=world.keyframes.ids[:-1])
    result = sb.local_inertial_ba(world, world.keyframes.ids[-5:], options=options)
    assert result.extra["unshared"].tolist() == [last]
    assert "no shared landmarks: 1 keyframes" in result.report()
    assert np.isfinite(SE3(world.keyframes["world_T_body"]).storage).all()
