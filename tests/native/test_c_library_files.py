"""The C library reads and writes the files that the Python package reads and writes, all types included."""

from __future__ import annotations

import numpy as np
import pytest
from builtin_edges import EDGES, graph_of
from c_library import Handle

import graphopt
from graphopt import io
from graphopt.io.export_types import exported_tag


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
