"""The demos run and do what they show; with g2opy, where it can run them, they give the same numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "g2o"
DEMOS = [
    "line_fit",
    "slam2d_simulation",
    "bundle_adjustment",
    "stereo_bundle_adjustment",
    "gicp",
    "sim3_loop_closing",
]


def output(demo: str, module: str) -> str:
    """What a demo prints."""
    command = [sys.executable, str(FOLDER / f"{demo}.py"), module]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=FOLDER.parents[1]).stdout


@pytest.mark.oracle
@pytest.mark.parametrize("demo", DEMOS)
def test_same_output(demo):
    """To the printed digits."""
    pytest.importorskip("g2opy")
    assert output(demo, "graphopt.g2o") == output(demo, "g2opy")


def test_simulated_slam_in_space():
    """chi2 falls by two orders of magnitude."""
    before, after = output("slam3d_simulation", "graphopt.g2o").split("chi2 ")[1].split(" -> ")
    assert float(after) < 0.01 * float(before)
