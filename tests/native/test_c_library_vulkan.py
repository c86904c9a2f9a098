"""On a Vulkan device the C library makes the steps that it makes on the CPU, under the validation layer."""

from __future__ import annotations

import numpy as np
import pytest
from builtin_edges import EDGES, graph_of
from c_library import EXAMPLES, Handle, run

import graphopt
from graphopt.cli.main import main
from graphopt.device import list_devices
from graphopt.device.errors import DeviceError
from graphopt.evaluate.datasets.bundle_adjustment import ba
from graphopt.io.export import export_graph
from graphopt.types.robust_kernels import KERNELS

ITERATIONS = 3


@pytest.fixture(scope="module", autouse=True)
def _device():
    try:
        found = list_devices()
    except DeviceError as error:
        pytest.skip(f"no Vulkan: {error}")
    if not any(device.features["float64"] and device.features["buffer_address"] for device in found):
        pytest.skip("no Vulkan device with float64 and buffer addresses")


def compare(library, graph: graphopt.Graph, folder, rtol: float = 1e-9, **options) -> Handle:
    """chi2 after each iteration on both; the handle that ran on the device."""
    types, data = export_graph(graph, folder, "vulkan")
    reached = []
    for device in (b"cpu", b"vulkan"):
        handle = Handle(library, types)
        assert handle.status == 0, handle.error()
        handle.done("graph_read", data)
        summary, chi2 = handle.optimize(max_num_iterations=ITERATIONS, device=device, validation=1, **options)
        reached.append([summary.initial_chi2, *chi2])
        assert (summary.device == b"cpu") == (device == b"cpu")
    count = min(map(len, reached))  # at a minimum rounding decides which step is the last
    assert count > 1
    floor = 1e-10 * reached[0][0]
    np.testing.assert_allclose(reached[1][:count], reached[0][:count], rtol=rtol, atol=floor)
    return handle


def test_bundle_adjustment_with_elimination(library, tmp_path):
    """Parameters, fixed cameras, eliminated points, blocks of three shapes; twice on one open device."""
    graph = ba(cameras=5, points=60, camera="expmap", seed=1)
    handle = compare(library, graph, tmp_path)
    summary, chi2 = handle.optimize(max_num_iterations=1, device=b"vulkan", validation=1)
    assert chi2[0] < summary.initial_chi2


@pytest.mark.parametrize(
    "robust", [kernel for kernel in KERNELS if kernel.number], ids=lambda kernel: kernel.name
)
def test_robust_kernels(library, tmp_path, robust):
    """One SPIR-V has them all; every second edge has one."""
    graph = graph_of(EDGES[0], np.random.default_rng(3))
    edges = graph.edge_sets[0]
    edges.kernel[::2], edges.kernel_width[:] = robust.number, 0.7
    compare(library, graph, tmp_path)


@pytest.mark.data
def test_a_real_graph(library, tmp_path, shared_data):
    """Poses in space in their working form, of a file."""
    compare(library, graphopt.read(shared_data / "posegraph/smallGrid3D.g2o"), tmp_path)


def test_more_edges_than_a_workgroup_and_transposed_blocks(library, tmp_path):
    """Edges in both directions between the same vertices, several groups of 64."""
    rng = np.random.default_rng(7)
    graph = graphopt.Graph()
    ids = np.arange(50)
    graph.add_vertices("VERTEX_SE2", ids, rng.standard_normal((50, 3)))
    ends = rng.permuted(np.tile(ids, (300, 1)), axis=1)[:, :2]
    graph.add_edges("EDGE_SE2", ends, rng.standard_normal((300, 3)))
    compare(library, graph, tmp_path, method="gn", rtol=1e-7)


def test_types_of_ones_own(library, installed, tmp_path):
    """circle.py, exported by the command."""
    out = tmp_path / "circle"
    assert main(["export", str(EXAMPLES / "circle.py"), "--device", "vulkan", "-o", str(out)]) == 0
    handle = Handle(library, out / "types.txt")
    handle.done("graph_read", out / "graph.txt")
    summary, _ = handle.optimize(max_num_iterations=30, device=b"vulkan", validation=1)
    assert summary.final_chi2 < 1e-12
    found = {
        device: run(installed / "examples" / "fit_circle", out / "types.txt", device).split(" on ")
        for device in ("cpu", "vulkan")
    }
    assert found["vulkan"][0] == found["cpu"][0] and found["vulkan"][1] != found["cpu"][1]


def test_a_file_in_cpp(installed, tmp_path):
    """solve_file on the device with the types that the library carries, exported with their kernels."""
    path = tmp_path / "sphere.g2o"
    assert main(["generate", "sphere", "--nodes-per-level", "10", "--laps", "5", "-o", str(path)]) == 0
    export_graph(graphopt.read(path), tmp_path / "types", "vulkan")
    command = [
        installed / "examples" / "solve_file",
        path,
        tmp_path / "out.g2o",
        tmp_path / "types" / "types.txt",
    ]
    on_cpu, on_device = (run(*command, device).split() for device in ("cpu", "vulkan"))
    assert float(on_device[3]) == pytest.approx(float(on_cpu[3]), rel=1e-9)
    assert on_cpu[-1] == "cpu" != on_device[-1]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(EDGES), 12))
def test_every_built_in_type(library, tmp_path, first):
    """Each alone, a few at a time."""
    for k, kind in enumerate(EDGES[first : first + 12]):
        graph = graph_of(kind, np.random.default_rng(5))
        if np.isfinite(graph.chi2()):
            compare(library, graph, tmp_path / str(k), rtol=1e-6)


def test_errors(library, tmp_path):
    """Types without SPIR-V, devices that are not there, files that are gone."""
    graph = graph_of(EDGES[0], np.random.default_rng(3))
    types, data = export_graph(graph, tmp_path / "cpu")
    handle = Handle(library, types)
    handle.done("graph_read", data)
    for device, message in (
        (b"vulkan", "The types have no SPIR-V. Load those that `graphopt export"),
        (b"vulkan:no such device", "No Vulkan device 'vulkan:no such device'"),
        (b"cuda", "device is 'cuda', expected cpu, vulkan"),
    ):
        assert handle.fails_to_optimize(device=device)
        assert message in handle.error()
    types, data = export_graph(graph, tmp_path / "vulkan", "vulkan")
    for path in types.parent.glob("*.linearize.spv"):
        path.write_bytes(b"no kernel")
    handle = Handle(library, types)
    handle.done("graph_read", data)
    assert handle.fails_to_optimize(device=b"vulkan") == 9
    assert "SPIR-V" in handle.error()
