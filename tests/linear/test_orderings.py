"""Nested dissection on all cores orders any graph, well, and the same for every number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from as_scipy import symmetric_matrix
from linear_problems import make_pattern, neighbours, scattered

from graphopt.cpu_kernels import kernels
from graphopt.errors import ShapeError, Stopped
from graphopt.linear import BlockPattern, SparseCholesky


def two_parts(num: int) -> np.ndarray:
    """Two lattices that nothing joins."""
    half = neighbours(num, num)
    return np.concatenate([half, half + num * num])


def star(num: int) -> np.ndarray:
    """One block that touches all."""
    return np.stack([np.zeros(num - 1, np.int64), np.arange(1, num)], axis=1)


def stars(num: int, each: int) -> np.ndarray:
    """A chain whose blocks have `each` ends of their own."""
    hubs = np.arange(num)
    ends = num + np.arange(num * each)
    chain = np.stack([hubs[:-1], hubs[1:]], axis=1)
    return np.concatenate([chain, np.stack([np.repeat(hubs, each), ends], axis=1)])


GRAPHS = {
    "grid": (2500, neighbours(50, 50)),
    "cube": (1728, neighbours(12, 12, 12)),
    "chain": (3000, neighbours(3000)),
    "ring of stars": (3000, stars(100, 29)),
    "two parts": (1250, two_parts(25)),
    "star": (900, star(900)),
    "grid and a hub": (
        1601,
        np.concatenate([neighbours(40, 40), np.stack([np.full(1600, 1600), np.arange(1600)], 1)]),
    ),
    "scattered": (2000, scattered(2000, 4000)),
    "nearly empty": (1500, scattered(1500, 60)),
    "all with all": (200, np.argwhere(np.tri(200, k=-1) > 0)),
    "two": (2, np.array([[0, 1]])),
}


def symmetric_values(pattern: BlockPattern, random: np.random.Generator) -> np.ndarray:
    """Random blocks; those of the diagonal are symmetric."""
    values = random.uniform(-1.0, 1.0, pattern.values_size)
    for block, dim in enumerate(pattern.dims):
        start = pattern.value_offsets[pattern.col_ptr[block + 1] - 1]
        own = values[start : start + dim * dim].reshape(dim, dim)
        own += own.T.copy()
    return values


@pytest.mark.parametrize("name", GRAPHS)
def test_the_answer_is_that_of_scipy(name: str) -> None:
    """Blocks of 1 to 4 rows; every block is eliminated once."""
    splu = pytest.importorskip("scipy.sparse.linalg").splu
    num, edges = GRAPHS[name]
    random = np.random.default_rng(len(name))
    pattern = make_pattern(random.integers(1, 5, num), edges)
    values = symmetric_values(pattern, random)
    matrix = symmetric_matrix(pattern, values)
    damping = np.asarray(abs(matrix).sum(axis=1)).ravel() + 2.0
    solver = SparseCholesky(pattern, "dissection")
    assert np.array_equal(np.sort(solver.permutation), np.arange(num))
    assert solver.factorize(values, damping)
    b = random.normal(size=pattern.dim)
    damped = matrix.copy()
    damped.setdiag(matrix.diagonal() + damping)
    np.testing.assert_allclose(solver.solve(b), splu(damped.tocsc()).solve(b), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_order_of_another_solver_serves(name: str) -> None:
    """Of the same graph with other sizes of blocks: as much fill, and the answer of an order of its own."""
    num, edges = GRAPHS[name]
    random = np.random.default_rng(len(name))
    wide = make_pattern(np.full(num, 3), edges)
    other = SparseCholesky(wide)
    assert SparseCholesky(wide, other).num_nonzeros == other.num_nonzeros
    pattern = make_pattern(np.ones(num, np.int64), edges)
    values = symmetric_values(pattern, random)
    damping = np.asarray(abs(symmetric_matrix(pattern, values)).sum(axis=1)).ravel() + 2.0
    solver, own = SparseCholesky(pattern, other), SparseCholesky(pattern)
    assert np.array_equal(np.sort(solver.permutation), np.arange(num)) and solver.ordering == other.ordering
    assert solver.factorize(values, damping) and own.factorize(values, damping)
    b = random.normal(size=pattern.dim)
    np.testing.assert_allclose(solver.solve(b), own.solve(b), rtol=1e-9, atol=1e-12)
    smaller = make_pattern(np.ones(num + 1, np.int64), edges)
    with pytest.raises(ShapeError, match=f"has {num + 1} blocks, the other factor has {num}"):
        SparseCholesky(smaller, other)


def analysis(pattern: BlockPattern, ordering: str) -> list[np.ndarray]:
    """Everything that the analysis finds."""
    found = kernels.DeviceSymbolic(pattern, ordering)
    names = "permutation first_pivot num_pivots num_below parent children rows parent_row scalar_source"
    return [np.array(getattr(found, name)) for name in names.split()]


@pytest.mark.parametrize("ordering", ["amd", "dissection"])
def test_the_analysis_does_not_depend_on_threads(ordering: str) -> None:
    """A graph of several pieces and ranges of subtrees, bit by bit."""
    pattern = make_pattern(np.full(90_000, 3), neighbours(300, 300))
    found = []
    for num in (1, 2, 5):
        kernels.set_num_threads(num)
        found.append(analysis(pattern, ordering))
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize(("sides", "taken"), [((100, 20), "metis"), ((60, 60), "amd")])
def test_an_order_that_is_made_ahead_is_the_same(sides: tuple[int, ...], taken: str) -> None:
    """For a device METIS works beside minimum degree where there are threads; it is taken, or in vain."""
    pattern = make_pattern(np.full(np.prod(sides), 3), neighbours(*sides))
    kernels.set_num_threads(1)
    expected = analysis(pattern, "auto")
    assert kernels.DeviceSymbolic(pattern, "auto").ordering == taken
    kernels.set_num_threads(2)
    for ours, theirs in zip(analysis(pattern, "auto"), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_dissection_can_be_stopped() -> None:
    """It says so, and the next one is whole."""
    pattern = make_pattern(np.full(40_000, 3), neighbours(200, 200))
    watch = kernels.Watch(lambda: True, 0.0)
    watch.begin()
    try:
        with pytest.raises(Stopped):
            SparseCholesky(pattern, "dissection")
    finally:
        watch.end()
    assert SparseCholesky(pattern, "dissection").num_supernodes > 1


@pytest.mark.parametrize(("sides", "most"), [((200, 200), 1.25), ((14, 14, 14), 1.25), ((2000, 6), 1.4)])
def test_separators_are_small(sides: tuple[int, ...], most: float) -> None:
    """Operations of a factorisation beside METIS'."""
    pattern = make_pattern(np.full(np.prod(sides), 3), neighbours(*sides))
    ours, theirs = (SparseCholesky(pattern, ordering).flops for ordering in ("dissection", "metis"))
    assert ours <= most * theirs


def test_auto_takes_the_better_one_for_expensive_factors() -> None:
    """On a cube both kinds of dissection are tried; on a large grid ours alone."""
    cube = make_pattern(np.full(8000, 6), neighbours(20, 20, 20))
    flops = {
        ordering: SparseCholesky(cube, ordering).flops for ordering in ("amd", "metis", "dissection", "auto")
    }
    assert flops["auto"] == min(flops.values())
    assert SparseCholesky(make_pattern(np.full(40_000, 3), neighbours(200, 200))).ordering == "dissection"


@pytest.mark.parametrize("ordering", ["amd", "metis", "auto"])
def test_a_watched_ordering_is_the_same(ordering: str) -> None:
    """Of many blocks: on a thread of its own, so that it could be left."""
    edges = neighbours(150, 140)
    pattern = make_pattern(np.ones(150 * 140, np.int32), edges)
    expected = analysis(pattern, ordering)
    watch = kernels.Watch(lambda: False, 0.0)
    watch.begin()
    try:
        found = analysis(pattern, ordering)
    finally:
        watch.end()
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_minimum_degree_twice_saves_dissection() -> None:
    """Ties mislead it on a helix; after blocks of few neighbours it is nearly as good as METIS."""
    steps = np.arange(2499)
    turns = steps[:-49]
    edges = np.concatenate([np.stack([steps, steps + 1], 1), np.stack([turns, turns + 50], 1)])
    pattern = make_pattern(np.full(2500, 6), edges)
    chosen, once, metis = (SparseCholesky(pattern, name) for name in ("auto", "amd", "metis"))
    assert chosen.ordering == "amd"
    assert chosen.flops < 0.8 * once.flops
    assert chosen.flops < 1.2 * metis.flops
