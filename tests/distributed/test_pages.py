"""Rows that GPUs share go through memory of the host that all have imported: the bits of the host."""

from pathlib import Path

import numpy as np
import pytest
from rank_programs import PROBLEMS, adjustment, answer, estimates, on_all, request_all, why_not
from vulkan_devices import vulkan_runtime

from graphopt.device.listing import list_devices
from graphopt.device.vulkan import VulkanDevice
from graphopt.distributed import pages as host_pages
from graphopt.distributed import solver, transport
from graphopt.distributed.call import optimize_rank
from graphopt.distributed.communicator import ThreadCommunicator, run_as_threads
from graphopt.distributed.pages import aligned_zeros
from graphopt.distributed.resident import ResidentIterating
from graphopt.errors import DeviceError
from graphopt.linear.options import SolverOptions

vulkan_runtime()

TWO, FOUR = "vulkan:0,vulkan:0", "vulkan:0,vulkan:0,vulkan:0,vulkan:0"


@pytest.fixture(autouse=True)
def _imports():
    if not list_devices()[0].features["host_alignment"]:
        pytest.skip("needs a driver with VK_EXT_external_memory_host")


def chi2_of(summary):
    """After each iteration."""
    return [iteration.chi2 for iteration in summary.iterations]


def by_both(name, **options):
    """Summaries and estimates by pages and by cores."""
    found = []
    for way in ("pages", "host"):
        graph = PROBLEMS[name]()
        summary = on_all(graph, None, "lm", 5, schur="implicit", transport=way, **options)
        assert summary.partition["transport"] == way
        found.append((chi2_of(summary), estimates(graph)))
    return found


@pytest.mark.parametrize("device", [TWO, FOUR])
@pytest.mark.parametrize("name", ["adjustment", "free_adjustment", "mixed"])
def test_the_bits_of_the_host(name, device):
    """Sums are taken in the order of the ranks, whoever adds."""
    by_pages, by_host = by_both(name, device=device)
    assert by_pages == by_host


def test_iterations_in_python_too(monkeypatch):
    """The same programs take turns."""
    monkeypatch.setattr(solver, "iterates_natively", lambda comm, own: False)
    by_pages, by_host = by_both("adjustment", device=TWO)
    assert by_pages == by_host


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_ranks_of_mpi():
    """Processes of one host map one file, which is gone afterwards."""
    before = set(host_pages._IN_MEMORY.glob("graphopt-*"))
    by_pages, by_host = answer(2, "by_pages")
    assert [by_pages[0], by_host[0]] == ["pages", "host"]
    assert by_pages[1:] == by_host[1:]
    assert set(host_pages._IN_MEMORY.glob("graphopt-*")) <= before


def test_in_mixed_precision():
    """Two ranks: a sum of two float32 is rounded once either way."""
    by_pages, by_host = by_both("adjustment", device=TWO, precision="mixed")
    assert by_pages == by_host


def test_the_host_adds_no_row(monkeypatch):
    """Neither of messages nor of what eliminations give; too much of that goes through the host."""
    eliminated, rows = [], []
    plain, natively = ResidentIterating.reduce, ResidentIterating.submissions

    def reduce(own, *arguments):
        found = plain(own, *arguments)
        eliminated.append(len(found))
        return found

    def submissions(own):
        found = natively(own)
        rows.append(found.rows)
        return found

    monkeypatch.setattr(ResidentIterating, "reduce", reduce)
    monkeypatch.setattr(ResidentIterating, "submissions", submissions)
    options = {"device": TWO, "schur": "implicit", "transport": "pages"}
    found = on_all(adjustment(), None, "lm", 2, **options)
    assert set(eliminated) == {1} and set(rows) == {0}
    eliminated.clear()
    monkeypatch.setattr(transport, "MOST_GATHERED", 0)
    assert chi2_of(on_all(adjustment(), None, "lm", 2, **options)) == chi2_of(found)
    assert min(eliminated) > 1 and set(rows) == {0}
    on_all(adjustment(), None, "lm", 2, **options | {"transport": "host"})
    assert rows[-1] > 0


@pytest.mark.parametrize(("large", "expected"), [(1, "pages"), (1 << 30, "host")])
def test_large_messages_take_them_by_themselves(monkeypatch, large, expected):
    """Small ones do not."""
    monkeypatch.setattr(transport, "LARGE", large)
    found = on_all(adjustment(), None, "lm", 2, device=TWO, schur="implicit")
    assert found.partition["transport"] == expected
    mixed = on_all(adjustment(), None, "lm", 2, device="vulkan:0,cpu", schur="implicit")
    assert mixed.partition["transport"] == "host"
    monkeypatch.setenv("GRAPHOPT_MASK_FEATURES", "imports_host")
    lacking = on_all(adjustment(), None, "lm", 2, device=TWO, schur="implicit")
    assert lacking.partition["transport"] == "host"


def test_a_driver_that_cannot(monkeypatch):
    """Says which, and what to do."""
    monkeypatch.setenv("GRAPHOPT_MASK_FEATURES", "imports_host")
    with pytest.raises(DeviceError, match=r"does not work on memory of the host .* Use transport='host'"):
        on_all(adjustment(), None, "lm", 2, device=TWO, schur="implicit", transport="pages")


def test_where_there_are_no_pages():
    """A rank on the CPU; S_r that are formed there."""
    with pytest.raises(DeviceError, match="rank 1: it computes on the CPU"):
        on_all(adjustment(), None, "lm", 2, device="vulkan:0,cpu", schur="implicit", transport="pages")
    with pytest.raises(DeviceError, match="rank 0: it computes on the CPU"):
        on_all(adjustment(), None, "lm", 2, device=TWO, schur="explicit", transport="pages")


def test_ranks_of_several_hosts(monkeypatch):
    """They share no memory."""
    monkeypatch.setattr(ThreadCommunicator, "host_of", lambda comm: f"node{comm.rank}")
    solver_options = SolverOptions(device="vulkan:0", schur="implicit")
    requested = request_all("lm", 2, solver=solver_options, transport="pages")
    with pytest.raises(DeviceError, match=r"shares no memory with ranks of another host \(node0, node1\)"):
        run_as_threads(
            2, lambda comm: optimize_rank(adjustment() if comm.rank == 0 else None, comm, requested)
        )


def test_two_devices_see_one_memory():
    """What one writes into pages, the other reads, and the host in between."""
    devices = [VulkanDevice(0, validation=True), VulkanDevice(0, validation=True)]
    alignment = devices[0].info["host_alignment"]
    pages = aligned_zeros(alignment, alignment)
    assert pages.ctypes.data % alignment == 0 and len(pages) == alignment
    first, second = (device.import_host(pages) for device in devices)
    sent = np.arange(500, dtype=np.float64)
    own, got = devices[0].upload(sent), devices[1].allocate(sent.nbytes)
    devices[0].submit(devices[0].record().copy(own, first, sent.nbytes).finish()).wait()
    assert np.array_equal(pages[:4000].view(np.float64), sent)
    devices[1].submit(devices[1].record().copy(second, got, sent.nbytes).finish()).wait()
    assert np.array_equal(devices[1].download(got, np.float64, 500), sent)
    assert [device.messages for device in devices] == [[], []]


def test_memory_that_cannot_be_imported():
    """Its ends have to be where the driver wants them."""
    device = VulkanDevice(0)
    alignment = device.info["host_alignment"]
    pages = aligned_zeros(2 * alignment, alignment)
    for wrong in (pages[64:], pages[: len(pages) - 64], pages[:0]):
        with pytest.raises(DeviceError, match=f"begins and ends at multiples of {alignment} bytes"):
            device.import_host(wrong)
    with pytest.raises(DeviceError, match="does not work on memory of the host"):
        VulkanDevice(0, masked_features=["imports_host"]).import_host(pages)


def test_large_pages():
    """The system is asked for them, for memory of this process alone: shared mappings often get none."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not setting.is_file() or "[never]" in setting.read_text():
        pytest.skip("this system has no large pages")
    pages = aligned_zeros(8 << 20, 4096)
    assert not pages.any() and pages.ctypes.data % (2 << 20) == 0
    flags, is_inside = [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            first, last = (int(address, 16) for address in name.split("-"))
            is_inside = first <= pages.ctypes.data < last
        elif is_inside and name == "VmFlags:":
            flags = rest
    assert "hg" in flags and "sh" not in flags
