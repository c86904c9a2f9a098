"""Loading and saving in all formats, with g2opy as reader and writer."""

from __future__ import annotations

import numpy as np
import pytest
from both import assert_same, estimates, isometry, ring

import graphopt.g2o as ours

FORMATS = ["G2O", "JSON", "BINARY"]


def mixed(g2o):
    """Poses, a point, a parameter, a fixed vertex."""
    optimizer = ring(g2o)
    offset = g2o.ParameterSE3Offset()
    offset.set_id(2)
    offset.set_param(isometry(g2o, [0.1, 0.2, 0.3], [0.1, 0.0, 0.2]))
    optimizer.add_parameter(offset)
    point = g2o.VertexPointXYZ()
    point.set_id(40)
    point.set_estimate(np.array([1.0, 2.0, 3.0]))
    optimizer.add_vertex(point)
    for i in (0, 3):
        edge = g2o.EdgeSE3PointXYZ()
        edge.set_vertex(0, optimizer.vertex(i))
        edge.set_vertex(1, point)
        edge.set_measurement(np.array([1.0, 2.0 + i, 3.0]))
        edge.set_parameter_id(0, 2)
        assert optimizer.add_edge(edge)
    return optimizer


def content(optimizer):
    """chi2 and estimates."""
    optimizer.initialize_optimization()
    optimizer.compute_active_errors()
    fixed = sorted(id for id, vertex in optimizer.vertices().items() if vertex.fixed())
    return {
        "chi2": optimizer.active_chi2(),
        "edges": len(optimizer.edges()),
        "fixed": fixed,
        **estimates(optimizer),
    }


@pytest.mark.oracle
@pytest.mark.parametrize("name", FORMATS)
def test_g2opy_reads_what_we_write(name, tmp_path):
    """And we read what it writes."""
    theirs = pytest.importorskip("g2opy")
    path = str(tmp_path / "graph")
    expected = content(mixed(ours))
    for writer, reader in ((ours, theirs), (theirs, ours)):
        assert mixed(writer).save(path, getattr(writer, name))
        optimizer = reader.SparseOptimizer()
        assert optimizer.load(path, getattr(reader, name))
        tolerance = 1e-4 if name == "G2O" else 1e-9  # g2opy's text has six digits
        assert_same(content(optimizer), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", FORMATS)
def test_round_trip_is_exact(name, tmp_path):
    """Our own files lose nothing."""
    path = str(tmp_path / "graph")
    first, second = mixed(ours), ours.SparseOptimizer()
    assert first.save(path, getattr(ours, name)) and second.load(path, getattr(ours, name))
    assert_same(content(second), content(first), rtol=1e-14, atol=1e-15)


def test_levels_are_separate(tmp_path):
    """`save` writes the edges of one level."""
    optimizer = ring(ours)
    next(iter(optimizer.edges())).set_level(2)
    for level, count in ((0, 7), (2, 1), (-1, 8)):
        assert optimizer.save(str(tmp_path / "graph.g2o"), level=level)
        other = ours.SparseOptimizer()
        assert other.load(str(tmp_path / "graph.g2o"))
        assert len(other.edges()) == count


def test_damaged_files_are_refused(tmp_path, capsys):
    """False and a sentence; the optimizer keeps its graph."""
    optimizer = ring(ours)
    for name, data in (("JSON", b"{"), ("JSON", b"[]"), ("BINARY", b"\xa1egraph"), ("BINARY", b"\xff")):
        path = tmp_path / "damaged"
        path.write_bytes(data)
        assert not optimizer.load(str(path), getattr(ours, name))
        assert "load: " in capsys.readouterr().err
    assert not optimizer.load(str(tmp_path / "missing.g2o"))
    assert not optimizer.save(str(tmp_path / "no" / "folder.g2o"))
    assert len(optimizer.edges()) == 8


@pytest.mark.oracle
def test_factory():
    """All of g2opy's tags but its caches are known, with the same sizes."""
    theirs = pytest.importorskip("g2opy").Factory.instance()
    factory = ours.Factory.instance()
    tags = [tag for tag in theirs.known_types() if not tag.startswith("CACHE")]
    assert set(tags) <= set(factory.known_types())
    for tag in tags:
        expected, actual = theirs.type_info(tag), factory.type_info(tag)
        for name in ("element_type_bit", "number_vertices", "number_parameters", "error_dimension"):
            if getattr(expected, name) > 0 and "LOTSOF" not in tag:
                assert getattr(actual, name) == getattr(expected, name), (tag, name)
        assert factory.construct(tag) is not None
