"""Prepare a block solver, or take the graph's last one if nothing of its structure changed.

Analysis and compilation cost more than solving a small problem. A graph that is optimized again with the same
vertices, edges, fixed and marginalized flags, levels, kernels and options gets its block solver back, with
new estimates, measurements, information matrices and kernel widths.

With `may_narrow` also if some edges have dropped out (SLAM systems switch off outliers) while all vertices
still have edges: the structure stays that of all edges, and only the block solver knows who takes part.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from graphopt.graph import Graph, Selection
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.registry import SolverOptions, create_block_solver
from graphopt.solver.structure import Structure, information_variant


@dataclass(frozen=True, eq=False)
class _Prepared:
    version: int
    options: SolverOptions
    selection: Selection
    flags: tuple[bytes, ...]
    """Who is optimized and who is marginalized, see `_flags`."""
    kernels: tuple[np.ndarray, ...]
    structure: Structure
    solver: BlockSolver
    is_narrowed: bool = False


_last: WeakKeyDictionary[Graph, _Prepared] = WeakKeyDictionary()


def prepared_solver(
    graph: Graph,
    selection: Selection,
    options: SolverOptions,
    seconds: dict[str, float],
    may_narrow: bool = False,
) -> BlockSolver:
    """The block solver for a selection; adds to `seconds["analyze"]` and `seconds["prepare"]`."""
    start = time.perf_counter()
    last = _last.pop(graph, None)
    if last is not None:
        last = _adapted(last, graph, selection, options, may_narrow)
    if last is not None:
        last.solver.refresh()
        seconds["prepare"] += time.perf_counter() - start
        _last[graph] = last
        return last.solver
    structure = Structure(selection)
    analyzed = time.perf_counter()
    seconds["analyze"] += analyzed - start
    solver = create_block_solver(graph, structure, options)
    seconds["prepare"] += time.perf_counter() - analyzed
    _last[graph] = _Prepared(
        graph.version,
        options,
        selection,
        _flags(graph, selection),
        tuple(edges.edge_set.kernel[edges.rows] for edges in selection.edges),
        structure,
        solver,
    )
    return solver


def forget(graph: Graph) -> None:
    """Release the graph's block solver and its memory."""
    _last.pop(graph, None)


def _adapted(
    last: _Prepared, graph: Graph, selection: Selection, options: SolverOptions, may_narrow: bool
) -> _Prepared | None:
    """The last one for this selection, None if it does not serve for it."""
    if last.version != graph.version or last.options != options:
        return None
    masks = _masks(last, selection)
    if masks is None or last.flags != _flags(graph, selection) or not _same_information(last):
        return None
    is_narrow = not all(mask.all() for mask in masks)
    has_external = bool(last.structure.external)
    if is_narrow and (has_external or not (may_narrow and isinstance(last.solver, CpuBlockSolver))):
        return None
    if (is_narrow or last.is_narrowed) and isinstance(last.solver, CpuBlockSolver):
        last.solver.choose_edges(masks[: len(last.structure.groups)])
    return last if is_narrow == last.is_narrowed else replace(last, is_narrowed=is_narrow)


def _masks(last: _Prepared, selection: Selection) -> list[np.ndarray] | None:
    """Per group of the structure, external ones last, who is selected; None if there are others."""
    places = {id(edges.edge_set): number for number, edges in enumerate(last.selection.edges)}
    chosen: dict[int, np.ndarray] = {}
    for edges in selection.edges:
        number = places.get(id(edges.edge_set))
        if number is None:
            return None
        old, kernels = last.selection.edges[number], last.kernels[number]
        mask = np.zeros(len(edges.edge_set), bool)
        mask[edges.rows] = True
        among = mask[old.rows]
        if np.count_nonzero(among) != len(edges.rows):
            return None
        if not (edges.edge_set.kernel[edges.rows] == kernels[among]).all():
            return None
        if edges.source is None or edges.source is not old.source:
            then, now = (
                (old.vertex_rows[among], old.parameter_rows[among]),
                (edges.vertex_rows, edges.parameter_rows),
            )
            if not all(map(np.array_equal, then, now)):
                return None
        chosen[id(edges.edge_set)] = mask
    none = np.zeros(max(len(edges.edge_set) for edges in last.selection.edges), bool)
    groups = (*last.structure.groups, *last.structure.external)
    return [chosen.get(id(group.edge_set), none)[group.rows] for group in groups]


def _flags(graph: Graph, selection: Selection) -> tuple[bytes, ...]:
    """Per vertex set who is optimized, then per vertex set who is marginalized."""
    free = [selection.free(number).tobytes() for number in range(len(selection.vertex_sets))]
    return (*free, *(one.marginalized.tobytes() for one in graph.vertex_sets))


def _same_information(last: _Prepared) -> bool:
    """The information matrices are as the programs expect."""
    return all(
        information_variant(group.edge_set, group.rows) == group.information
        for group in last.structure.groups
    )
