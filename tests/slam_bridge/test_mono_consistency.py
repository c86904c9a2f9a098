"""Covariances of one camera with an IMU mean what they say: scale, states, the start; nothing of the gauge.

Normalised squared errors of 50 generated problems, each with its own path, scene, noise and biases, lie in
the 99 % band of chi-square (`benchmarks/consistency.py` runs as many as one likes).
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from simulation import simulated_map

import slam_bridge as sb
from graphopt.errors import OptionError
from graphopt.geometry import SE3

SEEDS = range(100, 150)
_SOURCE = Path(__file__).parents[2] / "benchmarks" / "consistency.py"


@pytest.fixture(scope="module")
def consistency():
    """The benchmark, which is not part of the package."""
    spec = importlib.util.spec_from_file_location("consistency_benchmark", _SOURCE)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize("case", ["inertial-only"])
def test_the_start_is_consistent(consistency, case):
    """Direction of gravity, scale and biases of stage 1 on exact poses."""
    assert_consistent(consistency, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["mono", "mono-start", "default"])
def test_maps_of_one_camera_are_consistent(consistency, case):
    """State and scale, from drifted states, from a map of any unit, and with the default options."""
    assert_consistent(consistency, case)


def assert_consistent(consistency, case):
    found = consistency.verdicts(case, SEEDS)
    assert found
    for verdict in found:
        assert verdict.count > 0.8 * len(SEEDS), f"{case}: {verdict}"
        assert verdict.is_consistent, f"{case}: {verdict}"


def mono_result(seed=0):
    world, _ = simulated_map(np.random.default_rng(seed), stereo=False, pixels=0.5)
    options = sb.SolveOptions(device="cpu", iterations=50, kernel=None, confidence=1 - 1e-12)
    return world, options, sb.full_inertial_ba(world, options=options)


def test_the_gauge_is_no_uncertainty():
    """Of the first keyframe position and heading are held: what holds them adds nothing to covariances."""
    world, _, result = mono_result()
    first = int(world.keyframes.ids[0])
    covariance = result.covariance([first])["keyframe", first]
    down = np.asarray(SE3(result.keyframes.world_T_body[0]).rotation.inverse().act(np.array([0, 0, -1.0])))
    assert np.sqrt(np.diag(covariance)[:3]).max() < 2e-6
    assert np.sqrt(down @ covariance[3:6, 3:6] @ down) < 2e-6
    assert np.sqrt(np.diag(covariance)[6:9]).min() > 1e-5  # velocities are estimated


def test_landmarks_at_infinity_leave_covariances():
    """Parallel rays: others' covariances are those with the landmark a little nearer; its own is refused."""
    world, options, result = mono_result()
    last = int(world.keyframes.ids[-1])
    found = []
    for distance in (3e4, 1e9):
        mine = world.snapshot()
        camera = mine.rig[0]
        seen = mine.keyframes.ids[:4]
        rays = np.array([0.3, 8.0, 1.0]) * distance / 8.0
        far = mine.add_landmarks([rays])
        local = (SE3(mine.keyframes["world_T_body"][:4]) * SE3(camera.body_T_cam)).inverse_act(rays[None])
        mine.add_observations(seen, np.repeat(far, 4), camera.project(np.asarray(local)), sigma=0.5)
        result = sb.full_inertial_ba(mine, options=options.with_changes(iterations=0, rounds=1))
        assert result.inliers.all()
        found.append(result.covariance([last])["keyframe", last])
    with pytest.raises(OptionError, match="no covariance"):
        result.covariance(landmarks=far)
    np.testing.assert_allclose(found[1], found[0], rtol=5e-3, atol=2e-3 * np.abs(found[0]).max())
