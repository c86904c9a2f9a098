"""Marginal covariances: blocks of inv(H) at the present estimates.

    Cov(x_i, x_j) = [inv(H)]_ij,   H = sum J' w Omega J        in the tangent spaces of the vertices

H is singular while the graph can move without changing an error: as a whole, in parts that are not connected,
or along what no edge sees. Those directions are found and named; `singular` says what to do about them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from graphopt.errors import GraphError, OptionError, SolverError
from graphopt.graph import Graph, Vertex
from graphopt.host_memory import memory_for
from graphopt.linear import BlockPattern
from graphopt.linear.null_space import (
    GeneralizedInverse,
    NullSpace,
    diagonal_of,
    find_null_space,
)
from graphopt.linear.options import SolverOptions
from graphopt.linear.schur import SchurComplement
from graphopt.problem.fixed_components import FIXED_COMPONENTS
from graphopt.problem.gauge import choose_gauge
from graphopt.problem.inline import with_values_inlined
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.devices import device_row
from graphopt.suggestions import knows_its_options

Pair = tuple[int, int]
SINGULAR_CHOICES = ("error", "hold", "damp", "pseudo-inverse")
DAMPING = 1e-8
"""Of "damp": share of H's diagonal that is added to it."""
_GROWTH = 1e12  # of a vector under inv(H) D: beyond, H is singular up to rounding
_NAMED = 8  # vertices in a message
_FEW = 16  # held scalars, up to which conditioning takes less than making a graph of the others
_STIFF = 2.0**20  # of springs on held scalars, to the diagonal of H


def _too_large() -> str:
    return "covariances need more than the system gives: name fewer vertices, poses without landmarks first."


@knows_its_options
@memory_for(_too_large)
def compute_marginals(
    graph: Graph, pairs: Iterable[Any], *, level: int = 0, singular: str = "error", device: str = "cpu"
) -> dict[Pair, np.ndarray]:
    """Covariance blocks of pairs of vertices: {(id_i, id_j): (tangent_dim_i, tangent_dim_j)}.

    Of vertices that hold components (`Graph.hold`) the blocks have the others only.

    `pairs` holds (id, id) pairs, or single ids (or `Vertex` objects) for a vertex with itself. `singular`,
    where H is singular: "error"; "hold" as few scalars as needed, whose covariance is then 0; "damp" H by
    1e-8 of its diagonal; "pseudo-inverse", the covariance within what the errors see. `device`: "cpu" or
    "vulkan" (also "vulkan:1"), where the factorization and the blocks of the inverse are computed.

    Raises `GraphError` for a vertex that is fixed or has no active edge, `SolverError` if H is singular and
    `singular` is "error"; it names the vertices that can move.
    """
    if singular not in SINGULAR_CHOICES:
        raise OptionError(f"singular is {singular!r}, expected one of {', '.join(SINGULAR_CHOICES)}.")
    requested = [_pair(pair) for pair in pairs]
    ids = np.array(requested, np.int64).reshape(-1, 2)
    found = None if singular == "damp" else _with_few_held(graph, level, ids, device)
    if found is None:
        graph, structure = _structure(graph, level)
        blocks = _blocks(graph, structure, ids)
        found = _inverse(graph, structure, singular, device, blocks).marginals(blocks)
    return dict(zip(requested, found, strict=True))


@knows_its_options
@memory_for(_too_large)
def compute_covariances(
    graph: Graph,
    ids: Iterable[Any] | None = None,
    *,
    level: int = 0,
    singular: str = "error",
    device: str = "cpu",
) -> dict[int, np.ndarray]:
    """Covariances of optimized vertices, poses and landmarks, in one call: {id: (tangent_dim,) * 2}.

    `ids`: of which (ids or `Vertex` objects), by default of all. Landmarks that are not named are eliminated
    only, so all poses of a bundle adjustment take a small part of the time of everything. Options and errors
    as of `compute_marginals`.
    """
    if ids is not None:
        found = compute_marginals(graph, ids, level=level, singular=singular, device=device)
        return {vertex_id: block for (vertex_id, _), block in found.items()}
    if singular not in SINGULAR_CHOICES:
        raise OptionError(f"singular is {singular!r}, expected one of {', '.join(SINGULAR_CHOICES)}.")
    graph, structure = _structure(graph, level)
    every = np.arange(structure.num_blocks, dtype=np.int32)
    pairs = np.stack([every, every], axis=1)
    found = _inverse(graph, structure, singular, device, pairs).marginals(pairs)
    return dict(zip(structure.ids.tolist(), found, strict=True))


@knows_its_options
def find_singular_directions(graph: Graph, *, level: int = 0) -> tuple[dict[int, np.ndarray], str]:
    """Directions in which the graph can move without changing an error, and a sentence about them.

    {id: (k, tangent_dim)}: how each optimized vertex that moves does so, in its tangent space, in each of k
    orthonormal directions. Empty if H is regular.
    """
    _, structure, values = _linearized(graph, level)
    space = find_null_space(structure.pattern, values, structure.num_kept)
    offsets, moved = space.pattern.offsets, space.moved_blocks() if space.num_directions else []
    parts = {int(structure.ids[k]): space.basis[offsets[k] : offsets[k + 1]].T.copy() for k in moved}
    return parts, describe(space, structure)


def describe(space: NullSpace, structure: Structure) -> str:
    """Which vertices move, most moved first."""
    if space.num_directions == 0:
        return "H is regular: nothing moves without changing an error."
    ids = structure.ids[space.moved_blocks()].tolist()
    names = ", ".join(map(str, ids[:_NAMED]))
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    many = "direction moves" if space.num_directions == 1 else "directions move"
    return f"{space.num_directions} {many} vertex {names}{more} without changing an error"


def _structure(graph: Graph, level: int) -> tuple[Graph, Structure]:
    """The graph without fixed components, and its structure."""
    problem = with_values_inlined(graph, graph.select(level)).apply(FIXED_COMPONENTS)
    return problem.graph, Structure(problem.selection)


def _linearized(graph: Graph, level: int) -> tuple[Graph, Structure, np.ndarray]:
    """The same, and H."""
    graph, structure = _structure(graph, level)
    return graph, structure, _values(graph, structure)


def _values(graph: Graph, structure: Structure) -> np.ndarray:
    """H on its block pattern."""
    solver = CpuBlockSolver(graph, structure, SolverOptions())
    solver.linearize()
    if not np.isfinite(solver.values).all():
        what = solver.first_non_finite() or "H overflows: Jacobians or informations are too large."
        raise SolverError(f"There are no covariances: {what}")
    return solver.values


def _inverse(graph: Graph, structure: Structure, singular: str, device: str, pairs: np.ndarray) -> Any:
    """Something with `marginals` of these pairs of blocks (n, 2)."""
    num_kept = structure.num_blocks
    if structure.has_schur and len(pairs) and pairs.max() < structure.num_kept:
        num_kept = structure.num_kept
    solver = _from_edges(graph, structure, singular, device, num_kept)
    if solver is not None:
        return solver
    pattern, values = structure.pattern, _values(graph, structure)
    damping = DAMPING * diagonal_of(pattern, values) if singular == "damp" else None
    system = _System(pattern, values, damping, num_kept)
    solver = system.factorized(device)
    if singular == "damp":
        if solver is None:
            raise SolverError("H is not positive definite even when damped. Check informations and kernels.")
        return solver
    diagonal = diagonal_of(pattern, values)[: pattern.offsets[num_kept]]
    if solver is not None and not _is_singular(solver, diagonal):
        return solver
    space = find_null_space(pattern, values, structure.num_kept, system.complement)
    if singular == "error" or space.num_directions == 0:
        raise SolverError(
            f"H is singular, so there are no covariances: {describe(space, structure)}. "
            f"{_what_optimize_holds(graph, structure)}Fix a vertex of each connected part, add a prior, or "
            "pass singular='hold', 'damp' or 'pseudo-inverse'."
        )
    size = int(pattern.offsets[num_kept])
    if singular == "hold" and space.scalars_to_hold().max() < size:
        return GeneralizedInverse(space, values, singular, partial(system.factorized, device), size)
    return GeneralizedInverse(space, values, singular)


def _from_edges(graph: Graph, structure: Structure, singular: str, device: str, num_kept: int) -> Any:
    """A solver from edges that the device evaluates; None where it cannot, or H is singular."""
    factor_of_edges = device_row(device).factor_of_edges
    if factor_of_edges is None:
        return None
    damping, eliminates = DAMPING * (singular == "damp"), num_kept < structure.num_blocks
    found = factor_of_edges(graph, structure, device, damping, eliminates=eliminates)
    if found is None:
        return None
    solver, diagonal = found
    kept = diagonal[: structure.offsets[num_kept]]
    return solver if singular == "damp" or not _is_singular(solver, kept) else None


def _with_few_held(graph: Graph, level: int, ids: np.ndarray, device: str) -> list[np.ndarray] | None:
    """Blocks of pairs of vertices (n, 2), where few components are held: no other graph has to be made.

        C = inv(H + E S E'),   Cov = C - C E inv(E' C E) E' C        columns of E: the held scalars

    for any springs S > 0 on them. None: nothing or much is held, or H is singular all the same.
    """
    problem = with_values_inlined(graph, graph.select(level))
    graph, held = problem.graph, _few_held(problem.selection)
    if held is None:
        return None
    structure = Structure(problem.selection)
    blocks = _blocks(graph, structure, ids)
    held_blocks = [structure.block_of(number, row) for number, row, _ in held]
    firsts = structure.offsets[held_blocks].tolist()
    scalars = np.array([first + place[-1] for first, place in zip(firsts, held, strict=True)], np.int64)
    num_kept = structure.num_blocks
    if structure.has_schur and max(blocks.max(initial=0), *held_blocks) < structure.num_kept:
        num_kept = structure.num_kept
    solver = _sprung(graph, structure, device, scalars, num_kept)
    if solver is None:
        return None
    sides = np.zeros((structure.offsets[num_kept], len(scalars)))
    sides[scalars, np.arange(len(scalars))] = 1.0
    columns = solver.solve(sides)
    weighted = columns @ np.linalg.inv(columns[scalars])
    offsets, are_held, found = structure.offsets[: num_kept + 1].tolist(), set(held_blocks), []
    for block, (i, j) in zip(solver.marginals(blocks), blocks.tolist(), strict=True):
        rows, cols = range(offsets[i], offsets[i + 1]), range(offsets[j], offsets[j + 1])
        part = block - weighted[rows.start : rows.stop] @ columns[cols.start : cols.stop].T
        if i in are_held or j in are_held:
            part = part[np.ix_(~np.isin(rows, scalars), ~np.isin(cols, scalars))]
        found.append(part)
    return found


def _few_held(selection: Any) -> list[tuple[int, int, int]] | None:
    """Vertex set, row and component of what is held of free vertices; None: none, too much, or all of one."""
    found: list[tuple[int, int, int]] = []
    for number, vertices in enumerate(selection.vertex_sets):
        if not vertices.has_room_for_components:
            continue
        held = vertices.look("held") & selection.free(number)[:, None]
        rows, components = np.nonzero(held)
        if len(found) + len(rows) > _FEW or held.all(axis=1).any():
            return None
        found += [(number, *place) for place in zip(rows.tolist(), components.tolist(), strict=True)]
    return found or None


def _sprung(graph: Graph, structure: Structure, device: str, scalars: np.ndarray, num_kept: int) -> Any:
    """A solver of H with springs on some scalars; None where that is singular or not finite."""
    eliminates = num_kept < structure.num_blocks
    factor_of_edges = device_row(device).factor_of_edges or (lambda *_, **__: None)
    found = factor_of_edges(graph, structure, device, _STIFF, eliminates=eliminates, on=scalars)
    if found is not None:
        solver, diagonal = found
    else:
        pattern, values = structure.pattern, _values(graph, structure)
        diagonal, springs = diagonal_of(pattern, values), np.zeros(pattern.dim)
        springs[scalars] = _STIFF * diagonal[scalars]
        solver = _System(pattern, values, springs, num_kept).factorized(device)
    kept = diagonal[: structure.offsets[num_kept]]
    return None if solver is None or _is_singular(solver, kept) else solver


def _what_optimize_holds(graph: Graph, structure: Structure) -> str:
    """A sentence about the automatic gauge of `optimize`, "" where it holds nothing."""
    sets = structure.selection.vertex_sets
    ids = [int(sets[number].ids[row]) for number, row in choose_gauge(graph, structure.selection)]
    if not ids:
        return ""
    names = ", ".join(map(str, ids[:_NAMED])) + (
        f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    )
    return (
        f"optimize() holds vertex {names} in its call only (summary.fixed_by_gauge); "
        f"graph.set_fixed({ids[:_NAMED]}) holds it here as well. "
    )


class _System:
    """H, or where not all blocks are kept S, whose inverse is the part of H's that belongs to those."""

    complement: SchurComplement | None = None
    """Formed once; None: of H, or not positive definite."""

    def __init__(self, pattern: BlockPattern, values: np.ndarray, damping: np.ndarray | None, num_kept: int):
        self._system = pattern, values, damping
        if num_kept < pattern.num_blocks:
            complement = SchurComplement(pattern, num_kept)
            if complement.form(values, damping, np.zeros(pattern.dim)):
                self.complement = complement
                self._system = complement.reduced_pattern, complement.reduced_values, None
            self._is_positive = self.complement is not None
        else:
            self._is_positive = True

    def factorized(self, device: str, springs: np.ndarray | None = None) -> Any:
        """A solver on the device; None if not positive definite. springs (dim,): added, of what is kept."""
        factorization = device_row(device).cholesky
        if factorization is None:
            raise OptionError(f"device '{device}' computes no covariances. Use device='cpu'.")
        if not self._is_positive:
            return None
        pattern, values, damping = self._system
        solver = factorization(pattern, device)
        added = damping if springs is None else np.ascontiguousarray(springs[: pattern.dim])
        return solver if solver.factorize(values, added) else None


def _is_singular(solver: Any, diagonal: np.ndarray) -> bool:
    """Whether rounding alone made the pivots positive: inv(H) D lets a vector grow beyond measure.

    diagonal: (k,) of H, as far as the solver's system goes.
    """
    root = np.sqrt(diagonal)
    x = np.random.default_rng(0).standard_normal(len(root))
    grown = root * solver.solve(root * x)
    return bool(np.linalg.norm(grown) > _GROWTH * np.linalg.norm(x))


def _pair(requested: Any) -> Pair:
    if isinstance(requested, (int, np.integer, Vertex)):
        requested = (requested, requested)
    first, second = (item.id if isinstance(item, Vertex) else int(item) for item in requested)
    return first, second


def _blocks(graph: Graph, structure: Structure, ids: np.ndarray) -> np.ndarray:
    """Blocks (n, 2) int32 of pairs of vertices."""
    sets, rows = graph.find_vertices(ids)
    if sets.min(initial=0) < 0:
        graph.vertex_place(int(ids[sets < 0][0]))  # raises
    blocks = np.empty(ids.shape, np.int32)
    for number, block_of in enumerate(structure.vertex_blocks):
        mine = sets == number
        blocks[mine] = block_of[rows[mine]]
    if blocks.min(initial=0) < 0:
        missing = ids[blocks < 0][0]
        raise GraphError(f"Vertex {missing} is fixed or has no active edge: it has no covariance.")
    return blocks
