"""One frame: its pose from landmarks, its state with IMU and prior, relocalization, wrong matches."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from simulation import (
    ACC_BIAS,
    CAMERA,
    GYRO_BIAS,
    NOISE,
    perturbed,
    poses_and_velocities,
    rotation_errors,
    samples,
)

import slam_bridge as sb
from graphopt.errors import OptionError
from graphopt.geometry import SE3

STEREO = sb.Rig(CAMERA)
FISHEYE = sb.Rig(
    [
        sb.Camera([0.0, 0, 0, 0, 0, 0, 1.0], "kb8", [190.0, 190, 255, 256, 0.003, 7e-4, -0.002, 2e-4]),
        sb.Camera([0.1, 0, 0, 0, 0, 0, 1.0], "kb8", [191.0, 190, 252, 254, 0.003, 2e-3, -0.003, 3e-4]),
    ]
)


def frame(rng, rig, pose, count=120, pixels=0.5, wrong=0.0):
    """Landmarks seen from a pose with noise; which matches are wrong."""
    parts = []
    for number, camera in enumerate(rig):
        wide = 2.0 if camera.model == "kb8" else 0.6
        local = rng.uniform([-wide, -wide, 1.0], [wide, wide, 2.0], (count, 3)) * rng.uniform(
            1.5, 5.0, (count, 1)
        )
        points = np.asarray((SE3(pose) * SE3(camera.body_T_cam)).act(local))
        pixel = camera.project(local) + pixels * rng.normal(size=(count, 2))
        right = np.full(count, np.nan)
        if camera.baseline:
            right = camera.right_column(local) + pixels * rng.normal(size=count)
        parts.append((points, pixel, np.full(count, number), right))
    points, pixel, camera, right = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    bad = rng.random(len(points)) < wrong
    pixel[bad] += rng.uniform(15.0, 100.0, (bad.sum(), 2)) * rng.choice([-1, 1], (bad.sum(), 2))
    return sb.FrameObservations.of(points, pixel, camera, right, sigma=pixels), bad


@pytest.mark.parametrize("rig", [STEREO, FISHEYE], ids=["stereo", "two fisheyes"])
def test_pose_with_wrong_matches(rig):
    """30 % wrong: they are named, the pose is right to what the noise allows, on one graph for all frames."""
    rng = np.random.default_rng(0)
    graph, kept = sb.FrameGraph(rig), []
    for k in range(4):
        pose = np.asarray(SE3.exp(rng.normal(size=6)).storage)
        seen, bad = frame(rng, rig, pose, count=100 + 150 * (k % 2), wrong=0.3)
        start = perturbed(rng, pose[None], 0.03, 0.05)[0]
        result = sb.pose_optimization(rig, start, seen, graph=graph)
        assert result.is_usable and not result.inliers[bad].any()
        kept.append(result.inliers[~bad])
        found = result.keyframes.world_T_body
        assert np.abs(found[0, :3] - pose[:3]).max() < 0.02
        assert rotation_errors(found, pose[None])[0] < 5e-3
    assert np.concatenate(kept).mean() > 0.92  # 0.95 by definition of an inlier


def test_one_graph_gives_what_a_new_one_gives():
    """Bit by bit, also after a fuller frame and one with depths."""
    rng = np.random.default_rng(1)
    graph = sb.FrameGraph(STEREO)
    pose = np.asarray(SE3.exp(rng.normal(size=6)).storage)
    start = perturbed(rng, pose[None])[0]
    for count in (50, 600, 40):
        seen, _ = frame(rng, STEREO, pose, count, wrong=0.1)
        kept = sb.pose_optimization(STEREO, start, seen, graph=graph).keyframes.world_T_body
        fresh = sb.pose_optimization(STEREO, start, seen).keyframes.world_T_body
        np.testing.assert_allclose(kept, fresh, atol=1e-12)


@pytest.mark.parametrize("rig", [STEREO, FISHEYE], ids=["stereo", "two fisheyes"])
def test_native_rounds_are_those_of_the_parts(rig, monkeypatch):
    """Poses, inliers, chi2 of everybody and the number of rounds, with depths and a landmark behind."""
    rng = np.random.default_rng(21)
    for k in range(4):
        pose = np.asarray(SE3.exp(rng.normal(size=6)).storage)
        seen, _ = frame(rng, rig, pose, 150, wrong=0.2)
        depth = np.full(len(seen), np.nan)
        depth[::3] = [4.0 + 0.1 * k] * len(depth[::3])
        behind = np.asarray((SE3(pose) * SE3(rig[0].body_T_cam)).act(np.array([0.0, 0.0, -3.0])))
        points = np.concatenate([behind[None], seen.points[1:]])
        seen = dataclasses.replace(seen, points=points, depth=depth, depth_sigma=np.ones(len(seen)))
        start = perturbed(rng, pose[None], 0.03, 0.05)[0]
        options = sb.SolveOptions(rounds=4, method=("lm", "gn", "dogleg", "lm")[k], iterations=6)
        native = sb.pose_optimization(rig, start, seen, options)
        with monkeypatch.context() as patch:
            patch.setattr(sb.FrameGraph, "is_native", lambda *_: False)
            parts = sb.pose_optimization(rig, start, seen, options)
        np.testing.assert_allclose(
            native.keyframes.world_T_body, parts.keyframes.world_T_body, rtol=0, atol=1e-9
        )
        np.testing.assert_array_equal(native.inliers, parts.inliers)
        np.testing.assert_allclose(native.observation_chi2, parts.observation_chi2, rtol=1e-6, atol=1e-9)
        assert native.rounds == parts.rounds
        assert 0 < native.num_inliers < len(seen)


def test_who_was_an_outlier_comes_back():
    """From a far start one step leaves good matches outside; in the end they are inliers."""
    rng = np.random.default_rng(22)
    pose = np.asarray(SE3.exp(rng.normal(size=6)).storage)
    seen, _ = frame(rng, STEREO, pose, 200)
    start = perturbed(rng, pose[None], 0.03, 0.05)[0]
    options = sb.SolveOptions(device="cpu", iterations=1, rounds=1, kernel=None)
    early = sb.pose_optimization(STEREO, start, seen, options)
    late = sb.pose_optimization(STEREO, start, seen, options.with_changes(rounds=8))
    assert (late.inliers & ~early.inliers).any()
    assert late.inliers.mean() > 0.9
    assert np.isfinite(late.observation_chi2).all()


def test_pose_optimization_is_a_minimum_and_agrees_with_scipy():
    """Without robust kernel and outliers: the least-squares pose of scipy."""
    from scipy.optimize import least_squares

    rng = np.random.default_rng(2)
    pose = np.asarray(SE3.exp(rng.normal(size=6)).storage)
    seen, _ = frame(rng, STEREO, pose)
    options = sb.SolveOptions(
        rounds=1, kernel=None, confidence=1 - 1e-12, iterations=30, function_tolerance=1e-15
    )
    result = sb.pose_optimization(STEREO, pose, seen, options)

    def error(delta):
        local = CAMERA.in_camera((SE3(pose) * SE3.exp(delta)).storage, seen.points)
        pixel = np.column_stack([CAMERA.project(local), CAMERA.right_column(local)])
        return ((pixel - np.column_stack([seen.pixel, seen.right])) / seen.sigma[:, None]).ravel()

    best = least_squares(error, np.zeros(6), xtol=1e-15, ftol=1e-15, gtol=1e-15)
    assert result.summary.final_chi2 == pytest.approx(2.0 * best.cost, rel=1e-9)
    expected = np.asarray((SE3(pose) * SE3.exp(best.x)).storage)
    np.testing.assert_allclose(result.keyframes.world_T_body[0], expected, atol=1e-7)


def test_a_keyframe_of_a_map_and_its_refusals():
    """Ids are the map's; two landmarks are too few, and the pose stays."""
    rng = np.random.default_rng(3)
    pose = np.asarray(SE3.exp(rng.normal(size=6)).storage)
    seen, bad = frame(rng, STEREO, pose, wrong=0.2)
    world = sb.Map(STEREO)
    k = world.add_keyframe(0, perturbed(rng, pose[None])[0])
    landmarks = world.add_landmarks(seen.points)
    ids = world.add_observations(k, landmarks, seen.pixel, right=seen.right, sigma=seen.sigma)
    result = sb.keyframe_pose_optimization(world, k)
    assert result.is_usable and set(ids[bad]) <= set(result.rejected["chi2"])
    np.testing.assert_allclose(world.keyframes["world_T_body"][0, :3], pose[:3], atol=0.02)
    few = sb.FrameObservations.of(seen.points[:2], seen.pixel[:2])
    refused = sb.pose_optimization(STEREO, pose, few)
    assert not refused.is_usable and "2 landmarks" in refused.refused
    np.testing.assert_array_equal(refused.keyframes.world_T_body[0], pose)
    world.remove_observations(ids)
    nothing = sb.keyframe_pose_optimization(world, k)
    assert not nothing.is_usable and "0 landmarks are ahead" in nothing.refused
    with pytest.raises(OptionError, match=r"pixel has shape \(3, 2\), expected \(2, 2\)"):
        sb.FrameObservations.of(seen.points[:2], seen.pixel[:3])
    with pytest.raises(OptionError, match="world_T_body has shape"):
        sb.pose_optimization(STEREO, pose[:6], few)


def states_at(t):
    pose, velocity = poses_and_velocities(np.array([t]))
    return sb.FrameState(pose[0], velocity[0], GYRO_BIAS, ACC_BIAS)


def test_states_of_frames_in_a_row():
    """20 frames, each held by the last one's prior: poses, velocities and biases stay right."""
    rng = np.random.default_rng(4)
    imu = samples(2.0, 1000.0, GYRO_BIAS, ACC_BIAS)
    previous, prior, graph = states_at(0.0), None, None
    for k in range(1, 21):
        now = states_at(0.1 * k)
        seen, bad = frame(rng, STEREO, now.world_T_body, 60, wrong=0.2)
        if k == 10:
            seen = sb.FrameObservations.of(seen.points[:1], seen.pixel[:1], sigma=0.5)
            bad = bad[:1]
        part = imu.between(round((k - 1) * 1e8), round(k * 1e8))
        measured = sb.preintegrate(part, NOISE, previous.gyro_bias, previous.acc_bias)
        if k == 2:
            graph = sb.InertialFrameGraph(STEREO, True)
        result = sb.pose_inertial_optimization(STEREO, None, previous, measured, seen, prior, graph=graph)
        assert result.is_usable
        assert not result.inliers[bad].any()
        previous, prior = result.extra["state"], result.extra["prior"]
        np.testing.assert_allclose(previous.world_T_body[:3], now.world_T_body[:3], atol=0.01)
        np.testing.assert_allclose(previous.velocity, now.velocity, atol=0.05)
        values = np.linalg.eigvalsh(prior.information)
        assert values[0] > 0.0
    np.testing.assert_allclose(previous.gyro_bias, GYRO_BIAS, atol=2e-3)
    np.testing.assert_allclose(previous.acc_bias, ACC_BIAS, atol=0.05)


def test_measurements_integrated_with_other_biases():
    """Over a second, integrated without biases: prediction and state are as with the right ones."""
    imu = samples(1.0, 1000.0, GYRO_BIAS, ACC_BIAS)
    first, truth = states_at(0.0), states_at(1.0)
    seen, _ = frame(np.random.default_rng(6), STEREO, truth.world_T_body, 60)
    blind, known = sb.preintegrate(imu, NOISE), sb.preintegrate(imu, NOISE, GYRO_BIAS, ACC_BIAS)
    predicted = first.predicted(blind)
    np.testing.assert_allclose(predicted.world_T_body, first.predicted(known).world_T_body, atol=1e-12)
    np.testing.assert_allclose(predicted.velocity, truth.velocity, atol=1e-3)
    found = [
        sb.pose_inertial_optimization(STEREO, None, first, interval, seen) for interval in (blind, known)
    ]
    states = [result.extra["state"] for result in found]
    np.testing.assert_allclose(states[0].world_T_body, states[1].world_T_body, atol=1e-12)
    assert found[0].inliers.mean() > 0.85


def test_prior_of_a_frame_is_the_joint_minimum():
    """Two frames at once have the state that one after the other gives."""
    rng = np.random.default_rng(5)
    imu = samples(0.2, 1000.0, GYRO_BIAS, ACC_BIAS)
    first = states_at(0.0)
    options = sb.SolveOptions(
        rounds=1, kernel=None, confidence=1 - 1e-12, iterations=30, function_tolerance=1e-15
    )
    measured = [
        sb.preintegrate(imu.between(k * 10**8, (k + 1) * 10**8), NOISE, GYRO_BIAS, ACC_BIAS) for k in (0, 1)
    ]
    seen = [frame(rng, STEREO, states_at(0.1 * k).world_T_body, 60)[0] for k in (1, 2)]
    first_frame = sb.pose_inertial_optimization(STEREO, None, first, measured[0], seen[0], options=options)
    two = sb.pose_inertial_optimization(
        STEREO,
        None,
        first_frame.extra["state"],
        measured[1],
        seen[1],
        first_frame.extra["prior"],
        options=options,
    )
    world = sb.Map(STEREO)
    states = [first, first_frame.extra["state"], two.extra["state"]]
    k = world.add_keyframes(
        np.arange(3),
        *(
            np.stack([getattr(s, n) for s in states])
            for n in ("world_T_body", "velocity", "gyro_bias", "acc_bias")
        ),
    )
    world.keyframes["fixed"][0] = True
    for frame_id, part in zip(k[1:], seen, strict=True):
        ids = world.add_landmarks(part.points)
        world.add_observations(frame_id, ids, part.pixel, right=part.right, sigma=part.sigma)
    world.add_imu(k[:-1], k[1:], measured)
    s = sb.selection.select(world, k, inertial=k, points_fixed=True)
    sb.problems.bundle.bundle("joint", world, s, options, None, sb.options.Clock(options))
    joint = world.keyframes["world_T_body"][2]
    np.testing.assert_allclose(two.extra["state"].world_T_body, joint, atol=2e-6)
    np.testing.assert_allclose(two.extra["state"].velocity, world.keyframes["velocity"][2], atol=2e-5)


@pytest.mark.parametrize("rig", [STEREO, FISHEYE], ids=["stereo", "two fisheyes"])
def test_relocalization(rig):
    """From matches alone, 40 % of them wrong: the pose; from noise alone: a refusal."""
    pytest.importorskip("cv2")
    rng = np.random.default_rng(6)
    pose = np.asarray(SE3.exp(rng.normal(size=6)).storage)
    seen, bad = frame(rng, rig, pose, wrong=0.4)
    result = sb.relocalize(rig, seen)
    assert result.is_usable and not result.inliers[bad].any()
    assert np.abs(result.keyframes.world_T_body[0, :3] - pose[:3]).max() < 0.02
    nonsense = sb.FrameObservations.of(rng.normal(size=(40, 3)), rng.uniform(0.0, 500.0, (40, 2)))
    refused = sb.relocalize(rig, nonsense)
    assert not refused.is_usable and refused.refused
    assert not sb.relocalize(rig, sb.FrameObservations.of(np.zeros((0, 3)), np.zeros((0, 2)))).is_usable


def test_relocalization_with_wrong_matches_beside_the_camera():
    """Wrong points nearly in the camera's centre have pixels 10^5 px off: the other 90 % decide."""
    pytest.importorskip("cv2")
    for seed in range(6):
        rng = np.random.default_rng(seed)
        pose = np.asarray(SE3.exp(rng.normal(size=6)).storage)
        seen, _ = frame(rng, STEREO, pose, wrong=0.0)
        bad = np.arange(0, len(seen), 10)
        points = seen.points.copy()
        local = np.column_stack([rng.uniform(0.3, 0.9, (len(bad), 2)), np.full(len(bad), 0.004)])
        points[bad] = STEREO[0].in_world(pose, local)
        result = sb.relocalize(STEREO, dataclasses.replace(seen, points=points))
        good = np.setdiff1d(np.arange(len(seen)), bad)
        assert result.is_usable and result.inliers[good].mean() > 0.9 and not result.inliers[bad].any()
        assert np.abs(result.keyframes.world_T_body[0, :3] - pose[:3]).max() < 0.02
        rejected = np.sort(np.concatenate(list(result.rejected.values())))
        np.testing.assert_array_equal(rejected, np.flatnonzero(~result.inliers))


def test_sim3_between_keyframes():
    """A loop between maps of different scale, 30 % of the pairs wrong."""
    rng = np.random.default_rng(7)
    camera = sb.Camera.pinhole([0, 0, 0, 0, 0, 0, 1.0], 450.0, 450.0, 370.0, 240.0)
    truth = np.concatenate([SE3.exp(np.array([0.1, -0.2, 0.1, 0.5, 0.3, -0.2])).storage, [1.7]])
    two = rng.uniform([-1, -1, 2], [1, 1, 5], (80, 3))
    from graphopt.geometry import Sim3

    one = np.asarray(Sim3(truth).act(two))
    pixels = [camera.project(point) + 0.5 * rng.normal(size=(80, 2)) for point in (one, two)]
    bad = rng.random(80) < 0.3
    one[bad] += rng.normal(size=(bad.sum(), 3))
    result = sb.sim3_alignment(one, two, (camera, camera), *pixels, sigma=0.5)
    found = result.extra["first_S_second"]
    assert result.is_usable and not result.inliers[bad].any() and result.inliers[~bad].mean() > 0.85
    assert found[7] == pytest.approx(1.7, rel=5e-3)
    np.testing.assert_allclose(found[:3], truth[:3], atol=0.02)
    fixed = sb.sim3_alignment(one / 1.7, two, (camera, camera), *pixels, sigma=0.5, fix_scale=True)
    assert fixed.extra["first_S_second"][7] == 1.0 and fixed.is_usable
    refused = sb.sim3_alignment(
        rng.normal(size=(8, 3)), two[:8], (camera, camera), pixels[0][:8], pixels[1][:8]
    )
    assert not refused.is_usable
    assert np.linalg.eigvalsh(result.extra["information"])[0] > 0.0


@pytest.mark.parametrize("place", [np.inf, np.nan])
def test_landmarks_without_a_finite_place_take_no_part(place):
    """The pose is that without them, and they are named."""
    rng = np.random.default_rng(31)
    rig = sb.Rig(sb.Camera.pinhole([0, 0, 0, 0, 0, 0, 1.0], 400.0, 410.0, 320.0, 240.0, 0.1))
    points = rng.uniform([-2, -1, 3], [2, 1, 8], (60, 3))
    pixel = rig[0].project(points) + 0.5 * rng.normal(size=(60, 2))
    right = rig[0].right_column(points)
    start = [0.05, -0.03, 0.02, 0.01, 0.0, 0.0, 1.0]
    points[4:7, 1] = place
    known = np.setdiff1d(np.arange(60), [4, 5, 6])
    some = sb.FrameObservations.of(points[known], pixel[known], right=right[known])
    expected = sb.pose_optimization(rig, start, some)
    found = sb.pose_optimization(rig, start, sb.FrameObservations.of(points, pixel, right=right))
    np.testing.assert_allclose(found.keyframes.world_T_body, expected.keyframes.world_T_body, atol=1e-12)
    assert found.rejected["behind camera"].tolist() == [4, 5, 6]
    np.testing.assert_array_equal(found.inliers[known], expected.inliers)


def test_pixels_that_are_none_are_refused_by_row():
    """A pixel that is no number, and a sigma of zero."""
    rig = sb.Rig(sb.Camera.pinhole([0, 0, 0, 0, 0, 0, 1.0], 400.0, 410.0, 320.0, 240.0))
    points, pixel = np.full((5, 3), 4.0), np.full((5, 2), 100.0)
    start = [0.0, 0, 0, 0, 0, 0, 1.0]
    with pytest.raises(ValueError, match=r"row 2: .*sigma"):
        sb.pose_optimization(rig, start, sb.FrameObservations.of(points, pixel, sigma=[1, 1, 0, 1, 1]))
    pixel[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"row 3: pixel .*nan"):
        sb.pose_optimization(rig, start, sb.FrameObservations.of(points, pixel))
