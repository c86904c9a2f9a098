"""Two results are compared number by number, and the exit status says whether anything got worse."""

from pathlib import Path

import pytest

from graphopt.cli.main import main
from graphopt.errors import OptionError
from graphopt.evaluate.compare import compare
from graphopt.evaluate.results import Results


def results(**entries: dict) -> Results:
    return Results(
        "bal",
        {},
        entries={key: {"problem": key, "solver": "auto", **entry} for key, entry in entries.items()},
    )


def verdicts(before: Results, after: Results, tolerance: float = 0.1) -> dict[tuple[str, str], str]:
    return {(change.key, change.column): change.verdict for change in compare(before, after, tolerance)}


def test_times_have_a_tolerance_and_errors_a_tighter_one() -> None:
    before = results(a={"seconds": 1.0, "mse": 1.0, "memory_bytes": 100})
    after = results(a={"seconds": 1.05, "mse": 1.05, "memory_bytes": 50})
    assert verdicts(before, after) == {
        ("a", "MSE"): "worse",
        ("a", "time"): "same",
        ("a", "memory"): "better",
    }


def test_entries_that_come_go_fail_and_recover() -> None:
    before = results(a={"error": "x"}, b={"mse": 1.0}, c={"mse": 1.0})
    after = results(a={"mse": 1.0}, b={"error": "y"}, d={"mse": 1.0})
    assert verdicts(before, after) == {
        ("a", ""): "mended",
        ("b", ""): "failed",
        ("c", ""): "only in A",
        ("d", ""): "only in B",
    }


def test_other_kinds_are_refused() -> None:
    with pytest.raises(OptionError, match="no numbers in common"):
        compare(results(), Results("trajectory", {}), 0.1)


def test_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    results(a={"mse": 1.0}).save(tmp_path / "x")
    results(a={"mse": 2.0}).save(tmp_path / "y")
    assert main(["compare", str(tmp_path / "x"), str(tmp_path / "x")]) == 0
    assert main(["compare", str(tmp_path / "x"), str(tmp_path / "y")]) == 1
    assert "worse" in capsys.readouterr().out
    assert main(["compare", str(tmp_path / "y"), str(tmp_path / "x")]) == 0
