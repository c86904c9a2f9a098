"""Every example from the command line: a run on what it generates, its help, and its errors."""

import os
import subprocess
import sys

import numpy as np
import pytest
from examples_modules import (
    FOLDER,
    ROOT,
    image_warping,
    images,
    mesh_deformation,
    meshes,
    nist,
    optical_flow,
    own_types,
    poisson_editing,
    shape_from_shading,
)
from vulkan_devices import shared_device

__all__ = ["own_types"]  # a fixture of this module

OUTPUTS = {
    "bundle_fusion": "png",
    "cotangent_smoothing": "png",
    "curve_fitting": "png",
    "deconvolution": "png",
    "embedded_deformation": "png",
    "face_fitting": "csv",
    "image_warping": "png",
    "intrinsic_images": "png",
    "mesh_deformation": "png",
    "nist": "csv",
    "nonrigid_alignment": "png",
    "optical_flow": "png",
    "poisson_editing": "png",
    "pose_graph": "csv",
    "procrustes": "csv",
    "shape_and_shading": "png",
    "shape_from_shading": "png",
    "snavely": "txt",
    "sympy_residual": "csv",
    "volumetric_deformation": "png",
}
"""Example -> suffix of what it writes."""
LEARNING = {"learn_distortion", "learn_noise", "torch_factor"}
"""Run by test_examples_learning.py."""
ONLINE = {"online_pose_graph", "online_visual_inertial"}
"""Run by tests/online."""
OLDER = {"bundle_adjustment", "custom_edge", "trajectory_errors", "slam_backend"}
HELPERS = {"command", "images", "meshes"}


def run(name, *arguments):
    """A finished process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRAPHOPT_NUM_THREADS": "1"}
    if os.environ.get("GRAPHOPT_TEST_INSTALLED"):
        environment.pop("PYTHONPATH")
    command = [sys.executable, str(FOLDER / f"{name}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=120)


@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_runs_and_writes(name, tmp_path):
    """Without data it makes its own."""
    output = tmp_path / f"out.{OUTPUTS[name]}"
    done = run(name, "--device", "cpu", "-o", output)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.strip()
    assert output.stat().st_size > 100
    if output.suffix == ".png":
        assert output.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["face_fitting", "procrustes"])
def test_points_are_drawn(name, tmp_path):
    """Those that write tables draw pictures as well."""
    output = tmp_path / "out.png"
    done = run(name, "--device", "cpu", "-o", output)
    assert done.returncode == 0, done.stderr
    assert output.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["trajectory_errors"])
def test_older_examples_run(name):
    """They have no options."""
    assert run(name).returncode == 0


def test_no_example_is_left_out():
    """A new one gets its test."""
    found = {path.stem for path in FOLDER.glob("*.py")}
    assert found == set(OUTPUTS) | OLDER | LEARNING | ONLINE | HELPERS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere.png", "nowhere.png"], "error: nowhere.png does not exist."),
        (["--data", "one.png"], "error: --data got 1 paths, expected 2: two frames."),
        (["--device", "abacus"], "abacus"),
        (["--shrink", "much"], "invalid int value"),
    ],
)
def test_errors_are_one_line_and_status_2(arguments, message):
    """No traceback."""
    done = run("optical_flow", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_every_example_is_in_the_table():
    """docs/examples.md names each with its command."""
    text = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert not [name for name in sorted(set(OUTPUTS) | OLDER) if f"`{name}.py`" not in text]


def test_a_gpu_gives_the_same(monkeypatch):
    """A fit, a mesh and a flow with sampled images, on Vulkan under the validation layer."""
    monkeypatch.setenv("GRAPHOPT_VALIDATION", "1")
    problem = nist.generated()[1]
    mesh = meshes.grid(3, 6)
    rows = np.array([0, 6, 12, 5, 11, 17])
    targets = mesh.points[rows] + np.array([[0.0, 0.0, 0.0]] * 3 + [[-1.0, 0.0, 1.5]] * 3)
    frames = [images.gray(frame) for frame in optical_flow.generated(24)[:2]]
    found = {}
    for device in ("cpu", "vulkan"):
        coefficients, _ = nist.fit(problem, problem.starts[0], device=device)
        deformed, _ = mesh_deformation.deform(mesh, rows, targets, device=device)
        flow, summary = optical_flow.estimate(*frames, device=device)
        assert summary.device.startswith("vulkan") == (device == "vulkan")
        found[device] = coefficients, deformed.points, flow
    for host, gpu in zip(found["cpu"], found["vulkan"], strict=True):
        np.testing.assert_allclose(gpu, host, atol=1e-5)
    assert shared_device("address").messages == []


def image_results(device, **options):
    """Example -> its numbers and its summary, on small pictures that it makes."""
    target, source, mask = poisson_editing.generated(24)
    _, inside, constraints = image_warping.generated()
    frames = [images.gray(frame) for frame in optical_flow.generated(48)[:2]]
    return {
        "poisson_editing": poisson_editing.paste(target, source, mask, device=device, **options),
        "image_warping": image_warping.warp(inside, constraints, device=device, **options),
        "shape_from_shading": shape_from_shading.refine(
            shape_from_shading.generated(12), device=device, **options
        ),
        "optical_flow": optical_flow.estimate(*frames, device=device, **options),
    }


def test_a_gpu_gives_the_same_pictures(monkeypatch):
    """All examples on images by compiled kernels, sampled images among them, under the validation layer."""
    monkeypatch.setenv("GRAPHOPT_VALIDATION", "1")
    expected, found = image_results("cpu"), image_results("vulkan")
    for name, (numbers, summary) in found.items():
        assert summary.device.startswith("vulkan"), name
        np.testing.assert_allclose(numbers, expected[name][0], atol=1e-8, err_msg=name)
        assert summary.final_chi2 == pytest.approx(expected[name][1].final_chi2, rel=1e-9), name
    assert shared_device("address").messages == []


def test_optical_flow_without_a_stored_matrix():
    """Products from the edges take the path of those from stored blocks, and end where the CPU ends."""
    frames = [images.gray(frame) for frame in optical_flow.generated(16)[:2]]
    options = {"device": "vulkan", "linear_solver": "pcg"}
    (flow, free), (expected, stored) = (
        optical_flow.estimate(*frames, schedule=schedule, **options) for schedule in ("matrix-free", "blocks")
    )
    np.testing.assert_allclose(flow, expected, atol=1e-8)
    assert free.schedule == "matrix-free" and stored.schedule == "blocks"
    _, on_cpu = optical_flow.estimate(*frames, device="cpu")
    assert free.final_chi2 == pytest.approx(on_cpu.final_chi2, rel=0.01)
