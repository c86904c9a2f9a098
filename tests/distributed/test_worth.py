"""Fewer ranks work where that is expected to be faster; the others hear of iterations, and may stop them."""

import importlib

import pytest
from rank_programs import adjustment, answer, estimates, on_all, request_all, sphere, why_not

import graphopt
from graphopt.distributed import worth
from graphopt.distributed.call import optimize_rank
from graphopt.distributed.communicator import run_as_threads
from graphopt.distributed.worth import RankPower, Worth, ranks_worth
from graphopt.errors import OptionError
from graphopt.linear.options import SolverOptions

with_ranks = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
optimize = importlib.import_module("graphopt.distributed.call")


class Sizes:
    """A selection of so many observations, of which only sizes are asked."""

    vertex_sets, edges = (), ()

    def __init__(self, count):
        self.num_active_edges = count


@pytest.mark.parametrize(
    ("device", "threads", "observations", "expected"),
    [
        ("vulkan:0", 1, 1e6, 1),
        ("vulkan:0", 1, 9.1e6, 1),
        ("vulkan:0", 1, 29e6, 2),
        ("cpu", 1, 1e3, 1),
        ("cpu", 16, 1e7, 2),
    ],
)
def test_large_problems_are_worth_two_ranks(device, threads, observations, expected, monkeypatch):
    """29 million observations gain by a second GPU, 9 million do not (NVIDIA H200)."""
    ranks = [RankPower(device, threads, threads)] * 2
    monkeypatch.setattr(worth, "_least_for_memory", lambda edges, ranks: 1)  # of the device here
    found = ranks_worth(Sizes(observations), SolverOptions(schur="implicit"), ranks, "auto")
    assert found.count == expected
    assert found.is_alone == (expected == 1)


def test_cores_of_one_host_are_those_of_one_rank():
    """Four ranks that share 16 cores do not compute faster than one that has them all."""
    ranks = [RankPower("cpu", 4, 16)] * 4
    assert ranks_worth(Sizes(1e9), SolverOptions(schur="implicit"), ranks, "auto").is_alone


@pytest.mark.parametrize("make", [adjustment, sphere])
def test_steps_that_are_factorized_are_those_of_one_rank(make):
    """The same bits, and the summary says so."""
    graph, alone = make(), make()
    found = graphopt.distributed.optimize(graph, None, device="cpu,cpu")
    expected = graphopt.optimize(alone, device="cpu")
    assert [step.chi2 for step in found.iterations] == [step.chi2 for step in expected.iterations]
    assert estimates(graph) == estimates(alone)
    assert (found.linear_solver, found.partition["of"]) == (expected.linear_solver, 2)
    assert "1 of 2 ranks: steps are factorized, which one rank does faster" in found.full_report()


def test_a_factorization_over_all_ranks_is_refused():
    """Instead of something else."""
    with pytest.raises(OptionError, match="linear_solver='cholesky' factorizes on one rank"):
        on_all(sphere(), None, device="cpu,cpu", linear_solver="cholesky")
    with pytest.raises(OptionError, match="ranks is 'some', expected one of auto, all"):
        on_all(sphere(), None, device="cpu,cpu", ranks="some")


def test_what_one_rank_refuses_all_do():
    """With the class of the error."""
    with pytest.raises(OptionError, match="computed is 'inlined'"):
        graphopt.distributed.optimize(sphere(), None, device="cpu,cpu", computed="inlined")
    with pytest.raises(graphopt.GraphOptError, match="schur 'explicit' needs marginalized vertices"):
        graphopt.distributed.optimize(sphere(), None, device="cpu,cpu", schur="explicit")


@pytest.mark.parametrize("stops", [None, 2])
@pytest.mark.parametrize("worth", [Worth(1, "alone", is_alone=True), Worth(2, "two")])
def test_those_who_follow_hear_and_may_stop(monkeypatch, worth, stops):
    """And get the result in their graphs; two of three ranks have the bits of two."""
    monkeypatch.setattr(optimize, "ranks_worth", lambda *given: worth)

    def work(comm):
        graph, seen = adjustment(), []

        def watch(done):
            seen.append((done.iteration, graph.chi2()))
            return not (comm.rank == stops and done.iteration == 1)

        summary = optimize_rank(graph, comm, request_all("lm", 4, callback=watch))
        return summary, seen, graph

    ranks = run_as_threads(3, work)
    for summary, seen, graph in ranks:
        assert summary.termination.name == ("NO_CONVERGENCE" if stops is None else "USER_STOP")
        assert [chi2 for _, chi2 in seen] == pytest.approx([step.chi2 for step in summary.iterations])
        assert len(seen) == (4 if stops is None else 2)
        assert estimates(graph) == estimates(ranks[0][2])
    if stops is None and worth.count == 2:
        two = on_all(adjustment(), None, "lm", 4, device="cpu,cpu")
        assert [step.chi2 for step in two.iterations] == [step.chi2 for step in ranks[0][0].iterations]
        assert [rank["rank"] for rank in ranks[2][0].ranks] == [0, 1]


@with_ranks
def test_those_who_follow_over_mpi():
    """All of it, where rank 2 stops."""
    for of_rank in answer(3, "fewer"):
        for (seen, ending, ranks, chi2, of_graph), count in zip(of_rank, (1, 2), strict=True):
            assert (seen, ending, ranks) == ([0, 1], "USER_STOP", list(range(count)))
            assert of_graph == pytest.approx(chi2, rel=1e-9)


@with_ranks
def test_ranks_that_disagree_end_with_one_sentence():
    """The same on all, within five seconds."""
    ranks = answer(3, "disagreeing")
    for case, words in enumerate(
        ("different options: method", "time_limit", "The graph of rank 1 has other")
    ):
        assert len({told[case][0] for told in ranks}) == 1
        assert words in ranks[0][case][0]
        assert all(told[case][1] < 5.0 for told in ranks)
