"""Each allocation of the host and each call on a file fails once, in turn: nothing is lost."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from failing_runs import SUBSYSTEMS
from processes import completed

HELPERS = Path(__file__).resolve().parents[1] / "helpers"
ROOT = HELPERS.parents[1]
COMPILER = shutil.which(os.environ.get("CXX", "c++"))

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or COMPILER is None, reason="needs Linux and a C++ compiler"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """What is preloaded."""
    path = tmp_path_factory.mktemp("faults") / "fail_in_turn.so"
    words = [COMPILER, "-std=c++17", "-shared", "-fPIC", "-O1", "-o", str(path)]
    done = completed([*words, str(HELPERS / "fail_in_turn.cpp"), "-ldl"], timeout=100)
    assert done.returncode == 0, done.stderr
    return path


def in_turn(library, folder, *subsystems):
    """Run them in a process of their own; nothing is wrong after any fault."""
    import graphopt

    path = os.pathsep.join([str(Path(graphopt.__file__).resolve().parents[1]), str(ROOT)])
    words = [
        sys.executable,
        "-X",
        "faulthandler",
        str(HELPERS / "failing_runs.py"),
        str(library),
        str(folder),
    ]
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": path, "GRAPHOPT_CACHE": "off"}
    done = completed([*words, *subsystems], timeout=1000, env=environment)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert not report["ignored"]
    for name, found in report["found"].items():
        assert not found["problems"], (name, found)
        assert sum(found["outcomes"].values()) > 0, name
    return report["found"]


def test_some_calls_fail_in_turn(library, tmp_path):
    """A sample of each subsystem: memory of `optimize` and `read`, files of g2o, COLMAP and a checkpoint."""
    files = ("g2o:1", "colmap:0.2", "checkpoint:0.3")
    found = in_turn(library, tmp_path, "optimize:0.1", "cold:0.1", "read:0.1", "online:0.15", *files)
    assert any(outcome.endswith("HostMemoryError") for outcome in found["cold"]["outcomes"])
    assert found["g2o"]["outcomes"]["rename: OSError"] > 0


def test_memory_that_fails_in_calls_beside_optimize(library, tmp_path):
    """A sample of batches, COLMAP models, the back end of SLAM, and arrays of others."""
    in_turn(library, tmp_path, "batch:0.1", "covariances:0.1", "adjustment:0.05", "backend:0.01", "arrays:1")


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(SUBSYSTEMS))
def test_every_call_fails_in_turn(library, tmp_path, name):
    """All of them."""
    in_turn(library, tmp_path, f"{name}:1")
