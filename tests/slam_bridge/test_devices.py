"""Windows on a Vulkan device: every iteration's chi2 is the CPU's to 1e-8, by every solver."""

from __future__ import annotations

import numpy as np
import pytest
from simulation import disturb, simulated_map

import graphopt
import slam_bridge as sb
from slam_bridge.selection import select

DEVICE = "vulkan"
WAYS = {
    "direct": {"linear_solver": "cholesky", "schur": "off"},
    "explicit, Cholesky": {"linear_solver": "cholesky", "schur": "explicit"},
    "explicit, PCG": {"linear_solver": "pcg", "schur": "explicit", "pcg_tolerance": 1e-24},
    "implicit, PCG": {"linear_solver": "pcg", "schur": "implicit", "pcg_tolerance": 1e-24},
}


def window(stereo=True):
    """A disturbed map of six keyframes, two of them fixed, and a selection of it."""
    rng = np.random.default_rng(0)
    world, _ = simulated_map(rng, times=0.25 * np.arange(6), count=40, pixels=0.5, stereo=stereo)
    ids = world.keyframes.ids
    disturb(world, rng, 0.01, 0.03, 0.1, 0.05, fixed=ids[:2])
    return world, select(world, ids[2:], ids[:2], inertial=ids[1:])


def chi2_of(selection, device, way, estimate=()):
    graph = sb.Window().load(selection, sb.SolveOptions(), estimate=estimate, imu_kernel="Huber")
    summary = graphopt.optimize(graph, "lm", 5, device=device, precision="double", fix="none", **WAYS[way])
    return [summary.initial_chi2, *(iteration.chi2 for iteration in summary.iterations)], summary


@pytest.mark.parametrize("way", WAYS)
def test_iterations_agree(way):
    """Stereo-inertial window: five iterations of Levenberg-Marquardt, all four ways, both devices."""
    _, selection = window()
    cpu, _ = chi2_of(selection, "cpu", "explicit, Cholesky")
    ours, summary = chi2_of(selection, DEVICE, way)
    assert summary.device.startswith("vulkan")
    np.testing.assert_allclose(ours, cpu, rtol=1e-8)
    assert cpu[-1] < 0.01 * cpu[0]


def test_calibration_agrees():
    """Mono, with mounting, intrinsics and time offset free."""
    _, selection = window(stereo=False)
    estimate = ("extrinsics", "intrinsics", "time_offset")
    cpu, _ = chi2_of(selection, "cpu", "explicit, Cholesky", estimate)
    ours, _ = chi2_of(selection, DEVICE, "explicit, Cholesky", estimate)
    np.testing.assert_allclose(ours, cpu, rtol=1e-8)


def test_problems_run_on_the_device():
    """The whole call gives the CPU's states, inliers and chi2 by edge set; a window is used again."""
    world, _ = window()
    ids = world.keyframes.ids
    results, kept = [], sb.Window()
    for device in ("cpu", DEVICE, DEVICE):
        copy = world.snapshot()
        options = sb.SolveOptions(
            device=device, precision="double", linear_solver="cholesky", schur="explicit"
        )
        results.append(
            sb.local_inertial_ba(copy, ids[2:], options=options, window=None if device == "cpu" else kept)
        )
    assert kept.num_built == 1
    for other in results[1:]:
        np.testing.assert_array_equal(other.inliers, results[0].inliers)
        np.testing.assert_allclose(other.keyframes.world_T_body, results[0].keyframes.world_T_body, atol=1e-8)
        np.testing.assert_allclose(other.observation_chi2, results[0].observation_chi2, rtol=1e-5, atol=1e-7)
        assert other.chi2 == pytest.approx(results[0].chi2, rel=1e-6)
