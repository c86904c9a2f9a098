"""Edges that sample images in every way: per edge, of several channels, captured, bilinear and bicubic."""

from __future__ import annotations

import functools

import numpy as np

import graphopt
from graphopt.graph import Graph
from graphopt.types.base import EdgeType

PIXELS_PER_METER = 3.0


def smooth(seed: int, shape=(20, 20)) -> np.ndarray:
    """(height, width) float32, brightness of about 1."""
    row, column = np.indices(shape) / 3.0
    return (np.sin(row + 0.3 * column + seed) + 0.7 * np.cos(column * 1.3 - seed)).astype(np.float32)


@functools.cache
def images() -> tuple[graphopt.Image, ...]:
    """Two of two channels, two of one, and the one that `photo_edge` captures."""
    pairs = [np.stack([smooth(k), smooth(k + 7)], axis=-1) for k in (1, 2)]
    return (*map(graphopt.Image, [*pairs, smooth(3, (17, 23)), smooth(4)]), captured())


@functools.cache
def captured() -> graphopt.Image:
    """Of three channels, so no parameter of the edge takes it; two of them are not read."""
    return graphopt.Image(np.stack([smooth(5), smooth(6), smooth(8)], axis=-1), "bicubic")


@functools.cache
def image_types():
    """Two channels bilinear, one bicubic."""
    return (
        graphopt.image_type(tag="IMAGE_TEST_PAIR", channels=2),
        graphopt.image_type(tag="IMAGE_TEST_SMOOTH", interpolation="bicubic"),
    )


@functools.cache
def photo_edge() -> EdgeType:
    """A point seen by a camera in the plane, as brightness of three images."""
    own = captured()

    @graphopt.edge_type(
        tag="EDGE_TEST_PHOTO",
        vertices=("VERTEX_SE2", "VERTEX_XY"),
        parameters=image_types(),
        measurement_dim=3,
    )
    def EdgeTestPhoto(pose, point, pair, single, measured):
        """Differences of brightness; right of column 9 of the captured image's."""
        seen = pose.inverse().act(point) * PIXELS_PER_METER
        u, v = seen[..., 0] + 8.1, seen[..., 1] + 7.7
        both = pair(u, v)
        moved = single(u + measured[..., 0], v + measured[..., 1])
        other = own(v, u)
        chosen = np.where(u < 9.0, moved, other[..., 1])
        return np.stack([both[..., 0] - measured[..., 2], both[..., 1] * moved, chosen], axis=-1)

    return EdgeTestPhoto


@functools.cache
def brightness_edge(interpolation: str) -> EdgeType:
    """A place where an image's brightness is looked for."""
    kind = graphopt.image_type(tag=f"IMAGE_TEST_{interpolation.upper()}", interpolation=interpolation)

    @graphopt.edge_type(
        tag=f"EDGE_TEST_{interpolation.upper()}",
        name=f"EdgeTest{interpolation.title()}",
        vertices=("VERTEX_XY",),
        parameters=(kind,),
        measurement_dim=1,
    )
    def EdgeTestBrightness(place, image, measured):
        """Brightness - the measured one."""
        return image(place[..., 0], place[..., 1])[..., None] - measured

    return EdgeTestBrightness


def photo_graph(seed=0, num_poses=6, num_points=40, singles=None) -> Graph:
    """Poses that stay, two of them held, and points that are eliminated; every edge has its own images.

    singles: the two images of one channel, parameters 3 and 4.
    """
    rng = np.random.default_rng(seed)
    graph = Graph()
    poses = np.column_stack([rng.uniform(-0.3, 0.3, (num_poses, 2)), rng.uniform(-0.2, 0.2, num_poses)])
    graph.add_vertices("VERTEX_SE2", np.arange(num_poses), poses, fixed=np.arange(num_poses) < 2)
    points, ids = rng.uniform(-2.0, 2.5, (num_points, 2)), 100 + np.arange(num_points)
    graph.add_vertices("VERTEX_XY", ids, points, marginalized=True)
    graph.add_edges("EDGE_PRIOR_XY", ids[:, None], points + 0.05, 0.5 * np.eye(2))
    pair, single = image_types()
    graph.add_parameters(pair, [1, 2], list(images()[:2]))
    graph.add_parameters(single, [3, 4], list(singles or images()[2:4]))
    seen = np.array([(i, j) for i in range(num_poses) for j in range(num_points) if rng.random() < 0.7])
    measured = rng.normal(size=(len(seen), 3)) * [0.5, 0.5, 0.2]
    chosen = np.column_stack([1 + seen[:, 0] % 2, 3 + seen.sum(axis=1) % 2])
    vertices = np.column_stack([seen[:, 0], ids[seen[:, 1]]])
    graph.add_edges(photo_edge(), vertices, measured, kernel="Huber", kernel_width=1.5, parameters=chosen)
    return graph
