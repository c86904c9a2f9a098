"""Fixtures that every test may use."""

import os
import signal
from pathlib import Path

import pytest

# tests of the device run compiled kernels from the start; those of the interpreter and the change ask for it
os.environ.setdefault("GRAPHOPT_TIER", "compiled")

# a shell starts background jobs with Ctrl-C ignored; tests press it
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real data sets beside the checkout (or in $GRAPHOPT_SHARED/data)."""
    root = Path(os.environ.get("GRAPHOPT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (root / "data").is_dir():
        pytest.skip(f"no real data sets at {root / 'data'}")
    return root / "data"


@pytest.fixture(scope="session")
def reference_runs(shared_data: Path) -> dict:
    """Recorded runs of g2o: chi2 after each iteration, per graph and algorithm."""
    import json

    return json.loads((shared_data.parent / "reference" / "g2o_runs.json").read_text())
