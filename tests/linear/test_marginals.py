"""Covariances of all vertices against the dense inverse, on CPU and device, and singular graphs.

A singular direction is found, its vertices are named, and holding, damping and the pseudo-inverse give what
the dense formulas give.
"""

from __future__ import annotations

import numpy as np
import pytest
from linear_problems import from_dense, make_pattern, spd_values, to_dense

import graphopt
from graphopt.cpu_kernels import kernels
from graphopt.errors import DeviceError, OptionError, SolverError
from graphopt.evaluate import datasets
from graphopt.linear import SparseCholesky
from graphopt.linear.null_space import (
    GeneralizedInverse,
    _least_eigenvalue,
    _reduced,
    _scales,
    find_null_space,
)
from graphopt.solver.marginals import _linearized

GRAPHS = {
    "sphere": lambda: datasets.sphere(6, 6),
    "manhattan": lambda: datasets.manhattan(60),
    "bundle": lambda: datasets.ba(5, 40),
}


def fixed(graph):
    """The graph with as many vertices fixed as make it regular."""
    first = graph.vertex_sets[0]
    first.fixed[:2] = True
    return graph


def dense_of(graph):
    """H of a graph, and its structure and pattern."""
    _, structure, values = _linearized(graph, 0)
    pattern = structure.pattern
    return to_dense(pattern, values), structure, pattern


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
@pytest.mark.parametrize("name", GRAPHS)
def test_all_covariances_in_one_call(name, device):
    """Every optimized vertex, poses and landmarks."""
    graph = fixed(GRAPHS[name]())
    dense, structure, pattern = dense_of(graph)
    inverse = np.linalg.inv(dense)
    found = graphopt.compute_covariances(graph, device=device)
    assert set(found) == set(structure.ids.tolist())
    for k, id_ in enumerate(structure.ids.tolist()):
        rows = slice(pattern.offsets[k], pattern.offsets[k + 1])
        expected = inverse[rows, rows]
        assert np.abs(found[id_] - expected).max() < 1e-7 * np.abs(expected).max()
    pair = int(structure.ids[0]), int(structure.ids[-1])
    block = graphopt.compute_marginals(graph, [pair], device=device)[pair]
    expected = inverse[: pattern.dims[0], pattern.offsets[-2] :]
    assert np.abs(block - expected).max() < 1e-7 * np.abs(inverse).max()


@pytest.mark.parametrize("singular", ["error", "damp"])
@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_covariances_of_poses_come_from_the_schur_complement(device, singular):
    """Of poses of a bundle alone, and of a pair: blocks of the dense inverse of all of H."""
    graph = fixed(GRAPHS["bundle"]())
    dense, structure, pattern = dense_of(graph)
    assert structure.num_kept < structure.num_blocks
    if singular == "damp":
        dense = dense + 1e-8 * np.diag(np.diag(dense))
    inverse = np.linalg.inv(dense)
    ids = structure.ids[: structure.num_kept].tolist()
    pairs = [*ids, (ids[0], ids[-1])]
    found = graphopt.compute_marginals(graph, pairs, singular=singular, device=device)
    for (i, j), block in found.items():
        rows, cols = (slice(pattern.offsets[k], pattern.offsets[k + 1]) for k in (ids.index(i), ids.index(j)))
        assert np.abs(block - inverse[rows, cols]).max() < 1e-7 * np.abs(inverse[rows, rows]).max()


@pytest.mark.parametrize(("name", "directions"), [("sphere", 6), ("manhattan", 3)])
def test_a_free_pose_graph_moves_as_a_whole(name, directions):
    """As many directions as a pose has, and every vertex in them; they change no residual."""
    graph = GRAPHS[name]()
    graph.vertex_sets[0].fixed[:] = False
    parts, text = graphopt.find_singular_directions(graph)
    dense, structure, pattern = dense_of(graph)
    assert set(parts) == set(structure.ids.tolist())
    assert text.startswith(f"{directions} directions move vertex")
    basis = np.concatenate([parts[id_] for id_ in structure.ids.tolist()], axis=1)
    assert basis.shape == (directions, pattern.dim)
    assert basis @ basis.T == pytest.approx(np.eye(directions), abs=1e-9)
    assert np.abs(dense @ basis.T).max() < 1e-9 * np.abs(dense).max()
    with pytest.raises(SolverError, match=rf"{directions} directions move vertex .* and \d+ more"):
        graphopt.compute_covariances(graph)


def test_only_the_vertices_that_move_are_named():
    """Of two parts one is fixed: the other moves."""
    graph = datasets.manhattan(30, closures=0.0)
    graph.vertex_sets[0].fixed[0] = True
    edges = graph.edge_sets[0]
    edges.level[19] = 1  # cut between vertices 19 and 20
    parts, text = graphopt.find_singular_directions(graph)
    assert set(parts) == set(range(20, 30)) and text.startswith("3 directions")
    regular, text = graphopt.find_singular_directions(fixed(GRAPHS["manhattan"]()))
    assert regular == {} and text.startswith("H is regular")


@pytest.mark.parametrize("name", ["sphere", "manhattan"])
def test_what_to_do_about_singular_directions(name):
    """Pseudo-inverse, holding and damping against dense formulas."""
    graph = GRAPHS[name]()
    graph.vertex_sets[0].fixed[:] = False
    dense, structure, pattern = dense_of(graph)
    values, vectors = np.linalg.eigh(dense)
    regular = values > 1e-9 * values.max()
    inverse = (vectors[:, regular] / values[regular]) @ vectors[:, regular].T
    for choice in ("pseudo-inverse", "hold", "damp"):
        found = graphopt.compute_covariances(graph, singular=choice)
        expected = inverse
        if choice == "hold":
            held = find_null_space(pattern, _linearized(graph, 0)[-1]).scalars_to_hold()
            free = np.setdiff1d(np.arange(pattern.dim), held)
            expected = np.zeros_like(dense)
            expected[np.ix_(free, free)] = np.linalg.inv(dense[np.ix_(free, free)])
        if choice == "damp":
            expected = np.linalg.inv(dense + 1e-8 * np.diag(np.diag(dense)))
        for k, id_ in enumerate(structure.ids.tolist()):
            rows = slice(pattern.offsets[k], pattern.offsets[k + 1])
            assert np.abs(found[id_] - expected[rows, rows]).max() < 1e-5 * np.abs(expected).max(), choice


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_cameras_of_a_free_bundle(device):
    """With points eliminated the same directions are found and held; those of all vertices take all of H."""
    graph = graphopt.datasets.ba(cameras=8, points=300)
    for vertex_set in graph.vertex_sets:
        vertex_set.fixed[:] = False
    _, structure, values = _linearized(graph, 0)
    whole, reduced = (find_null_space(structure.pattern, values, kept) for kept in (None, structure.num_kept))
    assert whole.num_directions == reduced.num_directions == 7
    np.testing.assert_allclose(np.linalg.svd(whole.scaled.T @ reduced.scaled, compute_uv=False), 1.0, 1e-9)
    np.testing.assert_array_equal(whole.scalars_to_hold(), reduced.scalars_to_hold())
    cameras = structure.ids[: structure.num_kept].tolist()
    expected = graphopt.compute_covariances(graph, singular="hold")
    found = graphopt.compute_covariances(graph, cameras, singular="hold", device=device)
    for id_ in cameras:
        assert np.abs(found[id_] - expected[id_]).max() < 1e-7 * np.abs(expected[id_]).max()


def test_points_far_away_do_not_spoil_what_is_held():
    """Covariances are those of the graph that holds the same scalars itself."""
    graph = GRAPHS["bundle"]()
    points = next(vertex_set for vertex_set in graph.vertex_sets if vertex_set.type.role == "point")
    points.estimate[:3] *= 1e4
    _, structure, pattern = dense_of(graph)
    held = find_null_space(pattern, _linearized(graph, 0)[-1]).scalars_to_hold()
    found = graphopt.compute_covariances(graph, singular="hold")
    blocks = np.searchsorted(pattern.offsets, held, side="right") - 1
    for block, component in zip(blocks, held - pattern.offsets[blocks], strict=True):
        id_ = int(structure.ids[block])
        assert not found[id_][component].any() or np.abs(found[id_][component]).max() < 1e-9
        graph.hold([id_], [int(component)])
        found[id_][component] = np.nan
    expected = graphopt.compute_covariances(graph)
    for id_, covariance in expected.items():
        moving = ~np.isnan(found[id_]).all(axis=1)
        block = found[id_][np.ix_(moving, moving)]
        assert np.abs(block - covariance).max() < 1e-5 * np.abs(covariance).max()


def test_what_optimize_held_is_named():
    """The automatic gauge is of one call: without it the error says how to hold the same vertex."""
    graph = GRAPHS["sphere"]()
    graph.vertex_sets[0].fixed[:] = False
    (held,) = graphopt.optimize(graph).fixed_by_gauge
    with pytest.raises(SolverError, match=rf"optimize\(\) holds vertex {held} .*set_fixed\(\[{held}\]\)"):
        graphopt.compute_covariances(graph)
    graph.set_fixed([held])
    assert held not in graphopt.compute_covariances(graph)


def test_generalized_inverse_of_a_rank_deficient_matrix():
    """A random matrix with two directions taken out; an indefinite one is refused."""
    rng = np.random.default_rng(0)
    pattern = make_pattern([3] * 6, [(i, j) for i in range(6) for j in range(i)])
    dense = to_dense(pattern, spd_values(pattern, rng))
    basis = np.linalg.qr(rng.standard_normal((18, 2)))[0]
    project = np.eye(18) - basis @ basis.T
    values = from_dense(pattern, project @ dense @ project)
    space = find_null_space(pattern, values)
    assert space.num_directions == find_null_space(pattern, values, 0).num_directions == 2
    assert sorted(space.moved_blocks()) == [*range(6)]
    assert (np.diff(space.movement()[space.moved_blocks()]) <= 0.0).all()
    assert np.abs(space.basis @ space.basis.T - basis @ basis.T).max() < 1e-10
    pairs = np.array([(0, 0), (0, 5), (3, 1)])
    expected = np.linalg.pinv(project @ dense @ project)
    for (i, j), block in zip(
        pairs, GeneralizedInverse(space, values, "pseudo-inverse").marginals(pairs), strict=True
    ):
        assert block == pytest.approx(expected[3 * i : 3 * i + 3, 3 * j : 3 * j + 3], abs=1e-11)
    with pytest.raises(SolverError, match="not positive semidefinite"):
        find_null_space(pattern, from_dense(pattern, dense - 100.0 * np.eye(18)))


def test_diagonal_blocks_are_measured_by_their_scale():
    """Least eigenvalue of those from a block on, of several sizes; rows of zeros have the largest scale."""
    rng = np.random.default_rng(2)
    pattern = make_pattern([6, 2, 3, 2, 3], [(0, k) for k in range(1, 5)] + [(1, 2)])
    dense = to_dense(pattern, spd_values(pattern, rng))
    dense[7] = dense[:, 7] = 0.0
    values, diagonal = from_dense(pattern, dense), dense.diagonal()
    scales = _scales(pattern, values)
    np.testing.assert_array_equal(scales, np.where(diagonal > 0.0, diagonal, diagonal.max()))
    root = np.sqrt(scales)
    blocks = [slice(pattern.offsets[k], pattern.offsets[k + 1]) for k in range(2, 5)]
    least = min(np.linalg.eigvalsh(dense[b, b] / np.outer(root[b], root[b])).min() for b in blocks)
    assert _least_eigenvalue(pattern, values, root, 2) == pytest.approx(least, rel=1e-12)


@pytest.mark.parametrize(("least", "is_reduced"), [(1e-3, True), (1e-9, False)])
def test_landmarks_that_are_hardly_held_are_not_eliminated(least, is_reduced):
    """The Schur complement would lose the digits that tell singular from regular."""
    pattern = make_pattern([6, 6, 3], [(0, 1), (0, 2), (1, 2)])
    dense = to_dense(pattern, spd_values(pattern, np.random.default_rng(0)))
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    dense[12:, 12:] = turn @ np.diag([1.0, 1.0, least]) @ turn.T
    dense[12:, :12] *= least
    dense[:12, 12:] *= least
    values = from_dense(pattern, dense)
    found = _reduced(pattern, values, np.sqrt(_scales(pattern, values)), 2, None)
    assert (found is not None) == is_reduced


def test_wrong_options_are_refused():
    """Names of choices and devices."""
    graph = fixed(GRAPHS["manhattan"]())
    with pytest.raises(OptionError, match="expected one of error, hold"):
        graphopt.compute_covariances(graph, singular="ignore")
    with pytest.raises(DeviceError, match=r"There is no device 'cuda' here; .* cpu, vulkan"):
        graphopt.compute_marginals(graph, [5], device="cuda")


def test_chosen_vertices_have_the_covariances_of_all():
    """Poses alone, points eliminated; poses and the first of the points."""
    graph = fixed(GRAPHS["bundle"]())
    everything = graphopt.compute_covariances(graph)
    _, structure, _ = dense_of(graph)
    poses = [int(vertex_id) for vertex_id in graph.vertex_sets[0].ids[2:]]
    for ids in (poses, [*poses, int(structure.ids[structure.num_kept])]):
        chosen = graphopt.compute_covariances(graph, ids)
        assert list(chosen) == ids
        for vertex_id, block in chosen.items():
            np.testing.assert_allclose(block, everything[vertex_id], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("links", [150, 3], ids=["one front", "many fronts"])
def test_large_fronts_by_any_number_of_threads(links):
    """Against the dense inverse; one thread and three give the same bits."""
    num = 150
    pairs = [(i, j) for i in range(num) for j in range(max(i - links, 0), i)]
    pattern = make_pattern([6] * num, pairs)
    values = spd_values(pattern, np.random.default_rng(0))
    expected = np.linalg.inv(to_dense(pattern, values))
    wanted = np.array([(k, k) for k in range(num)])
    found = []
    for threads in (1, 3):
        kernels.set_num_threads(threads)
        solver = SparseCholesky(pattern)
        assert solver.factorize(values)
        found.append(solver.marginals(wanted))
    for k, (one, three) in enumerate(zip(*found, strict=True)):
        np.testing.assert_array_equal(one, three)
        rows = slice(6 * k, 6 * k + 6)
        np.testing.assert_allclose(one, expected[rows, rows], rtol=1e-9, atol=1e-12)
