"""NaN and information matrices that rounding made asymmetric: what g2o takes is taken, the rest is named."""

from __future__ import annotations

import numpy as np
import pytest
from both import assert_same, both, estimates, isometry, ring

import graphopt.g2o as ours
from graphopt.errors import GraphError

NAN = np.full(7, np.nan)


def _edge(optimizer, first=2):
    return next(edge for edge in optimizer.edges() if edge.vertex(0).id() == first)


def _isolated_vertex(g2o, optimizer):
    vertex = g2o.VertexSE3()
    vertex.set_id(99)
    vertex.set_estimate_data(NAN)
    optimizer.add_vertex(vertex)


def _other_level(g2o, optimizer):
    """An edge that takes no part; another joins its vertices."""
    edge = g2o.EdgeSE3()
    for i in range(2):
        edge.set_vertex(i, optimizer.vertex(2 + i))
    edge.set_measurement_data(NAN)
    edge.set_information(np.full((6, 6), np.nan))
    edge.set_level(1)
    optimizer.add_edge(edge)


def _between_isolated(g2o, optimizer):
    """An edge of another level between two vertices at NaN."""
    for id in (98, 99):
        vertex = g2o.VertexSE3()
        vertex.set_id(id)
        vertex.set_estimate_data(NAN)
        optimizer.add_vertex(vertex)
    edge = g2o.EdgeSE3()
    for i, id in enumerate((98, 99)):
        edge.set_vertex(i, optimizer.vertex(id))
    edge.set_measurement(isometry(g2o, [1.0, 0.0, 0.0]))
    edge.set_information(np.eye(6))
    edge.set_level(2)
    optimizer.add_edge(edge)


def _single_precision(g2o, optimizer):
    """R L R' in float32, as programs rotate information matrices."""
    random = np.random.default_rng(1)
    turn, _ = np.linalg.qr(random.normal(size=(6, 6)))
    turn = turn.astype(np.float32)
    product = (turn * np.linspace(1.0, 400.0, 6, dtype=np.float32)) @ turn.T
    product[0, 1] *= 1.0 + 1e-6
    assert (product != product.T).any()
    _edge(optimizer).set_information(product.astype(np.float64))


def _run(g2o, prepare, algorithm):
    optimizer = ring(g2o, 6, algorithm=algorithm)
    prepare(g2o, optimizer)
    optimizer.initialize_optimization()
    optimizer.optimize(5)
    optimizer.compute_active_errors()
    return [optimizer.active_chi2(), {id: v for id, v in estimates(optimizer).items() if id < 90}]


@pytest.mark.oracle
@pytest.mark.parametrize("algorithm", ["GaussNewton", "Levenberg", "Dogleg"])
@pytest.mark.parametrize("prepare", [_isolated_vertex, _other_level, _between_isolated, _single_precision])
def test_computed_as_g2o_does(prepare, algorithm):
    """NaN where nothing is computed harms nobody; rounding of an information matrix is no error."""
    actual, expected = both(_run, prepare, algorithm)
    assert_same(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("what", ["estimate", "measurement", "information"])
def test_nan_in_what_is_optimized(what, capfd):
    """`optimize` says where, returns 0, and leaves the estimates as they were."""
    optimizer = ring(ours, 6)
    if what == "estimate":
        optimizer.vertex(3).set_estimate_data(NAN)
    elif what == "measurement":
        _edge(optimizer).set_measurement_data(NAN)
    else:
        _edge(optimizer).set_information(np.full((6, 6), np.nan))
    before = estimates(optimizer)
    assert optimizer.initialize_optimization()
    assert optimizer.optimize(5) == 0
    assert_same(estimates(optimizer), before)
    assert np.isnan(optimizer.active_chi2())
    said = capfd.readouterr().err
    assert (
        "EDGE_SE3:QUAT" in said
        and "2" in said
        and said == f"SparseOptimizer.optimize: {optimizer.summary.message}\n"
    )


def test_edge_with_nan_is_switched_off():
    """Programs put bad edges on another level and go on."""
    optimizer, clean = ring(ours, 6), ring(ours, 6)
    for object_ in (optimizer, clean):
        object_.initialize_optimization()
        object_.optimize(1)
    bad = _edge(optimizer)
    bad.set_measurement_data(NAN)
    bad.set_information(np.full((6, 6), np.nan))
    for object_ in (bad, _edge(clean)):
        object_.set_level(1)
    for object_ in (optimizer, clean):
        object_.initialize_optimization()
        assert object_.optimize(4) > 0
    assert_same(estimates(optimizer), estimates(clean), rtol=1e-12, atol=1e-12)


def test_matrices_that_are_not_symmetric():
    """More than rounding is refused in active edges, by name, also where it was set later."""
    optimizer = ring(ours, 6)
    matrix = np.eye(6)
    matrix[0, 1] = 0.3
    optimizer.initialize_optimization()
    optimizer.optimize(1)
    _edge(optimizer).set_information(matrix)
    with pytest.raises(
        GraphError, match=r"<EdgeSE3 between 2, 3>: its information matrix is not symmetric .*0\.3"
    ):
        optimizer.optimize(1)
    _edge(optimizer).set_level(1)
    optimizer.initialize_optimization()
    assert optimizer.optimize(1) == 1


def test_limit_of_rounding():
    """1e-5 of the largest entry."""
    for gap, is_taken in ((0.9e-5, True), (1.1e-5, False)):
        optimizer = ring(ours, 6)
        matrix = 400.0 * np.eye(6)
        matrix[4, 5] = 400.0 * gap
        _edge(optimizer).set_information(matrix)
        optimizer.initialize_optimization()
        if is_taken:
            optimizer.optimize(1)
            assert optimizer.graph().edge_set("EDGE_SE3:QUAT").information[2, 5, 4] == pytest.approx(
                200.0 * gap
            )
        else:
            with pytest.raises(GraphError, match="not symmetric"):
                optimizer.optimize(1)
