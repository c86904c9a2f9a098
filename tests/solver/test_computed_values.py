"""Computed values: inlined or kept in arrays, on any device, it is the problem that one writes by hand."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from examples_modules import own_types
from scipy.spatial.transform import Rotation
from value_graphs import (
    SHAPE,
    by_hand,
    everything,
    own_types_of_module,
    skinned,
    start,
    types,
    with_values,
)
from vulkan_devices import shared_device

import graphopt
from graphopt.computed.materialized import FormedSystem, MaterializedSolver
from graphopt.errors import GraphError, OptionError, ShapeError
from graphopt.linear import BlockPattern
from graphopt.linear.options import SolverOptions

__all__ = ["own_types", "own_types_of_module", "types"]  # fixtures of this module
pytestmark = pytest.mark.usefixtures("own_types")


@pytest.mark.parametrize("fixed", [False, True])
def test_inlined_is_what_one_writes_by_hand(types, fixed):
    """The same H, b and chi2, in the same unknowns."""
    expected, found = by_hand(types, fixed), with_values(types, fixed=fixed)
    assert found.chi2() == pytest.approx(expected.chi2(), rel=1e-12)
    a, b = graphopt.linearize(expected), graphopt.linearize(found)
    np.testing.assert_array_equal(a.vertex_ids, b.vertex_ids)
    np.testing.assert_allclose(b.H.toarray(), a.H.toarray(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(b.b, a.b, rtol=1e-12, atol=1e-14)


def solver_of(graph, **options):
    graph.compute()
    return MaterializedSolver(graph, graph.select(), SolverOptions(**{"device": "cpu", **options}))


@pytest.mark.parametrize("linear_solver", ["cholesky", "dense", "pcg"])
def test_values_in_arrays_have_the_same_equations(types, linear_solver):
    """H, its diagonal, b, chi2 and a step, of values of values, sums and merged pixels."""
    graph = everything(types)
    whole = graphopt.linearize(graph)
    tolerance = 1e-20 if linear_solver == "pcg" else None
    solver = solver_of(graph, linear_solver=linear_solver, pcg_tolerance=tolerance)
    assert solver.linearize() == pytest.approx(whole.chi2, rel=1e-12)
    np.testing.assert_allclose(solver.b, whole.b, rtol=1e-11, atol=1e-12)
    dense = whole.H.toarray()
    columns = np.stack([solver.multiply(column) for column in np.eye(solver.dim)], axis=1)
    np.testing.assert_allclose(columns, dense, rtol=1e-10, atol=1e-11)
    assert solver.describe()["linear_solver"] == linear_solver
    if linear_solver != "pcg":
        np.testing.assert_allclose(solver.diagonal, dense.diagonal(), rtol=1e-11)
    assert solver.solve(0.1)
    expected = np.linalg.solve(dense + 0.1 * np.eye(len(dense)), whole.b)
    np.testing.assert_allclose(solver.dx, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("method", ["auto", "lm", "gn", "dogleg"])
def test_both_ways_end_at_the_same_minimum(types, method):
    """Of everything, on the CPU, and the values are those of the result."""
    graphs = {way: everything(types) for way in ("inline", "materialize")}
    ends = {}
    for way, graph in graphs.items():
        summary = graphopt.optimize(graph, method, 30, device="cpu", computed=way)
        assert summary.final_chi2 < 0.9 * summary.initial_chi2
        assert graph.chi2() == pytest.approx(summary.final_chi2, rel=1e-9)
        ends[way] = summary.final_chi2
    assert ends["materialize"] == pytest.approx(ends["inline"], rel=1e-6)


@pytest.mark.parametrize("way", ["inline", "materialize"])
def test_on_a_gpu(types, way):
    """The same end as on the CPU."""
    shared_device("address")
    expected, graph = with_values(types), with_values(types)
    graphopt.optimize(expected, "gn", 4, device="cpu")
    summary = graphopt.optimize(
        graph, "gn", 4, device="vulkan", precision="double", computed=way, pcg_tolerance=1e-20
    )
    assert "cpu" not in summary.device
    assert summary.final_chi2 == pytest.approx(expected.chi2(), rel=1e-9)


def test_skinning_by_poses_in_g2os_working_form():
    """Sums of three terms, some of the same pose: both ways, and numpy's chi2 at the end."""
    ends = []
    for way in ("inline", "materialize"):
        graph = skinned()
        summary = graphopt.optimize(graph, "lm", 12, device="cpu", computed=way, fix="none")
        ends.append(summary.final_chi2)
        rotation = Rotation.from_quat(graph.vertex_set("VERTEX_SE3:QUAT").estimate[:, 3:])
        total = np.zeros((30, 3))
        for definition in graph.definitions():
            bone = graph.find_vertices(definition.vertices[:, 1])[1]
            moved = rotation[bone].apply(definition.measurement[:, :3])
            moved += graph.vertex_set("VERTEX_SE3:QUAT").estimate[bone, :3]
            np.add.at(total, definition.vertices[:, 0] - 4, definition.measurement[:, 3:] * moved)
        seen = graph.edge_set("CvSeen").measurement
        assert ((total - seen) ** 2).sum() == pytest.approx(summary.final_chi2, rel=1e-9)
    assert ends[1] == pytest.approx(ends[0], rel=1e-7) and ends[0] < 0.9 * skinned().chi2()


def test_graphs_with_values_are_copied_and_pickled(types):
    """A copy has the same chi2 and is a problem of its own."""
    graph = everything(types)
    for other in (graph.copy(), pickle.loads(pickle.dumps(graph))):
        assert other.chi2() == graph.chi2()
        graphopt.optimize(other, "gn", 2, device="cpu")
        assert other.chi2() < graph.chi2()


def test_values_follow_the_estimates(types):
    """`compute` after estimates were written; values are fixed where all that they follow from is."""
    graph = everything(types)
    pixels = graphopt.Grid(graph, types.Pixel, SHAPE, 0)
    pixels.estimate[:] = np.random.default_rng(5).uniform(0.5, 1.5, (*SHAPE, 1))
    pixels.fixed[:] = False
    pixels.fixed.ravel()[3] = True
    graph.compute()
    x = pixels.estimate.ravel()
    sums = graph.vertex_set(types.CvSquare)
    np.testing.assert_allclose(
        sums.estimate.ravel(), [x[3] ** 2, 0.5 * x[4] ** 2 - x[11] ** 2 + 2.0 * x[25] ** 2]
    )
    assert sums.fixed.tolist() == [True, False]


def test_the_callback_finds_present_values(types):
    """Inlined and in arrays."""
    for way in ("inline", "materialize"):
        graph, seen = everything(types), []

        def look(iteration, graph=graph, seen=seen):
            values = graph.vertex_set(types.CvSquare).estimate.copy()
            graph.compute()
            seen.append(np.abs(values - graph.vertex_set(types.CvSquare).estimate).max())

        graphopt.optimize(graph, "gn", 2, device="cpu", computed=way, callback=look)
        assert len(seen) == 2 and max(seen) < 1e-12


def test_what_cannot_be_is_refused(types):
    """With what, where, and what to do."""
    graph, pixels = start(types)
    slopes = graph.add_computed(types.CvSlope, pixels, [(0, 0), (0, -1), (-1, 0)], 2.0)
    graph.add_stencil(types.CvEdge, [slopes, slopes, pixels], [(0, 0), (0, 1), (0, 0)], 0.3)
    for way in ("inline", "materialize"):
        with pytest.raises(GraphError, match=r"has no terms.*Mask such edges"):
            graphopt.optimize(graph, device="cpu", computed=way)
    plain = start(types)[0]
    with pytest.raises(OptionError, match=r"no computed values"):
        graphopt.optimize(plain, computed="inline")
    with pytest.raises(OptionError, match=r"expected one of auto, inline"):
        graphopt.optimize(everything(types), computed="both")
    with pytest.raises(OptionError, match=r"schur"):
        graphopt.optimize(everything(types), computed="materialize", schur="explicit")
    with pytest.raises(GraphError, match=r"graphopt.computed_type"):
        graph.add_computed(types.Pixel, pixels, [(0, 0)])
    with pytest.raises(ShapeError):
        graphopt.computed_type(vertices=(types.Pixel,))(lambda x, y: x)


def test_checks_see_what_is_connected_through_values(types):
    """One component, where plain selections see none of the connections."""
    graph = with_values(types, boundary="clamp")
    assert graph.components()[0] == 1
    kinds = [finding.kind for finding in graph.check()]
    assert "components" not in kinds


@pytest.mark.parametrize("way", ["inline", "materialize"])
def test_options_go_both_ways(types, way):
    """Vertices held for the call, wrong edges by graduated non-convexity, a callback that stops."""
    graph = with_values(types)
    pixels = graph.vertex_set(types.Pixel).estimate.copy()
    summary = graphopt.optimize(graph, "gn", 2, device="cpu", computed=way, fix=[0, 5])
    assert summary.fixed_by_gauge == [0, 5]
    moved = (graph.vertex_set(types.Pixel).estimate != pixels).ravel()
    assert moved.sum() == len(pixels) - 2 and not moved[[0, 5]].any()
    summary = graphopt.optimize(graph, device="cpu", computed=way, robust="graduated")
    assert summary.is_usable
    summary = graphopt.optimize(
        with_values(types), "gn", 9, device="cpu", computed=way, callback=lambda _: False
    )
    assert len(summary.iterations) == 1


def test_a_file_has_no_place_for_values(types, tmp_path):
    """Writing says so."""
    with pytest.raises(GraphError, match=r"computed value"):
        graphopt.write(everything(types), tmp_path / "graph.g2o")


def test_the_sparsity_of_the_chain_rule_may_change():
    """Derivatives that are zero, also of all values by a component, and then others."""
    hessian = np.diag([2.0, 3.0, 4.0]) + 0.5
    system = FormedSystem(BlockPattern([3], [0, 1], [0]), "cholesky")
    lower = np.tril(np.ones((3, 3)))
    for chain in (np.eye(3), np.diag([1.0, 0.0, 1.0]), lower, lower.T, np.diag([0.0, 1.0, 1.0])):
        expected = chain.T @ hessian @ chain
        diagonal = system.form(scipy.sparse.csr_matrix(chain), hessian.ravel())
        np.testing.assert_allclose(diagonal, expected.diagonal())
        dx = np.empty(3)
        assert system.solve(1.0, np.ones(3), dx)
        np.testing.assert_allclose(dx, np.linalg.solve(expected + np.eye(3), np.ones(3)))
