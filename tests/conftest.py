"""Fixtures that every test may use."""

import os
import signal
from collections import defaultdict
from pathlib import Path

import pytest

# a shell starts background jobs with Ctrl-C ignored; tests press it
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real data sets beside the checkout (or in $GRAPHOPT_SHARED/data)."""
    root = Path(os.environ.get("GRAPHOPT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (root / "data").is_dir():
        reason = f"no real data sets at {root / 'data'}"
        if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
            pytest.fail(f"{reason}: in continuous integration (CI is set) they are needed")
        pytest.skip(reason)
    return root / "data"


def pytest_terminal_summary(terminalreporter):
    """Tests that did not run, whole, by reason: a missing library or data set must not look like success."""
    reasons = defaultdict(list)
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, (tuple, list)) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")].append(report.nodeid)
    if reasons:
        terminalreporter.section("did not run")
    for reason, names in sorted(reasons.items()):
        terminalreporter.line(f"{len(names)} x {reason}")
        for name in sorted(set(names)):
            terminalreporter.line(f"    {name}")


@pytest.fixture(scope="session")
def reference_runs(shared_data: Path) -> dict:
    """Recorded runs of g2o: chi2 after each iteration, per graph and algorithm."""
    import json

    return json.loads((shared_data.parent / "reference" / "g2o_runs.json").read_text())


@pytest.fixture
def own_types():
    """Types that a test defines are gone after it."""
    from graphopt.types import registry

    known = set(registry.all_types())
    yield
    for kind in set(registry.all_types()) - known:
        registry.unregister(kind)


@pytest.fixture(autouse=True)
def number_of_threads():
    """The pool has as many threads after a test as before it."""
    try:
        from graphopt.cpu_kernels import kernels
    except ImportError:  # a source tree that was not built
        yield
        return
    before = kernels.num_threads()
    yield
    if kernels.num_threads() != before:
        kernels.set_num_threads(before)


@pytest.fixture(params=[1, 3])
def threads(request):
    """So many threads, which are the fixture's parameter."""
    from graphopt.cpu_kernels import kernels

    kernels.set_num_threads(request.param)
    return request.param
