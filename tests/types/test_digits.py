"""Edge types and groups against 60 digits, errors in units in the last place: see `tools/digits.py`."""

import digits
import mpmath
import numpy as np
import pytest
from builtin_edges import EDGES

from graphopt import geometry
from graphopt.symbolic import as_exprs, evaluate, jacobian, variables
from graphopt.symbolic.expr import const

BOUNDS = {"residual": 30.0, "jacobian": 100.0, "chi2": 30.0, "step": 30.0}
"""Units that a few dozen operations, each rounded, may add up to."""

CASES = [(kind, name) for kind in EDGES for name in digits.SITUATIONS]
SAMPLE = CASES[::97]


def assert_few_units(kind, name, seed=0):
    units = digits.measure(digits.make_case(kind, digits.SITUATIONS[name], seed), seed)
    for what, bound in BOUNDS.items():
        assert getattr(units, what) < bound, f"{kind.tag}, {name}: {what} is off by {units}"


@pytest.mark.parametrize(("kind", "name"), SAMPLE, ids=lambda x: getattr(x, "tag", x))
def test_edges_have_all_digits(kind, name):
    """Residual, Jacobian, chi2 and step of some types, each in one situation."""
    assert_few_units(kind, name)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", EDGES, ids=lambda kind: kind.tag)
def test_every_edge_has_all_digits_in_every_situation(kind):
    """Rotations near the identity and near half a turn, points beside the camera, sizes of 1e-8 and 1e8."""
    for name in digits.SITUATIONS:
        for seed in (0, 1):
            assert_few_units(kind, name, seed)


def hat(group, tangent):
    """Matrix of the Lie algebra, of `Exact` or float."""
    zero, one = 0.0 * tangent[0], 1.0
    if group is geometry.SO2:
        return [[zero, -tangent[0]], [tangent[0], zero]]
    if group is geometry.SE2:
        x, y, w = tangent
        return [[zero, -w, x], [w, zero, y], [zero] * 3]
    a, b, c = tangent[:3]
    scale = tangent[6] * one if group is geometry.Sim3 else zero
    rows = [[scale, -c, b], [c, scale, -a], [-b, a, scale]]
    if group is geometry.SO3:
        return rows
    return [[*row, t] for row, t in zip(rows, tangent[3:6], strict=True)] + [[zero] * 4]


GROUPS = (geometry.SO2, geometry.SE2, geometry.SO3, geometry.SE3, geometry.Sim3)
ANGLES = (0.0, 1e-9, 1e-5, 2e-4, 1e-2, 0.099, 0.101, 0.3, 0.32, 0.65, 2.0, np.pi - 1e-7)


def tangents(group, every):
    """One per angle; of similarities also with a small, and no, change of scale. Of these each `every`-th."""
    rng = np.random.default_rng(3)
    angles = [
        (angle, sigma)
        for sigma in ((0.0, 1e-6, 1e-3, 0.2, -0.7) if group is geometry.Sim3 else (None,))
        for angle in ANGLES
    ]
    for angle, sigma in angles[::every]:
        tangent = rng.standard_normal(group.tangent_dim)
        axis = [-1] if group in (geometry.SO2, geometry.SE2) else slice(0, 3)
        tangent[axis] *= angle / np.linalg.norm(tangent[axis])
        if sigma is not None:
            tangent[6] = sigma
        yield tangent


def exponential_matrix(group, tangent):
    """By the series of the matrix exponential, 60 digits."""
    return mpmath.expm(mpmath.matrix([[digits.scalar(x) for x in row] for row in hat(group, tangent)]))


every = pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.nightly)])


@every
@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_exponentials_are_those_of_the_matrix(group, every):
    """Within 8 units of the largest entry; the logarithm brings the tangent back."""
    for tangent in tangents(group, every):
        with mpmath.workdps(60):
            expected = exponential_matrix(group, digits.exact(tangent))
            element = group.exp(tangent)
            found = np.asarray(element.to_matrix())
            errors = [
                [abs(float(mpmath.mpf(found[i, j]) - expected[i, j])) for j in range(len(found))]
                for i in range(len(found))
            ]
        assert np.max(errors) < 8 * digits._EPS * np.abs(found).max(), tangent
        back = np.asarray(element.log())
        # an angle near pi is known to the square root less
        assert np.abs(back - tangent).max() < 30 * digits._EPS * (1.0 + np.abs(found).max()), tangent


def compiled_jacobian(function, count):
    """Function (count,) -> (m, count) that evaluates the derivative as the compiler writes it."""
    x = variables("x", count)
    rows = jacobian(as_exprs(function(x)), [{each: const(1.0)} for each in x])

    def at(values):
        names = {each.value: np.float64(v) for each, v in zip(as_exprs(x), values, strict=True)}
        return np.array(evaluate([e for row in rows for e in row], names), float).reshape(len(rows), count)

    return at


@every
@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_derivatives_of_exponentials_and_logarithms(group, every):
    """Those of exp beside differences with 60 digits; those of log are their inverse."""
    size = group.tangent_dim
    of_exp = compiled_jacobian(lambda v: group.exp(v).to_matrix().ravel(), size)
    of_both = compiled_jacobian(lambda v: group.exp(v).log(), size)
    for tangent in tangents(group, every):
        found, columns = of_exp(tangent), []
        with mpmath.workdps(60):
            at = digits.exact(tangent)
            for k in range(size):
                ends = []
                for sign in (1, -1):
                    moved = at.copy()
                    moved[k] = moved[k] + digits.Exact(sign * digits._STEP)
                    ends.append(exponential_matrix(group, moved))
                columns.append(list((ends[0] - ends[1]) / (2 * digits._STEP)))
        expected = np.array(columns, float).T
        room = 60 if group is geometry.Sim3 else 20
        assert np.abs(found - expected).max() < room * digits._EPS * np.abs(expected).max(), tangent
        identity = of_both(tangent)
        room = 200 if group is geometry.Sim3 else 50
        assert np.abs(identity - np.eye(size)).max() < room * digits._EPS * np.abs(expected).max(), tangent
