"""Prepare a block solver, or take the graph's last one if nothing of its structure changed.

Analysis and compilation cost more than solving a small problem. A graph that is optimized again with the same
vertices, edges, fixed and marginalized flags, levels, kernels and options gets its block solver back, with
new estimates, measurements, information matrices and kernel widths. Where device "auto" has taken the CPU,
this is where it may think again (`auto_device`).

With `may_narrow` also if some edges have dropped out (SLAM systems switch off outliers) while all vertices
still have edges: the structure stays that of all edges, and only the block solver knows who takes part.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from graphopt.codegen.edge import compile_errors
from graphopt.codegen.program import Program, sampled_runs
from graphopt.cpu_kernels import kernels
from graphopt.graph import Graph, Selection
from graphopt.graph.residuals import errors
from graphopt.graph.select import forget as forget_selection
from graphopt.graph.sets import EdgeSet
from graphopt.linear.options import SolverOptions
from graphopt.problem.rewrite import forget as forget_rewritten
from graphopt.problem.structure import EdgeGroup, Structure, information_variant
from graphopt.solver.auto_device import FAILURES, device_for_more, say_why
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.capabilities import capabilities_of, factor_flops_of
from graphopt.solver.create import create_block_solver
from graphopt.solver.trial import Damping
from graphopt.switches import is_off
from graphopt.types.base import EdgeType, working_edge_type
from graphopt.types.cache import per_type_cache


@dataclass(eq=False)
class _Prepared:
    version: int
    options: SolverOptions
    selection: Selection
    flags: tuple[bytes, ...]
    """Who is optimized and who is marginalized, see `_flags`."""
    kernels: tuple[np.ndarray, ...]
    kernel_digests: tuple[bytes, ...]
    """Of `kernels`."""
    structure: Structure
    solver: Any
    """A `BlockSolver`."""
    masks: tuple[np.ndarray, ...] | None = None
    """Per group of the structure who takes part; None: all do."""
    stays: bool = False
    """A GPU has refused it: it stays on the CPU."""
    num_abandoned: int = 0
    """`_num_abandoned` of the solver when it was last taken."""


last_solvers: WeakKeyDictionary[Graph, _Prepared] = WeakKeyDictionary()


def prepared_solver(
    graph: Graph,
    selection: Selection,
    options: SolverOptions,
    seconds: dict[str, float],
    may_narrow: bool = False,
    commit: Callable[[], None] | None = None,
) -> BlockSolver:
    """The block solver for a selection; adds to `seconds["analyze"]` and `seconds["prepare"]`.

    commit: what `speculate` has returned in the same call.
    """
    start = time.perf_counter()
    last = last_solvers.pop(graph, None)
    if is_off("reuse"):
        last = None
    if last is not None and last.num_abandoned != _num_abandoned(last.solver):
        last = None  # what it has submitted may still run
    if last is not None:
        if commit is not None:
            commit()
        elif capabilities_of(last.solver).speculates:
            last.solver.forget_begun()
        last = _adapted(last, graph, selection, options, may_narrow)
    if last is not None:
        if options.device == "auto" and not may_narrow and last.masks is None:
            _move_to_gpu(last, graph)
        last.solver.refresh()
        last.num_abandoned = _num_abandoned(last.solver)
        seconds["prepare"] += time.perf_counter() - start
        last_solvers[graph] = last
        return last.solver
    structure = Structure(selection)
    kernels.check_stop()
    analyzed = time.perf_counter()
    seconds["analyze"] += analyzed - start
    solver = create_block_solver(graph, structure, options)
    seconds["prepare"] += time.perf_counter() - analyzed
    chosen_kernels = tuple([edges.edge_set.look("kernel").copy() for edges in selection.edges])
    last_solvers[graph] = _Prepared(
        graph.version,
        options,
        selection,
        _flags(graph, selection),
        chosen_kernels,
        tuple(map(kernels.fingerprint, chosen_kernels)),
        structure,
        solver,
        num_abandoned=_num_abandoned(solver),
    )
    return solver


def _num_abandoned(solver: BlockSolver) -> int:
    """Waits on the solver's device that were ended early, see `VulkanDevice.finishes`."""
    return getattr(getattr(solver, "device", None), "num_abandoned", 0)


def speculate(
    graph: Graph,
    options: SolverOptions,
    looks: Callable[[Structure], list[tuple[EdgeGroup, int]]],
    first_damping: Callable[[Structure, float], Damping | None],
) -> Callable[[], None] | None:
    """Let the graph's last block solver start, as if nothing but estimates had changed since.

    Called before that is known, so that a device works meanwhile; `prepared_solver` finds out. Returns what
    it takes, which goes on with the first trial once chi2 is there; None: nothing has started.
    """
    last = last_solvers.get(graph)
    if is_off("reuse") or is_off("speculation"):
        return None
    if last is None or last.version != graph.version or last.options != options or last.masks is not None:
        return None
    solver, structure = last.solver, last.structure
    if not capabilities_of(solver).speculates or last.num_abandoned != _num_abandoned(solver):
        return None
    solver.begin(looks(structure))
    return partial(solver.begin_trial, partial(first_damping, structure))


def _move_to_gpu(last: _Prepared, graph: Graph) -> None:
    """Give further calls a GPU's block solver where that has become the better choice of "auto"."""
    if last.stays or not capabilities_of(last.solver).may_move:
        return
    device = device_for_more(last.structure, last.options, factor_flops_of(last.solver))
    if device == "cpu":
        return
    try:
        last.solver = create_block_solver(graph, last.structure, replace(last.options, device=device))
    except FAILURES as error:
        say_why(error)
        last.stays = True


def edge_errors(graph: Graph, edge_set: EdgeSet) -> np.ndarray:
    """Errors (n, residual_dim) of all edges of a set at the graph's estimates, by all threads."""
    program = _error_program(edge_set.type)
    if sampled_runs(program):  # images are no inputs of a program
        return errors(graph, edge_set, np.arange(len(edge_set)))
    vertex_sets, vertex_rows, parameter_sets, parameter_rows = graph.edge_places(edge_set, None)
    tables = []
    for number, vertex in zip(vertex_sets, edge_set.type.vertices, strict=True):
        estimate = graph.vertex_sets[number].estimate
        if vertex.working is not None:
            estimate = np.asarray(vertex.working.encode(estimate))
        tables.append(np.ascontiguousarray(estimate))
    measured = np.ascontiguousarray(edge_set.look("measurement"))
    return kernels.edge_outputs(
        program.native,
        tables,
        np.ascontiguousarray(vertex_rows),
        [np.ascontiguousarray(graph.parameter_sets[number].values) for number in parameter_sets],
        np.ascontiguousarray(parameter_rows),
        [(measured, list(range(measured.shape[1])))] if measured.shape[1] else [],
        None,
    )


@per_type_cache
def _error_program(kind: EdgeType) -> Program:
    return compile_errors(working_edge_type(kind))


_others: list[Callable[[Graph], None]] = []


def on_forget(forget_also: Callable[[Graph], None]) -> None:
    """Who else keeps something of graphs, to be told when one is to be forgotten."""
    _others.append(forget_also)


def forget(graph: Graph) -> None:
    """Release the graph's block solver, or those of its ranks, and their memory."""
    last_solvers.pop(graph, None)
    for forget_also in _others:
        forget_also(graph)
    forget_rewritten(graph)
    forget_selection(graph)


def _adapted(
    last: _Prepared, graph: Graph, selection: Selection, options: SolverOptions, may_narrow: bool
) -> _Prepared | None:
    """The last one for this selection, None if it does not serve for it."""
    if last.version != graph.version or (last.options is not options and last.options != options):
        return None
    if selection is last.selection:
        chosen = None
    elif selection.whole is last.selection:
        chosen = selection.masks
    else:
        chosen = _masks(last, graph, selection)
        if chosen is None:
            return None
    if not _same_kernels(last, selection) or not _same_information(last):
        return None
    if chosen is None or selection.num_active_edges == last.selection.num_active_edges:
        return _narrowed(last, None)
    solver = last.solver
    if not may_narrow or last.structure.external or not capabilities_of(solver).narrow:
        return None
    numbers = {id(edges.edge_set): number for number, edges in enumerate(last.selection.edges)}
    masks = [chosen[numbers[id(group.edge_set)]] for group in last.structure.groups]
    rows = [group.chosen_rows for group in last.structure.groups]
    return _narrowed(last, tuple([m if r is None else m[r] for m, r in zip(masks, rows, strict=True)]))


def _narrowed(last: _Prepared, masks: tuple[np.ndarray, ...] | None) -> _Prepared:
    """Let these edges of each group take part, None: all."""
    if masks is None and last.masks is None:
        return last
    assert capabilities_of(last.solver).narrow
    if masks is None:
        chosen = [np.ones(len(group.rows), bool) for group in last.structure.groups]
    else:
        chosen = list(masks)
    last.solver.choose_edges(chosen)
    last.masks = masks
    return last


def _masks(last: _Prepared, graph: Graph, selection: Selection) -> tuple[np.ndarray, ...] | None:
    """Per edge set of the last selection (n,) bool who is selected; None for other edges or flags."""
    places = {id(edges.edge_set): number for number, edges in enumerate(last.selection.edges)}
    chosen = [np.zeros(len(edges.edge_set), bool) for edges in last.selection.edges]
    for edges in selection.edges:
        number = places.get(id(edges.edge_set))
        if number is None:
            return None
        old, mask = last.selection.edges[number], chosen[number]
        mask[edges.rows] = True
        among = mask[old.rows]
        if np.count_nonzero(among) != len(edges.rows):
            return None
        if edges.source is None or edges.source is not old.source:
            then, now = (
                (old.vertex_rows[among], old.parameter_rows[among]),
                (edges.vertex_rows, edges.parameter_rows),
            )
            if not all(map(np.array_equal, then, now)):
                return None
    return tuple(chosen) if last.flags == _flags(graph, selection) else None


def _flags(graph: Graph, selection: Selection) -> tuple[bytes, ...]:
    """Per vertex set who is optimized, then per vertex set who is marginalized."""
    free = [selection.free(number).tobytes() for number in range(len(selection.vertex_sets))]
    return (*free, *(vertex_set.marginalized.tobytes() for vertex_set in graph.vertex_sets))


def _same_kernels(last: _Prepared, selection: Selection) -> bool:
    """The selected edges have the robust kernels that the programs are for."""
    found = zip(last.selection.edges, last.kernels, last.kernel_digests, strict=True)
    then = {id(edges.edge_set): (kernel, digest) for edges, kernel, digest in found}
    for edges in selection.edges:
        before, digest = then[id(edges.edge_set)]
        if edges.edge_set.fingerprint("kernel") == digest:
            continue
        if (edges.edge_set.look("kernel")[edges.rows] != before[edges.rows]).any():
            return False
    return True


def _same_information(last: _Prepared) -> bool:
    """The information matrices are as the programs expect."""
    return all(
        [
            information_variant(group.edge_set, group.rows) == group.information
            for group in last.structure.groups
        ]
    )
