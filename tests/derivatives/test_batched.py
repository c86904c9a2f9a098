"""Gradients of a batch on a device, where each problem has a workgroup, against whole solves and the CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import vulkan_devices  # noqa: F401  (how llvmpipe runs)
from builtin_edges import EDGES
from derivative_problems import held_graph
from fake_cuda import FakeCuda, FakeSide, skip_unless_mapped

import graphopt
import graphopt.jax
import graphopt.torch
from graphopt import foreign_arrays
from graphopt.batch import on_device
from graphopt.derivatives import OptimumProblem, memory
from graphopt.derivatives.batched import BatchOptimum
from graphopt.derivatives.settings import GradientSettings, GradientWarning
from graphopt.errors import GradientError, GraphError
from graphopt.types.robust_kernels import KERNELS

COUNT = 3
NUMBERS = {kernel.name: kernel.number for kernel in KERNELS}
OPTIONS = {"method": "lm", "max_iterations": 30, "look_behind": False, "device": "vulkan"}
CASES = [
    ("EDGE_SE2", "Cauchy"),
    pytest.param("EDGE_SE3:QUAT", "None", marks=pytest.mark.slow),
    pytest.param("EDGE_SE2_XY", "Huber", marks=pytest.mark.slow),
    pytest.param("EDGE_PROJECT_P2MC", "Welsch", marks=pytest.mark.slow),
    pytest.param("EDGE_SE3_TRACKXYZ", "GemanMcClure", marks=pytest.mark.slow),
]


def problems_of(tag: str, kernel: str) -> tuple[BatchOptimum, list[np.ndarray]]:
    """Problems of a graph with every input of its edges and parameters, and their arrays."""
    kind = next(edge for edge in EDGES if edge.tag == tag)
    graph = held_graph(kind, NUMBERS[kernel])
    names = [f"{tag}.{column}" for column in ("measurement", "information", "kernel_width")]
    names += [f"{parameters.type.tag}.values" for parameters in graph.parameter_sets]
    made = BatchOptimum.of(graph, COUNT, names, GradientSettings(), OPTIONS)
    assert made is not None
    rng = np.random.default_rng(1)
    values = []
    for one in made.inputs:
        array = one.rows.look(one.column)
        scale = 1e-3 * (1.0 + rng.standard_normal((COUNT, *(1,) * array.ndim)))
        values.append((array * (1.0 + scale)).reshape(-1, *array.shape[1:]))
    return made, values


@pytest.mark.parametrize(("tag", "kernel"), CASES)
def test_gradients_are_those_of_each_problem_alone_and_of_differences(tag, kernel):
    """By measurement, information, kernel width and parameters."""
    made, values = problems_of(tag, kernel)
    solved = made.solve(values)
    assert solved.doubts.sentences == ()
    assert solved.summary.device.startswith("vulkan")
    rng = np.random.default_rng(2)
    cotangents = [rng.standard_normal(estimate.shape) for estimate in solved.estimates]
    found = made.vjp(values, solved.estimates, solved.doubts, cotangents)
    of_problem = [[array.reshape(COUNT, -1, *array.shape[1:]) for array in part] for part in (values, found)]
    for b in range(COUNT):
        alone = OptimumProblem(made.graph, [one.name for one in made.inputs], {**OPTIONS, "device": "cpu"})
        given = [array[b] for array in of_problem[0]]
        one = alone.solve(given)
        own = [x.reshape(COUNT, -1, x.shape[1])[b] for x in cotangents]
        for a, e in zip(one.estimates, solved.estimates, strict=True):
            np.testing.assert_allclose(e.reshape(COUNT, *a.shape)[b], a, rtol=1e-8, atol=1e-9)
        expected = alone.vjp(given, one.estimates, one.doubts, own)
        for a, e in zip(of_problem[1], expected, strict=True):
            np.testing.assert_allclose(a[b], e, rtol=1e-7, atol=1e-8 * max(np.abs(e).max(), 1e-3))
    steps = [rng.standard_normal(value.shape) * np.abs(value) * 0.1 for value in values]
    for one, step in zip(made.inputs, steps, strict=True):
        if one.column == "information":
            step += step.swapaxes(1, 2)

    def loss(scale):
        moved = [value + scale * step for value, step in zip(values, steps, strict=True)]
        return sum(float((c * e).sum()) for c, e in zip(cotangents, made.solve(moved).estimates, strict=True))

    h = 1e-3
    expected = (8.0 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12.0 * h)
    parts = [float((gradient * step).sum()) for gradient, step in zip(found, steps, strict=True)]
    assert abs(sum(parts) - expected) <= 1e-6 * max(np.abs(parts).sum(), 1e-3)


def measurements(graph: graphopt.Graph, spread: float) -> torch.Tensor:
    """Of three problems."""
    measured = graph.edge_set("EDGE_SE2").measurement
    noise = np.random.default_rng(3).standard_normal((COUNT, *measured.shape))
    return torch.tensor(measured + spread * noise, requires_grad=True)


def test_through_torch_in_parts(pose_graph, monkeypatch):
    """Inputs that broadcast; problems in parts of one; the graph stays as it is."""
    before = pose_graph.vertex_sets[0].estimate.copy()
    found = []
    for device, bytes_ in (("cpu", 1 << 29), ("vulkan", 1 << 29), ("vulkan", 8)):
        monkeypatch.setattr("graphopt.batch.adjoint.PART_BYTES", bytes_)
        monkeypatch.setattr(on_device, "PART_BYTES", bytes_)
        measured = measurements(pose_graph, 0.02)
        information = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
        inputs = {"EDGE_SE2.measurement": measured, "EDGE_SE2.information": torch.diag(information)}
        solution = graphopt.torch.solve(pose_graph, inputs, method="gn", device=device)
        (solution["VERTEX_SE2"] ** 3).sum().backward()
        found.append([solution["VERTEX_SE2"].detach(), measured.grad, information.grad])
    assert "3 problems by gn" in solution.summary.message
    for a, b, c in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-8, atol=1e-9)
        assert torch.equal(b, c)
    np.testing.assert_array_equal(pose_graph.vertex_sets[0].estimate, before)


def test_what_is_doubtful_is_said_with_its_problem(pose_graph):
    """An end before the optimum, a singular Hessian, a kink, a number that is not finite."""
    name = "EDGE_SE2.measurement"
    options = {"method": "gn", "device": "vulkan"}
    short = graphopt.torch.solve(
        pose_graph, {name: measurements(pose_graph, 0.3)}, max_iterations=0, **options
    )
    with pytest.raises(GradientError, match="has not ended at an optimum"):
        short["VERTEX_SE2"].sum().backward()
    measured = measurements(pose_graph, 0.02)
    damped = {"method": "lm", "max_iterations": 30, "device": "vulkan", "fix": "none"}
    free = graphopt.torch.solve(pose_graph, {name: measured}, **damped)
    with pytest.raises(GradientError, match=r"Problem \d: The Hessian is singular"):
        free["VERTEX_SE2"].sum().backward()
    kept = graphopt.torch.solve(pose_graph, {name: measured}, on_doubt="warn", singular="damp", **damped)
    ((kept["VERTEX_SE2"][:, 1, :2] - kept["VERTEX_SE2"][:, 0, :2]) ** 2).sum().backward()
    assert kept.doubts.sentences == ()
    bad = measured.detach().clone()
    bad[1, 2, 0] = np.nan
    with pytest.raises(GraphError, match=r"EDGE_SE2.measurement of row 2 .* holds nan"):
        graphopt.torch.solve(pose_graph, {name: bad}, **options)


def test_kinks_are_counted(pose_graph):
    """An edge at the width of its Huber kernel, in one of the problems."""
    name = "EDGE_SE2.kernel_width"
    edges = pose_graph.edge_set("EDGE_SE2")
    edges.kernel = NUMBERS["Huber"]
    widths = torch.full((COUNT, len(edges)), 100.0, dtype=torch.float64)
    options = {"method": "gn", "device": "vulkan"}
    smooth = graphopt.torch.solve(pose_graph, {name: widths}, **options)
    assert smooth.doubts.kinks == 0
    graph = pose_graph.copy()
    graph.vertex_sets[0].estimate[...] = smooth["VERTEX_SE2"][1].numpy()
    widths[1, 3] = float(np.sqrt(graph.edge_set("EDGE_SE2").chi2(robust=False)[3]))
    bent = graphopt.torch.solve(pose_graph, {name: widths.requires_grad_()}, on_doubt="warn", **options)
    assert bent.doubts.kinks == 1
    with pytest.warns(GradientWarning, match="1 edges are at a kink"):
        bent["VERTEX_SE2"].sum().backward()


def test_what_workgroups_do_not_solve_goes_as_copies(pose_graph, monkeypatch):
    """Other methods, gradients by fixed vertices, problems without room in shared memory."""
    settings, given = GradientSettings(), {"method": "gn", "device": "vulkan"}

    def made(names, **options):
        return BatchOptimum.of(pose_graph, COUNT, names, settings, {**given, **options})

    assert made(["EDGE_SE2.measurement"]) is not None
    assert made(["EDGE_SE2.measurement"], method="auto") is None
    assert made(["EDGE_SE2.measurement"], device="cpu") is None
    assert made(["EDGE_SE2.measurement"], verbose=True) is None
    assert made(["VERTEX_SE2.estimate"]) is None
    device = on_device.open_device("vulkan")
    monkeypatch.setitem(device.info, "max_shared_memory", 1024)
    monkeypatch.setattr(on_device, "open_device", lambda spec: device)
    assert made(["EDGE_SE2.measurement"]) is None


def test_information_that_has_changed_since_is_what_counts():
    """A function that jax keeps solves with the graph's present matrices, of another kind, too."""
    made, values = problems_of("EDGE_SE2", "Cauchy")
    edges = made.graph.edge_sets[0]
    edges.information = np.repeat(np.eye(3)[None], len(edges), axis=0)
    names = [made.inputs[0].name]
    kept = BatchOptimum.of(made.graph, COUNT, names, GradientSettings(), OPTIONS)
    edges.information = edges.information * np.diag([1.0, 2.0, 5.0])
    new = BatchOptimum.of(made.graph, COUNT, names, GradientSettings(), OPTIONS)
    assert kept is not None and new is not None
    found, expected = (one.solve(values[:1]) for one in (kept, new))
    np.testing.assert_array_equal(found.estimates[0], expected.estimates[0])
    cotangents = [np.ones_like(estimate) for estimate in found.estimates]
    gradients = [one.vjp(values[:1], found.estimates, found.doubts, cotangents)[0] for one in (kept, new)]
    np.testing.assert_array_equal(*gradients)


@pytest.fixture
def driver(monkeypatch):
    """A stand-in for CUDA, which sees the device's memory."""
    device = on_device.open_device("vulkan")
    skip_unless_mapped(device)
    found = FakeCuda()
    side = FakeSide(device, found)
    monkeypatch.setattr(
        "graphopt.device.cuda_arrays.cuda_side", lambda opened: side if opened is device else None
    )
    monkeypatch.setattr(foreign_arrays, "Cuda", lambda: found)
    return found


def cuda_numbers(array: np.ndarray) -> foreign_arrays.CudaNumbers:
    """An array as if it were in a GPU's memory."""
    return foreign_arrays.CudaNumbers(array.ctypes.data, array.shape, array.strides, array.dtype, 0, array)


@pytest.mark.parametrize(("tag", "is_lent"), [("EDGE_SE2", True), ("EDGE_SE2_OFFSET", False)])
def test_arrays_of_cuda_are_read_and_made_where_they_are(driver, tag, is_lent):
    """The bits are those of arrays that go through the host, as derivatives by what edges share do."""
    made, values = problems_of(tag, "Cauchy")
    rng = np.random.default_rng(3)
    expected = made.solve(values)
    cotangents = [rng.standard_normal(estimate.shape) for estimate in expected.estimates]
    gradients = made.vjp(values, expected.estimates, expected.doubts, cotangents)
    assert made.sharing(1) is None
    sharing = made.sharing(0)
    assert sharing is not None

    def resident(arrays):
        return [sharing.resident(cuda_numbers(array)) for array in arrays]

    before = driver.num_copies
    solved = made.solve(resident(values), sharing)
    assert driver.num_copies == before + len(values)
    assert solved.doubts == expected.doubts
    assert all(estimate.__dlpack_device__() == (2, 0) for estimate in solved.estimates)
    estimates = [np.array(foreign_arrays.host(estimate)) for estimate in solved.estimates]
    for found, known in zip(estimates, expected.estimates, strict=True):
        np.testing.assert_array_equal(found.reshape(known.shape), known)
    found = made.vjp(resident(values), resident(estimates), solved.doubts, resident(cotangents), sharing)
    assert all(isinstance(array, np.ndarray) != is_lent for array in found)
    for array, known in zip(found, gradients, strict=True):
        np.testing.assert_array_equal(np.array(foreign_arrays.host(array)).reshape(known.shape), known)


def test_tensors_of_cuda_stay_there(driver, monkeypatch):
    """`graphopt.torch.solve` of tensors on the solver's GPU copies none of them to the host."""
    made, values = problems_of("EDGE_SE2", "Cauchy")
    name = made.inputs[0].name
    start = torch.from_numpy(values[0].reshape(COUNT, -1, *values[0].shape[1:]))

    def solved():
        given = start.clone().requires_grad_()
        found = graphopt.torch.solve(made.graph, {name: given}, **OPTIONS)
        (found["VERTEX_SE2"] ** 3).sum().backward()
        return found["VERTEX_SE2"].detach().numpy(), given.grad.numpy()

    def tensor(array, shape):
        return torch.from_numpy(np.array(foreign_arrays.host(array))).reshape(tuple(shape))

    def refuse(given):
        raise AssertionError(f"a tensor {tuple(given.shape)} came to the host")

    expected = solved()
    callers = graphopt.torch._Callers
    monkeypatch.setattr(callers, "ordinal", lambda self, given: 0)
    monkeypatch.setattr(callers, "host", lambda self, given: refuse(given))
    monkeypatch.setattr(memory, "on_cuda", lambda given: cuda_numbers(given.numpy()))
    monkeypatch.setattr(graphopt.torch, "_tensor", tensor)
    for found, known in zip(solved(), expected, strict=True):
        np.testing.assert_array_equal(found, known)
    start[1, 0, 0] = np.nan
    monkeypatch.setattr(callers, "host", lambda self, given: given.detach().numpy())
    with pytest.raises(GraphError, match=r"EDGE_SE2.measurement.*nan"):
        solved()


def test_jax_arrays_of_cuda_stay_there(driver, monkeypatch):
    """Likewise `graphopt.jax.solve`, and what it gives back; within `jax.jit` they come to the host."""
    made, values = problems_of("EDGE_SE2", "Cauchy")
    name = made.inputs[0].name
    came = []

    def loss(given):
        return (graphopt.jax.solve(made.graph, {name: given}, **OPTIONS)["VERTEX_SE2"] ** 3).sum()

    def brought(self, given):
        came.append(given)
        return np.asarray(given, np.float64)

    def of_cuda(array, like):
        return jnp.asarray(np.array(foreign_arrays.host(array))).reshape(like.shape).astype(like.dtype)

    with graphopt.jax._double():
        start = jnp.asarray(values[0].reshape(COUNT, -1, *values[0].shape[1:]))
        expected = jax.value_and_grad(loss)(start)
        monkeypatch.setattr(graphopt.jax._Callers, "host", brought)
        monkeypatch.setattr(graphopt.jax, "_as", of_cuda)
        monkeypatch.setattr(memory, "on_cuda", lambda given: cuda_numbers(np.asarray(given)))
        jax.jit(jax.value_and_grad(loss))(start)
        assert len(came) > 0
        came.clear()
        monkeypatch.setattr(graphopt.jax._Callers, "ordinal", lambda self, given: 0)
        found = jax.value_and_grad(loss)(start)
    assert came == []
    for mine, known in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(known))
