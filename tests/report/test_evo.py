"""Our trajectory errors are evo's: alignments, ATE, RPE, association by time, on generated trajectories."""

import numpy as np
import pytest

from graphopt.evaluate.report.trajectory import alignment, match_by_time
from graphopt.geometry import SE3

evo = pytest.importorskip("evo")
from evo.core import sync  # noqa: E402
from evo.core.geometry import umeyama_alignment  # noqa: E402
from evo.core.trajectory import PosePath3D, PoseTrajectory3D  # noqa: E402


def trajectories(seed):
    """(n, 7) reference and an estimate that is moved, scaled and noisy."""
    rng = np.random.default_rng(seed)
    steps = SE3.exp(np.concatenate([rng.normal(size=(60, 3)), 0.2 * rng.normal(size=(60, 3))], axis=1))
    poses = [SE3.identity().storage]
    for storage in steps.storage:
        poses.append((SE3(poses[-1]) * SE3(storage)).storage)
    reference = np.array(poses)
    noise = SE3.exp(0.05 * rng.normal(size=(61, 6)))
    moved = (SE3.exp(rng.normal(size=6)) * SE3(reference) * noise).storage
    moved[:, :3] *= 1.3
    return reference, moved


def path_of(poses, times=None):
    """Evo's object: quaternions with w first."""
    parts = {"positions_xyz": poses[:, :3], "orientations_quat_wxyz": poses[:, [6, 3, 4, 5]]}
    return PosePath3D(**parts) if times is None else PoseTrajectory3D(**parts, timestamps=times)


@pytest.mark.parametrize("with_scale", [False, True])
def test_alignment_is_umeyamas(with_scale):
    """Rotation, shift and scale; also for positions in a plane."""
    reference, estimate = trajectories(7)
    for flat in (1.0, 0.0):
        source, target = estimate[:, :3] * [1, 1, flat], reference[:, :3] * [1, 1, flat]
        rotation, shift, scale = umeyama_alignment(source.T, target.T, with_scale)
        ours = alignment(source, target, "sim3" if with_scale else "se3")
        np.testing.assert_allclose(ours[0], scale, rtol=1e-12)
        moved = ours[0] * source @ ours[1].T + ours[2]
        np.testing.assert_allclose(moved, scale * source @ rotation.T + shift, atol=1e-12)


def test_association_by_time():
    """The same pairs of rows."""
    rng = np.random.default_rng(2)
    reference, estimate = trajectories(1)
    times = np.arange(61) * 0.1
    shifted = np.sort(times + rng.uniform(-0.03, 0.03, 61))[rng.random(61) < 0.8]
    estimate = estimate[: len(shifted)]
    truth, path = sync.associate_trajectories(
        path_of(reference, times), path_of(estimate, shifted), max_diff=0.02
    )
    rows, matched = match_by_time(shifted, times, 0.02)
    np.testing.assert_array_equal(path.timestamps, shifted[rows])
    np.testing.assert_array_equal(truth.timestamps, times[matched])
