"""The graph's arrays, object view, checks and removal."""

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphopt
from graphopt.errors import GraphError, OptionError, ShapeError, UnknownIdError
from graphopt.graph import Graph, columns


def square(num_vertices=4):
    """A ring of poses with exact odometry."""
    graph = Graph()
    angles = np.arange(num_vertices) * 2.0 * np.pi / num_vertices
    poses = np.stack([np.cos(angles), np.sin(angles), angles], axis=1)
    graph.add_vertices("VERTEX_SE2", np.arange(num_vertices), poses)
    pairs = np.stack([np.arange(num_vertices), (np.arange(num_vertices) + 1) % num_vertices], axis=1)
    graph.add_edges("EDGE_SE2", pairs, np.zeros((num_vertices, 3)))
    return graph


def contents(graph):
    """Everything a graph holds, for comparison."""
    names = ("sequence", "ids", "estimate", "fixed", "marginalized", "values")
    edge_names = ("sequence", "vertices", "measurement", "information", "kernel", "kernel_width", "level")
    return [
        (set_.type.tag, name, getattr(set_, name).copy())
        for sets, wanted in (
            (graph.vertex_sets, names[:5]),
            (graph.edge_sets, edge_names),
            (graph.parameter_sets, ("sequence", "ids", "values")),
        )
        for set_ in sets
        for name in wanted
    ]


def assert_same(before, after):
    assert [(tag, name) for tag, name, _ in before] == [(tag, name) for tag, name, _ in after]
    for (_, name, column), (_, _, other) in zip(before, after, strict=True):
        np.testing.assert_array_equal(column, other, err_msg=name)


def test_arrays_are_live_views():
    """Writing into an array changes what objects show, and the other way round."""
    graph = square()
    poses = graph.vertex_set("VERTEX_SE2")
    poses.estimate[2] = [7.0, 8.0, 0.5]
    assert graph.vertex(2).estimate.tolist() == [7.0, 8.0, 0.5]
    graph.vertex(3).estimate = [1.0, 2.0, 3.0]
    graph.vertex(3).estimate[0] = -1.0
    assert poses.estimate[3].tolist() == [-1.0, 2.0, 3.0]
    graph.vertex(1).fixed = True
    assert poses.fixed.tolist() == [False, True, False, False]
    edge = next(graph.edges())
    edge.kernel = "Huber"
    edge.kernel_width = 2.5
    edge.level = 3
    edges = graph.edge_set("EDGE_SE2")
    assert (edges.kernel[0], edges.kernel_width[0], edges.level[0]) == (1, 2.5, 3)
    edges.level = 1
    assert edge.level == 1


def test_what_the_graph_finds_things_by_is_read_only():
    """Ids and sequence numbers; a write made vertices that some look-ups knew and others did not."""
    graph = square()
    graph.add_parameters("PARAMS_SE2OFFSET", [0], np.zeros(3))
    for rows in (*graph.vertex_sets, *graph.edge_sets, *graph.parameter_sets):
        for name in {"ids", "sequence"} & set(dir(rows)):
            with pytest.raises(ValueError, match="read-only"):
                getattr(rows, name)[0] = 77
    known = graph.edge_sets[0].fingerprint("measurement")
    address = graph.edge_sets[0].measurement.ctypes.data
    ctypes.c_double.from_address(address).value = 3.0
    graph.edge_sets[0].touch()
    assert graph.edge_sets[0].fingerprint("measurement") != known


def test_views_are_refreshed_after_growth():
    """A set that outgrows its memory says so, and its new arrays hold the old numbers."""
    graph = square()
    poses = graph.vertex_set("VERTEX_SE2")
    old, generation = poses.estimate, poses.generation
    graph.add_vertices("VERTEX_SE2", np.arange(100, 400))
    assert poses.generation > generation
    np.testing.assert_array_equal(poses.estimate[:4], old)
    poses.estimate[0] = 5.0
    assert old[0, 0] == 1.0


def test_ids_may_be_any_64_bit_number():
    """Negative, sparse and extreme ids are found one by one and in bulk."""
    ids = np.array([-(2**63), -5, 0, 12, 2**40, 2**63 - 1])
    graph = Graph()
    graph.add_vertices("VERTEX_XY", ids, np.arange(12.0).reshape(6, 2))
    for row, id_ in enumerate(ids.tolist()):
        assert graph.vertex(id_).estimate.tolist() == [2.0 * row, 2.0 * row + 1.0]
    many = np.resize(ids, 500)
    numbers, rows = graph.find_vertices(many)
    np.testing.assert_array_equal(rows, np.resize(np.arange(6), 500))
    assert (numbers == 0).all()
    numbers, rows = graph.find_vertices(np.resize([12, 13], 500))
    assert numbers[:2].tolist() == [0, -1]
    assert rows[:2].tolist() == [3, -1]
    with pytest.raises(GraphError, match="18446744073709551615"):
        graph.add_vertices("VERTEX_XY", np.array([2**64 - 1], np.uint64))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=200, unique=True), st.integers(0, 5))
def test_bulk_and_single_look_up_agree(ids, seed):
    """`find_vertices` of a long array and `vertex_place` give the same places."""
    graph = Graph()
    half = len(ids) // 2
    graph.add_vertices("VERTEX_XY", ids[:half])
    graph.add_vertices("VERTEX_SE2", ids[half:])
    wanted = np.random.default_rng(seed).choice(np.array(ids), 300)
    numbers, rows = graph.find_vertices(wanted)
    for id_, number, row in zip(wanted.tolist(), numbers.tolist(), rows.tolist(), strict=True):
        assert graph.vertex_place(id_) == (number, row)
        assert graph.vertex_sets[number].ids[row] == id_


NAN_ROW = [[0.0, 0.0, 0.0], [0.0, np.nan, 0.0]]
ASYMMETRIC = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda g: g.add_vertices("VERTEX_SE2", [8, 3]), GraphError, "row 1: vertex 3 exists already"),
        (lambda g: g.add_vertices("VERTEX_XY", [8, 9, 8]), GraphError, "8 is given twice, in rows 0 and 2"),
        (lambda g: g.add_vertices("VERTEX_SE2", [8, 9], NAN_ROW), GraphError, "row 1 .id 9. holds nan"),
        (lambda g: g.add_vertices("VERTEX_SE2", [8], np.zeros((1, 2))), ShapeError, r"expected \(1, 3\)"),
        (lambda g: g.add_vertices("VERTEX_SE2", [8.5]), ShapeError, "integers"),
        (lambda g: g.add_vertices("VERTEX_SE2", [8], fixed=1), ShapeError, "bool"),
        (
            lambda g: g.add_edges("EDGE_SE2", [[0, 1], [1, 99]], np.zeros((2, 3))),
            GraphError,
            "row 1 .*vertex 99",
        ),
        (
            lambda g: g.add_edges("EDGE_SE2", [[0, 50]], np.zeros((1, 3))),
            GraphError,
            "is a VERTEX_XY, expected",
        ),
        (lambda g: g.add_edges("EDGE_SE2", [[2, 2]], np.zeros((1, 3))), GraphError, "vertex 2 twice"),
        (lambda g: g.add_edges("EDGE_SE2", [[0, 1, 2]], np.zeros((1, 3))), ShapeError, r"expected \(m, 2\)"),
        (
            lambda g: g.add_edges("EDGE_SE2", [[0, 1], [0, 2]], NAN_ROW),
            GraphError,
            "row 1 .vertices 0, 2. holds nan",
        ),
        (
            lambda g: g.add_edges("EDGE_SE2", [[0, 1]], np.zeros((1, 3)), np.full((3, 3), np.inf)),
            GraphError,
            "information of row 0 .* holds inf",
        ),
        (
            lambda g: g.add_edges("EDGE_SE2", [[0, 1]], np.zeros((1, 3)), ASYMMETRIC),
            GraphError,
            "row 0 .vertices 0, 1. is not symmetric",
        ),
        (
            lambda g: g.add_edges("EDGE_SE2", [[0, 1]], np.zeros((1, 3)), np.ones(3)),
            ShapeError,
            r"information have shape \(3,\), expected \(1, 3, 3\)",
        ),
        (
            lambda g: g.add_edges("EDGE_SE2", [[0, 1]], np.zeros((1, 3)), kernel="Hubert"),
            OptionError,
            "Hubert",
        ),
        (
            lambda g: g.add_edges("EDGE_SE2", [[0, 1]], np.zeros((1, 3)), kernel_width=0.0),
            GraphError,
            "kernel_width must be finite and positive",
        ),
        (
            lambda g: g.add_edges("EDGE_SE2_OFFSET", [[0, 1]], np.zeros((1, 3))),
            GraphError,
            "needs parameters",
        ),
        (
            lambda g: g.add_edges("EDGE_SE2_OFFSET", [[0, 1]], np.zeros((1, 3)), parameters=[[0, 4]]),
            GraphError,
            "PARAMS_SE2OFFSET with id 4",
        ),
        (lambda g: g.add_parameters("PARAMS_SE2OFFSET", [0], np.zeros(3)), GraphError, "id 0 exists already"),
        (lambda g: g.add_vertices("VERTEX_SE2", [8], order=[1]), GraphError, "order must ascend"),
        (lambda g: g.add_parameters("PARAMS_SE2OFFSET", [[1]], np.zeros(3)), ShapeError, r"expected \(n,\)"),
        *(
            (lambda g, level=level: g.add_edges("EDGE_SE2", [[0, 1]] * 16, level=level), error, message)
            for level, error, message in (
                (2**32, GraphError, r"level holds 4294967296 .*32 bits"),
                ([[1, 2]], ShapeError, r"level has shape \(1, 2\), expected one number or \(16,\)"),
                ([1, 2, 3], ShapeError, r"level has shape \(3,\)"),
            )
        ),
        (lambda g: setattr(g.edge("EDGE_SE2", 0), "level", -(2**40)), GraphError, "32 bits"),
        (
            lambda g: g.add_variadic_edges(
                "EDGE_SE2_LOTSOFXY", [[0, 50], [0, 50, 50]], [np.zeros(2), [0] * 4]
            ),
            GraphError,
            "names vertex 50 twice",
        ),
    ],
)
def test_a_refused_call_names_the_culprit_and_changes_nothing(call, error, message):
    """Adding is all-or-nothing."""
    graph = square()
    graph.add_vertices("VERTEX_XY", [50])
    graph.add_parameters("PARAMS_SE2OFFSET", [0], np.zeros(3))
    before, version = contents(graph), graph.version
    views = [graph.vertex_sets[0].estimate, graph.edge_sets[0].measurement]
    with pytest.raises(error, match=message):
        call(graph)
    assert_same(before, contents(graph))
    assert graph.version == version and all(view.flags.writeable for view in views)


def test_memory_that_is_refused_leaves_a_set_as_it_was(monkeypatch):
    """An addition needs new arrays, and one of them may fail; the next does not write beyond the others."""
    graph = square(16)
    before, version, empty = contents(graph), graph.version, np.empty

    def refuses_booleans(shape, dtype=float):
        if dtype == np.bool_:
            raise MemoryError
        return empty(shape, dtype)

    monkeypatch.setattr(columns.np, "empty", refuses_booleans)
    with pytest.raises(MemoryError):
        graph.add_vertices("VERTEX_SE2", np.arange(100, 200))
    monkeypatch.undo()
    assert_same(before, contents(graph))
    assert graph.version == version
    graph.add_vertices("VERTEX_SE2", np.arange(100, 200))
    assert graph.num_vertices == 116


POSE = [1.0, 2.0, 3.0]


@pytest.mark.parametrize("quaternion", [(0, 0, 0, 0), (0, 0, 0, 1e-9), (1e200, 0, 0, 0)])
def test_a_quaternion_without_direction_is_refused_by_name(quaternion):
    """Of vertices, measurements and parameters; nothing was added or assigned."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE3:QUAT", [3, 4])
    graph.add_edges("EDGE_SE3:QUAT", [[3, 4]])
    vertex, edge = graph.vertex(4), graph.edge("EDGE_SE3:QUAT", 0)
    before, wrong = contents(graph), [*POSE, *quaternion]
    right = [*POSE, 0, 0, 0, 1]
    camera = np.zeros(17)
    camera[3:7] = quaternion
    for call, where in (
        (lambda: graph.add_vertices("VERTEX_SE3:QUAT", [5, 6], [right, wrong]), r"row 1 \(id 6\)"),
        (lambda: graph.add_vertices("VERTEX_SIM3:EXPMAP", [7], [camera]), r"SIM3:EXPMAP .* row 0 \(id 7\)"),
        (lambda: graph.add_array("VERTEX_SE3:QUAT", [right, right, wrong]), r"row 2 \(id 7\)"),
        (lambda: graph.add_edges("EDGE_SE3:QUAT", [[3, 4]], [wrong]), r"row 0 \(vertices 3, 4\)"),
        (lambda: graph.add_parameters("PARAMS_SE3OFFSET", [2], [wrong]), r"row 0 \(id 2\)"),
        (lambda: setattr(vertex, "estimate", wrong), "VERTEX_SE3:QUAT estimate"),
        (lambda: setattr(edge, "measurement", wrong), "EDGE_SE3:QUAT measurement"),
    ):
        with pytest.raises(GraphError, match=f"{where}.*no rotation"):
            call()
    assert_same(before, contents(graph))
    graph.vertex_sets[0].estimate[1, 3:] = quaternion  # arrays are not checked, check() does
    (finding,) = graph.check()
    assert (finding.kind, finding.severity) == ("zero-quaternion", "error")
    assert "VERTEX_SE3:QUAT" in finding.message and "rows 1" in finding.message


def test_quaternions_are_taken_as_files_are_read(tmp_path):
    """Few digits stay as they are, in memory and in files; others are scaled. None given is no motion."""
    few, half, twice = [0.0, 0.0, 0.707, 0.707], [0.0, 0.0, 0.0, 0.5], [0.0, 0.0, 0.0, 2.0]
    given = np.array([[*POSE, *few], [*POSE, *half]])
    graph, kept = Graph(), given.copy()
    graph.add_vertices("VERTEX_SE3:QUAT", [0, 1], given)
    graph.add_edges("EDGE_SE3:QUAT", [[0, 1]], [*POSE, *twice])
    graph.add_edges("EDGE_SE3:QUAT", [[1, 0]])
    np.testing.assert_array_equal(given, kept)
    np.testing.assert_array_equal(graph.vertex_sets[0].estimate[:, 3:], [few, [0, 0, 0, 1]])
    np.testing.assert_array_equal(graph.edge_sets[0].measurement[:, 3:], [[0, 0, 0, 1]] * 2)
    path = tmp_path / "graph.g2o"
    graphopt.write(graph, path)
    np.testing.assert_array_equal(graphopt.read(path).vertex_sets[0].estimate, graph.vertex_sets[0].estimate)
    graph.vertex(0).estimate = [*POSE, *twice]
    assert graph.vertex(0).estimate[3:].tolist() == [0, 0, 0, 1]


def test_order_of_a_file_is_kept_across_sets():
    """`order` interleaves sets; without it things are in the order of the calls."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", [10, 11], order=[0, 2])
    graph.add_vertices("VERTEX_XY", [20, 21], order=[1, 5])
    graph.add_edges("EDGE_SE2", [[10, 11]], np.zeros((1, 3)), order=[4])
    graph.add_edges("EDGE_SE2_XY", [[10, 20]], np.zeros((1, 2)), order=[3])
    graph.add_edge("EDGE_SE2_XY", [11, 21], [0.0, 0.0])
    assert [vertex.id for vertex in graph.vertices()] == [10, 20, 11, 21]
    assert [edge.vertex_ids for edge in graph.edges()] == [(10, 20), (10, 11), (11, 21)]
    assert graph.edge_set("EDGE_SE2_XY").sequence.tolist() == [3, 6]
    assert [edge.vertex_ids for edge in graph.vertex(10).edges()] == [(10, 20), (10, 11)]
    graph.clear()
    graph.add_vertex("VERTEX_XY", 1)
    assert graph.vertex_sets[0].sequence.tolist() == [0]


def test_flags_and_kernels_of_several_types():
    """Ids of two types at once; kernels of one type leave those of others."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", [10, 11, 12])
    graph.add_vertices("VERTEX_XY", [20, 21, 22])
    graph.add_edges("EDGE_SE2", [[10, 11]])
    graph.add_edges("EDGE_SE2_XY", [[10, 20]])
    graph.set_fixed([22, 11, 20])
    graph.hold([12, 21], [1])
    graph.set_robust_kernel("Huber", 2.0, "EDGE_SE2_XY")
    assert [each.fixed.tolist() for each in graph.vertex_sets] == [[False, True, False], [True, False, True]]
    assert [np.argwhere(each.held).tolist() for each in graph.vertex_sets] == [[[2, 1]], [[1, 1]]]
    assert [edge.kernel is None for edge in graph.edges()] == [True, False]


def test_removing_a_vertex_takes_its_edges():
    """What remains is what it was, and edge objects still point to their edges."""
    graph = square(5)
    edges = list(graph.edges())
    information = 2.0 * np.eye(3)
    edges[4].information = information
    graph.vertex(1).remove()
    assert 1 not in graph
    assert [edge.vertex_ids for edge in graph.edges()] == [(2, 3), (3, 4), (4, 0)]
    np.testing.assert_array_equal(edges[4].information, information)
    with pytest.raises(UnknownIdError, match="removed"):
        edges[0].level  # noqa: B018
    with pytest.raises(UnknownIdError, match="no vertex 1"):
        graph.vertex(1)
    graph.add_vertex("VERTEX_XY", 1)
    assert graph.vertex(1).type.tag == "VERTEX_XY"


def test_removing_edges_by_rows_and_mask():
    """Rows and masks name the same edges; parameters in use stay."""
    graph = square(6)
    other = graph.copy()
    graph.remove_edges("EDGE_SE2", [0, 2])
    other.remove_edges("EDGE_SE2", np.array([True, False, True, False, False, False]))
    assert_same(contents(graph), contents(other))
    assert graph.num_edges == 4
    graph.remove_edges("EDGE_SE2", [])
    assert graph.num_edges == 4
    with pytest.raises(UnknownIdError):
        graph.remove_edges("EDGE_SE2", [9])
    graph.add_parameters("PARAMS_SE2OFFSET", [0, 1], np.zeros((2, 3)))
    graph.add_edges("EDGE_SE2_OFFSET", [[0, 1]], np.zeros((1, 3)), parameters=[[0, 0]])
    with pytest.raises(GraphError, match="used by EDGE_SE2_OFFSET"):
        graph.remove_parameters([0])
    graph.remove_parameters([1])
    assert graph.num_parameters == 1


def test_chi2_is_the_sum_over_edges_and_robust_kernels_change_it():
    """chi2 = sum rho(e' Omega e), without 1/2."""
    graph = square()
    edges = list(graph.edges())
    total = sum(edge.chi2() for edge in edges)
    assert graph.chi2() == pytest.approx(total, rel=1e-14)
    error = edges[0].error()
    assert edges[0].chi2() == pytest.approx(error @ error, rel=1e-14)
    width = 0.5
    graph.set_robust_kernel("Huber", width)
    expected = sum(2.0 * width * np.sqrt(edge.chi2()) - width**2 for edge in edges)
    assert graph.chi2() == pytest.approx(expected, rel=1e-14)
    assert graph.chi2(robust=False) == pytest.approx(total, rel=1e-14)
    graph.set_robust_kernel(None)
    assert edges[0].kernel is None


def test_a_type_with_any_number_of_vertices_has_a_set_per_arity():
    """EDGE_SE2_LOTSOFXY with two and with three points are two edge sets of one tag."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", [0])
    graph.add_vertices("VERTEX_XY", [1, 2, 3])
    graph.add_edges("EDGE_SE2_LOTSOFXY", [[0, 1, 2]], np.zeros((1, 4)))
    graph.add_edge("EDGE_SE2_LOTSOFXY", [0, 1, 2, 3], np.zeros(6))
    assert [edge_set.arity for edge_set in graph.edge_sets] == [3, 4]
    assert len(graph.edge_set("EDGE_SE2_LOTSOFXY", 4)) == 1
    assert [len(edge.vertices) for edge in graph.vertex(3).edges()] == [4]


def test_unknown_sets_and_rows_are_refused():
    """The message says what the graph has."""
    graph = square()
    with pytest.raises(GraphError, match="no vertices of type VERTEX_XY; it has VERTEX_SE2"):
        graph.vertex_set("VERTEX_XY")
    for row in (4, -5, 9):
        with pytest.raises(UnknownIdError, match=f"has 4 edges, there is no row {row}"):
            graph.edge("EDGE_SE2", row)
    assert [graph.edge("EDGE_SE2", row).vertex_ids for row in (0, 3, -4, -1)] == [(0, 1), (3, 0)] * 2
    for component in (-1, 3):
        with pytest.raises(GraphError, match=f"no component {component}: its updates have 3 numbers, 0 to 2"):
            graph.hold([0], [0, component])
    with pytest.raises(UnknownIdError, match="no vertex 9"):
        graph.set_fixed([0, 9])


def test_ids_of_edges_may_have_any_layout():
    """Rows of ids that are a transposed or strided view, of many edges."""
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE2", np.arange(1000))
    ends = np.stack([np.arange(999), np.arange(1, 1000)])
    graph.add_edges("EDGE_SE2", ends.T)
    graph.add_edges("EDGE_SE2", np.asfortranarray(ends.T)[::2])
    assert graph.num_edges == 999 + 500
    np.testing.assert_array_equal(graph.edge_sets[0].vertices[:999], ends.T)
