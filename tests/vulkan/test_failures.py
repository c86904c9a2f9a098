"""What fails on a device reaches the caller as one named error, costs no progress, and hangs nothing.

Allocations, kernels and submissions are made to fail one after the other, also those of set-up threads.
"""

from __future__ import annotations

import functools
import gc
import re
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
from problem_batches import pnp
from resident_graphs import mixed_plane
from vulkan_graphs import bundle_adjustment

from graphopt import compute_covariances, optimize_batch
from graphopt.codegen import gpu
from graphopt.device import (
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    ShaderError,
    VulkanDevice,
    list_devices,
    shared,
)
from graphopt.errors import DeviceLimitError
from graphopt.linear.options import SolverOptions
from graphopt.optimizer import optimize
from graphopt.problem.structure import Structure
from graphopt.solver import auto_device
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.create import create_block_solver
from graphopt.solver.reuse import forget
from graphopt.vulkan import set_up
from graphopt.vulkan.program import FAR_SLOTS, LARGE

SHADERS = Path(__file__).resolve().parents[2] / "shaders"

OPTIONS = {"linear_solver": "pcg", "schur": "implicit"}


@pytest.fixture
def gpu_by_default(monkeypatch):
    """The software driver counts as a discrete GPU, and small problems as large."""
    for device in (devices := list_devices()):
        object.__setattr__(device, "kind", "discrete")
    auto_device.discrete_gpu.cache_clear()
    monkeypatch.setattr("graphopt.device.list_devices", lambda: devices)
    monkeypatch.setattr(auto_device, "LARGE", 20)
    yield
    auto_device.discrete_gpu.cache_clear()


def failing(monkeypatch, name: str, error: Exception, at: int | None) -> list[str]:
    """Let calls of a method of devices fail from number `at` on; notes the threads of all calls.

    Kernels that another thread builds fail there: what `start_shader` and `start_generated` return.
    """
    method, threads = getattr(VulkanDevice, name), []

    def counted(*arguments, **options):
        threads.append(threading.current_thread().name)
        if at is not None and len(threads) > at:
            if not name.startswith("start_"):
                raise error
            failed: Future = Future()
            failed.set_exception(error)
            return failed
        return method(*arguments, **options)

    monkeypatch.setattr(VulkanDevice, name, counted)
    return threads


FAULTS = [
    ("allocate", DeviceMemoryError("no memory left")),
    ("start_shader", ShaderError("kernel:3: error: no such function")),
    ("start_generated", ShaderError("kernel:3: error: no such function")),
]


@pytest.fixture(autouse=True)
def unknown_kernels():
    """Solvers are set up by threads, whatever this process has solved before."""
    set_up.prepared_kinds.clear()


@pytest.mark.parametrize("by_caller", [False, True])
@pytest.mark.parametrize("schedule", ["blocks", "matrix-free"])
@pytest.mark.parametrize("method,error", FAULTS, ids=[name for name, _ in FAULTS])
def test_every_failure_of_the_set_up_is_one_named_error(method, error, schedule, by_caller, monkeypatch):
    """Allocations and kernels, of the main thread and of others: about a dozen of each, spread evenly."""
    options = {**OPTIONS, "schedule": schedule, "device": "vulkan"}
    if by_caller:
        optimize(bundle_adjustment(), "lm", 2, **options)
    with monkeypatch.context() as patch:
        threads = failing(patch, method, error, None)
        optimize(bundle_adjustment(), "lm", 2, **options)
    if method == "allocate":
        assert (len(set(threads)) == 1) == by_caller, "else some of it happens in threads"
    for at in np.unique(np.linspace(0, len(threads) - 1, 12).astype(int)).tolist():
        with monkeypatch.context() as patch:
            if not by_caller:
                set_up.prepared_kinds.clear()
            failing(patch, method, error, at)
            with pytest.raises(type(error), match=re.escape(str(error))):
                optimize(bundle_adjustment(), "lm", 2, **options)


@pytest.mark.parametrize("method,error", FAULTS, ids=[name for name, _ in FAULTS])
def test_the_cpu_goes_on_where_nobody_asked_for_a_gpu(method, error, gpu_by_default, monkeypatch):
    """Also where a thread fails after the solver was made."""
    expected = optimize(bundle_adjustment(), device="cpu")
    with monkeypatch.context() as patch:
        threads = failing(patch, method, error, None)
        assert optimize(bundle_adjustment()).device == "vulkan:0"
    others = [at for at, name in enumerate(threads) if name != threading.main_thread().name]
    late = max(others, default=len(threads) - 1)
    for at in (0, len(threads) // 2, late):
        with monkeypatch.context() as patch:
            failing(patch, method, error, at)
            with pytest.warns(RuntimeWarning, match="Solving on the CPU instead"):
                found = optimize(bundle_adjustment())
        assert found.device == "cpu"
        assert found.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-6)


class LostAfter:
    """A callback that lets the device get lost after an iteration."""

    looks_at_graph = False

    def __init__(self, monkeypatch, iteration: int):
        self.patch, self.iteration = monkeypatch, iteration

    def __call__(self, done):
        """After each iteration."""
        if done.iteration == self.iteration:
            self.patch.setattr(VulkanDevice, "submit", self.lost)

    @staticmethod
    def lost(device, program):
        """As a driver that answers no more."""
        device.native.note_loss("The device did not answer.", "a test")
        raise DeviceLostError("The device did not answer.")


@pytest.fixture
def found_again():
    """A device that only a test has lost."""
    yield
    shared.opened.clear()


@pytest.mark.usefixtures("found_again")
def test_a_lost_device_keeps_the_best_estimate_so_far(monkeypatch):
    """Not the start: what an iteration before, or the one before that, has reached is in the graph."""
    monkeypatch.setattr("graphopt.vulkan.solver.BRINGING_SHARE", 1e9)  # as where iterations take long
    path = optimize(bundle_adjustment(), "lm", 8, device="vulkan", **OPTIONS)
    graph = bundle_adjustment()
    with pytest.raises(DeviceLostError):
        optimize(graph, "lm", 8, device="vulkan", callback=LostAfter(monkeypatch, 5), **OPTIONS)
    reached = graph.chi2()
    assert any(reached == pytest.approx(iteration.chi2, rel=1e-9) for iteration in path.iterations[3:6])


@pytest.mark.usefixtures("found_again")
def test_the_cpu_goes_on_from_there(gpu_by_default, monkeypatch):
    """Where nobody asked for the device."""
    monkeypatch.setattr("graphopt.vulkan.solver.BRINGING_SHARE", 1e9)
    expected = optimize(bundle_adjustment(), device="cpu")
    with pytest.warns(RuntimeWarning, match=r"did not answer\..* Solving on the CPU"):
        found = optimize(bundle_adjustment(), callback=LostAfter(monkeypatch, 3))
    assert found.device == "cpu"
    assert found.initial_chi2 < 0.9 * expected.initial_chi2
    assert found.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-6)


LOST, FULL, NO_HOST = "VK_ERROR_DEVICE_LOST", "VK_ERROR_OUT_OF_DEVICE_MEMORY", "VK_ERROR_OUT_OF_HOST_MEMORY"
DRIVER_CALLS = [
    ("vkQueueSubmit", LOST),
    ("vkQueueSubmit", FULL),
    ("vkWaitSemaphores", LOST),
    ("vkGetSemaphoreCounterValue", LOST),
    ("vkAllocateMemory", FULL),
    ("vkCreateBuffer", NO_HOST),
    ("vkBindBufferMemory", FULL),
    ("vkMapMemory", "VK_ERROR_MEMORY_MAP_FAILED"),
    ("vkCreateShaderModule", NO_HOST),
    ("vkCreateComputePipelines", FULL),
    ("vkCreatePipelineLayout", NO_HOST),
    ("vkCreateCommandPool", NO_HOST),
    ("vkAllocateCommandBuffers", NO_HOST),
    ("vkBeginCommandBuffer", NO_HOST),
    ("vkEndCommandBuffer", FULL),
]


def one_call_fails(call, result, at):
    """Whether number `at` of a driver's calls came, and failed, in an optimization on a new device.

    Then the error is one of devices, the estimates are no worse than before, and the next call works.
    """
    shared.opened.clear()
    device = shared.shared_device(None)
    graph = bundle_adjustment()
    before = graph.chi2()
    device.native.break_call(call, result, at)
    raised = None
    try:
        optimize(graph, "lm", 4, device="vulkan", **OPTIONS)
    except DeviceError as error:
        raised = error.with_traceback(None)
    fired = device.native.mend_calls()
    if not fired:
        assert raised is None
        return False
    if raised is not None:
        assert result in str(raised) or call == "vkAllocateMemory", raised
        assert isinstance(raised, DeviceLostError) == (result == LOST)
        assert device.is_lost == (result == LOST)
    assert graph.chi2() <= before * (1.0 + 1e-9)
    assert optimize(graph, "lm", 4, device="vulkan", **OPTIONS).final_chi2 <= before
    found = optimize(bundle_adjustment(), "lm", 4, device="vulkan", **OPTIONS)
    assert found.final_chi2 == pytest.approx(chi2_of_cpu(), rel=1e-9)
    forget(graph)
    del graph, found, raised
    end = time.perf_counter() + 5.0
    while device.is_lost and device.memory_statistics()["allocations"] > 0:  # threads that set up still end
        assert time.perf_counter() < end, device.memory_statistics()
        gc.collect()
        device.native.wait_idle()  # the driver still runs what a single fault has taken for lost
    return True


@functools.cache
def chi2_of_cpu():
    """After four iterations."""
    return optimize(bundle_adjustment(), "lm", 4, device="cpu").final_chi2


@pytest.mark.usefixtures("found_again")
@pytest.mark.parametrize(
    ("call", "result", "at"),
    [("vkQueueSubmit", LOST, 4), ("vkAllocateMemory", FULL, 0), ("vkCreateComputePipelines", FULL, 7)],
)
def test_a_call_of_the_driver_fails_once(call, result, at):
    """In the middle of an optimization, in the set-up, in a thread."""
    assert one_call_fails(call, result, at)


@pytest.mark.nightly
@pytest.mark.usefixtures("found_again")
@pytest.mark.parametrize(("call", "result"), DRIVER_CALLS)
def test_every_call_of_the_driver_fails_once(call, result):
    """All of them, one after the other: also each submission, so that the device is lost in each phase."""
    count = 0
    while one_call_fails(call, result, count):
        count += 1
    assert count > 0


def batch():
    """chi2 of problems that workgroups optimize."""
    graph, given = pnp(3, 12)
    return optimize_batch(graph, device="vulkan", max_iterations=3, **given).final_chi2


def covariances():
    """Of all cameras, by the device's factorization."""
    graph = bundle_adjustment()
    vertices = graph.vertex_sets[0]
    cameras = np.asarray(vertices.ids)[~np.asarray(vertices.fixed, bool)].tolist()
    found = compute_covariances(graph, cameras, singular="damp", device="vulkan")
    return np.array([found[camera] for camera in cameras])


def one_call_of_work_fails(work, call, result, at):
    """As `one_call_fails`, of what returns numbers: the next call gives them."""
    shared.opened.clear()
    expected = work()
    device = shared.shared_device(None)
    device.native.break_call(call, result, at)
    raised = None
    try:
        found = work()
    except DeviceError as error:
        raised = error.with_traceback(None)
    fired = device.native.mend_calls()
    if raised is None:
        np.testing.assert_array_equal(found, expected)
    else:
        assert fired and (result in str(raised) or call == "vkAllocateMemory"), raised
        assert isinstance(raised, DeviceLostError) == (result == LOST)
    np.testing.assert_array_equal(work(), expected)
    return bool(fired)


@pytest.mark.usefixtures("found_again")
@pytest.mark.parametrize("work", [batch, covariances])
@pytest.mark.parametrize(
    ("call", "result"), [("vkQueueSubmit", LOST), ("vkWaitSemaphores", LOST), ("vkQueueSubmit", FULL)]
)
def test_a_submission_of_a_batch_or_of_covariances_fails_once(work, call, result):
    """The first; nothing of the device that was lost is used again."""
    assert one_call_of_work_fails(work, call, result, 0)


@pytest.mark.nightly
@pytest.mark.usefixtures("found_again")
@pytest.mark.parametrize("work", [batch, covariances])
@pytest.mark.parametrize(
    ("call", "result"), [pair for pair in DRIVER_CALLS if pair[0] != "vkGetSemaphoreCounterValue"]
)
def test_every_call_of_a_batch_or_of_covariances_fails_once(work, call, result):
    """All of them, one after the other; what is kept between calls is not made again, and cannot fail.

    Not the question what has ended: a device that only seems lost still runs what is given up then.
    """
    count = 0
    while one_call_of_work_fails(work, call, result, count):
        count += 1
    assert count > 0 or call not in ("vkQueueSubmit", "vkWaitSemaphores")


def test_a_refresh_waits_for_views_that_are_being_made(monkeypatch):
    """What changes while a thread makes a view from the old data is taken all the same."""
    from graphopt.vulkan.kernels.edges import ViewArrays

    make = ViewArrays.__init__

    def slow(self, *arguments):
        make(self, *arguments)
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.2)  # made from the old data, and nobody can see it yet

    monkeypatch.setattr(ViewArrays, "__init__", slow)
    graph = mixed_plane()
    options = SolverOptions("vulkan", "pcg", "implicit", "double", "matrix-free")
    solver = create_block_solver(graph, Structure(graph.select()), options)
    for edge_set in graph.edge_sets:
        edge_set.measurement[:] += 0.05
    solver.refresh()
    expected = CpuBlockSolver(graph, Structure(graph.select()), SolverOptions("cpu"))
    assert solver.linearize() == pytest.approx(expected.linearize(), rel=1e-12)
    np.testing.assert_allclose(solver.b, expected.b, rtol=0, atol=1e-11 * np.abs(expected.b).max())


# ---------------------------------------------------------------- sizes past 4 GiB

FAR = ("rows", "data", "data_float32", "numbers", "moved", "stored", "inverse", "values")


@pytest.mark.parametrize("schedule", ["blocks", "blocks+scatter", "matrix-free", "jacobians", "jp"])
@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_what_grows_with_the_edges_is_reached_with_64_bits(schedule, precision, monkeypatch):
    """No kernel reads edges, records or H by 32-bit offsets; those of large buffers say so."""
    made, make = [], VulkanDevice.start_generated

    def noted(device, kernel, constants):
        made.append((kernel, dict(constants)))
        return make(device, kernel, constants)

    usual = optimize(
        bundle_adjustment(), "lm", 2, device="vulkan", schedule=schedule, precision=precision, **OPTIONS
    )
    monkeypatch.setattr(VulkanDevice, "start_generated", noted)
    monkeypatch.setattr("graphopt.vulkan.program.LARGE_BYTES", 3000)
    large = optimize(
        bundle_adjustment(), "lm", 2, device="vulkan", schedule=schedule, precision=precision, **OPTIONS
    )
    assert [iteration.chi2 for iteration in large.iterations] == [
        iteration.chi2 for iteration in usual.iterations
    ]
    assert made
    for kernel, _ in made:
        growing = {
            name
            for name in kernel.buffers
            if name.startswith(("estimate", "float32_", "parameter", "packed")) or name in FAR
        }
        assert growing <= kernel.far, kernel.name
        for name in growing:
            assert not re.search(rf"\b{name}\.at\[", kernel.source)
    assert any(constants.get(LARGE) for _, constants in made)


def test_a_buffer_past_what_a_kernel_reaches_is_refused(monkeypatch):
    """With the kernel's and the buffer's name, before anything is computed."""
    monkeypatch.setattr("graphopt.vulkan.program.NEAR_BYTES", 100)
    with pytest.raises(
        DeviceLimitError, match=r"Kernel '.*' reads '.*', which takes \d+ bytes.*device='cpu'"
    ):
        optimize(bundle_adjustment(), "lm", 2, device="vulkan", **OPTIONS)


def test_more_entries_than_32_bits_count_are_refused_when_planned(monkeypatch):
    monkeypatch.setattr("graphopt.vulkan.plan.problem.MAX_ENTRIES", 500)
    with pytest.raises(
        DeviceLimitError, match=r"edges EDGE_\w+ take \d+ numbers in one array; kernels count to 499"
    ):
        optimize(bundle_adjustment(), "lm", 2, device="vulkan", **OPTIONS)
    monkeypatch.setattr("graphopt.vulkan.plan.problem.MAX_ENTRIES", 1 << 32)
    monkeypatch.setattr("graphopt.vulkan.data.layout.MAX_ROWS", 30)
    with pytest.raises(DeviceLimitError, match="scalar rows"):
        optimize(bundle_adjustment(), "lm", 2, device="vulkan", **OPTIONS)


def test_far_slots_are_those_of_the_shaders():
    """The table that launches check says what the text of `shaders/` declares."""
    declared = {}
    for path in SHADERS.glob("*.comp"):
        text = path.read_text()
        included = [(SHADERS / "include" / name).read_text() for name in re.findall(r'#include "(.+)"', text)]
        slots = re.findall(
            r"^(?:LARGE_\w+|FAR_\w+)\((\d+),|^GRAPHOPT_LARGE\(restrict, (\d+),",
            "".join([text, *included]),
            re.M,
        )
        if slots and not path.stem.startswith("chol_"):  # whose launches check sizes by themselves
            declared[path.stem] = frozenset(int(slot or other) for slot, other in slots)
    assert declared == FAR_SLOTS


def test_declarations_say_what_is_far():
    """The set that launches check is that of the text."""
    signature = gpu.EdgeSignature(bundle_adjustment().edge_sets[0].type, "identity")
    kernel = gpu.linearize_kernel(signature, 0)
    assert {"rows", "data", "values"} <= kernel.far and "b" not in kernel.far
