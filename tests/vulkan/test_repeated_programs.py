"""Programs of one kind are recorded once: those for other versions differ by the estimates' buffers alone."""

from __future__ import annotations

from concurrent.futures import Future
from itertools import permutations

import pytest
from resident_graphs import mixed_space
from vulkan_devices import shared_device
from vulkan_graphs import bundle_adjustment

from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.vulkan.program import Launch, Program
from graphopt.vulkan.solver import ResidentBlockSolver, create


def built(kernel):
    """A kernel, once another thread has built it."""
    return kernel.result() if isinstance(kernel, Future) else kernel


def described(program):
    """Commands in values that can be compared; of scratch, which each recording takes anew, its size."""
    return [
        (name, (built(argument.kernel), argument.params, argument.groups, len(argument.buffers)))
        if isinstance(argument, Launch)
        else (name, repr(argument) if name == "phase" else len(argument))
        for name, argument in program.commands
    ]


def estimates_in(solver, program):
    """Of each launch, which of its buffers are estimates' of which version and vertex set."""
    known = {
        id(buffer): (which, number)
        for which, version in enumerate(solver._estimates._versions)
        for number in solver._estimates.moving
        for buffer in version[number].buffers
    }
    return [
        [(place, known[id(buffer)]) for place, buffer in enumerate(argument.buffers) if id(buffer) in known]
        for name, argument in program.commands
        if name == "launch"
    ]


@pytest.mark.parametrize("precision", ["double", "mixed"])
@pytest.mark.parametrize("graph", [mixed_space, bundle_adjustment])
def test_other_versions(graph, precision):
    """Every pair of three versions, in both orders, beside a program that is recorded for it."""
    given = graph()
    solver = create(
        given,
        Structure(given.select()),
        SolverOptions("vulkan", "pcg", "auto", precision),
        device=shared_device("address"),
    )
    assert isinstance(solver, ResidentBlockSolver)
    solver.linearize()
    estimates = solver._estimates
    while len(estimates._versions) < 3:
        estimates.push()
        estimates.arrive(estimates.free_version())
    recorders = {
        1: {"linearize": solver._record_linearize, "chi2": solver._record_chi2},
        2: {"trial": solver._record_tail, "move": solver._record_move, "update": solver._record_oplus},
    }
    for count, kinds in recorders.items():
        for kind, record in kinds.items():
            solver._commands.pop(kind, None)
            solver._programs.clear()
            for versions in permutations(range(3), count):
                found = solver._program(kind, record, versions)
                wanted = Program(solver._context)
                record(wanted, *versions)
                assert described(found) == described(wanted), (kind, versions)
                assert estimates_in(solver, found) == estimates_in(solver, wanted), (kind, versions)
                assert any(estimates_in(solver, found)), "no launch reads estimates: nothing was compared"
