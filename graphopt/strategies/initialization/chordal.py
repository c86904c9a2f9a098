"""Chordal initialisation: rotations by linear least squares over all edges, then translations.

    1.  min sum kappa_ij || R_j - R_i Z_ij ||_F^2      over all 3 x 3 matrices (2 x 2), fixed ones given
    2.  R_i <- nearest rotation
    3.  min sum tau_ij || t_j - t_i - R_i z_ij ||^2    over all translations

Both are Laplacian systems with one factorisation each.
Reference: Carlone et al., Initialization Techniques for 3D SLAM, ICRA 2015, section III-B.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from graphopt.graph.relative_poses import PoseGraph
from graphopt.strategies.relaxation import nearest_rotations

Array = Any


def _block_laplacian(first: Array, second: Array, weight: Array, coupling: Array, num: int) -> sp.csr_matrix:
    """H of sum weight ||x_j - coupling' x_i||^2 for orthogonal couplings (m, d, d), unknowns x (num, d)."""
    d = coupling.shape[-1]
    local = np.arange(d)
    degree = np.bincount(first, weight, num) + np.bincount(second, weight, num)
    row = (first[:, None, None] * d + local[:, None]) + np.zeros((1, 1, d), np.int64)
    col = (second[:, None, None] * d + local) + np.zeros((1, d, 1), np.int64)
    value = -weight[:, None, None] * coupling
    upper: Any = sp.coo_matrix((value.ravel(), (row.ravel(), col.ravel())), shape=(num * d, num * d)).tocsr()
    return upper + upper.T + sp.diags(np.repeat(degree, d)).tocsr()


def _solve_free(h: Any, rhs: Array, known: Array, free: Array, d: int) -> Array:
    """Minimise 1/2 x'Hx - rhs'x over the free rows, the others kept at `known` (num d, k)."""
    free_scalars = (free[:, None] * d + np.arange(d)).ravel()
    fixed_mask = np.ones(h.shape[0], bool)
    fixed_mask[free_scalars] = False
    h_free = h[free_scalars]
    right = rhs[free_scalars] - h_free[:, fixed_mask] @ known[fixed_mask]
    factor = splu(
        h_free[:, free_scalars].tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    solution = known.copy()
    solution[free_scalars] = factor.solve(right)
    return solution


def _isotropic(weight: Array) -> Array:
    """Weights relative to their median: the systems stay well scaled whatever the units are."""
    return weight / np.median(weight)


def chordal_poses(pose_graph: PoseGraph, start: Array, free: Array) -> Array:
    """Pose matrices (n, d + 1, d + 1) of all poses.

    `start` (n, d + 1, d + 1) holds the known poses; `free` are the rows to solve for. Each free row must be
    joined to a known one by edges, else the systems are singular.
    """
    d = start.shape[-1] - 1
    num = len(start)
    relative = pose_graph.relative.to_matrix()
    first, second = pose_graph.first, pose_graph.second
    rotations, translations = start[:, :d, :d].copy(), start[:, :d, d].copy()

    # rows of R: r_j = r_i Z, hence as columns x_j = Z' x_i; unknown (num d, d) holds R' of each pose
    h = _block_laplacian(first, second, _isotropic(pose_graph.weight[:, 1]), relative[:, :d, :d], num)
    transposed = np.swapaxes(rotations, 1, 2).reshape(num * d, d)
    transposed = _solve_free(h, np.zeros_like(transposed), transposed, free, d)
    solved = np.swapaxes(transposed.reshape(num, d, d), 1, 2)
    rotations[free] = nearest_rotations(solved[free])

    weight = _isotropic(pose_graph.weight[:, 0])
    step = np.einsum("nij,nj->ni", rotations[first], relative[:, :d, d])
    rhs = np.zeros((num, d))
    np.add.at(rhs, second, weight[:, None] * step)
    np.add.at(rhs, first, -weight[:, None] * step)
    ones = np.ones((len(first), 1, 1))
    laplacian = _block_laplacian(first, second, weight, ones, num)
    translations = _solve_free(laplacian, rhs, translations, free, 1)

    result = start.copy()
    result[free, :d, :d] = rotations[free]
    result[free, :d, d] = translations[free]
    return result
