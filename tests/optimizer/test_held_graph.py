"""A graph that is optimized keeps its vertices and edges until the end; what else is no graph is refused."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
from optimizer_graphs import noisy_ring

import graphopt
from graphopt.errors import GraphError, OptionError

CHANGES = {
    "add a vertex": lambda graph: graph.add_vertex("VERTEX_SE2", 1000, [0, 0, 0]),
    "add a vertex of a new type": lambda graph: graph.add_vertex("VERTEX_XY", 1000, [0, 0]),
    "add an edge": lambda graph: graph.add_edge("EDGE_SE2", (0, 9), [1, 0, 0]),
    "remove a vertex": lambda graph: graph.remove_vertices([3]),
    "remove an edge": lambda graph: graph.remove_edges("EDGE_SE2", [3]),
    "clear": lambda graph: graph.clear(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("method", ["auto", "lm"])
def test_a_callback_cannot_change_what_is_optimized(change, method):
    """It gets an error; so does the caller. Nothing has changed, and the estimates so far are in place."""
    graph = noisy_ring()
    before = graph.num_vertices, graph.num_edges
    seen: list[float] = []

    def callback(iteration: graphopt.Iteration) -> None:
        seen.append(iteration.chi2)
        CHANGES[change](graph)

    with pytest.raises(GraphError, match="while it is optimized"):
        graphopt.optimize(graph, method, callback=callback)
    assert (graph.num_vertices, graph.num_edges) == before
    assert len(seen) == 1 and graph.chi2() == pytest.approx(seen[0], rel=1e-9)
    CHANGES[change](graph)
    assert (graph.num_vertices, graph.num_edges) != before


def test_several_ranks_and_threads_hold_the_graph_too():
    """Devices of one host, and another thread than the one that optimizes."""
    graph = noisy_ring()
    caught: list[Exception] = []

    def track() -> None:
        try:
            graph.add_vertex("VERTEX_SE2", 1000)
        except GraphError as error:
            caught.append(error)

    def callback(iteration: graphopt.Iteration) -> None:
        thread = threading.Thread(target=track)
        thread.start()
        thread.join()

    summary = graphopt.distributed.optimize(graph, None, "gn", 2, device="cpu,cpu", callback=callback)
    assert len(caught) == 2 and summary.is_usable and 1000 not in graph


def test_values_and_copies_may_be_used_meanwhile():
    """Flags, measurements, an optimization within one, a copy that grows, a pickle that grows."""
    graph = noisy_ring()

    def callback(iteration: graphopt.Iteration) -> bool:
        graph.set_fixed([7])
        graphopt.optimize(graph, "gn", 1)
        for other in (graph.copy(), pickle.loads(pickle.dumps(graph))):
            other.add_vertex("VERTEX_SE2", 1000)
        return False

    graphopt.optimize(graph, callback=callback)
    graph.add_vertex("VERTEX_SE2", 1000)


@pytest.mark.parametrize("given", ["sphere.g2o", b"sphere.g2o", None])
def test_a_path_is_no_graph(given):
    """The error says how to read one."""
    with pytest.raises(OptionError, match="expected a graphopt"):
        graphopt.optimize(given)


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_two_threads_cannot_optimize_one_graph(device):
    """The second one is refused, the first one goes on as if alone; afterwards, and with copies, all may."""
    graph, alone = noisy_ring(), noisy_ring()
    refused: list[str] = []

    def another(other: graphopt.Graph) -> None:
        try:
            graphopt.optimize(other, "lm", 2, device=device)
        except GraphError as error:
            refused.append(str(error))

    def callback(iteration: graphopt.Iteration) -> None:
        for other in (graph, graph.copy()):
            thread = threading.Thread(target=another, args=(other,))
            thread.start()
            thread.join()

    found = graphopt.optimize(graph, "lm", 3, device=device, callback=callback)
    expected = graphopt.optimize(alone, "lm", 3, device=device)
    assert len(refused) == 3 and all("being optimized by another thread" in message for message in refused)
    np.testing.assert_allclose(
        [iteration.chi2 for iteration in found.iterations],
        [iteration.chi2 for iteration in expected.iterations],
        rtol=1e-9,
    )
    another(graph)
    assert len(refused) == 3
