"""Bundle adjustment with the sizes of published problems, whose photographs are not needed.

Cameras, points and observations are as many as in a problem of Bundle Adjustment in the Large (Agarwal et
al., ECCV 2010), with its camera model and a covisibility of like shape, so that time and memory can be
measured; it says nothing about convergence on the real photographs. `street` is a scene of any size along a
line, whose covisibility is a band.

    q = -(p_x, p_y) / p_z,  (u, v) = f (1 + k1 |q|^2 + k2 |q|^4) q      p = R p_world + t, along -z, y up
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import OptionError
from graphopt.geometry import SO3
from graphopt.graph import Graph
from graphopt.suggestions import did_you_mean

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

SIZES = {
    "trafalgar-257": (257, 65132, 225911, "photos"),
    "dubrovnik-356": (356, 226730, 1255268, "photos"),
    "ladybug-969": (969, 105826, 474627, "drive"),
    "ladybug-1723": (1723, 156502, 678718, "drive"),
    "venice-951": (951, 708276, 3748892, "photos"),
    "venice-1778": (1778, 993923, 5001946, "photos"),
    "final-961": (961, 187103, 1692975, "photos"),
    "final-4585": (4585, 1324582, 9125125, "photos"),
    "final-13682": (13682, 4456117, 28987644, "photos"),
}
"""By name: cameras, points, observations as published, and the layout."""
_FEWEST, _MANY = 30, 200  # observations of a camera: one with fewer gets some of those with more
_CHECKED = 3_000_000  # observations up to which one moved to another camera must be new there
_CHUNK = 2_000_000  # observations that are projected at a time
_NEAREST, _WIDEST = 3.0, 1200.0  # depth [m] and distance from the image's centre [px] of observations


@dataclass
class _Scene:
    """Where cameras are and look, points, and the range of cameras that may see each."""

    center: Array  # (num_cameras, 3) [m]
    target: Array  # (num_cameras, 3)
    points: Array  # (num_points, 3)
    first: Indices  # (num_points,)
    last: Indices  # (num_points,) one behind


def published(size: str = "final-961", seed: int = 1) -> Graph:
    """Bundle adjustment with as many cameras, points and observations as a published problem.

    Observations behind a camera or far outside its image are left out: up to 0.1 % of them.
    Pixels have a noise of 0.7 px; cameras and points start a little off, as an incremental reconstruction
    leaves them. Points are marginalized.

    size: ladybug-969, trafalgar-257, venice-1778, final-961, final-13682, ...
    seed: of the random numbers.
    """
    if size not in SIZES:
        raise OptionError(f"size is '{size}'.{did_you_mean(size, SIZES)} Known: {', '.join(SIZES)}.")
    num_cameras, num_points, num_observations, layout = SIZES[size]
    rng = np.random.default_rng(seed)
    scene = (_photos if layout == "photos" else _drive)(rng, num_cameras, num_points)
    camera, point = _choose_cameras(rng, scene, num_observations)
    _feed_poor_cameras(rng, camera, point, num_cameras)
    rotation = _look_at(rng, scene.center, scene.target)
    cameras = np.zeros((num_cameras, 9))
    cameras[:, :3] = SO3.from_matrix(rotation).log()
    cameras[:, 3:6] = -np.einsum("nij,nj->ni", rotation, scene.center)
    cameras[:, 6] = rng.uniform(600, 1600, num_cameras)
    cameras[:, 7] = rng.normal(-5e-2, 2e-2, num_cameras)
    cameras[:, 8] = rng.normal(0, 5e-3, num_cameras)
    camera, point, pixel = _observed(rng, scene, cameras, camera, point)
    seen = np.bincount(point, minlength=num_points) >= 2
    kept = seen[point]
    camera, pixel, point = camera[kept], pixel[kept], (np.cumsum(seen) - 1)[point[kept]]
    measured = pixel + rng.normal(0, 0.7, pixel.shape)
    turned = np.asarray(SO3.exp(rng.normal(0, 2e-3, (num_cameras, 3))).to_matrix()) @ rotation
    moved = scene.center + rng.normal(0, 0.05, (num_cameras, 3))
    cameras[:, :3] = SO3.from_matrix(turned).log()
    cameras[:, 3:6] = -np.einsum("nij,nj->ni", turned, moved)
    cameras[:, 6] *= 1 + rng.normal(0, 5e-3, num_cameras)
    cameras[:, 7:9] = 0.0
    points = scene.points[seen]
    return _graph(cameras, points + rng.normal(0, 0.15, points.shape), camera, point, measured)


def street(cameras: int = 1000, points: int = 100_000, observations: int = 600_000, seed: int = 0) -> Graph:
    """Cameras along a street, 1 m apart, that all look to one side, and points that some near ones see.

    Pixels have a noise of 1 px, points start 5 cm off. Points are marginalized.

    cameras: at least 2.
    points: each seen by at least 2 cameras.
    observations: of points, at least 2 each.
    seed: of the random numbers.
    """
    if cameras < 2 or points < 1 or observations < 2 * points:
        raise OptionError(
            f"{cameras} cameras, {points} points and {observations} observations: at least 2 cameras, "
            "1 point and 2 observations of each point are needed."
        )
    rng = np.random.default_rng(seed)
    least, more = divmod(observations, points)
    tracks = least + (np.arange(points) % points < more).astype(np.int64)
    least = min(least, cameras)
    width = max(min(3 * (least + 1), cameras), 1)
    tracks = np.minimum(rng.permutation(tracks), cameras)
    along = np.sort(rng.uniform(0.0, cameras, points))
    position = np.stack([along, rng.uniform(20.0, 60.0, points), rng.uniform(-8.0, 8.0, points)], axis=1)
    first = np.clip(along - 0.5 * width, 0, cameras - width).astype(np.int64)
    stride = np.maximum(width // tracks, 1)
    begin = first + (rng.random(points) * (width - (tracks - 1) * stride)).astype(np.int64)
    point, within = _tracks(tracks)
    camera = begin[point] + within * stride[point]
    turned = np.array([-0.5 * np.pi, 0.0, 0.0]) + 1e-3 * rng.standard_normal((cameras, 3))
    center = np.arange(cameras)[:, None] * [1.0, 0.0, 0.0] + 1e-2 * rng.standard_normal((cameras, 3))
    estimate = np.zeros((cameras, 9))
    estimate[:, :3] = turned  # x to the right, y up, looking along world y
    estimate[:, 3:6] = -np.asarray(SO3.exp(turned).act(center))
    estimate[:, 6:] = 1000.0, -0.05, 0.01
    ray = position[point]
    ray[:, 0] -= camera
    pixel = _distorted(ray[:, [0, 2]] / ray[:, 1:2], estimate[:1, 6:])
    pixel += rng.standard_normal(pixel.shape)
    position += 0.05 * rng.standard_normal(position.shape)
    return _graph(estimate, position, camera, point, pixel)


def _photos(rng: np.random.Generator, num_cameras: int, num_points: int) -> _Scene:
    """Sites 14 m apart along a line; a camera looks between its own site and the next."""
    num_sites = max(1, num_cameras // 120)
    index = np.arange(num_sites)
    site = np.stack([14.0 * index, 4.0 * np.sin(0.7 * index), np.zeros(num_sites)], 1)
    cam_site = np.sort(rng.integers(0, num_sites, num_cameras))
    angle = rng.uniform(-0.9, 0.9, num_cameras) - np.pi / 2
    radius = rng.uniform(40, 90, num_cameras)
    away = np.stack([radius * np.cos(angle), radius * np.sin(angle), rng.uniform(0, 6, num_cameras)], 1)
    target = site[cam_site] + [-7.0, 0.0, 6.0] + rng.normal(0, 2, (num_cameras, 3))
    point_site = np.sort(rng.integers(0, num_sites, num_points))
    points = site[point_site] + rng.uniform([-9, -4, 0], [9, 4, 16], (num_points, 3))
    first = np.searchsorted(cam_site, point_site, "left")
    last = np.searchsorted(cam_site, point_site + (rng.random(num_points) < 0.4), "right")
    return _Scene(site[cam_site] + away, target, points, first, last)


def _drive(rng: np.random.Generator, num_cameras: int, num_points: int) -> _Scene:
    """A round trip driven twice; cameras are listed by place, so that both laps lie in one band."""
    place = 2 * np.pi * np.arange(num_cameras) / num_cameras
    size, zeros = 1.5 * num_cameras / (2 * np.pi), np.zeros(num_cameras)
    outward = np.stack([np.cos(place), np.sin(place), zeros], 1)
    ahead = np.stack([-np.sin(place), np.cos(place), zeros], 1)
    center = size * outward + rng.normal(0, [0.5, 0.5, 0.1], (num_cameras, 3)) + [0, 0, 2]
    at = np.sort(rng.integers(0, num_cameras, num_points))
    side = rng.choice([-1.0, 1.0], num_points)[:, None]
    points = center[at] + 22 * ahead[at] + 9 * side * outward[at] + rng.normal(0, [2, 2, 3], (num_points, 3))
    first, last = np.maximum(at - 10, 0), np.minimum(at + 5, num_cameras)
    return _Scene(center, center + 25 * ahead + [0, 0, 1.0], points, first, last)


def _choose_cameras(
    rng: np.random.Generator, scene: _Scene, num_observations: int
) -> tuple[Indices, Indices]:
    """Camera and point of each observation: of each point's range a random start and stride."""
    narrow = scene.last - scene.first < 2
    scene.first[narrow], scene.last[narrow] = 0, len(scene.center)
    width = scene.last - scene.first
    tracks = _track_lengths(rng, num_observations, np.maximum(2, np.minimum(width, 400)))
    start = rng.integers(0, width)
    point, within = _tracks(tracks)
    jump = np.maximum(1, width // tracks)
    stride = np.minimum(1 + (rng.random(len(width)) * jump).astype(np.int64), jump)
    return scene.first[point] + (start[point] + within * stride[point]) % width[point], point


def _track_lengths(rng: np.random.Generator, num_observations: int, longest: Indices) -> Indices:
    """Track lengths of 2 and more with a heavy tail that sum to `num_observations`."""
    count = len(longest)
    weight = np.minimum(rng.pareto(1.6, count) + 0.02, 40.0)
    extra = np.floor(weight / weight.sum() * (num_observations - 2 * count)).astype(np.int64)
    lengths = np.minimum(2 + extra, longest)
    while (missing := num_observations - lengths.sum()) > 0:
        open_ = np.flatnonzero(lengths < longest)
        lengths[rng.choice(open_, min(missing, len(open_)), replace=False)] += 1
    return lengths


def _tracks(lengths: Indices) -> tuple[Indices, Indices]:
    """Point of each observation, and its number within the track."""
    point = np.repeat(np.arange(len(lengths)), lengths)
    return point, np.arange(len(point)) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _feed_poor_cameras(rng: np.random.Generator, camera: Indices, point: Indices, num_cameras: int) -> None:
    """Move observations of cameras with many to those with few, which would be unconstrained."""
    count = np.bincount(camera, minlength=num_cameras)
    poor = np.flatnonzero(count < _FEWEST)
    if not len(poor):
        return
    moved = rng.permutation(np.flatnonzero(count[camera] > _MANY))[: 40 * len(poor)]
    new = np.repeat(poor, 40)[: len(moved)]
    if len(point) < _CHECKED:
        num_points = int(point.max()) + 1
        is_new = ~np.isin(new * num_points + point[moved], camera * num_points + point)
        moved, new = moved[is_new], new[is_new]
    camera[moved] = new


def _look_at(rng: np.random.Generator, center: Array, target: Array) -> Array:
    """cam_R_world (n, 3, 3) of cameras that look at their target along -z, a little rolled."""
    roll = rng.normal(0, 0.05, len(center))
    z = center - target
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    up = np.array([0.0, 0.0, 1.0]) + 0.05 * rng.standard_normal((len(center), 3))
    x = np.cross(up, z)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.cross(z, x)
    c, s = np.cos(roll)[:, None], np.sin(roll)[:, None]
    return np.stack([c * x + s * y, -s * x + c * y, z], axis=1)


def _observed(
    rng: np.random.Generator, scene: _Scene, cameras: Array, camera: Indices, point: Indices
) -> tuple[Indices, Indices, Array]:
    """Camera, point and exact pixel of what is in front of a camera and near its image, by point."""
    width = scene.last - scene.first
    for _ in range(4):
        pixel, depth = _project(cameras, scene.points, camera, point)
        wrong = np.flatnonzero((depth < _NEAREST) | (np.abs(pixel) > _WIDEST).any(1))
        if not len(wrong):
            break
        camera[wrong] = scene.first[point[wrong]] + rng.integers(0, width[point[wrong]])
    pixel, depth = _project(cameras, scene.points, camera, point)
    order = np.lexsort((camera, point))
    order = order[((depth > _NEAREST) & (np.abs(pixel) <= _WIDEST).all(1))[order]]
    twice = np.zeros(len(order), bool)
    twice[1:] = (np.diff(camera[order]) == 0) & (np.diff(point[order]) == 0)
    order = order[~twice]
    return camera[order], point[order], pixel[order]


def _project(cameras: Array, points: Array, camera: Indices, point: Indices) -> tuple[Array, Array]:
    """Pixels (m, 2), and depths (m,) that are positive in front."""
    rotation = np.asarray(SO3.exp(cameras[:, :3]).to_matrix())
    pixel, depth = np.empty((len(camera), 2)), np.empty(len(camera))
    for begin in range(0, len(camera), _CHUNK):
        rows = slice(begin, begin + _CHUNK)
        c, p = camera[rows], point[rows]
        in_camera = np.einsum("nij,nj->ni", rotation[c], points[p]) + cameras[c, 3:6]
        pixel[rows] = _distorted(-in_camera[:, :2] / in_camera[:, 2:3], cameras[c, 6:])
        depth[rows] = -in_camera[:, 2]
    return pixel, depth


def _distorted(ray: Array, intrinsics: Array) -> Array:
    """Pixels (m, 2) of rays (m, 2) with f, k1, k2 (m, 3)."""
    squared = (ray**2).sum(axis=1, keepdims=True)
    focal, k1, k2 = (intrinsics[:, [column]] for column in range(3))
    return focal * (1.0 + k1 * squared + k2 * squared**2) * ray


def _graph(cameras: Array, points: Array, camera: Indices, point: Indices, pixel: Array) -> Graph:
    graph = Graph()
    graph.add_vertices("VERTEX_CAM_BAL", np.arange(len(cameras)), cameras)
    ids = len(cameras) + np.arange(len(points))
    graph.add_vertices("VERTEX_TRACKXYZ", ids, points, marginalized=True)
    graph.add_edges("EDGE_OBSERVATION_BAL", np.stack([camera, ids[point]], axis=1), pixel)
    return graph
