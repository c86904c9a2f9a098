"""Graphs with computed values, for the tests of every device."""

from __future__ import annotations

import numpy as np
import pytest

import graphopt


@pytest.fixture(scope="module")
def types(own_types_of_module):
    """Pixels, their slopes, edges between slopes, and the same edges written by hand."""
    return define()


@pytest.fixture(scope="module")
def own_types_of_module():
    """Types that this module registers are gone after it."""
    from examples_modules import forget_types_since

    from graphopt.types import registry

    known = set(registry.all_types())
    yield
    forget_types_since(known)


class Types:
    """What `define` makes."""


def define():
    """Types of this module."""
    found = Types()
    found.Pixel = graphopt.group_type("CvPixel", 1)

    @graphopt.computed_type(vertices=(found.Pixel,) * 3, measurement_dim=1)
    def CvSlope(here, left, upper, scale):
        """Two numbers of three pixels."""
        return np.stack([scale * here[..., 0] * left[..., 0], np.sin(here[..., 0] - upper[..., 0])], axis=-1)

    @graphopt.computed_type(vertices=(CvSlope, CvSlope))
    def CvBend(first, second):
        """A value of values."""
        return first[..., 0] * second[..., 1] - second[..., 0]

    @graphopt.computed_type(vertices=(found.Pixel,), measurement_dim=1)
    def CvSquare(x, weight):
        """A term of a sum."""
        return weight * x[..., 0] ** 2

    @graphopt.edge_type(vertices=(CvSlope, CvSlope, found.Pixel), measurement_dim=1)
    def CvEdge(a, b, x, z):
        """Between slopes and a pixel."""
        return np.stack([a[..., 0] - b[..., 1] + x[..., 0] - z, a[..., 1] * b[..., 0]], axis=-1)

    @graphopt.edge_type(vertices=(CvBend,), measurement_dim=1)
    def CvBendEdge(bend, z):
        """Of a value of values."""
        return bend - z

    @graphopt.edge_type(vertices=(CvSquare,), measurement_dim=1)
    def CvSumEdge(total, z):
        """Of a sum."""
        return total - z

    @graphopt.edge_type(vertices=(found.Pixel,), measurement_dim=1)
    def CvPrior(x, z):
        """Keeps pixels where they are."""
        return x[..., 0] - z

    @graphopt.edge_type(vertices=(found.Pixel,) * 5, measurement_dim=1)
    def CvByHand(here, left, upper, right, upper_right, z):
        """`CvEdge` with slopes of a pixel and its right neighbour put in."""

        def slope(p, q, r):
            return 2.0 * p[..., 0] * q[..., 0], np.sin(p[..., 0] - r[..., 0])

        a, b = slope(here, left, upper), slope(right, here, upper_right)
        return np.stack([a[0] - b[1] + here[..., 0] - z, a[1] * b[0]], axis=-1)

    for kind in (CvSlope, CvBend, CvSquare, CvEdge, CvBendEdge, CvSumEdge, CvPrior, CvByHand):
        setattr(found, kind.name, kind)
    return found


SHAPE = (6, 7)


def start(types, fixed=False):
    """A graph of pixels with priors, and their grid."""
    rng = np.random.default_rng(1)
    graph = graphopt.Graph()
    pixels = graph.add_grid(types.Pixel, SHAPE, estimates=rng.uniform(0.5, 1.5, SHAPE))
    if fixed:
        pixels.fixed[0, :3] = True
    graph.add_stencil(types.CvPrior, pixels, [(0, 0)], rng.uniform(0.5, 1.5, SHAPE))
    return graph, pixels


def with_values(types, boundary="skip", fixed=False):
    """Slopes, and edges between them with a robust kernel."""
    graph, pixels = start(types, fixed)
    stencil = [(0, 0), (0, -1), (-1, 0)]
    slopes = graph.add_computed(types.CvSlope, pixels, stencil, 2.0, boundary=boundary)
    inside = np.ones(SHAPE, bool)
    inside[0], inside[:, 0], inside[:, -1] = False, False, False
    inside |= boundary != "skip"
    graph.add_stencil(
        types.CvEdge, [slopes, slopes, pixels], [(0, 0), (0, 1), (0, 0)], 0.3, mask=inside, information=2.0,
        kernel="Huber", kernel_width=0.5,
    )  # fmt: skip
    return graph


def by_hand(types, fixed=False):
    """The same without computed values."""
    graph, pixels = start(types, fixed)
    inside = np.ones(SHAPE, bool)
    inside[:, -1] = False
    graph.add_stencil(
        types.CvByHand, pixels, [(0, 0), (0, -1), (-1, 0), (0, 1), (-1, 1)], 0.3, mask=inside,
        information=2.0,
        kernel="Huber", kernel_width=0.5,
    )  # fmt: skip
    return graph


def everything(types):
    """Values of values, sums with unlike numbers of terms, and a border where pixels coincide."""
    graph = with_values(types, boundary="clamp", fixed=True)
    pixels = graphopt.Grid(graph, types.Pixel, SHAPE, 0)
    slopes = graphopt.Grid(graph, types.CvSlope, SHAPE, 42)
    bends = graph.add_computed(
        types.CvBend, (graphopt.indexed(slopes, [8, 9, 20]), graphopt.indexed(slopes, [9, 16, 20 + 7]))
    )
    graph.add_edges(types.CvBendEdge, (graphopt.sequential(bends),), [[0.1], [0.2], [0.3]])
    sums = graph.add_array(types.CvSquare, np.zeros((2, 1)))
    graph.add_terms(
        sums, [0, 1, 1, 1], (graphopt.indexed(pixels, [3, 4, 11, 25]),), [[1.0], [0.5], [-1.0], [2.0]]
    )
    graph.add_edges(types.CvSumEdge, (graphopt.sequential(sums),), [[2.0], [1.0]])
    return graph


def skinned():
    """Points that several poses of g2o's carry, each by its share, and that are seen."""

    @graphopt.computed_type(vertices=("VERTEX_SE3:QUAT",), measurement_dim=4)
    def CvCarried(bone, data):
        """A share of a point, moved by a bone."""
        return data[..., 3:] * (bone * data[..., :3])

    @graphopt.edge_type(vertices=(CvCarried,), measurement_dim=3)
    def CvSeen(point, seen):
        """Of a point."""
        return point - seen

    rng = np.random.default_rng(3)
    graph = graphopt.Graph()
    poses = np.concatenate(
        [rng.normal(0.0, 0.3, (4, 3)), rng.normal(0.0, 0.1, (4, 3)), np.ones((4, 1))], axis=1
    )
    poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
    bones = graph.add_array("VERTEX_SE3:QUAT", poses)
    points = graph.add_array(CvCarried, np.zeros((30, 3)))
    for _ in range(3):
        data = np.concatenate([rng.normal(size=(30, 3)), rng.uniform(0.2, 0.4, (30, 1))], axis=1)
        graph.add_terms(points, np.arange(30), (graphopt.indexed(bones, rng.integers(0, 4, 30)),), data)
    graph.add_edges(CvSeen, (graphopt.sequential(points),), rng.normal(0.0, 0.3, (30, 3)))
    return graph
