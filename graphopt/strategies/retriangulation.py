"""Re-seat landmarks that sit in a wrong place of their own.

A landmark that a step threw behind its cameras or far away is in a local minimum of its own: no joint step
brings it back, and chi2 of the whole creeps. For each landmark with a large chi2, other starts are tried
while all else is held, each is minimised alone, and the best is taken if it is lower than where the landmark
is:

    x = argmin sum |(I - r_k r_k') (x - c_k)|^2        where the viewing rays (c_k, r_k) meet
    x = mean c + f d mean r                            on the mean ray, at fractions f of the usual distance
    x = argmin of one edge alone                       of stereo images, the first and the last

Of the candidates that lower chi2 those in front of all cameras go first. The rays come from the residuals
(`viewing_rays`), so this serves every edge type that measures the image of a point of space by two numbers:
BAL, g2o's EXPMAP projections, COLMAP's cameras, a user's own. Three numbers are a stereo image where the type
says what it sees (`EdgeType.sees`).

Where a robust kernel is not convex, a landmark has minima of its own, by which of its images count as
outliers. There the starts are (`minima`)

    x = argmin of all its edges but one, without kernels     for each edge, those with a large chi2 first

and only places in front of all cameras are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.problem.segments import entries_of
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.block_solver import BlockSolver
from graphopt.strategies.landmark_problem import LandmarkProblem, PointEdges, chi2_by_vertex
from graphopt.strategies.viewing_rays import Rays, usual_places, viewing_rays
from graphopt.types.base import EdgeType
from graphopt.types.slam3d import VertexPointXYZ

FRACTIONS = (0.03, 0.06, 0.1, 0.3, 1.0, 10.0)
"""Distances tried along the mean ray, relative to what is usual for these cameras."""
_SUSPICIOUS = 20.0  # times the median chi2 per observation: landmarks worth looking at
_MOST, _LARGEST_SHARE = 50, 0.02  # of them, by chi2: this many, or this share of all landmarks
_MEDIAN_SAMPLES = 1 << 13  # landmarks whose chi2 says what is usual, about
_ROUNDS, _ITERATIONS = 4, 5  # of each round
_HOPEFUL = 1e4  # times the present chi2: candidates worth another round
_SPREAD_SAMPLES = 1 << 12  # landmarks whose extent is measured, about
_OUTLYING, _OUTLYING_SHARE = 2.0, 0.1  # as _SUSPICIOUS and _LARGEST_SHARE, for minima of robust kernels
_MOST_LEFT_OUT = 6  # edges of a landmark
_LOWER = 1e-3  # a candidate must lower a landmark's chi2 by this fraction


@dataclass(frozen=True)
class Retriangulated:
    """What was gained."""

    num_landmarks: int = 0
    """That moved."""
    gain: float = 0.0
    """By which chi2 fell."""
    moved: tuple[tuple[int, np.ndarray], ...] = ()
    """Vertex sets, and their rows (k,) that moved."""


def retriangulate_landmarks(
    structure: Structure, worth: float = 0.0, solver: BlockSolver | None = None, minima: bool = False
) -> Retriangulated:
    """Move eliminated landmarks to better places; the estimates of the graph change.

    Landmarks are VERTEX_TRACKXYZ vertices that are eliminated and whose edges all are images of them. Since
    no two of them share an edge, chi2 of the whole falls by the sum of what each one gains. Nothing is tried
    where the landmarks with a large chi2 do not hold at least `worth` of it together, and nothing moves where
    they do not gain that much. solver: at whose estimates; those come into the graph where something is
    tried, None: they are there. It is not told what moves. minima: of robust kernels, see the module.
    """
    found = []
    for landmarks in _landmarks(structure):
        kernels.check_stop()
        rows = _suspicious(structure, landmarks, worth, solver, minima)
        if not len(rows):
            continue
        if solver is not None:
            solver.finish()
        estimate = structure.selection.vertex_sets[landmarks.number].estimate
        found.append(
            (landmarks.number, estimate, *_retriangulate(structure, landmarks, estimate, rows, minima))
        )
    gain = sum(float(gains.sum()) for *_, gains in found)
    if not gain >= worth:
        return Retriangulated()
    for _, estimate, rows, places, _ in found:
        estimate[rows] = places
    moved = tuple((number, rows) for number, _, rows, *_ in found if len(rows))
    return Retriangulated(sum(len(rows) for _, rows in moved), gain, moved)


def images_of_landmarks(structure: Structure) -> list[tuple[EdgeGroup, int]]:
    """Groups and slots whose chi2 by vertex `retriangulate_landmarks` looks at first."""
    return [image for landmarks in _landmarks(structure) for image in landmarks.images]


@dataclass(frozen=True, eq=False)
class _Landmarks:
    """The eliminated landmarks of a vertex set whose edges all are images."""

    number: int
    """Of the set."""
    rows: np.ndarray
    """(n,) int64: rows of the set, by their blocks."""
    blocks: np.ndarray
    """(n,) int64: their blocks, ascending, counted from the first eliminated one."""
    images: tuple[tuple[EdgeGroup, int], ...]
    """Groups of images, and the landmarks' slot."""


_known: WeakKeyDictionary[Structure, list[_Landmarks]] = WeakKeyDictionary()


def _landmarks(structure: Structure) -> list[_Landmarks]:
    """Of each vertex set that has any; found once."""
    if structure not in _known:
        sets = enumerate(structure.selection.vertex_sets)
        found = [_landmarks_of(structure, number) for number, set_ in sets if set_.type is VertexPointXYZ]
        _known[structure] = [candidates for candidates in found if len(candidates.rows) and candidates.images]
    return _known[structure]


def _landmarks_of(structure: Structure, number: int) -> _Landmarks:
    blocks = structure.vertex_blocks[number]
    chosen = blocks >= structure.num_kept
    images = []
    for group in structure.groups:
        slots = [k for k, vertex_set in enumerate(group.vertex_sets) if vertex_set == number]
        is_seen = _is_image(group.edge_set.type) or _is_stereo(group.edge_set.type)
        if len(slots) == 1 and len(group.vertex_sets) > 1 and is_seen:
            images.append((group, slots[0]))
            continue
        for slot in slots:
            other = np.zeros(len(chosen), bool)
            kernels.mark(group.vertex_rows, slot, other)
            chosen &= ~other
    num_eliminated = structure.num_blocks - structure.num_kept
    if len(chosen) == num_eliminated and chosen.all():
        rows = kernels.invert_order((blocks - structure.num_kept).astype(np.uint32)).astype(np.int64)
        return _Landmarks(number, rows, kernels.row_numbers(num_eliminated), tuple(images))
    chosen_rows = np.flatnonzero(chosen)
    row_of = np.full(num_eliminated, -1)
    row_of[blocks[chosen_rows] - structure.num_kept] = chosen_rows
    found = np.flatnonzero(row_of >= 0)
    return _Landmarks(number, row_of[found], found, tuple(images))


def _is_image(kind: EdgeType) -> bool:
    """Two numbers, which a point anywhere on a ray explains."""
    return kind.residual_dim == 2


def _is_stereo(kind: EdgeType) -> bool:
    """Three numbers of a camera that says what it sees: one point explains them."""
    return kind.residual_dim == 3 and kind.sees is not None


def _measured_places(structure: Structure, edges: PointEdges, estimate: np.ndarray) -> np.ndarray:
    """(2, n, 3) for stereo edges of n landmarks: where the first and the last one of each alone put it."""
    starts = usual_places(structure, edges, estimate)
    alone = PointEdges(edges.group, edges.rows, edges.slot, np.arange(len(edges.rows)))
    problem = LandmarkProblem(structure, [alone], starts)
    problem.minimise(_ITERATIONS, _ROUNDS)
    points, first = np.unique(edges.point, return_index=True)
    last = len(edges.point) - 1 - np.unique(edges.point[::-1], return_index=True)[1]
    places = np.full((2, int(edges.point.max()) + 1, 3), np.nan)
    places[:, points] = problem.points[np.stack([first, last])]
    return places


def _retriangulate(
    structure: Structure, landmarks: _Landmarks, estimate: np.ndarray, chosen: np.ndarray, minima: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows (k,) of the chosen ones that gain in other places, these (k, 3), and what each gains (k,)."""
    edges = [_edges_of(structure, group, slot, chosen) for group, slot in landmarks.images]
    edges = [edge for edge in edges if len(edge.rows)]
    images = [edge for edge in edges if _is_image(edge.group.edge_set.type)]
    rays = [_rays(structure, edge, estimate) for edge in images]
    seen = [
        (ray.centre, ray.direction, ray.distance, ray.known, edge.point)
        for edge, ray in zip(images, rays, strict=True)
    ]
    present = estimate[chosen][None]
    if minima:
        candidates = [_without_one(structure, edges, present)]
    else:
        candidates = [kernels.candidate_places(seen, len(chosen), FRACTIONS)] if seen else []
    for edge in edges if not minima else ():
        if _is_stereo(edge.group.edge_set.type):
            measured = np.repeat(present, 2, axis=0)
            places = _measured_places(structure, edge, estimate)
            measured[:, : places.shape[1]] = np.where(
                np.isnan(places), measured[:, : places.shape[1]], places
            )
            candidates.append(measured)
    problem = LandmarkProblem(structure, edges, np.concatenate([present, *candidates]))
    chi2_now = problem.chi2()[0]
    chi2, _ = problem.minimise(_ITERATIONS, _ROUNDS, _HOPEFUL * chi2_now)
    places = problem.points
    places[0], chi2[0] = present[0], chi2_now
    front = kernels.mark_front(seen, places) if seen else np.ones(places.shape[:2], bool)
    lower = chi2 < (1.0 - _LOWER) * chi2[0]
    lower &= front | (not minima)
    # smallest chi2 among those in front and lower, else among those lower
    rank = np.where(lower & front, chi2, np.where(lower, chi2 + chi2[0], np.inf))
    best = np.argmin(rank, axis=0)
    each = np.arange(len(chosen))
    moves = lower[best, each]
    gains = (chi2[0] - chi2[best, each])[moves]
    return chosen[moves], places[best, each][moves], gains


def _without_one(structure: Structure, edges: list[PointEdges], present: np.ndarray) -> np.ndarray:
    """(k, n, 3) where all edges but one put n landmarks, without kernels; present: (1, n, 3)."""
    each = [PointEdges(edge.group, edge.rows, edge.slot, np.arange(len(edge.rows))) for edge in edges]
    chi2 = [
        LandmarkProblem(structure, [one], present[0, edge.point]).chi2()
        for one, edge in zip(each, edges, strict=True)
    ]
    point, count = np.concatenate([edge.point for edge in edges]), present.shape[1]
    order = np.lexsort((-np.concatenate(chi2), point))
    rank = np.empty(len(point), np.int64)
    rank[order] = np.arange(len(point)) - np.searchsorted(point[order], point[order])
    ranks = np.split(rank, np.cumsum([len(edge.rows) for edge in edges])[:-1])
    places = np.repeat(present, min(int(rank.max()) + 1, _MOST_LEFT_OUT), axis=0)
    parts = []
    for edge, of_edge in zip(edges, ranks, strict=True):
        left_out, at = np.nonzero(of_edge != np.arange(len(places))[:, None])
        parts.append(PointEdges(edge.group, edge.rows[at], edge.slot, edge.point[at] + left_out * count))
    problem = LandmarkProblem(structure, parts, places.reshape(-1, 3), robust=False)
    problem.minimise(_ITERATIONS, _ROUNDS)
    return problem.points.reshape(places.shape)


def _suspicious(
    structure: Structure, landmarks: _Landmarks, worth: float, solver: BlockSolver | None, minima: bool
) -> np.ndarray:
    """Rows (n,) of landmarks with a large chi2; none where together they do not hold `worth`.

    Of size m, the number of edges, only sums by landmark are made, by the device or by all threads.
    """
    chi2, first = _sums_by_block(structure, landmarks, solver)
    num_seen = len(landmarks.rows)
    step = 1 + num_seen // _MEDIAN_SAMPLES
    sample = landmarks.blocks[::step]
    count = (first[sample + 1] - first[sample]).astype(float)
    sample, count = sample[count > 0], count[count > 0]
    if not len(sample):
        return np.empty(0, np.int64)
    factor, share = (_OUTLYING, _OUTLYING_SHARE) if minima else (_SUSPICIOUS, _LARGEST_SHARE)
    found = kernels.large_sums(chi2, first, factor * float(np.median(chi2[sample] / count)))
    at = np.minimum(np.searchsorted(landmarks.blocks, found), num_seen - 1)
    is_own = landmarks.blocks[at] == found  # else a block of other sets, or with edges that are no images
    at, large = at[is_own], np.nan_to_num(chi2[found[is_own]], nan=np.inf, posinf=np.inf)
    most = max(_MOST, int(share * num_seen))
    if len(at) > most:
        worst = np.argsort(-large, kind="stable")[:most]
        at, large = at[worst], large[worst]
    return landmarks.rows[np.sort(at)] if large.sum() >= worth else np.empty(0, np.int64)


def _sums_by_block(
    structure: Structure, landmarks: _Landmarks, solver: BlockSolver | None
) -> tuple[np.ndarray, np.ndarray]:
    """chi2 of the images (n,) by eliminated block, and where the images of each begin (n + 1,)."""
    num = structure.num_blocks - structure.num_kept
    parts = []
    for group, slot in landmarks.images:
        found = structure.sorted_edges(group, slot)
        begin = int(np.searchsorted(found.blocks, structure.num_kept))
        chi2 = None if solver is None else solver.chi2_by_vertex(group, slot)
        chi2 = chi2_by_vertex(structure, group, slot) if chi2 is None else chi2
        parts.append((found, begin, chi2[begin:]))
    found, begin, chi2 = parts[0]
    if len(parts) == 1 and len(chi2) == num:  # ascending blocks, so these are all, one after the other
        return chi2, found.first[begin:]
    chi2, count = np.zeros(num), np.zeros(num, np.uint32)
    for found, begin, own in parts:
        at = found.blocks[begin:] - structure.num_kept
        chi2[at] += own
        count[at] += np.diff(found.first[begin:])
    return chi2, np.concatenate([[0], np.cumsum(count)]).astype(np.uint32)


def _edges_of(structure: Structure, group: EdgeGroup, slot: int, landmarks: np.ndarray) -> PointEdges:
    """The edges of some landmarks, rows of their set; `point` is the number among these."""
    by_landmark = structure.sorted_edges(group, slot)
    blocks = structure.vertex_blocks[group.vertex_sets[slot]][landmarks]
    at = np.minimum(np.searchsorted(by_landmark.blocks, blocks), len(by_landmark.blocks) - 1)
    points = np.flatnonzero(by_landmark.blocks[at] == blocks)
    places, count = entries_of(by_landmark.first, at[points])
    rows = by_landmark.order[places].astype(np.int64)
    ascending = np.argsort(rows, kind="stable")
    return PointEdges(group, rows[ascending], slot, np.repeat(points, count)[ascending])


def _rays(structure: Structure, edges: PointEdges, estimate: np.ndarray) -> Rays:
    starts = usual_places(structure, edges, estimate)
    some = estimate[:: 1 + len(estimate) // _SPREAD_SAMPLES]
    spread = float(np.median(np.abs(some - np.median(some, axis=0))))
    return viewing_rays(structure, edges, starts, max(spread, 1e-6))
