"""Depths of observed points in their cameras, by products of rows that are named by number."""

from __future__ import annotations

import numpy as np
import pytest

import slam_bridge as sb
from graphopt.cpu_kernels import kernels
from graphopt.geometry import SE3, SO3
from slam_bridge.selection import select


def test_row_products_are_those_of_numpy():
    """shift[i] + a[i] . b[j] for every pair of rows; numbers that are none stay none."""
    rng = np.random.default_rng(0)
    a, b, shift = rng.normal(size=(5, 3)), rng.normal(size=(40, 3)), rng.normal(size=5)
    b[7] = np.nan
    i, j = rng.integers(0, 5, 900), rng.integers(0, 40, 900)
    expected = shift[i] + np.einsum("oc,oc->o", a[i], b[j])
    np.testing.assert_allclose(kernels.row_products(a, i, b, j, shift), expected, rtol=1e-13, atol=1e-14)
    assert kernels.row_products(a, i[:0], b, j[:0], shift).shape == (0,)


def test_row_products_refuse_rows_beyond():
    """A row that is not there, a length or a width that does not fit is named."""
    a, b, shift = np.zeros((2, 3)), np.zeros((4, 3)), np.zeros(2)
    with pytest.raises(IndexError, match="b_rows has row 4 of a table with 4 rows"):
        kernels.row_products(a, np.array([0]), b, np.array([4]), shift)
    with pytest.raises(IndexError, match="a_rows has row -1"):
        kernels.row_products(a, np.array([-1]), b, np.array([0]), shift)
    with pytest.raises(ValueError, match="b_rows must have length 1"):
        kernels.row_products(a, np.array([0]), b, np.array([0, 1]), shift)
    with pytest.raises(ValueError, match="shift"):
        kernels.row_products(a, np.array([0]), b, np.array([0]), np.zeros(3))
    with pytest.raises(ValueError, match="must be"):
        kernels.row_products(a, np.array([0]), np.zeros((4, 2)), np.array([0]), shift)


@pytest.mark.parametrize("num_cameras", [1, 2])
def test_depths_are_z_in_the_cameras_of_a_rig(num_cameras):
    """For turned and shifted mountings, one camera or several."""
    rng = np.random.default_rng(1)
    mountings = [
        np.array([*rng.normal(size=3), *np.asarray(SO3.exp(rng.normal(size=3)).storage)])
        for _ in range(num_cameras)
    ]
    rig = sb.Rig([sb.Camera.pinhole(mounting, 400.0, 400.0, 320.0, 240.0) for mounting in mountings])
    world = sb.Map(rig)
    poses = np.asarray(SE3.exp(rng.normal(size=(4, 6))).storage)
    keyframes = world.add_keyframes(np.arange(4), poses)
    landmarks = world.add_landmarks(rng.normal(size=(30, 3)))
    frame, point = np.repeat(np.arange(4), 30), np.tile(np.arange(30), 4)
    camera = rng.integers(0, num_cameras, 120)
    world.add_observations(keyframes[frame], landmarks[point], rng.normal(size=(120, 2)), camera=camera)
    chosen = select(world, keyframes)
    np.testing.assert_allclose(
        chosen.depths_in_cameras(), chosen.points_in_cameras()[:, 2], rtol=1e-12, atol=1e-12
    )
