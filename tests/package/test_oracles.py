"""What other tests compare with is there: in continuous integration an oracle that is missing is an error."""

import importlib
import os
import sys
from pathlib import Path

import pytest

IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("module", "first", "last"),
    [("g2opy", (3, 11), (3, 13)), ("gtsam", (3, 11), (3, 14)), ("evo", (3, 10), (3, 14))],
)
def test_oracle_is_there(module, first, last):
    """Wherever it has wheels; elsewhere the reason stands at the end of the run."""
    if not first <= sys.version_info[:2] <= last:
        pytest.skip(f"{module} has no wheels for Python {sys.version_info[0]}.{sys.version_info[1]}")
    if not IN_CI:
        pytest.importorskip(module)
    importlib.import_module(module)


def test_the_summary_lists_what_did_not_run(pytester, monkeypatch):
    """Names and reasons; in CI missing data fail."""
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    pytester.makepyfile("def test_needs_data(shared_data): pass")
    monkeypatch.setenv("GRAPHOPT_SHARED", str(pytester.path / "nowhere"))
    monkeypatch.setenv("CI", "false")
    result = pytester.runpytest_inprocess()
    result.stdout.fnmatch_lines(["*did not run*", "1 x no real data sets at *nowhere*", "*::test_needs_data"])
    monkeypatch.setenv("CI", "true")
    pytester.runpytest_inprocess().assert_outcomes(errors=1)
