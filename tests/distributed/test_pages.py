"""Rows that GPUs share go through memory of the host that all have imported: the bits of the host."""

import numpy as np
import pytest
from rank_programs import PROBLEMS, adjustment, estimates

import graphopt
from graphopt.device.vulkan import VulkanDevice
from graphopt.distributed import solver
from graphopt.distributed.messages import host_pages
from graphopt.errors import DeviceError, OptionError

pytest.importorskip("graphopt._vulkan", reason="graphopt was built without Vulkan")

TWO, FOUR = "vulkan:0,vulkan:0", "vulkan:0,vulkan:0,vulkan:0,vulkan:0"


@pytest.fixture(autouse=True)
def _imports():
    if not graphopt.device.listing.list_devices()[0].features["host_alignment"]:
        pytest.skip("needs a driver with VK_EXT_external_memory_host")


def chi2_of(summary):
    """After each iteration."""
    return [iteration.chi2 for iteration in summary.iterations]


def by_both(name, **options):
    """Summaries and estimates by pages and by cores."""
    found = []
    for transport in ("pages", "host"):
        graph = PROBLEMS[name]()
        summary = graphopt.optimize(graph, "lm", 5, schur="implicit", transport=transport, **options)
        assert summary.partition["transport"] == transport
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


def test_in_mixed_precision():
    """Two ranks: a sum of two float32 is rounded once either way."""
    by_pages, by_host = by_both("adjustment", device=TWO, precision="mixed")
    assert by_pages == by_host


def test_a_driver_that_cannot(monkeypatch):
    """Says which, and what to do."""
    monkeypatch.setenv("GRAPHOPT_MASK_FEATURES", "imports_host")
    with pytest.raises(DeviceError, match=r"does not work on memory of the host .* Use transport='host'"):
        graphopt.optimize(adjustment(), "lm", 2, device=TWO, schur="implicit", transport="pages")


def test_where_there_are_no_pages():
    """A rank on the CPU; S that is factorized."""
    with pytest.raises(DeviceError, match="rank 1: it computes on the CPU"):
        graphopt.optimize(adjustment(), "lm", 2, device="vulkan:0,cpu", schur="implicit", transport="pages")
    with pytest.raises(OptionError, match="transport='pages' carries the messages of conjugate gradients"):
        graphopt.optimize(adjustment(), "lm", 2, device=TWO, schur="explicit", transport="pages")


def test_two_devices_see_one_memory():
    """What one writes into pages, the other reads, and the host in between."""
    devices = [VulkanDevice(0, validation=True), VulkanDevice(0, validation=True)]
    alignment = devices[0].info["host_alignment"]
    pages = host_pages(1000, 2, alignment)
    assert pages.ctypes.data % alignment == len(pages) % alignment == 0 and len(pages) >= 4000
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
    pages = host_pages(alignment, 2, alignment)
    for wrong in (pages[64:], pages[: len(pages) - 64], pages[:0]):
        with pytest.raises(DeviceError, match=f"begins and ends at multiples of {alignment} bytes"):
            device.import_host(wrong)
    with pytest.raises(DeviceError, match="does not work on memory of the host"):
        VulkanDevice(0, masked_features=["imports_host"]).import_host(pages)
