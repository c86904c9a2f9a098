"""A graph that is optimized again over ranks is not scattered again, and gives the same."""

import gc
import importlib
import weakref

import numpy as np
import pytest
from rank_programs import PROBLEMS, adjustment, answer, estimates, free_adjustment, on_all, why_not
from vulkan_devices import vulkan_runtime

import graphopt
from graphopt.distributed import session
from graphopt.distributed.communicator import RankError
from graphopt.solver.reuse import forget

optimize = importlib.import_module("graphopt.distributed.call")

CASES = [
    ("adjustment", {"device": "cpu,cpu"}),
    ("adjustment", {"device": "cpu,cpu,cpu", "schur": "implicit"}),
    ("adjustment", {"device": "cpu,cpu", "linear_solver": "pcg"}),
    ("sphere", {"device": "cpu,cpu", "method": "gn"}),
    ("triangle", {"device": "cpu,cpu,cpu,cpu", "method": "gn"}),
    ("mixed", {"device": "vulkan:0,vulkan:0", "schur": "implicit"}),
    ("adjustment", {"device": "vulkan:0,cpu", "schur": "implicit"}),
    ("adjustment", {"device": "vulkan:0,vulkan:0", "schur": "implicit", "precision": "mixed"}),
]


@pytest.fixture
def made_solvers(monkeypatch):
    """How many block solvers were made, one per rank."""
    made = []
    plain = optimize.make_solver
    monkeypatch.setattr(optimize, "make_solver", lambda *given: made.append(1) or plain(*given))
    return made


def moved(graph):
    """Other estimates of what is free."""
    rng = np.random.default_rng(1)
    for vertex_set in graph.vertex_sets:
        free = ~vertex_set.fixed
        noise = 1e-3 * rng.standard_normal(vertex_set.estimate[free].shape)
        vertex_set.estimate[free] += noise
    return graph


def chi2_of(summary):
    """After each iteration."""
    return [iteration.chi2 for iteration in summary.iterations]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_second_call_has_the_bits_of_a_first_one(name, options, made_solvers):
    """With other estimates; nothing is scattered or prepared."""
    options = {"method": "lm", "max_iterations": 4, **options}
    if options["device"].startswith("vulkan"):
        vulkan_runtime()
    graph = PROBLEMS[name]()
    start = [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
    on_all(graph, None, **options)
    ranks = options["device"].count(",") + 1
    assert len(made_solvers) == ranks
    for vertex_set, values in zip(graph.vertex_sets, start, strict=True):
        vertex_set.estimate[...] = values
    again = on_all(moved(graph), None, **options)
    assert len(made_solvers) == ranks
    other = moved(PROBLEMS[name]())
    expected = on_all(other, None, **options)
    assert chi2_of(again) == chi2_of(expected)
    assert estimates(graph) == estimates(other)
    assert (again.vertices, again.edges, again.fixed_by_gauge) == (
        expected.vertices,
        expected.edges,
        expected.fixed_by_gauge,
    )


def measured(graph):
    """Other measurements."""
    graph.edge_sets[0].measurement[...] += 0.1


def widened(graph):
    """Other widths of the robust kernels."""
    graph.edge_sets[0].kernel_width[...] = 1.0


def weighed(graph):
    """Other information matrices."""
    graph.edge_sets[0].information[...] *= 2.0


def held(graph):
    """One more fixed vertex."""
    graph.vertex_sets[0].fixed[-1] = True


def dropped(graph):
    """Edges at another level."""
    graph.edge_sets[0].level[:20] = 1


def without_kernel(graph):
    """No robust kernels."""
    graph.set_robust_kernel(None)


@pytest.mark.parametrize("change", [measured, widened, weighed, held, dropped, without_kernel])
def test_what_has_changed_is_seen(change, made_solvers):
    """Measurements go to the ranks, for the rest they are scattered anew."""
    graph, other = free_adjustment(), free_adjustment()
    on_all(graph, None, "lm", 2, device="cpu,cpu")
    for mine, theirs in zip(graph.vertex_sets, other.vertex_sets, strict=True):
        theirs.estimate[...] = mine.estimate
    for changed in (graph, other):
        change(changed)
    before = len(made_solvers)
    found = on_all(graph, None, "lm", 3, device="cpu,cpu")
    assert len(made_solvers) - before == (0 if change is measured else 2)
    assert chi2_of(found) == chi2_of(on_all(other, None, "lm", 3, device="cpu,cpu"))


def test_other_options_and_ranks_are_others(made_solvers):
    """What was kept for three ranks serves no two."""
    graph = adjustment()
    for device, options in [("cpu,cpu,cpu", {}), ("cpu,cpu", {}), ("cpu,cpu", {"schur": "implicit"})]:
        on_all(graph, None, "lm", 2, device=device, **options)
    assert len(made_solvers) == 3 + 2 + 2
    on_all(graph, None, "lm", 2, device="cpu,cpu", schur="implicit")
    assert len(made_solvers) == 7


def test_a_call_that_fails_leaves_nothing(made_solvers):
    """And the next one starts anew."""
    graph = adjustment()
    on_all(graph, None, "lm", 1, device="cpu,cpu")

    def fail(done):
        raise ValueError("mine")

    with pytest.raises((RankError, ValueError), match="mine"):
        on_all(graph, None, "lm", 2, device="cpu,cpu", callback=fail)
    assert graph not in session.known_graphs
    on_all(graph, None, "lm", 2, device="cpu,cpu")
    assert len(made_solvers) == 4
    with pytest.raises(graphopt.GraphOptError):
        on_all(graph, None, "newton", device="cpu,cpu")
    assert on_all(graph, None, "lm", 2, device="cpu,cpu").iterations


@pytest.mark.parametrize("how", ["deleted", "forgotten"])
def test_what_is_kept_goes_with_the_graph(how):
    """Shares and block solvers of all ranks."""
    graph = adjustment()
    on_all(graph, None, "lm", 1, device="cpu,cpu")
    number = session.known_graphs[graph].number
    kept = [weakref.ref(own.share) for own in session.own_parts[number].values()]
    assert len(kept) == 2
    if how == "deleted":
        del graph
    else:
        forget(graph)
    gc.collect()
    assert number not in session.own_parts
    assert [reference() for reference in kept] == [None, None]


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_ranks_of_mpi_keep_theirs():
    """The second of two calls makes no block solver, and takes the same steps."""
    for made, first, second in answer(3, "again"):
        assert made == 1
        assert first == second
