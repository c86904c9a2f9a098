"""Grids, stencils and access per argument: the edges they make are those that index arrays would make."""

import dataclasses
import itertools

import numpy as np
import pytest

import graphopt
from graphopt.errors import GraphError, OptionError, ShapeError
from graphopt.graph import everywhere
from graphopt.types import registry
from graphopt.types.base import EdgeType
from graphopt.types.merged import merged_edge_type

WEIGHTS = (np.arange(1, 33) / 32).tolist()


@pytest.fixture(scope="module")
def kinds():
    """Types of this module, taken away afterwards."""
    before = set(registry.all_types())

    @graphopt.vertex_type(tangent_dim=1)
    def Pixel(x, d):
        return x + d

    @graphopt.vertex_type(tangent_dim=2)
    def Place(x, d):
        return x + d

    @graphopt.edge_type(vertices=(Pixel, Pixel), measurement_dim=1)
    def Difference(a, b, z):
        return b - a - z

    @graphopt.edge_type(vertices=(Pixel,) * 5, measurement_dim=1)
    def Laplace(c, n, s, w, e, z):
        return 4.0 * c - n - s - w - e + 0.1 * c * c * n - z

    @graphopt.edge_type(vertices=(Place, Place, Pixel))
    def Mixed(a, b, angle):
        return np.stack([b[0] - a[0] - np.cos(angle[0]), b[1] - a[1] - np.sin(angle[0])], axis=-1)

    @graphopt.edge_type(vertices=(Pixel, Pixel), measurement_dim=1)
    def Scaled(x, gain, z):
        return x[0] * gain[0] - z

    @graphopt.edge_type(vertices=(Pixel,) * len(WEIGHTS))
    def Wide(*x):
        return sum(w * each for w, each in zip(WEIGHTS, x, strict=True))

    yield {k.name: k for k in registry.all_types() if k not in before}
    for kind in set(registry.all_types()) - before:
        registry.unregister(kind)


PADDING = {"clamp": "edge", "wrap": "wrap", "mirror": "reflect"}
FIVE = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)]


@pytest.mark.parametrize("rule", PADDING)
@pytest.mark.parametrize("shape", [(5, 6), (2, 3), (1, 4), (1, 1)])
def test_boundary_rules_are_those_of_numpy_pad(kinds, rule, shape):
    """chi2 of a five-point stencil equals that of the padded array; the optimizer's too, to the gradient."""
    rng = np.random.default_rng(0)
    x, z = rng.random(shape), rng.random(shape)
    graph = graphopt.Graph()
    grid = graph.add_grid("Pixel", shape, x)
    edges = graph.add_stencil("Laplace", grid, FIVE, z, boundary=rule)
    p = np.pad(x, 1, mode=PADDING[rule])
    north, south, west, east = p[:-2, 1:-1], p[2:, 1:-1], p[1:-1, :-2], p[1:-1, 2:]
    expected = np.sum((4.0 * x - north - south - west - east + 0.1 * x * x * north - z) ** 2)
    assert len(edges) == x.size
    assert graph.chi2() == pytest.approx(expected, rel=1e-12)
    summary = graphopt.optimize(graph, method="lm", max_iterations=60)
    assert summary.initial_chi2 == pytest.approx(expected, rel=1e-12)
    gradient = []
    for k in range(x.size):
        ends = []
        for step in (1e-5, -2e-5):  # there and, from there, to the other side
            graph.vertex_sets[0].estimate[k] += step
            ends.append(graph.chi2())
        graph.vertex_sets[0].estimate[k] += 1e-5
        gradient.append((ends[0] - ends[1]) / 2e-5)
    assert np.abs(gradient).max() < 1e-6


@pytest.mark.parametrize("rule", PADDING)
@pytest.mark.parametrize("first", [(-3, -7), (-2, -4)])
def test_slots_of_wide_stencils_coincide_as_they_are(kinds, rule, first):
    """Of 32 slots: which of them meet at the border is told apart in the later ones too."""
    offsets = [(first[0] + i, first[1] + j) for i in range(4) for j in range(8)]
    x = np.random.default_rng(0).random((9, 9))
    graph = graphopt.Graph()
    graph.add_stencil("Wide", graph.add_grid("Pixel", x.shape, x), offsets, boundary=rule)
    p = np.pad(x, 8, mode=PADDING[rule])
    expected = sum(w * p[8 + i : 17 + i, 8 + j : 17 + j] for w, (i, j) in zip(WEIGHTS, offsets, strict=True))
    assert graph.chi2() == pytest.approx(np.sum(expected**2), rel=1e-12)


def test_skip_has_the_edges_inside(kinds):
    """Differences to the right: (height, width - 1) of them, with the measurement of their left pixel."""
    z = np.arange(12.0).reshape(3, 4)
    graph = graphopt.Graph()
    graph.add_vertices("Pixel", [100])  # ids and rows do not start at zero
    grid = graph.add_grid("Pixel", (3, 4))
    edges = graph.add_stencil("Difference", grid, [(0, 0), (0, 1)], z, information=2.0)
    (edge_set,) = graph.edge_sets
    assert len(edges) == len(edge_set) == 9
    np.testing.assert_array_equal(edge_set.vertices[:, 0], grid.ids[:, :-1].ravel())
    np.testing.assert_array_equal(edge_set.vertices[:, 1], grid.ids[:, 1:].ravel())
    np.testing.assert_array_equal(edge_set.measurement[:, 0], z[:, :-1].ravel())
    assert (edge_set.information == 2.0).all()


def test_a_grid_with_a_removed_vertex_is_not_complete(kinds):
    """Its array is refused."""
    graph = graphopt.Graph()
    grid = graph.add_grid("Pixel", (3, 3))
    graph.remove_vertices([int(grid.ids[1, 1])])
    with pytest.raises(GraphError, match="not complete"):
        _ = grid.estimate


def test_edges_of_a_stencil_are_found_after_removals(kinds):
    """New measurements and weights go to the stencil's own edges, whatever was removed before or of it."""
    graph = graphopt.Graph()
    grids = [graph.add_grid("Pixel", (1, 5)) for _ in range(3)]
    sets = [graph.add_stencil("Difference", grid, [(0, 0), (0, 1)], float(k)) for k, grid in enumerate(grids)]
    (edge_set,) = graph.edge_sets
    graph.remove_edges(edge_set, [0])
    graph.remove_vertices([int(grids[1].ids[0, 3])])  # edges 2 and 3 of the second
    graph.remove_edges(edge_set, [len(edge_set) - 1])
    sets[1].set_measurements(np.arange(10.0, 15.0)[None])
    sets[2].set_information(7.0)
    assert [len(edges) for edges in sets] == [3, 2, 3]
    assert edge_set.measurement[:, 0].tolist() == [0, 0, 0, 10, 11, 2, 2, 2]
    assert edge_set.information.ravel().tolist() == [1] * 5 + [7] * 3
    with pytest.raises(GraphError, match=r"information .* nan"):
        sets[1].set_information(np.nan)
    graph.remove_edges(edge_set, [3, 4])
    sets[1].set_measurements(5.0)
    assert len(sets[1]) == 0 and 5.0 not in edge_set.measurement


def test_masks(kinds):
    """An edge where the mask holds; `everywhere` asks for all pixels of the stencil."""
    mask = np.zeros((4, 5), bool)
    mask[1:3, 1:4] = True
    offsets = [(0, 0), (0, 1)]
    graph = graphopt.Graph()
    grid = graph.add_grid("Pixel", (4, 5), fixed=~mask)
    first = graph.add_stencil("Difference", grid, offsets, mask=mask)
    second = graph.add_stencil("Difference", grid, offsets, mask=everywhere(mask, offsets), boundary="wrap")
    assert (len(first), len(second)) == (6, 4)
    np.testing.assert_array_equal(first.parts[0][2], np.flatnonzero(mask))
    assert not grid.fixed[mask].any()


def test_several_grids_and_a_shared_vertex(kinds):
    """Slots of different types over one domain; a vertex that all edges have; the analytic answer."""
    graph = graphopt.Graph()
    places = graph.add_grid("Place", (3, 4), np.random.default_rng(0).random((3, 4, 2)))
    angles = graph.add_grid("Pixel", (3, 4), np.full((3, 4), 0.3))
    graph.add_stencil("Mixed", (places, places, angles), [(0, 0), (0, 1), (0, 0)])
    a, b = places.estimate[:, :-1], places.estimate[:, 1:]
    expected = np.sum((b - a - [np.cos(0.3), np.sin(0.3)]) ** 2)
    assert graph.chi2() == pytest.approx(expected, rel=1e-12)

    gain = graph.add_array("Pixel", [[2.0]])
    values = np.random.default_rng(1).random((3, 4))
    graph.add_stencil("Scaled", (angles, graphopt.unique(gain)), [(0, 0), None], values)
    assert graph.chi2() == pytest.approx(expected + np.sum((0.6 - values) ** 2), rel=1e-12)


def test_one_and_three_axes(kinds):
    """Signals and volumes."""
    graph = graphopt.Graph()
    line = graph.add_grid("Pixel", 6, np.arange(6.0))
    graph.add_stencil("Difference", line, [0, 1], 1.0)
    assert graph.chi2() == 0.0
    volume = graph.add_grid("Pixel", (2, 3, 4), np.zeros((2, 3, 4)))
    edges = graph.add_stencil("Difference", volume, [(0, 0, 0), (1, 0, 1)], 1.0)
    assert len(edges) == 1 * 3 * 3 and graph.chi2() == 9.0
    np.testing.assert_array_equal(volume.coordinates()[1, 2, 3], [3.0, 2.0, 1.0])


def test_measurements_and_weights_between_solves(kinds):
    """New arrays reach every part, the border's too."""
    graph = graphopt.Graph()
    grid = graph.add_grid("Pixel", (3, 4))
    edges = graph.add_stencil("Difference", grid, [(0, 0), (0, 1)], boundary="clamp")
    assert len(edges.parts) == 2 and graph.chi2() == 0.0
    z = np.arange(12.0).reshape(3, 4)
    edges.set_measurements(z)
    edges.set_information(z + 1.0)
    assert graph.chi2() == pytest.approx(np.sum((z + 1.0) * z**2), rel=1e-12)


def test_access_per_argument_equals_index_arrays(kinds):
    """indexed, sequential, pairwise, unique."""
    graph = graphopt.Graph()
    graph.add_vertices("Pixel", [3, 9])
    x = graph.add_array("Pixel", np.arange(5.0))
    grid = graph.add_grid("Pixel", (2, 3), np.arange(6.0).reshape(2, 3))
    index = [4, 0, 2]
    graph.add_edges("Difference", (graphopt.indexed(x, index), graphopt.indexed(x, [0, 1, 3])), [0.0, 1, 2])
    graph.add_edges("Difference", graphopt.pairwise(x), 1.0)
    graph.add_edges("Scaled", (graphopt.sequential(x), graphopt.unique(grid, 2)), np.arange(5.0))
    graph.add_edges("Difference", (graphopt.indexed(grid, [[1, 2]]), graphopt.unique(x)), [7.0])
    difference, scaled = graph.edge_set("Difference").vertices, graph.edge_set("Scaled").vertices
    ids = x.ids
    np.testing.assert_array_equal(
        difference,
        [
            *zip(ids[index], ids[[0, 1, 3]], strict=True),
            *itertools.pairwise(ids),
            (grid.ids[1, 2], ids[0]),
        ],
    )
    np.testing.assert_array_equal(scaled, [(i, grid.ids[0, 2]) for i in ids])


def test_one_edge_for_one_vertex(kinds):
    """A single measurement of one number: shared or per edge, it is the same."""
    graph = graphopt.Graph()
    x = graph.add_array("Pixel", [[1.0]])
    y = graph.add_array("Pixel", [[2.0]])
    graph.add_edges("Difference", (graphopt.unique(x), graphopt.unique(y)), [0.5])
    assert graph.chi2() == 0.25


MISTAKES = [
    (lambda g, p: g.add_stencil("Difference", p, [(0, 0), (0, 0)]), GraphError, "same offset"),
    (lambda g, p: g.add_stencil("Difference", p, [(0, 0)]), ShapeError, "one per slot"),
    (lambda g, p: g.add_stencil("Difference", p, [(0, 0), 1]), ShapeError, "2 whole numbers"),
    (lambda g, p: g.add_stencil("Difference", p, [(0, 0), (0, 1)], boundary="zero"), OptionError, "mirror"),
    (lambda g, p: g.add_stencil("Difference", p, [(0, 0), (0, 1)], np.zeros((3, 3))), ShapeError, r"\(3, 4"),
    (lambda g, p: g.add_stencil("Difference", p, [(0, 0), (0, 1)], np.inf), GraphError, "finite"),
    (lambda g, p: g.add_stencil("Difference", p, [(0, 0), (0, 1)], mask=np.ones(3)), ShapeError, "mask"),
    (lambda g, p: g.add_stencil("Mixed", p, [(0, 0), (0, 1), (0, 0)]), GraphError, "VERTEX_PLACE"),
    (
        lambda g, p: g.add_stencil("Difference", (p, graphopt.sequential(p)), [(0, 0), None]),
        GraphError,
        "unique",
    ),
    (
        lambda g, p: g.add_edges("Difference", (graphopt.sequential(p),) * 2, np.zeros(11)),
        ShapeError,
        "clear",
    ),
    (lambda g, p: g.add_edges("Difference", (graphopt.unique(p),) * 2, 1.0), GraphError, "twice"),
    (lambda g, p: g.add_edges("Difference", (graphopt.unique(p), 1), 1.0), ShapeError, "access per slot"),
    (lambda g, p: graphopt.indexed(p, [12]), GraphError, "has 12 vertices"),
    (lambda g, p: graphopt.indexed(p, [[0, 4]]), GraphError, "axis 1"),
    (lambda g, p: graphopt.unique(p, 12), GraphError, "place is 12"),
    (lambda g, p: g.add_grid("Pixel", (0, 3)), ShapeError, "positive"),
    (lambda g, p: g.add_grid("Pixel", (2, 3), np.zeros((3, 2))), ShapeError, "estimates"),
    (lambda g, p: g.add_array("Place", np.zeros(4)), ShapeError, r"\(n, 2\)"),
    (
        lambda g, p: graphopt.Graph().add_stencil("Difference", p, [(0, 0), (0, 1)]),
        GraphError,
        "another graph",
    ),
]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_mistakes_are_named(kinds, number):
    """Nothing is stored by a call that fails."""
    action, error, words = MISTAKES[number]
    graph = graphopt.Graph()
    grid = graph.add_grid("Pixel", (3, 4))
    with pytest.raises(error, match=words):
        action(graph, grid)
    assert graph.num_edges == 0 and graph.num_vertices == 12


def test_grids_in_files(kinds, tmp_path):
    """Grids and stencils are ordinary vertices and edges in a .g2o file; merged edges have no line there."""
    graph = graphopt.Graph()
    grid = graph.add_grid("Pixel", (3, 4), np.arange(12.0).reshape(3, 4))
    graph.add_stencil("Difference", grid, [(0, 0), (0, 1)], 0.5)
    places = graph.add_grid("Place", (3, 4))
    graph.add_stencil("Mixed", (places, places, grid), [(0, 0), (0, 1), (0, 0)])
    graphopt.write(graph, tmp_path / "grid.g2o")
    again = graphopt.read(tmp_path / "grid.g2o")
    assert again.num_edges == graph.num_edges == 18
    assert again.chi2() == pytest.approx(graph.chi2(), rel=1e-12)
    graph.add_stencil("Difference", grid, [(0, 0), (0, 1)], boundary="clamp")
    with pytest.raises(GraphError, match='boundary="skip"'):
        graphopt.write(graph, tmp_path / "border.g2o")


def test_merged_types_add_their_jacobians():
    """Of a type with its own Jacobian the blocks of equal slots are added."""
    kind = registry.edge_type("EDGE_POINTXY")
    assert isinstance(kind, EdgeType)
    own = dataclasses.replace(kind, jacobian=lambda a, b, z: (np.full((2, 2), 1.0), np.full((2, 2), 3.0)))
    merged = merged_edge_type(own, (0, 0))
    assert merged.jacobian is not None and len(merged.vertices) == 1
    np.testing.assert_array_equal(merged.jacobian(0, 0)[0], np.full((2, 2), 4.0))
    assert merged_edge_type(own, (0, 1)) is own
    with pytest.raises(GraphError, match="cannot be the same vertex"):
        merged_edge_type(registry.edge_type("EDGE_SE2_XY"), (0, 0))
