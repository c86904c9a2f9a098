"""Estimates on an NVIDIA GPU as torch, cupy and jax see them. Skipped where CUDA sees no device of Vulkan."""

import gc

import numpy as np
import pytest
import torch
from vulkan_devices import vulkan_runtime
from vulkan_graphs import bundle_adjustment, pose_graph

import graphopt
from graphopt.device import open_device
from graphopt.device.cuda_arrays import cuda_side
from graphopt.optimizer import optimize

vulkan_runtime()
if not torch.cuda.is_available():
    pytest.skip("needs a GPU that torch sees", allow_module_level=True)


@pytest.fixture(scope="module")
def device():
    opened = open_device("vulkan")
    if cuda_side(opened) is None:
        pytest.skip("needs a Vulkan device that CUDA sees")
    return opened


@pytest.fixture
def graph(device):
    solved = bundle_adjustment()
    optimize(solved, device=device.spec, max_iterations=5)
    return solved


def test_torch(graph):
    """A tensor on the GPU with the digits of the graph, before and after it has got others."""
    for vertex_set in graph.vertex_sets:
        tensor = torch.from_dlpack(vertex_set.device_array("estimate"))
        assert (tensor.device.type, tensor.dtype, tensor.is_contiguous()) == ("cuda", torch.float64, True)
        np.testing.assert_array_equal(tensor.cpu().numpy(), vertex_set.estimate)
        vertex_set.estimate[...] += 0.5
        changed = torch.from_dlpack(vertex_set.device_array("estimate"))
        np.testing.assert_array_equal(changed.cpu().numpy(), vertex_set.estimate)


@pytest.mark.parametrize("name", ["cupy", "jax"])
def test_cupy_and_jax(graph, name):
    """By dlpack; cupy by `__cuda_array_interface__`, too."""
    library = pytest.importorskip(name)
    if name == "jax":
        library.config.update("jax_enable_x64", True)
        if library.default_backend() != "gpu":
            pytest.skip("needs jax for CUDA")
    library = library.numpy if name == "jax" else library
    vertex_set = graph.vertex_set("VERTEX_TRACKXYZ")
    ways = [library.from_dlpack] + ([library.asarray] if name == "cupy" else [])
    for way in ways:
        array = way(vertex_set.device_array("estimate"))
        found = array.get() if name == "cupy" else np.asarray(array)
        np.testing.assert_array_equal(found, vertex_set.estimate)


def test_what_a_consumer_writes_is_not_the_graphs(graph):
    """Neither the graph nor the solver sees it."""
    vertex_set = graph.vertex_set("VERTEX_TRACKXYZ")
    before = vertex_set.estimate.copy()
    chi2 = [optimize(graph, device="vulkan", max_iterations=1).initial_chi2]
    tensor = torch.from_dlpack(vertex_set.device_array("estimate"))
    chi2.append(optimize(graph, device="vulkan", max_iterations=1).initial_chi2)
    tensor = torch.from_dlpack(vertex_set.device_array("estimate"))
    expected = vertex_set.estimate.copy()
    tensor += 1000.0
    np.testing.assert_array_equal(vertex_set.estimate, expected)
    np.testing.assert_array_equal(tensor.cpu().numpy(), expected + 1000.0)
    chi2.append(optimize(graph, device="vulkan", max_iterations=1).initial_chi2)
    assert chi2[2] <= chi2[1] <= chi2[0]
    assert np.abs(vertex_set.estimate - before).max() < 1.0


def test_memory_outlives_graph_and_solver(device):
    """The tensor alone keeps it."""
    graph = pose_graph()
    optimize(graph, device=device.spec, max_iterations=5)
    vertex_set = graph.vertex_sets[0]
    tensor, expected = torch.from_dlpack(vertex_set.device_array("estimate")), vertex_set.estimate.copy()
    del graph, vertex_set
    gc.collect()
    for _ in range(5):
        optimize(pose_graph(60), device=device.spec, max_iterations=2)
    np.testing.assert_array_equal(tensor.cpu().numpy(), expected)


def test_other_streams(graph):
    """A stream that is busy; the memory is not written again before it is done."""
    vertex_set = graph.vertex_set("VERTEX_TRACKXYZ")
    busy = torch.randn(4096, 4096, device="cuda")
    sums = []
    for k in range(12):
        vertex_set.estimate[...] = float(k)
        with torch.cuda.stream(torch.cuda.Stream() if k % 2 else None):
            tensor = torch.from_dlpack(vertex_set.device_array("estimate"))
            for _ in range(5):
                busy = busy @ busy / 4096.0
            sums.append(tensor.mean() + 0.0 * busy[0, 0].double().clamp(-1, 1).nan_to_num())
            del tensor
    torch.cuda.synchronize()
    np.testing.assert_allclose([float(one) for one in sums], np.arange(12.0))


def test_tensors_are_taken(graph):
    """From the GPU into the graph, with strides, an offset and other numbers."""
    vertex_set = graph.vertex_set("VERTEX_TRACKXYZ")
    values = torch.randn(len(vertex_set) + 1, 7, dtype=torch.float64, device="cuda")
    for tensor in (values[1:, 2:5], values.float()[1:, 2:5], values.T.contiguous().T[1:, :3]):
        vertex_set.estimate = tensor
        np.testing.assert_array_equal(vertex_set.estimate, tensor.double().cpu().numpy())


def test_round_trips_leave_memory_constant(graph):
    """Of the GPU, of the host, and the number of open files."""
    import os

    vertex_set = graph.vertex_set("VERTEX_TRACKXYZ")

    def trips(count):
        for k in range(count):
            vertex_set.estimate[0, 0] = float(k % 100)
            torch.from_dlpack(vertex_set.device_array("estimate"))
        torch.cuda.synchronize()
        return torch.cuda.mem_get_info()[0], len(os.listdir("/proc/self/fd"))

    trips(200)
    free, files = trips(200)
    assert trips(5000) == (free, files)


@pytest.mark.parametrize("name", ["measurement", "information", "kernel_width", "residuals"])
def test_columns_of_edges(graph, name):
    """Tensors on the GPU with the digits of the graph."""
    edge_set = graph.edge_sets[0]
    tensor = torch.from_dlpack(edge_set.device_array(name))
    assert (tensor.device.type, tensor.dtype, tensor.is_contiguous()) == ("cuda", torch.float64, True)
    expected = edge_set.errors() if name == "residuals" else edge_set.look(name)
    np.testing.assert_allclose(
        tensor.cpu().numpy(), expected, rtol=0, atol=1e-9 if name == "residuals" else 0
    )


@pytest.mark.parametrize("name", ["measurement", "estimate"])
@pytest.mark.parametrize("form", ["whole", "strided", "empty"])
def test_assigned_tensors_stay(device, name, form):
    """The next call computes what it does with the same numbers of the host; they are brought when read."""
    ends = []
    for where in ("cuda", "cpu"):
        graph = bundle_adjustment()
        options = {"device": device.spec, "method": "lm", "max_iterations": 2, "look_behind": False}
        optimize(graph, **options)
        one_set = graph.vertex_set("VERTEX_TRACKXYZ") if name == "estimate" else graph.edge_sets[0]
        numbers = torch.tensor(one_set.look(name) * 1.001, device=where)
        if form == "strided":
            numbers = torch.stack([numbers, -numbers], dim=-1)[..., 0]
        if form == "empty" and where == "cuda":
            shared = torch.from_dlpack(graphopt.empty(tuple(numbers.shape), device=device.spec))
            numbers = shared.copy_(numbers)
        setattr(one_set, name, numbers)
        assert (one_set.elsewhere(name) is not None) == (where == "cuda")
        summary = optimize(graph, **options)
        if name == "measurement":
            np.testing.assert_array_equal(one_set.measurement, numbers.cpu().numpy())
        ends.append((summary.final_chi2, *(vertex_set.estimate.copy() for vertex_set in graph.vertex_sets)))
    for mine, theirs in zip(*ends, strict=True):
        np.testing.assert_array_equal(mine, theirs)
