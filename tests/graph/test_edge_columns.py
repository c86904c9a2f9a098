"""Edge sets from arrays hold what `Graph.add_edges` would; places outside of their tables are refused."""

import numpy as np
import pytest

import graphopt
from graphopt import types
from graphopt.graph.edge_columns import edge_set_of


@pytest.mark.parametrize("count", [0, 3, 100_000])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_columns_are_those_of_added_edges(count, dtype):
    """Ids by tables, by a range and by strided rows; identities, ones and zeros where nothing is given."""
    rng = np.random.default_rng(count)
    kind = types.registry.edge_type("EDGE_SE2_XY")
    table = rng.permutation(50).astype(np.int64) * 3
    rows = rng.integers(50, size=(count, 2)).astype(dtype)
    measured = rng.normal(size=(count, 2))
    order = 7 + np.arange(count)
    found = edge_set_of(kind, order, [(table, rows[:, 0]), ((1000, 50), rows[:, 1])], measurement=measured)
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE2", table)
    graph.add_vertices("VERTEX_XY", 1000 + np.arange(50))
    ends = np.stack([table[rows[:, 0]], 1000 + rows[:, 1].astype(np.int64)], axis=1)
    graph.add_edges(kind, ends, measured, order=1000 + order)
    if not count:
        assert len(found) == 0
        return
    (expected,) = graph.edge_sets
    for name in ("vertices", "measurement", "information", "kernel", "kernel_width", "level", "parameters"):
        np.testing.assert_array_equal(found.look(name), expected.look(name), err_msg=name)
        assert found.look(name).dtype == expected.look(name).dtype
    np.testing.assert_array_equal(found.sequence, order)


@pytest.mark.parametrize("wrong", [-1, 50])
def test_an_index_outside_is_refused(wrong):
    kind = types.registry.edge_type("EDGE_SE2_XY")
    rows = np.array([0, wrong])
    for table in (np.arange(50), (0, 50)):
        with pytest.raises(ValueError, match="outside of its table"):
            edge_set_of(kind, np.arange(2), [(table, rows), (np.arange(2), np.arange(2))])
