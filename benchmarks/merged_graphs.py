"""Problems in which several edge sets have the same vertices: an image with stencils, a drive."""

from __future__ import annotations

import functools

import numpy as np
from schedules import local

import graphopt
from graphopt.graph import Graph


@functools.cache
def image_types():
    """Pixels, and what their brightness, steps and bends are measured against."""
    pixel = graphopt.group_type("StencilPixel", 1)

    @graphopt.edge_type(tag="EDGE_STENCIL_FIT", vertices=(pixel,), measurement_dim=1)
    def EdgeStencilFit(value, measured):
        """Difference to the noisy picture."""
        return value - measured

    @graphopt.edge_type(tag="EDGE_STENCIL_STEP", vertices=(pixel, pixel), measurement_dim=1)
    def EdgeStencilStep(first, second, wanted):
        """Difference of neighbours - a wanted one."""
        return second - first - wanted

    @graphopt.edge_type(tag="EDGE_STENCIL_BEND", vertices=(pixel, pixel, pixel), measurement_dim=1)
    def EdgeStencilBend(before, here, after, wanted):
        """Second difference."""
        return before - 2.0 * here + after - wanted

    return pixel, EdgeStencilFit, EdgeStencilStep, EdgeStencilBend


def image(size: int = 1024, seed: int = 0) -> Graph:
    """A noisy picture of size x size pixels, smoothed: three edge sets, six views of the same pixels."""
    rng = np.random.default_rng(seed)
    row, column = np.indices((size, size)) / 40.0
    values = (np.sin(row) * np.cos(column) + 0.1 * rng.normal(size=(size, size)))[..., None]
    pixel, fit, step, bend = image_types()
    graph = Graph()
    grid = graph.add_grid(pixel, (size, size), estimates=values)
    graph.add_stencil(fit, grid, [(0, 0)], values)
    for offset in ((0, 1), (1, 0)):
        graph.add_stencil(step, grid, [(0, 0), offset], kernel="Huber", kernel_width=0.2)
        before = (-offset[0], -offset[1])
        graph.add_stencil(bend, grid, [before, (0, 0), offset], information=4.0)
    return graph


def drive(num_poses: int = 20000, seed: int = 0) -> Graph:
    """Poses with odometry, loop closures (Huber), priors, and points seen as places and bearings."""
    rng = np.random.default_rng(seed)
    angle = np.cumsum(0.05 * rng.normal(size=num_poses))
    way = np.cumsum(np.stack([np.cos(angle), np.sin(angle)], axis=1), axis=0)
    poses = np.concatenate([way, angle[:, None]], axis=1)
    points = way[::5] + 6.0 * rng.normal(size=way[::5].shape)
    ids = num_poses + np.arange(len(points))
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", np.arange(num_poses), poses + 0.01 * rng.normal(size=poses.shape))
    graph.add_vertices("VERTEX_XY", ids, points + 0.05 * rng.normal(size=points.shape))
    first = np.arange(num_poses - 1)
    loops = rng.integers(0, num_poses - 40, num_poses // 4)
    for begin, end, kernel in ((first, first + 1, None), (loops, loops + 40, "Huber")):
        turn = angle[end] - angle[begin]
        steps = np.concatenate([local(poses[begin], way[end]), turn[:, None]], axis=1)
        graph.add_edges("EDGE_SE2", np.stack([begin, end], axis=1), steps, kernel=kernel)
    graph.add_edges("EDGE_PRIOR_SE2", np.arange(0, num_poses, 10)[:, None], poses[::10])
    for tag, per_pose in (("EDGE_SE2_XY", 3), ("EDGE_BEARING_SE2_XY", 2)):
        pose = np.repeat(np.arange(num_poses), per_pose)
        point = (pose // 5 + rng.integers(-10, 10, len(pose))) % len(points)
        seen = local(poses[pose], points[point])
        if tag != "EDGE_SE2_XY":
            seen = np.arctan2(seen[:, 1], seen[:, 0])[:, None]
        graph.add_edges(tag, np.stack([pose, ids[point]], axis=1), seen)
    return graph
