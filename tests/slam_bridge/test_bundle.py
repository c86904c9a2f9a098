"""Bundle adjustment of maps: the truth is recovered, outliers named, gauges held, covariances right."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from simulation import (
    ACC_BIAS,
    CAMERA,
    GYRO_BIAS,
    NOISE,
    disturb,
    poses_and_velocities,
    rotation_errors,
    simulated_map,
)

import graphopt
import slam_bridge as sb
from graphopt.errors import OptionError
from graphopt.geometry import SE3, SO3
from slam_bridge.generator import generate_problem
from slam_bridge.selection import select

EXACT = sb.SolveOptions(iterations=50, rounds=5, confidence=0.999, function_tolerance=1e-10)


def aligned(world, poses):
    """Undo position and heading of the first keyframe: turn (SO3), its angles, shift."""
    found = world.keyframes["world_T_body"]
    turn = SE3(poses[0]).rotation * SE3(found[0]).rotation.inverse()
    angles = np.asarray(turn.log())
    return SO3.exp(np.array([0.0, 0.0, angles[2]])), angles, found[0, :3]


@pytest.mark.parametrize("stereo", [True, False], ids=["stereo", "mono"])
def test_full_inertial_recovers_the_truth(stereo):
    """From 5 cm and 20 mrad off, zero biases, nothing fixed: all but position and heading come out."""
    rng = np.random.default_rng(1)
    world, points = simulated_map(rng, stereo=stereo)
    poses, velocities = poses_and_velocities(0.25 * np.arange(13))
    disturb(world, rng)
    result = sb.full_inertial_ba(world, options=EXACT)
    assert result.is_usable and result.rounds > 1, result.report()
    yaw, angles, origin = aligned(world, poses)
    assert np.abs(angles[:2]).max() < 2e-4  # roll and pitch, from gravity
    moved = yaw.act(world.keyframes["world_T_body"][:, :3] - origin) + poses[0, :3]
    np.testing.assert_allclose(moved, poses[:, :3], atol=2e-3)
    np.testing.assert_allclose(yaw.act(world.keyframes["velocity"]), velocities, atol=2e-3)
    np.testing.assert_allclose(world.keyframes["gyro_bias"], np.tile(GYRO_BIAS, (13, 1)), atol=2e-5)
    np.testing.assert_allclose(world.keyframes["acc_bias"], np.tile(ACC_BIAS, (13, 1)), atol=2e-3)
    landmarks = yaw.act(world.landmarks["position"] - origin) + poses[0, :3]
    assert np.abs(landmarks - points).max() < 1e-2
    assert result.inliers.all() and not any(map(len, result.rejected.values()))
    assert result.chi2["EDGE_SE3_PRIOR"] < 1e-5  # the gauge's prior costs nothing


def test_local_inertial_holds_what_is_before():
    """Free keyframes arrive at the truth; older ones stay bit by bit, also the one before the window."""
    rng = np.random.default_rng(2)
    world, _ = simulated_map(rng)
    poses, velocities = poses_and_velocities(0.25 * np.arange(13))
    free, old = world.keyframes.ids[6:], world.keyframes.ids[:6]
    before = world.snapshot()
    disturb(world, rng, fixed=old)
    result = sb.local_inertial_ba(world, free, options=EXACT)
    assert result.is_usable and set(result.keyframes.ids) == set(free)
    for name in ("world_T_body", "velocity", "gyro_bias"):
        np.testing.assert_array_equal(world.keyframes[name][:6], before.keyframes[name][:6])
    np.testing.assert_allclose(world.keyframes["world_T_body"][:, :3], poses[:, :3], atol=1e-4)
    assert rotation_errors(world.keyframes["world_T_body"], poses).max() < 1e-4
    np.testing.assert_allclose(world.keyframes["velocity"], velocities, atol=1e-3)


@pytest.mark.parametrize("problem", [sb.local_ba, sb.global_ba])
def test_visual_problems_recover_the_truth(problem):
    """Stereo without IMU; the global one holds the first keyframe by itself."""
    rng = np.random.default_rng(3)
    world, points = simulated_map(rng)
    poses, _ = poses_and_velocities(0.25 * np.arange(13))
    first = world.keyframes.ids[:1]
    disturb(world, rng, fixed=first)
    arguments = (world, world.keyframes.ids[1:]) if problem is sb.local_ba else (world,)
    result = problem(*arguments, options=EXACT)
    assert result.is_usable
    np.testing.assert_allclose(world.keyframes["world_T_body"][:, :3], poses[:, :3], atol=1e-5)
    np.testing.assert_allclose(world.landmarks["position"], points, atol=1e-3)


def simulated_view(rng):
    """A map of one camera without IMU, disturbed but for its first keyframe."""
    world, _ = simulated_map(rng, stereo=False, pixels=0.5)
    world.remove_imu(world.imu.ids)
    disturb(world, rng, fixed=world.keyframes.ids[:1])
    return world


@pytest.mark.parametrize("problem", [sb.local_ba, sb.global_ba], ids=["local", "global"])
def test_a_map_of_one_camera_keeps_its_scale(problem):
    """Nothing measures it; the start's does not drift away, and chi2 is that of the optimization."""
    world = simulated_view(np.random.default_rng(5))
    camera = world.rig[0].body_T_cam

    def sizes():
        origin = np.asarray((SE3(world.keyframes["world_T_body"][0]) * SE3(camera)).translation)
        return np.median(np.linalg.norm(world.landmarks["position"] - origin, axis=1))

    before = sizes()
    frames = world.keyframes.ids
    arguments = (world, frames[1:], frames[:1]) if problem is sb.local_ba else (world,)
    result = problem(*arguments, options=EXACT.with_changes(kernel=None, rounds=1))
    assert result.is_usable
    assert sizes() == pytest.approx(before, rel=1e-12)
    again = problem(*arguments, options=EXACT.with_changes(kernel=None, rounds=1, iterations=0))
    inliers = result.inliers & again.inliers
    np.testing.assert_allclose(
        result.observation_chi2[inliers], again.observation_chi2[inliers], rtol=1e-6, atol=1e-8
    )


def test_rgbd_and_unrectified_rigs():
    """A fisheye camera with depth beside a second camera of another model: poses come out right."""
    rng = np.random.default_rng(4)
    fisheye = [190.0, 190, 255, 256, 0.003, 7e-4, -0.002, 2e-4]
    radtan = [450.0, 451, 370, 240, -0.1, 0.02, 1e-4, 1e-4, 0.0]
    one = sb.Camera([0.0, 0, 0, 0, 0, 0, 1.0], "kb8", fisheye, resolution=(512, 512))
    two = sb.Camera([0.1, 0, 0, 0, 0, 0, 1.0], "radtan", radtan, resolution=(752, 480))
    points = rng.uniform([-3, -3, 1.5], [3, 3, 5], (80, 3))
    poses = np.asarray(SE3.exp(0.2 * rng.normal(size=(5, 6))).storage)
    world = sb.Map([one, two])
    frames = world.add_keyframes(np.arange(5), poses)
    landmarks = world.add_landmarks(points)
    for frame, pose in zip(frames, poses, strict=True):
        for number, camera in enumerate((one, two)):
            local = camera.in_camera(pose, points)
            seen = camera.sees(local)
            depth = {"depth": local[seen, 2], "depth_sigma": 0.01} if number == 0 else {}
            world.add_observations(frame, landmarks[seen], camera.project(local[seen]), number, **depth)
    world.remove_unseen_landmarks(2)
    disturb(world, rng, fixed=frames[:1])
    result = sb.global_ba(world, fixed=frames[:1], options=EXACT)
    assert result.is_usable and result.inliers.all(), result.report()
    assert set(result.chi2) >= {"EDGE_VI_PIXEL_KB8", "EDGE_VI_PIXEL_RADTAN", "EDGE_VI_DEPTH"}
    np.testing.assert_allclose(world.keyframes["world_T_body"], poses, atol=1e-6)


def test_calibration_is_estimated():
    """Mounting, intrinsics and time offset come out as pixels were made with; the map's rig stays."""
    rng = np.random.default_rng(5)
    world, _ = simulated_map(rng, times=0.2 * np.arange(20), count=200, stereo=False)
    truth = world.rig[0]
    flow = rng.normal(scale=100.0, size=world.observations["flow"].shape)
    world.observations["flow"][:] = flow
    world.observations["pixel"][:] += 0.004 * flow  # stamps say t, pixels are of t + 4 ms
    wrong = np.asarray((SE3(truth.body_T_cam) * SE3.exp(np.array([0.01, -0.01, 0.01, 0.005, 0, 0]))).storage)
    off = truth.intrinsics + np.array([3.0, -2.0, 4.0, 1.0])
    world.rig = world.rig.with_camera(0, body_T_cam=wrong, intrinsics=off)
    result = sb.full_inertial_ba(
        world,
        options=EXACT.with_changes(iterations=100, kernel=None, confidence=0.999999, rounds=1),
        estimate=("extrinsics", "intrinsics", "time_offset"),
    )
    mounting, intrinsics, offset = result.extra["calibration"][0]
    assert offset == pytest.approx(0.004, abs=1e-5)
    np.testing.assert_allclose(intrinsics, truth.intrinsics, atol=0.1)
    np.testing.assert_allclose(mounting[:3], truth.body_T_cam[:3], atol=2e-3)
    assert rotation_errors(mounting[None], truth.body_T_cam[None])[0] < 1e-3
    with pytest.raises(OptionError, match="cannot estimate focus"):
        sb.full_inertial_ba(world, estimate=("focus",))
    stereo, _ = simulated_map(rng)
    with pytest.raises(OptionError, match="rectified pair"):
        sb.full_inertial_ba(stereo, estimate=("intrinsics",))


def test_wrong_matches_are_named():
    """30 % of the matches wrong: nearly all of them, and few others, are rejected; poses stay right."""
    rng = np.random.default_rng(6)
    world, _ = simulated_map(rng, pixels=0.5, count=200)
    poses, _ = poses_and_velocities(0.25 * np.arange(13))
    wrong = rng.random(len(world.observations)) < 0.3
    way = rng.uniform(15.0, 80.0, (wrong.sum(), 2)) * rng.choice([-1, 1], (wrong.sum(), 2))
    world.observations["pixel"][wrong] += way
    first = world.keyframes.ids[:1]
    disturb(world, rng, points=0.05, fixed=first)
    result = sb.full_inertial_ba(world, fixed=first, options=sb.SolveOptions(iterations=30, rounds=5))
    assert result.is_usable
    assert (~result.inliers)[wrong].mean() > 0.97
    assert (~result.inliers)[~wrong].mean() < 0.12  # 5 % by definition of the quantile, and lost landmarks
    assert set(result.rejected["chi2"]) <= set(world.observations.ids[~result.inliers])
    np.testing.assert_array_equal(world.observations["inlier"], result.inliers)
    np.testing.assert_allclose(world.keyframes["world_T_body"][:, :3], poses[:, :3], atol=0.02)


def test_landmarks_behind_and_far_away():
    """A landmark behind its camera and one at a million kilometres: named, and the others come out right."""
    rng = np.random.default_rng(7)
    world, points = simulated_map(rng)
    poses, _ = poses_and_velocities(0.25 * np.arange(13))
    behind, far = world.landmarks.ids[:2]
    first = world.keyframes.ids[:1]
    disturb(world, rng, points=0.05, fixed=first)
    rows = world.landmarks.rows([behind, far])
    centre = world.keyframes["world_T_body"][:, :3].mean(axis=0)
    world.landmarks["position"][rows[0]] = 2.0 * centre - points[rows[0]]
    world.landmarks["position"][rows[1]] *= 1e9
    result = sb.full_inertial_ba(world, fixed=first, options=EXACT)
    assert result.is_usable
    assert behind in result.rejected["landmark without inliers"]
    lost = np.isin(world.observations["landmark"], [behind])
    assert set(world.observations.ids[lost]) <= set(result.rejected["behind camera"])
    np.testing.assert_allclose(world.keyframes["world_T_body"][:, :3], poses[:, :3], atol=2e-3)


@pytest.mark.parametrize("problem", [sb.global_ba, sb.full_inertial_ba], ids=["visual", "inertial"])
def test_landmarks_at_the_end_of_the_world_turn_no_camera(problem):
    """Four at a million kilometres, ahead of their cameras: named, and the answer is that without them."""
    rng = np.random.default_rng(27)
    world, _ = simulated_map(rng, times=0.25 * np.arange(9), count=60, pixels=0.5)
    first, far = world.keyframes.ids[:1], world.landmarks.ids[5:9]
    disturb(world, rng, points=0.05, fixed=first)
    without = world.snapshot()
    without.remove_landmarks(far)
    centre = world.keyframes["world_T_body"][:, :3].mean(axis=0)
    rows = world.landmarks.rows(far)
    world.landmarks["position"][rows] += 1e9 * (world.landmarks["position"][rows] - centre + [0.5, 0.2, -0.3])
    before = world.landmarks["position"][rows].copy()
    options = EXACT.with_changes(confidence=0.9999)
    result, expected = (problem(world, fixed=first, options=options) for world in (world, without))
    assert result.is_usable and expected.inliers.all()
    np.testing.assert_array_equal(result.rejected["landmark without inliers"], far)
    np.testing.assert_array_equal(world.landmarks["position"][rows], before)
    np.testing.assert_allclose(
        world.keyframes["world_T_body"], without.keyframes["world_T_body"], atol=1e-6, rtol=0.0
    )


@pytest.mark.parametrize("problem", [sb.local_ba, sb.global_ba, sb.full_inertial_ba])
def test_a_hand_before_the_camera(problem):
    """Three keyframes of nonsense: named, and without IMU their poses stay where they were."""
    rng = np.random.default_rng(28)
    world, _ = simulated_map(rng, pixels=0.5)
    poses, _ = poses_and_velocities(0.25 * np.arange(13))
    first, covered = world.keyframes.ids[:1], world.keyframes.ids[5:8]
    seen = world.observations
    rows = np.isin(seen["keyframe"], covered)
    seen["pixel"][rows] = rng.uniform([0, 0], [740, 480], (rows.sum(), 2))
    seen["right"][rows] = seen["pixel"][rows, 0] - rng.uniform(1.0, 40.0, rows.sum())
    disturb(world, rng, 0.005, 0.02, 0.05, points=0.05, fixed=first)
    before = world.keyframes["world_T_body"].copy()
    arguments = (world.keyframes.ids[1:],) if problem is sb.local_ba else ()
    result = problem(world, *arguments, fixed=first, options=sb.SolveOptions(iterations=20, rounds=6))
    assert result.is_usable
    np.testing.assert_array_equal(result.rejected["keyframe without inliers"], covered)
    found = world.keyframes["world_T_body"]
    np.testing.assert_allclose(found[:, :3], poses[:, :3], atol=0.1)
    np.testing.assert_allclose(np.delete(found[:, :3] - poses[:, :3], [5, 6, 7], axis=0), 0.0, atol=0.03)
    if problem is not sb.full_inertial_ba:
        np.testing.assert_allclose(found[5:8], before[5:8], atol=1e-12)


@pytest.mark.parametrize("place", [np.inf, np.nan])
def test_landmarks_without_a_finite_place(place):
    """They take no part, are named, and stay what they are; poses are those of a map without them."""
    world, _ = simulated_map(np.random.default_rng(17), times=0.25 * np.arange(7), pixels=0.3)
    first, lost = world.keyframes.ids[:1], world.landmarks.ids[3:6]
    disturb(world, np.random.default_rng(18), points=0.02, fixed=first)
    world.landmarks["position"][3:6, 1] = place
    without = world.snapshot()
    without.remove_landmarks(lost)
    results = [sb.full_inertial_ba(world, fixed=first, options=EXACT) for world in (world, without)]
    assert results[0].is_usable
    assert set(lost) <= set(results[0].rejected["landmark without inliers"])
    np.testing.assert_array_equal(world.landmarks["position"][3:6, 1], place)
    np.testing.assert_allclose(
        world.keyframes["world_T_body"], without.keyframes["world_T_body"], atol=1e-6, rtol=0.0
    )


@pytest.mark.parametrize(
    ("table", "column", "message"),
    [
        ("keyframes", "world_T_body", "keyframe 3: world_T_body is .*nan.*finite"),
        ("keyframes", "velocity", "keyframe 3: velocity is .*nan"),
        ("observations", "pixel", "observation 3: pixel is .*nan"),
        ("imu", "measurement", "IMU measurement 3: imu_measurement is .*nan"),
    ],
)
def test_numbers_that_are_none_are_refused_by_name(table, column, message):
    """Columns may be written by hand; the map stays as it is."""
    world, _ = simulated_map(np.random.default_rng(19), times=0.25 * np.arange(6), count=30)
    world.tables[table][column][3, 1] = np.nan
    before = world.landmarks["position"].copy()
    with pytest.raises(sb.MapError, match=message):
        sb.full_inertial_ba(world, options=EXACT)
    np.testing.assert_array_equal(world.landmarks["position"], before)
    world, _ = simulated_map(np.random.default_rng(19), times=0.25 * np.arange(6), count=30)
    world.keyframes["world_T_body"][2, 3:] *= 3.0
    with pytest.raises(sb.MapError, match=r"keyframe 2: .*unit quaternion"):
        sb.local_ba(world, world.keyframes.ids[1:4])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stereo", [True, False], ids=["stereo", "mono"])
def test_landmarks_that_go_astray_are_placed_anew(stereo, seed):
    """From 12 m off some end beside a camera: rays say where they are.

    What no rays meet in, and what starts behind all its cameras, is named and stays where it was.
    """
    rng = np.random.default_rng(40 + seed)
    world, points = simulated_map(rng, stereo=stereo, pixels=0.5)
    poses, _ = poses_and_velocities(0.25 * np.arange(13))
    first, frames = world.keyframes.ids[:2], world.keyframes
    nothing = world.add_landmarks([points[0]])[0]
    for k in range(4, 9):  # a track that jumps from corner to corner
        pixel = rng.uniform([100, 100], [600, 400])
        world.add_observations(frames.ids[k], nothing, pixel, sigma=0.5)
    disturb(world, rng, points=0.05, fixed=first)
    astray = rng.random(len(points)) < 0.3
    world.landmarks["position"][:-1][astray] += 12.0 * rng.normal(size=(astray.sum(), 3))
    before = world.landmarks["position"].copy()
    ahead = select(world, frames.ids, (), inertial=frames.ids).holds()
    known = np.isin(world.landmarks.ids, world.observations["landmark"][ahead])[:-1]
    options = sb.SolveOptions(iterations=10, rounds=6, confidence=0.999, device="cpu")
    once = sb.full_inertial_ba(world.snapshot(), fixed=first, options=options.with_changes(rounds=1))
    result = sb.full_inertial_ba(world, fixed=first, options=options)
    assert result.is_usable and not len(once.extra["placed anew"])
    placed, lost = (
        np.isin(world.landmarks.ids, ids)
        for ids in (result.extra["placed anew"], result.rejected["landmark without inliers"])
    )
    assert placed.sum() > 3 and not placed[-1] and not placed[:-1][~known].any()
    assert (lost[:-1] & known).sum() < 0.5 * len(once.rejected["landmark without inliers"])
    assert np.count_nonzero(result.inliers[world.observations["landmark"] == nothing]) <= 2
    np.testing.assert_array_equal(world.landmarks["position"][lost], before[lost])
    full = sb.full_inertial_ba(world, fixed=first, options=options.with_changes(iterations=40))
    assert np.isin(world.landmarks.ids[:-1][known], full.rejected["landmark without inliers"]).sum() <= 1
    errors = np.linalg.norm(world.landmarks["position"][:-1] - points, axis=1)
    assert np.percentile(errors[known], 90) < 0.25
    np.testing.assert_allclose(frames["world_T_body"][:, :3], poses[:, :3], atol=0.03)


def test_a_dropped_camera_and_an_imu_jump():
    """Keyframes without images are carried by the IMU; one that jumps by 30 m/s^2 is rejected."""
    rng = np.random.default_rng(8)
    world, _ = simulated_map(rng, pixels=0.5)
    poses, _ = poses_and_velocities(0.25 * np.arange(13))
    dropped = world.keyframes.ids[5:7]
    gone = np.isin(world.observations["keyframe"], dropped)
    world.remove_observations(world.observations.ids[gone])
    bad = int(world.imu.ids[9])
    good = world.preintegrated[bad].samples
    jump = sb.ImuSamples(good.stamps, good.gyro, good.acc + np.array([30.0, 0.0, 0.0]))
    world.set_imu([bad], [sb.preintegrate(jump, NOISE)])
    first = world.keyframes.ids[:1]
    disturb(world, rng, fixed=first)
    result = sb.full_inertial_ba(world, fixed=first, options=sb.SolveOptions(iterations=40, rounds=5))
    assert result.is_usable
    np.testing.assert_array_equal(result.rejected["imu"], [bad])
    np.testing.assert_array_equal(result.rejected["keyframe without inliers"], dropped)
    np.testing.assert_allclose(world.keyframes["world_T_body"][:, :3], poses[:, :3], atol=0.03)


def test_the_last_imu_measurement_jumps():
    """Nothing knows the last keyframe's velocity and biases any more: it has the covariance of its pose."""
    world, _ = simulated_map(np.random.default_rng(8), times=0.25 * np.arange(6), pixels=0.5)
    bad, ids = int(world.imu.ids[-1]), world.keyframes.ids
    good = world.preintegrated[bad].samples
    jump = sb.ImuSamples(good.stamps, good.gyro, good.acc + np.array([30.0, 0.0, 0.0]))
    world.set_imu([bad], [sb.preintegrate(jump, NOISE)])
    result = sb.local_inertial_ba(world, ids[-1:], options=sb.SolveOptions(iterations=40, rounds=5))
    np.testing.assert_array_equal(result.rejected["imu"], [bad])
    found = result.covariance(ids[-1:], result.landmarks[:1])
    assert found["keyframe", int(ids[-1])].shape == (6, 6)
    assert all((np.linalg.eigvalsh(block) > 0.0).all() for block in found.values())


def test_zero_motion_stays_usable():
    """A camera that stands still: states stay where they are, nothing is rejected."""
    rng = np.random.default_rng(9)
    world, _ = simulated_map(rng, times=0.25 * np.arange(4), count=100)
    still = sb.Map(world.rig)
    pose = world.keyframes["world_T_body"][0]
    stamps = np.arange(6) * 250_000_000
    frames = still.add_keyframes(stamps, np.tile(pose, (6, 1)), np.zeros((6, 3)))
    rows = world.observations["keyframe"] == world.keyframes.ids[0]
    seen = world.landmarks.rows(world.observations["landmark"][rows])
    landmarks = still.add_landmarks(world.landmarks["position"])
    for frame in frames:
        pixel, right = world.observations["pixel"][rows], world.observations["right"][rows]
        still.add_observations(
            frame, landmarks[seen], pixel + 0.1 * rng.normal(size=pixel.shape), right=right
        )
    t = np.arange(0.0, 1.26, 0.005)
    acc = np.tile(SE3(pose).rotation.inverse().act(np.array([0.0, 0.0, 9.81])), (len(t), 1))
    imu = sb.ImuSamples.from_seconds(t, np.zeros((len(t), 3)), acc)
    still.add_imu(frames[:-1], frames[1:], sb.preintegrate_intervals(imu, stamps, sb.ImuNoise()))
    result = sb.full_inertial_ba(still)
    assert result.is_usable and result.inliers.mean() > 0.9
    np.testing.assert_allclose(still.keyframes["world_T_body"][:, :3], np.tile(pose[:3], (6, 1)), atol=0.01)
    np.testing.assert_allclose(still.keyframes["velocity"], 0.0, atol=0.01)


def test_window_keeps_its_graph_while_the_structure_stays():
    """Other values use the same graph, a keyframe more builds a new one; results are those of a fresh one."""
    rng = np.random.default_rng(10)
    world, _ = simulated_map(rng, pixels=0.5)
    window = sb.Window()
    free = world.keyframes.ids[4:10]
    for seed in range(3):
        copy = world.snapshot()
        disturb(copy, np.random.default_rng(seed), 0.003, 0.02, 0.02, fixed=world.keyframes.ids[:4])
        again = copy.snapshot()
        result = sb.local_inertial_ba(copy, free, window=window)
        fresh = sb.local_inertial_ba(again, free)
        np.testing.assert_array_equal(result.keyframes.world_T_body, fresh.keyframes.world_T_body)
    assert window.num_built == 1
    sb.local_inertial_ba(world.snapshot(), world.keyframes.ids[4:11], window=window)
    assert window.num_built == 2


def test_windows_that_move_on_leave_nothing_behind():
    """60 windows of changing structure: one graph is alive at a time, the map's memory stays."""
    import gc
    from weakref import WeakSet

    rng = np.random.default_rng(16)
    world, _ = simulated_map(rng, times=0.25 * np.arange(9), count=40, pixels=0.5)
    window, options = sb.Window(), sb.SolveOptions(iterations=2, rounds=1, device="cpu", update=False)

    def graphs():
        gc.collect()
        return [object_ for object_ in gc.get_objects() if type(object_) is graphopt.Graph]

    sb.local_inertial_ba(world, world.keyframes.ids[1:4], window=window, options=options)
    start, before = WeakSet(graphs()), world.nbytes  # with the map's indices
    for k in range(60):
        first = 1 + k % 5
        sb.local_inertial_ba(world, world.keyframes.ids[first : first + 4], window=window, options=options)
    assert window.num_built > 50
    assert sum(graph not in start for graph in graphs()) == 1
    assert world.nbytes == before


def test_the_answer_is_a_minimum():
    """No step of Gauss-Newton lowers chi2 at the answer, of the same observations."""
    rng = np.random.default_rng(11)
    world, _ = simulated_map(rng, pixels=1.0)
    disturb(world, rng)
    options = EXACT.with_changes(function_tolerance=1e-14, rounds=8, iterations=100, confidence=0.9999)
    found = sb.full_inertial_ba(world, options=options)
    world.remove_observations(found.observations[~found.inliers])
    result = sb.full_inertial_ba(world, options=options.with_changes(rounds=1))
    newton = options.with_changes(method="gn", iterations=3, rounds=1)
    again = sb.full_inertial_ba(world, options=newton)
    assert again.summary.initial_chi2 <= result.summary.final_chi2 * (1.0 + 1e-6)
    assert again.summary.final_chi2 == pytest.approx(again.summary.initial_chi2, rel=1e-6)


def test_gauge_has_four_directions():
    """H of a free visual-inertial problem has exactly four directions without curvature."""
    from slam_bridge.dense import dense_system

    world, _ = simulated_map(np.random.default_rng(12), times=0.25 * np.arange(5), count=40)
    ids = world.keyframes.ids
    graph = sb.Window(hold_gauge=False).load(select(world, ids, inertial=ids), sb.SolveOptions(kernel=None))
    h, _, places = dense_system(graph)
    size = np.sqrt(np.diag(h))
    scaled = h / np.outer(size, size)
    values = np.linalg.eigvalsh(scaled)
    assert (np.abs(values[:4]) < 1e-9).all() and values[4] > 1e-7
    move = np.zeros((len(h), 4))  # the same motion of the whole: along x, y, z, about the vertical
    for vertex, rows in places.items():
        number, part = divmod(vertex, 4)
        if vertex >= 4 * len(ids):
            point = world.landmarks["position"][vertex - 4 * len(ids)]
            move[rows, :3], move[rows, 3] = np.eye(3), np.cross([0, 0, 1.0], point)
        elif part == 0:
            pose = world.keyframes["world_T_body"][number]
            back = SE3(pose).rotation.inverse().to_matrix()
            move[rows.start : rows.start + 3, :3] = back
            move[rows.start : rows.start + 3, 3] = back @ np.cross([0, 0, 1.0], pose[:3])
            move[rows.start + 3 : rows.stop, 3] = 0.5 * back @ [0.0, 0.0, 1.0]
        elif part == 1:
            move[rows, 3] = np.cross([0, 0, 1.0], world.keyframes["velocity"][number])
    assert np.abs(h @ move).max() < 1e-6 * np.abs(h).max()


def test_covariance_is_the_inverse_of_the_information():
    """Blocks of inv(H) by dense algebra, for keyframes with states and landmarks."""
    from slam_bridge.dense import dense_system

    world, _ = simulated_map(np.random.default_rng(13), times=0.25 * np.arange(5), count=40, pixels=0.5)
    ids = world.keyframes.ids
    result = sb.full_inertial_ba(world, fixed=ids[:1], options=EXACT.with_changes(confidence=0.999999))
    found = result.covariance(ids[2:4], result.landmarks[:1])
    s = select(world, ids[1:], ids[:1], inertial=ids)
    h, _, places = dense_system(sb.Window().load(s, EXACT.with_changes(kernel=None)))
    inverse = np.linalg.inv(h)
    rows = np.concatenate([np.arange(len(h))[places[4 * 2 + part]] for part in range(4)])
    expected = inverse[np.ix_(rows, rows)]
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    np.testing.assert_allclose(found["keyframe", int(ids[2])] / scale, expected / scale, atol=1e-5)
    point = places[4 * len(ids)]
    key = ("landmark", int(result.landmarks[0]))
    np.testing.assert_allclose(found[key], inverse[point, point], rtol=1e-4, atol=1e-12)
    with pytest.raises(OptionError, match="took no part"):
        result.covariance([999])


def test_covariance_without_landmarks_that_lost_their_inliers():
    """Landmarks whose matches are all wrong, or are one pixel, change no covariance; theirs is refused."""
    world, _ = simulated_map(np.random.default_rng(14), times=0.25 * np.arange(6), count=60, pixels=0.3)
    ids, seen = world.keyframes.ids, world.observations
    options = EXACT.with_changes(confidence=0.9999)
    known = sb.full_inertial_ba(world.snapshot(), fixed=ids[:1], options=options)
    expected = known.covariance(ids[2:4])
    mounting = SE3(world.rig[0].body_T_cam)
    behind = SE3(world.keyframes["world_T_body"][2]) * mounting
    lost, once = world.add_landmarks([np.asarray(behind.act(np.array([0.0, 0.0, -8.0]))), [1.2, 1.9, 1.1]])
    place = seen["pixel"][seen["keyframe"] == ids[3]][0]
    for k in range(1, 4):
        world.add_observations(ids[k], lost, [world.rig[0].intrinsics[2:4]])
    world.add_observations(ids[3], once, [place + 5.0])
    result = sb.full_inertial_ba(world, fixed=ids[:1], options=options.with_changes(update=False))
    assert lost in result.rejected["landmark without inliers"]
    found = result.covariance(ids[2:4])
    for key, block in expected.items():
        scale = np.sqrt(np.outer(np.diag(block), np.diag(block)))
        np.testing.assert_allclose(found[key] / scale, block / scale, atol=0.02)
    for landmark in (lost, once):
        with pytest.raises(OptionError, match=f"landmark {landmark} has no covariance.*inliers"):
            result.covariance(landmarks=[landmark])


def test_time_limit_stop_flag_and_update():
    """An early end keeps the best estimate; without update the map stays bit by bit."""
    rng = np.random.default_rng(14)
    world, _ = simulated_map(rng)
    disturb(world, rng)
    before = world.snapshot()
    result = sb.full_inertial_ba(world, options=EXACT.with_changes(update=False))
    assert result.is_usable
    np.testing.assert_array_equal(world.keyframes["world_T_body"], before.keyframes["world_T_body"])
    np.testing.assert_array_equal(world.landmarks["position"], before.landmarks["position"])
    flag = threading.Event()
    flag.set()
    stopped = sb.full_inertial_ba(world, options=EXACT.with_changes(stop=flag))
    assert stopped.summary.termination is graphopt.TerminationType.USER_STOP
    short = sb.full_inertial_ba(world, options=EXACT.with_changes(time_limit=1e-6))
    assert short.summary.termination is graphopt.TerminationType.TIME_LIMIT and short.rounds == 1
    for early in (stopped, short):  # not a step: nothing to write, nothing judged
        assert not early.is_usable and "before the first step" in early.report()
    for name, table in before.tables.items():
        for column, values in table.arrays().items():
            np.testing.assert_array_equal(world.tables[name].arrays()[column], values)


class _StopsAfter:
    """A flag that is set once it was asked so often."""

    def __init__(self, times):
        self.left = times

    def is_set(self):
        self.left -= 1
        return self.left < 0


def test_what_was_reached_when_the_flag_was_set_is_written():
    """As after a time limit: the estimate of the last step is the result, and the map has it."""
    ended = 0
    for times in range(2, 40, 3):
        rng = np.random.default_rng(14)
        world, _ = simulated_map(rng, pixels=0.5)
        disturb(world, rng)
        result = sb.full_inertial_ba(world, options=EXACT.with_changes(stop=_StopsAfter(times)))
        early = result.summary.termination is graphopt.TerminationType.USER_STOP
        if early and (result.rounds > 1 or result.summary.iterations):
            ended += 1
            assert result.is_usable, result.report()
            np.testing.assert_array_equal(world.keyframes["world_T_body"], result.keyframes.world_T_body)
    assert ended


def test_misuse_is_named():
    """Options and problems that make no sense are refused with the reason."""
    world, _ = simulated_map(np.random.default_rng(15))
    with pytest.raises(OptionError, match=r"SolveOptions\.confidence is 1\.5"):
        sb.SolveOptions(confidence=1.5)
    with pytest.raises(OptionError, match="method is 'newton'"):
        sb.SolveOptions(method="newton")
    bare = sb.Map()
    frames = bare.add_keyframes(np.arange(2), np.tile([0, 0, 0, 0, 0, 0, 1.0], (2, 1)), fixed=True)
    with pytest.raises(OptionError, match="nothing to optimize"):
        sb.local_ba(bare, frames)
    with pytest.raises(sb.MapError, match="no keyframe 99"):
        sb.local_inertial_ba(world, [99])


def test_observations_with_right_column_and_depth():
    """Four numbers of one observation are judged together, here and for single frames."""
    rng = np.random.default_rng(31)
    world, _ = simulated_map(rng, 0.25 * np.arange(6), 60, pixels=0.5)
    seen = world.observations
    rows = world.keyframes.rows(seen["keyframe"])
    points = world.landmarks["position"][world.landmarks.rows(seen["landmark"])]
    seen["depth"][:] = CAMERA.in_camera(world.keyframes["world_T_body"][rows], points)[:, 2]
    seen["depth_sigma"][:] = 0.05
    seen["depth"][7] += 2.0
    result = sb.global_ba(world, options=sb.SolveOptions(device="cpu", confidence=0.999, update=False))
    assert result.is_usable and not result.inliers[7] and result.inliers.mean() > 0.97
    frame = sb.keyframe_pose_optimization(world, int(seen["keyframe"][7]))
    assert not frame.inliers[list(frame.observations).index(seen.ids[7])]


def test_gauss_newton_holds_what_nothing_measures():
    """Landmarks that rounds leave with a pixel or none, a lone keyframe: the answer of the damped method."""
    sizes = {"keyframes": 20, "landmarks": 300, "observations": 1500}
    problem = generate_problem("V102", **sizes, sensor="euroc", mismatches=0.06, seed=5).map
    problem.observations["right"][::2] = np.nan
    lonely = problem.add_landmarks([[0.0, 0.0, 1.0]])
    problem.add_observations(problem.keyframes.ids[3], lonely, [[300.0, 200.0]])
    problem.add_keyframes([10**18], problem.keyframes["world_T_body"][-1])
    window, found = sb.Window(), []
    for method in ("lm", "gn", "lm"):
        world = problem.snapshot()
        options = sb.SolveOptions(device="cpu", method=method, iterations=30, rounds=4)
        result = sb.full_inertial_ba(world, options=options, window=window)
        assert result.is_usable, f"{method}: {result.report()}"
        found.append((result.summary.final_chi2, world.keyframes["world_T_body"].copy(), result.inliers))
    assert window.num_built == 1
    for chi2, poses, inliers in found[1:]:
        assert chi2 == pytest.approx(found[0][0], rel=1e-4)
        np.testing.assert_allclose(poses, found[0][1], atol=2e-4)
        assert np.mean(inliers != found[0][2]) < 5e-3
