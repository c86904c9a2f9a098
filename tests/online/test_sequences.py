"""Random sequences of changes against a new object, and what a refused one leaves."""

import pickle

import numpy as np
import pytest

from graphopt import Graph, optimize
from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphError, GraphOptError, UnknownOptionError
from graphopt.geometry import SE2
from graphopt.online import Online

INFORMATION = np.diag([40.0, 40.0, 90.0])
TWO = [("VERTEX_SE2", [98, 99], np.zeros((2, 3)))]


class Walk:
    """A random walk in the plane that is fed to an `Online`, with the noise of its measurements."""

    def __init__(self, seed: int, **options):
        self.rng = np.random.default_rng(seed)
        self.online = Online(**options)
        self.truth = {0: np.zeros(3)}
        self.handles: dict[int, tuple[int, int]] = {}
        self.online.update([("VERTEX_SE2", [0], np.zeros((1, 3)), True)])

    def between(self, i: int, j: int) -> np.ndarray:
        """A noisy measurement."""
        a, b = self.truth[i], self.truth[j]
        cos, sin = np.cos(a[2]), np.sin(a[2])
        d = b[:2] - a[:2]
        z = np.array([cos * d[0] + sin * d[1], -sin * d[0] + cos * d[1], b[2] - a[2]])
        return z + self.rng.normal(size=3) * [0.1, 0.1, 0.03]

    def step(self, budget: float | None = None) -> None:
        """One more pose, with loops to some of those before."""
        new = max(self.truth) + 1
        last = new - 1 if new - 1 in self.truth else max(self.truth)
        x = self.truth[last]
        angle = x[2] + self.rng.normal() * 0.5
        self.truth[new] = np.array([x[0] + np.cos(angle), x[1] + np.sin(angle), angle])
        ends = [last, *(i for i in self.truth if i not in (new, last) and self.rng.random() < 0.15)]
        pairs = np.array([[i, new] for i in ends])
        z = np.array([self.between(i, new) for i in ends])
        start = self.truth[new] + self.rng.normal(size=3) * 0.05
        report = self.online.update(
            [("VERTEX_SE2", [new], start[None])], [("EDGE_SE2", pairs, z, INFORMATION)], budget=budget
        )
        for handle, (i, j) in zip(report.handles[0].tolist(), pairs.tolist(), strict=True):
            self.handles[handle] = (i, j)

    def loops(self) -> list[int]:
        """Edges that are not between neighbours of the walk."""
        return [handle for handle, (i, j) in self.handles.items() if abs(j - i) > 1]


def batch_of(online: Online) -> tuple[float, dict[int, np.ndarray]]:
    """chi2 and estimates of a new object over the same graph."""
    other = Online(online.graph())
    report = other.batch()
    ids, estimates = other.estimates()["VERTEX_SE2"]
    return report.chi2, dict(zip(ids.tolist(), estimates, strict=True))


def assert_equals_batch(online: Online) -> None:
    chi2, estimates = batch_of(online)
    report = online.batch()
    assert report.converged
    assert report.chi2 == pytest.approx(chi2, rel=1e-9, abs=1e-12)
    for id_, expected in estimates.items():
        found = online.estimate(id_)
        gap = found - expected
        gap[2] = np.arctan2(np.sin(gap[2]), np.cos(gap[2]))
        np.testing.assert_allclose(gap, 0.0, atol=1e-7)


def bits(online: Online) -> list[bytes]:
    ids, estimates = online.estimates()["VERTEX_SE2"]
    edges = [np.ascontiguousarray(a).tobytes() for one in online._session.edges() if len(one[0]) for a in one]
    return [ids.tobytes(), estimates.tobytes(), np.float64(online.chi2).tobytes(), *edges]


def change(walk: Walk) -> None:
    """One random change."""
    rng, online = walk.rng, walk.online
    kind = rng.integers(7)
    loops = walk.loops()
    if kind == 0 and loops:
        handle = int(rng.choice(loops))
        online.update(remove=[handle])
        del walk.handles[handle]
    elif kind == 1 and loops:
        online.update(switch_off=[int(rng.choice(loops))])
    elif kind == 2 and loops:
        online.update(switch_on=[int(rng.choice(loops))])
    elif kind == 3 and walk.handles:
        handle = int(rng.choice(list(walk.handles)))
        online.update(replace=[(handle, {"measurement": walk.between(*walk.handles[handle])})])
    elif kind == 4:
        chosen = int(rng.choice(list(walk.truth)))
        online.update(fix=[chosen])
        walk.step()
        if chosen != 0:
            online.update(free=[chosen])
    elif kind == 5 and loops:
        handle = int(rng.choice(loops))
        online.update(replace=[(handle, {"kernel": "huber", "kernel_width": 1.0})])
    else:
        walk.step()


@pytest.mark.parametrize("seed", range(6))
def test_estimates_after_random_changes_equal_those_of_a_new_object(seed):
    """After any sequence `batch` gives the answer of an object that was built at once."""
    walk = Walk(seed)
    for _ in range(12):
        walk.step()
    for k in range(30):
        change(walk)
        if k % 10 == 9:
            assert_equals_batch(walk.online)


@pytest.mark.parametrize("seed", range(3))
def test_chi2_of_every_update_is_near_batch(seed):
    """Each update ends within 0.1 % of the batch chi2."""
    walk = Walk(seed)
    for _ in range(60):
        walk.step()
        chi2, _ = batch_of(walk.online)
        assert walk.online.chi2 <= 1.001 * chi2 + 1e-8


@pytest.mark.parametrize(
    "refused",
    [
        {"vertices": [("VERTEX_SE2", [99], [[0.0, 0, 0]])]},
        {"vertices": [("VERTEX_SE2", [3], [[0.0, 0, 0]])]},
        {"edges": [("EDGE_SE2", [[0, 77]], [[1.0, 0, 0]])]},
        {"edges": [("EDGE_SE2", [[0, 5]], [[1.0, 0, 0]])], "remove": [10**6]},
        {"fix": [4], "free": [0], "remove_vertices": [1234]},
        {"vertices": TWO, "edges": [("EDGE_SE2", [[98, 99]], [[1.0, 0, 0]])]},
        {"marginalize": [0]},
        {"marginalize": [3, 3]},
        {"replace": [(0, {"measurement": [np.nan, 0, 0]})]},
    ],
)
def test_a_refused_update_leaves_the_same_bits(refused):
    """An update with an unknown id, a free direction or a NaN changes nothing."""
    walk = Walk(1)
    for _ in range(15):
        walk.step()
    before = bits(walk.online)
    with pytest.raises(GraphError):
        walk.online.update(**refused)
    assert bits(walk.online) == before
    walk.step()
    assert_equals_batch(walk.online)


def test_a_free_direction_is_named_by_the_vertices_that_can_move():
    """The error lists the two vertices that only one another hold."""
    walk = Walk(2)
    walk.step()
    with pytest.raises(GraphError, match="Vertices 98, 99 can move"):
        walk.online.update(
            [("VERTEX_SE2", [98, 99], np.zeros((2, 3)))], [("EDGE_SE2", [[98, 99]], [[1.0, 0, 0]])]
        )


@pytest.mark.parametrize("seed", range(3))
def test_restore_returns_to_the_bits_of_the_snapshot(seed):
    """Whatever happened since, and more than once; what follows has the same bits as without."""
    walk, plain = Walk(seed), Walk(seed)
    for _ in range(20):
        walk.step()
        plain.step()
    before = bits(walk.online)
    snapshot = walk.online.snapshot()
    state, handles, truth = walk.rng.bit_generator.state, dict(walk.handles), dict(walk.truth)
    for _ in range(2):
        for _ in range(8):
            change(walk)
        walk.online.restore(snapshot)
        assert bits(walk.online) == before
        walk.rng.bit_generator.state = state
        walk.handles, walk.truth = dict(handles), dict(truth)
    for _ in range(5):
        walk.step()
        plain.step()
    assert bits(walk.online) == bits(plain.online)


def test_a_snapshot_after_the_restored_one_is_gone():
    """Restoring an older state makes later snapshots invalid."""
    walk = Walk(0)
    walk.step()
    first = walk.online.snapshot()
    walk.step()
    second = walk.online.snapshot()
    walk.online.restore(first)
    with pytest.raises(GraphError, match="snapshot is gone"):
        walk.online.restore(second)


def dense_covariance(online: Online) -> tuple[list[int], np.ndarray]:
    """Inverse of H in g2o's tangents by finite differences of the edges' errors."""
    graph = online.graph()
    vertex_set, edge_set = graph.vertex_sets[0], graph.edge_sets[0]
    ids = vertex_set.ids.tolist()
    free = [k for k in range(len(ids)) if not vertex_set.fixed[k]]
    row = {id_: k for k, id_ in enumerate(ids)}
    x = vertex_set.estimate.copy()

    def errors(x: np.ndarray) -> np.ndarray:
        a, b = (x[[row[i] for i in edge_set.vertices[:, s].tolist()]] for s in (0, 1))
        z = edge_set.measurement
        cos, sin = np.cos(a[:, 2]), np.sin(a[:, 2])
        d = b[:, :2] - a[:, :2]
        relative = (
            np.stack([cos * d[:, 0] + sin * d[:, 1], -sin * d[:, 0] + cos * d[:, 1]], axis=1) - z[:, :2]
        )
        cos, sin = np.cos(z[:, 2]), np.sin(z[:, 2])
        t = np.stack(
            [cos * relative[:, 0] + sin * relative[:, 1], -sin * relative[:, 0] + cos * relative[:, 1]],
            axis=1,
        )
        angle = b[:, 2] - a[:, 2] - z[:, 2]
        return np.concatenate([t, np.arctan2(np.sin(angle), np.cos(angle))[:, None]], axis=1).ravel()

    J = np.zeros((len(errors(x)), 3 * len(free)))
    for column, (k, i) in enumerate((k, i) for k in free for i in range(3)):
        step = np.zeros_like(x)
        step[k, i] = 1e-6
        J[:, column] = (errors(x + step) - errors(x - step)) / 2e-6
    information = np.kron(np.eye(len(edge_set)), INFORMATION)
    return [ids[k] for k in free], np.linalg.inv(J.T @ information @ J)


def test_marginals_equal_the_dense_inverse():
    """Single vertices, pairs, cross terms and all at once, in g2o's tangent."""
    walk = Walk(3)
    for _ in range(25):
        walk.step()
    walk.online.batch()
    ids, expected = dense_covariance(walk.online)
    at = {id_: slice(3 * k, 3 * k + 3) for k, id_ in enumerate(ids)}
    newest = ids[-1]
    scale = np.abs(expected).max()
    np.testing.assert_allclose(
        walk.online.marginals(newest), expected[at[newest], at[newest]], atol=1e-7 * scale
    )
    pair = walk.online.marginals([3, newest])
    places = np.r_[at[3], at[newest]]
    np.testing.assert_allclose(pair, expected[np.ix_(places, places)], atol=1e-7 * scale)
    cross = walk.online.marginals(5, others=[9, 2])
    np.testing.assert_allclose(cross, expected[at[5]][:, np.r_[at[9], at[2]]], atol=1e-7 * scale)
    all_ids, blocks = walk.online.marginals()["VERTEX_SE2"]
    for id_, block in zip(all_ids.tolist(), blocks, strict=True):
        np.testing.assert_allclose(block, expected[at[id_], at[id_]], atol=1e-7 * scale)


@pytest.mark.parametrize("lag", [4, 6])
def test_memory_of_a_fixed_lag_does_not_grow(lag):
    """Vertices leave as others come, and the factor stays as large as the window."""
    walk = Walk(4, lag=lag)
    sizes = []
    for _ in range(120):
        walk.step()
        known = {id_ for id_ in walk.truth if id_ in walk.online}
        walk.truth = {id_: walk.truth[id_] for id_ in known}
        sizes.append(len(walk.online))
    assert max(sizes[60:]) <= 1.5 * max(sizes[:60])
    assert max(sizes) < 40
    assert walk.online.memory_bytes < 4e5


def test_marginalized_vertices_leave_the_covariance_of_the_rest():
    """The marginal covariance of those that stay is that of the whole problem."""
    walk = Walk(5)
    for _ in range(20):
        walk.step()
    walk.online.batch()
    kept = [14, 17, 20]
    expected = walk.online.marginals(kept)
    before = {id_: walk.online.estimate(id_) for id_ in kept}
    walk.online.update(marginalize=[2, 3, 4, 5, 6])
    assert 4 not in walk.online
    np.testing.assert_allclose(walk.online.marginals(kept), expected, rtol=1e-6, atol=1e-9)
    walk.online.batch()
    for id_ in kept:
        np.testing.assert_allclose(walk.online.estimate(id_), before[id_], atol=1e-6)


def test_it_begins_with_a_graph_and_gives_one_back():
    """Vertices, edges, kernels and the gauge of batch."""
    graph = Graph()
    rng = np.random.default_rng(0)
    graph.add_vertices("VERTEX_SE2", np.arange(10), rng.normal(size=(10, 3)))
    pairs = np.array([[i, i + 1] for i in range(9)] + [[0, 9]])
    graph.add_edges(
        "EDGE_SE2", pairs, rng.normal(size=(10, 3)) * 0.1, INFORMATION, kernel="huber", kernel_width=2.0
    )
    online = Online(graph)
    online.batch()
    other = graph.copy()
    summary = optimize(other)
    assert online.chi2 <= summary.final_chi2 * (1 + 1e-6)
    back = online.graph()
    assert back.chi2() == pytest.approx(online.chi2, rel=1e-12)


def test_a_pickle_goes_on_like_the_original():
    """Handles, switched off edges, priors and ids are the same, and so is what follows."""
    walk = Walk(6)
    for _ in range(20):
        walk.step()
    off = walk.loops()[-1]
    walk.online.update(switch_off=[off])
    walk.online.update(marginalize=[2, 3])
    walk.online.batch()
    other = pickle.loads(pickle.dumps(walk.online))
    assert len(other) == len(walk.online)
    assert other.chi2 == pytest.approx(walk.online.chi2, rel=1e-12)
    for online in (walk.online, other):
        online.update(switch_on=[off])
        online.batch()
    assert other.chi2 == pytest.approx(walk.online.chi2, rel=1e-10)
    np.testing.assert_allclose(other.estimate([10, 20]), walk.online.estimate([10, 20]), atol=1e-8)


def fed() -> list[bytes]:
    walk = Walk(7)
    for _ in range(25):
        walk.step()
    return bits(walk.online)


def street_grid(size: int, first: int = 0) -> Graph:
    """Poses on a square, each beside its neighbours, with noise; none is fixed."""
    rng, graph = np.random.default_rng(size), Graph()
    number = first + np.arange(size * size).reshape(size, size)
    place = np.stack([*np.divmod(np.arange(size * size), size), np.zeros(size * size)], axis=1)
    pairs = np.concatenate(
        [
            np.stack([a.ravel(), b.ravel()], axis=1)
            for a, b in ((number[:-1], number[1:]), (number[:, :-1], number[:, 1:]))
        ]
    )
    motion = np.diff(place[pairs - first], axis=1)[:, 0] + rng.normal(size=(len(pairs), 3)) * 0.02
    graph.add_vertices("VERTEX_SE2", number.ravel(), place + rng.normal(size=place.shape) * 0.1)
    graph.add_edges("EDGE_SE2", pairs, motion, INFORMATION)
    return graph


def fed_grid() -> list[bytes]:
    """Fronts of an update that several threads share, and more edges than one evaluates."""
    graph = street_grid(36)
    graph.set_fixed([0])
    online = Online(graph)
    found = bits(online)
    for k in range(4):
        pair, motion = [[k, 1290 - 40 * k]], [[35.0 - k, 30.0 - 5 * k, 0.1]]
        online.update(edges=[("EDGE_SE2", pair, motion, INFORMATION)])
        found += bits(online)
    online.batch()
    return found + bits(online)


def refused_grids() -> str:
    """Two parts that can move: which one is named."""
    online, floating = Online(), [street_grid(24, first) for first in (1000, 3000)]
    online.update([("VERTEX_SE2", [0], np.zeros((1, 3)), True)])
    before = bits(online)
    with pytest.raises(GraphError) as caught:
        online.update(
            [("VERTEX_SE2", own.vertex_sets[0].ids, own.vertex_sets[0].estimate) for own in floating],
            [
                ("EDGE_SE2", own.edge_sets[0].vertices, own.edge_sets[0].measurement, INFORMATION)
                for own in floating
            ],
        )
    assert bits(online) == before
    return str(caught.value)


@pytest.mark.parametrize("feed", [fed, fed_grid, refused_grids])
def test_the_same_sequence_gives_the_same_bits_for_any_number_of_threads(feed):
    """Estimates, and what a refusal names."""
    threads = kernels.num_threads()
    found = []
    try:
        for number in (1, 2, 3):
            kernels.set_num_threads(number)
            found.append(feed())
    finally:
        kernels.set_num_threads(threads)
    assert found[0] == found[1] == found[2]


def test_a_budget_ends_an_update_and_later_ones_go_on():
    """With next to no time no step is taken; updates without a budget then reach batch."""
    walk = Walk(8)
    for _ in range(10):
        walk.step()
    z = walk.between(0, 10)
    report = walk.online.update(edges=[("EDGE_SE2", [[0, 10]], [z], INFORMATION)], budget=1e-9)
    assert report.iterations == 0
    assert not report.converged
    walk.online.update()
    chi2, _ = batch_of(walk.online)
    assert walk.online.chi2 <= 1.001 * chi2


def test_updates_without_time_for_a_step_stay_near_batch():
    """No step is taken part of the way, which would strain edges; idle updates then reach batch."""
    walk = Walk(9)
    for k in range(60):
        walk.step(budget=1e-9 if k > 20 else None)
        chi2, _ = batch_of(walk.online)
        assert walk.online.chi2 <= 1.1 * chi2 + 1e-8
    for _ in range(20):
        walk.online.update(budget=1e-9)
    assert walk.online.chi2 <= 1.001 * batch_of(walk.online)[0]


@pytest.mark.parametrize(
    "option", [{"lag": 0}, {"tolerance": 2.0}, {"max_iterations": 0}, {"device": "vulkan"}]
)
def test_options_that_cannot_work_are_refused(option):
    """Each names the value."""
    with pytest.raises(GraphOptError, match=next(iter(option))):
        Online(**option)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 110))
def test_long_random_sequences_equal_new_objects(seed):
    """Ten thousand changes each, refused ones and trials that are taken back among them."""
    walk = Walk(seed)
    for _ in range(10):
        walk.step()
    for k in range(10_000):
        if walk.rng.random() < 0.05:
            before = bits(walk.online)
            with pytest.raises(GraphError):
                walk.online.update(TWO, [("EDGE_SE2", [[98_000_000, 99]], [[1.0, 0, 0]])])
            assert bits(walk.online) == before
        elif walk.rng.random() < 0.05:
            before, snapshot = bits(walk.online), walk.online.snapshot()
            i, j = walk.rng.choice(list(walk.truth), 2, replace=False).tolist()
            walk.online.update(edges=[("EDGE_SE2", [[i, j]], [walk.rng.normal(size=3)])])
            walk.online.restore(snapshot)
            assert bits(walk.online) == before
        else:
            change(walk)
        if len(walk.truth) > 60:
            walk = Walk(seed + k)
            walk.step()
        if k % 100 == 99:
            assert_equals_batch(walk.online)


def lag_memory(updates: int) -> list[int]:
    """The most bytes that a window of 5 had in each tenth of the updates."""
    online, rng = Online(lag=5), np.random.default_rng(0)
    online.update([("VERTEX_SE2", [0], np.zeros((1, 3)))], [("EDGE_PRIOR_SE2", [[0]], np.zeros((1, 3)))])
    found = [0] * 10
    for k in range(1, updates + 1):
        z = np.array([[1.0, 0.0, 0.0]]) + rng.normal(size=(1, 3)) * 0.01
        start = online.estimate(k - 1) + np.array([1.0, 0.0, 0.0])
        edges = [("EDGE_SE2", [[k - 1, k]], z, INFORMATION)]
        if k % 100 == 0:  # odometry alone would lose heading and place
            edges.append(("EDGE_PRIOR_SE2", [[k]], [[float(k), 0.0, 0.0]]))
        online.update([("VERTEX_SE2", [k], start[None])], edges)
        tenth = (k - 1) * 10 // updates
        found[tenth] = max(found[tenth], online.memory_bytes)
        assert len(online) <= 8
    return found


@pytest.mark.parametrize("updates", [2000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_memory_of_a_long_drive_is_that_of_its_beginning(updates):
    """A window of a few poses, for as long as one likes."""
    found = lag_memory(updates)
    assert found[-1] <= 1.02 * found[0]


def test_a_long_drive_without_absolute_measurements_keeps_its_heading():
    """Where its place is lost to rounding the window goes on; heading has the variance that it should."""
    online, step, heading = Online(lag=3), 1000.0, 90.0
    online.update([("VERTEX_SE2", [0], np.zeros((1, 3)), True)])
    for k in range(1, 701):
        edge = ("EDGE_SE2", [[k - 1, k]], [[step, 0.0, 0.0]], np.diag([40.0, 40.0, heading]))
        online.update([("VERTEX_SE2", [k], [[step * k, 0.0, 0.0]])], [edge])
    np.testing.assert_allclose(online.estimate(700), [700 * step, 0.0, 0.0], rtol=1e-9, atol=1e-6)
    assert online.marginals(700)[2, 2] == pytest.approx(700 / heading, rel=1e-3)
    assert online.marginals(700)[0, 0] == pytest.approx(700 / 40.0, rel=1e-3)


def test_a_chain_that_rounding_hides_is_not_refused():
    """Edges with information on all components determine it; without its fixed vertex nothing does."""
    online, step = Online(), 1000.0
    online.update([("VERTEX_SE2", [0], np.zeros((1, 3)), True)])
    for k in range(1, 1001):
        edge = ("EDGE_SE2", [[k - 1, k]], [[step, 0.0, 0.0]], np.diag([40.0, 40.0, 90.0]))
        online.update([("VERTEX_SE2", [k], [[step * k, 0.0, 0.0]])], [edge])
    np.testing.assert_allclose(online.estimate(1000), [1000 * step, 0.0, 0.0], rtol=1e-12, atol=1e-9)
    with pytest.raises(GraphError, match="rounding hides"):
        online.marginals(1000)
    with pytest.raises(GraphError, match="can move"):
        online.update(free=[0])


@pytest.mark.nightly
def test_a_chain_may_grow_long_after_rounding_hides_its_information():
    """Pose by pose: at pose 118,749 pivots of rounding made that of the heading negative."""
    online, sigma = Online(), np.array([0.05, 0.05, 0.01])
    rng, information = np.random.default_rng(0), np.diag(sigma**-2.0)
    online.update([("VERTEX_SE2", [0], np.zeros((1, 3)), True)])
    for k in range(1, 130_001):
        motion = np.array([1.0, 0.0, 0.0]) + sigma * rng.normal(size=3)
        start = np.asarray((SE2(online.estimate(k - 1)) * SE2(motion)).storage)[None]
        online.update([("VERTEX_SE2", [k], start)], [("EDGE_SE2", [[k - 1, k]], motion[None], information)])
    assert online.chi2 < 1e-9


@pytest.mark.parametrize("poses", [20_000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
def test_a_long_chain_needs_no_recursion(poses):
    """All poses of a chain at once, in any order of elimination."""
    z = np.tile([1.0, 0.0, 0.0], (poses - 1, 1))
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", np.arange(poses), np.zeros((poses, 3)))
    pairs = np.stack([np.arange(poses - 1), np.arange(1, poses)], axis=1)
    graph.add_edges("EDGE_SE2", pairs, z, INFORMATION)
    graph.set_fixed([0])
    online = Online(graph)
    online.batch()
    np.testing.assert_allclose(online.estimate(poses - 1), [poses - 1.0, 0.0, 0.0], rtol=1e-6, atol=1e-6)


def test_an_unknown_change_is_answered_with_the_nearest_name():
    with pytest.raises(UnknownOptionError, match=r"has no option 'marginalise'\. Did you mean 'marginalize'"):
        Online().update(marginalise=[0])  # type: ignore[call-arg]
