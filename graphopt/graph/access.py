"""Which vertex each edge takes, per argument of the edge function: access as in Caspar.

    graph.add_edges(Reprojection, (indexed(cameras, camera_index), indexed(points, point_index)), pixels)
    graph.add_edges(Odometry, pairwise(poses), motions)                       # edge k: poses k and k + 1
    graph.add_edges(Prior, sequential(poses), measured_poses)                 # edge k: pose k
    graph.add_edges(Curve, unique(coefficients), samples)                     # every edge: the same vertex

The arrays are grids of vertices (`Graph.add_array`, `Graph.add_grid`), numbered in row-major order. Accesses
of one call must agree in their number of edges; `unique` takes any (one edge where nothing else says).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import graphopt.graph.validate as validate
from graphopt.errors import GraphError, ShapeError
from graphopt.types.base import VariadicEdgeType

if TYPE_CHECKING:
    from graphopt.graph.grids import Grid
    from graphopt.types.base import AnyEdgeType, EdgeType


@dataclass(frozen=True, eq=False)
class Access:
    """How edges find the vertex of one slot."""

    kind: str
    """"indexed", "sequential" or "unique"."""
    grid: Grid
    start: int = 0
    """sequential: vertex of edge 0; unique: vertex of all edges."""
    index: np.ndarray | None = None
    """indexed: (m,) int64, vertex of each edge."""
    count: int | None = None
    """Number of edges, None for unique."""

    def ids(self, count: int) -> np.ndarray:
        """(count,) int64 vertex ids."""
        if self.index is not None:
            return self.grid.first_id + self.index
        step = 0 if self.kind == "unique" else 1
        return self.grid.first_id + self.start + step * np.arange(count, dtype=np.int64)


def indexed(grid: Grid, index: Any) -> Access:
    """Edge k takes vertex `index[k]`; of a grid with two and more axes, `index` (m, axes) or flat (m,)."""
    numbers: np.ndarray = validate.as_ids(index, "index")
    if numbers.ndim == 2 and numbers.shape[1] == len(grid.shape):
        axes = tuple(numbers.T)
        _check_range(grid, axes)
        numbers = np.asarray(np.ravel_multi_index(axes, grid.shape))
    elif numbers.ndim != 1:
        raise ShapeError(
            f"index has shape {numbers.shape}, expected (m,) or (m, {len(grid.shape)}) for {grid!r}."
        )
    elif numbers.size and not 0 <= numbers.min() <= numbers.max() < len(grid):
        raise GraphError(
            f"index holds {int(numbers.min())} to {int(numbers.max())}, {grid!r} has {len(grid)} vertices."
        )
    return Access("indexed", grid, index=numbers.astype(np.int64), count=len(numbers))


def sequential(grid: Grid) -> Access:
    """Edge k takes vertex k."""
    return Access("sequential", grid, count=len(grid))


def unique(grid: Grid, place: int = 0) -> Access:
    """Every edge takes the same vertex."""
    if not 0 <= place < len(grid):
        raise GraphError(f"place is {place}, {grid!r} has {len(grid)} vertices.")
    return Access("unique", grid, start=int(place))


def pairwise(grid: Grid) -> tuple[Access, Access]:
    """Two slots: edge k takes vertices k and k + 1."""
    if len(grid) < 2:
        raise GraphError(f"pairwise needs two or more vertices, {grid!r} has {len(grid)}.")
    count = len(grid) - 1
    return Access("sequential", grid, 0, count=count), Access("sequential", grid, 1, count=count)


def is_access(vertices: Any) -> bool:
    """Whether the argument `vertices` of `add_edges` is made of accesses."""
    if isinstance(vertices, Access):
        return True
    return isinstance(vertices, (tuple, list)) and any(isinstance(vertex, Access) for vertex in vertices)


def accessed_ids(edge_type: AnyEdgeType, vertices: Access | Sequence[Any], measurements: Any) -> np.ndarray:
    """(m, arity) vertex ids of the accesses `vertices`; m also follows from measurements, one per edge."""
    accesses = [vertices] if isinstance(vertices, Access) else list(vertices)
    if isinstance(edge_type, VariadicEdgeType):
        edge_type = edge_type.instantiate(len(accesses))
    dim = edge_type.measurement_dim
    shape = () if measurements is None else np.shape(measurements)
    count = None if shape in ((), (dim,)) else np.asarray(measurements).shape[0]
    return _ids(accesses, edge_type, count)


def _ids(accesses: list[Any], edge_type: EdgeType, num_measurements: int | None) -> np.ndarray:
    """(m, arity) vertex ids; `num_measurements` is m where measurements are given one per edge."""
    tag, arity = edge_type.tag, len(edge_type.vertices)
    if len(accesses) != arity or not all(isinstance(each_access, Access) for each_access in accesses):
        raise ShapeError(
            f"{tag} joins {arity} vertices: pass one access per slot "
            f"(graphopt.indexed, sequential, unique, or pairwise for two), got {len(accesses)}."
        )
    for slot, (access, vertex_type) in enumerate(zip(accesses, edge_type.vertices, strict=True)):
        if access.grid.type is not vertex_type:
            raise GraphError(
                f"{tag}: slot {slot} takes {vertex_type.tag}, the access names {access.grid.type.tag}."
            )
    counts = {access.count for access in accesses if access.count is not None}
    counts |= set() if num_measurements is None else {num_measurements}
    if len(counts) > 1:
        found = ", ".join(f"{each_access.kind} {each_access.count or ''}".strip() for each_access in accesses)
        raise ShapeError(
            f"{tag}: the number of edges is not clear: {found}, measurements "
            f"{'one that all share' if num_measurements is None else num_measurements}."
        )
    count = counts.pop() if counts else 1
    return np.stack([access.ids(count) for access in accesses], axis=1)


def _check_range(grid: Grid, axes: tuple[np.ndarray, ...]) -> None:
    for axis, (numbers, length) in enumerate(zip(axes, grid.shape, strict=True)):
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < length:
            raise GraphError(
                f"index holds {int(numbers.min())} to {int(numbers.max())} on axis {axis}, "
                f"{grid!r} has {length} there."
            )
