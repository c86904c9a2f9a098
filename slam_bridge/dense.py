"""H, b and chi2 of a small graph as dense matrices, on the CPU, for marginalization."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

import graphopt
from graphopt import SolverOptions
from graphopt.cpu_kernels import kernels
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver


def dense_system(graph: graphopt.Graph) -> tuple[np.ndarray, np.ndarray, dict[int, slice]]:
    """H (d, d), b (d,) = -J' Omega e at the graph's estimates, and where each free vertex (id) is in them."""
    structure = Structure(graph.select())
    solver = CpuBlockSolver(graph, structure, SolverOptions(device="cpu", linear_solver="dense", schur="off"))
    solver.linearize()
    return dense_hessian(solver), solver.b.copy(), places_of(structure)


def dense_hessian(solver: CpuBlockSolver) -> np.ndarray:
    """H (d, d) of a block solver's last linearization."""
    structure = solver.structure
    if structure not in _PLACES:
        _PLACES[structure] = _places_of_values(structure)
    h = np.zeros((structure.dim, structure.dim))
    lower, upper = _PLACES[structure]
    h.ravel()[lower] = solver.values
    h.ravel()[upper] = solver.values
    return h


_PLACES: WeakKeyDictionary[Structure, tuple[np.ndarray, np.ndarray]] = WeakKeyDictionary()


def _places_of_values(structure: Structure) -> tuple[np.ndarray, np.ndarray]:
    """Where each of a solver's values stands in a dense H, and where its mirror image."""
    offsets, ends = structure.offsets, structure.pattern.value_offsets
    every = np.arange(structure.dim**2).reshape(structure.dim, structure.dim)
    places = np.zeros((2, structure.values_size), np.int64)
    columns = np.repeat(np.arange(structure.num_blocks), np.diff(structure.pattern.col_ptr))
    for place, (row, column) in enumerate(
        zip(structure.pattern.row_idx.tolist(), columns.tolist(), strict=True)
    ):
        height, width = structure.dims[row], structure.dims[column]
        rows, across = (
            slice(offsets[start], offsets[start] + size) for start, size in ((row, height), (column, width))
        )
        places[0, ends[place] : ends[place + 1]] = every[rows, across].T.ravel()
        places[1, ends[place] : ends[place + 1]] = every[across, rows].ravel()
    return places[0], places[1]


def places_of(structure: Structure) -> dict[int, slice]:
    """Rows of H of each free vertex."""
    offsets = structure.offsets.tolist()
    return {
        id_: slice(offsets[k], offsets[k + 1])
        for k, id_ in enumerate(structure.ids[: structure.num_blocks].tolist())
    }


def eliminated(h: np.ndarray, b: np.ndarray, gone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """H and b of the scalars that stay, once those of `gone` (d,) bool are minimised over (Schur complement).

    Directions of the eliminated block that nothing measures (an eigenvalue below 1e-10 of the largest, after
    scaling its diagonal to 1) are left out: they say nothing about the others.
    """
    keep: np.ndarray | slice = ~gone
    left: np.ndarray | slice = gone
    first = len(gone) - int(np.count_nonzero(gone))
    if gone[first:].all():  # the last ones: no copies
        if len(gone) <= _SMALL:
            found = kernels.eliminate_last(h, b, first, _SAFE)
            if found is not None:
                return found
        keep, left = slice(0, first), slice(first, len(gone))
    size, block = _scaled(h[left][:, left])
    known = np.empty((first + 1, len(size)))
    np.divide(h[keep][:, left], size, out=known[:-1])
    np.divide(b[left], size, out=known[-1])
    half = _half(block, known)
    if half is None:
        values, vectors = np.linalg.eigh(block)
        good = values > _OPEN * max(float(values.max(initial=0.0)), 1e-300)
        half = (vectors[:, good].T @ known.T) / np.sqrt(values[good])[:, None]
    reduced = h[keep][:, keep] - half[:, :-1].T @ half[:, :-1]
    return 0.5 * (reduced + reduced.T), b[keep] - half[:, :-1].T @ half[:, -1]


def _half(block: np.ndarray, known: np.ndarray) -> np.ndarray | None:
    """L^-1 known' of Cholesky's factor L of a scaled block (g, g), known (k, g); None as of `_factor`.

    One factorization of [[block, known'], [known, huge]] has both.
    """
    size = len(block)
    joined = np.zeros((size + len(known), size + len(known)))
    joined.ravel()[:: len(joined) + 1] = _HUGE
    joined[:size, :size], joined[size:, :size] = block, known  # the lower triangle is read
    factor = _factor(joined, size)
    return None if factor is None else factor[size:, :size].T


def offset_of(h: np.ndarray, b: np.ndarray) -> np.ndarray:
    """m with H m = b in the least squares sense: the minimum of d' H d - 2 b' d."""
    if len(h) <= _SMALL:
        found = kernels.solve_scaled(h, b, _SAFE)
        if found is not None:
            return found
    size, block = _scaled(h)
    if _factor(block) is not None:
        return np.linalg.solve(block, b / size) / size
    values, vectors = np.linalg.eigh(block)
    good = values > _OPEN * max(float(values.max(initial=0.0)), 1e-300)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=good)
    return (vectors @ (inverse * (vectors.T @ (b / size)))) / size


_OPEN = 1e-10
"""Eigenvalues below this share of the largest are directions that nothing measures."""
_SMALL = 64
"""Scalars up to which a plain native loop is faster than numpy with LAPACK."""
_HUGE = 1e200
"""Makes any rows below a block a positive definite matrix."""
_SAFE = 1e-3
"""Smallest entry of a factor's diagonal that no direction without measurement has."""


def _scaled(h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Square roots of the diagonal, and H with a diagonal of ones.

    What is left of a diagonal by rounding alone, where nothing measures, stays small.
    """
    diagonal = h.diagonal()
    rounding = np.finfo(float).eps * diagonal.max(initial=0.0)
    size = np.sqrt(np.maximum(diagonal, max(rounding, 1e-300)))
    return size, h / size / size[:, None]


def _factor(block: np.ndarray, size: int | None = None) -> np.ndarray | None:
    """Cholesky's factor of a scaled block; None where a direction may be open, which takes eigenvalues.

    size: only so many rows are the block's, and looked at.
    """
    try:
        factor = np.linalg.cholesky(block)
    except np.linalg.LinAlgError:
        return None
    diagonal = factor.diagonal()[:size]
    return factor if len(diagonal) and diagonal.min() > _SAFE else None
