"""One to four ranks compute what one process does: chi2 per iteration with exact steps, else the answer."""

from functools import cache

import numpy as np
import pytest
from rank_programs import (
    EXACT,
    EXACTLY,
    ITERATED,
    MOST_ITERATIONS,
    ON_DEVICE,
    PROBLEMS,
    answer,
    estimates,
    why_not,
)
from vulkan_devices import vulkan_runtime

import graphopt
from graphopt.distributed.options import distributed_rules

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def alone(name, options):
    """The graph and the summary of one process."""
    graph = PROBLEMS[name]()
    options = {name: value for name, value in options.items() if name not in EXACTLY}
    if options["method"] == "auto":
        options["options"] = distributed_rules(graphopt.AutoOptions())
    return graph, graphopt.optimize(graph, max_iterations=MOST_ITERATIONS, **options)


@cache
def found_by(num_ranks):
    """What ranks find for the cases of both lists."""
    return answer(num_ranks, "cases")


@pytest.fixture(params=[1, 2, 3, 4])
def runs(request):
    """Number of ranks, and what they found for the lists of cases."""
    return request.param, *found_by(request.param)


def test_exact_steps_take_the_same_steps(runs):
    """Chi2 per iteration to 1e-7 of factorized ones, and the estimates come back."""
    num_ranks, found, _ = runs
    for (name, options), document in zip(EXACT, found, strict=True):
        graph, summary = alone(name, options)
        chi2 = [iteration["chi2"] for iteration in document["iterations"]]
        np.testing.assert_allclose(
            chi2, [iteration.chi2 for iteration in summary.iterations], rtol=1e-7, err_msg=f"{name} {options}"
        )
        assert document["graph_chi2"] == pytest.approx(document["final_chi2"], rel=1e-9)
        assert [document["vertices"], document["edges"]] == [summary.vertices, summary.edges]
        assert document["fixed_by_gauge"] == summary.fixed_by_gauge
        for ours, theirs in zip(document["estimates"], estimates(graph), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
        assert len(document["ranks"]) == num_ranks


def test_conjugate_gradients_find_the_same_answer(runs):
    """Chi2 at the end."""
    for (name, options), document in zip(ITERATED, runs[2], strict=True):
        _, summary = alone(name, options)
        assert document["linear_solver"] == "pcg"
        assert document["final_chi2"] == pytest.approx(summary.final_chi2, rel=1e-8), (name, options)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_ranks_on_a_vulkan_device(num_ranks):
    """Each linearizes and moves its estimates there; chi2 per iteration is that of one process on the CPU."""
    vulkan_runtime()
    for (name, options), document in zip(ON_DEVICE, answer(num_ranks, "on_device"), strict=True):
        expected = [iteration.chi2 for iteration in alone(name, options)[1].iterations]
        np.testing.assert_allclose(
            [iteration["chi2"] for iteration in document["iterations"]], expected, rtol=1e-7
        )
        assert {rank["device"] for rank in document["ranks"] if rank["edges"]} == {"vulkan:0"}


def test_the_same_number_of_ranks_gives_the_same_bits():
    """Again, in another process."""
    for first, second in zip(found_by(3), answer(3, "cases"), strict=True):
        for before, after in zip(first, second, strict=True):
            chi2, again = ([step["chi2"] for step in document["iterations"]] for document in (before, after))
            assert chi2 == again
            assert before["estimates"] == after["estimates"]


def test_the_summary_says_who_did_what(runs):
    """Edges add up, and ranks without edges are among them."""
    num_ranks, found, _ = runs
    for document in found:
        ranks = document["ranks"]
        assert sum(rank["edges"] for rank in ranks) == document["edges"]
        assert [rank["rank"] for rank in ranks] == list(range(num_ranks))
        assert document["memory_bytes"] == sum(rank["memory_bytes"] for rank in ranks)
        assert 0.0 <= document["partition"]["communication_share"] <= 1.0
    assert any(rank["edges"] == 0 for rank in found[-1]["ranks"]) == (num_ranks > 3)
