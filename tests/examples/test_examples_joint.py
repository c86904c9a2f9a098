"""Shape and shading, bundle fusion: the energy is what numpy says, the truth is found again."""

from itertools import combinations

import numpy as np
import pytest
from examples_modules import bundle_fusion, own_types, shape_and_shading
from scipy.ndimage import map_coordinates
from scipy.spatial.transform import Rotation
from vulkan_devices import shared_device

__all__ = ["own_types"]  # a fixture of this module

# ------------------------------------------------------------------ shape and shading


@pytest.fixture(scope="module")
def refined():
    """A scan, and depth, light and summary of the plain residuals."""
    scan = shape_and_shading.generated(32)
    return scan, *shape_and_shading.refine(scan, device="cpu", computed="inline")


def shades(depth, light, camera):
    """Brightness of all pixels that have a left and an upper neighbour, from cross products of points."""
    f_x, f_y, c_x, c_y = camera
    y, x = np.mgrid[: depth.shape[0], : depth.shape[1]]
    points = depth[..., None] * np.dstack([(x - c_x) / f_x, (y - c_y) / f_y, np.ones_like(depth)])
    normal = np.cross(points[1:, 1:] - points[:-1, 1:], points[1:, 1:] - points[1:, :-1])
    a, b, c = np.moveaxis(normal / np.linalg.norm(normal, axis=2, keepdims=True), 2, 0)
    harmonics = [np.ones_like(a), b, c, a, a * b, b * c, 2 * c * c - a * a - b * b, c * a, a * a - b * b]
    return np.pad(np.tensordot(light, harmonics, 1), ((1, 0), (1, 0)))


def test_energy_of_shape_and_shading(refined):
    """All terms, the normals from cross products."""
    scan, depth, light, summary = refined
    shade, step = shades(depth, light, scan.camera), slice(1, -1)
    cost = 2000.0 * ((depth - scan.depth) ** 2).sum()
    off = (shade - scan.intensity)[step, step]
    cost += 5.0 * (off**2).sum() + 50.0 * sum((np.diff(off, axis=k) ** 2).sum() for k in (0, 1))
    f_x, f_y, c_x, c_y = scan.camera
    y, x = np.mgrid[: depth.shape[0], : depth.shape[1]]
    points = depth[..., None] * np.dstack([(x - c_x) / f_x, (y - c_y) / f_y, np.ones_like(depth)])
    laplacian = 4.0 * points[1:-1, 1:-1] - points[:-2, 1:-1] - points[2:, 1:-1]
    laplacian -= points[1:-1, :-2] + points[1:-1, 2:]
    cost += 1000.0 * (laplacian[step, step] ** 2).sum()
    assert summary.final_chi2 == pytest.approx(cost, rel=1e-9)


def test_shape_and_shade_are_found(refined):
    """The depth is nearer to the truth than the scan was, and light and depth make the picture."""
    scan, depth, light, _ = refined
    truth = shape_and_shading.generated(32)
    y, x = np.mgrid[:32, :32].astype(float)
    true_depth = 0.5 - 0.03 * np.exp(-((x - 16.0) ** 2 + (y - 0.45 * 32) ** 2) / (0.22 * 32) ** 2)
    inner = np.s_[3:-3, 3:-3]
    before, after = (np.abs(depth - true_depth)[inner].mean() for depth in (truth.depth, depth))
    assert after < 0.7 * before
    off = np.abs(shades(depth, light, scan.camera) - scan.intensity)[inner]
    assert off.mean() < 0.02


@pytest.mark.parametrize(("device", "way"), [("cpu", "materialize"), ("vulkan", "inline")])
def test_other_ways_have_the_same_minimum(device, way):
    """Shades in arrays, and a GPU."""
    if device == "vulkan":
        shared_device("address")
    scan = shape_and_shading.generated(14)
    ends = [
        shape_and_shading.refine(scan, device=place, computed=how)[2].final_chi2
        for place, how in (("cpu", "inline"), (device, way))
    ]
    assert ends[1] == pytest.approx(ends[0], rel=1e-4)


# ------------------------------------------------------------------ bundle fusion


@pytest.fixture(scope="module")
def sequence():
    """Four frames, their matches, start and truth."""
    return bundle_fusion.generated(4, 8)


def numpys_energy(frames, matches, poses):
    """Sparse and dense terms, with scipy's sampling."""
    turn, shift = Rotation.from_quat(poses[:, 3:7]).as_matrix(), poses[:, :3]
    cost = 0.0
    for (i, j), points in matches.items():
        off = points[:, :3] @ turn[i].T + shift[i] - points[:, 3:] @ turn[j].T - shift[j]
        cost += (off**2).sum() / (5.0 * bundle_fusion.DEPTH_NOISE) ** 2
    rows, columns, focal = bundle_fusion.ROWS, bundle_fusion.COLUMNS, bundle_fusion.FOCAL
    for i, j in combinations(range(len(frames)), 2):
        frame = frames[i]
        inner = np.s_[1:-1:2, 1:-1:2]
        p, n = frame.points[inner].reshape(-1, 3), frame.normals[inner].reshape(-1, 3)
        light = frame.light[inner].ravel()
        q = (p @ turn[i].T + shift[i] - shift[j]) @ turn[j]
        u, v = focal * q[:, 0] / q[:, 2] + 0.5 * columns, focal * q[:, 1] / q[:, 2] + 0.5 * rows
        seen = (u > 0.0) & (u < columns - 1.0) & (v > 0.0) & (v < rows - 1.0)
        depth, bright = (
            map_coordinates(image.astype(np.float32).astype(float), [v, u], order=1, mode="nearest")
            for image in (frames[j].depth, frames[j].light)
        )
        rays = np.stack([(u - 0.5 * columns) / focal, (v - 0.5 * rows) / focal, np.ones_like(u)], 1)
        there = depth[:, None] * rays
        back = (there @ turn[j].T + shift[j] - shift[i]) @ turn[i]
        along = (n * (p - back)).sum(axis=1) / bundle_fusion.DEPTH_NOISE
        squared = np.where(seen, along**2 + ((bright - light) / bundle_fusion.LIGHT_NOISE) ** 2, 0.0)
        cost += np.where(squared <= 9.0, squared, 6.0 * np.sqrt(squared) - 9.0).sum()
    return cost


def test_energy_of_bundle_fusion(sequence):
    """Of all terms at the result."""
    frames, matches, start, truth = sequence
    poses, summary = bundle_fusion.fuse(frames, matches, start, device="cpu")
    assert summary.final_chi2 == pytest.approx(numpys_energy(frames, matches, poses), rel=1e-6)
    assert bundle_fusion.errors(poses, truth).mean() < 0.003
    assert summary.final_chi2 < numpys_energy(frames, matches, truth)


def test_pixels_find_what_matches_leave(sequence):
    """The poses of the matches alone are much farther from the truth."""
    frames, matches, start, truth = sequence
    sparse, dense = (
        bundle_fusion.errors(
            bundle_fusion.fuse(frames, matches, start, is_joint, device="cpu")[0], truth
        ).mean()
        for is_joint in (False, True)
    )
    assert dense < 0.3 * sparse < 0.3 * bundle_fusion.errors(start, truth).mean()
