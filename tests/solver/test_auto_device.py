"""Which device "auto" takes."""

from __future__ import annotations

import pytest

from graphopt import datasets
from graphopt.device import list_devices
from graphopt.errors import DeviceError
from graphopt.optimizer import optimize
from graphopt.solver import auto_device


@pytest.fixture(autouse=True)
def looked_for_anew():
    auto_device._discrete_gpu.cache_clear()
    yield
    auto_device._discrete_gpu.cache_clear()


@pytest.fixture
def software_driver_as_gpu(monkeypatch):
    """What is here counts as a discrete GPU, and small problems as large."""
    for one in (devices := list_devices()):
        object.__setattr__(one, "kind", "discrete")
    monkeypatch.setattr("graphopt.device.list_devices", lambda: devices)
    monkeypatch.setattr(auto_device, "LARGE", 20)


def scene():
    return datasets.ba(cameras=4, points=30, camera="bal", seed=2)


def test_small_problems_and_software_drivers_stay_on_the_cpu(monkeypatch):
    assert "llvmpipe" not in optimize(scene(), "lm", 2).device_name
    monkeypatch.setattr(auto_device, "LARGE", 20)
    kinds = {one.kind for one in list_devices()}
    assert kinds == {"cpu"} or "discrete" in kinds
    if kinds == {"cpu"}:
        assert "llvmpipe" not in optimize(scene(), "lm", 2).device_name


def test_large_problems_go_to_a_gpu(software_driver_as_gpu):
    """Where something is eliminated and conjugate gradients may be used."""
    cpu = optimize(scene(), "lm", 4, device="cpu")
    found = optimize(scene(), "lm", 4)
    assert found.device == "vulkan:0" and cpu.device == "cpu"
    assert found.final_chi2 == pytest.approx(cpu.final_chi2, rel=1e-8)
    assert optimize(scene(), "lm", 1, linear_solver="cholesky").device == "cpu"
    assert optimize(scene(), "lm", 1, schur="off").device == "cpu"
    assert optimize(datasets.manhattan(60), "lm", 1).device == "cpu"


def test_a_gpu_that_fails_is_left_with_a_warning(software_driver_as_gpu, monkeypatch):
    def broken(*arguments, **options):
        raise DeviceError("The device has no memory left.")

    monkeypatch.setattr("graphopt.solver.vulkan.solver.open_device", broken)
    with pytest.warns(RuntimeWarning, match="no memory left. Solving on the CPU instead"):
        assert optimize(scene(), "lm", 1).device == "cpu"
    with pytest.raises(DeviceError, match="no memory left"):
        optimize(scene(), "lm", 1, device="vulkan")


def test_options_that_need_a_gpu_take_one():
    assert optimize(scene(), "lm", 1, precision="mixed").device.startswith("vulkan")
    assert optimize(scene(), "lm", 1, schedule="blocks").schedule == "blocks"
    with pytest.raises(DeviceError, match="schedule 'blocks' is for GPUs"):
        optimize(scene(), "lm", 1, device="cpu", schedule="blocks")
