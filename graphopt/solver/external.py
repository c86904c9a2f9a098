"""Edges that somebody else evaluates: what they need from a block solver.

    read_estimates()    their vertices' estimates, where Python can look at them
    add(values, b)      their part of H and b, after `linearize`
    write_estimates()   estimates of vertices that Python moves itself

H, b and chi2 of all other edges stay the block solver's business; `structure.external` has the places of
these edges in H. `BlockSolver.external(places)` returns an `ExternalPart`.

    estimates(number)   they, as an array of CUDA's
    add(numbers)        terms of H and b in memory of CUDA's

Where a CUDA device is the block solver's, `ExternalPart.on_cuda` returns a `CudaPart`, and nothing but chi2
comes to the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graphopt.foreign_arrays import CudaNumbers


@dataclass(frozen=True, eq=False)
class ExternalPlaces:
    """Where external edges read and add."""

    vertices: dict[int, np.ndarray]
    """Number of a vertex set -> (k,) ascending rows of vertices that the edges have, or that Python moves."""
    values: np.ndarray
    """(n,) int64, all different: scalars of `values` to add to."""
    b: np.ndarray
    """(m,) int64, all different: scalars of `b` to add to."""


class ExternalPart(Protocol):
    """What `BlockSolver.external` returns."""

    def read_estimates(self) -> None:
        """Bring the present estimates of the vertices into the graph's arrays."""
        ...

    def write_estimates(self, number: int, rows: np.ndarray) -> None:
        """Take the graph's estimates of some of these vertices, of vertex set `number`."""
        ...

    def add(self, values: np.ndarray, b: np.ndarray) -> None:
        """Add (n,) numbers to H and (m,) numbers to b of the last `linearize`."""
        ...

    def on_cuda(self, ordinal: int, terms: Terms) -> CudaPart | None:
        """The same on a device of CUDA's, None: the block solver is not there."""
        ...


@dataclass(frozen=True, eq=False)
class Terms:
    """Where the numbers of one array are added."""

    values: np.ndarray
    """(k,) int64 place among `ExternalPlaces.values`, -1: not there."""
    b: np.ndarray
    """(k,) the same among `ExternalPlaces.b`."""


class CudaPart(Protocol):
    """What `ExternalPart.on_cuda` returns."""

    def estimates(self, number: int) -> Any:
        """`CudaArray` (n, dim) of the present estimates of a vertex set, in their working form."""
        ...

    def add(self, numbers: CudaNumbers) -> None:
        """Add (k,) float64 numbers where `Terms` says, after the last `linearize`."""
        ...


class HostExternal:
    """For block solvers that linearise on the CPU."""

    def __init__(self, solver: Any, places: ExternalPlaces):
        self._solver = solver
        self._places = places

    def read_estimates(self) -> None:
        """See `ExternalPart`: all of them, which costs nothing."""
        self._solver.finish()

    def write_estimates(self, number: int, rows: np.ndarray) -> None:
        """See `ExternalPart`."""
        self._solver.take_estimates(number, rows)

    def add(self, values: np.ndarray, b: np.ndarray) -> None:
        """See `ExternalPart`."""
        with self._solver.changing_equations():
            self._solver.values[self._places.values] += values
            self._solver.b[self._places.b] += b

    def on_cuda(self, ordinal: int, terms: Terms) -> CudaPart | None:
        """See `ExternalPart`: never there."""
        return None
