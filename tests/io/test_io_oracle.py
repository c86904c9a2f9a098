"""g2opy reads what we write and we read what it writes, type by type, with the same chi2."""

import zlib

import numpy as np
import pytest

from graphopt import io
from graphopt.graph import Graph
from graphopt.io.g2o_write import G2O_TAGS
from graphopt.types import VariadicEdgeType, registry

pytestmark = pytest.mark.oracle
NUM_EDGES = 4

ROUNDED = ("EDGE_SE3:EXPMAP", "EDGE_PROJECT_P2MC", "EDGE_PROJECT_P2SC", "EDGE_CAM")
"""g2o writes six digits and keeps the quaternions of these as they are then; we normalise them."""
EDGE_TYPES = [kind for kind in registry.edge_types() if kind.tag in G2O_TAGS]


@pytest.fixture(scope="module")
def g2o():
    """Return the module, if it is installed."""
    return pytest.importorskip("g2opy")


def random_information(rng, count, dim):
    """Symmetric positive definite matrices (count, dim, dim)."""
    factor = rng.normal(size=(count, dim, dim))
    return factor @ np.swapaxes(factor, 1, 2) + np.eye(dim)


def random_graph(kind, seed):
    """Vertices, parameters and edges of one type with positive random numbers (scales and depths must be)."""
    rng = np.random.default_rng(seed)
    if isinstance(kind, VariadicEdgeType):
        kind = kind.instantiate(4)
    graph = Graph()
    for parameter_type in dict.fromkeys(kind.parameters):
        tokens = rng.uniform(0.3, 1.5, (2, parameter_type.file.num_tokens))
        graph.add_parameters(parameter_type, [0, 1], parameter_type.file.decode(tokens))
    next_id, ids = 0, {}
    for vertex_type in dict.fromkeys(kind.vertices):
        count = NUM_EDGES * kind.vertices.count(vertex_type)
        tokens = rng.uniform(0.3, 1.5, (count, vertex_type.file.num_tokens))
        ids[vertex_type] = iter(range(next_id, next_id + count))
        graph.add_vertices(vertex_type, np.arange(next_id, next_id + count), vertex_type.file.decode(tokens))
        next_id += count
    vertices = [[next(ids[vertex_type]) for vertex_type in kind.vertices] for _ in range(NUM_EDGES)]
    measurement, _ = kind.file.decode(rng.uniform(0.3, 1.5, (NUM_EDGES, kind.file.num_tokens)))
    information = random_information(rng, NUM_EDGES, kind.residual_dim)
    parameters = rng.integers(0, 2, (NUM_EDGES, len(kind.parameters))) if kind.parameters else None
    graph.add_edges(kind, vertices, measurement, information, parameters=parameters)
    return graph


def oracle_chi2(g2o, path, num_vertices, num_edges):
    """Load a file with g2opy: chi2 and the optimizer; every vertex and edge must have arrived."""
    optimizer = g2o.SparseOptimizer()
    assert optimizer.load(str(path))
    assert len(optimizer.vertices()) == num_vertices
    assert len(optimizer.edges()) == num_edges
    for vertex in optimizer.vertices().values():
        if type(vertex).__name__ == "VertexCam":  # g2o sets its projection matrix on update, not on load
            vertex.oplus(np.zeros(6))
    total = 0.0
    for edge in optimizer.edges():
        edge.compute_error()
        total += edge.chi2()
    return total, optimizer


@pytest.mark.parametrize("kind", EDGE_TYPES, ids=lambda kind: kind.tag)
def test_chi2_survives_both_ways(g2o, kind, tmp_path):
    """g2opy loads our file with our chi2; what it saves, we read with that chi2 again."""
    graph = random_graph(kind, zlib.crc32(kind.tag.encode()))
    ours, theirs = tmp_path / "ours.g2o", tmp_path / "theirs.g2o"
    assert io.write(graph, ours, dialect="g2opy") == []
    expected = graph.chi2()
    assert np.isfinite(expected) and expected > 0.0
    assert io.read(ours).chi2() == pytest.approx(expected, rel=1e-12)
    chi2, optimizer = oracle_chi2(g2o, ours, graph.num_vertices, graph.num_edges)
    assert chi2 == pytest.approx(expected, rel=1e-9)
    assert optimizer.save(str(theirs))
    again, report = io.read_with_report(theirs, dialect="g2opy")
    assert (again.num_vertices, again.num_edges) == (graph.num_vertices, graph.num_edges)
    assert report.unknown_tags == {}
    chi2_of_theirs, _ = oracle_chi2(g2o, theirs, graph.num_vertices, graph.num_edges)
    assert again.chi2() == pytest.approx(chi2_of_theirs, rel=1e-5 if kind.tag in ROUNDED else 1e-9)


def test_real_graphs_load_alike(g2o, shared_data):
    """Counts and chi2 of real files, read by both, agree."""
    for name in ("intel.g2o", "smallGrid3D.g2o"):
        path = shared_data / "posegraph" / name
        graph = io.read(path)
        chi2, _ = oracle_chi2(g2o, path, graph.num_vertices, graph.num_edges)
        assert graph.chi2() == pytest.approx(chi2, rel=1e-7), name


def test_fix_lines(g2o, tmp_path):
    """g2opy fixes the vertices that we fixed, and we those that it fixed."""
    graph = io.read(write_lines(tmp_path, "VERTEX_XY 1 0 0", "VERTEX_XY 2 1 0", "VERTEX_XY 3 1 1", "FIX 1 3"))
    assert graph.vertex_set("VERTEX_XY").fixed.tolist() == [True, False, True]
    path = tmp_path / "again.g2o"
    io.write(graph, path)
    optimizer = g2o.SparseOptimizer()
    assert optimizer.load(str(path))
    assert {i: v.fixed() for i, v in optimizer.vertices().items()} == {1: True, 2: False, 3: True}


def test_old_variadic_edges(tmp_path):
    """Edges of any arity in g2o 1.x form (ids before ||) equal those in 2.x form."""
    poses = ["VERTEX_SE2 0 1 2 0.3", "VERTEX_XY 1 1 2", "VERTEX_XY 2 3 2"]
    numbers = "1 2 3 4", "1 0 0 0 1 0 0 1 0 1"
    new = io.read(write_lines(tmp_path, *poses, f"EDGE_SE2_LOTSOFXY 3 0 1 2 4 {numbers[0]} 10 {numbers[1]}"))
    old = io.read(write_lines(tmp_path, *poses, f"EDGE_SE2_LOTSOFXY 0 1 2 || 2 {numbers[0]} {numbers[1]}"))
    assert new.chi2() == old.chi2() > 0


def write_lines(folder, *lines):
    """Write lines to a file and return its path."""
    path = folder / "lines.g2o"
    path.write_text("\n".join(lines) + "\n")
    return path
