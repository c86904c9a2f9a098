"""The device-resident solver with interpreted linearisation, and its change to compiled kernels."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from held_builders import builders_held
from vulkan_devices import VARIANTS, shared_device
from vulkan_graphs import bundle_adjustment, pose_graph

import graphopt
from graphopt.device import ShaderError, VulkanDevice, tiers
from graphopt.evaluate import datasets
from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.vulkan.solver import create


def robust_sphere() -> Graph:
    """Poses in space, in their working form, with a robust kernel and fixed vertices in the middle."""
    graph = datasets.sphere(4, 6, seed=2)
    for edges in graph.edge_sets:
        edges.kernel[:] = 1
        edges.kernel_width[:] = 2.0
    graph.vertex_sets[0].fixed[[0, 7, 8]] = True
    return graph


GRAPHS = {"plane": pose_graph, "bundle adjustment": bundle_adjustment, "robust sphere": robust_sphere}


def solver_of(graph: Graph, device, precision="double", schedule="blocks"):
    """A block solver on an open device."""
    linear_solver = "cholesky" if precision == "double" else "pcg"  # a factorization is in double anyway
    options = SolverOptions("vulkan", linear_solver, "off", precision, schedule)
    return create(graph, Structure(graph.select()), options, device=device)


def step(solver, damping=1e-3) -> list[float]:
    """One trial as Levenberg-Marquardt makes it; chi2 before and after, and the size of b."""
    before = solver.linearize()
    size = float(np.linalg.norm(solver.b))
    assert solver.solve(damping)
    solver.push()
    solver.update()
    return [before, solver.chi2(), size]


@pytest.mark.parametrize("variant", VARIANTS, ids="-".join)
@pytest.mark.parametrize("name", GRAPHS)
def test_interpreter_takes_the_cpus_path(name, variant, monkeypatch):
    """chi2, b and H of every iteration are those of the CPU, without any compiled kernel."""
    access, precision = variant
    monkeypatch.setenv("GRAPHOPT_TIER", "interpreter")

    def refuse(*arguments):
        raise AssertionError("a kernel was compiled")

    monkeypatch.setattr(VulkanDevice, "generated", refuse)
    device = shared_device(access)
    solver = solver_of(GRAPHS[name](), device, precision)
    graph = GRAPHS[name]()
    expected = CpuBlockSolver(
        graph, Structure(graph.select()), SolverOptions(linear_solver="cholesky", schur="off")
    )
    # float32 steps leave other rests than float64 ones, so in "mixed" the paths part a little
    tolerance = 1e-10 if precision == "double" else 1e-6
    np.testing.assert_allclose(solver.linearize(), expected.linearize(), rtol=1e-12)
    np.testing.assert_allclose(solver.b, expected.b, atol=tolerance * np.abs(expected.b).max())
    np.testing.assert_allclose(solver.diagonal, expected.diagonal, rtol=tolerance)
    for _ in range(4):
        actual, wanted = step(solver), step(expected)
        np.testing.assert_allclose(actual[:2], wanted[:2], rtol=1000 * tolerance)
    assert solver.describe()["tier"] == "interpreter"
    assert device.messages == []


def image_graph(picture) -> Graph:
    """Places where the brightness of an image and that of a captured one are looked for."""
    graph = Graph()
    rng = np.random.default_rng(5)
    graph.add_vertices("VERTEX_XY", np.arange(30), rng.uniform(4, 15, (30, 2)))
    graph.add_parameters(_image_type(), [7], [picture])
    graph.add_edges(_brightness(), np.arange(30)[:, None], parameters=[7])
    return graph


@functools.cache
def _image_type():
    return graphopt.image_type(tag="IMAGE_TIERS", interpolation="bicubic")


@functools.cache
def _brightness():
    captured = graphopt.Image(_smooth(3).T.copy())

    @graphopt.edge_type(tag="EDGE_BRIGHTNESS_TIERS", vertices=("VERTEX_XY",), parameters=(_image_type(),))
    def EdgeBrightnessTiers(place, image):
        """Difference to what is looked for."""
        return np.stack([image(place[0], place[1]) - 0.5, captured(place[0], place[1]) - 0.2])

    return EdgeBrightnessTiers


def _smooth(seed: int, size: int = 20) -> np.ndarray:
    row, column = np.indices((size, size)) / 3.0
    return (0.3 * np.sin(row + seed) + 0.2 * np.cos(column * 1.3)).astype(np.float32)


def test_images_are_sampled_on_the_device(cold, held):
    """Of a parameter and captured; changed pixels arrive, larger ones too, by interpreter and kernels."""
    picture = graphopt.Image(_smooth(1))
    graph, reference = image_graph(picture), image_graph(picture)
    solver = solver_of(graph, shared_device("address"))
    expected = CpuBlockSolver(
        reference, Structure(reference.select()), SolverOptions(linear_solver="cholesky", schur="off")
    )
    tiers_seen = []
    for pixels in (None, 1.5 * _smooth(1), _smooth(2, 40), 0.7 * _smooth(2, 40), _smooth(4, 60)):
        if pixels is not None:
            picture.pixels = pixels
        solver.refresh()
        expected.refresh()
        if len(tiers_seen) == 3:
            solver._linearizer.wait_compiled()
        for _ in range(2):
            np.testing.assert_allclose(step(solver, 0.1), step(expected, 0.1), rtol=1e-9)
            solver.discard_top()
            expected.discard_top()
        tiers_seen.append(solver.describe()["tier"])
        solver.finish()
    assert tiers_seen == 3 * ["interpreter"] + 2 * ["compiled"]
    assert shared_device("address").messages == []


def test_images_by_the_interpreter_alone(monkeypatch):
    """Larger images between two optimizations, without any compiled kernel."""
    monkeypatch.setenv("GRAPHOPT_TIER", "interpreter")
    picture = graphopt.Image(_smooth(1))
    graph, reference = image_graph(picture), image_graph(picture)
    solver = solver_of(graph, shared_device("address"))
    expected = CpuBlockSolver(
        reference, Structure(reference.select()), SolverOptions(linear_solver="cholesky", schur="off")
    )
    for pixels in (_smooth(1), _smooth(2, 40)):
        picture.pixels = pixels
        solver.refresh()
        for _ in range(2):
            np.testing.assert_allclose(step(solver, 0.1), step(expected, 0.1), rtol=1e-9)
            solver.discard_top()
            expected.discard_top()
        solver.finish()
    assert solver.describe()["tier"] == "interpreter"


def test_without_float64(monkeypatch):
    """Wide numbers are pairs of float32: chi2 keeps more than float32's digits."""
    monkeypatch.setenv("GRAPHOPT_TIER", "interpreter")
    device = VulkanDevice(validation=True, masked_features=["float64"])
    for make in GRAPHS.values():
        solver, graph = solver_of(make(), device, "mixed"), make()
        expected = CpuBlockSolver(
            graph, Structure(graph.select()), SolverOptions(linear_solver="cholesky", schur="off")
        )
        np.testing.assert_allclose(solver.linearize(), expected.linearize(), rtol=1e-10)
        np.testing.assert_allclose(solver.b, expected.b, atol=1e-6 * np.abs(expected.b).max())
        np.testing.assert_allclose(step(solver)[1], step(expected)[1], rtol=1e-3)
    assert device.messages == []


@pytest.fixture
def cold(monkeypatch, tmp_path):
    """Nothing has been built before, in this process or another one."""
    monkeypatch.setenv("GRAPHOPT_TIER", "auto")
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tiers, "_built", type(tiers._built)())
    return tmp_path


@pytest.fixture
def held():
    """Kernels are built when a test waits for them."""
    with builders_held():
        yield


def test_compiled_kernels_take_over_in_the_middle(cold, held):
    """The numbers go on as if nothing had happened; the next solver starts with compiled kernels."""
    device = shared_device("address")
    solver, expected = (solver_of(bundle_adjustment(), device) for _ in range(2))
    assert solver.describe()["tier"] == "interpreter"
    first = step(solver)
    assert set(solver.describe()["tier_seconds"]) == {"interpreter"}
    solver._linearizer.wait_compiled()
    assert solver._linearizer.tier == "interpreter"  # until the next submission
    rest = [step(solver) for _ in range(3)]
    assert solver.describe()["tier"] == "compiled"
    assert set(solver.describe()["tier_seconds"]) == {"interpreter", "compiled"}
    expected._linearizer.wait_compiled()
    np.testing.assert_allclose([first, *rest], [step(expected) for _ in range(4)], rtol=1e-10)
    assert not isinstance(solver_of(bundle_adjustment(), device)._linearizer, type(solver._linearizer))
    assert device.messages == []


def test_another_process_finds_what_was_built(cold, held, monkeypatch):
    """A file in the cache folder says so."""
    device = shared_device("storage")
    solver = solver_of(pose_graph(), device)
    assert solver.describe()["tier"] == "interpreter"
    solver._linearizer.wait_compiled()
    assert list((cold / "kernels").iterdir())
    monkeypatch.setattr(tiers, "_built", type(tiers._built)())
    assert solver_of(pose_graph(), device).describe()["tier"] == "compiled"
    assert solver_of(pose_graph(), device, "mixed").describe()["tier"] == "interpreter"


def test_an_error_in_the_background_reaches_the_caller(cold, monkeypatch):
    """An optimization does not go on quietly without compiled kernels."""

    def refuse(*arguments):
        raise ShaderError("kernel:3: error: no such function")

    monkeypatch.setattr(VulkanDevice, "generated", refuse)
    solver = solver_of(pose_graph(), shared_device("address"))
    solver._linearizer.wait_compiled()
    with pytest.raises(ShaderError, match="no such function"):
        step(solver)


def test_measurements_may_change_while_kernels_are_built(cold):
    """`refresh` reaches views that the thread has made."""
    graph = pose_graph()
    solver = solver_of(graph, shared_device("address"))
    before = solver.chi2()
    graph.edge_sets[0].measurement[:, 0] += 0.1
    solver.refresh()
    solver._linearizer.wait_compiled()
    expected = solver_of(graph, shared_device("address"))
    expected._linearizer.wait_compiled() if expected.describe()["tier"] == "interpreter" else None
    actual = step(solver)
    assert actual[0] != before
    np.testing.assert_allclose(actual, step(expected), rtol=1e-10)


def test_matrix_free_products_are_compiled(cold):
    """A matrix-free H has compiled kernels from the start."""
    graph = bundle_adjustment()
    options = SolverOptions("vulkan", "pcg", "implicit", "double", "matrix-free")
    solver = create(graph, Structure(graph.select()), options, device=shared_device("address"))
    assert solver.describe()["tier"] == "compiled"
