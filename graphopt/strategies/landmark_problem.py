"""Many small problems at once: points that move alone while everything else stays.

Each point k sees its own edges only, so H is block diagonal with 3 x 3 blocks and all points take their own
damped Gauss-Newton steps, accepted or rejected one by one:

    (H_k + lambda_k diag(H_k)) dx_k = b_k,     k = 0 ... n - 1

H, b and chi2 come from the same programs as the joint problem, and all iterations run natively, a few points
at a time (native/src/edges/points.h). An edge may occur several times with different points: that is how
candidates for one landmark are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.cpu import compiled_edge


@dataclass(frozen=True, eq=False)
class PointEdges:
    """Edges of one group, and the point that each of them has in its slot `slot`."""

    group: EdgeGroup
    rows: np.ndarray
    """(m,) int64: rows of the group."""
    slot: int
    point: np.ndarray
    """(m,) int64: number of the point."""


def chi2_by_vertex(structure: Structure, group: EdgeGroup, slot: int) -> np.ndarray:
    """(num_destinations,) robustified chi2 of a group's edges, summed by the vertices of a slot.

    In the order of `Structure.sorted_edges`. One pass over the graph's own arrays, by all threads.
    """
    compiled = compiled_edge(group.edge_set.type, group.information, group.kernel)
    selection, by_vertex = structure.selection, structure.sorted_edges(group, slot)
    return kernels.sum_chi2(
        compiled.chi2.native,
        None if compiled.kernel is None else compiled.kernel.native,
        [selection.vertex_sets[number].estimate for number in group.vertex_sets],
        group.vertex_rows,
        [selection.parameter_sets[number].values for number in group.parameter_sets],
        group.parameter_rows,
        group.data_columns(),
        group.chosen_rows,
        by_vertex.order,
        by_vertex.first,
    )


class LandmarkProblem:
    """Points (n, 3) with their edges, or k starts of each (k, n, 3); every other vertex stays as it is.

    robust: with the edges' kernels.
    """

    def __init__(
        self, structure: Structure, edges: list[PointEdges], points: np.ndarray, robust: bool = True
    ):
        self.points = np.array(points, np.float64, order="C")
        self._flat = self.points.reshape(-1, 3)
        count = self.points.shape[-2]
        self._edges = [native_edges(structure, edge, self._flat, count, robust=robust) for edge in edges]

    def linearize(self) -> tuple[np.ndarray, np.ndarray]:
        """H (..., 3, 3) and b (..., 3) of all points at their present places."""
        _, H, b, _ = self._run(np.inf, 0, 0)
        return H, b

    def chi2(self) -> np.ndarray:
        """Robustified chi2 of each point's edges, (n,) or (k, n); infinite where it is not finite."""
        return self._run(np.inf, 0, 0)[0]

    def minimise(
        self, iterations: int, rounds: int = 1, bound: np.ndarray | float = np.inf
    ) -> tuple[np.ndarray, np.ndarray]:
        """Move every point towards its own minimum: chi2 there, (n,) or (k, n), and whether it still falls.

        No point ends with a higher chi2. After a round of iterations only those go on that still fall and
        are below their `bound`, a number or (n,).
        """
        chi2, _, _, falls = self._run(bound, rounds, iterations)
        return chi2, falls

    def _run(self, bound: np.ndarray | float, rounds: int, iterations: int) -> list[np.ndarray]:
        shape = self.points.shape[:-1]
        bounds = np.broadcast_to(np.asarray(bound, np.float64), shape).ravel()
        found = kernels.minimise_points(self._edges, self._flat, bounds, rounds, iterations)
        return [array.reshape(*shape, *array.shape[1:]) for array in found]


def native_edges(
    structure: Structure, edges: PointEdges, places: np.ndarray, count: int, *, robust: bool
) -> tuple[Any, ...]:
    """What `kernels.minimise_points` takes of some edges of `count` points, sorted by these.

    places: (m, 3), rows of the points' slot.
    """
    group, slot, selection = edges.group, edges.slot, structure.selection
    kind = group.edge_set.type
    compiled = compiled_edge(kind, group.information, group.kernel if robust else 0)
    order = np.argsort(edges.point, kind="stable")
    point, rows = edges.point[order], edges.rows[order]
    vertex_rows = group.vertex_rows[rows]
    vertex_rows[:, slot] = point
    estimates = [selection.vertex_sets[number].estimate for number in group.vertex_sets]
    estimates[slot] = places
    columns = group.data_columns()
    if group.kernel and not robust:
        columns = columns[:-1]
    data_rows = rows if group.chosen_rows is None else group.chosen_rows[rows]
    return (
        compiled.linearize.native,
        None if compiled.kernel is None else compiled.kernel.native,
        estimates,
        vertex_rows,
        [selection.parameter_sets[number].values for number in group.parameter_sets],
        group.parameter_rows[rows],
        columns,
        np.ascontiguousarray(data_rows, np.int64),
        np.searchsorted(point, np.arange(count + 1)).astype(np.uint32),
        slot,
        *_outputs([vertex.tangent_dim for vertex in kind.vertices], slot),
    )


def _outputs(dims: list[int], slot: int) -> tuple[int, int]:
    """Outputs of a `linearize` program where the block of H and b of a slot begin."""
    pairs = [(a, b) for a in range(len(dims)) for b in range(a, len(dims))]
    sizes = [dims[a] * (dims[a] + 1) // 2 if a == b else dims[a] * dims[b] for a, b in pairs]
    return 1 + sum(sizes[: pairs.index((slot, slot))]), 1 + sum(sizes) + sum(dims[:slot])
