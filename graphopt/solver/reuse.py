"""Prepare a block solver, or take the graph's last one if nothing of its structure changed.

Analysis and compilation cost more than solving a small problem. A graph that is optimized again with the same
vertices, edges, fixed and marginalized flags, levels, kernels and options gets its block solver back, with
new estimates, measurements, information matrices and kernel widths. Where device "auto" has taken the CPU,
this is where it may think again (`auto_device`).

The solver of one graph also serves a second one of the same structure, such as a copy, while nobody uses it:
`lend` says so.

With `may_narrow` also if some edges have dropped out (SLAM systems switch off outliers) while all vertices
still have edges: the structure stays that of all edges, and only the block solver knows who takes part.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.device import open_device
from graphopt.graph import Graph, Selection
from graphopt.graph.select import forget as forget_selection
from graphopt.graph.selection import EdgeSelection
from graphopt.linear.options import SolverOptions
from graphopt.problem.rewrite import forget as forget_rewritten
from graphopt.problem.structure import EdgeGroup, Structure, information_variant
from graphopt.solver.auto_device import FAILURES, choose_device, device_for_more, say_why
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.capabilities import capabilities_of, factor_flops_of
from graphopt.solver.create import create_block_solver
from graphopt.solver.trial import Damping
from graphopt.switches import is_off


@dataclass(eq=False)
class _Prepared:
    version: int
    options: SolverOptions
    selection: Selection
    flags: tuple[bytes, ...]
    """Who is optimized and who is marginalized, see `_flags`."""
    kernels: tuple[bytes, ...]
    """Fingerprints of the robust kernels of each selected edge set."""
    structure: Structure
    solver: Any
    """A `BlockSolver`."""
    ids: tuple[bytes, ...]
    """Fingerprints of those of each vertex and parameter set."""
    settings: tuple[int, str]
    """What else solvers depend on, see `_settings`."""
    num_calls: float
    """That use the solver now; infinite where somebody may keep it."""
    masks: tuple[np.ndarray, ...] | None = None
    """Per group of the structure who takes part; None: all do."""
    stays: bool = False
    """A GPU has refused it: it stays on the CPU."""
    num_abandoned: float = 0
    """`_num_abandoned` of the solver when it was last taken."""
    use: object = field(default_factory=object)
    """See `last_use`."""


last_solvers: WeakKeyDictionary[Graph, _Prepared] = WeakKeyDictionary()
_lent: deque[tuple[weakref.ref[Graph], weakref.ref[_Prepared]]] = deque(maxlen=8)
"""Graphs whose solver another one may take, the last ones."""
MOST_OUTLIVING_BYTES = 1 << 25
"""Memory of a solver on the CPU that stays when its graph is gone, for the next one."""
_outliving: deque[_Prepared] = deque(maxlen=2)
_lending = threading.Lock()


def prepared_solver(
    graph: Graph,
    selection: Selection,
    options: SolverOptions,
    seconds: dict[str, float],
    may_narrow: bool = False,
    commit: Callable[[], None] | None = None,
    *,
    is_kept: bool = True,
) -> BlockSolver:
    """The block solver for a selection; adds to `seconds["analyze"]` and `seconds["prepare"]`.

    commit: what `speculate` has returned in the same call. is_kept: False: `lend` tells when nobody uses the
    solver any more.
    """
    start = time.perf_counter()
    last = _take_back(graph)
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
        last.num_abandoned, last.use = _num_abandoned(last.solver), object()
        last.num_calls += np.inf if is_kept else 1
        seconds["prepare"] += time.perf_counter() - start
        last_solvers[graph] = last
        return last.solver
    borrowed = None if is_off("reuse") else _borrow(graph, selection, options)
    structure = Structure(selection) if borrowed is None else borrowed.structure
    kernels.check_stop()
    analyzed = time.perf_counter()
    seconds["analyze"] += analyzed - start
    if borrowed is None:
        solver = create_block_solver(graph, structure, options)
    else:
        solver = borrowed.solver
        structure.rebind(selection)
        solver.rebind(graph)
    seconds["prepare"] += time.perf_counter() - analyzed
    last_solvers[graph] = _Prepared(
        graph.version,
        options,
        selection,
        _flags(graph, selection),
        _kernels(selection),
        structure,
        solver,
        _ids(selection),
        _settings(),
        num_abandoned=_num_abandoned(solver),
        num_calls=np.inf if is_kept else 1,
    )
    return solver


def last_use(graph: Graph) -> object | None:
    """Another object whenever somebody has taken the graph's solver since; None: it has none."""
    last = last_solvers.get(graph)
    return None if last is None or last.num_abandoned != _num_abandoned(last.solver) else last.use


def lend(graph: Graph) -> None:
    """A call that `prepared_solver` was asked by with `is_kept` False does not use the solver any more."""
    last = last_solvers.get(graph)
    if last is None:
        return
    last.num_calls -= 1
    if last.num_calls <= 0 and last.masks is None and capabilities_of(last.solver).rebinds:
        on_cpu = not hasattr(last.solver, "device")
        stays = on_cpu and last.solver.describe()["memory_bytes"] <= MOST_OUTLIVING_BYTES
        with _lending:
            _lent.append((weakref.ref(graph), weakref.ref(last)))
            _outliving.extend([last] if stays else [])


def _take_back(graph: Graph) -> _Prepared | None:
    """The graph's last one, which nobody else may take any more."""
    with _lending:
        last = last_solvers.pop(graph, None)
        if last is not None:
            _not_lent(last)
        return last


def _not_lent(last: _Prepared) -> None:
    for entry in [entry for entry in _lent if entry[1]() is last]:
        _lent.remove(entry)
    while last in _outliving:
        _outliving.remove(last)


def _borrow(graph: Graph, selection: Selection, options: SolverOptions) -> _Prepared | None:
    """Another graph's that serves this one, too; that one loses it."""
    with _lending:
        for owner, reference in reversed(_lent):
            last, lender = reference(), owner()
            if last is not None and _serves(last, graph, selection, options):
                _not_lent(last)
                if lender is not None and last_solvers.get(lender) is last:
                    del last_solvers[lender]
                return last
    return None


def _serves(last: _Prepared, graph: Graph, selection: Selection, options: SolverOptions) -> bool:
    """All that the solver was made for is the same, and on the device of these options it runs nothing."""
    then = last.selection
    if [len(one.rows) for one in then.edges] != [len(one.rows) for one in selection.edges]:
        return False
    if last.options != options or last.settings != _settings():
        return False
    return (
        _is_on(last, options.device)
        and last.num_abandoned == _num_abandoned(last.solver)
        and _types(then) == _types(selection)
        and last.ids == _ids(selection)
        and all(map(_same_edges, then.edges, selection.edges))
        and last.kernels == _kernels(selection)
        and last.flags == _flags(graph, selection)
        and all(
            information_variant(selection.edges[group.selection].edge_set, group.rows) == group.information
            for group in last.structure.groups
        )
    )


def _is_on(last: _Prepared, device: str) -> bool:
    """The solver is where a new one would be."""
    opened = getattr(last.solver, "device", None)
    if device == "auto":
        return opened is None and choose_device(last.structure, last.options) == "cpu"
    return opened is None or opened is open_device(device)


def _ids(selection: Selection) -> tuple[bytes, ...]:
    return tuple([one.fingerprint("ids") for one in (*selection.vertex_sets, *selection.parameter_sets)])


def _kernels(selection: Selection) -> tuple[bytes, ...]:
    return tuple([edges.edge_set.fingerprint("kernel") for edges in selection.edges])


def _types(selection: Selection) -> list[Any]:
    return [one.type for one in (*selection.vertex_sets, *selection.parameter_sets)]


def _same_edges(then: EdgeSelection, now: EdgeSelection) -> bool:
    """As many, they are of one type and name the same vertices and parameters, row by row."""
    last = [len(now.rows) - 1]  # ascending rows of as many that end with the last are all of them
    whole = then.rows[-1:].tolist() == now.rows[-1:].tolist() == last
    return (
        (then.edge_set.type, then.vertex_sets, then.parameter_sets)
        == (now.edge_set.type, now.vertex_sets, now.parameter_sets)
        and (whole or np.array_equal(then.rows, now.rows))
        and np.array_equal(then.vertex_rows, now.vertex_rows)
        and np.array_equal(then.parameter_rows, now.parameter_rows)
    )


def _settings() -> tuple[int, str]:
    """Number of threads, and what is switched off."""
    return kernels.num_threads(), os.environ.get("GRAPHOPT_WITHOUT", "")


def _num_abandoned(solver: BlockSolver) -> float:
    """Waits on the solver's device that were ended early, see `VulkanDevice.finishes`.

    Of a lost device, whose solvers serve nobody, NaN, which is no number of before.
    """
    device = getattr(solver, "device", None)
    return np.nan if getattr(device, "is_lost", False) else getattr(device, "num_abandoned", 0)


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
    last.use = object()
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


_others: list[Callable[[Graph], None]] = []


def on_forget(forget_also: Callable[[Graph], None]) -> None:
    """Who else keeps something of graphs, to be told when one is to be forgotten."""
    _others.append(forget_also)


def forget(graph: Graph) -> None:
    """Release the graph's block solver, or those of its ranks, and their memory."""
    _take_back(graph)
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
    then = {
        id(edges.edge_set): digest for edges, digest in zip(last.selection.edges, last.kernels, strict=True)
    }
    chosen = {id(edges.edge_set): edges.rows for edges in selection.edges}
    for group in (*last.structure.groups, *last.structure.external):
        edge_set = group.edge_set
        if edge_set.fingerprint("kernel") == then[id(edge_set)]:
            continue
        changed = group.rows[edge_set.look("kernel")[group.rows] != group.kernel]
        if len(changed) and np.isin(changed, chosen.get(id(edge_set), ())).any():
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
