"""Groups, alignments and matrices against scipy, closed forms and differences."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.spatial.transform import Rotation

from graphopt.errors import OptionError, ShapeError
from graphopt.geometry import SE2, SE3, SO2, SO3, SE3Matrix, Sim3, product_group, quaternion, vector_group
from graphopt.geometry.alignment import alignment
from graphopt.geometry.arrays import concatenate, matrix, norm, safe_sqrt, stack
from graphopt.geometry.cameras import kannala_brandt
from graphopt.geometry.se3_matrix import QuaternionDerivative

RANDOM = np.random.default_rng(7)


def quaternions() -> np.ndarray:
    """Of all directions and signs, half turns about the axes and beside them, the identity and beside it."""
    special = np.concatenate([np.eye(4), -np.eye(4)])
    beside = special + 1e-5 * RANDOM.normal(size=special.shape)
    q = np.concatenate([RANDOM.normal(size=(60, 4)), special, beside])
    return q / np.linalg.norm(q, axis=1, keepdims=True)


Q = quaternions()
T = RANDOM.normal(size=(len(Q), 3))


def same_rotation(found, expected, atol=1e-15):
    """Quaternions with w >= 0, of the same rotation."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found[:, 3] >= 0.0).all()
    sign = np.sign(np.einsum("ij,ij->i", found, expected))
    np.testing.assert_allclose(found, sign[:, None] * expected, atol=atol)


def test_quaternions_are_scipys():
    """Product, conjugate, rotation of vectors, matrix and back, rotation vector and back."""
    ours, theirs = Q, Rotation.from_quat(Q)
    second, second_theirs = Q[::-1], Rotation.from_quat(Q[::-1])
    product = quaternion.canonical(quaternion.multiply(ours, second))
    same_rotation(product, (theirs * second_theirs).as_quat())
    same_rotation(quaternion.canonical(quaternion.conjugate(ours)), theirs.inv().as_quat())
    np.testing.assert_allclose(quaternion.rotate(ours, T), theirs.apply(T), atol=2e-15)
    np.testing.assert_allclose(quaternion.to_matrix(ours), theirs.as_matrix(), atol=1e-15)
    same_rotation(quaternion.from_matrix(theirs.as_matrix()), ours)
    vectors = theirs.as_rotvec()
    short = np.linalg.norm(vectors, axis=1) < np.pi - 1e-6  # at half a turn both signs are right
    np.testing.assert_allclose(SO3(ours).log()[short], vectors[short], atol=1e-14)
    same_rotation(quaternion.canonical(SO3.exp(vectors).storage), ours)
    same_rotation(SO3(3.0 * ours).normalize().storage, ours)


@pytest.mark.parametrize(
    ("q", "is_one"),
    [
        ([0.0, 0, 0, 1.1e-6], True),
        ([0.0, 0, 0, 0.9e-6], False),
        ([0.0, 0, 0, 0], False),
        ([np.nan, 0, 0, 1], False),
        ([np.inf, 0, 0, 1], False),
        ([1e200, 0, 0, 1], False),
    ],
)
def test_which_quaternions_have_a_direction(q, is_one):
    """Those that are longer than 1e-6 and finite, as is their square."""
    assert quaternion.has_direction(np.array(q)) == is_one


def test_lengths_of_few_digits_stay():
    """Within 1e-3 of 1; others become 1, zero the identity."""
    given = np.array([[0.0, 0.6, 0, 0.8]] * 5) * np.array([[0.9991], [1.0009], [0.9989], [1.0011], [0.0]])
    found = np.linalg.norm(quaternion.nearly_unit(given), axis=1)
    np.testing.assert_allclose(found, [0.9991, 1.0009, 1.0, 1.0, 1.0], rtol=1e-15)
    np.testing.assert_array_equal(quaternion.nearly_unit(given)[4], [0, 0, 0, 1])


@pytest.mark.parametrize("kind", [SE3, SE3Matrix])
def test_motions_are_scipys(kind):
    """Product, inverse, between, action and its inverse; the matrix form keeps a unit quaternion, w >= 0."""
    poses = [kind(np.concatenate([T, Q], axis=1)), kind(np.concatenate([T[::-1] + 1.0, Q[::-1]], axis=1))]
    a, b = Rotation.from_quat(Q), Rotation.from_quat(Q[::-1])
    s, t, point = T, T[::-1] + 1.0, T[::2].repeat(2, axis=0)[: len(T)]
    expected = {
        "compose": (poses[0] * poses[1], a * b, a.apply(t) + s),
        "inverse": (poses[0].inverse(), a.inv(), -a.inv().apply(s)),
        "between": (poses[0].between(poses[1]), a.inv() * b, a.inv().apply(t - s)),
        "normalize": (poses[0].normalize(), a, s),
        "from_parts": (kind.from_parts(s, Q), a, s),
    }
    for name, (found, rotation, translation) in expected.items():
        np.testing.assert_allclose(found.translation, translation, atol=4e-15, err_msg=name)
        np.testing.assert_allclose(found.to_matrix()[:, :3, :3], rotation.as_matrix(), atol=4e-15)
        same_rotation(quaternion.canonical(found.storage[:, 3:]), rotation.as_quat(), 4e-15)
        same_rotation(quaternion.canonical(found.rotation.storage), rotation.as_quat(), 4e-15)
    np.testing.assert_allclose(poses[0] * point, a.apply(point) + s, atol=4e-15)
    np.testing.assert_allclose(poses[0].inverse_act(point), a.inv().apply(point - s), atol=4e-15)


def test_numbers_of_the_matrix_form():
    """Translation, then the matrix by rows; a mixed product takes the other form's."""
    poses = SE3Matrix(np.concatenate([T, Q], axis=1))
    rows = np.concatenate([T, Rotation.from_quat(Q).as_matrix().reshape(-1, 9)], axis=1)
    np.testing.assert_allclose(poses.numbers, rows, atol=1e-15)
    np.testing.assert_array_equal(SE3Matrix.from_numbers(rows).numbers, rows)
    np.testing.assert_array_equal(poses.rotation_matrix, poses.numbers[:, 3:].reshape(-1, 3, 3))
    other = SE3(np.concatenate([T, Q[::-1]], axis=1))
    np.testing.assert_array_equal((poses * other).numbers, (poses * SE3Matrix(other.storage)).numbers)
    same_rotation(poses.quaternion, Q)
    again = eval(
        repr(SE3Matrix(np.array([1.0, 2, 3, 0, 0, 0, 1]))), {"SE3Matrix": SE3Matrix, "array": np.array}
    )
    np.testing.assert_array_equal(again.numbers, [1, 2, 3, 1, 0, 0, 0, 1, 0, 0, 0, 1])


def test_derivative_of_a_matrix_quaternion():
    """That of q_left (d, 1) q_right, whose vector part is taken with w >= 0."""
    left, right = Q, Q[RANDOM.permutation(len(Q))]
    whole = quaternion.multiply(left, right)
    clear = np.abs(whole[:, 3]) > 1e-9  # at half a turn either sign is right
    rotations = [quaternion.to_matrix(q[clear]) for q in (left, right)]
    found = QuaternionDerivative(rotations[0] @ rotations[1]).turning(*rotations)
    sign = np.sign(whole[clear, 3:])
    for k in range(3):
        unit = np.broadcast_to(np.eye(4)[k], left.shape)
        expected = quaternion.multiply(quaternion.multiply(left, unit), right)[clear, :3]
        np.testing.assert_allclose(found[..., k], sign * expected, atol=1e-9)


# ------------------------------------------------------------------------ alignment


def aligned_cost(kind, parameters, source, target):
    """Sum of squared distances: parameters (rotation vector or yaw, translation, scale) of the kind."""
    vector = [0.0, 0.0, parameters[0]] if kind == "yaw" else parameters[:3]
    rest = parameters[1:] if kind == "yaw" else parameters[3:]
    scale = rest[3] if kind == "sim3" else 1.0
    moved = scale * Rotation.from_rotvec(vector).apply(source) + rest[:3]
    return ((moved - target) ** 2).sum()


@pytest.mark.parametrize("kind", ["se3", "sim3", "yaw"])
def test_an_alignment_is_a_minimum(kind):
    """The gradient of the sum of squares is zero there, and turned or mirrored positions cost more."""
    source = RANDOM.normal(size=(40, 3)) * [3.0, 2.0, 0.4] + 5.0
    turn = Rotation.from_rotvec([0.0, 0.0, 2.6] if kind == "yaw" else [0.4, -2.0, 1.1])
    for mirror in (1.0, -1.0):
        target = 1.7 * turn.apply(source * [1.0, 1.0, mirror]) + [1.0, -2.0, 3.0]
        target = target + 0.1 * RANDOM.normal(size=target.shape)
        scale, rotation, shift = alignment(source, target, kind)
        assert np.linalg.det(rotation) == pytest.approx(1.0, abs=1e-12)
        vector = Rotation.from_matrix(rotation).as_rotvec()
        if kind == "yaw":
            np.testing.assert_allclose(vector[:2], 0.0, atol=1e-12)
        found = np.array([*(vector[2:] if kind == "yaw" else vector), *shift, *[scale][: kind == "sim3"]])
        cost = aligned_cost(kind, found, source, target)
        gradient = approx_fprime(found, lambda x, to=target: aligned_cost(kind, x, source, to), 1e-6)
        assert np.abs(gradient).max() < 1e-2 * cost
        for other in RANDOM.normal(size=(50, len(found))):
            assert aligned_cost(kind, found + other, source, target) > cost
        assert kind == "sim3" or scale == 1.0


def test_alignments_of_few_positions():
    """None moves nothing; one position has no scale; an unknown kind, no or odd positions are refused."""
    one, other = np.ones((1, 3)), np.full((1, 3), 4.0)
    for kind in ("se3", "sim3", "yaw"):
        scale, rotation, shift = alignment(one, other, kind)
        assert scale == 1.0
        np.testing.assert_allclose(rotation @ one[0] + shift, other[0], atol=1e-14)
    scale, rotation, shift = alignment(one, other, "none")
    assert scale == 1.0 and np.array_equal(rotation, np.eye(3)) and not shift.any()
    with pytest.raises(OptionError, match="expected one of"):
        alignment(one, other, "sim2")  # type: ignore[arg-type]
    odd, large, nothing = np.full((1, 3), np.nan), np.full((1, 3), 1.1e100), np.zeros((0, 3))
    for pair in ((one, odd), (odd, one), (one, -large), (large, one), (nothing, nothing)):
        with pytest.raises(OptionError, match="finite"):
            alignment(*pair, "se3")
    assert alignment(one, np.full((1, 3), 1e100), "se3")[2][0] == 1e100


# ------------------------------------------------------------------------ arrays, products


def test_joined_arrays_have_numpys_shapes():
    """Plain numbers are broadcast beside batches, of any type of float."""
    batch, few = np.arange(6.0).reshape(2, 3), np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(stack(batch, -batch), np.stack([batch, -batch], axis=-1))
    np.testing.assert_array_equal(
        stack(batch, 1.0, few), np.stack([batch, 0 * batch + 1, 0 * batch + few], -1)
    )
    np.testing.assert_array_equal(stack(few, few), np.stack([few, few], axis=-1))
    np.testing.assert_array_equal(stack(1.0, 2.0), [1.0, 2.0])
    np.testing.assert_array_equal(
        matrix([[1.0, batch], [batch, 4.0], [5.0, 6.0]])[1, 2], [[1, 5], [5, 4], [5, 6]]
    )
    np.testing.assert_array_equal(
        concatenate(batch, batch[:, :1]), np.concatenate([batch, batch[:, :1]], axis=1)
    )


def test_roots_at_and_below_zero():
    """Zero, and on both sides what is right."""
    np.testing.assert_array_equal(safe_sqrt(np.array([-4.0, 0.0, 1e-300, 4.0])), [0.0, 0.0, 1e-150, 2.0])
    np.testing.assert_array_equal(norm(np.array([[0.0, 0.0], [3.0, 4.0], [1e-150, 0.0]])), [0.0, 5.0, 1e-150])


def test_parts_of_products_are_checked():
    """Names, kinds and sizes of parts; a product acts on nothing."""
    with pytest.raises(OptionError, match="needs parts"):
        product_group("Nothing")
    with pytest.raises(OptionError, match="expected a group"):
        product_group("Wrong", part=int)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="cannot be called"):
        product_group("Wrong", inverse=SE3)
    with pytest.raises(OptionError, match="1 or more"):
        vector_group(0)
    assert vector_group(1).storage_dim == 1
    pair = product_group("Pair", turn=SO2, shift=2)
    with pytest.raises(ShapeError, match="has the parts"):
        pair.from_parts(turn=SO2.identity())
    with pytest.raises(ShapeError, match="does not act"):
        pair.identity() * np.zeros(2)
    np.testing.assert_array_equal(vector_group(2)(np.ones(2)) * np.array([3.0, 4.0]), [4.0, 5.0])


def test_adjoint_of_a_product_is_block_diagonal():
    """The blocks of its parts in their order, zero beside them, single or in batches."""
    kind = product_group("Three", flat=SE2, bias=2, space=Sim3)
    tangent = 0.4 * RANDOM.normal(size=(5, kind.tangent_dim))
    found, blocks = kind.exp(tangent).adjoint(), np.zeros((5, 12, 12))
    blocks[:, :3, :3] = SE2.exp(tangent[:, :3]).adjoint()
    blocks[:, 3:5, 3:5] = np.eye(2)
    blocks[:, 5:, 5:] = Sim3.exp(tangent[:, 5:]).adjoint()
    np.testing.assert_array_equal(found, blocks)


def test_a_fisheye_beside_its_axis_has_all_digits():
    """Against atan2 with strong coefficients, so that the series' second terms count, in front and behind."""
    ks, sizes = (3e6, -2e13, 5e20, 1e27), np.array([0.0, 1e-7, 3e-5, 0.99e-4, 1.01e-4, 2e-4])
    for depth in (0.5, 20.0, -3.0):
        at = sizes if depth > 0.0 else sizes[1:]
        points = np.stack([0.6 * depth * at, 0.8 * depth * at, np.full(len(at), depth)], axis=1)
        found = kannala_brandt(points, *(0.0 if depth < 0.0 else k for k in ks))
        angle = np.arctan2(np.hypot(*points[:, :2].T), depth).astype(np.longdouble)
        series = 1.0 if depth < 0.0 else 1.0 + sum(k * angle ** (2 * i + 2) for i, k in enumerate(ks))
        expected = (angle * series)[:, None] * np.sign(depth) * [0.6, 0.8]
        np.testing.assert_allclose(found, np.array(expected, float), rtol=5e-15, atol=0.0)
