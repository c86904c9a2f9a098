"""Invariants of the groups: axioms, exponential and logarithm, adjoint, matrices."""

import numpy as np
import pytest
from group_strategies import EVERY_GROUP, SHAPES, elements, tangents
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.errors import ShapeError
from graphopt.geometry import (
    GROUPS,
    SE3,
    SO3,
    Sim3,
    normalize_angle,
    quaternion,
)
from graphopt.geometry.sim3 import translation_coefficients
from graphopt.geometry.so3 import exp_coefficients

SIZES = [0.0, 1e-12, 1e-8, 1e-5, 1e-3, 0.05, 0.3, 1.0]

groups = pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def random_tangent(group, shape, size, seed=0):
    """Tangent vectors whose rotation is shorter than pi."""
    return size * np.random.default_rng(seed).uniform(-1.7, 1.7, (*shape, group.tangent_dim))


def random_element(group, shape, seed=0):
    """Random elements, some with large rotations."""
    return group.exp(random_tangent(group, shape, 1.0, seed))


LAWS = {
    "inverse": lambda one, a, b, c, d: (a * a.inverse(), one),
    "neutral element": lambda one, a, b, c, d: (one * a, a),
    "inverse of a product": lambda one, a, b, c, d: ((a * b).inverse(), b.inverse() * a.inverse()),
    "associativity": lambda one, a, b, c, d: ((a * b) * c, a * (b * c)),
    "between": lambda one, a, b, c, d: (a.between(b), a.inverse() * b),
    "exp inverts log": lambda one, a, b, c, d: (a.exp((a * b).log()), a * b),
    "normalize": lambda one, a, b, c, d: (a.normalize(), a),
    "adjoint moves a tangent across": lambda one, a, b, c, d: (
        a * a.exp(d), a.exp((a.adjoint() @ d[..., None])[..., 0]) * a,
    ),
}  # fmt: skip
"""(identity, elements a, b, c, tangent d) -> what is equal."""


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(EVERY_GROUP), st.sampled_from(SHAPES))
def test_laws_of_every_group(data, group, shape):
    """Elements of any rotation, alone and in batches: x is y where log(x^-1 y) is 0."""
    a, b, c = (data.draw(elements(group, shape)) for _ in range(3))
    tangent = 0.3 * data.draw(tangents(group, shape))
    for name, law in LAWS.items():
        left, right = law(group.identity(shape), a, b, c, tangent)
        assert left.storage.shape[:-1] == shape
        np.testing.assert_allclose((left.inverse() * right).log(), 0.0 * tangent, atol=2e-13, err_msg=name)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(GROUPS), st.sampled_from(SHAPES))
def test_composition_is_the_product_of_matrices(data, group, shape):
    """to_matrix is a homomorphism, and from_matrix its inverse."""
    a, b = data.draw(elements(group, shape)), data.draw(elements(group, shape))
    m = a.to_matrix()
    np.testing.assert_allclose((a * b).to_matrix(), m @ b.to_matrix(), atol=1e-14)
    np.testing.assert_allclose(group.from_matrix(m).to_matrix(), m, atol=1e-14)


@groups
@shapes
def test_action_agrees_with_matrix_and_composition(group, shape):
    """Acting on p is the matrix applied to p; (a b) p = a (b p); inverse_act undoes it."""
    a, b = random_element(group, shape, 8), random_element(group, shape, 9)
    dim = 2 if group.__name__ in ("SO2", "SE2") else 3
    point = np.random.default_rng(1).normal(size=(*shape, dim))
    m = a.to_matrix()
    if m.shape[-1] == dim:
        expected = (m @ point[..., None])[..., 0]
    else:
        expected = (m[..., :dim, :dim] @ point[..., None])[..., 0] + m[..., :dim, dim]
    np.testing.assert_allclose(a * point, expected, atol=1e-14)
    np.testing.assert_allclose((a * b) * point, a * (b * point), atol=1e-13)
    np.testing.assert_allclose(a.inverse_act(a * point), point, atol=1e-13)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from(EVERY_GROUP), st.sampled_from(SHAPES), st.sampled_from(SIZES))
def test_log_inverts_exp(data, group, shape, size):
    """log(exp(d)) = d to rounding, from zero to rotations close to pi."""
    tangent = size * data.draw(tangents(group, shape))
    # the scale e^sigma is near 1, so sigma has an absolute error
    atol = 5e-16 if group is Sim3 else 1e-15 * size
    np.testing.assert_allclose(group.exp(tangent).log(), tangent, rtol=1e-13, atol=atol)


@groups
def test_exp_is_the_matrix_exponential(group):
    """Exponentials follow one-parameter subgroups: exp(d) = exp(d / 1024)^1024."""
    tangent = random_tangent(group, (20,), 1.0, 12)
    power = group.exp(tangent / 1024.0)
    for _ in range(10):
        power = power * power
    np.testing.assert_allclose(group.exp(tangent).to_matrix(), power.to_matrix(), atol=1e-11)


@groups
def test_derivative_of_exp_and_log_at_zero_is_the_identity(group):
    """Central differences of log(exp(d)) across zero are the unit matrix: no jump and no kink."""
    h = 1e-6
    for i, direction in enumerate(np.eye(group.tangent_dim)):
        difference = (group.exp(h * direction).log() - group.exp(-h * direction).log()) / (2 * h)
        np.testing.assert_allclose(difference, np.eye(group.tangent_dim)[i], atol=1e-9)


@pytest.mark.parametrize("angle", [np.pi - 1e-3, np.pi - 1e-7, np.pi - 1e-11, np.pi])
def test_rotation_close_to_half_a_turn(angle):
    """Logarithms find angle and axis (up to its sign at pi) where the quaternion's w is almost zero."""
    axes = np.random.default_rng(2).normal(size=(50, 3))
    axes /= np.linalg.norm(axes, axis=-1, keepdims=True)
    rotation = SO3.exp(angle * axes)
    log = rotation.log()
    np.testing.assert_allclose(np.linalg.norm(log, axis=-1), angle, atol=1e-14)
    np.testing.assert_allclose(SO3.exp(log).to_matrix(), rotation.to_matrix(), atol=1e-14)
    np.testing.assert_allclose(
        SO3.from_matrix(rotation.to_matrix()).to_matrix(), rotation.to_matrix(), atol=1e-14
    )


def test_from_matrix_takes_every_branch():
    """Half turns about each axis, where three of the four divisors of the conversion are zero."""
    for m in (np.eye(3), np.diag([1.0, -1, -1]), np.diag([-1.0, 1, -1]), np.diag([-1.0, -1, 1])):
        np.testing.assert_array_equal(SO3.from_matrix(m).to_matrix(), m)


def test_normalize_angle_range():
    """The result is in (-pi, pi], equal modulo a turn, and untouched if it was in range."""
    angles = np.linspace(-30.0, 30.0, 1001)
    wrapped = normalize_angle(angles)
    assert np.all((wrapped > -np.pi) & (wrapped <= np.pi))
    np.testing.assert_allclose(np.exp(1j * wrapped), np.exp(1j * angles), atol=1e-13)
    inside = np.linspace(-3.14, 3.14, 101)
    np.testing.assert_array_equal(normalize_angle(inside), inside)
    assert normalize_angle(np.pi) == np.pi
    assert normalize_angle(-np.pi) == np.pi


def test_series_meet_closed_forms():
    """The coefficients of SO(3) and Sim(3) agree with integrals on both sides of each switch."""
    x, weights = np.polynomial.legendre.leggauss(40)
    x, weights = 0.5 * (x + 1.0), 0.5 * weights
    for t2 in (1e-12, 1e-4, 9.99e-3, 1.01e-2, 0.0999, 0.1001, 1.0, 9.0):
        t = np.sqrt(t2)
        sine, versine = np.sin(t * x) / t, 2.0 * np.sin(0.5 * t * x) ** 2 / t2
        for sigma in (0.0, 1e-9, -1e-4, 0.299, -0.301, 1.3):
            growth = np.exp(sigma * x)
            expected = (weights @ (growth * sine), weights @ (growth * versine), weights @ growth)
            got = translation_coefficients(np.array(t2), np.array(sigma))
            np.testing.assert_allclose(got, expected, rtol=1e-12)  # B is multiplied by t^2
    for t2 in (1e-12, 1e-4, 1e-2, 0.0499, 0.0501, 1.0, 9.0):
        t = np.sqrt(t2)
        expected = (
            np.sin(t) / t,
            weights @ np.sin(t * x) / t,
            weights @ (2.0 * np.sin(0.5 * t * x) ** 2) / t2,
        )
        np.testing.assert_allclose(
            exp_coefficients(np.array(t2)), expected, rtol=2e-15 if t2 < 0.05 else 2e-14
        )


def test_vector_part_of_a_quaternion():
    """vector_part inverts from_vector_part, chooses w >= 0, and |v| > 1 gives the identity."""
    v = np.random.default_rng(3).uniform(-0.55, 0.55, (30, 3))
    q = quaternion.from_vector_part(v)
    np.testing.assert_allclose(np.linalg.norm(q, axis=-1), 1.0, atol=1e-15)
    np.testing.assert_allclose(quaternion.vector_part(-q), v, atol=1e-16)
    np.testing.assert_array_equal(quaternion.from_vector_part(np.array([0.0, 0.8, 0.9])), [0, 0, 0, 1])


def test_where_quaternions_are():
    """Behind the translation, if there is one; q and -q in these four numbers are one element."""
    for group, first in ((SO3, 0), (SE3, 3), (Sim3, 3)):
        assert group.quaternions == (first,)
        element = random_element(group, (), 16)
        other = element.storage.copy()
        other[first : first + 4] *= -1.0
        np.testing.assert_array_equal(group(other).to_matrix(), element.to_matrix())


def test_wrong_storage_length_is_refused():
    """The error says which class, what shape, and what was expected."""
    with pytest.raises(ShapeError, match=r"SE3: storage has shape \(6,\), expected \(\.\.\., 7\)"):
        SE3(np.zeros(6))
