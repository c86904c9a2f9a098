"""Runs of our own methods, iteration by iteration, as tests/golden/runs.json has them.

A change of a step rule is seen here, and in the diff of that file:

    RECORD_RUNS=1 pytest -n0 tests/optimizer       # writes it anew
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[1] / "golden" / "runs.json"
RUNS: dict[str, list] = json.loads(FILE.read_text()) if FILE.exists() else {}
UPDATE = "Where the change is meant: RECORD_RUNS=1 pytest -n0 tests/optimizer"
SHOWN = 10
"""Iterations that the file has of each run, at most."""
ROUNDING = 1e-9
"""Once an iteration changes chi2 by less than this fraction, rounding decides what comes next."""
ENDS = ("CONVERGENCE", "INFEASIBLE", "SLOW_PROGRESS", "LINEAR_SOLVER_FAILURE")
"""Terminations that rounding does not choose."""


def assert_recorded(name: str, summary, digits: int = 6) -> None:
    """Trials, chi2 and damping of its first iterations, and how and when it ended, are the recorded ones.

    digits: of chi2. Damping has three.
    """
    rows, before = [], summary.initial_chi2
    for each in summary.iterations[:SHOWN]:
        if abs(each.chi2 - before) <= ROUNDING * abs(before) or abs(each.chi2) < 1e-20:
            break
        rows.append([each.trials, each.chi2, each.lambda_])
        before = each.chi2
    end = summary.termination.name
    ending = [end, len(summary.iterations) if end in ENDS else None]
    if os.environ.get("RECORD_RUNS"):
        written = [[k, float(f"{c:.8g}"), None if v is None else float(f"{v:.4g}")] for k, c, v in rows]
        RUNS[name] = [ending, *written]
        lines = [f"{json.dumps(key)}: {json.dumps(RUNS[key])}" for key in sorted(RUNS)]
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return
    then, *expected = RUNS[name]
    assert ending == then or (then[1] is None and ending[1] is None), UPDATE
    assert [row[0] for row in rows] == [row[0] for row in expected], UPDATE
    for row, recorded in zip(rows, expected, strict=True):
        assert row[1] == pytest.approx(recorded[1], rel=10.0**-digits), UPDATE
        assert row[2] == (None if recorded[2] is None else pytest.approx(recorded[2], rel=1e-3)), UPDATE
