"""Graphs, types, summaries and options travel: pickle, copy, other processes; copies share nothing."""

import copy
import multiprocessing
import pickle
import subprocess
import sys

import numpy as np
import pytest
from graph_columns import assert_same
from spawned import optimized

import graphopt
from graphopt.errors import GraphError, GraphOptError, TypeRegistryError, UnknownIdError
from graphopt.evaluate import datasets
from graphopt.graph import UnparsedLine
from graphopt.linear.options import SolverOptions
from graphopt.types import registry

pytestmark = pytest.mark.usefixtures("own_types")


def small_graph() -> graphopt.Graph:
    """Poses and points with parameters, a level, robust kernels and an attachment."""
    graph = datasets.ba(cameras=5, points=30, camera="expmap", seed=3)
    graph.set_robust_kernel("Huber", 1.5)
    graph.attachments["names"] = {"first": [1, 2]}
    graph.unparsed.append(UnparsedLine("VERTEX_TAG 1 2", 3, 4))
    return graph


@pytest.mark.parametrize(
    "copied",
    [lambda graph: pickle.loads(pickle.dumps(graph)), copy.copy, copy.deepcopy, graphopt.Graph.copy],
    ids=["pickle", "copy", "deepcopy", "method"],
)
def test_a_copied_graph_is_the_same_and_independent(copied):
    """Same numbers, and no array, list or attachment of one is the other's."""
    graph = small_graph()
    other = copied(graph)
    assert_same(graph, other)
    assert graph.chi2() == other.chi2() and graph.attachments == other.attachments
    before, chi2 = pickle.dumps(graph), graph.chi2()
    graphopt.optimize(other)
    other.add_vertices(other.vertex_sets[0].type, [10**6])
    other.attachments["names"]["first"].append(3)
    other.vertex(10**6).remove()
    assert pickle.dumps(graph) == before and graph.chi2() == chi2 and other.chi2() < 0.9 * chi2


def test_all_types_are_found_again():
    """Built-in types, also those of a number of vertices or a border: the very same object."""
    for kind in registry.all_types():
        assert pickle.loads(pickle.dumps(kind)) is kind and copy.deepcopy(kind) is kind
    variadic = registry.edge_type("EDGE_SE2_LOTSOFXY").instantiate(3)
    assert pickle.loads(pickle.dumps(variadic)) is variadic


def test_an_unregistered_type_is_refused_by_pickle_and_found_by_deepcopy():
    """Nobody could find it by its tag."""
    kind = graphopt.group_type("Lost", 2)
    registry.unregister(kind)
    with pytest.raises(pickle.PicklingError, match="VERTEX_LOST"):
        pickle.dumps(kind)
    assert copy.deepcopy(kind) is kind


def test_a_pickle_whose_type_is_unknown_or_changed_says_so():
    """What is missing, and where it was defined."""
    text = pickle.dumps(kind := graphopt.group_type("Later", 2))
    registry.unregister(kind)
    with pytest.raises(TypeRegistryError, match=r"VERTEX_LATER.*Later"):
        pickle.loads(text)
    graphopt.group_type("Later", 3)
    with pytest.raises(TypeRegistryError, match="has changed"):
        pickle.loads(text)


def test_images_and_own_kernels_travel():
    """Pixels come along under new handles; a kernel is found by its name."""
    image = graphopt.image_type(tag="IMAGE_TRAVEL")

    @graphopt.robust_kernel_type
    def travelling(chi2, width):
        return np.sqrt(chi2 + width)

    @graphopt.edge_type(
        tag="EDGE_TRAVEL", vertices=("VERTEX_POINT_XY",), parameters=(image,), measurement_dim=1
    )
    def edge_travel(point, picture, value):
        return picture(point[0], point[1]) - value

    graph = graphopt.Graph()
    pixels = np.arange(12.0).reshape(3, 4)
    for refused in ({"level": 2**32}, {"parameters": [graphopt.Image(np.zeros((2, 2, 3)))]}):
        with pytest.raises(GraphOptError):  # the image is not left behind by edges that were not added
            graph.add_edges(
                edge_travel, np.zeros((0, 1)), **{"parameters": [graphopt.Image(pixels)], **refused}
            )
    assert graph.num_parameters == 0
    graph.add_parameters(image, [0], graphopt.Image(pixels))
    graph.add_vertex("VERTEX_POINT_XY", 0, [1.5, 1.5])
    graph.add_edge(edge_travel, [0], 1.0, parameters=[0], kernel=travelling)
    for other in (pickle.loads(pickle.dumps(graph)), graph.copy()):
        assert other.chi2() == graph.chi2() and other.edge_sets[0].kernel[0] == travelling.number
        other.parameter_sets[0].images[0].pixels[...] = 0.0
        assert np.array_equal(graph.parameter_sets[0].images[0].pixels, pixels)
        assert other.chi2() != graph.chi2()


def test_summaries_and_options_travel():
    """Dataclasses of plain values."""
    summary = graphopt.optimize(small_graph(), "lm", 3)
    for value in (summary, graphopt.AutoOptions(), graphopt.LevenbergMarquardtOptions(), SolverOptions()):
        assert pickle.loads(pickle.dumps(value)) == value == copy.deepcopy(value)


def test_spawned_processes_optimize():
    """multiprocessing with `spawn`: graphs go there and come back optimized, as in this process."""
    graphs = [small_graph(), small_graph()]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        results = pool.map(optimized, graphs)
    expected, summary = optimized(small_graph())
    for graph, told in results:
        assert_same(graph, expected)
        assert told.final_chi2 == summary.final_chi2


def test_a_module_with_types_is_imported_where_a_pickle_is_read(tmp_path, monkeypatch):
    """Another process finds a user's types by the module that defines them."""
    (tmp_path / "my_types.py").write_text(
        "import graphopt, numpy as np\n"
        "Spot = graphopt.group_type('Spot', 2)\n"
        "@graphopt.edge_type(vertices=(Spot, Spot), measurement_dim=1)\n"
        "def EdgeApart(a, b, distance):\n"
        "    return np.sqrt((a - b) @ (a - b)) - distance\n"
    )
    write = (
        "import graphopt, pickle, my_types\n"
        "graph = graphopt.Graph()\n"
        "graph.add_vertices(my_types.Spot, [0, 1], [[0, 0], [3, 4]])\n"
        "graph.add_edge(my_types.EdgeApart, [0, 1], 2.0)\n"
        "open('graph.pickle', 'wb').write(pickle.dumps(graph))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, (tmp_path, *filter(None, sys.path)))))
    subprocess.run([sys.executable, "-c", write], check=True, cwd=tmp_path)
    try:
        assert pickle.loads((tmp_path / "graph.pickle").read_bytes()).chi2() == pytest.approx(9.0)
    finally:
        sys.modules.pop("my_types", None)


# ---------------------------------------------------------------- views


@pytest.mark.parametrize("how", ["grow", "remove"])
def test_a_stale_view_is_read_only(how):
    """Views from before, also those taken while the set still had room, cannot be written into nowhere."""
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_POINT_XY", range(3))
    graph.add_vertices("VERTEX_POINT_XY", [3])
    views = [graph.vertex_sets[0].estimate]
    graph.add_vertices("VERTEX_POINT_XY", [4])
    views.append(graph.vertex_sets[0].estimate)
    views[0][0] = 5.0
    assert graph.vertex(0).estimate[0] == 5.0
    if how == "grow":
        graph.add_vertices("VERTEX_POINT_XY", range(100, 200))
    else:
        graph.remove_vertices([2])
    for view in views:
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 7.0
    graph.vertex_sets[0].estimate[0] = 8.0
    assert graph.vertex(0).estimate.tolist() == [8.0, 8.0]


# ---------------------------------------------------------------- defining again


def cell(dim: int):
    """What a notebook's cell does; running it again defines the types again."""
    point = graphopt.group_type("CellPoint", dim)

    @graphopt.edge_type(vertices=(point,), measurement_dim=dim)
    def edge_cell(x, z):
        return x - z

    return point, edge_cell


def test_running_a_cell_again_replaces_its_types():
    """Of the same or another size; the new ones are found and work."""
    old_point, old_edge = cell(2)
    point, edge = cell(3)
    assert registry.vertex_type("VERTEX_CELL_POINT") is point is not old_point
    assert registry.edge_type("edge_cell") is edge is not old_edge
    graph = graphopt.Graph()
    graph.add_vertices(point, [0])
    graph.add_edges(edge, [[0]], [1.0, 2.0, 3.0])
    graphopt.optimize(graph, "gn", 1, fix="none")
    assert graph.vertex(0).estimate == pytest.approx([1.0, 2.0, 3.0])
    with pytest.raises(GraphError, match="defined a second time"):
        graph.add_edges(old_edge, [[0]], [1.0, 2.0])


def test_the_same_name_from_elsewhere_is_an_error():
    """Two different definitions do not share a name."""
    cell(2)
    with pytest.raises(TypeRegistryError, match="is taken by"):
        graphopt.group_type("CellPoint", 2)
    with pytest.raises(TypeRegistryError, match="is taken by"):
        graphopt.group_type("Mine", 2, tag="VERTEX_SE2")


# ---------------------------------------------------------------- bulk values


def test_errors_and_chi2_of_a_set():
    """Per edge, as the objects have them; some rows, and with the robust kernel or without."""
    graph = small_graph()
    for edge_set in graph.edge_sets:
        edges = [edge for edge in graph.edges() if edge.type is edge_set.type]
        np.testing.assert_allclose(edge_set.errors(), [edge.error() for edge in edges], atol=1e-13)
        np.testing.assert_allclose(edge_set.chi2(robust=False), [edge.chi2() for edge in edges], atol=1e-13)
        assert np.array_equal(edge_set.chi2([2, 0]), edge_set.chi2()[[2, 0]])
        mask = edge_set.level == 0
        assert edge_set.errors(mask).shape == (len(edge_set), edge_set.type.residual_dim)
        with pytest.raises(UnknownIdError, match="has"):
            edge_set.errors([10**6])
    assert sum(each_edge_set.chi2().sum() for each_edge_set in graph.edge_sets) == pytest.approx(
        graph.chi2(), rel=1e-13
    )
    lost = small_graph().edge_sets[0]
    with pytest.raises(GraphError, match="belongs to no graph"):
        lost.errors()


def test_html_of_a_graph():
    """A row per type, with text made safe."""
    html = small_graph()._repr_html_()
    assert html.count("<tr>") == 1 + 2 + 1 + 1
    assert "EDGE_" in html and "fixed" in html
