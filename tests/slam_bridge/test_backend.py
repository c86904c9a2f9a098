"""A back end written against the public functions alone (examples/slam_backend.py) maps what it is shown."""

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "examples" / "slam_backend.py"


@pytest.mark.parametrize("seed", [5])
def test_a_back_end_maps_a_sequence(seed, capsys, monkeypatch):
    """From IMU and pixels with mismatches to centimetres; the place that is seen again is recognized."""
    spec = importlib.util.spec_from_file_location("slam_backend", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["slam_backend.py", "--seed", str(seed)])
    module.main()
    *_, loop, full, errors = capsys.readouterr().out.strip().splitlines()
    found = dict(pair.split() for pair in errors.split(", "))
    assert loop.startswith("essential_graph_optimization: 125 keyframes")
    assert full.startswith("full_inertial_ba: 126 keyframes")
    assert float(found["position_m"]) < 0.03
    assert float(found["rotation_deg"]) < 0.2
    assert abs(float(found["scale"]) - 1.0) < 0.005
