"""H is the sum over its edges whatever its memory held before, also where sums are stored, not added."""

import numpy as np
import pytest

import graphopt
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.types import slam3d

POSES, POINTS = 9, 700


def solver_of(case: str) -> CpuBlockSolver:
    """Poses that see points, edges in any order; two poses and, as the case says, some points are fixed."""
    rng = np.random.default_rng(5)
    graph, poses = graphopt.Graph(), np.zeros((POSES, 7))
    poses[:, :3], poses[:, 6] = rng.normal(size=(POSES, 3)), 1.0
    graph.add_vertices(slam3d.VertexSE3, np.arange(POSES), poses, fixed=np.arange(POSES) < 2)
    fixed = rng.random(POINTS) < (0.3 if case == "fixed points" else 0.0)
    points = rng.normal(size=(POINTS, 3))
    ids = 100 + np.arange(POINTS)
    graph.add_vertices(slam3d.VertexPointXYZ, ids, points, fixed=fixed, marginalized=True)
    graph.add_parameters(slam3d.ParameterSE3Offset, [0], [slam3d.SE3.identity_storage])
    ends = rng.permutation(np.stack(np.meshgrid(np.arange(POSES), ids), axis=-1).reshape(-1, 2))
    kernels_of = {"Huber": ends[::2], None: ends[::3]} if case == "two groups" else {None: ends}
    for kernel, chosen in kernels_of.items():
        graph.add_edges(
            slam3d.EdgeSE3PointXYZ,
            chosen,
            rng.normal(size=(len(chosen), 3)),
            parameters=np.zeros((len(chosen), 1), np.int64),
            kernel=kernel,
        )
    return CpuBlockSolver(graph, Structure(graph.select(0, None, None)), SolverOptions("cpu"))


@pytest.mark.parametrize("case", ["plain", "fixed points", "two groups"])
def test_h_is_the_sum_over_few_edges_at_a_time(case: str, threads: int) -> None:
    solver = solver_of(case)
    solver.values[:] = np.nan
    solver.linearize()
    h, b = solver.values.copy(), solver.b.copy()
    total_h, total_b = np.zeros_like(h), np.zeros_like(b)
    groups = solver.structure.groups
    for part in range(40):
        solver.choose_edges([np.arange(len(group.rows)) % 40 == part for group in groups])
        solver.refresh()
        solver.values[:] = np.nan
        solver.linearize()
        total_h += solver.values
        total_b += solver.b
    np.testing.assert_allclose(h, total_h, rtol=1e-12, atol=1e-12 * np.abs(h).max())
    np.testing.assert_allclose(b, total_b, rtol=1e-12, atol=1e-12 * np.abs(b).max())
