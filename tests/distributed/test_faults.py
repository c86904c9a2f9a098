"""A rank that fails ends all, and says which it was; the last checkpoint stays, for any number of ranks."""

import numpy as np
import pytest
from archives import damage
from rank_programs import (
    HERE,
    adjustment,
    answer,
    failing_collective,
    launch,
    on_all,
    request_all,
    why_not,
)

import graphopt
from graphopt.distributed.call import optimize_rank
from graphopt.distributed.checkpoint import read_checkpoint, write_checkpoint
from graphopt.distributed.communicator import RankError, ThreadCommunicator, run_as_threads
from graphopt.errors import FormatError, GraphError, OptionError

with_ranks = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@with_ranks
@pytest.mark.parametrize(
    "how, words",
    [
        ("killed", "rank 1"),
        ("memory", "RankError: Rank 1: out of memory. The last checkpoint is in"),
        ("lost", "RankError: Rank 1: vulkan:1 (Some GPU) was lost."),
    ],
)
def test_a_rank_that_fails_ends_all(tmp_path, how, words):
    """In the middle of a run; another number of ranks goes on from the checkpoint to the same answer."""
    path = str(tmp_path / "on_the_way.npz")
    done = launch(3, str(HERE), "dying", path, how, timeout=60)
    assert done.returncode != 0
    assert words in done.stdout + done.stderr
    assert read_checkpoint(path, adjustment()) == 3
    if how == "killed":
        whole = graphopt.optimize(adjustment(), "lm", 10)
        assert answer(2, "resumed", path)["final_chi2"] == pytest.approx(whole.final_chi2, rel=1e-6)


@with_ranks
def test_what_one_rank_raises_all_raise():
    """Callbacks, options, the graph of rank 0."""
    found = answer(2, "raising")
    assert found[0] == found[1]
    callback, method, fixed = found[0]
    assert callback.startswith("RankError: Rank 1: KeyError: 'mine'")
    assert method.startswith("OptionError: method is 'newton'")
    assert fixed.startswith("RankError: Rank 0: There is no vertex 1000000")


@with_ranks
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_the_program_goes_on_after_a_rank_has_failed(num_ranks):
    """Wherever the others waited, all raise, and the next call works; communicators are freed."""
    for rank, (caught, chi2, expected) in enumerate(answer(num_ranks, "failing")):
        words = "MemoryError: " if rank == 1 else "RankError: Rank 1: out of memory."
        assert len(caught) == 3 and all(each.startswith(words) for each in caught)
        assert chi2 == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("at", [0, 8, 15])
def test_a_collective_of_threads_fails(at):
    """The error names the rank, the estimates are no worse, and the next call works."""
    graph = adjustment()
    before = graph.chi2()
    with failing_collective(ThreadCommunicator, at) as fired:
        with pytest.raises(RankError, match=r"^Rank 1: Connection reset by peer\."):
            on_all(graph, None, "lm", 3, device="cpu,cpu")
    assert fired and graph.chi2() <= before * (1.0 + 1e-9)
    summary = on_all(graph, None, "lm", 10, device="cpu,cpu")
    assert summary.final_chi2 == pytest.approx(graphopt.optimize(adjustment(), "lm", 10).final_chi2, rel=1e-6)


@pytest.mark.nightly
@with_ranks
def test_each_collective_of_mpi_fails_in_turn():
    """The same between processes, each of them once: all ranks raise, and none waits for ever."""
    ranks = answer(2, "in_turn")
    expected = graphopt.optimize(adjustment(), "lm", 3).final_chi2
    for caught, last in ranks:
        assert last == pytest.approx(expected, rel=1e-9)
        assert len(caught) > 10
        for words, before, after in caught:
            assert "Connection reset by peer" in words
            assert after <= before * (1.0 + 1e-9)


def test_another_graph_on_another_rank():
    """Named on all ranks."""
    moved, smaller = adjustment(), adjustment()
    moved.vertex_sets[1].estimate[0] += 1.0
    smaller.remove_vertices([int(smaller.vertex_sets[1].ids[0])])
    for graph, words in ((moved, "other estimates of VERTEX_"), (smaller, "other vertices of VERTEX_")):

        def work(comm, graph=graph):
            return optimize_rank(adjustment() if comm.rank == 0 else graph, comm, request_all("lm", 1))

        with pytest.raises(GraphError, match=f"The graph of rank 1 has {words}.*Pass None there"):
            run_as_threads(2, work)


@with_ranks
def test_any_rank_may_stop_all():
    """After the same iteration, and callbacks see the present estimates."""
    ends, seen = answer(2, "stopping")
    assert ends == [[2, "USER_STOP"]] * 2
    for chi2, of_graph in seen:
        assert of_graph == pytest.approx(chi2, rel=1e-9)


def test_a_checkpoint_is_the_estimates(tmp_path):
    """To the last bit."""
    graph, path = adjustment(), str(tmp_path / "c.npz")
    write_checkpoint(path, graph, 4, 1.0)
    other = adjustment()
    other.vertex_sets[0].estimate += 1.0
    assert read_checkpoint(path, other) == 5
    for vertex_set, two in zip(graph.vertex_sets, other.vertex_sets, strict=True):
        np.testing.assert_array_equal(vertex_set.estimate, two.estimate)


def test_checkpoints_of_other_graphs_are_refused(tmp_path):
    """And nothing is changed."""
    path, graph = str(tmp_path / "c.npz"), adjustment()
    write_checkpoint(path, graphopt.evaluate.datasets.pose_graphs.sphere(4, 3), 0, 1.0)
    before = [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
    with pytest.raises(FormatError, match="the same graph"):
        read_checkpoint(path, graph)
    smaller = adjustment()
    smaller.remove_vertices([int(smaller.vertex_sets[1].ids[0])])
    write_checkpoint(path, smaller, 0, 1.0)
    with pytest.raises(FormatError, match="vertices, the graph"):
        read_checkpoint(path, graph)
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(FormatError, match="no checkpoint of graphopt"):
        read_checkpoint(str(tmp_path / "text.npz"), graph)
    for vertex_set, values in zip(graph.vertex_sets, before, strict=True):
        np.testing.assert_array_equal(vertex_set.estimate, values)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("num_sets", None, "there is no num_sets"),
        ("ids_1", None, "there is no ids_1"),
        ("ids_1", lambda ids: ids + 0.5, "ids_1 holds float64"),
        ("ids_1", lambda ids: ids[:-1], "ids_1 and estimate_1 differ"),
        ("ids_1", lambda ids: np.concatenate([ids[1:], ids[-1:]]), "has a vertex twice"),
        ("estimate_0", lambda values: values.astype(str), "estimate_0 holds <U"),
    ],
)
def test_damaged_checkpoints_are_refused(tmp_path, name, change, words):
    """With what is wrong, and nothing is changed."""
    path, graph = str(tmp_path / "c.npz"), adjustment()
    write_checkpoint(path, graph, 0, 1.0)
    damage(path, name, change)
    before = [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
    with pytest.raises(FormatError, match=f"c.npz: the checkpoint is damaged: .*{words}"):
        read_checkpoint(path, graph)
    for vertex_set, values in zip(graph.vertex_sets, before, strict=True):
        np.testing.assert_array_equal(vertex_set.estimate, values)


def test_options_of_ranks_name_the_function_that_has_them():
    """One process alone says so, instead of writing no checkpoint."""
    for options in ({"checkpoint": "c.npz"}, {"comm": None}, {"device": "cpu,cpu"}):
        with pytest.raises(OptionError, match=r"graphopt\.distributed\.optimize\(graph, comm, \.\.\.\)"):
            graphopt.optimize(adjustment(), **options)


@pytest.mark.parametrize(
    ("name", "values"),
    [("method", ["lm", "gn"]), ("max_iterations", [3, 5]), ("checkpoint", [None, "c.npz"])],
)
def test_other_options_on_other_ranks(name, values):
    """They are told apart, where ranks would wait for each other for ever."""

    def work(comm):
        requested = request_all(**{name: values[int(comm.rank == 2)]})
        return optimize_rank(adjustment() if comm.rank == 0 else None, comm, requested)

    with pytest.raises(OptionError, match=f"different options: {name} is .* on rank 0 and .* on rank 2"):
        run_as_threads(3, work)


@pytest.mark.parametrize("every", [0, -1, 2.5])
def test_every_is_a_number_of_iterations(tmp_path, every):
    """Others are refused before anything is done."""
    path = str(tmp_path / "c.npz")
    with pytest.raises(OptionError, match=r"every is .* at least 1"):
        on_all(adjustment(), None, "lm", 2, device="cpu,cpu", checkpoint=path, every=every)


def test_another_number_of_ranks_goes_on_from_a_checkpoint(tmp_path):
    """And other graphs do not."""
    kept = str(tmp_path / "c.npz")
    first = on_all(adjustment(), None, "lm", 2, device="cpu,cpu,cpu", checkpoint=kept, every=2)
    again = on_all(adjustment(), None, "lm", 1, device="cpu,cpu", resume=kept)
    assert again.initial_chi2 == pytest.approx(first.final_chi2, rel=1e-9)
    assert read_checkpoint(kept, adjustment()) == 2
    write_checkpoint(kept, graphopt.evaluate.datasets.bundle_adjustment.ba(10, 120, seed=5), 0, 1.0)
    with pytest.raises(graphopt.GraphOptError, match="the same graph"):
        on_all(adjustment(), None, "lm", 1, device="cpu,cpu", resume=kept)
