"""Ranks on a Vulkan device keep all there but what others have to know, and find what one process does."""

import threading

import numpy as np
import pytest
from rank_programs import PROBLEMS, adjustment, estimates, on_all, request_all
from vulkan_devices import vulkan_runtime

import graphopt
from graphopt.device import open_device
from graphopt.distributed import solver
from graphopt.distributed.communicator import RankError
from graphopt.distributed.options import distributed_rules
from graphopt.distributed.resident import ResidentPart

vulkan_runtime()

EXACTLY = {"schur": "implicit", "pcg_tolerance": 1e-20}
DEVICES = ["vulkan:0,vulkan:0", "vulkan:0,cpu,vulkan:0", "vulkan:0,vulkan:0,vulkan:0,vulkan:0"]


def chi2_of(summary):
    """After each iteration."""
    return [iteration.chi2 for iteration in summary.iterations]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["adjustment", "free_adjustment", "mixed"])
def test_ranks_take_the_steps_of_one_process(name, device):
    """Chi2 per iteration to 1e-9, devices and cores together as well."""
    graph = PROBLEMS[name]()
    found = on_all(graph, None, "lm", 6, device=device, **EXACTLY)
    expected = graphopt.optimize(PROBLEMS[name](), "lm", 6, device="cpu", **EXACTLY)
    np.testing.assert_allclose(chi2_of(found), chi2_of(expected), rtol=1e-9)
    assert graph.chi2() == pytest.approx(expected.final_chi2, rel=1e-9)
    assert (found.linear_solver, found.schur) == ("pcg", "implicit")


@pytest.mark.parametrize(
    "options",
    [
        {"preconditioner": "jacobi"},
        {"schedule": "blocks"},
        {"schedule": "matrix-free"},
        {"schedule": "jacobians", "preconditioner": "jacobi"},
        {"method": "auto"},
        {"method": "dogleg"},
    ],
)
def test_ways_to_compute_it(options):
    """What is stored, what preconditions, and algorithms that ask for vectors."""
    device, options = options.copy(), {"method": "lm", **options}
    found = on_all(adjustment(), None, max_iterations=5, device=DEVICES[0], **EXACTLY, **options)
    on_cpu = {name: value for name, value in options.items() if name != "schedule"}
    if device.get("method") == "auto":
        on_cpu["options"] = distributed_rules(graphopt.AutoOptions())
    expected = graphopt.optimize(adjustment(), max_iterations=5, device="cpu", **EXACTLY, **on_cpu)
    np.testing.assert_allclose(chi2_of(found), chi2_of(expected), rtol=1e-9)


def test_mixed_precision_ends_as_on_one_device():
    """And goes on in double where that decides."""
    options = {"schur": "implicit", "precision": "mixed"}
    found = on_all(adjustment(), None, "lm", 20, device=DEVICES[0], **options)
    expected = graphopt.optimize(adjustment(), "lm", 20, device="vulkan:0", **options)
    assert found.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-6)
    assert found.precision == expected.precision
    assert (found.switched_at is None) == (expected.switched_at is None)


def test_the_same_bits_every_time():
    """For a number of ranks."""
    first, second = adjustment(), adjustment()
    chi2 = [
        chi2_of(on_all(graph, None, "lm", 6, device=DEVICES[2], schur="implicit"))
        for graph in (first, second)
    ]
    assert chi2[0] == chi2[1]
    assert estimates(first) == estimates(second)


@pytest.mark.parametrize("way", ["iterate", "iterate_natively"])
def test_one_submission_per_iteration(monkeypatch, way):
    """Vectors go up, and the product comes down, in one trip, in Python and in native code."""
    submitted, iterations = [], []
    plain = getattr(solver, way)

    def counting(comm, own, total, rule):
        native = open_device("vulkan:0").native  # shared in this process
        before = native.num_submissions
        iterations.append(plain(comm, own, total, rule))
        submitted.append(native.num_submissions - before)
        return iterations[-1]

    monkeypatch.setattr(solver, way, counting)
    if way == "iterate":
        monkeypatch.setattr(solver, "iterates_natively", lambda comm, own: False)
    graphopt.optimize(adjustment(), "lm", 3, device="vulkan:0", schur="implicit")
    assert not iterations  # one device alone is no rank
    run_alone("vulkan:0")
    assert iterations and min(iterations) > 3
    assert submitted == [number + 1 for number in iterations]


@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_native_iterations_have_the_bits_of_python(monkeypatch, precision):
    """Ranks of MPI iterate in Python, threads in native code: the same steps."""
    options = {"device": DEVICES[2], "schur": "implicit", "precision": precision}
    first, second = adjustment(), adjustment()
    natively = on_all(first, None, "lm", 5, **options)
    monkeypatch.setattr(solver, "iterates_natively", lambda comm, own: False)
    in_python = on_all(second, None, "lm", 5, **options)
    assert chi2_of(natively) == chi2_of(in_python)
    assert estimates(first) == estimates(second)


def test_a_rank_that_fails_ends_those_who_wait_for_it_natively(monkeypatch):
    """Before the first iteration, while the others are in native code: one message, which names it."""
    plain, lock = solver.iterate_natively, threading.Lock()
    calls = []

    def failing(comm, own, total, rule):
        with lock:
            calls.append(comm.rank)
        if comm.rank == 1 and calls.count(1) == 2:
            raise MemoryError("no memory left")
        return plain(comm, own, total, rule)

    monkeypatch.setattr(solver, "iterate_natively", failing)
    with pytest.raises(RankError, match="Rank 1: no memory left"):
        on_all(adjustment(), None, "lm", 5, device=DEVICES[0], schur="implicit")


def run_alone(device):
    """One rank, in the code of several."""
    from graphopt.distributed.call import optimize_rank
    from graphopt.distributed.communicator import ThreadCommunicator
    from graphopt.linear.options import SolverOptions

    requested = request_all("lm", 3, solver=SolverOptions(device=device, schur="implicit"))
    return optimize_rank(adjustment(), ThreadCommunicator(), requested)


def test_auto_iterates_on_devices(monkeypatch):
    """Where there are many kept vertices S is not formed, and the parts stay on their devices."""
    made = []
    plain = ResidentPart.of.__func__
    monkeypatch.setattr(
        ResidentPart, "of", classmethod(lambda cls, *given: made.append(plain(cls, *given)) or made[-1])
    )
    summary = on_all(adjustment(), None, "lm", 3, device=DEVICES[0])
    assert summary.schur == "implicit"
    assert [type(part) for part in made] == [ResidentPart] * 2
