"""Single frames and pairs of frames with wrong matches, landmarks nowhere, no motion and a wrong IMU.

What was rejected is said, and the answer is right; or the problem is refused with the reason.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from simulation import ACC_BIAS, CAMERA, GYRO_BIAS, NOISE, poses_and_velocities, samples

import slam_bridge as sb
from graphopt.errors import OptionError
from graphopt.geometry import SE3, Sim3

STEREO = sb.Rig(CAMERA)
MONO = sb.Camera.pinhole([0, 0, 0, 0, 0, 0, 1.0], 450.0, 450.0, 370.0, 240.0)
TRUTH = np.array([0.5, 0.3, -0.2, 0.0, 0.0, 0.0, 1.0, 1.7])
STILL = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0])


def pairs(rng, truth=TRUTH, count=80):
    """Points in two cameras, and their noisy pixels."""
    two = rng.uniform([-1, -1, 2], [1, 1, 5], (count, 3))
    one = np.asarray(Sim3(truth).act(two))
    return [one, two, *(MONO.project(points) + 0.5 * rng.normal(size=(count, 2)) for points in (one, two))]


def align(given, sigma=0.5, **options):
    one, two, first, second = given
    return sb.sim3_alignment(one, two, (MONO, MONO), first, second, sigma=sigma, **options)


WIDE = {
    "kb8": [190.0, 191.0, 255.0, 257.0, 0.003, 0.0007, -0.002, 0.0002],
    "double_sphere": [180.0, 181.0, 320.0, 241.0, -0.2, 0.55],
    "omni": [400.0, 401.0, 320.0, 241.0, 1.2, -0.1, 0.05, 0.001, -0.0005],
}


@pytest.mark.parametrize("model", WIDE)
def test_alignment_of_wide_images(model):
    """30 % wrong pairs, rays to the rim and beyond 90 degrees: right ones are found, with their errors."""
    camera = sb.Camera(np.eye(7)[6], model, np.array(WIDE[model]), resolution=(640, 512))
    squares = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        two = rng.normal(size=(3000, 3))
        two *= rng.uniform(2.0, 5.0, (3000, 1)) / np.linalg.norm(two, axis=1, keepdims=True)
        one = np.asarray(Sim3(TRUTH).act(two))
        both = camera.sees(one) & camera.sees(two)
        one, two = one[both][:150], two[both][:150]
        first, second = (camera.project(point) + 0.5 * rng.normal(size=(150, 2)) for point in (one, two))
        wrong = rng.random(150) < 0.3
        first[wrong] += 60.0
        result = sb.sim3_alignment(one, two, (camera, camera), first, second, sigma=0.5)
        assert result.is_usable and not result.inliers[wrong].any() and result.inliers[~wrong].mean() > 0.9
        assert not len(result.rejected["beside cameras"])
        apart = Sim3(TRUTH) * Sim3(result.extra["first_S_second"]).inverse()
        turn = 2.0 * np.asarray(apart.storage)[3:6]
        error = np.concatenate([turn, np.asarray(apart.storage)[:3], np.log(np.asarray(apart.storage)[7:])])
        squares.append(error @ result.extra["information"] @ error / 7)
    assert 0.4 < np.mean(squares) < 1.7
    assert np.degrees(np.arccos((two[:, 2] / np.linalg.norm(two, axis=1)).min())) > 80.0


def test_alignment_without_motion():
    """Cameras in one place do not show the scale, which is said; given, the identity is found."""
    given = pairs(np.random.default_rng(0), STILL)
    refused = align(given)
    assert not refused.is_usable and "log of scale" in refused.refused and "fix_scale" in refused.refused
    result = align(given, fix_scale=True)
    assert result.is_usable and result.inliers.mean() > 0.85
    np.testing.assert_allclose(result.extra["first_S_second"], STILL, atol=0.02)


def test_alignment_with_points_nowhere():
    """Behind a camera, at infinity, not a number, a pixel that is none: named; the rest gives the answer."""
    given = pairs(np.random.default_rng(1))
    given[0][:5, 2] *= -1.0
    given[1][5:8] = np.inf
    given[0][8], given[2][9] = np.nan, np.nan
    result = align(given)
    assert result.is_usable
    np.testing.assert_array_equal(result.rejected["beside cameras"], np.arange(10))
    assert result.extra["first_S_second"][7] == pytest.approx(1.7, rel=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_alignments_of_nothing_are_refused(seed):
    """Pairs that belong together by chance; the few that agree with something are no alignment."""
    rng = np.random.default_rng(seed)
    one, two, *pixels = pairs(rng, count=60)
    mixed = rng.permutation(60)
    result = align([one[mixed], two, pixels[0][mixed], pixels[1]])
    assert not result.is_usable and "pairs agree" in result.refused
    few = pairs(rng)
    few[0][4:] = rng.uniform([-1, -1, 2], [1, 1, 5], (76, 3))
    few[2][4:] = MONO.project(few[0][4:])
    assert not align(few).is_usable


@pytest.mark.parametrize("length", [0.0, 1.0])
@pytest.mark.parametrize("fix_scale", [False, True])
def test_points_on_a_line_are_refused(length, fix_scale):
    """They do not show the turn about it, nor anything at all in one place."""
    two = np.array([0.1, 0.2, 3.0]) + np.outer(np.linspace(0.0, length, 20), [1.0, 0.5, 0.2])
    one = np.asarray(Sim3(STILL).act(two))
    result = align([one, two, MONO.project(one), MONO.project(two)], fix_scale=fix_scale)
    assert not result.is_usable and "on a line or in one place" in result.refused


def test_numbers_that_make_no_sense_are_named():
    """A sigma of zero, a start that is none."""
    given = pairs(np.random.default_rng(2))
    with pytest.raises(OptionError, match=r"sigma of pair 0 is 0\.0 px"):
        align(given, sigma=0.0)
    with pytest.raises(OptionError, match=r"start is .*expected finite \(8,\)"):
        align(given, start=np.full(8, np.nan))


def frame(rng, pose, count=120, wrong=0.0):
    """Landmarks in a stereo image; which are wrong matches."""
    local = rng.uniform([-0.6, -0.6, 1.0], [0.6, 0.6, 2.0], (count, 3)) * rng.uniform(1.5, 5.0, (count, 1))
    points = np.asarray((SE3(pose) * SE3(CAMERA.body_T_cam)).act(local))
    pixel = CAMERA.project(local) + 0.5 * rng.normal(size=(count, 2))
    right = CAMERA.right_column(local) + 0.5 * rng.normal(size=count)
    bad = rng.random(count) < wrong
    pixel[bad] += rng.uniform(15.0, 100.0, (bad.sum(), 2)) * rng.choice([-1, 1], (bad.sum(), 2))
    return sb.FrameObservations.of(points, pixel, right=right, sigma=0.5), bad


def test_relocalization_with_landmarks_nowhere():
    """At infinity, not a number, behind the camera, and 30 % wrong matches: named; the pose is right."""
    pytest.importorskip("cv2")
    rng = np.random.default_rng(3)
    pose = np.asarray(SE3.exp(rng.normal(size=6)).storage)
    seen, bad = frame(rng, pose, wrong=0.3)
    points = seen.points.copy()
    points[:4], points[4:8] = np.inf, np.nan
    points[8:12] = np.asarray((SE3(pose) * SE3(CAMERA.body_T_cam)).act(np.array([0.0, 0.0, -3.0])))
    result = sb.relocalize(STEREO, dataclasses.replace(seen, points=points))
    assert result.is_usable and not result.inliers[bad].any() and not result.inliers[:12].any()
    assert set(range(12)) <= set(result.rejected["behind camera"].tolist())
    np.testing.assert_allclose(result.keyframes.world_T_body[0, :3], pose[:3], atol=0.02)
    for nothing in (np.full_like(points, np.inf), np.tile(points[50], (120, 1))):
        refused = sb.relocalize(STEREO, dataclasses.replace(seen, points=nothing))
        assert not refused.is_usable and "RANSAC found no pose" in refused.refused


def state_at(t):
    pose, velocity = poses_and_velocities(np.array([t]))
    return sb.FrameState(pose[0], velocity[0], GYRO_BIAS, ACC_BIAS)


def solved(seen, gyro=(0.0, 0.0, 0.0), acc=(0.0, 0.0, 0.0)):
    """A frame 0.1 s after a known one, its IMU off by a jump."""
    imu = samples(0.1, 1000.0, GYRO_BIAS, ACC_BIAS)
    wrong = sb.ImuSamples(imu.stamps, imu.gyro + gyro, imu.acc + acc)
    measured = sb.preintegrate(wrong, NOISE, GYRO_BIAS, ACC_BIAS)
    return sb.pose_inertial_optimization(STEREO, None, state_at(0.0), measured, seen)


JUMPS = {
    "push": {"acc": [30.0, 0.0, 0.0]},
    "impact": {"acc": [0.0, 300.0, 0.0]},
    "turn": {"gyro": [8.0, 0, 0]},
}


@pytest.mark.parametrize("jump", JUMPS)
def test_an_imu_that_contradicts_the_images_is_refused(jump):
    """30 % wrong matches and an IMU that jumps: said, with the pose that the images have."""
    truth = state_at(0.1)
    seen, bad = frame(np.random.default_rng(4), truth.world_T_body, 60, wrong=0.3)
    fine = solved(seen)
    assert fine.is_usable and not fine.inliers[bad].any() and "by_images" not in fine.extra
    result = solved(seen, **JUMPS[jump])
    assert not result.is_usable and "contradicts the images" in result.refused
    np.testing.assert_array_equal(result.rejected["keyframe without inliers"], [0])
    np.testing.assert_allclose(result.extra["by_images"][:3], truth.world_T_body[:3], atol=0.01)


def test_a_covered_camera_does_not_contradict_the_imu():
    """Nonsense, nothing, and landmarks nowhere: the IMU says where the frame is, as before."""
    truth, rng = state_at(0.1), np.random.default_rng(5)
    seen, _ = frame(rng, truth.world_T_body, 60)
    nonsense = dataclasses.replace(seen, pixel=rng.uniform(0.0, 480.0, (60, 2)))
    nowhere = dataclasses.replace(seen, points=np.full((60, 3), np.inf))
    for observed in (nonsense, nowhere, sb.FrameObservations.of(np.zeros((0, 3)), np.zeros((0, 2)))):
        result = solved(observed)
        assert result.is_usable and result.rejected["keyframe without inliers"].tolist() == [0]
        np.testing.assert_allclose(result.extra["state"].world_T_body, truth.world_T_body, atol=1e-3)
