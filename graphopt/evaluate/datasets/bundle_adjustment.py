"""Synthetic bundle adjustment: cameras on a ring around a torus of points.

    p_cam = R p_world + t                                    camera from world
    expmap   u = f p_x / p_z + c_x,  v = f p_y / p_z + c_y   camera looks along +z, K shared and known
    bal      q = -(p_x, p_y) / p_z,  (u, v) = f (1 + k1 |q|^2 + k2 |q|^4) q    along -z, f k1 k2 per camera

A camera sees the points of the surface that face it and fall into its image. The start values are those of a
robot:
camera poses from noisy odometry around the ring, points placed by their first observation with a wrong depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import graphopt.evaluate.datasets.noise as noise
from graphopt.errors import OptionError
from graphopt.geometry import SE3
from graphopt.graph import Graph

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

FOCAL_LENGTH = 500.0  # [px]
IMAGE_HALF = np.array([320.0, 240.0])  # [px], also the principal point of the expmap camera
DISTORTION = np.array([-0.05, 0.01])  # k1, k2 of the BAL camera
RING_RADIUS, RING_HEIGHT = 8.0, 4.0  # [m]
TORUS_RADIUS, TORUS_TUBE = 3.0, 1.2  # [m]
DRIFT_TRANSLATION, DRIFT_ROTATION = 0.05, 0.015  # of the odometry from camera to camera [m], [rad]
DEPTH_ERROR = 0.05  # relative


@dataclass(frozen=True)
class _Scene:
    """Truth and start of cameras and points, and who sees what where."""

    cam_T_world: SE3  # (num_cameras,), looking along +z
    points: Array  # (num_points, 3)
    start_cam_T_world: SE3
    start_points: Array
    camera: Indices  # (m,) row of the camera of each observation
    point: Indices  # (m,)
    pixel: Array  # (m, 2) [px], from the image's centre


def ba(
    cameras: int = 40,
    points: int = 2000,
    camera: Literal["bal", "expmap"] = "bal",
    noise_pixel: float = 0.5,
    outliers: float = 0.0,
    seed: int = 0,
    start: Literal["odometry", "truth"] = "odometry",
) -> Graph:
    """Cameras around a scene of points.

    Points that fewer than two cameras see are left out; points are marginalized. Observations have unit
    information in pixels, so chi2 / (2 m) at the optimum tends to the square of `noise_pixel`. The first two
    cameras of "expmap" are fixed, which fixes the gauge with its scale; "bal" fixes nothing, as BAL files do.

    cameras: around the scene, at least 2.
    points: of the scene.
    camera: "bal" (9 parameters) or "expmap" (SE3Expmap with K).
    noise_pixel: standard deviation of observations [px].
    outliers: fraction of wrong matches.
    seed: of the random numbers.
    start: estimates: "odometry" (noisy) or "truth".
    """
    if cameras < 2:
        raise OptionError(f"cameras is {cameras}, must be at least 2.")
    rng = np.random.default_rng(seed)
    scene = _observe(rng, cameras, points, camera == "bal", noise_pixel, outliers)
    graph = Graph()
    build = _add_bal if camera == "bal" else _add_expmap
    build(graph, scene, start == "truth")
    return graph


def _observe(
    rng: np.random.Generator, num_cameras: int, num_points: int, distort: bool, sigma: float, outliers: float
) -> _Scene:
    points, normals = _torus_surface(rng, num_points)
    cam_T_world = _ring(num_cameras)
    camera, point = _visible(cam_T_world, points, normals, distort)
    kept = np.bincount(point, minlength=num_points) >= 2
    camera, point = camera[kept[point]], point[kept[point]]
    renumbered = np.cumsum(kept) - 1
    points, point = points[kept], renumbered[point]

    pixel = _project(SE3(cam_T_world.storage[camera]).act(points[point]), distort)
    pixel = pixel + sigma * rng.normal(0.0, 1.0, pixel.shape)
    wrong = rng.random(len(pixel)) < outliers
    pixel[wrong] = rng.uniform(-1.0, 1.0, (int(wrong.sum()), 2)) * IMAGE_HALF

    start_cam_T_world = _drift(rng, cam_T_world)
    start_points = _place_by_first_view(rng, cam_T_world, start_cam_T_world, points, camera, point)
    return _Scene(cam_T_world, points, start_cam_T_world, start_points, camera, point, pixel)


def _torus_surface(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Return points (n, 3) on a torus around the z axis, and the outward normals there."""
    around, across = rng.uniform(0.0, 2.0 * np.pi, (2, count))
    outward = np.stack([np.cos(around), np.sin(around), np.zeros(count)], axis=-1)
    normal = np.cos(across)[:, None] * outward + np.sin(across)[:, None] * [0.0, 0.0, 1.0]
    return TORUS_RADIUS * outward + TORUS_TUBE * normal, normal


def _ring(count: int) -> SE3:
    """Return cameras on a ring above the scene that look at its centre along +z, image y downwards."""
    angle = 2.0 * np.pi * np.arange(count) / count
    height = np.full(count, RING_HEIGHT) + 1.0 * np.sin(3.0 * angle)
    place = np.stack([RING_RADIUS * np.cos(angle), RING_RADIUS * np.sin(angle), height], axis=-1)
    forward = -place / np.linalg.norm(place, axis=-1, keepdims=True)
    right = np.stack([-np.sin(angle), np.cos(angle), np.zeros(count)], axis=-1)
    down = np.cross(forward, right)
    world_T_cam = np.broadcast_to(np.eye(4), (count, 4, 4)).copy()
    world_T_cam[:, :3, :3] = np.stack([right, down, forward], axis=-1)
    world_T_cam[:, :3, 3] = place
    return SE3.from_matrix(world_T_cam).inverse()


def _visible(cam_T_world: SE3, points: Array, normals: Array, distort: bool) -> tuple[Indices, Indices]:
    """Return (camera, point) of every point that faces the camera and falls into its image."""
    seen = []
    for row in range(len(cam_T_world.storage)):
        pose = SE3(cam_T_world.storage[row])
        centre = pose.inverse().translation
        in_camera = pose.act(points)
        pixel = _project(in_camera, distort)
        inside = (in_camera[:, 2] > 0.1) & (np.abs(pixel) < IMAGE_HALF).all(axis=-1)
        facing = ((centre - points) * normals).sum(axis=-1) > 0.0
        seen.append(inside & facing)
    camera, point = np.nonzero(seen)
    return camera, point


def _project(point_cam: Array, distort: bool) -> Array:
    """Return pixels (n, 2) from the image's centre of points (n, 3) of a camera that looks along +z."""
    ray = point_cam[:, :2] / point_cam[:, 2:]
    if distort:
        squared = (ray**2).sum(axis=-1, keepdims=True)
        ray = ray * (1.0 + DISTORTION[0] * squared + DISTORTION[1] * squared**2)
    return FOCAL_LENGTH * ray


def _drift(rng: np.random.Generator, cam_T_world: SE3) -> SE3:
    """Return the poses that odometry from camera to camera gives; the first is exact."""
    world_T_cam = cam_T_world.inverse().storage
    steps = SE3(world_T_cam[:-1]).inverse() * SE3(world_T_cam[1:])
    noisy = steps * noise.small_motions_3d(rng, len(world_T_cam) - 1, DRIFT_TRANSLATION, DRIFT_ROTATION)
    return SE3(noise.chain(world_T_cam[0], noisy)).inverse()


def _place_by_first_view(
    rng: np.random.Generator, truth: SE3, start: SE3, points: Array, camera: Indices, point: Indices
) -> Array:
    """Return points seen from the drifted pose of their first camera, along the true ray at a wrong depth."""
    _, first = np.unique(point, return_index=True)
    seen_by = camera[first]
    in_camera = SE3(truth.storage[seen_by]).act(points)
    depth = np.exp(DEPTH_ERROR * rng.normal(0.0, 1.0, (len(points), 1)))
    return SE3(start.storage[seen_by]).inverse().act(depth * in_camera)


def _add_expmap(graph: Graph, scene: _Scene, at_truth: bool) -> None:
    num_cameras = len(scene.cam_T_world.storage)
    poses = (scene.cam_T_world if at_truth else scene.start_cam_T_world).storage.copy()
    poses[1] = scene.cam_T_world.storage[1]
    points = scene.points if at_truth else scene.start_points
    graph.add_parameters("PARAMS_CAMERAPARAMETERS", [0], [[FOCAL_LENGTH, *IMAGE_HALF, 0.0]])
    graph.add_vertices("VERTEX_SE3:EXPMAP", np.arange(num_cameras), poses, fixed=np.arange(num_cameras) < 2)
    point_ids = num_cameras + np.arange(len(points))
    graph.add_vertices("VERTEX_TRACKXYZ", point_ids, points, marginalized=True)
    graph.add_edges(
        "EDGE_PROJECT_XYZ2UV:EXPMAP",
        np.stack([point_ids[scene.point], scene.camera], axis=-1),
        scene.pixel + IMAGE_HALF,
        parameters=np.zeros((len(scene.pixel), 1), np.int64),
    )


def _add_bal(graph: Graph, scene: _Scene, at_truth: bool) -> None:
    cam_T_world = scene.cam_T_world if at_truth else scene.start_cam_T_world
    # Turn by pi about x: the camera then looks along -z with image y upwards, as BAL has it.
    turned = SE3(np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])) * cam_T_world
    rotation = turned.rotation.log()
    num_cameras = len(rotation)
    intrinsics = np.broadcast_to([FOCAL_LENGTH, *DISTORTION], (num_cameras, 3))
    storage = np.concatenate([rotation, turned.translation, intrinsics], axis=-1)
    points = scene.points if at_truth else scene.start_points
    graph.add_vertices("VERTEX_CAM_BAL", np.arange(num_cameras), storage)
    point_ids = num_cameras + np.arange(len(points))
    graph.add_vertices("VERTEX_TRACKXYZ", point_ids, points, marginalized=True)
    graph.add_edges(
        "EDGE_OBSERVATION_BAL",
        np.stack([scene.camera, point_ids[scene.point]], axis=-1),
        scene.pixel * [1.0, -1.0],
    )
