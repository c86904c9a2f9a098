"""Graphs for the tests of the device-resident solver: together they have every kind of edge and vertex."""

from __future__ import annotations

import functools

import numpy as np

import graphopt
from graphopt.graph import Graph


@functools.cache
def midpoint_edge():
    """A user's edge on three points with a parameter: the middle of two, seen from the third."""

    @graphopt.edge_type(
        tag="EDGE_TEST_MIDPOINT",
        vertices=("VERTEX_XY", "VERTEX_XY", "VERTEX_XY"),
        parameters=("PARAMS_SE2OFFSET",),
        measurement_dim=2,
    )
    def EdgeTestMidpoint(first, second, third, offset, measured):
        """Difference of the measured and the predicted place [m]."""
        return 0.5 * (first + second) * 1.1 + offset.translation - third * third - measured

    return EdgeTestMidpoint


@functools.cache
def users_kernel():
    """A robust kernel that is none of g2o's."""

    @graphopt.robust_kernel_type
    def logarithm(chi2, width):
        return np.where(chi2 < width**2, chi2, width**2 * (1.0 + np.log(np.maximum(chi2, 1e-9) / width**2)))

    return logarithm


def mixed_plane(seed=0, loops=False) -> Graph:
    """Poses and points in the plane with all that edges can be.

    Several types, robust kernels, fixed and marginalized vertices, duplicates, four vertices, a user's type
    and kernel, two levels. loops: some edges name one point twice or three times, which the CPU's solver
    refuses.
    """
    rng = np.random.default_rng(seed)
    num = 24
    turn = 2 * np.pi / num
    angle = turn * np.arange(num)
    poses = np.stack([4 * np.cos(angle), 4 * np.sin(angle), angle + np.pi / 2], axis=1)
    points = rng.uniform(-3, 3, (14, 2))
    graph = Graph()
    fixed = np.arange(num) % 11 == 0
    graph.add_vertices("VERTEX_SE2", np.arange(num), poses + 0.05 * rng.normal(size=poses.shape), fixed=fixed)
    ids = 100 + np.arange(len(points))
    is_fixed, eliminated = np.arange(len(points)) == 3, np.arange(len(points)) % 4 != 1
    start = points + 0.05 * rng.normal(size=points.shape)
    graph.add_vertices("VERTEX_XY", ids, start, fixed=is_fixed, marginalized=eliminated)
    pairs = [(i, (i + 1) % num) for i in range(num)] + [(2, 3), (2, 3), (3, 2), (11, 0)]
    measured = [relative(poses[i], poses[j]) + 0.02 * rng.normal(size=3) for i, j in pairs]
    kernel = np.arange(len(pairs)) % 3
    graph.add_edges("EDGE_SE2", pairs, measured, np.diag([40.0, 50.0, 60.0]), kernel=kernel, kernel_width=0.3)
    seen = [(i, j) for i in range(num) for j in range(len(points)) if rng.random() < 0.4]
    local = [to_local(poses[i], points[j]) + 0.05 * rng.normal(size=2) for i, j in seen]
    information = np.array([[20.0, 3.0], [3.0, 15.0]])
    graph.add_edges("EDGE_SE2_XY", [(i, ids[j]) for i, j in seen], local, information, level=0)
    graph.add_edges("EDGE_SE2_XY", [(0, ids[0])], [[9.0, 9.0]], level=1)
    many = [(i, *rng.choice(len(points), 3, replace=False)) for i in (1, 5, 9)]
    several = [np.concatenate([to_local(poses[i], points[j]) for j in rest]) for i, *rest in many]
    graph.add_edges("EDGE_SE2_LOTSOFXY", [(i, *(ids[j] for j in rest)) for i, *rest in many], several)
    graph.add_parameters("PARAMS_SE2OFFSET", [7], [[0.3, -0.2, 0.1]])
    triples = [(0, 1, 2), (1, 4, 5), (4, 5, 6), (7, 8, 9), (9, 7, 0), (3, 10, 11)]
    triples += [(4, 4, 6), (7, 8, 8), (9, 9, 9)] if loops else []
    middles = [1.1 * (points[a] + points[b]) / 2 + [0.3, -0.2] - points[c] ** 2 + 0.01 for a, b, c in triples]
    graph.add_edges(
        midpoint_edge(),
        [(ids[0], ids[1], ids[2])] * len(triples),
        middles,
        kernel=users_kernel(),
        kernel_width=0.5,
        parameters=[[7]] * len(triples),
    )
    # `add_edges` refuses an edge that names a vertex twice; the live view does not.
    graph.edge_set(midpoint_edge()).vertices[:] = [ids[list(t)] for t in triples]
    return graph


def mixed_space(seed=1) -> Graph:
    """Poses in space (with a working form), points seen through a sensor's mounting, priors."""
    rng = np.random.default_rng(seed)
    num = 10
    graph = Graph()
    poses = np.zeros((num, 7))
    poses[:, :3] = rng.uniform(-1, 1, (num, 3)) + np.arange(num)[:, None]
    quaternion = rng.normal(size=(num, 4)) * 0.1 + [0, 0, 0, 1]
    poses[:, 3:] = quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True)
    graph.add_vertices("VERTEX_SE3:QUAT", np.arange(num), poses, fixed=np.arange(num) == 4)
    points = rng.uniform(-2, 12, (8, 3))
    ids = 50 + np.arange(len(points))
    graph.add_vertices("VERTEX_TRACKXYZ", ids, points, marginalized=True)
    pairs = [(i, i + 1) for i in range(num - 1)] + [(0, 5), (7, 2)]
    steps = np.zeros((len(pairs), 7))
    steps[:, :3] = 1.0 + 0.1 * rng.normal(size=(len(pairs), 3))
    steps[:, 6] = 1.0
    information = np.eye(6) * 5.0
    graph.add_edges("EDGE_SE3:QUAT", pairs, steps, information, kernel="Huber", kernel_width=1.0)
    graph.add_parameters("PARAMS_SE3OFFSET", [3], [[0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 1.0]])
    seen = [(i, j) for i in range(num) for j in range(len(points)) if rng.random() < 0.5]
    local = [points[j] - poses[i, :3] + 0.1 * rng.normal(size=3) for i, j in seen]
    edges = [(i, ids[j]) for i, j in seen]
    graph.add_edges("EDGE_SE3_TRACKXYZ", edges, local, parameters=[[3]] * len(edges))
    return graph


def relative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Pose b seen from pose a, (x, y, angle)."""
    turn = (b[2] - a[2] + np.pi) % (2 * np.pi) - np.pi
    return np.array([*to_local(a, b[:2]), turn])


def to_local(pose: np.ndarray, point: np.ndarray) -> np.ndarray:
    """A point in the frame of a pose."""
    c, s = np.cos(pose[2]), np.sin(pose[2])
    return np.array([[c, s], [-s, c]]) @ (point - pose[:2])
