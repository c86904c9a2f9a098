"""What device "auto" takes: a discrete GPU for large graphs, and what keeps it on the CPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import graphopt
from graphopt.errors import DeviceError, DeviceLimitError
from graphopt.evaluate import datasets
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver import auto_device
from graphopt.solver.auto_device import choose_device, device_for_more, discrete_gpu, has_small_blocks
from graphopt.solver.configurations import configured


@pytest.fixture
def gpu(monkeypatch):
    """A discrete GPU, number 1; graphs of 100 edges are large."""
    monkeypatch.setattr(auto_device, "discrete_gpu", lambda: 1)
    monkeypatch.setattr(auto_device, "LARGE", 100)


GRAPHS = {
    "poses": (lambda: datasets.sphere(5, 30), "vulkan:1"),
    "landmarks": (lambda: datasets.ba(5, 60), "vulkan:1"),
    "few poses": (lambda: datasets.manhattan(20), "cpu"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_large_graphs_go_to_a_gpu(gpu, name, monkeypatch):
    """With landmarks to eliminate and without."""
    make, expected = GRAPHS[name]
    structure = Structure(make().select())
    assert choose_device(structure, SolverOptions()) == expected
    for more, taken in ((0, "vulkan:1"), (1, "cpu")):
        monkeypatch.setattr(auto_device, "LARGE", structure.num_edges + more)
        assert choose_device(structure, SolverOptions()) == taken


@pytest.mark.parametrize("options", [{"schur": "off"}, {"linear_solver": "cholesky"}])
def test_what_is_asked_for_may_keep_it_on_the_cpu(gpu, options):
    """A factorization of all of H, or by name, is the CPU's unless a device is named too."""
    structure = Structure(datasets.ba(5, 60).select())
    assert choose_device(structure, SolverOptions(**options)) == "cpu"


def test_without_a_gpu_it_is_the_cpu(monkeypatch):
    """However large."""
    monkeypatch.setattr(auto_device, "discrete_gpu", lambda: None)
    monkeypatch.setattr(auto_device, "LARGE", 1)
    assert choose_device(Structure(datasets.sphere(5, 30).select()), SolverOptions()) == "cpu"


MORE = {
    "images": (lambda: datasets.ba(8, 400), 0.0, {}, "vulkan:1"),
    "few images": (lambda: datasets.ba(4, 30), 0.0, {}, "cpu"),
    "dense poses": (lambda: datasets.sphere(5, 30), 1e9, {}, "vulkan:1"),
    "a chain": (lambda: datasets.sphere(5, 30), 1e6, {}, "cpu"),
    "a factorization asked for": (lambda: datasets.ba(8, 400), 0.0, {"linear_solver": "cholesky"}, "cpu"),
}


@pytest.mark.parametrize("name", MORE)
def test_further_calls_go_to_an_open_gpu_where_the_cores_take_longer(name, monkeypatch):
    """By operations of the factorization, or images to eliminate; never where no GPU is open."""
    make, flops, asked, expected = MORE[name]
    structure, options = Structure(make().select()), SolverOptions(**asked)
    monkeypatch.setattr(auto_device.kernels, "num_threads", lambda: 1)
    for index, device in ((1, expected), (None, "cpu")):
        shared = SimpleNamespace(open_discrete=lambda index=index: index)
        monkeypatch.setitem(sys.modules, "graphopt.device.shared", shared)
        assert device_for_more(structure, options, flops) == device
    monkeypatch.delitem(sys.modules, "graphopt.device.shared")  # nobody has opened a device
    assert device_for_more(structure, options, flops) == "cpu"


BATCHES = {
    "many": ({}, 1000, 10, "vulkan:1"),
    "few": ({}, 7, 10_000, "cpu"),
    "small ones": ({}, 1000, 1, "cpu"),
    "factorized": ({"linear_solver": "cholesky"}, 1000, 10, "cpu"),
    "blocks by the CPU": ({"schedule": "host"}, 1000, 10, "cpu"),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches_go_to_a_gpu_by_their_work(gpu, name, monkeypatch):
    """Each condition alone keeps them on the CPU."""
    options, num_problems, num_edges, expected = BATCHES[name]
    monkeypatch.setattr(auto_device, "MANY_PROBLEMS", 8)
    monkeypatch.setattr(auto_device, "BATCH_EDGE_SECONDS", 1.0)
    monkeypatch.setattr(auto_device, "GPU_BATCH", 5000.0)
    monkeypatch.setattr(auto_device, "GPU_OPENED", 0.0)
    monkeypatch.setattr(auto_device.kernels, "num_threads", lambda: 1)
    assert auto_device.device_for_batch(SolverOptions(**options), num_problems, num_edges) == expected


@pytest.mark.parametrize(("device", "opened"), [("cpu", []), ("vulkan", [None]), ("vulkan:llvm", ["llvm"])])
def test_a_device_that_was_asked_for_is_opened_early(device, opened, monkeypatch):
    """The one of that name, the best one without a name, none for the CPU."""
    asked: list[str | None] = []
    monkeypatch.setattr("graphopt.device.shared.open_early", asked.append)
    auto_device.open_early(device)
    assert asked == opened


def test_the_first_discrete_gpu_with_float64_is_taken(monkeypatch):
    """Its index in the list of devices; none where there is no such one, or no Vulkan."""

    def found(devices):
        monkeypatch.setattr("graphopt.device.list_devices", devices)
        discrete_gpu.cache_clear()
        return discrete_gpu()

    def row(index, kind, float64):
        return SimpleNamespace(index=index, kind=kind, features={"float64": float64})

    def no_loader():
        raise DeviceError("There is no loader.")

    rows = [
        row(0, "cpu", True),
        row(1, "integrated", True),
        row(2, "discrete", False),
        row(3, "discrete", True),
    ]
    try:
        assert found(lambda: rows) == 3
        assert found(lambda: rows[:3]) is None
        assert found(no_loader) is None
    finally:
        discrete_gpu.cache_clear()


def test_a_call_of_the_same_structure_moves_to_the_gpu(monkeypatch):
    """The first call stays on the CPU, the next ones do not, and reach the same minimum."""
    monkeypatch.setattr(auto_device, "GPU_ELIMINATED", 0.0)
    monkeypatch.setattr(auto_device, "_open_gpu", lambda: 0)
    graph = datasets.ba(5, 40)
    start = [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
    found = []
    for _ in range(3):
        for vertex_set, values in zip(graph.vertex_sets, start, strict=True):
            vertex_set.estimate[...] = values
        found.append(graphopt.optimize(graph))
    assert [summary.device for summary in found] == ["cpu", "vulkan:0", "vulkan:0"]
    chi2 = [summary.final_chi2 for summary in found]
    assert chi2[1] == chi2[2] == pytest.approx(chi2[0], rel=1e-9)


@pytest.mark.parametrize(
    "options, small",
    [
        (configured(SolverOptions(configuration="PCG (GPU)")), True),
        (configured(SolverOptions(configuration="PCG (CPU)")), False),
        (SolverOptions("kompute"), True),
        (SolverOptions(schedule="blocks"), True),
        (SolverOptions(precision="mixed"), True),
        (SolverOptions(schedule="host"), False),
        (SolverOptions(), False),
    ],
)
def test_vertices_are_split_for_the_device_that_is_used(options, small):
    """By the solver's options, not by the keyword."""
    assert has_small_blocks(options) is small


@pytest.mark.parametrize("call", [1, 2])
def test_the_cpu_goes_on_where_a_graph_is_too_large_for_the_gpu(monkeypatch, call):
    """In the first call, or when a further one would move there; a device that was named raises."""
    graph = datasets.ba(5, 40)
    if call == 2:
        monkeypatch.setattr(auto_device, "GPU_ELIMINATED", 0.0)
        monkeypatch.setattr(auto_device, "_open_gpu", lambda: 0)
        graphopt.optimize(graph, "lm", 1)
    else:
        monkeypatch.setattr("graphopt.solver.create.choose_device", lambda *_: "vulkan:0")
    monkeypatch.setattr("graphopt.vulkan.data.layout.MAX_VALUES", 10)
    with pytest.warns(RuntimeWarning, match="queues count to 9.*Solving on the CPU instead"):
        assert graphopt.optimize(graph, "lm", 2).device.startswith("cpu")
    if call == 2:  # says so once, as it does not try again
        assert graphopt.optimize(graph, "lm", 2).device.startswith("cpu")
    with pytest.raises(DeviceLimitError, match="device='cpu'"):
        graphopt.optimize(graph, "lm", 2, device="vulkan")
    if call == 2:
        assert graphopt.optimize(graph, "lm", 2, device="auto").device.startswith("cpu")


def test_schedule_host_can_be_asked_for_again():
    """A solver of a device that linearises on the CPU is none that could move to a GPU."""
    graph = datasets.manhattan(20)
    for _ in range(3):
        summary = graphopt.optimize(graph, "gn", 2, precision="mixed", schedule="host")
        assert summary.device.startswith("vulkan"), summary.device
