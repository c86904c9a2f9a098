"""Many small problems at once: points that move alone while everything else stays.

Each point k sees its own edges only, so H is block diagonal with 3 x 3 blocks and all points take their own
damped Gauss-Newton steps, accepted or rejected one by one:

    (H_k + lambda_k diag(H_k)) dx_k = b_k,     k = 0 ... n - 1

The native `Linearizer` computes H, b and the errors from the same programs as the joint problem. An edge may
occur several times with different points: that is how candidates for one landmark are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.solver.cpu import compiled_edge, compiled_vertex, edge_data
from graphopt.solver.structure import EdgeGroup, Structure
from graphopt.types.robust_kernels import robust_kernel
from graphopt.types.slam3d import VertexPointXYZ

_INITIAL_LAMBDA = 1e-3
_SMALLEST_DIAGONAL = 1e-9  # of H, relative to its largest entry
_ACCEPT = 1e-3  # actual over predicted gain of an accepted step
_NOTHING = 1e-6  # relative gain of a point that has arrived


@dataclass(frozen=True, eq=False)
class PointEdges:
    """Edges of one group, and the point that each of them has in its slot `slot`."""

    group: EdgeGroup
    rows: np.ndarray
    """(m,) int64: rows of the group."""
    slot: int
    point: np.ndarray
    """(m,) int64: number of the point."""

    def take(self, mask: np.ndarray) -> PointEdges:
        """The edges of a mask (m,)."""
        return PointEdges(self.group, self.rows[mask], self.slot, self.point[mask])


def choose_points(edges: list[PointEdges], mask: np.ndarray) -> tuple[np.ndarray, list[PointEdges]]:
    """Numbers (k,) of the points in a mask (n,), and their edges with the points numbered 0 ... k - 1."""
    number = np.cumsum(mask) - 1
    taken = [one.take(mask[one.point]) for one in edges]
    return np.flatnonzero(mask), [
        PointEdges(one.group, one.rows, one.slot, number[one.point]) for one in taken if len(one.rows)
    ]


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
    """Points (n, 3), each with its edges; every other vertex stays as it is."""

    def __init__(
        self,
        structure: Structure,
        edges: list[PointEdges],
        points: np.ndarray,
        *,
        robust: bool = True,
        moves: bool = True,
    ):
        """moves: False if only `chi2` will be asked for, which needs less preparation."""
        self.points = np.ascontiguousarray(points, np.float64)
        self.edges = edges
        self._robust = robust
        self._linearizer = kernels.Linearizer()
        used = {
            number for one in edges for slot, number in enumerate(one.group.vertex_sets) if slot != one.slot
        }
        for number, vertex_set in enumerate(structure.selection.vertex_sets):
            estimate = vertex_set.estimate if number in used else vertex_set.estimate[:0]
            held = np.full(len(estimate), -1, np.int64)
            self._linearizer.add_vertex_set(estimate, compiled_vertex(vertex_set.type).native, held)
        self._moves = moves
        places = 3 * np.arange(len(self.points)) if moves else np.full(len(self.points), -1, np.int64)
        program = compiled_vertex(VertexPointXYZ).native
        self._point_set = self._linearizer.add_vertex_set(self.points, program, places)
        for parameter_set in structure.selection.parameter_sets:
            self._linearizer.add_parameter_set(parameter_set.values)
        self._groups = [self._add(one) for one in edges]
        self._values = np.zeros(9 * len(self.points) if moves else 0)
        self._b = np.zeros(3 * len(self.points) if moves else 0)
        self._linearizer.prepare(len(self._values), len(self._b))

    def _add(self, edges: PointEdges) -> int:
        group, rows, slot = edges.group, edges.rows, edges.slot
        compiled = compiled_edge(group.edge_set.type, group.information, group.kernel if self._robust else 0)
        arity = group.vertex_rows.shape[1]
        takes_all = len(rows) == len(group.rows) and np.array_equal(rows, np.arange(len(rows)))
        vertex_sets, vertex_rows = list(group.vertex_sets), group.vertex_rows[rows]
        vertex_sets[slot], vertex_rows[:, slot] = self._point_set, edges.point
        block_offset = np.full((len(rows), arity * (arity + 1) // 2), -1, np.int64)
        if self._moves:
            block_offset[:, slot * arity - slot * (slot - 1) // 2] = 9 * edges.point
        return self._linearizer.add_edge_group(
            compiled.chi2.native,
            compiled.linearize.native,
            None if compiled.kernel is None else compiled.kernel.native,
            vertex_sets,
            vertex_rows,
            list(group.parameter_sets),
            group.parameter_rows[rows],
            *edge_data(group, None if takes_all else rows),
            block_offset,
            np.zeros(block_offset.shape, bool),
        )

    def linearize(self) -> tuple[np.ndarray, np.ndarray]:
        """H (n, 3, 3) and b (n, 3) of all points at their present places."""
        self._linearizer.linearize(self._values, self._b)
        return self._values.reshape(-1, 3, 3), self._b.reshape(-1, 3)

    def chi2(self) -> np.ndarray:
        """(n,) robustified chi2 of each point's edges; infinite where it is not finite."""
        total = np.zeros(len(self.points))
        for number, edges in zip(self._groups, self.edges, strict=True):
            chi2 = self._linearizer.edge_chi2(number)
            if self._robust and edges.group.kernel:
                width = edges.group.edge_set.kernel_width[edges.group.rows[edges.rows]]
                chi2 = robust_kernel(edges.group.kernel).function(chi2, width)[0]
            total += np.bincount(edges.point, chi2, len(total))
        return np.where(np.isfinite(total), total, np.inf)

    def minimise(self, iterations: int) -> tuple[np.ndarray, np.ndarray]:
        """Move every point towards its own minimum: (n,) chi2 there, and (n,) bool, whether it still falls.

        No point ends with a higher chi2.
        """
        chi2 = self.chi2()
        fell = np.ones(len(chi2), bool)
        damping = np.full(len(chi2), _INITIAL_LAMBDA)
        growth = np.full(len(chi2), 2.0)
        for _ in range(iterations):
            H, b = self.linearize()
            step, gain = _damped_steps(H, b, damping)
            before = self.points.copy()
            self.points += step
            after = self.chi2()
            with np.errstate(invalid="ignore"):
                ratio = np.where(gain > 0.0, (chi2 - after) / gain, -np.inf)
            good = ratio > _ACCEPT
            fell = np.where(good, chi2 - after > _NOTHING * chi2, gain > _NOTHING * chi2)
            self.points[~good] = before[~good]
            chi2 = np.where(good, after, chi2)
            factor = np.maximum(1.0 / 9.0, 1.0 - (2.0 * np.where(good, ratio, 0.0) - 1.0) ** 3)
            damping *= np.where(good, factor, growth)
            growth = np.where(good, 2.0, 2.0 * growth)
        return chi2, fell


def _damped_steps(H: np.ndarray, b: np.ndarray, damping: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps (n, 3) and predicted gains (n,); no step where H or b is not finite or H is zero."""
    diagonal = np.diagonal(H, axis1=1, axis2=2)
    finite = np.isfinite(H.sum(axis=(1, 2)) + b.sum(axis=1))
    usable: np.ndarray = finite & np.any(diagonal > 0.0, axis=1)
    diagonal = np.where(usable[:, None], diagonal, 1.0)
    scale = np.maximum(diagonal, _SMALLEST_DIAGONAL * diagonal.max(axis=1, keepdims=True))
    added = damping[:, None] * scale
    matrix = np.where(usable[:, None, None], H, np.eye(3)) + added[:, :, None] * np.eye(3)
    right = np.where(usable[:, None], b, 0.0)
    step = solve_positive(matrix, right)
    return step, (step * (added * step + right)).sum(axis=1)


def solve_positive(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """x (n, 3) of M x = y for positive definite M (n, 3, 3), by its factors L D L'; not finite for others."""
    (a, b, c), (_, d, e), (_, _, f) = matrix.transpose(1, 2, 0)
    x, y, z = right.T
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ba, ca = b / a, c / a
        d, e, f = d - b * ba, e - b * ca, f - c * ca
        ed = e / d
        y = y - ba * x
        z = (z - ca * x - ed * y) / (f - e * ed)
        y = y / d - ed * z
        x = x / a - ba * y - ca * z
    return np.stack([x, y, z], axis=1)
