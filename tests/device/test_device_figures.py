"""What the cost model knows about a device: measured once, kept, and plausible."""

from dataclasses import asdict

import pytest
from vulkan_devices import shared_device

from graphopt.device import VulkanDevice, figures
from graphopt.device.figures import DeviceFigures, device_figures, measure


@pytest.mark.parametrize("access", ["address", "storage"])
def test_every_figure_is_measured(access):
    device = shared_device(access)
    found = measure(device)
    assert found.name == device.name
    rates = {key: value for key, value in asdict(found).items() if isinstance(value, float)}
    assert len(rates) == 6 and min(rates.values()) > 0.0
    assert found.runs_all_branches == (device.info["kind"] == "cpu")
    # A dispatch is part of a submission, and no processor of today moves a petabyte per second.
    assert found.dispatch_seconds < found.submission_seconds
    assert found.bytes_per_second < 1e15
    assert not device.messages


def test_without_float64_there_is_no_such_rate():
    device = VulkanDevice(validation=True, masked_features=["float64"])
    found = measure(device)
    assert found.float64_flops == 0.0
    assert found.flops("mixed") == found.float32_flops > 0.0


def test_figures_are_kept_in_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path))
    device = shared_device("address")
    figures._known.clear()
    first = device_figures(device)
    (kept,) = (tmp_path / "devices").glob("*.json")
    figures._known.clear()
    assert device_figures(device) == first
    changed = kept.read_text().replace(device.name, "another")
    kept.write_text(changed)
    figures._known.clear()
    assert device_figures(device).name == "another"  # read, not measured
    kept.write_text("{ truncated")
    figures._known.clear()
    assert device_figures(device).name == device.name
    assert isinstance(device_figures(device), DeviceFigures)
