"""Examples that fit curves: NIST's certified values, and scipy's answers to the same problems."""

import numpy as np
import pytest
from examples_modules import (
    command,
    curve_fitting,
    nist,
    own_types,
    sympy_residual,
)

import graphopt

__all__ = ["own_types"]  # a fixture of this module

DAT = """NIST/ITL StRD
Dataset Name:  DanWood           (DanWood.dat)

Number of Observations:  {count}
Model:     y  = b1*x**b2  +  e

        Start 1     Start 2           Parameter     Standard Deviation
  b1 =   1           0.7           2.0000000000E+00  1.8281973860E-02
  b2 =   5           4             3.0000000000E+00  5.1726610913E-02

Residual Sum of Squares:                    0.0000000000E+00

Data:  y              x
      2.000E0        1.000E0
     16.000E0        2.000E0
     54.000E0        3.000E0
"""


@pytest.mark.data
def test_certified_values_give_the_certified_sum(shared_data):
    """The models are NIST's, and the copies of the files have no other misprint than the known one."""
    for path in sorted((shared_data / "nist").glob("*.dat")):
        problem = nist.read_nist(path)
        x = problem.predictors.T
        response = nist.TRANSFORMS.get(problem.name, np.positive)(problem.response)
        residual = nist.MODELS[problem.name](problem.certified, *x) - response
        assert residual @ residual == pytest.approx(problem.residual_sum, rel=2e-6), path.name


def test_every_model_is_differentiated():
    """All models of the collection, those of files that are not here too, compile and have finite errors."""
    counts = {"Bennett5": 3, "Eckerle4": 3, "ENSO": 9, "Hahn1": 7, "MGH10": 3, "Rat43": 4, "Thurber": 7}
    for name, count in counts.items():
        truth = np.linspace(1.0, 2.0, count)
        x = np.linspace(1.0, 4.0, 20)
        problem = nist.Problem(name, x[:, None], nist.MODELS[name](truth, x), truth[None], truth, 0.0)
        _, summary = nist.fit(problem, truth * 1.001, options=nist.METHODS["auto"], device="cpu")
        assert summary.final_chi2 < 1e-3 * summary.iterations[0].chi2 or summary.final_chi2 < 1e-12, name


def test_a_file_is_read(tmp_path):
    """Names, starts, certified values and data."""
    path = tmp_path / "DanWood.dat"
    path.write_text(DAT.format(count=3))
    rows = nist.main(["--data", str(path), "--device", "cpu", "-o", str(tmp_path / "table.csv")])
    assert [row[:2] for row in rows] == [("DanWood", 1), ("DanWood", 2)]
    assert min(row[2] for row in rows) > 10.0
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [("hello", "no StRD file"), (DAT.format(count=4), "3 rows of data, its header says 4")],
)
def test_a_wrong_file_is_named(tmp_path, text, message):
    """Neither a traceback nor an answer."""
    path = tmp_path / "wrong.dat"
    path.write_text(text)
    with pytest.raises(command.ExampleError, match=message):
        nist.read_nist(path)


def test_robust_curve_is_the_one_of_scipy():
    """Cauchy's kernel of scipy, with the same width."""
    from scipy.optimize import least_squares

    samples = curve_fitting.generated()
    found, summary = curve_fitting.fit(samples, "Cauchy", "cpu")
    x, y = samples.T
    expected = least_squares(
        lambda b: (curve_fitting.oscillation(b, x) - y) / curve_fitting.NOISE,
        [1.9, 0.3, 0.48],
        loss="cauchy",
        f_scale=2.0,
        xtol=1e-12,
        ftol=1e-12,
    )
    np.testing.assert_allclose(found, expected.x, atol=1e-4)
    assert summary.final_chi2 == pytest.approx(2.0 * expected.cost, rel=1e-6)
    np.testing.assert_allclose(found, curve_fitting.TRUTH, atol=0.05)
    plain, _ = curve_fitting.fit(samples, None, "cpu")
    assert np.abs(plain - curve_fitting.TRUTH).max() > 0.15


def test_arm_is_calibrated():
    """SymPy's residual gives the minimum that scipy finds with a residual written by hand."""
    from scipy.optimize import least_squares

    readings = sympy_residual.generated()
    angles, seen = readings[:, :3], readings[:, 3:]

    def residual(b):
        heading = np.cumsum(angles + b[5:], axis=1)
        hand = b[:2] + np.stack([np.cos(heading) @ b[2:5], np.sin(heading) @ b[2:5]], axis=1)
        return ((hand - seen) / sympy_residual.NOISE).ravel()

    expected = least_squares(residual, sympy_residual.NOMINAL)
    found, summary = sympy_residual.calibrate(readings, device="cpu")
    np.testing.assert_allclose(found, expected.x, atol=1e-6)
    assert summary.final_chi2 == pytest.approx(2.0 * expected.cost, rel=1e-8)
    np.testing.assert_allclose(found, sympy_residual.TRUTH, atol=0.002)
    assert isinstance(summary, graphopt.Summary)
