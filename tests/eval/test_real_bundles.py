"""Real bundle adjustment problems: final errors equal an independent solver's (Ceres) or are lower."""

import pytest

from graphopt.cli.main import main
from graphopt.evaluate.results import load

pytestmark = pytest.mark.data


@pytest.mark.parametrize("name", ["gtsfm_crane_mast_8.bal.txt", "problem-49-7776-pre.txt"])
def test_the_final_error_is_ceres_or_lower(shared_data, tmp_path, name):
    """Both from the file's estimates, each with its own stop rule; chi2 of both by one formula."""
    pytest.importorskip("pyceres", reason="pyceres, the oracle of bundle adjustment, is not installed")
    (path,) = sorted((shared_data / "bal").glob(f"{name}*"))
    arguments = ["--peers", "pyceres", "--runs", "1", "-o", str(tmp_path)]
    assert main(["eval", "bal", str(path), *arguments]) == 0
    by_solver = {entry["solver"]: entry["mse"] for entry in load(tmp_path).entries.values()}
    assert by_solver["auto"] <= by_solver["pyceres"] * (1.0 + 1e-4)
