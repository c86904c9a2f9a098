"""The C library reads and writes the files that the Python package reads and writes, all types included."""

from __future__ import annotations

import numpy as np
import pytest
from c_library import Handle

import graphopt
from graphopt import io
from graphopt.io import extra_types
from graphopt.io.export_types import exported_tag
from graphopt.types import BUILTIN_TYPES, EdgeType, VariadicEdgeType

EDGES = [
    kind.instantiate(3) if isinstance(kind, VariadicEdgeType) else kind
    for kind in (*BUILTIN_TYPES, *extra_types.ALL)
    if isinstance(kind, EdgeType | VariadicEdgeType)
]


def graph_of(kind: EdgeType, rng: np.random.Generator) -> graphopt.Graph:
    """Three edges of a type between vertices near their identity."""
    graph = graphopt.Graph()
    next_id = 0
    rows = []
    for _ in range(3):
        row = []
        for vertex in kind.vertices:
            estimate = np.array(vertex.identity) + 0.1 * rng.standard_normal(vertex.storage_dim)
            graph.add_vertices(vertex, [next_id], [_tidy(estimate)])
            row.append(next_id)
            next_id += 1
        rows.append(row)
    parameters = []
    for k, parameter in enumerate(kind.parameters):
        values = np.array(parameter.identity) + 0.1 * rng.standard_normal(parameter.storage_dim)
        graph.add_parameters(parameter, [k], [_tidy(values)])
        parameters.append(k)
    measurement = np.array([_tidy(rng.uniform(0.5, 1.5, kind.measurement_dim)) for _ in range(3)])
    half = rng.standard_normal((3, kind.residual_dim, kind.residual_dim))
    information = half @ half.transpose(0, 2, 1) + np.eye(kind.residual_dim)
    graph.add_edges(kind, rows, measurement, information, parameters=[parameters] * 3 if parameters else None)
    return graph


def _tidy(numbers: np.ndarray) -> np.ndarray:
    if len(numbers) >= 7:  # a pose, if it is one: of unit length, so that no reader changes it
        numbers = numbers.copy()
        numbers[3:7] /= np.linalg.norm(numbers[3:7])
    return numbers


@pytest.mark.parametrize("kind", EDGES, ids=exported_tag)
def test_every_type_in_g2o_files(library, tmp_path, kind):
    """Python writes, the library reads and writes, Python reads: the same chi2, or none of both."""
    graph = graph_of(kind, np.random.default_rng(5))
    path, again = tmp_path / "in.g2o", tmp_path / "out.g2o"
    io.write(graph, path)
    expected = graphopt.read(path).chi2()
    handle = Handle(library)
    handle.done("graph_read", path)
    assert handle.chi2() == pytest.approx(expected, rel=1e-9, nan_ok=True)
    handle.done("graph_write", again)
    assert graphopt.read(again).chi2() == pytest.approx(expected, rel=1e-8, nan_ok=True)


@pytest.mark.parametrize("dialect", ["g2o", "g2opy"])
def test_dialects(library, tmp_path, dialect):
    """Poses that C++ g2o writes inverted: by the comment, asked for, and found out."""
    from graphopt.datasets.bundle_adjustment import ba

    graph = ba(cameras=4, points=30, camera="expmap", seed=1)
    path = tmp_path / "in.g2o"
    io.write(graph, path, dialect=dialect)
    expected = graph.chi2()
    for text, asked in ((path.read_text(), None), (path.read_text().replace("# dialect:", "#"), dialect)):
        path.write_text(text)
        handle = Handle(library)
        handle.done("graph_read_as", path, asked, None)
        assert handle.chi2() == pytest.approx(expected, rel=1e-9)
    handle = Handle(library)
    handle.done("graph_read", path)
    assert handle.chi2() == pytest.approx(expected, rel=1e-9)


def test_kernels_and_fixed_vertices(library, tmp_path):
    """In comments and FIX lines, both ways."""
    graph = graph_of(EDGES[0], np.random.default_rng(1))
    edges = graph.edge_sets[0]
    edges.kernel[:2], edges.kernel_width[:2] = 1, (0.5, 0.25)
    graph.vertex_sets[0].fixed[0] = True
    path, again = tmp_path / "in.g2o", tmp_path / "out.g2o"
    io.write(graph, path)
    handle = Handle(library)
    handle.done("graph_read", path)
    assert handle.chi2() == pytest.approx(graph.chi2(), rel=1e-12)
    handle.done("graph_write", again)
    back = graphopt.read(again)
    assert back.chi2() == pytest.approx(graph.chi2(), rel=1e-12)
    assert back.vertex_sets[0].fixed.sum() == 1
    path.write_text(path.read_text().replace("# kernel: ", "# kernel: NO_"))
    assert Handle(library).call("graph_read", path) == 4
