"""The parts of `auto`: dogleg with scalar products, scaled damping, the convex relaxation."""

import numpy as np
import pytest

import graphopt
import graphopt.evaluate.datasets
from graphopt.cpu_kernels import kernels
from graphopt.geometry import quaternion
from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.optimizer.dogleg import _dogleg_step
from graphopt.optimizer.trust_region import _Model
from graphopt.optimizer.unit_quaternions import rough_rows
from graphopt.problem.structure import Structure
from graphopt.solver.create import create_block_solver
from graphopt.strategies.auto import has_uniform_units
from graphopt.strategies.relaxation import Relaxation, nearest_rotations


def random_model(seed, damping):
    """A positive definite H, b, the damped Gauss-Newton step, and their scalar products."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(8, 8))
    hessian = root @ root.T + 0.1 * np.eye(8)
    b = rng.normal(size=8)
    newton = np.linalg.solve(hessian + damping * np.eye(8), b)
    products = (b @ b, b @ newton, newton @ newton, b @ hessian @ b)
    return hessian, b, newton, _Model(b, newton, damping, *map(float, products))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_the_dogleg_step_and_its_gain_follow_from_scalar_products(seed, damping):
    """p b + q newton is the dogleg step of every radius, and `gain` is 2 b's - s'Hs."""
    hessian, b, newton, model = random_model(seed, damping)
    steepest = (b @ b) / (b @ hessian @ b) * b
    for radius in np.geomspace(0.01, 3.0, 12) * np.linalg.norm(newton):
        p, q = model.coefficients(radius)
        step = p * b + q * newton
        np.testing.assert_allclose(step, _dogleg_step(steepest, newton, radius), rtol=1e-9, atol=1e-12)
        assert np.linalg.norm(step) <= radius * (1.0 + 1e-12)
        assert model.gain(p, q) == pytest.approx(2.0 * b @ step - step @ hessian @ step, rel=1e-9)


def plane_world(seed=0, num_poses=30, num_points=8):
    """Exact measurements of a random walk in the plane, points, and the true estimates."""
    rng = np.random.default_rng(seed)
    poses = np.column_stack([rng.normal(size=(num_poses, 2)), rng.uniform(-np.pi, np.pi, num_poses)])
    points = rng.normal(size=(num_points, 2))
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", np.arange(num_poses), poses)
    graph.add_vertices("VERTEX_XY", 1000 + np.arange(num_points), points)
    pairs = np.concatenate(
        [np.stack([np.arange(num_poses - 1), np.arange(1, num_poses)], 1), [[25, 3], [4, 17]]]
    )
    first, second = poses[pairs[:, 0]], poses[pairs[:, 1]]
    c, s = np.cos(first[:, 2]), np.sin(first[:, 2])
    gap = second - first
    measured = np.stack([c * gap[:, 0] + s * gap[:, 1], c * gap[:, 1] - s * gap[:, 0], gap[:, 2]], axis=1)
    graph.add_edges("EDGE_SE2", pairs, measured, np.diag([10.0, 20.0, 50.0]))
    seen = np.stack([rng.integers(0, num_poses, 3 * num_points), np.repeat(np.arange(num_points), 3)], axis=1)
    pose, gap = poses[seen[:, 0]], points[seen[:, 1]] - poses[seen[:, 0], :2]
    c, s = np.cos(pose[:, 2]), np.sin(pose[:, 2])
    local = np.stack([c * gap[:, 0] + s * gap[:, 1], c * gap[:, 1] - s * gap[:, 0]], axis=1)
    graph.add_edges("EDGE_SE2_XY", np.add(seen, [0, 1000]), local)
    return graph


def scramble(graph, seed=1):
    """Replace all estimates by random ones, except those of fixed vertices."""
    rng = np.random.default_rng(seed)
    for vertex_set in graph.vertex_sets:
        free = ~vertex_set.fixed
        vertex_set.estimate[free] = rng.normal(size=vertex_set.estimate[free].shape)
        if vertex_set.type.tag == "VERTEX_SE3:QUAT":
            vertex_set.estimate[:, 3:] /= np.linalg.norm(vertex_set.estimate[:, 3:], axis=1, keepdims=True)


def test_the_relaxation_of_exact_measurements_is_the_truth():
    """Poses and points in the plane from any start, in the frame of the fixed pose."""
    graph = plane_world()
    truth = [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
    graph.set_fixed([12])
    scramble(graph)
    found = Relaxation(Structure(graph.select())).estimates()
    assert found is not None
    np.testing.assert_allclose(found[0][:, :2], truth[0][:, :2], atol=1e-9)
    turn = found[0][:, 2] - truth[0][:, 2]
    np.testing.assert_allclose(np.exp(1j * turn), 1.0, atol=1e-9)
    np.testing.assert_allclose(found[1], truth[1], atol=1e-9)


def test_the_relaxation_in_space_makes_auto_independent_of_the_start():
    """Random poses with exact measurements: chi2 is zero after `auto`, from a random start."""
    rng = np.random.default_rng(2)
    quaternions = rng.normal(size=(25, 4))
    quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
    graph = Graph()
    graph.add_vertices(
        "VERTEX_SE3:QUAT", np.arange(25), np.column_stack([rng.normal(size=(25, 3)), quaternions])
    )
    pairs = np.concatenate([np.stack([np.arange(24), np.arange(1, 25)], 1), [[0, 20], [5, 15]]])
    estimate = graph.vertex_set("VERTEX_SE3:QUAT").estimate
    first, second = estimate[pairs[:, 0]], estimate[pairs[:, 1]]
    inverse = quaternion.conjugate(first[:, 3:])
    translation = quaternion.rotate(inverse, second[:, :3] - first[:, :3])
    turn = quaternion.multiply(inverse, second[:, 3:])
    graph.add_edges("EDGE_SE3:QUAT", pairs, np.column_stack([translation, turn]))
    assert graph.chi2() < 1e-25
    scramble(graph)
    summary = graphopt.optimize(graph)
    assert summary.final_chi2 < 1e-18 * summary.initial_chi2
    assert "relaxation" in summary.message
    off = graphopt.AutoOptions(relax_above=np.inf)
    scramble(graph)
    assert graphopt.optimize(graph, options=off).message == ""


def test_the_relaxation_says_when_it_does_not_apply():
    """Other edge types, or nothing fixed."""
    graph = plane_world()
    assert Relaxation(Structure(graph.select())).estimates() is None
    graph.set_fixed([0])
    graph.add_edges("EDGE_BEARING_SE2_XY", [[0, 1000]], np.zeros((1, 1)))
    assert Relaxation(Structure(graph.select())).estimates() is None


@pytest.mark.parametrize("dim", [2, 3])
def test_weights_are_harmonic_means_of_eigenvalues(dim):
    """Of full, diagonal, indefinite and repeated matrices, of places with and without turns."""
    rng, size = np.random.default_rng(dim), 3 * (dim - 1)
    roots = rng.normal(size=(40, size, size))
    information = roots @ roots.transpose(0, 2, 1)
    information[5] = np.diag(rng.uniform(1.0, 9.0, size))
    information[6] = -np.eye(size)
    information[7, :, :] = 0.0
    information[9] = information[8]
    rows = rng.permutation(40)
    found = kernels.relaxed_weights(information, rows, dim)
    for part, block in enumerate((slice(None, dim), slice(dim, None))):
        values = np.linalg.eigvalsh(information[rows][:, block, block])
        good = values[:, 0] > 0.0
        assert good.sum() == 38 and not found[~good, part].any()
        expected = 1.0 / np.mean(1.0 / values[good], axis=1)
        np.testing.assert_allclose(found[good, part], expected, rtol=1e-9)
    places = np.ascontiguousarray(information[:, :dim, :dim])
    np.testing.assert_array_equal(kernels.relaxed_weights(places, rows, dim)[:, 0], found[:, 0])
    with pytest.raises(ValueError, match="a row is none of the matrices'"):
        kernels.relaxed_weights(places, np.array([40]), dim)


@pytest.mark.parametrize("dim", [2, 3])
def test_nearest_rotations_are_rotations_and_nearest(dim):
    """Orthogonal, determinant 1, and no small turn comes closer."""
    rng = np.random.default_rng(dim)
    matrices = rng.normal(size=(50, dim, dim))
    found = nearest_rotations(matrices)
    np.testing.assert_allclose(found @ found.transpose(0, 2, 1), np.tile(np.eye(dim), (50, 1, 1)), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(found), 1.0, atol=1e-12)
    distance = np.linalg.norm(found - matrices, axis=(1, 2))
    for _ in range(20):
        turn = nearest_rotations(np.eye(dim) + 0.05 * rng.normal(size=(1, dim, dim)))
        assert (np.linalg.norm(found @ turn - matrices, axis=(1, 2)) >= distance - 1e-12).all()


def bundle():
    """Cameras with their intrinsics around points, of which nothing is fixed."""
    return graphopt.datasets.ba(cameras=5, points=150, camera="bal", noise_pixel=0.1)


@pytest.mark.parametrize("schur", ["auto", "off", "explicit", "implicit"])
def test_bundle_adjustment_reaches_the_noise_by_every_elimination(schur):
    """Nothing is fixed (a camera holds its focal length too), and chi2 falls to the noise of the pixels."""
    graph = bundle()
    summary = graphopt.optimize(graph, schur=schur)
    cameras, points = map(len, graph.vertex_sets)
    expected = 0.01 * (2 * graph.num_edges - 9 * cameras - 3 * points + 7)
    assert summary.fixed_by_gauge == []
    assert summary.termination.is_usable
    assert summary.final_chi2 == pytest.approx(expected, rel=0.2)
    assert summary.schur == ("explicit" if schur == "auto" else schur)


def test_the_schedule_is_chosen_by_the_vertices():
    """Poses and points without elimination use the dogleg, everything else the scaled damping."""
    assert has_uniform_units(Structure(plane_world().select()))
    assert not has_uniform_units(Structure(bundle().select()))
    eliminated = plane_world()
    eliminated.vertex_set("VERTEX_XY").marginalized = True
    assert not has_uniform_units(Structure(eliminated.select()))


@pytest.mark.parametrize("kind", ["manhattan", "sphere"])
def test_the_relaxation_is_reached_by_one_update(kind):
    """Updating by `step` gives `estimates`, in the plane and in space."""
    datasets = graphopt.evaluate.datasets
    graph = datasets.manhattan(nodes=60, seed=1) if kind == "manhattan" else datasets.sphere(10, 8, seed=1)
    graph.set_fixed([0])
    structure = Structure(graph.select())
    (expected,) = Relaxation(structure).estimates()
    solver = create_block_solver(graph, structure, SolverOptions())
    solver.dx = Relaxation(structure).step()
    solver.update()
    solver.finish()
    found = graph.vertex_sets[0].estimate
    if kind == "sphere":
        np.testing.assert_allclose(np.abs((found[:, 3:] * expected[:, 3:]).sum(axis=1)), 1.0, atol=1e-12)
        np.testing.assert_allclose(found[:, :3], expected[:, :3], atol=1e-9)
    else:
        np.testing.assert_allclose(found[:, :2], expected[:, :2], atol=1e-9)
        np.testing.assert_allclose(np.sin(found[:, 2] - expected[:, 2]), 0.0, atol=1e-9)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("linear_solver", ["cholesky", "pcg"])
def test_a_pose_graph_ends_at_its_minimum_in_all_digits(seed, linear_solver):
    """What more iterations without tolerances could still gain is below 1e-9 of chi2, with PCG as well."""
    graph = graphopt.datasets.manhattan(nodes=300, seed=seed)
    graphopt.optimize(graph, linear_solver=linear_solver)
    reached = graph.chi2()
    graphopt.optimize(graph, "gn", 20)
    assert reached <= graph.chi2() * (1.0 + 1e-9)


@pytest.mark.parametrize("schur", ["explicit", "implicit"])
def test_pcg_with_elimination_reaches_what_the_factorization_reaches(schur):
    """Bundle adjustment by conjugate gradients, with the reduced matrix and without it."""
    exact, other = (graphopt.datasets.ba(cameras=8, points=150, camera="bal", seed=4) for _ in range(2))
    graphopt.optimize(exact, linear_solver="cholesky")
    summary = graphopt.optimize(other, linear_solver="pcg", schur=schur)
    assert (summary.linear_solver, summary.schur) == ("pcg", schur)
    assert other.chi2() == pytest.approx(exact.chi2(), rel=1e-6)


def test_the_block_solver_multiplies_by_the_whole_symmetric_matrix():
    """`multiply` agrees with H from the products of unit vectors, and H is symmetric."""
    graph = bundle()
    solver = create_block_solver(graph, Structure(graph.select()), SolverOptions())
    solver.linearize()
    matrix = np.stack([solver.multiply(unit) for unit in np.eye(solver.dim)], axis=1)
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-12)
    np.testing.assert_array_equal(np.diagonal(matrix), solver.diagonal)
    assert solver.solve(1e-3 * solver.diagonal)
    damped = matrix + 1e-3 * np.diag(np.diagonal(matrix))
    np.testing.assert_allclose(damped @ solver.dx, solver.b, atol=1e-8 * np.abs(solver.b).max())


def test_coarse_conjugate_gradients_do_not_end_it(monkeypatch):
    """Where a coarsely solved step gains little, a finely solved one has the last word."""
    from graphopt.vulkan.solver import ResidentBlockSolver

    accuracies, trial = [], ResidentBlockSolver.trial

    def noted(self, damping):
        accuracies.append(damping.accuracy)
        return trial(self, damping)

    monkeypatch.setattr(ResidentBlockSolver, "trial", noted)
    rules = graphopt.AutoOptions(function_tolerance=0.05, reseat_gain=np.inf)
    graph = graphopt.datasets.ba(cameras=12, points=150, camera="bal", seed=4)
    summary = graphopt.optimize(graph, options=rules, device="vulkan", linear_solver="pcg", schur="explicit")
    assert summary.termination.name == "CONVERGENCE"
    assert accuracies[0] == 0.05 and accuracies[-1] == 1e-3


def test_the_relaxation_is_not_tried_from_a_good_start(monkeypatch):
    """A start at the truth is as good as the measurements, however slowly the first steps go."""
    asked = []
    monkeypatch.setattr(Relaxation, "estimates", lambda self: asked.append(self))
    graph = graphopt.datasets.manhattan(nodes=400, closures=0.3, start="truth", seed=1)
    options = graphopt.AutoOptions(relax_above=1e-3)
    summary = graphopt.optimize(graph, options=options)
    assert summary.iterations[0].chi2 > 1e-3 * summary.initial_chi2
    assert summary.termination.name == "CONVERGENCE" and not asked
    folded = graphopt.datasets.manhattan(nodes=400, closures=0.3, noise_rotation=0.2, seed=1)
    graphopt.optimize(folded, options=options)
    assert asked, "a folded start has it tried"


def test_an_end_that_explains_all_noise_is_not_contested(monkeypatch):
    """chi2 is what the measurements' noise makes: no proof is asked for; with wrong information it is."""
    asked, gap = [], Relaxation.gap
    monkeypatch.setattr(Relaxation, "gap", lambda self: asked.append(self) or gap(self))
    for factor, is_asked in ((1.0, False), (4.0, True)):
        graph = graphopt.datasets.manhattan(nodes=20_000, seed=3)
        for edges in graph.edge_sets:
            edges.information *= factor
        summary = graphopt.optimize(graph)
        assert "relaxation" in summary.message
        assert summary.termination.name == "CONVERGENCE"
        assert bool(asked) is is_asked


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "kernel", "lowest", "most"),
    [
        ("bal_tumrgbd/fr2robot2.txt", None, 3843.26943, 200),
        ("bal/gtsfm_crane_mast_8.bal.txt.xz", "Huber", 2706.155827, 60),
        ("bal/libmv_problem_02.bin.xz", "Huber", 7994.73293, 60),
    ],
)
def test_bundles_end_at_their_minimum(shared_data, name, kernel, lowest, most):
    """No single small step ends a run, and convergence under robust kernels is not that of fixed weights.

    lowest: chi2 after 1000 iterations with tolerances of 1e-13.
    """
    graph = graphopt.read(shared_data / name)
    if kernel is not None:
        graph.set_robust_kernel(kernel, 1.0)
    summary = graphopt.optimize(graph, device="cpu")
    assert summary.termination.name == "CONVERGENCE"
    assert summary.final_chi2 <= lowest * (1.0 + 1e-6)
    assert len(summary.iterations) <= most


def test_quaternions_of_free_vertices_with_few_digits_are_found():
    """Neither unit ones nor those of fixed vertices."""
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE3:QUAT", range(4), [[0.0] * 6 + [1.0]] * 4)
    graph.add_edges("EDGE_SE3:QUAT", [[0, 1], [1, 2], [2, 3]], [0.0] * 6 + [1.0], np.eye(6))
    poses = graph.vertex_sets[0]
    poses.fixed[0] = True
    poses.estimate[[0, 2], 6] = 1.0 + 1e-6
    ((found, rows),) = rough_rows(graph.select())
    assert found is poses and rows.tolist() == [2]
