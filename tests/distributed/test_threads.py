"""Ranks as threads of one process, one device each: the same code, the same numbers."""

import numpy as np
import pytest
from rank_programs import EXACTLY, adjustment, on_all, sphere

import graphopt
from graphopt.distributed.communicator import RankError, ThreadCommunicator, run_as_threads, together
from graphopt.errors import DeviceError, GraphError, OptionError


@pytest.mark.parametrize("make", [adjustment, sphere])
@pytest.mark.parametrize("device", ["cpu,cpu", "cpu,cpu,cpu"])
def test_several_devices_without_mpi(make, device):
    """Chi2 per iteration to 1e-9."""
    graph, alone = make(), make()
    found = on_all(graph, None, "gn", 5, device=device, **EXACTLY)
    expected = graphopt.optimize(alone, "gn", 5)
    np.testing.assert_allclose(
        [iteration.chi2 for iteration in found.iterations],
        [iteration.chi2 for iteration in expected.iterations],
        rtol=1e-9,
    )
    assert graph.chi2() == pytest.approx(expected.final_chi2, rel=1e-9)
    assert [rank["device"] for rank in found.ranks] == device.split(",")
    assert f"rank {device.count(',')} on" in found.full_report()


@pytest.mark.parametrize("options", [{}, {"linear_solver": "pcg"}])
def test_one_edge_over_more_ranks(options):
    """The first rank has none; the same bits as on one."""
    graph, alone = graphopt.Graph(), graphopt.Graph()
    for graph_ in (graph, alone):
        graph_.add_vertices("VERTEX_SE2", [0, 1], [[0.0, 0, 0], [1, 1, 1]])
        graph_.add_edges("EDGE_SE2", [[0, 1]], [[1.0, 0, 0]])
    found = on_all(graph, None, "gn", 3, device="cpu,cpu,cpu", **options)
    expected = graphopt.optimize(alone, "gn", 3, device="cpu", **options)
    assert found.initial_chi2 == expected.initial_chi2
    np.testing.assert_allclose(graph.vertex_sets[0].estimate, alone.vertex_sets[0].estimate, atol=1e-12)
    assert sorted(rank["edges"] for rank in found.ranks) == [0, 0, 1]


def test_components_that_are_held_stay():
    """`Graph.hold` works over ranks: each vertex type with fewer components travels as its own type."""
    graph, alone = adjustment(), adjustment()
    for graph_ in (graph, alone):
        graph_.hold(graph_.vertex_sets[0].ids[3:6], [0, 1])
    found = on_all(graph, None, "lm", 5, device="cpu,cpu")
    expected = graphopt.optimize(alone, "lm", 5)
    assert found.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-9)


def test_sums_are_in_the_order_of_the_ranks():
    """(1 + 1e16) - 1e16 is 0, and every rank has it."""
    parts = np.array([[1.0], [1e16], [-1e16]])
    found = run_as_threads(3, lambda comm: comm.sum(parts[comm.rank]))
    assert [values.tolist() for values in found] == [[0.0]] * 3


def test_a_thread_that_fails_ends_the_others():
    """Who waits for it is told."""

    def work(comm):
        if comm.rank == 1:
            raise MemoryError
        comm.sum(np.zeros(1))

    with pytest.raises(RankError, match="Rank 1: out of memory"):
        run_as_threads(3, work)


def test_errors_together():
    """One rank's error reaches all; of all ranks, with its class."""

    def one_of_two(comm):
        def fail():
            if comm.rank:
                raise GraphError("No such edge.")

        together(comm, fail)

    with pytest.raises(RankError, match="Rank 1: No such edge"):
        run_as_threads(2, one_of_two)

    def fail():
        raise GraphError("Nothing.")

    with pytest.raises(GraphError, match="Nothing"):
        together(ThreadCommunicator(), fail)


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"device": "cpu,"}, OptionError, "names separated by commas"),
        ({"device": "cpu,nowhere"}, RankError, "nowhere"),
        ({"device": "cpu,cpu", "robust": "graduated"}, OptionError, "one rank"),
        ({"device": "cpu,cpu", "schur": "implicit"}, OptionError, "needs marginalized vertices"),
        ({"device": "cpu,cpu", "time_limit": -1.0}, OptionError, "time_limit"),
        ({"device": "cpu,cpu", "on_interrupt": "return"}, OptionError, "on_interrupt is .return., expected"),
    ],
)
def test_what_cannot_be(options, error, words):
    """With a sentence, and no thread that waits for ever."""
    with pytest.raises((error, DeviceError), match=words):
        on_all(sphere(), None, **options)


@pytest.mark.parametrize("devices", ["cpu", "cpu,cpu"])
def test_measurements_and_models_take_several_devices(shared_data, devices):
    """`graphopt eval` and `graphopt.colmap` optimize over what is named."""
    from graphopt.colmap import bundle_adjustment, read_colmap
    from graphopt.evaluate.solve import measure

    options = {"method": "lm", "max_iterations": 2, "device": devices}
    entry, _ = measure(adjustment(), "auto", options, 1)
    summary = bundle_adjustment(read_colmap(shared_data / "colmap" / "gtsfm_crane_mast_8"), **options)
    assert summary.final_chi2 <= summary.initial_chi2
    assert summary.partition.get("of", 1) == devices.count(",") + 1
    assert entry["chi2"] < entry["initial_chi2"]
