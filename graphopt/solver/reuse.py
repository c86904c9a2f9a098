"""Prepare a block solver, or take the graph's last one if nothing of its structure changed.

Analysis and compilation cost more than solving a small problem. A graph that is optimized again with the same
vertices, edges, fixed and marginalized flags, levels, kernels and options gets its block solver back, with
new estimates, measurements, information matrices and kernel widths.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from graphopt.graph import Graph, Selection
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.registry import SolverOptions, create_block_solver
from graphopt.solver.structure import Structure, information_variant


@dataclass(frozen=True, eq=False)
class _Prepared:
    version: int
    options: SolverOptions
    selection: Selection
    marginalized: tuple[np.ndarray, ...]
    kernels: tuple[np.ndarray, ...]
    structure: Structure
    solver: BlockSolver


_last: WeakKeyDictionary[Graph, _Prepared] = WeakKeyDictionary()


def prepared_solver(
    graph: Graph, selection: Selection, options: SolverOptions, seconds: dict[str, float]
) -> BlockSolver:
    """The block solver for a selection; adds to `seconds["analyze"]` and `seconds["prepare"]`."""
    start = time.perf_counter()
    last = _last.pop(graph, None)
    if last is not None and _fits(last, graph, selection, options):
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
        tuple(one.marginalized.copy() for one in graph.vertex_sets),
        tuple(edges.edge_set.kernel[edges.rows] for edges in selection.edges),
        structure,
        solver,
    )
    return solver


def forget(graph: Graph) -> None:
    """Release the graph's block solver and its memory."""
    _last.pop(graph, None)


def _fits(last: _Prepared, graph: Graph, selection: Selection, options: SolverOptions) -> bool:
    """Nothing that the structure depends on has changed."""
    same = np.array_equal
    old = last.selection
    return (
        last.version == graph.version
        and last.options == options
        and len(old.edges) == len(selection.edges)
        and all(map(same, old.fixed, selection.fixed))
        and all(map(same, last.marginalized, (one.marginalized for one in graph.vertex_sets)))
        and all(
            a.edge_set is b.edge_set
            and same(a.rows, b.rows)
            and same(a.vertex_rows, b.vertex_rows)
            and same(a.parameter_rows, b.parameter_rows)
            and same(kernels, b.edge_set.kernel[b.rows])
            for a, b, kernels in zip(old.edges, selection.edges, last.kernels, strict=True)
        )
        and all(
            information_variant(group.edge_set, group.rows) == group.information
            for group in last.structure.groups
        )
    )
