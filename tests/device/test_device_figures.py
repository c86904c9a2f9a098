"""What the cost model knows about a device: measured, kept, and confirmed by a second measurement."""

import json
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from vulkan_devices import shared_device

from graphopt import disk_cache
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
    figures.known_figures.clear()
    first = device_figures(device)
    (kept,) = (tmp_path / "devices").glob("*.json")
    figures.known_figures.clear()
    monkeypatch.setattr(figures, "measure", lambda device: pytest.fail("measured again"))
    assert device_figures(device) == first
    monkeypatch.setattr(figures, "measure", lambda device: replace(first, name="another"))
    kept.write_bytes(kept.read_bytes()[:-20])
    figures.known_figures.clear()
    assert device_figures(device).name == "another"  # what is kept is damaged
    figures.known_figures.clear()


HOUR, MONTH = 3600.0, 30 * 86400.0
RATES = DeviceFigures("a GPU", 4e12, 4.8e13, 3e13, 2.5e11, 2e-6, 3e-5)
BUSY = replace(RATES, bytes_per_second=1.7e12, dispatch_seconds=8e-6)
CLOSE = replace(RATES, bytes_per_second=3.8e12, submission_seconds=2.8e-5)


@pytest.mark.parametrize(
    ("measurements", "expected"),
    [
        # (seconds since the one before, what is measured then; None: nothing may be measured), in the end
        ([(0, BUSY), (HOUR / 2, None)], BUSY),
        ([(0, BUSY), (2 * HOUR, RATES), (HOUR / 2, None)], RATES),
        ([(0, RATES), (2 * HOUR, BUSY), (HOUR / 2, None)], RATES),
        ([(0, BUSY), (2 * HOUR, RATES), (2 * HOUR, CLOSE), (MONTH / 2, None)],
         replace(RATES, submission_seconds=2.8e-5)),
        ([(0, BUSY), (2 * HOUR, RATES), (2 * HOUR, BUSY), (2 * HOUR, BUSY), (2 * HOUR, None)], RATES),
        ([(0, RATES), (2 * HOUR, RATES), (2 * MONTH, BUSY)], BUSY),
        ([(0, replace(RATES, bytes_per_second=5e6)), (1, RATES), (HOUR / 2, None)], RATES),
        ([(0, replace(RATES, dispatch_seconds=0.0)), (1, RATES), (HOUR / 2, None)], RATES),
    ],
    ids=["fresh", "busy first", "busy later", "confirmed", "always busy", "old", "too slow", "too fast"],
)  # fmt: skip
def test_figures_are_measured_until_two_measurements_agree(measurements, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path))
    device = SimpleNamespace(
        name="a GPU", info={"kind": "discrete", "driver_info": "1"}, access="address", has_float64=True
    )
    for passed, measured in measurements:
        for path in (tmp_path / "devices").glob("*.json"):
            name = f"devices/{path.name}"
            record = json.loads(disk_cache.load(name) or b"")
            before = datetime.fromisoformat(record["measured"]) - timedelta(seconds=passed)
            assert record["host_load"] >= 0.0 and record["host_cores"] >= 1
            disk_cache.store(name, json.dumps({**record, "measured": before.isoformat()}).encode())
        figures.known_figures.clear()
        monkeypatch.setattr(figures, "measure", lambda _, m=measured: m or pytest.fail("measured again"))
        result = device_figures(device)
    figures.known_figures.clear()
    assert result == expected
