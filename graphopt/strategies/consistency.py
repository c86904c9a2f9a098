"""Loop closures that confirm each other, against a chain of trusted edges.

Two closures i_Z_j and k_Z_l between the same two places make a small loop with the trusted motion from i to k
and from l to j, over which that motion hardly drifts:

    E = i_Z_j^-1 (T_i^-1 T_k) k_Z_l (T_l^-1 T_j)          the identity, up to noise, where both are right

Wrong closures agree with each other by accident only. Reference: Mangelson, Dominic, Eustice, Vasudevan,
Pairwise Consistent Measurement Set Maximization, ICRA 2018; here any partner is enough, because robust
optimization follows.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import KDTree

from graphopt.geometry import SE2
from graphopt.graph import EdgeSet, Graph
from graphopt.graph.relative_poses import relative_of
from graphopt.strategies.quantiles import chi2_quantile

_NEAR = 10  # vertices along the chain between the ends of two closures
_QUANTILE = 0.99
_MOST_PAIRS = 4_000_000
_MARGIN = 3.0  # of the noise that was found: medians of few pairs, and lever arms, are coarse
_LEAST_NOISE = 1e-4


def confirmed(
    graph: Graph, edge_set: EdgeSet, rows: np.ndarray, suspect: np.ndarray
) -> tuple[np.ndarray, float]:
    """(n,) bool of the edges `rows` (n,): suspects that another one confirms; and how large their noise is.

    suspect: (n,) bool. The estimates are those that the trusted edges alone lead to. The noise is that of the
    pairs that agree, as a share (0, 1] of what the information matrices say; where these say too little, it
    tells right and wrong apart. No edge and 1 where the edges are no motions or no pair is near.
    """
    kind = edge_set.type
    pose, none = kind.vertices[0].pose, np.zeros(len(rows), bool)
    is_motion = len(kind.vertices) == 2 and kind.relative_pose is not None
    if pose is None or not is_motion or kind.vertices[0] is not kind.vertices[1] or suspect.sum() < 2:
        return none, 1.0
    ends, motion, information = relative_of(graph, edge_set)
    vertex_set = graph.vertex_set(kind.vertices[0])
    group = type(motion)
    rank = np.argsort(np.argsort(vertex_set.ids))
    places = rank[ends]
    chosen = rows[suspect]
    backwards = places[chosen, 0] > places[chosen, 1]
    first, second = (np.where(backwards, ends[chosen, k], ends[chosen, 1 - k]) for k in (1, 0))
    measured = motion.storage[chosen].copy()
    measured[backwards] = group(measured[backwards]).inverse().storage
    pairs = _near_pairs(np.sort(places[chosen], axis=1))
    if not len(pairs):
        return none, 1.0
    variance = 1.0 / information[chosen]
    trusted = rows[~suspect]
    step = (1.0 / information[trusted]).mean(axis=0) if len(trusted) else np.zeros(2)
    agree, noise = _agree(
        group, pose(np.asarray(vertex_set.estimate)), first, second, measured, variance, step, rank, pairs
    )
    found = np.zeros(len(chosen), bool)
    found[pairs[agree].ravel()] = True
    none[np.flatnonzero(suspect)[found]] = True
    return none, noise


def _near_pairs(places: np.ndarray) -> np.ndarray:
    """(p, 2) pairs of closures whose ends are near each other along the chain, of places (m, 2)."""
    tree, near = KDTree(places), _NEAR
    while near > 1 and tree.count_neighbors(tree, near, p=np.inf) > 2 * _MOST_PAIRS:
        near //= 2
    return tree.query_pairs(near, p=np.inf, output_type="ndarray")


def _agree(group, poses, first, second, measured, variance, step, rank, pairs):
    """(p,) bool: the loop of a pair closes within its noise; and the noise, see `confirmed`."""
    a, b = pairs.T
    world = poses.storage
    between = group(world[first[a]]).inverse() * group(world[first[b]])
    back = group(world[second[b]]).inverse() * group(world[second[a]])
    loop = group(measured[a]).inverse() * between * group(measured[b]) * back
    dim = 2 if group is SE2 else 3
    moved = np.asarray(loop.storage)[:, :dim]
    turned = loop.storage[:, 2] if group is SE2 else _angle(np.asarray(loop.storage)[:, 3:7])
    steps = np.abs(rank[first[a]] - rank[first[b]]) + np.abs(rank[second[a]] - rank[second[b]])
    total = variance[a] + variance[b] + steps[:, None] * step
    lever = (measured[a, :dim] ** 2).sum(axis=1) * total[:, 1]
    dims = [dim, 1 if group is SE2 else 3]
    ratios = np.stack([(moved**2).sum(axis=1) / (total[:, 0] + lever), turned**2 / total[:, 1]], axis=1)
    bound = np.array([chi2_quantile(_QUANTILE, dim) for dim in dims])
    agree = (ratios <= bound).all(axis=1)
    if not agree.any():
        return agree, 1.0
    found = np.median(ratios[agree], axis=0) / [chi2_quantile(0.5, dim) for dim in dims]
    noise = np.clip(_MARGIN * found, _LEAST_NOISE, 1.0)
    return (ratios <= noise * bound).all(axis=1), float(noise.max())


def _angle(quaternion: np.ndarray) -> np.ndarray:
    """(n,) angles [rad] of rotations (n, 4) x y z w."""
    return 2.0 * np.arctan2(np.linalg.norm(quaternion[:, :3], axis=1), np.abs(quaternion[:, 3]))
