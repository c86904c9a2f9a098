"""Computed values: inlined or kept in arrays, on any device, it is the problem that one writes by hand."""

import pickle

import numpy as np
import pytest
from examples_modules import own_types
from scipy.spatial.transform import Rotation
from vulkan_devices import shared_device

import graphopt
from graphopt.errors import GraphError, OptionError, ShapeError
from graphopt.solver.computed.materialized import MaterializedSolver
from graphopt.solver.registry import SolverOptions

__all__ = ["own_types"]  # a fixture of this module
pytestmark = pytest.mark.usefixtures("own_types")


@pytest.fixture(scope="module")
def types(own_types_of_module):
    """Pixels, their slopes, edges between slopes, and the same edges written by hand."""
    return define()


@pytest.fixture(scope="module")
def own_types_of_module():
    """Types that this module registers are gone after it."""
    from examples_modules import forget_types_since

    from graphopt.types import registry

    known = set(registry.all_types())
    yield
    forget_types_since(known)


class Types:
    """What `define` makes."""


def define():
    """Types of this module."""
    found = Types()
    found.Pixel = graphopt.group_type("CvPixel", 1)

    @graphopt.computed_type(vertices=(found.Pixel,) * 3, measurement_dim=1)
    def CvSlope(here, left, upper, scale):
        """Two numbers of three pixels."""
        return np.stack([scale * here[..., 0] * left[..., 0], np.sin(here[..., 0] - upper[..., 0])], axis=-1)

    @graphopt.computed_type(vertices=(CvSlope, CvSlope))
    def CvBend(first, second):
        """A value of values."""
        return first[..., 0] * second[..., 1] - second[..., 0]

    @graphopt.computed_type(vertices=(found.Pixel,), measurement_dim=1)
    def CvSquare(x, weight):
        """A term of a sum."""
        return weight * x[..., 0] ** 2

    @graphopt.edge_type(vertices=(CvSlope, CvSlope, found.Pixel), measurement_dim=1)
    def CvEdge(a, b, x, z):
        """Between slopes and a pixel."""
        return np.stack([a[..., 0] - b[..., 1] + x[..., 0] - z, a[..., 1] * b[..., 0]], axis=-1)

    @graphopt.edge_type(vertices=(CvBend,), measurement_dim=1)
    def CvBendEdge(bend, z):
        """Of a value of values."""
        return bend - z

    @graphopt.edge_type(vertices=(CvSquare,), measurement_dim=1)
    def CvSumEdge(total, z):
        """Of a sum."""
        return total - z

    @graphopt.edge_type(vertices=(found.Pixel,), measurement_dim=1)
    def CvPrior(x, z):
        """Keeps pixels where they are."""
        return x[..., 0] - z

    @graphopt.edge_type(vertices=(found.Pixel,) * 5, measurement_dim=1)
    def CvByHand(here, left, upper, right, upper_right, z):
        """`CvEdge` with slopes of a pixel and its right neighbour put in."""

        def slope(p, q, r):
            return 2.0 * p[..., 0] * q[..., 0], np.sin(p[..., 0] - r[..., 0])

        a, b = slope(here, left, upper), slope(right, here, upper_right)
        return np.stack([a[0] - b[1] + here[..., 0] - z, a[1] * b[0]], axis=-1)

    for one in (CvSlope, CvBend, CvSquare, CvEdge, CvBendEdge, CvSumEdge, CvPrior, CvByHand):
        setattr(found, one.name, one)
    return found


SHAPE = (6, 7)


def start(types, fixed=False):
    """A graph of pixels with priors, and their grid."""
    rng = np.random.default_rng(1)
    graph = graphopt.Graph()
    pixels = graph.add_grid(types.Pixel, SHAPE, estimates=rng.uniform(0.5, 1.5, SHAPE))
    if fixed:
        pixels.fixed[0, :3] = True
    graph.add_stencil(types.CvPrior, pixels, [(0, 0)], rng.uniform(0.5, 1.5, SHAPE))
    return graph, pixels


def with_values(types, boundary="skip", fixed=False):
    """Slopes, and edges between them with a robust kernel."""
    graph, pixels = start(types, fixed)
    stencil = [(0, 0), (0, -1), (-1, 0)]
    slopes = graph.add_computed(types.CvSlope, pixels, stencil, 2.0, boundary=boundary)
    inside = np.ones(SHAPE, bool)
    inside[0], inside[:, 0], inside[:, -1] = False, False, False
    inside |= boundary != "skip"
    graph.add_stencil(
        types.CvEdge, [slopes, slopes, pixels], [(0, 0), (0, 1), (0, 0)], 0.3, mask=inside, information=2.0,
        kernel="Huber", kernel_width=0.5,
    )  # fmt: skip
    return graph


def by_hand(types, fixed=False):
    """The same without computed values."""
    graph, pixels = start(types, fixed)
    inside = np.ones(SHAPE, bool)
    inside[:, -1] = False
    graph.add_stencil(
        types.CvByHand, pixels, [(0, 0), (0, -1), (-1, 0), (0, 1), (-1, 1)], 0.3, mask=inside,
        information=2.0,
        kernel="Huber", kernel_width=0.5,
    )  # fmt: skip
    return graph


def everything(types):
    """Values of values, sums with unlike numbers of terms, and a border where pixels coincide."""
    graph = with_values(types, boundary="clamp", fixed=True)
    pixels = graphopt.Grid(graph, types.Pixel, SHAPE, 0)
    slopes = graphopt.Grid(graph, types.CvSlope, SHAPE, 42)
    bends = graph.add_computed(
        types.CvBend, (graphopt.indexed(slopes, [8, 9, 20]), graphopt.indexed(slopes, [9, 16, 20 + 7]))
    )
    graph.add_edges(types.CvBendEdge, (graphopt.sequential(bends),), [[0.1], [0.2], [0.3]])
    sums = graph.add_array(types.CvSquare, np.zeros((2, 1)))
    graph.add_terms(
        sums, [0, 1, 1, 1], (graphopt.indexed(pixels, [3, 4, 11, 25]),), [[1.0], [0.5], [-1.0], [2.0]]
    )
    graph.add_edges(types.CvSumEdge, (graphopt.sequential(sums),), [[2.0], [1.0]])
    return graph


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


@pytest.mark.parametrize("linear_solver", ["cholesky", "pcg"])
def test_values_in_arrays_have_the_same_equations(types, linear_solver):
    """H, its diagonal, b, chi2 and a step, of values of values, sums and merged pixels."""
    graph = everything(types)
    whole = graphopt.linearize(graph)
    tolerance = 1e-20 if linear_solver == "pcg" else None
    solver = solver_of(graph, linear_solver=linear_solver, pcg_tolerance=tolerance)
    assert solver.linearize() == pytest.approx(whole.chi2, rel=1e-12)
    np.testing.assert_allclose(solver.b, whole.b, rtol=1e-11, atol=1e-12)
    dense = whole.H.toarray()
    columns = np.stack([solver.multiply(one) for one in np.eye(solver.dim)], axis=1)
    np.testing.assert_allclose(columns, dense, rtol=1e-10, atol=1e-11)
    if linear_solver == "cholesky":
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


def skinned():
    """Points that several poses of g2o's carry, each by its share, and that are seen."""

    @graphopt.computed_type(vertices=("VERTEX_SE3:QUAT",), measurement_dim=4)
    def CvCarried(bone, data):
        """A share of a point, moved by a bone."""
        return data[..., 3:] * (bone * data[..., :3])

    @graphopt.edge_type(vertices=(CvCarried,), measurement_dim=3)
    def CvSeen(point, seen):
        """Of a point."""
        return point - seen

    rng = np.random.default_rng(3)
    graph = graphopt.Graph()
    poses = np.concatenate(
        [rng.normal(0.0, 0.3, (4, 3)), rng.normal(0.0, 0.1, (4, 3)), np.ones((4, 1))], axis=1
    )
    poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
    bones = graph.add_array("VERTEX_SE3:QUAT", poses)
    points = graph.add_array(CvCarried, np.zeros((30, 3)))
    for _ in range(3):
        data = np.concatenate([rng.normal(size=(30, 3)), rng.uniform(0.2, 0.4, (30, 1))], axis=1)
        graph.add_terms(points, np.arange(30), (graphopt.indexed(bones, rng.integers(0, 4, 30)),), data)
    graph.add_edges(CvSeen, (graphopt.sequential(points),), rng.normal(0.0, 0.3, (30, 3)))
    return graph


def test_skinning_by_poses_in_g2os_working_form():
    """Sums of three terms, some of the same pose: both ways, and numpy's chi2 at the end."""
    ends = []
    for way in ("inline", "materialize"):
        graph = skinned()
        summary = graphopt.optimize(graph, "lm", 12, device="cpu", computed=way, fix="none")
        ends.append(summary.final_chi2)
        rotation = Rotation.from_quat(graph.vertex_set("VERTEX_SE3:QUAT").estimate[:, 3:])
        total = np.zeros((30, 3))
        for one in graph.definitions():
            bone = graph.find_vertices(one.vertices[:, 1])[1]
            moved = rotation[bone].apply(one.measurement[:, :3])
            moved += graph.vertex_set("VERTEX_SE3:QUAT").estimate[bone, :3]
            np.add.at(total, one.vertices[:, 0] - 4, one.measurement[:, 3:] * moved)
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
    kinds = [one.kind for one in graph.check()]
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
