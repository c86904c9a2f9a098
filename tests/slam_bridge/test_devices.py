"""Problems of whole maps on a Vulkan device: every iteration's chi2 is the CPU's to 1e-8, by every solver."""

from __future__ import annotations

import numpy as np
import pytest
from simulation import ACC_BIAS, GYRO_BIAS, disturb, simulated_map

import graphopt
import slam_bridge as sb
from graphopt.geometry import SE3, SO3

DEVICE = "vulkan"
WAYS = {
    "direct": {"linear_solver": "cholesky", "schur": "off"},
    "explicit, Cholesky": {"linear_solver": "cholesky", "schur": "explicit"},
    "explicit, PCG": {"linear_solver": "pcg", "schur": "explicit"},
    "implicit, PCG": {"linear_solver": "pcg", "schur": "implicit"},
    "PCG": {"linear_solver": "pcg", "schur": "off"},
}
CPU = ("cpu", "explicit, Cholesky")


@pytest.fixture
def traced(monkeypatch):
    """Call a problem and return its result with chi2 of each iteration of each optimization."""

    def run(problem, device, way, **options):
        found: list[float] = []
        devices: set[str] = set()
        plain = graphopt.optimize

        def optimize(*args, **kwargs):
            if WAYS[way]["linear_solver"] == "pcg" and kwargs["device"] != "cpu":
                kwargs |= {"pcg_tolerance": 1e-24, "pcg_iterations": 2000}
            summary = plain(*args, **kwargs)
            found.extend([summary.initial_chi2, *(iteration.chi2 for iteration in summary.iterations)])
            devices.add(summary.device)
            return summary

        with monkeypatch.context() as patch:
            patch.setattr(graphopt, "optimize", optimize)
            given = {"iterations": 4, "function_tolerance": 0.0, "precision": "double", **options}
            result = problem(sb.SolveOptions(device=device, **{**given, **WAYS[way]}))
        assert result.is_usable, result.report()
        return result, np.array(found), devices

    return run


def disturbed(inertial=True):
    """A map of five keyframes off the truth; without IMU its first keyframe stays."""
    rng = np.random.default_rng(3)
    world, _ = simulated_map(rng, times=0.25 * np.arange(5), count=16, pixels=0.5)
    disturb(world, rng, 0.01, 0.03, 0.1, 0.05, fixed=() if inertial else world.keyframes.ids[:1])
    if not inertial:
        world.remove_imu(world.imu.ids)
        world.keyframes["has_states"][:] = False
    return world


def window(stereo=True):
    """A disturbed map of six keyframes, the first two of them fixed."""
    rng = np.random.default_rng(0)
    world, _ = simulated_map(rng, times=0.25 * np.arange(6), count=40, pixels=0.5, stereo=stereo)
    disturb(world, rng, 0.01, 0.03, 0.1, 0.05, fixed=world.keyframes.ids[:2])
    return world


def test_estimated_calibrations_agree(traced):
    """One camera, with mounting, intrinsics and time offset free."""
    world = window(stereo=False)
    flow = np.random.default_rng(1).normal(scale=100.0, size=world.observations["flow"].shape)
    world.observations["flow"][:] = flow
    free = ("extrinsics", "intrinsics", "time_offset")

    def solve(options):
        fixed = world.keyframes.ids[:2]
        return sb.full_inertial_ba(world.snapshot(), fixed=fixed, options=options, estimate=free)

    (_, expected, _), (_, chi2, _) = (traced(solve, device, CPU[1]) for device in ("cpu", DEVICE))
    np.testing.assert_allclose(chi2, expected, rtol=1e-8)


def test_a_window_is_used_again(traced):
    """On a device: one graph for two calls, with the CPU's states, inliers and chi2 of edge sets."""
    world, kept = window(), sb.Window()

    def solve(options, again=None):
        return sb.local_inertial_ba(world.snapshot(), world.keyframes.ids[2:], options=options, window=again)

    cpu, _, _ = traced(solve, *CPU)
    for _ in range(2):
        ours, _, _ = traced(lambda options: solve(options, kept), DEVICE, CPU[1])
        np.testing.assert_array_equal(ours.inliers, cpu.inliers)
        np.testing.assert_allclose(ours.keyframes.world_T_body, cpu.keyframes.world_T_body, atol=1e-8)
        np.testing.assert_allclose(ours.observation_chi2, cpu.observation_chi2, rtol=1e-5, atol=1e-7)
        assert ours.chi2 == pytest.approx(cpu.chi2, rel=1e-6)
    assert kept.num_built == 1


BUNDLES = {
    "full_inertial_ba": lambda world, options: sb.full_inertial_ba(world, options=options),
    "global_ba": lambda world, options: sb.global_ba(world, options=options),
    "local_inertial_ba": lambda world, options: sb.local_inertial_ba(
        world, world.keyframes.ids[2:], options=options
    ),
}


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *(("full_inertial_ba", way) for way in WAYS if way != "PCG"),
        ("global_ba", "implicit, PCG"),
        ("local_inertial_ba", "explicit, PCG"),
    ],
)
def test_bundles_agree(traced, name, way):
    """Two rounds of four iterations of the whole call: chi2 of each, states, inliers."""
    world = disturbed("inertial" in name)

    def solve(options):
        return BUNDLES[name](world.snapshot(), options)

    cpu, expected, _ = traced(solve, *CPU)
    ours, chi2, devices = traced(solve, DEVICE, way)
    assert all(name.startswith("vulkan") for name in devices)
    np.testing.assert_allclose(chi2, expected, rtol=1e-8)
    np.testing.assert_array_equal(ours.inliers, cpu.inliers)
    np.testing.assert_allclose(ours.keyframes.world_T_body, cpu.keyframes.world_T_body, atol=1e-7)
    assert expected[-1] < 0.05 * expected[0]


@pytest.mark.parametrize("way", ["direct", "PCG"])
@pytest.mark.parametrize("mode", ["sim3", "4dof"])
def test_essential_graphs_agree(traced, mode, way):
    """Two rounds, the second without a wrong loop: chi2 of each iteration, poses, who was rejected."""
    rng = np.random.default_rng(5)
    angle = np.linspace(0.0, 2.0 * np.pi, 12, endpoint=False)
    turn = SO3.exp(np.outer(angle, [0.0, 0.0, 1.0])).storage
    truth = np.column_stack([4.0 * np.cos(angle), 4.0 * np.sin(angle), 0.0 * angle, turn])
    step = SE3.exp(np.tile([0.0, 0.0, 0.01, 0.02, 0.0, 0.0], (12, 1)) * np.arange(12)[:, None])
    world = sb.Map()
    frames = world.add_keyframes(np.arange(12), (SE3(truth) * step).storage)
    world.add_landmarks(rng.normal(size=(12, 3)), frames)
    between = SE3(truth[[0, 1, 2]]).inverse() * SE3(truth[[11, 10, 9]])
    measured = np.array(between.storage)
    measured[2, :3] += 2.0
    tight = np.diag([1e4] * 6 + [1e5])
    for k, other in enumerate((11, 10, 9)):
        world.add_loops(frames[k], frames[other], measured[k : k + 1], tight, scale=1.02 if k == 1 else 1.0)

    def solve(options):
        return sb.essential_graph_optimization(world.snapshot(), mode, options=options)

    rest = {"rounds": 2, "kernel": "Cauchy", "confidence": 0.99, "iterations": 6}
    cpu, expected, _ = traced(solve, "cpu", "direct", **rest)
    ours, chi2, devices = traced(solve, DEVICE, way, **rest)
    assert all(name.startswith("vulkan") for name in devices)
    np.testing.assert_allclose(chi2, expected, rtol=1e-8)
    np.testing.assert_allclose(ours.keyframes.world_T_body, cpu.keyframes.world_T_body, atol=1e-7)
    np.testing.assert_allclose(ours.extra["scale"], cpu.extra["scale"], rtol=1e-7)
    np.testing.assert_array_equal(ours.rejected["loop"], cpu.rejected["loop"])
    assert cpu.rounds == 2 and 2 in cpu.rejected["loop"]


@pytest.mark.parametrize("way", ["explicit, Cholesky", "implicit, PCG"])
def test_initializations_agree(traced, way):
    """All stages from zero states: chi2 of each iteration behind the inertial stage, scale, states."""
    world, _ = simulated_map(np.random.default_rng(6), times=0.25 * np.arange(9), count=40, pixels=0.3)
    for name in ("velocity", "gyro_bias", "acc_bias"):
        world.keyframes[name][:] = 0.0
    world.keyframes["has_states"][:] = False

    def solve(options):
        return sb.inertial_initialization(world.snapshot(), options=options, acc_bias_sigma=1.0)

    cpu, expected, _ = traced(solve, *CPU)
    ours, chi2, devices = traced(solve, DEVICE, way)
    assert any(name.startswith("vulkan") for name in devices)
    np.testing.assert_allclose(chi2, expected, rtol=1e-8)
    assert ours.extra["scale"] == pytest.approx(cpu.extra["scale"], rel=1e-7)
    np.testing.assert_allclose(ours.keyframes.velocity, cpu.keyframes.velocity, atol=1e-6)
    np.testing.assert_allclose(cpu.keyframes.gyro_bias, np.tile(GYRO_BIAS, (9, 1)), atol=3e-3)
    np.testing.assert_allclose(cpu.keyframes.acc_bias, np.tile(ACC_BIAS, (9, 1)), atol=0.1)
