"""Cholesky on a device: L S L' = P (H + D) P' for every structure, against dense LAPACK and the CPU's solver.

Residuals are at the level of the arithmetic (float64, float32), a bad pivot is found and its block named,
equal input gives equal bits, and memory that is not there is said before anything is taken.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest
from linear_problems import from_dense, make_pattern, neighbours, scattered, spd_values, to_dense
from vulkan_devices import VARIANTS, shared_device

from graphopt.device import VulkanDevice
from graphopt.device.errors import DeviceMemoryError
from graphopt.errors import DeviceLimitError, OptionError, ShapeError, SolverError
from graphopt.linear import SparseCholesky
from graphopt.vulkan.cholesky import DeviceCholesky, analyse, factor, memory, work
from graphopt.vulkan.cholesky import analysis as analysis_module
from graphopt.vulkan.cholesky import inverse as inverse_module

UNIT = {"double": 2.2e-16, "mixed": 1.2e-7}


def everyone(num: int) -> np.ndarray:
    """All pairs."""
    return np.stack(np.triu_indices(num, 1), axis=1)


def star(leaves: int, centre: int) -> np.ndarray:
    """Every leaf with all of the centre, which is full."""
    pairs = [(leaf, leaves + k) for leaf in range(leaves) for k in range(centre)]
    return np.array(pairs + [(leaves + i, leaves + j) for i in range(centre) for j in range(i)])


def arms(arm: int, shared: int) -> np.ndarray:
    """Two full parts of `arm` blocks, each with all of the last `shared` ones."""
    centre = 2 * arm + np.arange(shared)
    return np.concatenate(
        [np.concatenate([k * arm + np.arange(arm), centre])[everyone(arm + shared)] for k in range(2)]
    )


PATTERNS = {
    "one block": ([3], np.empty((0, 2)), "auto"),
    "nothing but diagonal blocks": ([2, 5, 1, 15], np.empty((0, 2)), "amd"),
    "two chains": ([6] * 60, np.delete(neighbours(60), 29, axis=0), "metis"),
    "arrow": ([3] * 40 + [7], np.stack([np.arange(40), np.full(40, 40)], axis=1), "amd"),
    "grid": ([3] * 324, neighbours(18, 18), "metis"),
    "cube": ([6] * 125, neighbours(5, 5, 5), "amd"),
    "mixed sizes": (list(np.random.default_rng(1).integers(1, 21, 50)), scattered(50, 110), "metis"),
    "full, below one panel": ([5] * 6, everyone(6), "auto"),
    "full, beyond a group of panels": ([7] * 47, everyone(47), "auto"),
    "more children of a small front than are described at once": ([20] * 50 + [5], star(50, 1), "amd"),
    "more children of a large front than are described at once": ([20] * 50 + [15] * 6, star(50, 6), "amd"),
    "two large fronts, side by side": ([7] * 43, arms(20, 3), "natural"),
    "wide": ([9] * 45, scattered(45, 60), "dense"),
    "natural": ([2] * 100, neighbours(10, 10), "natural"),
}


CASES = [(*VARIANTS[0], name) for name in PATTERNS]
CASES += [
    (*variant, name)
    for variant in VARIANTS[1:]
    for name in (
        "two chains", "cube", "full, beyond a group of panels", "two large fronts, side by side"
    )
]  # fmt: skip


@pytest.fixture(params=[VARIANTS[0], VARIANTS[3]], ids="-".join)
def variant(request):
    """Device and precision; no validation message may be left after a test."""
    access, precision = request.param
    device = shared_device(access)
    yield device, precision
    assert device.messages == []


def residual(dense: np.ndarray, x: np.ndarray, b: np.ndarray) -> float:
    """Backward error of a solution."""
    return float(np.abs(b - dense @ x).max() / (np.abs(dense).max() * np.abs(x).max() + np.abs(b).max()))


def damped(pattern, values, damping):
    """H + D."""
    return to_dense(pattern, values) + np.diag(damping)


@pytest.mark.parametrize(("access", "precision", "name"), CASES)
def test_solutions_have_small_residuals(access, precision, name):
    """One and three right-hand sides, with damping, on every structure."""
    device = shared_device(access)
    dims, edges, ordering = PATTERNS[name]
    rng = np.random.default_rng(0)
    pattern = make_pattern(dims, edges)
    values, damping = spd_values(pattern, rng), rng.random(pattern.dim)
    solver = DeviceCholesky(device, pattern, precision, ordering=ordering)
    assert solver.factorize(values, damping) and solver.failed is None
    dense = damped(pattern, values, damping)
    for shape in ((pattern.dim,), (pattern.dim, 3)):
        b = rng.standard_normal(shape)
        x = solver.solve(b)
        assert x.shape == shape
        assert residual(dense, x, b) < 20 * UNIT[precision]
    assert device.messages == []


@pytest.mark.parametrize("name", ["cube", "mixed sizes", "full, beyond a group of panels"])
def test_solves_that_workgroups_share(variant, name, monkeypatch):
    """Fronts too large for one workgroup go block by block, here all that are not small."""
    device, precision = variant
    monkeypatch.setattr(work, "SOLVE_CLASSES", work.SOLVE_CLASSES[:1])
    dims, edges, ordering = PATTERNS[name]
    pattern, rng = make_pattern(dims, edges), np.random.default_rng(0)
    values, b = spd_values(pattern, rng), rng.standard_normal((pattern.dim, 3))
    solver = DeviceCholesky(device, pattern, precision, ordering=ordering)
    assert any(level.forward and level.backward for level in solver.work.levels)
    assert solver.factorize(values)
    assert residual(to_dense(pattern, values), solver.solve(b), b) < 20 * UNIT[precision]


FULL, TWO = "full, beyond a group of panels", "two large fronts, side by side"


@pytest.mark.parametrize(
    ("name", "outer", "at_once"),
    [(FULL, 256, 0), (FULL, 96, 12), (FULL, 64, 0), (FULL, 96, 512), (TWO, 64, 0), (TWO, 96, 512)],
)
def test_columns_are_brought_up_to_date_in_groups_or_at_once(variant, outer, at_once, name, monkeypatch):
    """Before a block of columns, beside the block before, or group by group: the same answer."""
    device, precision = variant
    monkeypatch.setattr(work, "OUTER", outer)
    monkeypatch.setattr(work, "AT_ONCE", at_once)
    dims, edges, ordering = PATTERNS[name]
    pattern, rng = make_pattern(dims, edges), np.random.default_rng(0)
    values, b = spd_values(pattern, rng), rng.standard_normal(pattern.dim)
    solver = DeviceCholesky(device, pattern, precision, ordering=ordering)
    steps = solver.work.levels[0].steps
    assert any(step.beside is not None for step in steps) == (at_once > 0)
    assert any(step.after is not None for step in steps) == (at_once < 512)
    assert solver.factorize(values)
    assert residual(to_dense(pattern, values), solver.solve(b), b) < 20 * UNIT[precision]


@pytest.mark.parametrize("name", ["cube", "full, beyond a group of panels"])
def test_indefinite_systems_by_ldlt(variant, name):
    """LDL' solves systems with pivots of both signs and counts the negative eigenvalues."""
    device, precision = variant
    dims, edges, ordering = PATTERNS[name]
    rng = np.random.default_rng(5)
    pattern = make_pattern(dims, edges)
    dense = to_dense(pattern, spd_values(pattern, rng))
    dense[np.diag_indices_from(dense)] *= np.where(rng.random(pattern.dim) < 0.3, -1.0, 1.0)
    solver = DeviceCholesky(device, pattern, precision, "ldlt", ordering=ordering)
    assert solver.factorize(from_dense(pattern, dense))
    assert solver.num_negative == (np.linalg.eigvalsh(dense) < 0.0).sum() > 0
    b = rng.standard_normal(pattern.dim)
    assert residual(dense, solver.solve(b), b) < 50 * UNIT[precision]


@pytest.mark.parametrize("room", ["all levels", "no level"])
@pytest.mark.parametrize(
    ("method", "variant"),
    [("llt", VARIANTS[0]), ("ldlt", VARIANTS[0]), ("ldlt", VARIANTS[3])],
    indirect=["variant"],
)
@pytest.mark.parametrize("name", ["two chains", "cube", "mixed sizes", "full, below one panel", "wide"])
def test_blocks_of_the_inverse(variant, name, method, room, monkeypatch):
    """All diagonal blocks, those of the structure, and some that L does not have.

    Where levels of the inverse would be too large for the device, columns are solved for: some here.
    """
    device, precision = variant
    is_solved_for = room == "no level"
    if is_solved_for:
        monkeypatch.setattr(inverse_module, "_MOST_ENTRIES", 1)
    dims, edges, ordering = PATTERNS[name]
    rng = np.random.default_rng(7)
    pattern = make_pattern(dims, edges)
    dense = to_dense(pattern, spd_values(pattern, rng))
    if method == "ldlt":
        dense[np.diag_indices_from(dense)] *= np.where(rng.random(pattern.dim) < 0.3, -1.0, 1.0)
    solver = DeviceCholesky(device, pattern, precision, method, ordering=ordering)
    with pytest.raises(SolverError, match="there is no factorisation"):
        solver.marginals(np.zeros((1, 2), int))
    assert solver.factorize(from_dense(pattern, dense))
    every = np.arange(pattern.num_blocks)[:: 1 + pattern.num_blocks // 6 if is_solved_for else 1]
    far = rng.integers(0, pattern.num_blocks, (3 if is_solved_for else 12, 2))
    near = np.asarray(edges, int).reshape(-1, 2)[: 4 if is_solved_for else 20]
    pairs = np.concatenate([np.stack([every, every], axis=1), near, far])
    inverse = np.linalg.inv(dense)
    for (i, j), block in zip(pairs, solver.marginals(pairs), strict=True):
        rows, cols = (slice(pattern.offsets[k], pattern.offsets[k + 1]) for k in (i, j))
        assert np.abs(block - inverse[rows, cols]).max() < 200 * UNIT[precision] * np.abs(inverse).max()


@pytest.mark.parametrize("method", ["llt", "ldlt"])
@pytest.mark.parametrize("name", ["cube", "full, beyond a group of panels"])
def test_inverses_by_groups_of_columns(name, method, monkeypatch):
    """Of fronts of several groups: few blocks and many, after a factorization of other numbers."""
    monkeypatch.setattr(inverse_module, "OUTER", 64)
    dims, edges, ordering = PATTERNS[name]
    pattern = make_pattern(dims, edges)
    values = spd_values(pattern, np.random.default_rng(5))
    solver = DeviceCholesky(shared_device("address"), pattern, "double", method, ordering=ordering)
    assert solver.analysis.num_pivots.max() > 64
    inverse = np.linalg.inv(to_dense(pattern, values))
    every = np.stack([np.arange(pattern.num_blocks)] * 2, axis=1)
    for pairs in (every, np.concatenate([every, edges]), every[-1:], every[:1]):
        for scale in (1e-200, 1.0):
            assert solver.factorize(scale * values)
            found = solver.marginals(pairs)
        for (i, j), block in zip(pairs, found, strict=True):
            rows, cols = (slice(pattern.offsets[k], pattern.offsets[k + 1]) for k in (i, j))
            assert np.abs(block - inverse[rows, cols]).max() < 200 * UNIT["double"] * np.abs(inverse).max()


@pytest.mark.parametrize("name", ["two chains", "full, beyond a group of panels"])
def test_a_bad_pivot_names_its_block(variant, name):
    """An indefinite, a singular and a non-finite block are found; the next good system is solved."""
    device, precision = variant
    dims, edges, ordering = PATTERNS[name]
    pattern = make_pattern(dims, edges)
    good = spd_values(pattern, np.random.default_rng(0))
    solver = DeviceCholesky(device, pattern, precision, ordering=ordering)
    block = pattern.num_blocks // 3
    rows = np.s_[pattern.offsets[block] : pattern.offsets[block + 1]]
    for bad in (-1.0, 0.0, np.nan):
        dense = to_dense(pattern, good)
        dense[rows, :] = dense[:, rows] = 0.0
        dense[rows, rows] = bad * np.eye(pattern.dims[block])
        assert not solver.factorize(from_dense(pattern, dense))
        assert solver.failed == block
        with pytest.raises(SolverError, match="there is no factorisation"):
            solver.solve(np.ones(pattern.dim))
    assert solver.factorize(good)
    b = np.ones(pattern.dim)
    assert residual(to_dense(pattern, good), solver.solve(b), b) < 20 * UNIT[precision]


def test_an_indefinite_coupling_fails(variant):
    """Good diagonal blocks whose coupling is too strong: as on the CPU."""
    device, precision = variant
    pattern = make_pattern([3, 3], [(0, 1)])
    dense = np.kron([[1.0, 2.0], [2.0, 1.0]], np.eye(3))
    values = from_dense(pattern, dense)
    assert not DeviceCholesky(device, pattern, precision).factorize(values)
    assert not SparseCholesky(pattern).factorize(values)


def test_numbers_past_4_gib_are_addressed(monkeypatch):
    """The kernels for large buffers give the same bits as the others."""
    dims, edges, ordering = PATTERNS["cube"]
    pattern = make_pattern(dims, edges)
    values, b = spd_values(pattern, np.random.default_rng(0)), np.ones(pattern.dim)
    found = []
    for large in (1 << 32, 0):
        monkeypatch.setattr(factor, "_LARGE_BYTES", large)
        solver = DeviceCholesky(shared_device("address"), pattern, ordering=ordering)
        assert solver.factorize(values)
        found.append((solver.solve(b), solver.marginals(np.array([(0, 0), (3, 100)]))))
    assert np.array_equal(found[0][0], found[1][0])
    assert all(np.array_equal(*blocks) for blocks in zip(found[0][1], found[1][1], strict=True))


def test_what_kernels_cannot_count_is_cut_or_refused(monkeypatch):
    """Many right-hand sides go in parts, or are refused in one program; too many entries are refused."""
    pattern = make_pattern([3] * 40, neighbours(40))
    values, b = spd_values(pattern, np.random.default_rng(0)), np.eye(120)[:, :7]
    solver = DeviceCholesky(shared_device("address"), pattern)
    assert solver.factorize(values) and solver.max_sides > 100_000
    expected = solver.solve(b)
    monkeypatch.setattr(factor, "_LARGE_BYTES", 8 * 120 * 3 + 1)
    assert solver.max_sides <= 3
    assert np.array_equal(solver.solve(b), expected)
    with pytest.raises(SolverError, match=r"at most [123] at once"):
        solver.record_solve(None, None, None, 7)
    monkeypatch.setattr(analysis_module, "MAX_INDICES", 100)
    with pytest.raises(DeviceLimitError, match="a device counts to 99"):
        analyse(pattern)


def test_metis_is_taken_where_it_pays():
    """AMD alone where METIS takes longer than it can save, as for separate cliques; else the better one."""
    cube = make_pattern([6] * 1000, neighbours(10, 10, 10))
    both = {order: analyse(cube, order).symbolic.expected_seconds for order in ("amd", "metis")}
    assert analyse(cube).symbolic.ordering == min(both, key=both.__getitem__) == "metis"
    cliques = np.concatenate([everyone(6) + 6 * k for k in range(200)])
    assert analyse(make_pattern([3] * 1200, cliques)).symbolic.ordering == "amd"


def test_chains_are_halved():
    """Blocks of few neighbours are eliminated in rounds: the tree of a chain is low."""
    chain = make_pattern([6] * 1000, neighbours(1000))
    assert analyse(chain, "metis").num_levels <= 12 < analyse(chain, "amd").num_levels


def test_equal_input_gives_equal_bits():
    """Two factorisations and solves of the same numbers, bit by bit."""
    dims, edges, ordering = PATTERNS["cube"]
    pattern = make_pattern(dims, edges)
    values = spd_values(pattern, np.random.default_rng(0))
    solver = DeviceCholesky(shared_device("address"), pattern, ordering=ordering)
    found = []
    for _ in range(2):
        assert solver.factorize(values)
        factor = solver.device.download(solver.factor, np.float64, solver.analysis.factor_size)
        found.append((factor, solver.solve(np.ones(pattern.dim))))
    assert all(np.array_equal(first, second) for first, second in zip(*found, strict=True))


def test_auto_takes_one_front_for_full_systems():
    """A full system has no tree; a sparse one has, and its levels connect parents with children."""
    full = analyse(make_pattern([3] * 40, everyone(40)))
    assert full.symbolic.ordering == "dense" and len(full.level) == full.num_levels == 1
    sparse = analyse(make_pattern([3] * 900, neighbours(30, 30)))
    assert sparse.symbolic.ordering in ("amd", "metis") and sparse.num_levels > 1
    child = np.flatnonzero(sparse.symbolic.parent >= 0)
    assert np.array_equal(sparse.level[child] + 1, sparse.level[sparse.symbolic.parent[child]])
    assert sparse.num_pivots.sum() == sparse.dim == 2700


def test_memory_is_predicted(monkeypatch):
    """What is reserved is what was said; a device that is too small is told apart before."""
    device = shared_device("address")
    pattern = make_pattern([6] * 125, neighbours(5, 5, 5))
    gc.collect()  # what earlier tests left goes now
    gc.collect()  # what earlier tests left goes now
    before = device.memory_statistics()["used"]
    solver = DeviceCholesky(device, pattern)
    taken = device.memory_statistics()["used"] - before
    assert solver.memory_bytes == pytest.approx(taken, rel=0.25)
    monkeypatch.setattr(device, "info", {**device.info, "max_allocation": 1 << 16})
    del solver
    solver = DeviceCholesky(device, pattern)  # more than is promised: the driver decides
    monkeypatch.setattr(device, "info", {**device.info, "max_storage_range": 1 << 16})
    monkeypatch.setattr(VulkanDevice, "access", "storage")
    gc.collect()
    gc.collect()
    before = device.memory_statistics()["used"]
    with pytest.raises(DeviceMemoryError, match=r"one buffer may have 0 MiB.*precision='mixed'"):
        DeviceCholesky(device, pattern)
    assert device.memory_statistics()["used"] == before
    parts = memory.predict_memory(solver.analysis, 8)
    assert parts["factor"] == 8 * solver.analysis.factor_size
    assert memory.predict_memory(solver.analysis, 4)["factor"] == parts["factor"] // 2


def test_wrong_input_is_refused():
    """Methods, orderings and shapes."""
    device, pattern = shared_device("address"), make_pattern([3, 3], [(0, 1)])
    with pytest.raises(OptionError, match="expected 'llt' or 'ldlt'"):
        DeviceCholesky(device, pattern, method="lu")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="expected one of auto"):
        DeviceCholesky(device, pattern, ordering="best")
    solver = DeviceCholesky(device, pattern)
    with pytest.raises(ShapeError, match=r"values: expected an array of shape \(27,\)"):
        solver.factorize(np.ones(5))
    assert solver.factorize(spd_values(pattern, np.random.default_rng(0)))
    with pytest.raises(ShapeError, match=r"b: expected shape \(6,\)"):
        solver.solve(np.ones(5))


def test_an_empty_system():
    """No rows: nothing to do."""
    pattern = make_pattern([], np.empty((0, 2)))
    solver = DeviceCholesky(shared_device("address"), pattern)
    assert solver.factorize(np.empty(0)) and solver.solve(np.empty(0)).shape == (0,)
