"""The back end for those who have a front end: poses from tracks and IMU, in the client's own numbers."""

import sys

import numpy as np
import pytest
import slam_backend

import slam_bridge as sb
from graphopt.errors import OptionError
from graphopt.geometry import SE3, SO3

IDENTITY = np.array([0.0, 0, 0, 0, 0, 0, 1])


@pytest.mark.parametrize("seed", [0, 3, 8])
def test_a_back_end_maps_a_sequence(seed, capsys, monkeypatch):
    """The example: from IMU and pixels with mismatches to centimetres, and the loop is taken."""
    monkeypatch.setattr(sys, "argv", ["slam_backend.py", "--seed", str(seed), "--keyframes", "60"])
    slam_backend.main()
    loop, full, errors = capsys.readouterr().out.strip().splitlines()
    assert loop.startswith("essential_graph_optimization: 59 keyframes") and "rejected" not in loop
    assert full.startswith("full_inertial_ba: 60 keyframes")
    assert float(errors.split()[2]) < 0.05


def scene(count=12, seed=0):
    """A pinhole camera that moves along x and looks at 200 points; poses (n, 7), tracks, pixels, depths."""
    rng = np.random.default_rng(seed)
    camera = sb.Camera.pinhole(IDENTITY, 400.0, 400.0, 320.0, 240.0, baseline=0.2)
    points = rng.uniform([-3, -2, 4], [8, 2, 9], (200, 3))
    poses = np.tile(IDENTITY, (count, 1))
    poses[:, 0] = 0.3 * np.arange(count)
    poses[:, 1] = 0.05 * np.sin(np.arange(count))
    frames = []
    for pose in poses:
        local = points - pose[:3]
        pixel = 400.0 * local[:, :2] / local[:, 2:] + [320.0, 240.0]
        rows = np.flatnonzero((pixel > 0).all(axis=1) & (pixel < [640, 480]).all(axis=1))
        noise = 0.3 * rng.standard_normal((len(rows), 2))
        frames.append((1000 + rows, pixel[rows] + noise, local[rows, 2]))
    return camera, poses, frames


def matrix(pose):
    return np.asarray(SE3(pose).to_matrix())


@pytest.mark.parametrize("kind", ["stereo", "depth", "mono"])
def test_poses_come_from_tracks_alone(kind):
    """The first pose is given (of one camera four), the others follow; within 1 cm after `finish`."""
    camera, poses, frames = scene()
    backend = sb.Backend(camera, sigma=0.3, device="cpu")
    for number, (tracks, pixel, z) in enumerate(frames):
        extra = {}
        if kind == "stereo":
            extra["right"] = pixel[:, 0] - 400.0 * 0.2 / z
        if kind == "depth":
            extra |= {"depth": z + 0.005 * np.sin(tracks), "depth_sigma": 0.005}
        known = number < (4 if kind == "mono" else 1)
        given = dict(zip(tracks.tolist(), pixel, strict=True)) if number % 2 else (tracks, pixel)
        pose = matrix(poses[number]) if known else None
        assert backend.add_frame(10**9 + number * 10**8, given, pose, **extra) == number
        if number > 4:
            assert backend.local().is_usable
    backend.finish()
    found = np.stack([backend.pose(number) for number in range(len(poses))])
    assert found.shape == (12, 4, 4)
    np.testing.assert_allclose(found[:, :3, 3], poses[:, :3], atol=0.05 if kind == "mono" else 0.01)


def test_one_camera_and_an_imu_start_from_poses_of_any_unit():
    """A front end's first 21 poses, 0.37 units a metre and gravity unknown; the rest follows in metres."""
    rng, tilt, base = np.random.default_rng(5), 0.4, SO3(np.array([-0.5, 0.5, -0.5, 0.5]))
    mounting = np.concatenate([np.zeros(3), np.asarray(SO3.exp(np.array([-tilt, 0.0, 0.0])).storage)])
    camera = sb.Camera.pinhole(mounting, 400.0, 400.0, 320.0, 240.0)
    points = rng.uniform([-6, -6, -1], [6, 6, 2.5], (600, 3))

    def pose(t):
        turn = SO3.exp(np.array([0, 0, 0.4 * t])) * base * SO3.exp(np.array([tilt, 0.2 * np.sin(3 * t), 0]))
        way = [2 * np.cos(0.4 * t) + 0.3 * np.sin(3 * t), 2 * np.sin(0.4 * t), 0.3 * np.sin(2 * t)]
        return np.concatenate([way, np.asarray(turn.storage)])

    def sample(t, h=1e-3):
        before, now, after = pose(t - h), pose(t), pose(t + h)
        force = (before[:3] - 2 * now[:3] + after[:3]) / h**2 + [0.0, 0.0, 9.81]
        turn = (SO3(before[3:]).inverse() * SO3(after[3:])).log()
        return np.asarray(turn) / (2 * h), np.asarray(SO3(now[3:]).inverse().act(force))

    backend, truth = sb.Backend(camera, sb.ImuNoise()), [pose(0.2 * k) for k in range(45)]
    for k, there in enumerate(truth):
        for tick in range(40 * k - 38 if k else 0, 40 * k + 2):
            backend.add_imu(5_000_000 * tick, *sample(tick / 200))
        local = camera.in_camera(there, points)
        pixel = 400.0 * local[:, :2] / local[:, 2:] + [320.0, 240.0]
        rows = np.flatnonzero(
            (local[:, 2] > 0.5) & (pixel > 0).all(axis=1) & (pixel < [640, 480]).all(axis=1)
        )
        known = np.array((SE3(truth[0]).inverse() * SE3(there)).storage)
        known[:3] *= 0.37
        tracks = rows, pixel[rows] + 0.3 * rng.standard_normal((len(rows), 2))
        backend.add_frame(200_000_000 * k, tracks, known if k <= 20 else None)
        if k == 20:
            assert sb.inertial_initialization(backend.map).is_usable
    assert backend.finish().is_usable
    found = np.stack([backend.pose(k)[:3] for k in range(45)])
    off = found - found.mean(axis=0), np.stack(truth)[:, :3] - np.mean(truth, axis=0)[:3]
    lengths = [np.linalg.norm(one) for one in off]
    assert abs(lengths[0] / lengths[1] - 1.0) < 0.01
    np.testing.assert_allclose(found[:, 2] - found[0, 2], [one[2] - truth[0][2] for one in truth], atol=0.01)


def test_poses_are_given_back_as_they_came_and_callbacks_hear_of_them():
    """(7,) here; the callback has the new poses of frames that moved, and may ask for more."""
    camera, poses, frames = scene(6)
    backend, heard = sb.Backend(camera, device="cpu"), []
    backend.on_moved(lambda moved: heard.append({frame: backend.pose(frame) for frame in moved}))
    for number, (tracks, pixel, z) in enumerate(frames):
        off = poses[number] + [0.02 * (number > 0), 0, 0, 0, 0, 0, 0]
        backend.add_frame(number + 1, (tracks, pixel), off, right=pixel[:, 0] - 80.0 / z)
    backend.local()
    assert heard[-1].keys() == {1, 2, 3, 4, 5} and heard[-1][3].shape == (7,)
    np.testing.assert_allclose(heard[-1][3][:3], poses[3, :3], atol=0.01)
    loop = backend.close_loop(0, 5, poses[5])
    assert loop.is_usable and not len(loop.rejected["loop"])


def test_a_lag_keeps_the_map_small():
    """Old frames leave a prior; the last poses stay within 2 cm, landmarks and tracks do not grow."""
    camera, poses, frames = scene(25)
    backend = sb.Backend(camera, sigma=0.3, device="cpu", lag=6, window=4)
    for number, (tracks, pixel, z) in enumerate(frames):
        pose = poses[0] if number == 0 else None
        backend.add_frame(number + 1, (tracks, pixel), pose, right=pixel[:, 0] - 80.0 / z)
        if number > 2:
            backend.local()
    assert len(backend.map.keyframes) == 6 and len(backend.map.priors) == 1
    np.testing.assert_allclose(backend.pose(24)[:3], poses[24, :3], atol=0.02)
    with pytest.raises(sb.MapError, match="there is no keyframe 3"):
        backend.pose(3)


def test_what_does_not_fit_is_refused():
    """Each with what was expected; the map stays as it was."""
    camera, poses, frames = scene(3)
    tracks, pixel, z = frames[0]
    backend = sb.Backend(camera, device="cpu")
    backend.add_frame(5, (tracks, pixel), poses[0], right=pixel[:, 0] - 80.0 / z)
    size = len(backend.map.keyframes), len(backend.map.observations)
    for error, match, call in (
        (sb.MapError, "follows 5 ns, must ascend", lambda: backend.add_frame(5, (tracks, pixel), poses[1])),
        (sb.MapError, "a track is named twice", lambda: backend.add_frame(6, ([1, 1], np.zeros((2, 2))))),
        (sb.MapError, "right has shape", lambda: backend.add_frame(6, (tracks, pixel), right=[1.0])),
        (sb.MapError, r"expected \(4, 4\), or \(7,\)", lambda: backend.add_frame(6, (tracks, pixel), [0.0])),
        (sb.MapError, "no pose was given, no samples", lambda: backend.add_frame(6, ([1], [[3.0, 4.0]]))),
        (OptionError, "this back end has no IMU", lambda: backend.add_imu(1, np.zeros(3), np.zeros(3))),
        (OptionError, "more than the window", lambda: sb.Backend(camera, lag=5)),
        (OptionError, "sigma is 0", lambda: sb.Backend(camera, sigma=0)),
        (OptionError, "information has shape", lambda: backend.close_loop(0, 0, poses[0], np.eye(3))),
    ):
        with pytest.raises(error, match=match):
            call()
    assert (len(backend.map.keyframes), len(backend.map.observations)) == size
    inertial = sb.Backend(camera, sb.ImuNoise())
    inertial.add_frame(0, (tracks, pixel))
    for stamp in range(0, 10**9, 10**7):
        inertial.add_imu(stamp, np.zeros(3), [0.0, 0.0, 9.81])
    with pytest.raises(sb.MapError, match="0 of its tracks have a landmark, and the velocity"):
        inertial.add_frame(10**8, (tracks, pixel))
    assert len(inertial.map.keyframes) == 1
    inertial.add_frame(10**8, (tracks, pixel), poses[1])  # the samples are still there
    assert len(inertial.map.imu) == 1
    inertial = sb.Backend(camera, sb.ImuNoise())
    inertial.add_imu(7, np.zeros(3), np.zeros(3))
    with pytest.raises(sb.MapError, match="follows one at 7 ns"):
        inertial.add_imu(7, np.zeros(3), np.zeros(3))
