"""A convex relaxation: a start for poses and points by linear least squares, and a proof that they are best.

Forget that rotations are orthogonal and let each pose be any d x (d + 1) matrix (t, R). The measurements

    t_j = t_i + R_i m,   R_j = R_i M        between poses (m, M)
    p   = t_i + R_i z                       of a point

are then linear, and each row u = (t_k, R_k1 ... R_kd) of the poses appears only with its own kind:

    minimise  sum |u_j - u_i C|^2_W + sum w_t |p_k - u_i c|^2
              C = [1 0; m M],   c = [1; z],   W = diag(w_t, w_r, ..., w_r)

This is one symmetric system with blocks of d + 1 (poses) and 1 (points), with the block pattern of H and d
right-hand sides. The blocks R are projected to rotations; translations and points then follow from a second,
scalar system.

**The proof.** For rotations R_i' R_i = I, so symmetric multipliers L_i add nothing to the cost

    f(U) = tr(U'M U) - 2 tr(U'B) + c  =  tr(U'(M - L) U) - 2 tr(U'B) + c + sum tr(L_i)

Where M - L is positive definite, the right-hand side has a minimum over all matrices, which no rotations are
below. With L_i from the estimates, L_i = sym((M U - B)_i U_i'), it is f(U) - gap, gap = tr(r'inv(M - L) r)
with the residual r = (M - L) U - B. At a wrong local minimum M - L is indefinite; at the right one of a
moderately noisy graph it is not, and the gap is 0 where W is all there is of the information matrices.

w_t, w_r are the information matrices' harmonic mean eigenvalues, in units of |R_j - R_i M|_F^2 = 2 angle^2.

References: Martinec and Pajdla, Robust Rotation and Translation Estimation, CVPR 2007; Carlone et al.,
Initialization Techniques for 3D SLAM, ICRA 2015 (chordal relaxation); Carlone, Rosen, Calafiore, Leonard and
Dellaert, Lagrangian Duality in 3D SLAM, IROS 2015 (verification).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.geometry import quaternion
from graphopt.graph import VertexSet
from graphopt.linear import BlockPattern, SparseCholesky
from graphopt.problem.structure import Structure


def _numbers_2d(poses: np.ndarray) -> np.ndarray:
    c, s = np.cos(poses[:, 2]), np.sin(poses[:, 2])
    return np.column_stack([poses[:, :2], c, -s, s, c])


def _poses_2d(numbers: np.ndarray) -> np.ndarray:
    return np.column_stack([numbers[:, :2], np.arctan2(numbers[:, 4], numbers[:, 2])])


def _step_2d(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    return after - before  # VertexSE2 moves along the world's axes


def _step_3d(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    shift = quaternion.rotate(quaternion.conjugate(before[:, 3:]), after[:, :3] - before[:, :3])
    turn = quaternion.multiply(quaternion.conjugate(before[:, 3:]), after[:, 3:])
    return np.column_stack([shift, np.where(turn[:, 3:] < 0.0, -turn[:, :3], turn[:, :3])])


@dataclass(frozen=True)
class _Space:
    """Poses in the plane or in space."""

    dim: int
    """Of the space: 2 or 3."""
    numbers: Callable[[np.ndarray], np.ndarray]
    """Of estimates (n, storage): (n, d + d * d) translation, and rotation row by row."""
    poses: Callable[[np.ndarray], np.ndarray]
    """The inverse of `numbers`."""
    step: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """The updates that lead from estimates to others."""
    rotation_factor: float
    """Weight of |R_j - R_i M|_F^2 for information 1 of the rotation part."""


_PLANE = _Space(2, _numbers_2d, _poses_2d, _step_2d, 0.5)
_SOLID = _Space(  # g2o's rotation part is sin(angle / 2)
    3, kernels.pose_matrices, kernels.poses_of_matrices, _step_3d, 0.125
)

_POSES = {"VERTEX_SE2": _PLANE, "VERTEX_SE3:QUAT": _SOLID}
_POSE_EDGES = {"EDGE_SE2": _PLANE, "EDGE_SE3:QUAT": _SOLID}
_POINT_EDGES = {"EDGE_SE2_XY": _PLANE}


class Relaxation:
    """The relaxation of a problem, assembled when it is first asked for.

    Applies where all active edges are `EDGE_SE2`, `EDGE_SE2_XY` or `EDGE_SE3:QUAT` and every part of the
    graph has a fixed vertex. It knows no robust kernels.
    """

    def __init__(self, structure: Structure):
        self._structure = structure
        self._space = _space_of(structure)
        self._poses: _Equations | None = None

    @property
    def applies(self) -> bool:
        """The edges are of the kinds that it knows."""
        return self._space is not None

    def estimates(self) -> list[np.ndarray] | None:
        """Estimates per vertex set, relaxed where a vertex is optimized; None: another kind of problem."""
        structure, space = self._structure, self._space
        if space is None:
            return None
        numbers = _numbers_of(structure, space)
        poses = self._pose_system(space, numbers)
        rows = poses.solve()
        if rows is None:
            return None
        kernels.check_stop()
        _take_rotations(structure, space, poses.pattern.offsets, rows, numbers)
        equations = _Equations(structure, space, self._edges(space, numbers), poses.solver)
        places = equations.solve()
        if places is None:
            return None
        return [
            _joined(space, vertex_set, blocks, own, places)
            for vertex_set, blocks, own in zip(
                structure.selection.vertex_sets, structure.vertex_blocks, numbers, strict=True
            )
        ]

    def step(self) -> np.ndarray | None:
        """(dim,) update that leads from the graph's estimates to the relaxed ones; None as `estimates`.

        g2o's rotation matrices keep the rounding of a file's quaternions, and chi2 feels it. An update keeps
        it as well; new estimates would not.
        """
        structure, space, estimates = self._structure, self._space, self.estimates()
        if space is None or estimates is None:
            return None
        step = np.zeros(structure.dim)
        for vertex_set, offsets, after in zip(
            structure.selection.vertex_sets, structure.vertex_offsets, estimates, strict=True
        ):
            free = offsets >= 0
            before, after = vertex_set.estimate[free], after[free]
            moves = space.step(before, after) if vertex_set.type.tag in _POSES else after - before
            step[offsets[free][:, None] + np.arange(moves.shape[1])] = moves
        return step

    def gap(self) -> float:
        """How far below the graph's estimates, as a share of their cost here, others could be at most.

        0: none are better (up to rounding); infinite: nothing is known. Both are costs of the relaxation, in
        which the information matrices are isotropic, not chi2.
        """
        space = self._space
        if space is None:
            return np.inf
        present = _numbers_of(self._structure, space)
        system = self._pose_system(space, present)
        cost = sum(edges.cost() for edges in self._edges(space, present))
        missing = system.possible_decrease(present)
        return missing / cost if cost > 0.0 else 0.0

    def _pose_system(self, space: _Space, numbers: list[np.ndarray]) -> _Equations:
        """numbers: whose fixed vertices are where they always are."""
        if self._poses is None:
            self._poses = _Equations(self._structure, space, self._edges(space, numbers))
        return self._poses

    def _edges(self, space: _Space, numbers: list[np.ndarray]) -> list[Any]:
        """Of each group, at these numbers of the vertex sets."""
        return [
            kernels.RelaxedEdges(
                space.dim, measured, weights, group.vertex_rows, [numbers[own] for own in group.vertex_sets]
            )
            for group, (measured, weights) in zip(self._structure.groups, self._measured, strict=True)
        ]

    @cached_property
    def _measured(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Per group numbers of the measurements, and weights (m, 2) of translation and rotation."""
        space, found = self._space, []
        assert space is not None
        for group in self._structure.groups:
            kernels.check_stop()
            measurement = group.edge_set.look("measurement")[group.rows]
            is_pose = group.edge_set.type.tag in _POSE_EDGES
            weights = kernels.relaxed_weights(group.edge_set.look("information"), group.rows, space.dim)
            weights[:, 1] *= space.rotation_factor
            found.append((space.numbers(measurement) if is_pose else measurement, weights))
        return found


def _space_of(structure: Structure) -> _Space | None:
    tags = {group.edge_set.type.tag for group in structure.groups}
    spaces = {(_POSE_EDGES | _POINT_EDGES).get(tag) for tag in tags}
    poses = any(tag in _POSE_EDGES for tag in tags)
    return spaces.pop() if len(spaces) == 1 and poses else None


def _numbers_of(structure: Structure, space: _Space) -> list[np.ndarray]:
    """Per vertex set (n, d + d * d) of poses, (n, d) of points, of the graph's estimates."""
    return [
        space.numbers(one.estimate) if one.type.tag in _POSES else np.ascontiguousarray(one.estimate)
        for one in structure.selection.vertex_sets
    ]


class _Equations:
    """Normal equations: d + 1 unknowns per pose and 1 per point, d right-hand sides, H's block pattern.

    of_poses: their solver; then 1 unknown per pose, with the rotations that the edges' numbers have.
    """

    def __init__(
        self, structure: Structure, space: _Space, edges: list[Any], of_poses: SparseCholesky | None = None
    ):
        self._structure, self._space, self._of_poses = structure, space, of_poses
        dims = np.ones(structure.num_blocks, np.int32)
        if of_poses is None:
            for vertex_set, blocks in zip(
                structure.selection.vertex_sets, structure.vertex_blocks, strict=True
            ):
                if vertex_set.type.tag in _POSES:
                    dims[blocks[blocks >= 0]] = space.dim + 1
        self.pattern = BlockPattern(dims, structure.pattern.col_ptr, structure.pattern.row_idx)
        self._values = np.zeros(self.pattern.values_size)
        self._b = np.zeros((self.pattern.dim, space.dim))
        for group, own in zip(structure.groups, edges, strict=True):
            kernels.check_stop()
            blocks = [structure.vertex_blocks[number] for number in group.vertex_sets]
            own.add(blocks, of_poses is not None, self.pattern, self._values, self._b)

    @cached_property
    def solver(self) -> SparseCholesky:
        """Of the pattern; its blocks are those of the poses' system, whose order serves as well."""
        return SparseCholesky(self.pattern, self._of_poses or "auto")

    def possible_decrease(self, numbers: list[np.ndarray]) -> float:
        """By how much other rotations and places could lower the cost at most; infinite: not known."""
        dim, unknowns = self._space.dim, np.zeros_like(self._b)
        for own, blocks in zip(numbers, self._structure.vertex_blocks, strict=True):
            free = blocks >= 0
            first = self.pattern.offsets[blocks[free]]
            unknowns[first] = own[free, :dim]
            for column in range((own.shape[1] - dim) // dim):
                unknowns[first + 1 + column] = own[free, dim + column :: dim]
        values, residual = kernels.subtract_multipliers(self.pattern, self._values, unknowns, self._b)
        if not self.solver.factorize(values):
            return np.inf
        return max(float(np.sum(residual * self.solver.solve(residual))), 0.0)

    def solve(self) -> np.ndarray | None:
        """(dim, d) solution; None if the system is singular."""
        if not self._b.any():
            return None
        if not self.solver.factorize(self._values):
            return None
        solution = self.solver.solve(self._b)
        return solution if np.isfinite(solution).all() else None


def _take_rotations(
    structure: Structure, space: _Space, offsets: np.ndarray, rows: np.ndarray, numbers: list[np.ndarray]
) -> None:
    """Rotations of poses that are optimized become the nearest ones to the relaxed matrices."""
    for vertex_set, blocks, own in zip(
        structure.selection.vertex_sets, structure.vertex_blocks, numbers, strict=True
    ):
        if vertex_set.type.tag in _POSES:
            free = blocks >= 0
            index = offsets[blocks[free]][:, None] + np.arange(1, space.dim + 1)
            turned = nearest_rotations(np.swapaxes(rows[index], 1, 2))
            own[free, space.dim :] = turned.reshape(len(turned), space.dim**2)


def nearest_rotations(matrices: np.ndarray) -> np.ndarray:
    """(n, d, d) rotations that are nearest to `matrices` in the Frobenius norm."""
    return kernels.nearest_rotations(np.ascontiguousarray(matrices))


def _joined(
    space: _Space, vertex_set: VertexSet, blocks: np.ndarray, numbers: np.ndarray, places: np.ndarray
) -> np.ndarray:
    """Estimates of a vertex set with the relaxed rotations and places."""
    estimate, free = vertex_set.estimate.copy(), blocks >= 0
    if vertex_set.type.tag in _POSES:
        estimate[free] = space.poses(np.column_stack([places[blocks[free]], numbers[free, space.dim :]]))
    else:
        estimate[free] = places[blocks[free]]
    return estimate
