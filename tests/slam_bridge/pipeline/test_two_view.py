"""Rays of two views give back the points and motion they were made from, for pinhole and fisheye alike."""

import numpy as np
import pytest

from graphopt.geometry import SE3, SO3
from slam_bridge import Camera
from slam_bridge.pipeline.two_view import rays_of, two_views
from slam_bridge.rays import triangulate

CAMERAS = {
    "radtan": Camera(
        np.array(SE3.identity_storage),
        "radtan",
        np.array([458.0, 457.0, 367.0, 248.0, -0.28, 0.074, 2e-4, 2e-5, 0.0]),
    ),
    "kb8": Camera(
        np.array(SE3.identity_storage),
        "kb8",
        np.array([190.0, 190.0, 254.0, 256.0, 0.003, 0.001, -0.002, 0.0003]),
    ),
}


def scene(camera, seed=0, count=200, flat=False):
    """Points ahead of two cameras, their rays in both, and b_T_a; flat: the points lie on a wall."""
    rng = np.random.default_rng(seed)
    pixel = rng.uniform([40.0, 40.0], [470.0, 440.0], (count, 2))
    ray = rays_of(camera, pixel, np.deg2rad(80.0))
    pixel, ray = pixel[np.isfinite(ray[:, 0])], ray[np.isfinite(ray[:, 0])]
    depth = 4.0 / ray[:, 2] if flat else rng.uniform(2.0, 8.0, len(ray))
    points = ray * depth[:, None]
    b_T_a = SE3(np.concatenate([[0.4, -0.1, 0.1], SO3.exp(np.array([0.05, -0.1, 0.08])).storage]))
    there = np.asarray(b_T_a.act(points))
    return points, ray, there / np.linalg.norm(there, axis=1, keepdims=True), b_T_a


@pytest.mark.parametrize("name", CAMERAS)
def test_triangulation_gives_back_the_points(name):
    """Without noise points come back exactly, and the parallax is the angle between the rays."""
    points, ray_a, ray_b, b_T_a = scene(CAMERAS[name])
    a_T_b = b_T_a.inverse()
    turned = np.asarray(a_T_b.rotation.act(ray_b))
    seen = triangulate(np.zeros(3), ray_a, np.asarray(a_T_b.translation), turned)
    np.testing.assert_allclose(seen.points, points, atol=1e-9)
    assert seen.error.max() < 1e-9
    np.testing.assert_allclose(np.cos(seen.parallax), (ray_a * turned).sum(axis=1), atol=1e-12)


def test_points_behind_a_camera_and_parallel_rays_are_refused():
    """Rays that meet behind, and rays that never meet, have an infinite error."""
    ray = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    other = np.array([[0.5, 0.0, np.sqrt(0.75)], [0.0, 0.0, 1.0]])  # diverging, parallel
    seen = triangulate(np.zeros(3), ray, np.array([1.0, 0.0, 0.0]), other)
    assert np.isinf(seen.error).all()


@pytest.mark.parametrize("name", CAMERAS)
def test_two_views_find_the_motion_among_wrong_matches(name):
    """A fifth of the matches is wrong and all are noisy: rotation within 0.5 degrees, direction within 3."""
    _, ray_a, ray_b, b_T_a = scene(CAMERAS[name])
    rng = np.random.default_rng(5)
    sigma = 1.0 / 460.0
    ray_b = ray_b + 0.5 * sigma * rng.standard_normal(ray_b.shape)
    wrong = np.arange(len(ray_b)) % 5 == 0
    ray_b[wrong] = ray_a[wrong] + 0.1 * rng.standard_normal((wrong.sum(), 3))
    ray_b /= np.linalg.norm(ray_b, axis=1, keepdims=True)
    found = two_views(ray_a, ray_b, sigma)
    assert found is not None
    error = SE3(found.b_T_a).rotation.inverse() * b_T_a.rotation
    assert np.rad2deg(np.linalg.norm(error.log())) < 0.5
    way = np.asarray(b_T_a.translation)
    cosine = found.b_T_a[:3] @ way / np.linalg.norm(way)
    assert np.rad2deg(np.arccos(cosine)) < 3.0
    assert found.inliers[~wrong].mean() > 0.9
    assert found.inliers[wrong].mean() < 0.2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CAMERAS)
def test_a_wall_gives_the_right_motion_or_none(name, seed):
    """Of points on a plane two motions may fit; the wrong one is never returned."""
    _, ray_a, ray_b, b_T_a = scene(CAMERAS[name], seed, flat=True)
    rng = np.random.default_rng(seed)
    ray_b = ray_b + 0.5 / 460.0 * rng.standard_normal(ray_b.shape)
    ray_b /= np.linalg.norm(ray_b, axis=1, keepdims=True)
    found = two_views(ray_a, ray_b, 1.0 / 460.0)
    if found is not None:
        error = SE3(found.b_T_a).rotation.inverse() * b_T_a.rotation
        assert np.rad2deg(np.linalg.norm(error.log())) < 2.0


def test_two_views_refuse_too_few_matches():
    """Five-point RANSAC with seven matches says nothing that could be checked."""
    _, ray_a, ray_b, _ = scene(CAMERAS["radtan"], count=7)
    assert two_views(ray_a, ray_b, 1.0 / 460.0) is None
