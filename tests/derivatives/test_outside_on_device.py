"""Edges that torch or jax evaluates on the block solver's own device; CUDA is a stand-in (`fake_cuda`)."""

import ctypes
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from fake_cuda import OnDevice, install
from outside_problems import jax_bearing, landmark_graph, torch_bearing
from vulkan_devices import vulkan_runtime

import graphopt
import graphopt.jax
import graphopt.torch
from graphopt.foreign_arrays import host, on_cuda
from graphopt.types import registry
from graphopt.types.robust_kernels import KERNELS
from graphopt.vulkan.external import DeviceExternal

vulkan_runtime()


class Tensors(graphopt.torch._Tensors):
    """Torch on the CPU, over memory of the stand-in."""

    def ordinal(self):
        """The stand-in."""
        return 0

    def of(self, array):
        """A copy, which stays as it is."""
        return torch.from_numpy(view_of(array))

    def numbers(self, array):
        """As the stand-in describes them."""
        return on_cuda(OnDevice(array.numpy()))


class Arrays(graphopt.jax._Arrays):
    """The same of jax."""

    def ordinal(self):
        """The stand-in."""
        return 0

    def of(self, array):
        """A copy, which stays as it is."""
        return jnp.asarray(view_of(array))

    def numbers(self, array):
        """As the stand-in describes them."""
        return on_cuda(OnDevice(np.asarray(array)))


def view_of(array):
    """The mapped memory itself."""
    at = array.__cuda_array_interface__["data"][0]
    count = int(np.prod(array.shape))
    return np.frombuffer((ctypes.c_char * (8 * count)).from_address(at)).reshape(array.shape).copy()


@pytest.fixture
def cuda(monkeypatch):
    return install(monkeypatch)


def on_the_stand_in(kind, library):
    """The type, evaluated where the library says."""
    there = replace(kind.outside.on_device, library=library)
    return registry.register(
        replace(
            kind, tag=(name := f"{kind.tag}_THERE"), name=name, outside=replace(kind.outside, on_device=there)
        )
    )


def made(package, function, tag, library, **options):
    kind = package.edge_type(tag=tag, **options)(function)
    return kind, on_the_stand_in(kind, library)


LANDMARKS = {"vertices": ["VERTEX_SE2", "VERTEX_XY"], "residual_dim": 2, "measurement_dim": 2}


def distance(poses, places):
    """Of a place in the frame of a pose, and the pose's height."""
    gap = places - poses[:, :3]
    return torch.stack([torch.linalg.norm(gap, dim=1), poses[:, 2] * poses[:, 6]], dim=1)


@pytest.fixture(scope="module")
def kinds():
    torch_library = Tensors(torch.device("cpu"))
    found = {
        "torch": made(graphopt.torch, torch_bearing, "EDGE_TEST_THERE_TORCH", torch_library, **LANDMARKS),
        "jax": made(graphopt.jax, jax_bearing, "EDGE_TEST_THERE_JAX", Arrays(), **LANDMARKS),
        "poses": made(
            graphopt.torch,
            distance,
            "EDGE_TEST_THERE_POSES",
            torch_library,
            vertices=["VERTEX_SE3:QUAT", "VERTEX_TRACKXYZ"],
            residual_dim=2,
        ),
    }
    yield found
    for pair in found.values():
        for kind in pair:
            registry.unregister(kind)


@pytest.fixture
def nothing_comes(monkeypatch):
    """Neither estimates nor terms go through the host."""

    def refused(*arguments):
        pytest.fail("went through the host")

    def allow(is_allowed):
        for name in ("read_estimates", "add"):
            own = getattr(DeviceExternal, name) if is_allowed else refused
            monkeypatch.setattr(DeviceExternal, name, own)

    return allow


def solved(graph, **options):
    options = {"method": "lm", "max_iterations": 4, "device": "vulkan", **options}
    summary = graphopt.optimize(graph, **options)
    return [step.chi2 for step in summary.iterations], [one.estimate.copy() for one in graph.vertex_sets]


@pytest.mark.parametrize("precision", ["double", "mixed"])
@pytest.mark.parametrize("name", ["torch", "jax"])
def test_the_same_as_through_the_host(cuda, kinds, name, precision, monkeypatch):
    """Chi2 and estimates, with compiled edges beside, a robust kernel, full information, a fixed vertex."""
    ends = []
    for kind in kinds[name]:
        graph = landmark_graph(kind)
        if kind is kinds[name][1]:
            monkeypatch.setattr(DeviceExternal, "add", lambda *a: pytest.fail("terms went through the host"))
        ends.append(solved(graph, precision=precision))
    tolerance = 1e-12 if precision == "double" else 1e-6
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=tolerance)
    for mine, theirs in zip(ends[1][1], ends[0][1], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e3 * tolerance)


def pose_graph(kind, kernel=None):
    """Poses that see places at a distance, and are joined by odometry."""
    rng = np.random.default_rng(4)
    graph = graphopt.Graph()
    poses = np.zeros((12, 7))
    poses[:, 0], poses[:, 6] = np.arange(12), 1.0
    start = poses.copy()
    start[:, :3] += 0.1 * rng.standard_normal((12, 3))
    graph.add_vertices("VERTEX_SE3:QUAT", range(12), start, fixed=np.arange(12) == 0)
    places = rng.uniform(-3, 12, (6, 3)) * [1, 0.3, 0.3]
    graph.add_vertices("VERTEX_TRACKXYZ", range(20, 26), places + 0.1, marginalized=True)
    graph.add_edges("EDGE_SE3:QUAT", [(k, k + 1) for k in range(11)], [1, 0, 0, 0, 0, 0, 1], 50.0 * np.eye(6))
    pairs = [(i, 20 + k) for i in range(12) for k in range(6)]
    omega = np.array([[4.0, 0.5], [0.5, 2.0]]) * (1.0 + rng.random((72, 1, 1)))
    graph.add_edges(kind, pairs, None, omega, kernel=kernel, kernel_width=1.0 + rng.random(72))
    return graph


@pytest.mark.parametrize("kernel", [kernel.name for kernel in KERNELS if kernel.name != "ScaleDelta"])
def test_every_robust_kernel_and_a_working_form(cuda, kinds, kernel):
    """VERTEX_SE3:QUAT is a matrix on the device, which the library turns into the stored numbers."""
    ends = [solved(pose_graph(kind, kernel), max_iterations=3) for kind in kinds["poses"]]
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=1e-9)
    for mine, theirs in zip(ends[1][1], ends[0][1], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-7)


def test_the_same_each_time(cuda, kinds):
    """To the bit: sums have an order."""
    ends = [solved(landmark_graph(kinds["torch"][1])) for _ in range(2)]
    np.testing.assert_array_equal(ends[0][0], ends[1][0])
    for mine, theirs in zip(ends[0][1], ends[1][1], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_many_terms_of_one_block(cuda, kinds):
    """More than one invocation adds up."""
    ends = []
    for kind in kinds["torch"]:
        rng = np.random.default_rng(1)
        graph = graphopt.Graph()
        graph.add_vertices("VERTEX_SE2", [0, 1], [[0.1, 0.2, 0.1], [1.0, 0.0, 0.2]])
        graph.add_vertices(
            "VERTEX_XY", range(2, 902), rng.uniform(-5, 5, (900, 2)), fixed=np.arange(900) % 3 > 0
        )
        pairs = [(k % 2, 2 + k) for k in range(900)]
        graph.add_edges(kind, pairs, rng.uniform(-5, 5, (900, 2)))
        graph.add_edges("EDGE_SE2", [(0, 1)], [1.0, 0.0, 0.0])
        ends.append(solved(graph))
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=1e-12)


def test_host_and_device_together(cuda, kinds):
    """A type that is evaluated on the device beside one that is not; other measurements are taken."""
    chi2 = []
    for first in (0, 1):
        graph = landmark_graph(kinds["torch"][first])
        pairs = [(i, 10 + k) for i in range(2, 5) for k in range(5)]
        graph.add_edges(
            kinds["jax"][0], pairs, np.random.default_rng(5).uniform(-1, 1, (15, 2)), 0.1 * np.eye(2)
        )
        own = [solved(graph)[0]]
        graph.edge_set(kinds["torch"][first]).measurement[...] += 0.1
        own.append(solved(graph)[0])
        chi2.append(np.concatenate(own))
    np.testing.assert_allclose(chi2[1], chi2[0], rtol=1e-10)


def test_nothing_but_such_edges(cuda, kinds, monkeypatch):
    """No edge is compiled: they are added to an H of the device that is zero."""
    ends = []
    for kind in kinds["poses"]:
        graph = pose_graph(kind)
        graph.remove_edges("EDGE_SE3:QUAT", range(11))
        graph.set_fixed([20, 21, 22, 23, 24, 25])
        if kind is kinds["poses"][1]:
            monkeypatch.setattr(DeviceExternal, "add", lambda *a: pytest.fail("terms went through the host"))
        ends.append(solved(graph, max_iterations=3))
        assert ends[-1][0][-1] < 0.9 * ends[-1][0][0]
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=1e-9)


def test_not_finite_is_named(cuda, kinds):
    """As through the host, by vertices."""
    graph = landmark_graph(kinds["torch"][1])
    graph.edge_set(kinds["torch"][1]).measurement[7] = np.nan
    summary = graphopt.optimize(graph, device="vulkan")
    assert not summary.is_usable
    assert "EDGE_TEST_THERE_TORCH_THERE between vertices 1, 12" in summary.message


def test_on_the_cpu_it_is_evaluated_there(cuda, kinds):
    """A block solver of the host gets arrays of the host."""
    ends = [solved(landmark_graph(kind), device="cpu") for kind in kinds["torch"]]
    np.testing.assert_array_equal(ends[0][0], ends[1][0])
    assert host(np.zeros(1)) is not None
