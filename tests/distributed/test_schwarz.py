"""Additive Schwarz is the sum of inverses of overlapping parts, and faster than block Jacobi."""

import numpy as np
from linear_problems import to_dense
from rank_programs import sphere

import graphopt
from graphopt.distributed.communicator import run_as_threads
from graphopt.distributed.interface import interface
from graphopt.distributed.part import SolverPart
from graphopt.distributed.pcg import ConjugateGradients, StopRule, iterate
from graphopt.distributed.scattering import scatter
from graphopt.distributed.schwarz import AdditiveSchwarz
from graphopt.solver.gauge import choose_gauge
from graphopt.solver.linear_systems import block_pattern
from graphopt.solver.registry import SolverOptions
from graphopt.solver.structure import Structure
from graphopt.solver.trial import Damping


def over_ranks(graph, num_ranks, work):
    """`work(comm, part, dims)` on each rank, after a linearization; with H of the whole."""
    selection = graph.select()
    selection = selection.with_fixed(choose_gauge(graph, selection))
    scattered = scatter(graph, selection, num_ranks, "auto", "auto")

    def one(comm):
        share = scattered.share(graph, comm.rank)
        part = SolverPart(share, Structure(share.select()), SolverOptions(device="cpu"), forms=True)
        part.linearize()
        assert part.reduce(np.zeros(part.structure.dim))
        return work(comm, part, share.kept_dims)

    solver = graphopt.solver.cpu.CpuBlockSolver(graph, Structure(selection), SolverOptions())
    solver.linearize()
    whole = to_dense(block_pattern(solver.structure), solver.values)
    return run_as_threads(num_ranks, one), whole, solver.b


def test_it_is_the_sum_of_inverses_of_parts():
    """Against dense matrices."""

    def work(comm, part, dims):
        schwarz = AdditiveSchwarz(comm, part, dims)
        damping = np.full(int(dims.sum()), 0.5)
        b = schwarz.prepare(True, damping)
        return b, schwarz.apply(b), schwarz._scalars

    found, whole, expected_b = over_ranks(sphere(), 3, work)
    damped = whole + 0.5 * np.eye(len(whole))
    expected = np.zeros(len(whole))
    for _, _, scalars in found:
        expected[scalars] += np.linalg.solve(damped[np.ix_(scalars, scalars)], expected_b[scalars])
    covered = np.concatenate([ids[2] for ids in found])
    assert set(covered.tolist()) == set(range(len(whole))) and len(covered) > len(whole)
    for b, applied, _ in found:
        np.testing.assert_allclose(b, expected_b, rtol=1e-9, atol=1e-9 * np.abs(expected_b).max())
        np.testing.assert_allclose(applied, expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max())


def test_fewer_iterations_than_block_jacobi():
    """Of a pose graph; both find the solution."""

    def work(comm, part, dims):
        schwarz = AdditiveSchwarz(comm, part, dims)
        system = ConjugateGradients(comm, part, dims, schwarz, SolverOptions(pcg_tolerance=1e-20))
        damping = np.full(system.dim, 1e-3)
        x = system.solve(True, damping)

        shared = interface(comm, part.kept_blocks, dims)
        own, places = part.iterating(shared, dims[part.kept_blocks], of_h=False), part.kept_scalars
        b, diagonal = np.zeros((2, system.dim))
        b[places], diagonal[places] = part.solver.b, part.solver.diagonal
        own.linearized(comm.sum(b)[places], comm.sum(diagonal)[places])
        total = comm.sum(own.reduce(Damping(1e-3), damping[places]))
        iterations = iterate(comm, own, total, StopRule(1e-20, 1000))
        own.substitute(comm.sum(own.solution()))
        jacobi = np.zeros(system.dim)
        speaks = shared.speaks
        jacobi[places[speaks]] = np.asarray(part.solver.dx)[speaks]
        return (x, system.iterations), (comm.sum(jacobi), iterations)

    found, whole, b = over_ranks(graphopt.datasets.pose_graphs.sphere(12, 10), 2, work)
    expected = np.linalg.solve(whole + 1e-3 * np.eye(len(whole)), b)
    for (schwarz, few), (jacobi, many) in found:
        assert few < 0.5 * many
        for x in (schwarz, jacobi):
            np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())
