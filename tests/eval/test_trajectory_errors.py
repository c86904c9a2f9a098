"""Errors of trajectories are evo's to 1e-9, and what they should be where the answer is known."""

import copy

import numpy as np
import pytest

from graphopt.errors import FormatError, OptionError
from graphopt.evaluate import trajectories
from graphopt.evaluate.trajectories import Trajectory, compare
from graphopt.geometry import SE3, SO3
from graphopt.io.trajectory import write_kitti, write_tum


def wandering(seed: int, num_poses: int = 300, rate: float = 20.0) -> Trajectory:
    rng = np.random.default_rng(seed)
    steps = np.concatenate(
        [rng.normal(0.0, 0.03, (num_poses, 3)), rng.normal(0.0, 0.05, (num_poses, 3))], axis=1
    )
    pose, poses = SE3.identity(), []
    for step in steps:
        pose = pose * SE3.exp(step)
        poses.append(np.asarray(pose.normalize().storage))
    return Trajectory(1e9 + np.arange(num_poses) / rate, np.stack(poses))


def disturbed(truth: Trajectory, seed: int, scale: float = 1.0) -> Trajectory:
    """Another frame and scale, noise, later stamps, and some poses missing."""
    rng = np.random.default_rng(seed)
    world_T_other = SE3.exp(rng.normal(0.0, 2.0, 6))
    poses = np.asarray((world_T_other * SE3(truth.world_T_body)).storage).copy()
    poses[:, :3] = scale * poses[:, :3] + rng.normal(0.0, 0.02, (len(poses), 3))
    poses[:, 3:] = np.asarray((SO3(poses[:, 3:]) * SO3.exp(rng.normal(0.0, 0.01, (len(poses), 3)))).storage)
    kept = rng.random(len(poses)) < 0.8
    return Trajectory(truth.times[kept] + rng.uniform(-0.004, 0.004, kept.sum()), poses[kept])


def evo_statistics(estimate: Trajectory, truth: Trajectory, align: str, delta: float, unit: str) -> dict:
    pytest.importorskip("evo", reason="evo, the oracle of trajectory errors, is not installed")
    from evo.core import metrics, sync
    from evo.core.trajectory import PoseTrajectory3D

    def convert(trajectory: Trajectory) -> PoseTrajectory3D:
        return PoseTrajectory3D(
            trajectory.world_T_body[:, :3].copy(),
            trajectory.world_T_body[:, [6, 3, 4, 5]].copy(),
            trajectory.times,
        )

    reference, other = sync.associate_trajectories(convert(truth), convert(estimate), max_diff=0.01)
    scale = 1.0
    if align != "none":
        other = copy.deepcopy(other)
        _, _, scale = other.align(reference, correct_scale=align == "sim3")
    units = {"frames": metrics.Unit.frames, "m": metrics.Unit.meters}
    ape = metrics.APE(metrics.PoseRelation.translation_part)
    ape.process_data((reference, other))
    found = {"scale": scale, "ate": ape.get_all_statistics()}
    for name, relation in (
        ("m", metrics.PoseRelation.translation_part),
        ("deg", metrics.PoseRelation.rotation_angle_deg),
    ):
        rpe = metrics.RPE(relation, delta, units[unit])
        rpe.process_data((reference, other))
        found[name] = rpe.get_all_statistics()
    return found


@pytest.mark.parametrize("align", ["se3", "sim3", "none"])
@pytest.mark.parametrize(("delta", "unit"), [(1, "frames"), (7, "frames"), (0.5, "m")])
@pytest.mark.parametrize("seed", [0, 1])
def test_equals_evo(align: str, delta: float, unit: str, seed: int) -> None:
    truth = wandering(seed)
    estimate = disturbed(truth, seed + 10, scale=1.3)
    found = compare(estimate, truth, align=align, delta=delta, delta_unit=unit).statistics()
    wanted = evo_statistics(estimate, truth, align, delta, unit)
    assert found["scale"] == pytest.approx(wanted["scale"], rel=1e-9)
    for name in ("rmse", "mean", "median", "max", "min", "std"):
        assert found[f"ate_{name}_m"] == pytest.approx(wanted["ate"][name], rel=1e-9, abs=1e-12)
        assert found["rpe"]["translation_m"][name] == pytest.approx(wanted["m"][name], rel=1e-9, abs=1e-12)
        assert found["rpe"]["rotation_deg"][name] == pytest.approx(wanted["deg"][name], rel=1e-9, abs=1e-9)


def test_yaw_alignment_finds_a_turn_about_z_and_leaves_a_tilt() -> None:
    truth = wandering(3)
    turn = SE3.exp(np.array([0.0, 0.0, 2.2, 5.0, -2.0, 1.0]))
    turned = Trajectory(truth.times, np.asarray((turn * SE3(truth.world_T_body)).storage))
    assert compare(turned, truth, align="yaw").absolute.max() < 1e-9
    tilt = SE3.exp(np.array([0.3, 0.0, 0.0, 0.0, 0.0, 0.0]))
    tilted = Trajectory(truth.times, np.asarray((tilt * SE3(truth.world_T_body)).storage))
    assert compare(tilted, truth, align="se3").absolute.max() < 1e-9
    best = compare(tilted, truth, align="yaw")
    assert best.absolute.max() > 1e-2
    # no other angle is better
    for angle in np.linspace(0.0, 2.0 * np.pi, 73):
        rotation = np.asarray(SO3.exp(np.array([0.0, 0.0, angle])).to_matrix())
        moved = tilted.world_T_body[:, :3] @ rotation.T
        moved += (truth.world_T_body[:, :3] - moved).mean(axis=0)
        error = np.linalg.norm(moved - truth.world_T_body[:, :3], axis=1)
        assert np.mean(error**2) >= np.mean(best.absolute**2) - 1e-12


def test_relative_errors_over_seconds() -> None:
    truth = wandering(4, rate=10.0)
    errors = compare(truth, truth, delta=0.5, delta_unit="s")
    assert len(errors.relative_translation) == 59
    assert errors.relative_translation.max() < 1e-12


def test_files_of_three_kinds(tmp_path) -> None:
    truth = wandering(5, 50)
    write_tum(tmp_path / "tum.txt", truth.times, truth.world_T_body)
    write_kitti(tmp_path / "kitti.txt", truth.world_T_body)
    rows = np.column_stack(
        [np.round(truth.times * 1e9), truth.world_T_body[:, [0, 1, 2, 6, 3, 4, 5]], np.zeros((50, 9))]
    )
    lines = ["#timestamp, p, q, v, bw, ba"] + [
        ",".join([f"{int(row[0])}", *map(repr, row[1:].tolist())]) for row in rows
    ]
    (tmp_path / "euroc.csv").write_text("\n".join(lines))
    for name in ("tum.txt", "kitti.txt", "euroc.csv"):
        loaded = trajectories.load(tmp_path / name)
        np.testing.assert_allclose(loaded.world_T_body[:, :3], truth.world_T_body[:, :3], atol=1e-9)
        assert SO3(loaded.world_T_body[:, 3:]).inverse() is not None
    np.testing.assert_allclose(trajectories.load(tmp_path / "euroc.csv").times, truth.times, atol=1e-6)
    states = (tmp_path / "euroc.csv").read_text().splitlines()
    (tmp_path / "few.csv").write_text("\n".join([*states[:-1], states[-1].rsplit(",", 1)[0]]))
    with pytest.raises(FormatError, match=f"line {len(states)} has not"):
        trajectories.load(tmp_path / "few.csv")
    (tmp_path / "long.csv").write_text("1,0,0,0,0,0,0,1.5\n")
    with pytest.raises(FormatError, match=r"the quaternion at 1 ns has length 1\.5"):
        trajectories.load(tmp_path / "long.csv")


def test_what_cannot_be_compared_says_why(tmp_path) -> None:
    truth = wandering(6)
    later = Trajectory(truth.times + 1e6, truth.world_T_body)
    with pytest.raises(OptionError, match="same clock"):
        compare(later, truth)
    with pytest.raises(OptionError, match="3 are needed"):
        compare(truth.rows(np.arange(2)), truth)
    with pytest.raises(OptionError, match="smaller delta"):
        compare(truth, truth, delta=1e6, delta_unit="m")
    with pytest.raises(OptionError, match="align is 'se4'"):
        compare(truth, truth, align="se4")
    (tmp_path / "empty.txt").write_text("# nothing\n")
    with pytest.raises(FormatError, match="no pose in it"):
        trajectories.load(tmp_path / "empty.txt")
