"""Estimates on a GPU for other libraries: memory, lifetimes, streams. CUDA is a stand-in (`fake_cuda`)."""

import ctypes
import pickle

import numpy as np
import pytest
from fake_cuda import OnDevice, install
from vulkan_devices import vulkan_runtime
from vulkan_graphs import bundle_adjustment

import graphopt
from graphopt import foreign_arrays
from graphopt.device.cuda_arrays import KeptNumbers, cuda_side
from graphopt.device.vulkan import VulkanDevice
from graphopt.errors import DeviceError, GraphError, OptionError, ShapeError
from graphopt.graph import Graph
from graphopt.graph.columns import Repeated
from graphopt.optimizer import optimize

vulkan_runtime()


@pytest.fixture
def cuda(monkeypatch):
    """The driver, of every device that is opened from now on."""
    return install(monkeypatch)


@pytest.fixture
def solved(cuda):
    """A graph that was optimized on the device."""
    graph = bundle_adjustment()
    optimize(graph, device="vulkan", max_iterations=3)
    return graph


def host(array):
    """The numbers, by way of dlpack."""
    return np.array(foreign_arrays.host(array))


def test_estimates_are_lent(solved):
    """Those of the end, also after the graph has got others; with device="cpu" the graph's own memory."""
    for vertex_set in solved.vertex_sets:
        array = vertex_set.device_array("estimate")
        assert array.__dlpack_device__() == (2, 0)
        assert (len(array), array.shape) == (len(vertex_set), vertex_set.estimate.shape)
        np.testing.assert_array_equal(host(array), vertex_set.estimate)
        vertex_set.estimate[...] += 1.0
        np.testing.assert_array_equal(host(vertex_set.device_array("estimate")), vertex_set.estimate)
        assert np.shares_memory(vertex_set.device_array("estimate", "cpu"), vertex_set.estimate)


def test_another_graph_takes_them(solved, cuda):
    """A new set keeps what has come to the host, without a copy of it."""
    vertex_set = solved.vertex_set("VERTEX_TRACKXYZ")
    copies = []
    cuda.on_copy = copies.append
    other = Graph()
    other.add_vertices("VERTEX_TRACKXYZ", vertex_set.ids, vertex_set.device_array("estimate"))
    taken = other.vertex_set("VERTEX_TRACKXYZ").estimate
    np.testing.assert_array_equal(taken, vertex_set.estimate)
    assert copies == [taken.ctypes.data]
    taken[0] = 5.0
    assert (vertex_set.estimate[0] != 5.0).all()


def test_a_set_that_has_changed_its_size(solved):
    """The solver has the old rows, and the graph is what counts."""
    vertex_set = solved.vertex_set("VERTEX_TRACKXYZ")
    solved.add_vertices("VERTEX_TRACKXYZ", [1000, 1001], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    np.testing.assert_array_equal(host(vertex_set.device_array("estimate")), vertex_set.estimate)
    solved.remove_vertices(vertex_set.ids[:30])
    np.testing.assert_array_equal(host(vertex_set.device_array("estimate")), vertex_set.estimate)


def test_a_form_of_the_optimization_is_no_estimate(cuda):
    """VERTEX_SE3:QUAT is a matrix on the device, and x y z qx qy qz qw here."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE3:QUAT", [0, 1], [0, 0, 0, 0, 0, 0, 1], fixed=[True, False])
    graph.add_edges("EDGE_SE3:QUAT", [[0, 1]], [1, 2, 3, 0, 0, 0.6, 0.8])
    optimize(graph, device="vulkan", max_iterations=5)
    vertex_set = graph.vertex_set("VERTEX_SE3:QUAT")
    np.testing.assert_allclose(vertex_set.estimate[1], [1, 2, 3, 0, 0, 0.6, 0.8], atol=1e-9)
    np.testing.assert_array_equal(host(vertex_set.device_array("estimate")), vertex_set.estimate)


def test_the_consumer_may_write(solved, cuda):
    """It changes neither the graph nor what is lent once the estimates change; until then it is shared."""
    vertex_set = solved.vertex_set("VERTEX_TRACKXYZ")
    before = vertex_set.estimate.copy()
    capsule = vertex_set.device_array("estimate").__dlpack__()
    (address,) = cuda.mapped
    cuda.mapped[address][4096:4104] = np.float64(77.0).tobytes()
    assert host(vertex_set.device_array("estimate"))[0, 0] == 77.0
    np.testing.assert_array_equal(vertex_set.estimate, before)
    vertex_set.estimate[1] = 5.0
    np.testing.assert_array_equal(host(vertex_set.device_array("estimate")), vertex_set.estimate)
    assert cuda.mapped[address][4096:4104] == np.float64(77.0).tobytes()  # somebody has it
    del capsule


def test_a_solve_sees_the_graph(cuda):
    """Whatever was written to what was lent; afterwards its own estimates are lent."""
    ends = []
    for written in (False, True):
        graph = bundle_adjustment()
        optimize(graph, device="vulkan", max_iterations=2)
        vertex_set = graph.vertex_set("VERTEX_TRACKXYZ")
        array = vertex_set.device_array("estimate")
        address = array.__cuda_array_interface__["data"][0]
        if written:
            cuda.mapped[address][4096:4104] = np.float64(77.0).tobytes()
        optimize(graph, device="vulkan", max_iterations=2)
        ends.append(host(vertex_set.device_array("estimate")))
        np.testing.assert_array_equal(ends[-1], vertex_set.estimate)
    np.testing.assert_array_equal(*ends)


def test_assigned_straight(solved, cuda):
    """From the device into the column, where the numbers are alike."""
    vertex_set = solved.vertex_set("VERTEX_TRACKXYZ")
    array, expected = vertex_set.device_array("estimate"), vertex_set.estimate.copy()
    copies = []
    cuda.on_copy = copies.append
    vertex_set.estimate[...] = 0.0
    vertex_set.estimate = array
    np.testing.assert_array_equal(vertex_set.estimate, expected)
    assert copies == [vertex_set.estimate.ctypes.data]


@pytest.mark.parametrize(("stream", "waits"), [(None, [1]), (1, [1]), (2, [2]), (7777, [7777]), (-1, [])])
def test_the_stream_waits(solved, cuda, stream, waits):
    """That of the consumer, as dlpack names it."""
    array = solved.vertex_sets[0].device_array("estimate")
    array.__dlpack__(stream=stream)
    assert [where for _, where in cuda.waits] == waits
    assert all(value > 0 for value, _ in cuda.waits)


def test_the_other_protocol(solved, cuda):
    """`__cuda_array_interface__`, version 3, on the legacy default stream."""
    vertex_set = solved.vertex_sets[1]
    array = vertex_set.device_array("estimate")
    described = array.__cuda_array_interface__
    assert (described["shape"], described["typestr"], described["stream"]) == (array.shape, "<f8", 1)
    assert [stream for _, stream in cuda.waits] == [1]
    assert described["data"][0] in cuda.mapped


def changed(vertex_set, number):
    """What is lent after a change."""
    vertex_set.estimate[0, 0] = number
    return vertex_set.device_array("estimate")


def test_the_same_until_the_estimates_change(solved, cuda):
    """No copy, no further wait of the default stream."""
    vertex_set = solved.vertex_sets[1]
    first = vertex_set.device_array("estimate")
    for _ in range(20):
        assert vertex_set.device_array("estimate") is first
        first.__dlpack__()
        first.__dlpack__(stream=7777)  # may be another stream with the handle of one that is gone
    assert [stream for _, stream in cuda.waits] == [1] + [7777] * 20
    assert changed(vertex_set, 1.0) is not first


def test_memory_comes_back(solved, cuda):
    """Round trips take turns with few pieces of it; what a stream may still read is not written."""
    vertex_set = solved.vertex_sets[1]
    for k in range(50):
        changed(vertex_set, k).__dlpack__()
        cuda.finish()
    assert len(cuda.mapped) <= 2
    for k in range(50):  # the stream is not done
        changed(vertex_set, k).__dlpack__()
    assert len(cuda.mapped) == 5
    assert cuda.num_synchronized > 0
    before = cuda.num_synchronized
    for k in range(50):  # streams of a program, which may end before the memory comes back
        changed(vertex_set, k).__dlpack__(stream=7777)
    assert len(cuda.mapped) == 5
    assert cuda.num_synchronized > before


def test_many_at_a_time(solved, cuda):
    """Each has memory of its own, of which few pieces are kept afterwards."""
    vertex_set = solved.vertex_sets[1]
    many = [changed(vertex_set, k) for k in range(30)]
    assert [host(array)[0, 0] for array in many] == list(range(30))
    many.clear()
    cuda.finish()
    few = [changed(vertex_set, k) for k in range(12)]
    assert len(cuda.mapped) == 30
    few.clear()
    cuda.finish()
    large = solved.vertex_sets[0].device_array("estimate")
    assert len(cuda.mapped) <= 12
    assert large.shape == solved.vertex_sets[0].estimate.shape


def test_refused(solved):
    """Copies, other devices, the stream 0."""
    vertex_set = solved.vertex_sets[0]
    array = vertex_set.device_array("estimate")
    for options, words in (
        ({"copy": True}, "as it is"),
        ({"dl_device": (1, 0)}, "copy it to"),
        ({"stream": 0}, "ambiguous"),
    ):
        with pytest.raises(BufferError, match=words):
            array.__dlpack__(**options)
    array.__dlpack__(dl_device=(2, 0), max_version=(1, 0))
    with pytest.raises(OptionError, match="expected 'cpu' or None"):
        vertex_set.device_array("estimate", "cuda")


def test_where_cuda_sees_no_device(monkeypatch):
    """The graph's own memory; so after the solver has gone, and of a graph that was solved on the CPU."""
    device = VulkanDevice(0, masked_features=["exports_memory"])
    assert cuda_side(device) is None
    for where in ("vulkan", "cpu"):
        graph = bundle_adjustment()
        optimize(graph, device=where, max_iterations=2)
        for vertex_set in graph.vertex_sets:
            assert np.shares_memory(vertex_set.device_array("estimate"), vertex_set.estimate)


# ---------------------------------------------------------------- all columns, out


def edges(graph):
    """The observations."""
    return graph.edge_sets[0]


@pytest.mark.parametrize("name", ["measurement", "information", "kernel_width", "residuals"])
def test_columns_of_edges_are_lent(solved, name):
    """The same array until something that they follow from changes."""
    edge_set = edges(solved)
    array = edge_set.device_array(name)
    expected = edge_set.errors() if name == "residuals" else edge_set.look(name)
    np.testing.assert_allclose(host(array), expected, rtol=0, atol=1e-9 if name == "residuals" else 0)
    assert edge_set.device_array(name) is array
    getattr(edge_set, "measurement" if name == "residuals" else name)[3] *= 2.0
    changed = host(edge_set.device_array(name))
    expected = edge_set.errors() if name == "residuals" else edge_set.look(name)
    np.testing.assert_allclose(changed, expected, rtol=0, atol=1e-9 if name == "residuals" else 0)
    assert isinstance(edge_set.device_array(name, "cpu"), np.ndarray)


@pytest.mark.parametrize("kind", ["identity", "diagonal", "full"])
@pytest.mark.parametrize("is_robust", [False, True])
def test_residuals_come_from_a_kernel_whatever_the_weights_are(kind, is_robust, cuda, monkeypatch):
    graph = bundle_adjustment()
    edge_set = edges(graph)
    if kind != "identity":
        edge_set.information[...] = [
            [2.0, 0.5 if kind == "full" else 0.0],
            [0.5 if kind == "full" else 0.0, 3.0],
        ]
    edge_set.kernel[...] = 1 if is_robust else 0
    optimize(graph, device="vulkan", max_iterations=2)
    expected = edge_set.errors()
    monkeypatch.setattr(type(edge_set), "errors", lambda self: pytest.fail("evaluated on the host"))
    np.testing.assert_allclose(host(edge_set.device_array("residuals")), expected, rtol=0, atol=1e-9)


def test_residuals_come_from_a_kernel(solved, monkeypatch):
    """Where the device has all they follow from; a part of the edges or other estimates: the host."""
    edge_set = edges(solved)
    expected = edge_set.errors()
    with monkeypatch.context() as patch:
        patch.setattr(type(edge_set), "errors", lambda self: pytest.fail("evaluated on the host"))
        np.testing.assert_allclose(host(edge_set.device_array("residuals")), expected, rtol=0, atol=1e-9)
    solved.vertex_sets[0].estimate[...] += 0.01
    np.testing.assert_array_equal(host(edge_set.device_array("residuals")), edge_set.errors())
    edge_set.level[:5] = 1
    optimize(solved, device="vulkan", max_iterations=2)
    np.testing.assert_array_equal(host(edge_set.device_array("residuals")), edge_set.errors())


# ---------------------------------------------------------------- in


def test_what_came_from_the_device_can_stay_there(cuda):
    """A graph of CUDA arrays gets others of them: no column's memory is somebody else's."""
    source = bundle_adjustment()
    graph = Graph()
    for rows in source.vertex_sets:
        graph.add_vertices(
            rows.type,
            rows.ids,
            OnDevice(rows.estimate.copy()),
            fixed=rows.fixed,
            marginalized=rows.marginalized,
        )
    observed = OnDevice(edges(source).measurement.copy())
    graph.add_edges(edges(source).type, edges(source).vertices, observed)
    optimize(graph, device="vulkan", max_iterations=2)
    edges(graph).measurement = observed
    assert edges(graph).elsewhere("measurement") is not None
    points = graph.vertex_set("VERTEX_TRACKXYZ")
    copy = Graph()
    copy.add_vertices("VERTEX_TRACKXYZ", points.ids, points.estimate)
    assert not np.shares_memory(copy.vertex_sets[0].estimate, points.estimate)


def forms(numbers):
    """By name the same numbers with other strides, offsets and types."""
    padded = np.zeros((len(numbers) + 2, *[size + 3 for size in numbers.shape[1:]]))
    inner = (slice(1, -1), *[slice(2, -1)] * (numbers.ndim - 1))
    padded[inner] = numbers
    return {
        "whole": numbers,
        "offset": padded[inner],
        "transposed": np.ascontiguousarray(numbers.T).T,
        "float32": numbers.astype(np.float32),
    }


@pytest.mark.parametrize("form", ["whole", "offset", "transposed", "float32"])
@pytest.mark.parametrize("name", ["measurement", "information", "kernel_width", "estimate"])
@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_assigned_numbers_stay_on_the_device(cuda, name, form, precision):
    """The next call computes what it does with numbers of the host, bit for bit."""
    ends = []
    for on_device in (True, False):
        graph = bundle_adjustment()
        edges(graph).kernel[...] = 1
        edges(graph).information[...] = [[2.0, 0.1], [0.1, 1.5]]
        options = {"device": "vulkan", "precision": precision, "max_iterations": 3, "method": "lm"}
        options["look_behind"] = False  # looks at measurements of graphs this small
        optimize(graph, **options)
        one_set = graph.vertex_set("VERTEX_TRACKXYZ") if name == "estimate" else edges(graph)
        rng = np.random.default_rng(3)
        numbers = one_set.look(name) * (1.0 + 1e-3 * rng.random(one_set.look(name).shape))
        if name == "information":
            numbers = (numbers + numbers.transpose(0, 2, 1)) / 2
        numbers = forms(numbers)[form]
        copies = []
        cuda.on_copy = copies.append
        setattr(one_set, name, OnDevice(numbers) if on_device else numbers)
        stays = on_device
        assert (one_set.elsewhere(name) is not None) == stays
        summary = optimize(graph, **options)
        if stays and name in ("measurement", "kernel_width", "estimate"):
            assert copies == []
        estimates = [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
        ends.append((summary.initial_chi2, summary.final_chi2, *estimates, one_set.look(name).copy()))
        if name != "estimate":
            np.testing.assert_array_equal(ends[-1][-1], numbers)
    for mine, theirs in zip(*ends, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.fixture
def all_stay(monkeypatch):
    """However few they are."""
    monkeypatch.setattr(foreign_arrays, "LEAST_KEPT", 0)


def of_arrays(source, wrapped, kernel_width=1.0):
    """A graph of another one's arrays, handed over as `wrapped` makes them."""
    graph = Graph()
    for rows in source.vertex_sets:
        graph.add_vertices(
            rows.type,
            rows.ids,
            wrapped(np.array(rows.look("estimate"))),
            fixed=rows.fixed,
            marginalized=rows.marginalized,
        )
    for rows in source.edge_sets:
        graph.add_edges(
            rows.type,
            wrapped(np.array(rows.vertices)),
            wrapped(np.array(rows.look("measurement"))),
            wrapped(np.array(rows.look("information"))),
            kernel=np.array(rows.kernel),
            kernel_width=kernel_width,
        )
    return graph


@pytest.mark.parametrize("form", ["whole", "offset", "transposed", "float32"])
@pytest.mark.parametrize("precision", ["double", "mixed"])
@pytest.mark.parametrize("one_information", [True, False])
def test_added_numbers_stay_on_the_device(cuda, all_stay, form, precision, one_information):
    """The first call computes what it does with numbers of the host, bit for bit, and brings none there."""
    source = bundle_adjustment()
    edges(source).kernel[...] = 1
    edges(source).information[...] = [[2.0, 0.1], [0.1, 1.5]]
    widths = 1.0 + np.random.default_rng(0).random(len(edges(source)))
    ends = []
    for on_device in (True, False):
        wrapped = (
            (lambda array: OnDevice(forms(array)[form])) if on_device else (lambda array: forms(array)[form])
        )
        graph = of_arrays(source, wrapped, wrapped(widths))
        if one_information:  # on the host, one row for all
            graph.edge_sets[0].columns._come_later(
                "information", Repeated(np.array([[2.0, 0.1], [0.1, 1.5]]))
            )
        copies = []
        cuda.on_copy = copies.append
        names = {"measurement", "kernel_width"} | (set() if one_information else {"information"})
        kept = {name for name in names if isinstance(edges(graph).elsewhere(name), KeptNumbers)}
        assert kept == (names if on_device else set())
        options = {"device": "vulkan", "precision": precision, "max_iterations": 3, "method": "lm"}
        summary = optimize(graph, **options, look_behind=False)
        assert copies == []
        estimates = [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
        numbers = [edges(graph).look(name).copy() for name in ("measurement", "information", "kernel_width")]
        ends.append((summary.initial_chi2, summary.final_chi2, *estimates, *numbers))
    for mine, theirs in zip(*ends, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("fault", ["measurement", "estimate", "information", "width"])
def test_added_numbers_are_looked_at_there(cuda, all_stay, fault):
    """What is wrong is refused in the words that numbers of the host get, and nothing is added."""
    source = bundle_adjustment()
    widths = np.ones(len(edges(source)))
    points = source.vertex_set("VERTEX_TRACKXYZ")
    if fault == "estimate":
        points.estimate[7, 1] = np.nan
    elif fault == "width":
        widths[5] = 0.0
    elif fault == "information":
        edges(source).information[5, 0, 1] = 0.3
    else:
        edges(source).measurement[5, 1] = np.inf
    messages = []
    for wrapped in (OnDevice, np.array):
        with pytest.raises(GraphError) as caught:
            of_arrays(source, wrapped, wrapped(widths))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_added_quaternions(cuda, all_stay):
    """Nearly of unit length they stay as they are; others are normalised, on the host."""
    measured = np.tile([1.0, 2.0, 3.0, 0.0, 0.0, 0.6, 0.8], (4, 1))
    for length, stays in ((1.0, True), (1.0001, True), (2.0, False)):
        graph = Graph()
        graph.add_vertices("VERTEX_SE3:QUAT", range(5), OnDevice(np.tile([0.0] * 6 + [1.0], (5, 1))))
        graph.add_edges(
            "EDGE_SE3:QUAT", [(k, k + 1) for k in range(4)], OnDevice(measured * ([1] * 3 + [length] * 4))
        )
        edge_set = graph.edge_set("EDGE_SE3:QUAT")
        assert isinstance(edge_set.elsewhere("measurement"), KeptNumbers) == stays
        assert graph.vertex_set("VERTEX_SE3:QUAT").elsewhere("estimate") is None  # a matrix on the device
        found = np.linalg.norm(edge_set.measurement[:, 3:], axis=1)
        np.testing.assert_allclose(found, length if stays else 1.0, rtol=1e-15)


def test_numbers_that_are_added_later_are_brought(cuda, all_stay):
    """A set's rows are in one place; what the consumer writes afterwards is not the graph's."""
    graph = Graph()
    first, second = np.arange(12.0).reshape(4, 3), 5.0 + np.arange(6.0).reshape(2, 3)
    graph.add_vertices("VERTEX_TRACKXYZ", range(4), OnDevice(first))
    points, expected = graph.vertex_set("VERTEX_TRACKXYZ"), np.concatenate([first, second])
    first[...] = -1.0
    assert points.elsewhere("estimate") is not None
    graph.add_vertices("VERTEX_TRACKXYZ", [8, 9], OnDevice(second))
    assert points.elsewhere("estimate") is None
    np.testing.assert_array_equal(points.estimate, expected)


def test_estimates_stay_from_call_to_call(cuda, all_stay):
    """Of a graph of CUDA arrays nothing comes to the host until somebody looks, fixed vertices included."""
    source = bundle_adjustment()
    plain = bundle_adjustment()
    graph = of_arrays(source, lambda array: OnDevice(array.copy()) if array.ndim < 4 else array)
    options = {"device": "vulkan", "method": "lm", "max_iterations": 2, "look_behind": False}
    copies = []
    cuda.on_copy = copies.append
    for _ in range(3):
        optimize(graph, **options)
        optimize(plain, **options)
        for rows in graph.vertex_sets:
            assert isinstance(rows.elsewhere("estimate"), KeptNumbers)
            rows.device_array("estimate").__dlpack__()
    assert copies == []
    for mine, theirs in zip(graph.vertex_sets, plain.vertex_sets, strict=True):
        np.testing.assert_array_equal(mine.estimate, theirs.estimate)
        assert mine.elsewhere("estimate") is None
    assert len(copies) == len(graph.vertex_sets)
    optimize(graph, **options)
    optimize(plain, **options)
    np.testing.assert_array_equal(graph.vertex_sets[1].estimate, plain.vertex_sets[1].estimate)


class Capsule:
    """A CUDA array that numpy cannot have, or that cannot be described."""

    def __init__(self, code=None):
        self.code, self.dtype = code, "odd"

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, stream):
        if self.code is None:
            raise BufferError("only dense tensors are.")
        kept = foreign_arrays._Tensor(data=8, device_type=2, code=self.code, bits=16, lanes=1)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.kept = kept
        return new(ctypes.addressof(kept), b"dltensor", None)


class Interface:
    """An array that says this of itself."""

    def __init__(self, said):
        self.__cuda_array_interface__ = said


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (Capsule(), "VERTEX_TRACKXYZ estimates? of dtype odd cannot be read: only dense tensors are"),
        (Capsule(4), "VERTEX_TRACKXYZ estimates?: numbers of type code 4 with 16 bits"),
        (
            Interface(None),
            "VERTEX_TRACKXYZ estimates?: the __cuda_array_interface__ lacks data, shape, typestr",
        ),
        (
            Interface({"shape": (4, 3), "typestr": "<f8"}),
            "VERTEX_TRACKXYZ estimates?: .* lacks data, expected",
        ),
        (
            Interface({"shape": (4, 3), "typestr": "<f8", "data": (8, False), "mask": 1}),
            "VERTEX_TRACKXYZ estimates? is a CUDA array with a mask",
        ),
    ],
)
def test_odd_arrays_are_refused_by_name(cuda, array, message):
    with pytest.raises(ShapeError, match=message):
        Graph().add_vertices("VERTEX_TRACKXYZ", range(4), array)


def test_few_numbers_are_brought_at_once(cuda):
    """A copy to the host costs less than looking at them on the device."""
    graph = Graph()
    graph.add_vertices("VERTEX_TRACKXYZ", range(4), OnDevice(np.zeros((4, 3))))
    assert graph.vertex_sets[0].elsewhere("estimate") is None


def test_reading_sees_what_was_assigned(solved, cuda):
    """By all ways: views, looks, copies, growth, removal, pickles; writing after it."""
    edge_set = edges(solved)
    numbers = np.ascontiguousarray(edge_set.look("measurement")) + 0.25

    def assigned():
        graph = solved.copy()
        optimize(graph, device="vulkan", max_iterations=1)
        edges(graph).measurement = OnDevice(numbers)
        assert edges(graph).elsewhere("measurement") is not None
        return graph

    np.testing.assert_array_equal(edges(assigned()).measurement, numbers)
    np.testing.assert_array_equal(edges(assigned()).look("measurement"), numbers)
    np.testing.assert_array_equal(edges(assigned()).copy().measurement, numbers)
    np.testing.assert_array_equal(edges(pickle.loads(pickle.dumps(assigned()))).measurement, numbers)
    np.testing.assert_array_equal(edges(assigned().copy()).measurement, numbers)
    graph = assigned()
    graph.remove_vertices(graph.vertex_sets[1].ids[:2].tolist())
    kept = np.isin(edges(solved).vertices[:, 1], graph.vertex_sets[1].ids) & np.isin(
        edges(solved).vertices[:, 0], [*graph.vertex_sets[0].ids, *graph.vertex_sets[1].ids]
    )
    assert len(edges(graph)) == kept.sum()
    np.testing.assert_array_equal(edges(graph).measurement, numbers[kept])
    graph = assigned()
    graph.add_edges(edges(graph).type, edges(graph).vertices[:1].copy(), [[1.0, 2.0]])
    np.testing.assert_array_equal(edges(graph).measurement, [*numbers, [1.0, 2.0]])
    graph = assigned()
    edges(graph).measurement[0] = 7.0
    optimize(graph, device="cpu", max_iterations=1)
    np.testing.assert_array_equal(edges(graph).measurement[1:], numbers[1:])
    assert (edges(graph).measurement[0] == 7.0).all()


def test_assigned_numbers_are_a_copy(solved, cuda):
    """What the consumer writes afterwards is not the graph's; a view that somebody has is written at once."""
    edge_set = edges(solved)
    numbers = np.ascontiguousarray(edge_set.look("measurement")) + 0.25
    expected = numbers.copy()
    edge_set.measurement = OnDevice(numbers)
    numbers[...] = 0.0
    np.testing.assert_array_equal(host(edge_set.device_array("measurement")), expected)
    assert edge_set.elsewhere("measurement") is not None
    np.testing.assert_array_equal(edge_set.measurement, expected)
    view = edge_set.measurement
    edge_set.measurement = OnDevice(expected + 1.0)
    assert edge_set.elsewhere("measurement") is None
    np.testing.assert_array_equal(view, expected + 1.0)


def test_only_what_fits_stays(solved, cuda):
    """Other shapes broadcast or are refused as by numpy; memory comes back with other numbers."""
    edge_set = edges(solved)
    edge_set.measurement = OnDevice(np.array([1.0, 2.0]))
    assert (edge_set.measurement == [1.0, 2.0]).all()
    with pytest.raises(ValueError, match="broadcast"):
        edge_set.measurement = OnDevice(np.zeros((3, 2)))
    numbers = np.zeros(edge_set.look("measurement").shape)
    for _ in range(20):
        edge_set.measurement = OnDevice(numbers)
    assert len(cuda.mapped) <= 3


def test_a_copy_waits_for_what_was_written(solved, cuda):
    """Memory of an array that nobody took may still be written by a program when it serves for a copy."""
    edge_set = edges(solved)
    edge_set.device_array("measurement")
    edge_set.information[0] *= 2.0
    edge_set.device_array("information")
    edge_set.measurement[0] = 3.0
    solved.vertex_sets[0].device_array("estimate")
    edge_set.device_array("measurement")
    cuda.waits.clear()
    edge_set.measurement = OnDevice(np.zeros(edge_set.look("measurement").shape))
    assert edge_set.elsewhere("measurement") is not None
    assert [stream for _, stream in cuda.waits] == [1]


def test_numbers_that_cannot_be_brought(solved, cuda, monkeypatch):
    """Reading raises, each time; assigning others works."""
    edge_set = edges(solved)
    shape = edge_set.look("measurement").shape
    edge_set.measurement = OnDevice(np.zeros(shape))

    def failing(*arguments):
        raise DeviceError("An array of a CUDA device: lost.")

    with monkeypatch.context() as patch:
        patch.setattr(cuda, "copy_to_host", failing)
        for _ in range(2):
            with pytest.raises(DeviceError, match="lost"):
                _ = edge_set.measurement
        with pytest.raises(ValueError, match="broadcast"):
            edge_set.measurement = np.zeros((3, 2))
        edge_set.measurement = [1.0, 2.0]
        np.testing.assert_array_equal(edge_set.measurement, np.broadcast_to([1.0, 2.0], shape))


def test_memory_of_both_sides(solved, cuda):
    """`empty` on the device: assigned without a copy, and again after each writing."""
    edge_set = edges(solved)
    expected = edge_set.look("measurement").copy()
    chi2 = optimize(solved, device="vulkan", max_iterations=0).initial_chi2
    memory = graphopt.empty(expected.shape, device="vulkan")
    address = memory.__cuda_array_interface__["data"][0]
    tensor = np.frombuffer((ctypes.c_char * expected.nbytes).from_address(address)).reshape(expected.shape)
    for added in (5.0, 0.0):
        tensor[...] = expected + added
        copies = cuda.num_copies
        edge_set.measurement = memory
        assert cuda.num_copies == copies
        summary = optimize(solved, device="vulkan", method="lm", max_iterations=0, look_behind=False)
        assert (summary.initial_chi2 == chi2) == (added == 0.0)
        assert edge_set.elsewhere("measurement") is not None
    np.testing.assert_array_equal(edge_set.measurement, expected)
    with pytest.raises(OptionError, match="float64"):
        graphopt.empty(3, np.float32, device="vulkan")


def test_no_memory_of_both_sides():
    """Named where CUDA does not see the device."""
    with pytest.raises(DeviceError, match="CUDA does not see"):
        graphopt.empty(3, device="vulkan")
    assert isinstance(graphopt.empty(3, device="cpu"), np.ndarray)
