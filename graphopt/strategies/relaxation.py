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

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.geometry import quaternion
from graphopt.linear import BlockPattern, SparseCholesky
from graphopt.problem.structure import EdgeGroup, Structure

_STRIP = 1 << 15  # matrices between two looks at whether to stop
_TINY = 1e-12  # eigenvalues below this fraction of the largest count as this


def _pose_2d(estimate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    c, s = np.cos(estimate[:, 2]), np.sin(estimate[:, 2])
    rotation = np.stack([np.stack([c, -s], axis=-1), np.stack([s, c], axis=-1)], axis=-2)
    return estimate[:, :2], rotation


def _pose_3d(estimate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return estimate[:, :3], np.asarray(quaternion.to_matrix(estimate[:, 3:]), np.float64)


def _estimate_2d(translation: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    return np.column_stack([translation, np.arctan2(rotation[:, 1, 0], rotation[:, 0, 0])])


def _estimate_3d(translation: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    return np.column_stack([translation, np.asarray(quaternion.from_matrix(rotation), np.float64)])


def _step_2d(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    return after - before  # VertexSE2 moves along the world's axes


def _step_3d(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    shift = np.einsum("nji,nj->ni", _pose_3d(before)[1], after[:, :3] - before[:, :3])
    turn = quaternion.multiply(quaternion.conjugate(before[:, 3:]), after[:, 3:])
    return np.column_stack([shift, np.where(turn[:, 3:] < 0.0, -turn[:, :3], turn[:, :3])])


@dataclass(frozen=True)
class _Space:
    """Poses in the plane or in space."""

    dim: int
    """Of the space: 2 or 3."""
    split: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    """Estimates (n, storage) -> translations (n, d), rotations (n, d, d)."""
    join: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """The inverse of `split`."""
    step: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """The updates that lead from estimates to others."""
    rotation_factor: float
    """Weight of |R_j - R_i M|_F^2 for information 1 of the rotation part."""


_PLANE = _Space(2, _pose_2d, _estimate_2d, _step_2d, 0.5)
_SOLID = _Space(3, _pose_3d, _estimate_3d, _step_3d, 0.125)  # g2o's rotation part is sin(angle / 2)

_POSES = {"VERTEX_SE2": _PLANE, "VERTEX_SE3:QUAT": _SOLID}
_POINTS = {"VERTEX_XY": _PLANE, "VERTEX_TRACKXYZ": _SOLID}
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
        self._poses: _Assembly | None = None
        self._weights: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        """Of each group by its id."""

    @property
    def applies(self) -> bool:
        """The edges are of the kinds that it knows."""
        return self._space is not None

    def estimates(self) -> list[np.ndarray] | None:
        """Estimates per vertex set, relaxed where a vertex is optimized; None: another kind of problem."""
        structure, space = self._structure, self._space
        if space is None:
            return None
        rows = self._pose_system(space).solve()
        if rows is None:
            return None
        kernels.check_stop()
        rotations = _rotations(structure, space, rows)
        kernels.check_stop()
        place_system = _Assembly(structure, space, row_dim=1)
        for group in structure.groups:
            _add_displacements(place_system, group, self._weights_of(group, space)[0], rotations)
        places = place_system.solve()
        if places is None:
            return None
        return _estimates(structure, space, rotations, places)

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
        if self._space is None:
            return np.inf
        system = self._pose_system(self._space)
        present = system.present(self._space)
        kernels.check_stop()
        cost = sum(
            system.cost(group, *self._coefficients(group, self._space), present)
            for group in self._structure.groups
        )
        missing = system.possible_decrease(present)
        return missing / cost if cost > 0.0 else 0.0

    def _pose_system(self, space: _Space) -> _Assembly:
        if self._poses is None:
            self._poses = _Assembly(self._structure, space, row_dim=space.dim + 1)
            for group in self._structure.groups:
                self._poses.add(group, *self._coefficients(group, space))
                kernels.check_stop()
        return self._poses

    def _coefficients(
        self, group: EdgeGroup, space: _Space
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return _coefficients(group, space, *self._weights_of(group, space))

    def _weights_of(self, group: EdgeGroup, space: _Space) -> tuple[np.ndarray, np.ndarray]:
        if id(group) not in self._weights:
            self._weights[id(group)] = _weights(group, space)
        return self._weights[id(group)]


def _space_of(structure: Structure) -> _Space | None:
    tags = {group.edge_set.type.tag for group in structure.groups}
    spaces = {(_POSE_EDGES | _POINT_EDGES).get(tag) for tag in tags}
    poses = any(tag in _POSE_EDGES for tag in tags)
    return spaces.pop() if len(spaces) == 1 and poses else None


class _Assembly:
    """Normal equations: `row_dim` unknowns per pose, 1 per point, d right-hand sides, H's block pattern."""

    def __init__(self, structure: Structure, space: _Space, row_dim: int):
        self._structure = structure
        self._row_dim = row_dim
        self.set_dims = [
            row_dim if vertex_set.type.tag in _POSES else 1 for vertex_set in structure.selection.vertex_sets
        ]
        dims = np.empty(structure.num_blocks, np.int32)
        for set_dim, blocks in zip(self.set_dims, structure.vertex_blocks, strict=True):
            dims[blocks[blocks >= 0]] = set_dim
        self._pattern = BlockPattern(dims, structure.pattern.col_ptr, structure.pattern.row_idx)
        self.offsets: np.ndarray = self._pattern.offsets
        self._block_ptr = self._pattern.value_offsets
        self._values = np.zeros(self._pattern.values_size)
        self._b = np.zeros((self._pattern.dim, space.dim))
        self._known = self._known_rows(space)

    @cached_property
    def _solver(self) -> SparseCholesky:
        return SparseCholesky(self._pattern)

    def _known_rows(self, space: _Space) -> list[np.ndarray]:
        """Per vertex set (n, unknowns, d): the rows of the present estimates, for vertices that are fixed."""
        known = []
        for vertex_set in self._structure.selection.vertex_sets:
            if vertex_set.type.tag not in _POSES:
                known.append(vertex_set.estimate[:, None, :])
                continue
            translation, rotation = space.split(vertex_set.estimate)
            rows = np.concatenate([translation[:, :, None], rotation], axis=2)  # (n, d, d + 1)
            known.append(np.swapaxes(rows, 1, 2)[:, : self._row_dim])
        return known

    def add(
        self, group: EdgeGroup, first: np.ndarray, second: np.ndarray, weight: np.ndarray, target: np.ndarray
    ) -> None:
        """Add |second' x_j - first' x_i - target|^2 in the weights.

        first (m, dim_i, r), second (m, dim_j, r), weight (m, r), target (m, r, d).
        """
        structure = self._structure
        coefficients = (-first, second)
        blocks = [
            structure.vertex_blocks[number][group.vertex_rows[:, slot]]
            for slot, number in enumerate(group.vertex_sets)
        ]
        kernels.check_stop()
        right = target.copy()
        for slot, number in enumerate(group.vertex_sets):
            held = blocks[slot] < 0
            known = self._known[number][group.vertex_rows[held, slot]]
            right[held] -= np.swapaxes(coefficients[slot][held], 1, 2) @ known
        pair = 0
        for i in range(2):
            weighted = coefficients[i] * weight[:, None, :]
            free = blocks[i] >= 0
            index = self.offsets[blocks[i][free]][:, None] + np.arange(weighted.shape[1])
            kernels.check_stop()
            _add_rows(self._b, index, (weighted @ right)[free])
            for j in range(i, 2):
                kernels.check_stop()
                self._add_block(group, pair, weighted @ np.swapaxes(coefficients[j], 1, 2))
                pair += 1

    def _add_block(self, group: EdgeGroup, pair: int, product: np.ndarray) -> None:
        """Add (m, dim_i, dim_j) blocks to the values, column-major, transposed where the pattern wants it."""
        offset, transposed = group.block_offset[:, pair], group.block_transposed[:, pair]
        number = np.searchsorted(self._structure.pattern.value_offsets, offset)
        for mask, blocks in (
            ((offset >= 0) & ~transposed, np.swapaxes(product, 1, 2)),
            ((offset >= 0) & transposed, product),
        ):
            flat = blocks[mask].reshape(-1, blocks.shape[1] * blocks.shape[2])
            places = self._block_ptr[number[mask]][:, None] + np.arange(flat.shape[1])
            _add_rows(self._values, places, flat)

    def present(self, space: _Space) -> list[np.ndarray]:
        """Per vertex set (n, unknowns, d): the rows of the graph's estimates as they are now."""
        return self._known_rows(space)

    def cost(
        self,
        group: EdgeGroup,
        first: np.ndarray,
        second: np.ndarray,
        weight: np.ndarray,
        target: np.ndarray,
        rows: list[np.ndarray],
    ) -> float:
        """What `add` adds, at these rows per vertex set."""
        x, y = (rows[number][group.vertex_rows[:, slot]] for slot, number in enumerate(group.vertex_sets))
        left = np.swapaxes(second, 1, 2) @ y - np.swapaxes(first, 1, 2) @ x - target
        return float(np.sum(weight[:, :, None] * left * left))

    def possible_decrease(self, rows: list[np.ndarray]) -> float:
        """By how much other rotations and places could lower the cost at most; infinite: not known."""
        structure, num = self._structure, self._row_dim
        unknowns = np.zeros_like(self._b)
        for row, blocks in zip(rows, structure.vertex_blocks, strict=True):
            free = blocks >= 0
            unknowns[self.offsets[blocks[free]][:, None] + np.arange(row.shape[1])] = row[free]
        product = kernels.SymmetricProduct(self._pattern)
        columns = [product.multiply(self._values, np.ascontiguousarray(column)) for column in unknowns.T]
        residual = np.stack(columns, axis=1) - self._b
        values = self._values.copy()
        for vertex_set, blocks in zip(structure.selection.vertex_sets, structure.vertex_blocks, strict=True):
            if vertex_set.type.tag not in _POSES:
                continue
            free = blocks[blocks >= 0]
            index = self.offsets[free][:, None] + np.arange(1, num)
            multiplier = residual[index] @ np.swapaxes(unknowns[index], 1, 2)
            multiplier = 0.5 * (multiplier + np.swapaxes(multiplier, 1, 2))
            residual[index] -= multiplier @ unknowns[index]
            inner = np.arange(1, num)
            diagonal = self._block_ptr[structure.pattern.col_ptr[free + 1] - 1]
            values[diagonal[:, None, None] + num * inner[:, None] + inner] -= multiplier
        if not self._solver.factorize(values):
            return np.inf
        return max(float(np.sum(residual * self._solver.solve(residual))), 0.0)

    def solve(self) -> np.ndarray | None:
        """(dim, d) solution; None if the system is singular."""
        if not self._b.any():
            return None
        if not self._solver.factorize(self._values):
            return None
        solution = self._solver.solve(self._b)
        return solution if np.isfinite(solution).all() else None


def _add_rows(array: np.ndarray, rows: np.ndarray, numbers: np.ndarray) -> None:
    """array[rows] += numbers, where rows may repeat: `np.add.at` on flat arrays, which takes a tenth."""
    width = int(np.prod(array.shape[1:]))
    places = rows[..., None] * width + np.arange(width)
    np.add.at(array.reshape(-1), places.ravel(), numbers.ravel())


def _weights(group: EdgeGroup, space: _Space) -> tuple[np.ndarray, np.ndarray]:
    """(m,) weights of translation and rotation: harmonic means of the eigenvalues."""
    d = space.dim
    information = group.edge_set.look("information")[group.rows]
    translation = _harmonic_mean(information[:, :d, :d])
    if information.shape[1] == d:
        return translation, np.empty(0)
    return translation, space.rotation_factor * _harmonic_mean(information[:, d:, d:])


def _harmonic_mean(matrices: np.ndarray) -> np.ndarray:
    """(m,) of the eigenvalues; 0 where none is positive."""
    eigenvalues = np.sort(np.diagonal(matrices, axis1=1, axis2=2), axis=1)
    if matrices[:, ~np.eye(matrices.shape[1], dtype=bool)].any():
        for start in range(0, len(matrices), _STRIP):
            kernels.check_stop()
            eigenvalues[start : start + _STRIP] = np.linalg.eigvalsh(matrices[start : start + _STRIP])
    largest = np.maximum(eigenvalues[:, -1], 0.0)
    shares = eigenvalues / np.where(largest > 0.0, largest, 1.0)[:, None]
    return largest / np.mean(1.0 / np.maximum(shares, _TINY), axis=1)


def _coefficients(
    group: EdgeGroup, space: _Space, w_translation: np.ndarray, w_rotation: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(first, second, weight, target) of the joint system, see `_Assembly.add`."""
    d, count = space.dim, len(group.rows)
    measurement = group.edge_set.look("measurement")[group.rows]
    if group.edge_set.type.tag in _POINT_EDGES:
        first = np.concatenate([np.ones((count, 1)), measurement], axis=1)[:, :, None]
        return first, np.ones((count, 1, 1)), w_translation[:, None], np.zeros((count, 1, d))
    translation, rotation = space.split(measurement)
    first = np.zeros((count, d + 1, d + 1))
    first[:, 0, 0] = 1.0
    first[:, 1:, 0] = translation
    first[:, 1:, 1:] = rotation
    second = np.broadcast_to(np.eye(d + 1), first.shape)
    weight = np.column_stack([w_translation, np.repeat(w_rotation[:, None], d, axis=1)])
    return first, second, weight, np.zeros((count, d + 1, d))


def _add_displacements(
    system: _Assembly, group: EdgeGroup, weight: np.ndarray, rotations: list[np.ndarray]
) -> None:
    """x_j - x_i = R_i m with known rotations."""
    rotation = rotations[group.vertex_sets[0]][group.vertex_rows[:, 0]]
    measured = group.edge_set.look("measurement")[group.rows][:, : rotation.shape[-1]]
    target = (rotation @ measured[:, :, None])[:, None, :, 0]
    ones = np.ones((len(group.rows), 1, 1))
    system.add(group, ones, ones, weight[:, None], target)


def _rotations(structure: Structure, space: _Space, rows: np.ndarray) -> list[np.ndarray]:
    """Per vertex set (n, d, d) rotations: the nearest ones to the relaxed matrices; empty for points."""
    offsets = _row_offsets(structure, space.dim + 1)
    result = []
    for vertex_set, blocks in zip(structure.selection.vertex_sets, structure.vertex_blocks, strict=True):
        if vertex_set.type.tag not in _POSES:
            result.append(np.empty((0, space.dim, space.dim)))
            continue
        _, rotation = space.split(vertex_set.estimate)
        rotation = rotation.copy()
        free = blocks >= 0
        index = offsets[blocks[free]][:, None] + np.arange(1, space.dim + 1)
        rotation[free] = nearest_rotations(np.swapaxes(rows[index], 1, 2))
        result.append(rotation)
    return result


def _row_offsets(structure: Structure, row_dim: int) -> np.ndarray:
    dims = np.empty(structure.num_blocks, np.int64)
    for vertex_set, blocks in zip(structure.selection.vertex_sets, structure.vertex_blocks, strict=True):
        dims[blocks[blocks >= 0]] = row_dim if vertex_set.type.tag in _POSES else 1
    return np.concatenate([[0], np.cumsum(dims)])


def nearest_rotations(matrices: np.ndarray) -> np.ndarray:
    """(n, d, d) rotations that are nearest to `matrices` in the Frobenius norm."""
    if matrices.shape[1] == 2:
        c = matrices[:, 0, 0] + matrices[:, 1, 1]
        s = matrices[:, 1, 0] - matrices[:, 0, 1]
        angle = np.arctan2(s, c)
        return _pose_2d(np.column_stack([angle, angle, angle]))[1]
    u, _, v = np.linalg.svd(matrices)
    x, y, z = np.moveaxis(u @ v, 1, 0)
    handedness = np.sum(np.cross(x, y) * z, axis=1)  # 1 or -1
    u[:, :, -1] *= handedness[:, None]
    return u @ v


def _estimates(
    structure: Structure, space: _Space, rotations: list[np.ndarray], places: np.ndarray
) -> list[np.ndarray]:
    result = []
    for vertex_set, blocks, rotation in zip(
        structure.selection.vertex_sets, structure.vertex_blocks, rotations, strict=True
    ):
        estimate = vertex_set.estimate.copy()
        free = blocks >= 0
        if vertex_set.type.tag in _POSES:
            estimate[free] = space.join(places[blocks[free]], rotation[free])
        elif vertex_set.type.tag in _POINTS:
            estimate[free] = places[blocks[free]]
        result.append(estimate)
    return result
