"""A block solver around another one passes on whatever it does not change."""

from __future__ import annotations

import numpy as np
import pytest
from optimizer_graphs import noisy_ring

from graphopt.linear.options import SolverOptions
from graphopt.problem.gauge import fix_gauge
from graphopt.problem.structure import Structure
from graphopt.solver.around import SolverAround
from graphopt.solver.bounded import BoundedSolver, bounded_rows
from graphopt.solver.create import create_block_solver
from graphopt.solver.trial import Damping


def solver_of(graph):
    """Its block solver."""
    structure = Structure(fix_gauge(graph, graph.select(0), "auto")[0])
    return create_block_solver(graph, structure, SolverOptions(device="cpu"))


def test_every_call_is_the_other_solvers():
    """The same numbers, and the estimates that are brought into the graph."""
    graphs = noisy_ring(12), noisy_ring(12)
    solvers = solver_of(graphs[0]), SolverAround(solver_of(graphs[1]))
    found = []
    for graph, solver in zip(graphs, solvers, strict=True):
        numbers = [solver.linearize(), solver.chi2(), solver.in_double() is None]
        assert solver.solve(1.0)
        solver.push()
        solver.update()
        numbers.append(solver.chi2())
        solver.pop()
        numbers += [solver.linearize(), *solver.multiply(solver.b), *solver.dx, *solver.diagonal]
        trial = solver.trial(Damping(0.1))
        numbers += [trial.chi2, trial.gain, trial.step_size]
        solver.discard_top()
        solver.finish()
        numbers += graph.vertex_sets[0].estimate.ravel().tolist()
        graph.vertex_sets[0].estimate[:, 0] += 0.1
        solver.refresh()
        numbers += [solver.chi2(), solver.first_non_finite(), solver.precision]
        found.append(numbers)
    assert found[0] == found[1]


def bounded_ring():
    """A ring of poses whose first two coordinates are to stay where they are, nearly."""
    graph = noisy_ring(12, noise=0.3)
    poses = graph.vertex_sets[0]
    for id_, place in zip(poses.ids[1:], poses.estimate[1:].copy(), strict=True):
        graph.set_bounds(int(id_), lower=[*(place[:2] - 0.01), -np.inf], upper=[*(place[:2] + 0.01), np.inf])
    solver = solver_of(graph)
    return graph, BoundedSolver(solver, bounded_rows(solver.structure))


def test_an_update_ends_at_the_bounds():
    """Whatever step is taken; what stays free moves by all of it."""
    graph, solver = bounded_ring()
    solver.linearize()
    before = graph.vertex_sets[0].estimate.copy()
    solver.dx = np.full(solver.dim, 0.1)
    solver.update()
    solver.finish()
    moved = graph.vertex_sets[0].estimate - before
    np.testing.assert_allclose(np.sin(moved[:, 2]), np.sin(0.1))
    assert np.abs(moved[1:, :2]).max() == pytest.approx(0.01)


class FailsLater(SolverAround):
    """Rounding lets no solution after `good` ones be found."""

    good = 1

    def solve(self, damping):
        """(H + D) dx = b."""
        self.good -= 1
        return self.good >= 0 and super().solve(damping)


@pytest.mark.parametrize("damping,good", [(-1e9, 9), (0.0, 1), (0.0, 0)])
def test_no_solution_within_bounds_is_said(damping, good):
    """Of H + D, or of what is left of it within the bounds; nothing has moved then."""
    graph, solver = bounded_ring()
    inner = FailsLater(solver_of(graph))
    solver = BoundedSolver(inner, bounded_rows(inner.structure))
    chi2 = solver.linearize()
    inner.good = good
    assert not solver.solve(damping)
    inner.good = 0
    assert not solver.trial(Damping(damping)).solved
    assert solver.chi2() == pytest.approx(chi2)
