"""Stop flag, marginals, simulators, propagation, names, the module itself."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from both import ring

import graphopt.g2o as ours
from graphopt.g2o import names
from graphopt.types import EdgeType


def test_flag_from_another_thread():
    """The native code runs without the GIL, and a set flag ends the optimization."""
    optimizer = ring(ours, count=200, algorithm="GaussNewton")  # Gauss-Newton never stops by itself
    flag, running = ours.Flag(False), threading.Event()

    class Notice(ours.HyperGraphAction):
        def __call__(self, graph, parameters=None):
            if parameters["iteration"] == 2:
                running.set()

    optimizer.add_post_iteration_action(Notice())
    optimizer.set_force_stop_flag(flag)
    optimizer.initialize_optimization()
    counts = []
    thread = threading.Thread(target=lambda: counts.append(optimizer.optimize(1_000_000)))
    thread.start()
    assert running.wait(timeout=20.0) and thread.is_alive()
    flag.value = True
    thread.join(timeout=20.0)
    assert not thread.is_alive() and 2 < counts[0] < 1_000_000
    assert optimizer.optimize(10) == 0
    flag.value = False
    assert optimizer.optimize(2) == 2


def test_marginals_are_blocks_of_the_inverse():
    """Against numpy's inverse of H, in all forms of the call."""
    optimizer = ring(ours)
    optimizer.initialize_optimization()
    optimizer.optimize(5)
    vertices = optimizer.index_mapping()
    pairs = [(i, j) for i in range(len(vertices)) for j in range(i, len(vertices))]
    matrix, good = optimizer.compute_marginals(pairs)
    assert (
        good
        and matrix.rows() == 42
        and matrix.rows_of_block(1) == 6
        and matrix.non_zeros_blocks() == len(pairs)
    )
    upper = matrix.to_array()
    covariance = np.triu(upper) + np.triu(upper, 1).T
    structure = optimizer.block_solver().structure
    hessian = np.zeros((42, 42))
    values = optimizer.block_solver().values
    for col in range(structure.num_blocks):
        for k in range(structure.pattern.col_ptr[col], structure.pattern.col_ptr[col + 1]):
            row = structure.pattern.row_idx[k]
            block = (
                values[structure.pattern.value_offsets[k] : structure.pattern.value_offsets[k + 1]]
                .reshape(6, 6)
                .T
            )
            hessian[6 * row : 6 * row + 6, 6 * col : 6 * col + 6] = block
            hessian[6 * col : 6 * col + 6, 6 * row : 6 * row + 6] = block.T
    np.testing.assert_allclose(covariance, np.linalg.inv(hessian), rtol=1e-8, atol=1e-12)
    third = vertices[2]
    expected = covariance[12:18, 12:18]
    spinv = ours.SparseBlockMatrixX()
    for answer in (
        optimizer.compute_marginals(third),
        optimizer.compute_marginals([third]),
        optimizer.compute_marginals([2]),
    ):
        np.testing.assert_allclose(answer[0].block(2, 2), expected, rtol=1e-9, atol=1e-14)
    assert optimizer.compute_marginals(spinv, [third])[1] and spinv.has_block(2, 2)
    fixed = optimizer.vertex(0)
    matrix, good = optimizer.compute_marginals(fixed)
    assert not good and matrix.rows() == 0
    with pytest.raises(ValueError, match="no covariance"):
        optimizer.compute_marginals([third, fixed])


@pytest.mark.parametrize("name", ["Simulator2D", "Simulator3D"])
def test_simulator(name):
    """All sensors; optimizing lowers chi2 to what the noise explains."""
    simulator = getattr(ours, name)()
    config = simulator.config
    config.sim_steps, config.nlandmarks, config.world_size = 40, 30, 12.0
    for attribute in vars(config):
        if attribute.startswith("has_"):
            setattr(config, attribute, True)
    config.has_compass = False
    simulator.seed(1)
    if name == "Simulator2D":
        with pytest.warns(UserWarning, match="no segments"):
            simulator.setup()
        config.has_segment_sensor = False
    simulator.setup()
    simulator.simulate()
    optimizer = ours.SparseOptimizer()
    optimizer.add_graph(simulator.graph())
    optimizer.set_algorithm(ours.OptimizationAlgorithmLevenberg(ours.BlockSolverX(ours.LinearSolverEigenX())))
    optimizer.initialize_optimization()
    assert optimizer.optimize(20) > 0
    numbers = sum(edge.dimension() for edge in optimizer.edges())
    unknowns = sum(vertex.dimension() for vertex in optimizer.index_mapping())
    assert numbers - unknowns > 30
    assert 0.5 < optimizer.active_chi2() / (numbers - unknowns) < 2.0


def test_dijkstra_on_a_ring():
    """Distances by the number of edges."""
    optimizer = ring(ours)
    dijkstra = ours.HyperDijkstra(optimizer)
    dijkstra.shortest_paths(optimizer.vertex(0), ours.UniformCostFunction())
    found = {vertex.id(): entry.distance() for vertex, entry in dijkstra.adjacency_map().items()}
    assert found == {i: float(min(i, 8 - i)) for i in range(8)}
    dijkstra.compute_tree(dijkstra.adjacency_map())
    assert len(dijkstra.visited()) == 8
    assert sum(len(entry.children()) for entry in dijkstra.adjacency_map().values()) == 7


NOT_THERE = {
    # names of g2opy that have no use from Python; docs/g2o.md lists them
    "AbstractOptimizationAlgorithmCreator",
    "JacobianWorkspace",
    "OptimizationAlgorithmProperty",
    "RegisterOptimizationAlgorithmProxy",
    "private",
}
MEMBERS_NOT_THERE = {
    "EdgeIDCompare",
    "EstimatePropagatorVertexIDHashFunction",
    "VertexIDCompare",
    "VertexIDEdges",
    "jacobian_workspace",
    "map_hessian_memory",
}


def _members(cls):
    try:
        instance = cls()
    except (TypeError, ValueError, AttributeError):  # not to be made by itself
        instance = None
    return set(dir(cls)) | set(dir(instance) if instance is not None else ())


@pytest.mark.oracle
def test_every_name_of_g2opy():
    """Classes, methods, properties and enums, but those listed above."""
    theirs = pytest.importorskip("g2opy")
    names = [name for name in dir(theirs) if not name.startswith("_")]
    assert {name for name in names if not hasattr(ours, name)} == NOT_THERE
    for name in set(names) - NOT_THERE:
        expected, actual = getattr(theirs, name), getattr(ours, name)
        if isinstance(expected, type) and name not in ("FactoryTypeInfo", "IoFileFilter"):  # made by others
            wanted = {member for member in dir(expected) if not member.startswith("_")}
            assert wanted - _members(actual) <= MEMBERS_NOT_THERE, name


def test_names_of_other_bindings():
    """What programs for uoip/g2opy and g2o-python use and g2opy lacks."""
    for name in (
        "VertexSBAPointXYZ Flag LinearSolverCSparseSE3 LinearSolverCSparseX LinearSolverCholmodSE2 "
        "LinearSolverCholmodSE3 EdgeProjectP2MCRight SmoothEstimatePropagator "
        "Edge_V_V_GICP Edge_XYZ_VSC Rotation2D RobustKernel"
    ).split():
        assert hasattr(ours, name), name


def test_names_are_listed():
    """`__all__` has every class of the module, and no edge whose vertices the module does not have."""
    classes = {name for name, var in vars(ours).items() if isinstance(var, type)}
    assert classes <= set(ours.__all__), sorted(classes - set(ours.__all__))
    assert len(set(ours.__all__)) == len(ours.__all__)
    for name in ours.__all__:
        kind = getattr(getattr(ours, name), "_type", None)
        if name.startswith("Edge") and isinstance(kind, EdgeType):
            assert {vertex.name for vertex in kind.vertices} <= set(ours.__all__), name
    assert not hasattr(ours, "EdgeInertial")


def test_default_device(monkeypatch):
    """A device that does not exist is refused by name; the environment variable works as well."""
    optimizer = ring(ours)
    optimizer.initialize_optimization()
    ours.set_default_device("")  # another test may have named one
    monkeypatch.setenv("GRAPHOPT_G2O_DEVICE", "abacus")
    with pytest.raises(RuntimeError, match="abacus"):
        optimizer.optimize(1)
    monkeypatch.delenv("GRAPHOPT_G2O_DEVICE")
    ours.set_default_device("cpu")
    assert ours.default_device() == "cpu" and optimizer.optimize(1) == 1


def test_stubs_name_every_public_name_and_method(tmp_path):
    """What `tools/g2o_stubs.py` writes is Python, and names all of the module and its classes' methods."""
    root = Path(__file__).resolve().parents[2]
    path = tmp_path / "stubs.pyi"
    subprocess.run([sys.executable, str(root / "tools" / "g2o_stubs.py"), str(path)], check=True)
    stubbed: dict[str, set[str]] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            stubbed[node.name] = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
        elif isinstance(node, (ast.FunctionDef, ast.AnnAssign, ast.Assign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            stubbed[target.id if isinstance(target, ast.Name) else node.name] = set()
    assert set(names.__all__) <= set(stubbed)
    for name in ("SparseOptimizer", "SE3Quat", "BaseRobustKernel"):
        own = {member for member, value in vars(getattr(ours, name)).items() if inspect.isfunction(value)}
        assert {member for member in own if not member.startswith("_")} <= stubbed[name]
