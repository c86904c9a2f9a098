"""Rows that GPUs share go from device to device by NCCL: the bits of the host, and clear errors.

There is no NVIDIA GPU in these tests: `fake_nccl` stands for CUDA and NCCL. It maps the very memory that the
Vulkan driver exports, so a wrong offset, size or moment gives wrong numbers.
"""

import fake_nccl
import pytest
from rank_programs import PROBLEMS, adjustment, answer, estimates, why_not

import graphopt
from graphopt.distributed import nccl, solver
from graphopt.distributed.communicator import RankError
from graphopt.errors import DeviceError, OptionError

pytest.importorskip("graphopt._vulkan", reason="graphopt was built without Vulkan")

TWO, FOUR = "vulkan:0,vulkan:0", "vulkan:0,vulkan:0,vulkan:0,vulkan:0"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The fake, built once."""
    return fake_nccl.build(tmp_path_factory.mktemp("nccl"))


@pytest.fixture(autouse=True)
def _forget_libraries():
    yield
    nccl.libraries.cache_clear()


@pytest.fixture
def fake(library, monkeypatch):
    """CUDA and NCCL are there."""
    fake_nccl.install(monkeypatch, library)
    return monkeypatch


def chi2_of(summary):
    """After each iteration."""
    return [iteration.chi2 for iteration in summary.iterations]


@pytest.mark.parametrize("device", [TWO, FOUR])
@pytest.mark.parametrize("name", ["adjustment", "free_adjustment", "mixed"])
def test_the_bits_of_the_host(fake, name, device):
    """Sums are taken in the order of the ranks, whoever carries them."""
    graphs = [PROBLEMS[name](), PROBLEMS[name]()]
    found, expected = (
        graphopt.optimize(graph, "lm", 5, device=device, schur="implicit", transport=transport)
        for graph, transport in zip(graphs, ("nccl", "host"), strict=True)
    )
    assert [summary.partition["transport"] for summary in (found, expected)] == ["nccl", "host"]
    assert "by nccl" in found.full_report()
    assert chi2_of(found) == chi2_of(expected)
    assert estimates(graphs[0]) == estimates(graphs[1])


def test_iterations_in_python_too(fake):
    """Those of MPI's ranks."""
    fake.setattr(solver, "iterates_natively", lambda comm, own: False)
    graphs = [adjustment(), adjustment()]
    found, expected = (
        graphopt.optimize(graph, "lm", 5, device=TWO, schur="implicit", transport=transport)
        for graph, transport in zip(graphs, ("nccl", "host"), strict=True)
    )
    assert chi2_of(found) == chi2_of(expected)


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_ranks_of_mpi(fake, library):
    """Processes meet by the name that rank 0 tells."""
    by_nccl, by_host = answer(2, "by_nccl", str(library))
    assert [by_nccl[0], by_host[0]] == ["nccl", "host"]
    assert by_nccl[1:] == by_host[1:]


def test_mixed_precision_and_on_in_double(fake):
    """Rows in float32; sums of two are rounded once, as the host's."""
    options = {"device": TWO, "schur": "implicit", "precision": "mixed"}
    found = graphopt.optimize(adjustment(), "lm", 12, transport="nccl", **options)
    expected = graphopt.optimize(adjustment(), "lm", 12, transport="host", **options)
    assert chi2_of(found) == chi2_of(expected)
    assert found.switched_at == expected.switched_at


def test_the_message_stays_on_the_device(fake):
    """The host sees the scalars of an iteration, and no row."""
    sizes = []
    plain = solver.iterate_natively

    def looking(comm, own, total, rule):
        submissions = own.submissions()
        sizes.append(
            (submissions.rows, submissions.message.size, submissions.gather is None, own._shared.rows.size)
        )
        return plain(comm, own, total, rule)

    fake.setattr(solver, "iterate_natively", looking)
    graphopt.optimize(adjustment(), "lm", 2, device=TWO, schur="implicit", transport="nccl")
    assert sizes and all(rows == 0 and not without for rows, _, without, _ in sizes)
    assert all(bytes_ <= 5 * 8 for _, bytes_, _, _ in sizes) and min(shared for *_, shared in sizes) > 0


def test_ranks_meet_once(fake):
    """A later call of the same graph finds the communicator."""
    graph = adjustment()
    options = {"device": TWO, "schur": "implicit", "transport": "nccl"}
    graphopt.optimize(graph, "lm", 2, **options)
    fake.setattr(nccl, "new_unique_id", lambda: pytest.fail("a second meeting"))
    graphopt.optimize(graph, "lm", 2, **options)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("cuInit", "rank 0: NCCL cannot be used: starting CUDA failed with CUDA_ERROR_NO_DEVICE"),
        ("ncclGetUniqueId", "naming the ranks' meeting failed: a fault that was asked for"),
        ("ncclCommInitRank", "meeting the other ranks failed: a fault that was asked for"),
        ("cuImportExternalMemory", "into CUDA failed with CUDA_ERROR_UNKNOWN"),
        ("ncclAllGather", "NCCL's all-gather failed with error 3. NCCL_DEBUG=WARN"),
        ("cuStreamQuery", "Waiting for NCCL's all-gather failed with error 999"),
    ],
)
def test_calls_that_fail(fake, fault, words):
    """One message; nobody waits for ever, and the next call works."""
    fake.setenv("FAKE_NCCL_FAULT", fault)
    options = {"device": TWO, "schur": "implicit"}
    with pytest.raises((DeviceError, RankError), match=words):
        graphopt.optimize(adjustment(), "lm", 2, transport="nccl", **options)
    fake.delenv("FAKE_NCCL_FAULT")
    nccl.libraries.cache_clear()
    assert graphopt.optimize(adjustment(), "lm", 2, transport="nccl", **options).is_usable


def test_one_rank_that_fails_ends_the_others(fake):
    """While rows are on their way."""
    plain = solver.iterate_natively

    def failing(comm, own, total, rule):
        if comm.rank == 1:
            raise MemoryError
        return plain(comm, own, total, rule)

    fake.setattr(solver, "iterate_natively", failing)
    with pytest.raises(RankError, match="Rank 1: out of memory"):
        graphopt.optimize(adjustment(), "lm", 2, device=TWO, schur="implicit", transport="nccl")


def test_another_gpu_than_cudas(fake):
    """Vulkan's device is not among CUDA's."""
    fake.setenv("FAKE_CUDA_UUIDS", "00" * 16)
    with pytest.raises(DeviceError, match=f"it has {'00' * 16}. CUDA_VISIBLE_DEVICES may hide it"):
        graphopt.optimize(adjustment(), "lm", 2, device=TWO, schur="implicit", transport="nccl")


def test_a_driver_that_does_not_export(fake):
    """Says which, and what to do."""
    fake.setenv("GRAPHOPT_MASK_FEATURES", "exports_memory")
    with pytest.raises(DeviceError, match=r"does not export memory to CUDA .* Use transport='host'"):
        graphopt.optimize(adjustment(), "lm", 2, device=TWO, schur="implicit", transport="nccl")


def test_a_rank_on_the_cpu(fake):
    """Every rank needs a GPU."""
    with pytest.raises(DeviceError, match="rank 1: it computes on the CPU"):
        graphopt.optimize(adjustment(), "lm", 2, device="vulkan:0,cpu", schur="implicit", transport="nccl")


def test_ranks_that_share_a_gpu(library, monkeypatch):
    """NCCL would refuse."""
    sharing = nccl._sharing
    fake_nccl.install(monkeypatch, library)
    monkeypatch.setattr(nccl, "_sharing", sharing)
    with pytest.raises(DeviceError, match="ranks 0 and 1 share one GPU"):
        graphopt.optimize(adjustment(), "lm", 2, device=TWO, schur="implicit", transport="nccl")


@pytest.mark.parametrize("missing", ["libcuda.so.1", "libnccl.so.2"])
def test_libraries_that_are_missing(monkeypatch, missing):
    """Each is named, with the way out."""

    def opened(name):
        if name == missing:
            raise OSError(f"{name}: cannot open shared object file")
        return object()

    monkeypatch.setattr(nccl, "open_library", opened)
    words = "needs an NVIDIA GPU" if "cuda" in missing else r"pip install 'graphopt\[nccl\]'"
    nccl.libraries.cache_clear()
    with pytest.raises(DeviceError, match=words) as raised:
        graphopt.optimize(adjustment(), "lm", 2, device=TWO, schur="implicit", transport="nccl")
    assert missing in str(raised.value)


def test_where_it_has_nothing_to_do():
    """An option that would do nothing is refused."""
    with pytest.raises(OptionError, match="transport='nccl' carries the messages of conjugate gradients"):
        graphopt.optimize(adjustment(), "lm", 2, device=TWO, schur="explicit", transport="nccl")
    with pytest.raises(OptionError, match="one device has nobody to talk to"):
        graphopt.optimize(adjustment(), "lm", 2, device="cpu", transport="nccl")
    with pytest.raises(OptionError, match="expected one of auto, host, pages, nccl"):
        graphopt.optimize(adjustment(), "lm", 2, device=TWO, transport="ncll")
