"""Trajectories are differentiated consistently, follow the poses they are fitted to, and refuse bad ones."""

import numpy as np
import pytest

from graphopt.errors import FormatError, OptionError
from graphopt.geometry import SE3, SO3
from slam_bridge import ImuNoise, preintegrate
from slam_bridge.generator import (
    Trajectory,
    TrajectoryError,
    built_in,
    character,
    find_truth,
    perfect_imu,
    read_truth,
    sensors,
    simulate_imu,
)


def example(name: str = "V102", seed: int = 0) -> Trajectory:
    known = character(name)
    return built_in(known, sensors(known.sensor).rig, seed)


@pytest.mark.parametrize("name", ["V102", "MH03", "room4", "corridor4"])
def test_derivatives_are_those_of_the_poses(name):
    """Velocity, acceleration, rate and angular acceleration equal central differences."""
    trajectory = example(name)
    step = 1_000_000
    stamps = trajectory.start + np.linspace(2e9, 1e9 * trajectory.duration - 2e9, 40).astype(np.int64)
    here, before, after = (trajectory.at(stamps + shift) for shift in (0, -step, step))
    span = 2e-9 * step
    difference = (after.world_T_body[:, :3] - before.world_T_body[:, :3]) / span
    np.testing.assert_allclose(here.velocity, difference, atol=1e-4)
    np.testing.assert_allclose(here.acceleration, (after.velocity - before.velocity) / span, atol=1e-3)
    turned = SO3(before.world_T_body[:, 3:]).inverse() * SO3(after.world_T_body[:, 3:])
    np.testing.assert_allclose(here.rate, turned.log() / span, atol=1e-4)
    np.testing.assert_allclose(here.angular_acceleration, (after.rate - before.rate) / span, atol=1e-3)


def test_perfect_imu_integrates_to_the_poses():
    """The samples of two seconds, preintegrated, lead from the first state to the last."""
    trajectory = example("V102")
    motion = trajectory.at(trajectory.stamps(400.0, start=20.0, seconds=2.0))
    whole = preintegrate(perfect_imu(motion), ImuNoise())
    pose, velocity = whole.predict(motion.world_T_body[0], motion.velocity[0])
    away = SE3(motion.world_T_body[-1]).inverse() * SE3(pose)
    assert np.linalg.norm(away.translation) < 1e-4
    assert np.linalg.norm(away.rotation.log()) < 1e-4
    np.testing.assert_allclose(velocity, motion.velocity[-1], atol=1e-4)


@pytest.mark.parametrize("name", ["MH01", "MH05", "V103", "room1", "outdoors4", "corridor1"])
def test_built_in_trajectories_have_their_characters_duration_and_length(name):
    """Within 3 % of the published path."""
    known = character(name)
    trajectory = example(name, seed=3)
    assert trajectory.duration == pytest.approx(known.duration, abs=0.1)
    assert trajectory.length == pytest.approx(known.length, rel=0.03)


def test_built_in_trajectories_begin_at_rest_and_differ_by_seed():
    """The first half second has neither motion nor turning; the same seed gives the same trajectory."""
    first, again, other = example(seed=1), example(seed=1), example(seed=2)
    motion = first.at(first.stamps(20.0, seconds=0.5))
    assert np.abs(motion.velocity).max() < 1e-3 and np.abs(motion.rate).max() < 1e-3
    late = first.stamps(1.0)[-3:]
    np.testing.assert_array_equal(first.at(late).world_T_body, again.at(late).world_T_body)
    assert np.linalg.norm(first.at(late).world_T_body[:, :3] - other.at(late).world_T_body[:, :3]) > 0.1


def test_simulated_noise_has_the_sensors_densities():
    """White noise and bias walk of many samples have the densities that were asked for, to 5 %."""
    noise = ImuNoise(gyro_density=1e-3, acc_density=2e-2, gyro_bias_density=1e-4, acc_bias_density=1e-3)
    trajectory = example("MH01")
    motion = trajectory.at(trajectory.stamps(200.0))
    made = simulate_imu(motion, noise, np.random.default_rng(0))
    clean = perfect_imu(motion)
    for values, true, bias, density, walk in (
        (made.samples.gyro, clean.gyro, made.gyro_bias, noise.gyro_density, noise.gyro_bias_density),
        (made.samples.acc, clean.acc, made.acc_bias, noise.acc_density, noise.acc_bias_density),
    ):
        assert np.std(values - true - bias) * np.sqrt(0.005) == pytest.approx(density, rel=0.05)
        assert np.std(np.diff(bias, axis=0)) / np.sqrt(0.005) == pytest.approx(walk, rel=0.05)


def test_fit_smooths_noise_and_follows_motion():
    """A millimetre of noise on poses at 200 Hz changes the trajectory by less, and sign flips do nothing."""
    trajectory = example()
    motion = trajectory.at(trajectory.stamps(200.0, seconds=20.0))
    generator = np.random.default_rng(0)
    noisy = motion.world_T_body.copy()
    noisy[:, :3] += 1e-3 * generator.standard_normal((len(noisy), 3))
    noisy[::3, 3:] *= -1.0
    fitted = Trajectory.fit(motion.stamps, noisy)
    away = fitted.at(motion.stamps).world_T_body[:, :3] - motion.world_T_body[:, :3]
    assert np.sqrt(np.mean(away**2)) < 6e-4
    assert fitted.deviation[0] == pytest.approx(1e-3 * np.sqrt(3.0), rel=0.1)


def test_poses_that_no_trajectory_passes_through_are_refused():
    """Pauses, stamps that go back, values that are no numbers: each named."""
    motion = example().at(example().stamps(20.0, seconds=5.0))
    stamps, poses = motion.stamps, motion.world_T_body
    late = stamps + np.where(np.arange(len(stamps)) > 50, 3_000_000_000, 0)
    with pytest.raises(TrajectoryError, match=r"pause for 3.05 s"):
        Trajectory.fit(late, poses)
    with pytest.raises(TrajectoryError, match="do not ascend"):
        Trajectory.fit(stamps[::-1], poses)
    broken = poses.copy()
    broken[7, 1] = np.nan
    with pytest.raises(TrajectoryError, match="pose 7 is not finite"):
        Trajectory.fit(stamps, broken)
    with pytest.raises(TrajectoryError, match="lasts from"):
        example().at([0])


@pytest.mark.parametrize("name", ["MH_01_easy", "MH01", "mh1x"])
def test_names_are_those_of_the_publishers(name):
    """Long and short names mean the same; others are answered with the nearest."""
    if name == "mh1x":
        with pytest.raises(OptionError, match="Did you mean MH0"):
            character(name)
    else:
        assert character(name).name == "MH01"
    assert character("dataset-room4_512_16").name == "room4"


@pytest.mark.parametrize("ending", ["csv", "txt", "folder"])
def test_truth_is_read_in_all_its_forms(tmp_path, ending, monkeypatch):
    """EuRoC's .csv, TUM's text, a folder mav0: the same trajectory; found by name below $GRAPHOPT_DATA."""
    motion = example().at(example().stamps(100.0, seconds=6.0))
    poses = motion.world_T_body
    path = tmp_path / f"V1_02_medium_gt.{ending}"
    if ending == "txt":
        lines = [
            f"{s // 10**9}.{s % 10**9:09d} " + " ".join(map(str, p))
            for s, p in zip(motion.stamps, poses, strict=True)
        ]
    else:
        lines = [
            f"{s}," + ",".join(map(str, p[[0, 1, 2, 6, 3, 4, 5]]))
            for s, p in zip(motion.stamps, poses, strict=True)
        ]
    if ending == "folder":
        path = tmp_path / "V1_02_medium"
        (path / "mav0/mocap0").mkdir(parents=True)
        (path / "mav0/mocap0/data.csv").write_text("\n".join(lines))
    else:
        path.write_text("# a comment\n" + "\n".join(lines))
    trajectory = read_truth(path)
    middle = motion.stamps[50:-50]
    np.testing.assert_allclose(trajectory.at(middle).world_T_body[:, :3], poses[50:-50, :3], atol=1e-6)
    monkeypatch.setenv("GRAPHOPT_DATA", str(tmp_path))
    found = find_truth(character("V102"))
    assert found is not None and read_truth(found).duration == trajectory.duration
    assert find_truth(character("V103")) is None


def test_truth_that_is_none_is_refused(tmp_path):
    """The message names the file and what was expected."""
    path = tmp_path / "x_gt.txt"
    path.write_text("1.0 2.0 3.0\n")
    with pytest.raises(FormatError, match=r"x_gt.txt:1: got 3 numbers, expected 8 .timestamp x y z"):
        read_truth(path)
    with pytest.raises(FormatError, match="has none of"):
        read_truth(tmp_path)


@pytest.mark.data
@pytest.mark.parametrize(
    "name", ["euroc/V1_02_medium_gt.csv.xz", "euroc/V1_01_easy_gt_tum.txt.xz", "tumvi/room4_gt.csv.xz"]
)
def test_real_truth_is_followed_closely(shared_data, name):
    """Real ground truth deviates from its trajectory by a millimetre and less than half a degree."""
    trajectory = read_truth(shared_data / "vio" / name)
    assert trajectory.deviation[0] < 1e-3 and trajectory.deviation[1] < 8e-3
