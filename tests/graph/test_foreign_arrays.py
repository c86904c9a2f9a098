"""Arrays of torch, jax and what only speaks dlpack: in, out, shared, refused."""

import gc

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import graphopt
from graphopt.errors import DeviceError, ShapeError, UnknownIdError

POINTS = np.arange(12.0).reshape(4, 3)


class OnlyDlpack:
    """Nothing but the protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def points(estimates, count=4):
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_TRACKXYZ", range(count), estimates)
    return graph.vertex_set("VERTEX_TRACKXYZ")


FORMS = {
    "torch": torch.tensor(POINTS),
    "torch float32": torch.tensor(POINTS, dtype=torch.float32),
    "torch integers": torch.tensor(POINTS).long(),
    "torch transposed": torch.tensor(POINTS.T.copy()).T,
    "torch sliced with an offset": torch.tensor(np.pad(POINTS, 2))[2:6, 2:5],
    "torch every second": torch.tensor(np.repeat(POINTS, 2, axis=0))[::2],
    "torch expanded": torch.tensor(POINTS)[None].expand(2, 4, 3)[1],
    "jax": jnp.asarray(POINTS),
    "only dlpack": OnlyDlpack(POINTS),
}


@pytest.mark.parametrize("form", FORMS)
def test_taken_by_adding_and_by_assignment(form):
    """Strides, offsets and other numbers."""
    np.testing.assert_array_equal(points(FORMS[form]).estimate, POINTS)
    vertex_set = points(np.zeros((4, 3)))
    vertex_set.estimate = FORMS[form]
    np.testing.assert_array_equal(vertex_set.estimate, POINTS)


def test_edges_take_tensors():
    """Ids, measurements, information, kernel widths, flags."""
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_XY", torch.arange(3), fixed=torch.tensor([True, False, False]))
    graph.add_edges(
        "EDGE_POINTXY",
        torch.tensor([[0, 1], [1, 2]]),
        torch.ones(2, 2),
        torch.eye(2),
        kernel="Huber",
        kernel_width=torch.tensor([1.0, 2.0]),
    )
    edges = graph.edge_set("EDGE_POINTXY")
    edges.information = torch.eye(2)[None] * torch.tensor([2.0, 3.0])[:, None, None]
    assert edges.kernel_width.tolist() == [1.0, 2.0]
    assert edges.information[1].tolist() == [[3.0, 0.0], [0.0, 3.0]]
    assert graphopt.optimize(graph).final_chi2 == pytest.approx(0.0, abs=1e-20)


def test_refused_by_name():
    """bfloat16, gradients, complex numbers, devices that cannot be read or have no name, other shapes."""

    class Elsewhere(OnlyDlpack):
        def __dlpack_device__(self):
            return 10, 0  # kDLROCM

    for values, error, words in (
        (torch.zeros(4, 3, dtype=torch.bfloat16), ShapeError, "bfloat16"),
        (torch.zeros(4, 3, requires_grad=True), ShapeError, "detach"),
        (torch.zeros(4, 3, dtype=torch.complex64), ShapeError, "complex"),
        (Elsewhere(POINTS), DeviceError, "kind 10 .ROCm."),
        (torch.zeros(4, 3, device="meta"), DeviceError, "kind meta"),
        (torch.eye(3).to_sparse(), ShapeError, "dense float64"),
    ):
        with pytest.raises(error, match=words):
            points(values)
    vertices = points(POINTS)
    with pytest.raises(ShapeError, match=r"estimate has shape \(4, 2\), expected"):
        vertices.estimate = torch.zeros(4, 2)


def test_out_is_the_same_memory():
    """Both ways, and it lives longer than the graph."""
    vertex_set = points(POINTS)
    tensor = torch.from_dlpack(vertex_set.device_array("estimate"))
    tensor[0, 0] = 7.0
    assert vertex_set.estimate[0, 0] == 7.0
    vertex_set.estimate[1, 1] = -3.0
    assert tensor[1, 1] == -3.0
    del vertex_set
    gc.collect()
    assert tensor[1, 1] == -3.0
    with pytest.raises(UnknownIdError, match="estimate"):
        points(POINTS).device_array("measurement")


def test_an_optimization_sees_what_was_written_through_a_tensor():
    """Also where nothing else tells the graph: the structure and the solver are kept."""
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_XY", [0])
    graph.add_edges("EDGE_PRIOR_XY", [[0], [0]], [[1.0, 0.0], [3.0, 0.0]])
    edges = graph.edge_set("EDGE_PRIOR_XY")
    measurement = torch.from_dlpack(edges.device_array("measurement"))
    information = torch.from_dlpack(edges.device_array("information"))
    for shift, weight in ((0.0, 1.0), (5.0, 1.0), (0.0, 3.0)):
        measurement[:, 0] = torch.tensor([1.0, 3.0]) + shift
        information[1] = weight * torch.eye(2)
        graphopt.optimize(graph)
        expected = (1.0 + shift + weight * (3.0 + shift)) / (1.0 + weight)
        assert graph.vertex(0).estimate[0] == pytest.approx(expected)
    residuals = torch.from_dlpack(edges.device_array("residuals"))
    np.testing.assert_allclose(residuals[:, 0], [2.5 - 1.0, 2.5 - 3.0])


def test_empty_is_taken_without_a_copy():
    """Filled by torch or by numpy; the graph's array is that memory."""
    for as_tensor in (True, False):
        memory = graphopt.empty((4, 3))
        tensor = torch.from_dlpack(memory)
        tensor.copy_(torch.tensor(POINTS))
        vertex_set = points(tensor if as_tensor else memory)
        tensor[2, 1] = 99.0
        assert vertex_set.estimate[2, 1] == 99.0
        assert np.shares_memory(vertex_set.estimate, memory)


def test_a_part_of_empty_is_copied():
    """Only the whole of it is taken."""
    memory = graphopt.empty((8, 3))
    memory[:] = 1.0
    vertex_set = points(memory[:4])
    assert not np.shares_memory(vertex_set.estimate, memory)


def test_sets_grow_beyond_empty():
    """Further rows go to memory of the graph's own."""
    memory = graphopt.empty((4, 3))
    memory[:] = POINTS
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_TRACKXYZ", range(4), memory)
    graph.add_vertices("VERTEX_TRACKXYZ", [9], [5.0, 5.0, 5.0])
    memory[0, 0] = -1.0
    estimate = graph.vertex_set("VERTEX_TRACKXYZ").estimate
    np.testing.assert_array_equal(estimate, [*POINTS.tolist(), [5.0] * 3])


def test_round_trips_leave_memory_constant():
    """A hundred thousand of them."""
    import resource

    vertex_set = points(np.zeros((1000, 3)), 1000)

    def trips(count):
        for _ in range(count):
            vertex_set.estimate = torch.from_dlpack(vertex_set.device_array("estimate"))

    trips(2000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trips(100_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024  # KiB
