"""Computed values on a device: the chain rule, sums over grids and trials are the CPU's."""

import numpy as np
import pytest
from examples_modules import own_types
from value_graphs import everything, own_types_of_module, skinned, types, with_values
from vulkan_devices import shared_device

import graphopt
from graphopt.computed.device_solver import DeviceValuesSolver
from graphopt.computed.materialized import MaterializedSolver
from graphopt.computed.structure import ValuesStructure
from graphopt.errors import DeviceLimitError, OptionError
from graphopt.linear.options import SolverOptions
from graphopt.problem.small_blocks import LARGEST_BLOCK
from graphopt.solver.trial import Damping

__all__ = ["own_types", "own_types_of_module", "types"]  # fixtures of this module
pytestmark = pytest.mark.usefixtures("own_types")
PCG = {"pcg_tolerance": 1e-26, "pcg_iterations": 1000}
"""Conjugate gradients to the last digits."""


def on_device(graph, access="address", **options):
    """The solver on the shared device."""
    graph.compute()
    options = {"device": "vulkan", "precision": "double", **PCG, **options}
    structure = ValuesStructure(graph, graph.select())
    return DeviceValuesSolver(graph, structure, SolverOptions(**options), shared_device(access))


def on_cpu(graph):
    """The same with sparse matrices."""
    graph.compute()
    options = SolverOptions(device="cpu", linear_solver="pcg", **PCG)
    return MaterializedSolver(graph, graph.select(), options)


def blurred(boundary, weights="filter"):
    """Pixels that are seen through a filter, or through weights that vary with the place."""
    Light = graphopt.group_type("VdLight", 2)
    Seen = graphopt.sum_type("VdSeen", 2)

    @graphopt.edge_type(vertices=(Seen,), measurement_dim=2)
    def VdEdge(seen, measured):
        """Not linear in what is seen."""
        return seen + 0.2 * np.sin(seen) - measured

    @graphopt.edge_type(vertices=(Light,), measurement_dim=2)
    def VdPrior(light, measured):
        """Keeps them near a start."""
        return 0.3 * (light - measured)

    rng = np.random.default_rng(2)
    shape = (5, 6)
    graph = graphopt.Graph()
    light = graph.add_grid(Light, shape, estimates=rng.normal(size=(*shape, 2)))
    light.fixed[1, 2] = True
    given = {}
    numbers = rng.normal(size=(3, 4))
    if weights == "varying":
        given["offsets"] = np.array([[0, 0], [-2, 1], [1, -1], [2, 3]])
        numbers = rng.normal(size=(4, *shape))
    seen = graph.add_convolution(Seen, light, numbers, boundary=boundary, **given)
    graph.add_stencil(VdEdge, [seen], [(0, 0)], rng.normal(size=(*shape, 2)))
    graph.add_stencil(VdPrior, [light], [(0, 0)], rng.normal(size=(*shape, 2)))
    return graph


PROBLEMS = {
    "everything": lambda types: everything(types),
    "skinned": lambda types: skinned(),
    **{
        f"{boundary} {weights}": lambda types, b=boundary, w=weights: blurred(b, w)
        for boundary in ("zero", "clamp", "wrap", "mirror")
        for weights in ("filter", "varying")
    },
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_equations_are_those_of_the_cpu(types, name):
    """b, products with H, steps and the values after them; nothing is in the rows of values."""
    graph = PROBLEMS[name](types)
    cpu, device = on_cpu(graph.copy()), on_device(graph)
    num, rng = cpu.dim, np.random.default_rng(0)
    for tolerance in (1e-11, 1e-8):  # the second time after a step by conjugate gradients
        assert device.linearize() == pytest.approx(cpu.linearize(), rel=tolerance)
        np.testing.assert_allclose(device.b[:num], cpu.b, rtol=tolerance, atol=tolerance)
        vector = rng.normal(size=num)
        product = device.multiply(np.append(vector, np.zeros(device.dim - num)))
        np.testing.assert_allclose(product[:num], cpu.multiply(vector), rtol=tolerance, atol=tolerance)
        expected, found = cpu.trial(Damping(0.5)), device.trial(Damping(0.5))
        np.testing.assert_allclose(device.dx[:num], cpu.dx, rtol=1e-7, atol=1e-8)
        assert found.chi2 == pytest.approx(expected.chi2, rel=1e-8)
        assert found.gain == pytest.approx(expected.gain, rel=1e-8)
        assert not device.b[num:].any() and not product[num:].any() and not device.dx[num:].any()
        cpu.discard_top()
        device.discard_top()
    device.finish()
    sets = [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
    graph.compute()
    for vertex_set, values in zip(graph.vertex_sets, sets, strict=True):
        np.testing.assert_allclose(values, vertex_set.estimate, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("schedule", ["blocks", "jacobians", "matrix-free"])
@pytest.mark.parametrize("access", ["address", "storage"])
def test_schedules_of_edges_and_terms(types, schedule, access):
    """Whatever is stored, the products are the same."""
    graph = with_values(types, boundary="clamp", fixed=True)
    cpu, device = on_cpu(graph.copy()), on_device(graph, access, schedule=schedule)
    cpu.linearize()
    device.linearize()
    assert schedule in device.describe()["schedule"]
    vector = np.random.default_rng(0).normal(size=cpu.dim)
    product = device.multiply(np.append(vector, np.zeros(device.dim - cpu.dim)))
    np.testing.assert_allclose(product[: cpu.dim], cpu.multiply(vector), rtol=1e-10, atol=1e-10)


def test_a_schedule_by_tag(types):
    """Of terms and of edges; "blocks" is none of terms."""
    graph = with_values(types)
    tags = {"COMPUTED_CV_SLOPE_TERM": "matrix-free", types.CvEdge.tag: "jacobians"}
    described = str(on_device(graph, schedule=tags).describe()["schedule"])
    assert "COMPUTED_CV_SLOPE_TERM=matrix-free" in described and f"{types.CvEdge.tag}=jacobians" in described
    with pytest.raises(OptionError, match=r"terms of computed values"):
        on_device(graph, schedule={"COMPUTED_CV_SLOPE_TERM": "blocks"})


@pytest.mark.parametrize("name", ["everything", "mirror filter", "skinned"])
def test_both_precisions_end_where_the_cpu_does(types, name):
    """Whole optimizations."""
    expected = PROBLEMS[name](types)
    graphopt.optimize(expected, "lm", 40, device="cpu", computed="materialize")
    for precision in ("double", "mixed"):
        shared_device("address")
        graph = PROBLEMS[name](types)
        summary = graphopt.optimize(
            graph, "lm", 40, device="vulkan", precision=precision, computed="materialize"
        )
        assert "cpu" not in summary.device and summary.linear_solver == "pcg"
        assert summary.final_chi2 == pytest.approx(expected.chi2(), rel=1e-5)
        assert graph.chi2() == pytest.approx(summary.final_chi2, rel=1e-6)


def test_data_that_change_are_taken(types):
    """`refresh` after a term's data and estimates were written."""
    graph = with_values(types)
    device = on_device(graph)
    device.linearize()
    graph.definitions()[0].measurement[:] = 1.5
    graph.vertex_set(types.Pixel).estimate[:] += 0.1
    graph.compute()
    device.refresh()
    cpu = on_cpu(graph)
    assert device.linearize() == pytest.approx(cpu.linearize(), rel=1e-12)
    np.testing.assert_allclose(device.b[: cpu.dim], cpu.b, rtol=1e-10, atol=1e-11)


def test_auto_keeps_many_values(types, monkeypatch):
    """From a number of edges on, on a device, where nobody asks for a factorization."""
    from graphopt.optimizer import computed

    def way(**options):
        graph = with_values(types)
        return graphopt.optimize(graph, "gn", 1, device="vulkan", **options).linear_solver

    shared_device("address")
    assert way() == "cholesky"  # inlined
    monkeypatch.setattr(computed, "MANY_EDGES", 10)
    assert way() == "pcg"
    assert way(computed="inline") == "cholesky"


def test_what_keeps_values_inlined(types, monkeypatch):
    """The CPU, a factorization, a held component, a vertex of more rows than kernels have."""
    from graphopt.optimizer import computed

    monkeypatch.setattr(computed, "MANY_EDGES", 10)
    Large = graphopt.group_type("VdLarge", LARGEST_BLOCK + 1)

    @graphopt.edge_type(vertices=(Large,), measurement_dim=Large.tangent_dim)
    def VdLargePrior(x, measured):
        """Holds a large vertex."""
        return x - measured

    def pays(graph, **options):
        return computed.pays_on_device(graph.select(), SolverOptions(**{"device": "vulkan", **options}))

    graph = with_values(types)
    assert pays(graph)
    assert not pays(graph, device="cpu") and not pays(graph, linear_solver="cholesky")
    held = graph.copy()
    held.hold([0], [0])
    graph.add_vertices(Large, [10_000])
    graph.add_edges(VdLargePrior, [[10_000]], np.ones((1, Large.tangent_dim)))
    assert not pays(held) and not pays(graph)


def test_memory_does_not_depend_on_the_number_of_terms():
    """Of sums over a grid: 3 x 3 weights take what 11 x 11 take, but for the weights and the border."""
    sizes = []
    for width in (3, 11):
        Light, Seen = graphopt.group_type("VdMany", 1), graphopt.sum_type("VdManySum")

        @graphopt.edge_type(vertices=(Seen,), measurement_dim=1)
        def VdManyEdge(seen, measured):
            """Of a sum."""
            return seen - measured

        graph = graphopt.Graph()
        light = graph.add_grid(Light, (40, 40), estimates=np.ones((40, 40, 1)))
        seen = graph.add_convolution(Seen, light, np.full((width, width), 1.0 / width**2), boundary="mirror")
        graph.add_stencil(VdManyEdge, [seen], [(0, 0)], 1.5)
        device = shared_device("address")
        before = device.memory_statistics()["used"]
        solver = on_device(graph)
        solver.linearize()
        sizes.append(device.memory_statistics()["used"] - before)
    padded = 4 * 8 * (50 * 50 - 42 * 42)  # tables of places beyond the border
    assert sizes[1] - sizes[0] < 2 * padded + 20 * (11 * 11 - 3 * 3)


def test_values_that_are_too_large_are_named():
    """With the way out."""
    Wide = graphopt.group_type("VdWide", 3)

    @graphopt.computed_type(vertices=(Wide,))
    def VdSixteen(x):
        """Sixteen numbers."""
        return np.concatenate([x, x, x, x, x, x[:1]])

    @graphopt.edge_type(vertices=(VdSixteen,))
    def VdSixteenEdge(value):
        """All of them."""
        return value - 1.0

    graph = graphopt.Graph()
    wide = graph.add_array(Wide, np.zeros((2, 3)))
    values = graph.add_computed(VdSixteen, graphopt.sequential(wide))
    graph.add_edges(VdSixteenEdge, graphopt.sequential(values))
    assert graphopt.optimize(graph.copy(), device="cpu", computed="materialize").final_chi2 < 1e-20
    shared_device("address")
    with pytest.raises(DeviceLimitError, match=r"COMPUTED_VD_SIXTEEN has 16 numbers.*computed='inline'"):
        graphopt.optimize(graph, device="vulkan", computed="materialize")
