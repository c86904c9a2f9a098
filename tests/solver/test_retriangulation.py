"""Landmarks in wrong places: viewing rays from residuals, points minimised alone, re-seating in `auto`."""

from typing import Any, Literal

import numpy as np
import pytest

import graphopt
from graphopt.cpu_kernels import kernels
from graphopt.evaluate.datasets import ba
from graphopt.geometry import SE3
from graphopt.geometry.cameras import CAMERA_MODELS
from graphopt.graph import Graph
from graphopt.io.extra_types import CAMERA_VERTEX, PROJECTION_EDGE
from graphopt.optimizer import AutoOptions
from graphopt.problem.structure import Structure
from graphopt.strategies.landmark_problem import LandmarkProblem, PointEdges
from graphopt.strategies.retriangulation import retriangulate_landmarks
from graphopt.strategies.viewing_rays import usual_places, viewing_rays
from graphopt.types.g2o_maps import rotate_by_angle_axis
from graphopt.types.robust_kernels import robust_kernel

NEVER = AutoOptions(reseat_gain=float("inf"))


def scene(camera, seed=1, start: Literal["odometry", "truth"] = "truth", **options):
    """A ring of cameras around a torus."""
    return ba(cameras=8, points=120, camera=camera, seed=seed, start=start, **options)


def image_edges(graph):
    """Structure, its only group as point edges over the rows of the landmark set, and that set."""
    structure = Structure(graph.select())
    (group,) = structure.groups
    slot = [vertex.tag for vertex in group.edge_set.type.vertices].index("VERTEX_TRACKXYZ")
    rows = np.arange(len(group.rows))
    edges = PointEdges(group, rows, slot, group.vertex_rows[:, slot].astype(np.int64))
    return structure, edges, graph.vertex_set("VERTEX_TRACKXYZ")


def opencv_scene():
    """Two cameras with strong lens distortion that share their intrinsics, and exact pixels."""
    rng = np.random.default_rng(5)
    graph = Graph()
    angle = np.array([[0.0, 0.0, 0.0], [0.05, -0.3, 0.02]])
    poses = SE3.exp(np.concatenate([angle, [[0.1, 0.0, 0.2], [1.0, 0.1, 0.3]]], axis=1))
    points = rng.uniform(-1.0, 1.0, (30, 3)) + np.array([0.3, 0.0, 5.0])
    intrinsics = np.array([500.0, 520.0, 320.0, 240.0, -0.2, 0.05, 1e-3, -2e-3])
    graph.add_vertices("VERTEX_SE3:EXPMAP", [0, 1], poses.storage, fixed=[True, False])
    graph.add_vertices(CAMERA_VERTEX["OPENCV"], [2], intrinsics[None])
    graph.add_vertices("VERTEX_TRACKXYZ", 10 + np.arange(30), points, marginalized=True)
    camera, point = np.repeat([0, 1], 30), np.tile(np.arange(30), 2)
    seen = SE3(poses.storage[camera]).act(points[point])
    pixel = CAMERA_MODELS["OPENCV"].project(np.tile(intrinsics, (60, 1)), seen)
    vertices = np.stack([camera, 10 + point, np.full(60, 2)], axis=1)
    graph.add_edges(PROJECTION_EDGE["OPENCV"], vertices, pixel)
    return graph


def centres(graph, edges):
    """(m, 3) camera centre of each edge, from the definition of its pose."""
    group = edges.group
    for slot, number in enumerate(group.vertex_sets):
        estimate = graph.vertex_sets[number].estimate[group.vertex_rows[:, slot]]
        tag = group.edge_set.type.vertices[slot].tag
        if tag == "VERTEX_SE3:EXPMAP":
            return SE3(estimate).inverse().translation
        if tag == "VERTEX_CAM_BAL":
            return np.asarray(rotate_by_angle_axis(-estimate[:, :3], -estimate[:, 3:6]), float)
    raise AssertionError("no camera")


@pytest.mark.parametrize("camera", ["bal", "expmap", "opencv"])
def test_rays_start_at_the_camera_and_go_through_the_point(camera):
    """With exact pixels each ray runs from the camera's centre through the true point, distorted or not."""
    graph = opencv_scene() if camera == "opencv" else scene(camera, noise_pixel=0.0)
    structure, edges, points = image_edges(graph)
    starts = usual_places(structure, edges, points.estimate)
    rays = viewing_rays(structure, edges, starts, spread=1.0)
    assert rays.known.all()
    expected = centres(graph, edges)
    np.testing.assert_allclose(rays.centre, expected, atol=1e-5)
    toward = points.estimate[edges.point] - expected
    toward /= np.linalg.norm(toward, axis=1)[:, None]
    np.testing.assert_allclose(rays.direction, toward, atol=1e-6)


def test_a_view_without_a_centre_has_no_ray():
    """Along parallel rays J is the same everywhere, and no distance follows: the ray is marked as unknown."""

    @graphopt.edge_type(vertices=("VERTEX_TRACKXYZ",), measurement_dim=2)
    def SeenFromInfinity(point: Any, pixel: Any) -> Any:
        """A camera whose rays are parallel."""
        return [point[0] - pixel[0], point[1] + 0.5 * point[2] - pixel[1]]

    graph = Graph()
    starts = np.array([[0.0, 0.0, 3.0], [1.0, 2.0, 4.0]])
    graph.add_vertices("VERTEX_TRACKXYZ", [0, 1], starts)
    graph.add_edges(SeenFromInfinity, [[0], [1]], np.zeros((2, 2)))
    structure = Structure(graph.select())
    edges = PointEdges(structure.groups[0], np.arange(2), 0, np.arange(2))
    rays = viewing_rays(structure, edges, starts, spread=1.0)
    assert not rays.known.any()
    for numbers in (rays.centre, rays.direction, rays.distance):
        np.testing.assert_array_equal(numbers, 0.0)


def test_other_landmarks_are_left_alone():
    """Landmarks whose edges are not all images of two numbers stay where they are."""
    rng = np.random.default_rng(0)
    graph = Graph()
    graph.add_vertices("VERTEX_SE3:QUAT", [0, 1], np.tile([0, 0, 0, 0, 0, 0, 1.0], (2, 1)))
    graph.add_vertices("VERTEX_TRACKXYZ", [2], [[0.0, 0.0, 3.0]], marginalized=True)
    graph.add_parameters("PARAMS_SE3OFFSET", [0], [[0, 0, 0, 0, 0, 0, 1.0]])
    graph.add_edges("EDGE_SE3_TRACKXYZ", [[0, 2], [1, 2]], rng.normal(size=(2, 3)), parameters=[[0], [0]])
    before = graph.vertex_set("VERTEX_TRACKXYZ").estimate.copy()
    assert retriangulate_landmarks(Structure(graph.select())).num_landmarks == 0
    np.testing.assert_array_equal(graph.vertex_set("VERTEX_TRACKXYZ").estimate, before)


@pytest.mark.parametrize("kernel", [0, 1])
def test_points_minimised_alone_are_stationary_and_never_higher(kernel):
    """Each point ends where its own gradient vanishes, robust or not, and its chi2 sums to the graph's."""
    graph = scene("expmap", start="odometry")
    edge_set = graph.edge_sets[0]
    edge_set.kernel[:] = kernel
    edge_set.kernel_width[:] = 3.0
    structure, edges, points = image_edges(graph)
    problem = LandmarkProblem(structure, [edges], points.estimate)
    before = problem.chi2()
    assert before.sum() == pytest.approx(graph.chi2(), rel=1e-12)
    after, still_fall = problem.minimise(40)
    assert still_fall.mean() < 0.05
    assert (after <= before).all()
    H, b = problem.linearize()
    step = np.linalg.solve(H, b[:, :, None])[:, :, 0]
    assert np.median(np.abs(step)) < 1e-8
    points.estimate = problem.points
    assert graph.chi2() == pytest.approx(after.sum(), rel=1e-12)


def test_points_end_in_the_same_bits_whatever_the_number_of_threads():
    """Alone or among others, in rounds or not moved at all; those that have arrived stop."""
    graph = ba(cameras=12, points=400, camera="bal", seed=2)
    structure, edges, points = image_edges(graph)
    found = []
    for threads in (1, 3):
        kernels.set_num_threads(threads)
        problem = LandmarkProblem(structure, [edges], points.estimate)
        chi2, falls = problem.minimise(5, 3, np.full(len(points), np.inf))
        found.append((chi2, falls, problem.points))
    for array, other in zip(*found, strict=True):
        np.testing.assert_array_equal(array, other)
    some = edges.point < 7
    few = PointEdges(edges.group, edges.rows[some], edges.slot, edges.point[some])
    alone = LandmarkProblem(structure, [few], points.estimate[:7])
    chi2, _ = alone.minimise(5, 3, np.full(7, np.inf))
    np.testing.assert_array_equal(chi2, found[0][0][:7])
    np.testing.assert_array_equal(alone.points, found[0][2][:7])
    bounded = LandmarkProblem(structure, [few], points.estimate[:7])
    once = LandmarkProblem(structure, [few], points.estimate[:7])
    bounded.minimise(1, 3, np.zeros(7))
    once.minimise(1)
    np.testing.assert_array_equal(bounded.points, once.points)
    assert (bounded.points != points.estimate[:7]).all()


@pytest.mark.parametrize("camera", ["bal", "expmap"])
def test_landmarks_behind_their_cameras_come_back(camera):
    """Points mirrored behind their cameras, or far beyond, return to their places; the others stay."""
    graph = scene(camera)
    graphopt.optimize(graph)
    points = graph.vertex_set("VERTEX_TRACKXYZ")
    best, chi2 = points.estimate.copy(), graph.chi2()
    _, edges, _ = image_edges(graph)
    one_centre = np.zeros((len(points), 3))
    one_centre[edges.point] = centres(graph, edges)
    wrong = np.arange(0, 12)
    points.estimate[wrong[:6]] = (2.0 * one_centre - best)[wrong[:6]]
    points.estimate[wrong[6:]] = (one_centre + 300.0 * (best - one_centre))[wrong[6:]]
    worse = graph.chi2()
    result = retriangulate_landmarks(Structure(graph.select()))
    assert result.num_landmarks == len(wrong)
    assert worse - graph.chi2() == pytest.approx(result.gain, rel=1e-9)
    assert graph.chi2() == pytest.approx(chi2, rel=1e-6)
    np.testing.assert_allclose(points.estimate, best, atol=2e-3)
    np.testing.assert_array_equal(points.estimate[12:], best[12:])


def test_auto_reaches_the_minimum_that_wrong_landmarks_hide():
    """From landmarks behind their cameras: with re-seating, only with it, and each time bitwise the same."""
    graph = scene("bal", start="odometry")
    graphopt.optimize(graph)
    best = graph.chi2()
    _, edges, points = image_edges(graph)
    one_centre = np.zeros((len(points), 3))
    one_centre[edges.point] = centres(graph, edges)
    points.estimate[:5] = (2.0 * one_centre - points.estimate)[:5]
    without, again = graph.copy(), graph.copy()
    graphopt.optimize(without, options=NEVER)
    summary = graphopt.optimize(graph)
    assert without.chi2() > 1.01 * best
    assert graph.chi2() == pytest.approx(best, rel=1e-6)
    assert "landmarks to other places" in summary.message
    graphopt.optimize(again)
    assert again.vertex_set("VERTEX_TRACKXYZ").estimate.tobytes() == points.estimate.tobytes()


def test_a_good_optimum_is_left_alone():
    """Nothing moves where no landmark stands out."""
    graph = scene("bal", noise_pixel=0.5)
    summary = graphopt.optimize(graph)
    assert summary.message == ""
    assert retriangulate_landmarks(Structure(graph.select())).num_landmarks == 0


def stereo_drive(seed=0, num_poses=20, num_points=300):
    """Stereo images from a camera that moves along its axis, and the true estimates."""
    rng = np.random.default_rng(seed)
    focal, centre, baseline = 700.0, np.array([600.0, 180.0]), 0.5
    points = rng.uniform([-10.0, -3.0, 4.0], [10.0, 3.0, num_poses + 25.0], (num_points, 3))
    poses = np.zeros((num_poses, 7))
    poses[:, 2], poses[:, 6] = -np.arange(num_poses), 1.0
    local = points[None] + poses[:, None, :3]
    camera, point = np.nonzero((local[..., 2] > 2.0) & (local[..., 2] < 25.0))
    seen = local[camera, point]
    pixel = focal * seen[:, :2] / seen[:, 2:] + centre
    images = np.column_stack([pixel, pixel[:, 0] - focal * baseline / seen[:, 2]])
    images += 0.5 * rng.normal(size=images.shape)
    constants = np.tile([focal, focal, *centre, focal * baseline], (len(images), 1))
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE3:EXPMAP", np.arange(num_poses), poses)
    graph.add_vertices("VERTEX_XYZ", 1000 + np.arange(num_points), points)
    graph.vertex_set("VERTEX_XYZ").marginalized[:] = True
    ends = np.stack([1000 + point, camera], axis=1)
    measured = np.column_stack([images, constants])
    graph.add_edges("EDGE_STEREO_SE3_PROJECT_XYZ:EXPMAP", ends, measured, 4.0 * np.eye(3))
    graph.set_fixed([0])
    return graph


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_stereo_landmarks_behind_their_cameras_come_back(device):
    """Three points thrown behind all cameras end where they do from the truth."""
    graph = stereo_drive()
    best = graphopt.optimize(graph.copy(), device="cpu").final_chi2
    points = graph.vertex_set("VERTEX_XYZ").estimate
    points[[3, 50, 200]] = [[1.0, 1.0, -30.0], [5.0, -2.0, -8.0], [-4.0, 0.5, -100.0]]
    summary = graphopt.optimize(graph, device=device)
    assert summary.final_chi2 == pytest.approx(best, rel=1e-6)
    assert not summary.points_behind
    assert "Moved 3 landmarks" in summary.message


def test_landmarks_end_in_the_lowest_of_their_robust_minima():
    """With Cauchy kernels and false matches, none is lower among those that two of its images alone give."""
    graph = scene("expmap", outliers=0.1, start="truth")
    (edges,) = graph.edge_sets
    edges.kernel[:], edges.kernel_width[:] = robust_kernel("Cauchy").number, 1.0
    assert graphopt.optimize(graph, options=AutoOptions(contest=False)).is_usable
    structure, images, points = image_edges(graph)
    present = points.estimate.copy()
    order, rank = np.argsort(images.point, kind="stable"), np.empty(len(images.point), int)
    rank[order] = np.arange(len(order)) - np.searchsorted(images.point[order], images.point[order])
    best = LandmarkProblem(structure, [images], present).chi2()
    total = best.sum()
    for first in range(4):
        for second in range(first + 1, 5):
            pair = np.flatnonzero((rank == first) | (rank == second))
            two = PointEdges(images.group, images.rows[pair], images.slot, images.point[pair])
            start = LandmarkProblem(structure, [two], present, robust=False)
            start.minimise(20)
            other = LandmarkProblem(structure, [images], start.points)
            best = np.fmin(best, other.minimise(20)[0])
    assert total <= 1.001 * best.sum()
