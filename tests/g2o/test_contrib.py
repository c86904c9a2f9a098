"""`g2o.contrib`: the propagator of stereo_ptam and rgbd_ptam, and how they close loops with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from both import assert_same, both, estimates, isometry, optimizer_of, ring, rotation_of
from processes import python
from scipy.spatial.transform import Rotation, Slerp

import graphopt.g2o as g2o
from graphopt.errors import GraphError, OptionError
from graphopt.g2o.contrib import SmoothEstimatePropagator

STEP, TURN = np.array([1.0, 0.2, 0.0]), np.array([0.0, 0.05, 0.3])


def _chain(count, backwards=False):
    """Poses off their places, and the edges between them; vertex 0 is where the others are measured from."""
    optimizer = optimizer_of(g2o)
    random = np.random.default_rng(7)
    for i in range(count):
        vertex = g2o.VertexSE3()
        vertex.set_id(i)
        vertex.set_estimate(isometry(g2o, random.normal(size=3), random.normal(0.0, 0.5, 3)))
        optimizer.add_vertex(vertex)
        if i == 0:
            continue
        edge = g2o.EdgeSE3()
        motion = isometry(g2o, STEP, TURN)
        ends = (i - 1, i)
        if backwards:
            motion, ends = motion.inverse(), (i, i - 1)
        for slot, end in enumerate(ends):
            edge.set_vertex(slot, optimizer.vertex(end))
        edge.set_measurement(motion)
        edge.set_information(np.eye(6))
        optimizer.add_edge(edge)
    return optimizer


def _expected(before, count, max_distance):
    """Rotations and translations after it, by scipy."""
    motion = np.eye(4)
    motion[:3, :3], motion[:3, 3] = rotation_of(TURN), STEP
    found = [before[0]]
    for i in range(1, count):
        target = found[-1] @ motion
        x = (i - 1) / (max_distance - 2.0)
        ramp = 1.0 - x / (1.0 + 50.0 * (1.0 - x))
        pose = np.eye(4)
        turns = Rotation.from_matrix([before[i][:3, :3], target[:3, :3]])
        pose[:3, :3] = Slerp([0.0, 1.0], turns)(ramp).as_matrix()
        pose[:3, 3] = (1.0 - ramp) * before[i][:3, 3] + ramp * target[:3, 3]
        found.append(pose)
    return found


@pytest.mark.parametrize("backwards", [False, True])
def test_smoothing(backwards):
    """Near vertices go all the way, far ones stay, in between S-PTAM's formula; beyond nothing moves."""
    optimizer = _chain(9, backwards)
    before = [optimizer.vertex(i).estimate().matrix() for i in range(9)]
    optimizer.initialize_optimization()
    propagator = SmoothEstimatePropagator(optimizer, 7)
    propagator.propagate(optimizer.vertex(0))
    after = [optimizer.vertex(i).estimate().matrix() for i in range(9)]
    np.testing.assert_allclose(after[:7], _expected(before, 7, 7.0), atol=1e-12)
    np.testing.assert_allclose(after[6:], before[6:], atol=1e-12)  # ramp 0 at distance 6
    assert np.abs(after[1] - before[1]).max() > 0.1
    assert {vertex.id() for vertex in propagator.visited()} == set(range(7))
    assert propagator.adjacency_map()[optimizer.vertex(3)].distance() == 3.0


def test_without_a_limit_it_is_the_spanning_tree():
    """The default distance has ramp 1 everywhere."""
    one, other = _chain(6), _chain(6)
    one.initialize_optimization()
    other.initialize_optimization()
    SmoothEstimatePropagator(one).propagate(one.vertex(0))
    g2o.EstimatePropagator(other).propagate(other.vertex(0))
    for i in range(6):
        np.testing.assert_allclose(
            one.vertex(i).estimate().matrix(), other.vertex(i).estimate().matrix(), atol=1e-12
        )


def test_fixed_vertices_stay():
    """The path goes on behind them."""
    optimizer = _chain(4)
    optimizer.vertex(1).set_fixed(True)
    before = [optimizer.vertex(i).estimate().matrix() for i in range(4)]
    optimizer.initialize_optimization()
    SmoothEstimatePropagator(optimizer, 20).propagate(optimizer.vertex(0))
    after = [optimizer.vertex(i).estimate().matrix() for i in range(4)]
    np.testing.assert_array_equal(after[1], before[1])
    assert np.abs(after[2] - before[2]).max() > 0.1


def _spread(module, initialize):
    optimizer = ring(module, 6)
    if initialize:
        optimizer.initialize_optimization()
    propagator = module.EstimatePropagator(optimizer)
    cost = module.EstimatePropagatorCost(optimizer)
    propagator.propagate(optimizer.vertex(0), cost, module.EstimatePropagator.EstimatePropagateAction())
    return [len(propagator.visited()), initialize, *([] if initialize else estimates(optimizer).values())]


@pytest.mark.oracle
@pytest.mark.parametrize("initialize", [False, True])
def test_only_active_edges_count(initialize):
    """As in g2opy: before `initialize_optimization` nothing is reached."""
    actual, expected = both(_spread, initialize)
    assert_same(actual, expected)


def test_cost_made_before_the_initialization():
    """The cost looks at the active edges when it is asked, as in g2o."""
    optimizer = _chain(4)
    propagator = SmoothEstimatePropagator(optimizer, 20)
    propagator.propagate(optimizer.vertex(0))
    assert len(propagator.visited()) == 1
    optimizer.initialize_optimization()
    propagator.propagate(optimizer.vertex(0))
    assert len(propagator.visited()) == 4


def test_other_edges_are_refused():
    """The formula is one of poses in space."""
    optimizer = optimizer_of(g2o)
    for i in range(2):
        vertex = g2o.VertexSE2()
        vertex.set_id(i)
        optimizer.add_vertex(vertex)
    edge = g2o.EdgeSE2()
    for i in range(2):
        edge.set_vertex(i, optimizer.vertex(i))
    optimizer.add_edge(edge)
    optimizer.initialize_optimization()
    with pytest.raises(GraphError, match=r"vertex 1 was reached by <EdgeSE2 .*expected an EdgeSE3"):
        SmoothEstimatePropagator(optimizer, 20).propagate(optimizer.vertex(0))
    with pytest.raises(OptionError, match="maxDistance is 0"):
        SmoothEstimatePropagator(optimizer, 0)


def test_its_names():
    """A class of its own, in the module `contrib` and for older programs beside the others."""
    assert g2o.contrib.SmoothEstimatePropagator is g2o.SmoothEstimatePropagator is SmoothEstimatePropagator
    assert SmoothEstimatePropagator is not g2o.EstimatePropagator
    assert issubclass(SmoothEstimatePropagator, g2o.EstimatePropagator)
    optimizer = _chain(2)
    SmoothEstimatePropagator(g=optimizer, maxDistance=20.0, maxEdgeCost=5.0)


def test_hessian_determinant():
    """`hessian_determinant()` of older bindings."""
    optimizer = _chain(3)
    optimizer.vertex(0).set_fixed(True)
    optimizer.initialize_optimization()
    optimizer.optimize(1)
    vertex = optimizer.vertex(2)
    assert vertex.hessian_determinant() == pytest.approx(np.linalg.det(vertex.hessian()), rel=1e-12)


@pytest.mark.parametrize("name", ["g2o", "g2opy"])
def test_loop_closing_of_the_ptam_programs(name):
    """Their calls, in their order, in a thread, by a program that knows nothing of the drop-in.

    stereo_ptam and rgbd_ptam: `from g2o.contrib import SmoothEstimatePropagator`, subclasses with other
    `add_vertex`, `add_edge` and `optimize`, propagation before `optimize(20)`, corrections after it, and the
    local bundle adjustment of the mapping thread beside it.
    """
    program = Path(__file__).parent / "programs" / "loop_closing.py"
    code = (
        f"import graphopt.g2o as d; d.install_as({name!r}); del d\n"
        f"import runpy, sys; sys.argv = ['loop_closing.py', {name!r}]\n"
        f"runpy.run_path({str(program)!r}, run_name='__main__')"
    )
    done = python("-c", code)
    error_before, error_after, inliers, outliers = map(float, done.stdout.split())
    assert error_after < 0.05 * error_before
    assert (inliers, outliers) == (190.0, 10.0)
