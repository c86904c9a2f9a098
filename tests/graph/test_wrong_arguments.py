"""What does not fit into a graph or an optimization is refused with what was got and what was expected."""

from __future__ import annotations

import os

import numpy as np
import pytest

import graphopt
from graphopt.errors import GraphOptError, OptionError, ShapeError, UnknownIdError


@pytest.fixture
def graph() -> graphopt.Graph:
    """Three poses in a row."""
    made = graphopt.Graph()
    made.add_vertices("VERTEX_SE2", [0, 1, 2], np.zeros((3, 3)))
    made.add_edges("EDGE_SE2", [[0, 1], [1, 2]], [1.0, 0.0, 0.0])
    return made


@pytest.mark.parametrize("value", [5.0, [5.0], [1.0, 2.0], "abc", [1j, 0.0, 0.0], [[1.0, 2.0]]])
def test_one_number_does_not_fill_an_estimate(graph, value):
    """Assignments to objects are checked as arguments are, and change nothing where they fail."""
    vertex, edge = graph.vertex(1), graph.edge("EDGE_SE2", 0)
    for item, name in ((vertex, "estimate"), (edge, "measurement"), (edge, "information")):
        before = getattr(item, name).copy()
        with pytest.raises(ShapeError, match=name):
            setattr(item, name, value)
        np.testing.assert_array_equal(getattr(item, name), before)


def test_what_fits_is_assigned(graph):
    """Lists, float32, strided arrays."""
    vertex, edge = graph.vertex(1), graph.edge("EDGE_SE2", 0)
    vertex.estimate = np.arange(6, dtype=np.float32)[::2]
    edge.measurement = [1, 2, 3]
    edge.information = np.asfortranarray(np.diag([1.0, 2.0, 3.0]))
    assert vertex.estimate.tolist() == [0.0, 2.0, 4.0] and edge.measurement.tolist() == [1.0, 2.0, 3.0]
    assert edge.information.tolist() == np.diag([1.0, 2.0, 3.0]).tolist()


@pytest.mark.parametrize("values", [np.full((1, 3), 1j), np.ma.masked_array(np.zeros((1, 3)), [[1, 0, 0]])])
def test_complex_and_masked_numbers_are_refused(graph, values):
    """Their real parts and what is under the mask are not what was meant."""
    with pytest.raises(ShapeError, match="expected real"):
        graph.add_vertices("VERTEX_SE2", [7], values)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_parameters_may_be_any_finite_numbers(graph):
    """Only those of images stand for handles."""
    graph.add_parameters("PARAMS_SE2OFFSET", [0], [1e300, -1e300, 0.5])
    assert graph.parameter_sets[0].values.tolist() == [[1e300, -1e300, 0.5]]


@pytest.mark.parametrize("one_id", [1.5, "a", None, 99, -1, (0,)])
def test_ids_are_not_rounded(graph, one_id):
    """A half is no vertex, a word neither."""
    with pytest.raises(UnknownIdError):
        graph.vertex(one_id)


@pytest.mark.parametrize("one_id", [1, 1.0, np.int32(1), np.uint64(1), np.array(1)])
def test_whole_numbers_are_ids(graph, one_id):
    """Of any type."""
    assert graph.vertex(one_id).id == 1


@pytest.mark.parametrize(
    ("vertices", "measurement", "properties"),
    [
        (None, [1, 0, 0], {}),
        (3, [1, 0, 0], {}),
        ((0, 1), "abc", {}),
        ((0, 1), [1, None, "x"], {}),
        ((0, 1), [1, 0, 0], {"kernel": "Huber", "kernel_width": "x"}),
        ((0, 1), [1, 0, 0], {"kernel": "Huber", "kernel_width": None}),
    ],
)
def test_edges_from_what_is_none(graph, vertices, measurement, properties):
    """Every one is an error of the library, and nothing was added."""
    with pytest.raises(GraphOptError):
        graph.add_edge("EDGE_SE2", vertices, measurement, **properties)
    assert graph.num_edges == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_iterations": "x"}, "max_iterations is 'x'"),
        ({"max_iterations": 2.5}, "max_iterations is 2.5"),
        ({"device": None}, "device is None"),
        ({"device": 1}, "device is 1"),
        ({"callback": 3}, "callback is 3"),
        ({"stop": 3}, "stop is 3"),
        ({"comm": 3}, r"graphopt\.distributed\.optimize\(graph, comm"),
    ],
)
def test_options_of_the_wrong_kind(graph, options, says):
    """Named, with what was got."""
    with pytest.raises(OptionError, match=says):
        graphopt.optimize(graph, **options)


def test_a_path_may_be_bytes(graph, tmp_path):
    """As everywhere in Python."""
    graphopt.write(graph, tmp_path / "a.g2o")
    assert graphopt.read(os.fsencode(tmp_path / "a.g2o")).num_edges == 2
