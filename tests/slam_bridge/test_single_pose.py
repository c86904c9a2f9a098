"""Poses in plain numbers are those of `graphopt.geometry`, at every turn."""

import numpy as np

from graphopt.geometry import SO3
from graphopt.geometry.se3_matrix import SE3Matrix
from slam_bridge.single_pose import pose_of, rotation_matrix, unit_quaternion


def turns():
    """Turns of all sizes; half turns and their neighbours about every axis."""
    rng = np.random.default_rng(3)
    exact = [
        [1.0, 0, 0, 0],
        [0, 1.0, 0, 0],
        [0, 0, 1.0, 0],
        [0, 0, 0, 1.0],
        [0.6, 0.8, 0, 0],
        [0, 0.6, 0.8, 0],
    ]
    near = np.repeat(exact, 40, axis=0) + 10.0 ** rng.uniform(-12, -1, (240, 1)) * rng.normal(size=(240, 4))
    every = np.concatenate([exact, near, rng.normal(size=(300, 4))])
    return every / np.linalg.norm(every, axis=1, keepdims=True)


def test_numbers_and_back():
    """Matrices equal those of the group; quaternions come back with w >= 0."""
    for q in turns():
        pose = np.array([1.0, -2.0, 3.0, *q])
        expected = np.asarray(SE3Matrix(pose).numbers)
        np.testing.assert_allclose(rotation_matrix(q).ravel(), expected[3:], atol=1e-15)
        again = pose_of(expected)
        assert again[6] >= 0.0 and abs(np.linalg.norm(again[3:]) - 1.0) < 1e-15
        np.testing.assert_allclose(rotation_matrix(again[3:]), expected[3:].reshape(3, 3), atol=4e-16 * 4)


def test_products():
    """The quaternion of a product of matrices."""
    for q, r in zip(turns()[::7], turns()[3::7], strict=False):
        both = np.array(unit_quaternion((rotation_matrix(q) @ rotation_matrix(r)).ravel().tolist()))
        assert np.abs((SO3(both).inverse() * (SO3(q) * SO3(r))).log()).max() < 1e-14
