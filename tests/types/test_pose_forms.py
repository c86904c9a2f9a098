"""The native passes between poses and matrices have the digits of `SE3Matrix`, which defines them."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.cpu_kernels import kernels
from graphopt.geometry import SE3Matrix


def rotations() -> np.ndarray:
    """(n, 4) quaternions: of all directions, half turns about the axes and near them, with few digits."""
    rng = np.random.default_rng(0)
    q = rng.normal(size=(500, 4))
    q[:200] = np.round(q[:200] / np.linalg.norm(q[:200], axis=1, keepdims=True), 4)
    half = np.concatenate([np.eye(4), -np.eye(4), np.eye(4) + 1e-9 * rng.normal(size=(4, 4))])
    return np.concatenate([q[:200], q[200:] / np.linalg.norm(q[200:], axis=1, keepdims=True), half])


def test_matrices_and_quaternions_are_those_of_the_group():
    """To the bit, also where the trace is negative and where the quaternion is not quite a unit."""
    q = rotations()
    poses = np.concatenate([np.random.default_rng(1).normal(size=(len(q), 3)), q], axis=1)
    numbers = kernels.pose_matrices(poses)
    np.testing.assert_array_equal(numbers, SE3Matrix(poses).numbers)
    back = kernels.poses_of_matrices(numbers)
    np.testing.assert_array_equal(back, SE3Matrix.from_numbers(numbers).storage)
    assert (np.linalg.det(numbers[:, 3:].reshape(-1, 3, 3)) > 0.9).all()
    assert kernels.pose_matrices(poses[:0]).shape == (0, 12)


def test_what_is_not_finite_stays_so():
    """No number is made of NaN or infinity."""
    poses = np.array([[0.0, 0, 0, np.nan, 0, 0, 1], [np.inf, 0, 0, 0, 0, 0, 1]])
    numbers = kernels.pose_matrices(poses)
    assert not np.isfinite(numbers).all(axis=1).any()
    assert not np.isfinite(kernels.poses_of_matrices(numbers)).all(axis=1).any()


@pytest.mark.parametrize("convert", [kernels.pose_matrices, kernels.poses_of_matrices])
def test_other_shapes_are_refused(convert):
    """With the shape that is expected."""
    with pytest.raises(ValueError, match=r"must be \(n, (7|12)\)"):
        convert(np.zeros((2, 5)))
