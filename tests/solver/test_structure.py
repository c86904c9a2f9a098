"""Numbering, block pattern and edge groups; H and b of the CPU against the reference."""

import numpy as np
import pytest
from linear_problems import to_dense
from reference import ReferenceSolver

from graphopt.errors import DeviceError, GraphError, OptionError
from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.problem.independent_set import independent_set
from graphopt.problem.pattern import blocks_of_edges
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.create import create_block_solver


def mixed_graph(seed=0, *, marginalized=False, num_poses=9, num_points=6):
    """Poses and points in the plane with odometry, loop closures, observations, priors and kernels."""
    rng = np.random.default_rng(seed)
    graph = Graph()
    pose_ids = rng.permutation(np.arange(0, 3 * num_poses, 3))
    point_ids = rng.permutation(np.arange(1, 3 * num_points, 3))
    graph.add_vertices("VERTEX_SE2", pose_ids, rng.normal(size=(num_poses, 3)))
    graph.add_vertices("VERTEX_XY", point_ids, rng.normal(size=(num_points, 2)), marginalized=marginalized)
    pairs = np.concatenate(
        [np.stack([pose_ids[:-1], pose_ids[1:]], 1), rng.permutation(pose_ids)[:8].reshape(4, 2)]
    )
    root = rng.normal(size=(len(pairs), 3, 3))
    graph.add_edges("EDGE_SE2", pairs, rng.normal(size=(len(pairs), 3)), root @ root.transpose(0, 2, 1))
    seen = np.stack([rng.choice(pose_ids, 4 * num_points), np.repeat(point_ids, 4)], axis=1)
    scales = rng.uniform(0.5, 2.0, (len(seen), 2))
    graph.add_edges(
        "EDGE_SE2_XY",
        seen,
        rng.normal(size=(len(seen), 2)),
        scales[:, :, None] * np.eye(2),
        kernel=rng.integers(0, 2, len(seen)) * 3,
        kernel_width=rng.uniform(0.5, 2.0, len(seen)),
    )
    graph.add_edges("EDGE_PRIOR_SE2", pose_ids[:2, None], rng.normal(size=(2, 3)))
    graph.set_fixed([int(pose_ids[3])])
    return graph


def test_blocks_are_numbered_by_id_kept_first():
    """Free vertices by ascending id; marginalized ones after the others; fixed ones nowhere."""
    graph = mixed_graph(marginalized=True)
    structure = Structure(graph.select())
    poses, points = graph.vertex_sets
    free_poses = np.sort(poses.ids[~poses.fixed])
    np.testing.assert_array_equal(structure.ids, np.concatenate([free_poses, np.sort(points.ids)]))
    assert structure.num_kept == len(free_poses)
    assert structure.dims.tolist() == [3] * len(free_poses) + [2] * len(points)
    assert structure.dim == 3 * len(free_poses) + 2 * len(points)
    assert structure.kept_dim == 3 * len(free_poses)
    (row,) = np.flatnonzero(poses.fixed)
    assert structure.vertex_offsets[0][row] == -1


def test_pattern_holds_exactly_the_blocks_of_edges():
    """Rows ascend, the diagonal ends each column, and each block belongs to an edge of two free vertices."""
    graph = mixed_graph(1)
    structure = Structure(graph.select())
    expected = {(i, i) for i in range(structure.num_blocks)}
    block = dict(zip(structure.ids.tolist(), range(structure.num_blocks), strict=True))
    for edge in graph.edges():
        blocks = sorted(block[vertex_id] for vertex_id in edge.vertex_ids if vertex_id in block)
        expected.update((i, j) for n, i in enumerate(blocks) for j in blocks[n:])
    found = []
    for col in range(structure.num_blocks):
        rows = structure.pattern.row_idx[structure.pattern.col_ptr[col] : structure.pattern.col_ptr[col + 1]]
        assert rows[-1] == col
        assert (np.diff(rows) > 0).all()
        found += [(int(row), col) for row in rows]
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_groups_split_by_kernel_and_know_their_information():
    """Full, diagonal and identity are told apart, per robust kernel."""
    graph = mixed_graph(2)
    groups = Structure(graph.select()).groups
    described = [(group.edge_set.type.tag, group.kernel, group.information) for group in groups]
    assert described == [
        ("EDGE_SE2", 0, "full"),
        ("EDGE_SE2_XY", 0, "diagonal"),
        ("EDGE_SE2_XY", 3, "diagonal"),
        ("EDGE_PRIOR_SE2", 0, "identity"),
    ]
    assert sum(len(group.rows) for group in groups) == graph.num_edges


@pytest.mark.parametrize("marginalized", [False, True])
def test_hessian_gradient_and_chi2_agree_with_the_reference(marginalized):
    """Native H, b, chi2, diagonal and H x equal those of numeric differentiation in numpy."""
    graph = mixed_graph(3, marginalized=marginalized)
    structure = Structure(graph.select())
    reference = ReferenceSolver(graph, structure)
    solver = CpuBlockSolver(graph, structure, SolverOptions())
    chi2 = solver.linearize()
    assert chi2 == pytest.approx(reference.linearize(), rel=1e-12)
    assert chi2 == pytest.approx(graph.chi2(), rel=1e-12)
    hessian = to_dense(structure.pattern, solver.values)
    exact = reference.hessian.toarray()
    scale = np.abs(exact).max()
    np.testing.assert_allclose(hessian, exact, atol=1e-8 * scale)  # central differences
    np.testing.assert_allclose(solver.b, reference.b, atol=1e-8 * np.abs(reference.b).max())
    np.testing.assert_array_equal(solver.diagonal, hessian.diagonal())
    vector = np.random.default_rng(0).normal(size=structure.dim)
    np.testing.assert_allclose(solver.multiply(vector), hessian @ vector, atol=1e-12 * scale)


SYSTEMS = [
    ("auto", "auto"),
    ("cholesky", "off"),
    ("dense", "off"),
    ("pcg", "off"),
    ("cholesky", "explicit"),
    ("dense", "explicit"),
    ("pcg", "explicit"),
    ("pcg", "implicit"),
]


@pytest.mark.parametrize(("linear_solver", "schur"), SYSTEMS)
@pytest.mark.parametrize("uniform", [True, False])
def test_every_linear_system_gives_the_same_step(linear_solver, schur, uniform):
    """(H + D) dx = b by each solver, with and without elimination, against numpy."""
    graph = mixed_graph(4, marginalized=True)
    structure = Structure(graph.select())
    solver = CpuBlockSolver(graph, structure, SolverOptions(linear_solver=linear_solver, schur=schur))
    solver.linearize()
    damping = 0.5 if uniform else np.random.default_rng(1).uniform(0.2, 1.0, structure.dim)
    assert solver.solve(damping)
    matrix = to_dense(structure.pattern, solver.values) + np.diag(np.broadcast_to(damping, structure.dim))
    exact = np.linalg.solve(matrix, solver.b)
    tolerance = 1e-4 if linear_solver == "pcg" else 1e-10
    np.testing.assert_allclose(solver.dx, exact, atol=tolerance * np.abs(exact).max())
    described = solver.describe()
    if linear_solver != "auto":
        assert (described["linear_solver"], described["schur"]) == (linear_solver, schur)


def test_a_system_that_is_not_positive_definite_is_reported():
    """Indefinite information makes `solve` answer False; damping repairs it."""
    graph = Graph()
    graph.add_vertices("VERTEX_XY", [0, 1])
    graph.add_edges("EDGE_POINTXY", [[0, 1]], np.ones((1, 2)))
    solver = CpuBlockSolver(graph, Structure(graph.select()), SolverOptions())
    solver.linearize()
    assert not solver.solve(0.0)
    assert solver.solve(1e-3)


def test_marginalized_neighbours_are_not_eliminated_together():
    """Of points that share an edge an independent set is eliminated; the step is that of the whole system."""
    graph = mixed_graph(5, marginalized=True)
    ids = graph.vertex_set("VERTEX_XY").ids
    pairs = np.stack([ids[:-1], ids[1:]], axis=1)
    graph.add_edges("EDGE_POINTXY", pairs, np.zeros((len(pairs), 2)))
    structure = Structure(graph.select())
    eliminated = set(structure.ids[structure.num_kept :].tolist())
    assert 0 < len(eliminated) < len(ids)
    assert not any({a, b} <= eliminated for a, b in pairs.tolist())
    solver = CpuBlockSolver(graph, structure, SolverOptions(schur="explicit"))
    solver.linearize()
    assert solver.solve(0.1)
    matrix = to_dense(structure.pattern, solver.values) + 0.1 * np.eye(structure.dim)
    np.testing.assert_allclose(solver.dx, np.linalg.solve(matrix, solver.b), atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_independent_sets_are_independent_and_maximal(seed):
    """No pair is complete, and no wanted number could be added."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 60))
    wanted = rng.random(count) < 0.7
    pairs = rng.integers(0, count, (int(rng.integers(0, 120)), 2))
    pairs = pairs[(pairs[:, 0] != pairs[:, 1]) & wanted[pairs].all(axis=1)]
    taken = independent_set(wanted, pairs)
    assert not (taken & ~wanted).any()
    assert not taken[pairs].all(axis=1).any()
    blocked = np.zeros(count, bool)
    blocked[pairs[taken[pairs[:, 1]], 0]] = True
    blocked[pairs[taken[pairs[:, 0]], 1]] = True
    assert (taken | blocked)[wanted].all()


def test_nothing_to_optimize_is_an_error():
    """All vertices fixed, or no edges."""
    graph = mixed_graph(6)
    graph.set_fixed(graph.vertex_ids())
    with pytest.raises(GraphError, match="nothing to optimize"):
        Structure(graph.select())
    with pytest.raises(GraphError, match="nothing to optimize"):
        Structure(Graph().select())


def test_impossible_choices_are_refused():
    """Unknown words, implicit elimination by a factorization, nothing to eliminate, unknown devices."""
    graph = mixed_graph(7)
    structure = Structure(graph.select())
    with pytest.raises(OptionError, match="linear_solver is 'cholmod'"):
        SolverOptions(linear_solver="cholmod")
    with pytest.raises(OptionError, match="needs linear_solver 'pcg'"):
        SolverOptions(linear_solver="dense", schur="implicit")
    with pytest.raises(OptionError, match="marginalized"):
        create_block_solver(graph, structure, SolverOptions(schur="explicit"))
    with pytest.raises(DeviceError, match="no device 'abacus:1' here"):
        create_block_solver(graph, structure, SolverOptions(device="abacus:1"))
    with pytest.raises(DeviceError, match="mixed"):
        create_block_solver(graph, structure, SolverOptions(device="cpu", precision="mixed"))


@pytest.mark.parametrize("num_cameras", [1, 3])
@pytest.mark.parametrize("num_poses", [40, 30_000])
def test_pairs_that_come_again_and_again_are_one_block(num_cameras, num_poses):
    """Observations that share intrinsics, in any order and by several threads, beside sorted unique pairs."""
    rng = np.random.default_rng(num_poses + num_cameras)
    num_points, num_edges = 5_000, 120_000
    rows = np.stack(
        [rng.integers(each, size=num_edges) for each in (num_poses, num_points, num_cameras)], axis=1
    ).astype(np.int32)
    sizes = (6, 3, 2)
    tables, counts = [], (num_poses, num_points, num_cameras)
    starts = np.cumsum([0, *counts])
    dims = np.repeat(sizes, counts).astype(np.int32)
    for begin, count in zip(starts, counts, strict=False):
        tables.append(np.arange(begin, begin + count))
    found = blocks_of_edges(dims, tables, [((0, 1, 2), rows)])
    blocks = rows + starts[:3]
    every = np.arange(len(dims))
    keys = [np.stack([every, every], axis=1)]
    keys += [np.sort(blocks[:, pair], axis=1) for pair in ([0, 1], [0, 2], [1, 2])]
    columns, expected = np.unique(np.concatenate(keys)[:, ::-1], axis=0).T
    assert np.array_equal(found.pattern.row_idx, expected)
    assert np.array_equal(np.diff(found.pattern.col_ptr), np.bincount(columns, minlength=len(dims)))
    at = np.searchsorted(columns * len(dims) + expected, blocks[:, 2] * len(dims) + blocks[:, 0])
    assert np.array_equal(found.offsets[0][:, 2], found.pattern.value_offsets[at])
