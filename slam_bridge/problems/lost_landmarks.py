"""Landmarks that an optimization led astray get another place, from the rays of their observations.

A landmark that starts a few decimetres off may end beside or behind a camera, at a minimum of its own; its
observations are outliers then, though nothing is wrong with them. Between two rounds, each landmark with
fewer inliers than outliers is placed anew, once in a call:

    candidates   point of each right column or depth; midpoint of the rays of pairs of observations
    best         sum of min(chi2, 4 limit) is smallest
    refined      Gauss-Newton on the point alone, of the observations that agree
    taken        if more observations are inliers than were, two at least, and nearly all of them

Nearly all: tracks on what moves agree with some point for a while, and would turn the poses after them.
Poses stay; the next round refines and judges all. Landmarks that start where no camera sees them, or at no
finite place, are left alone: they are named in `Result.rejected`. (ORB-SLAM3 drops landmarks of both kinds;
its mapping may find them again.)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from graphopt.geometry import SE3
from graphopt.strategies.quantiles import chi2_quantile
from slam_bridge.rays import triangulate
from slam_bridge.selection import Selection

_LOOSE = 4.0
"""Candidates come from one or two observations: their noise is larger than that of the answer."""
_NEARLY_ALL = 0.8
_STEPS = 5
_MAX_PAIRS = 40


def few_inliers(s: Selection, inliers: np.ndarray, took_part: np.ndarray) -> np.ndarray:
    """Numbers of landmarks with more outliers than inliers; took_part (o,) bool: at the start of the call."""
    if s.points_fixed or not len(s.landmarks) or inliers.all():
        return np.zeros(0, np.int64)
    seen, count = s.observations.landmark, len(s.landmarks)
    good, every = np.bincount(seen[inliers], minlength=count), np.bincount(seen, minlength=count)
    lost = (2 * good < every) & (every > 1) & (np.bincount(seen[took_part], minlength=count) > 0)
    lost &= ~s.landmarks_nowhere() & ~s.landmarks_in_priors()  # these are held by what was marginalized
    return np.flatnonzero(lost)


def placed_anew(
    s: Selection, inliers: np.ndarray, lost: np.ndarray, confidence: float
) -> tuple[Selection, np.ndarray, np.ndarray]:
    """Other places for some of the landmarks `lost`: selection, inliers (o,) to go on with, who moved."""
    views = _Views.of(s, lost)
    points, of = _candidates(s, views)
    if not len(points):
        return s, inliers, np.zeros(0, np.int64)
    limits = views.limits(s, confidence)
    candidate, place, first = views.judges(of)
    cost = views.chi2(s, points[candidate], place) / (_LOOSE * limits[place])
    total = np.add.reduceat(np.minimum(cost, 1.0), first)
    order = np.lexsort((total, of))  # the best of each landmark comes first
    best = order[np.unique(of[order], return_index=True)[1]]
    agree = cost[np.isin(candidate, best)] <= 1.0
    points, of = points[best], of[best]
    candidate, place, first = views.judges(of)
    points = _refined(s, views, points, candidate, place, agree)
    good = views.chi2(s, points[candidate], place) <= limits[place]
    count, before = np.bincount(candidate), np.bincount(candidate, inliers[views.rows[place]])
    found = np.add.reduceat(good.astype(np.int64), first)
    taken = (found > np.maximum(before, 1)) & (found >= _NEARLY_ALL * count)
    changed, now = s.points.copy(), inliers.copy()
    changed[lost[of[taken]]] = points[taken]
    judged = taken[candidate]
    now[views.rows[place[judged]]] = good[judged]
    return s.with_changes(points=changed), now, lost[of[taken]]


def _refined(
    s: Selection,
    views: _Views,
    points: np.ndarray,
    candidate: np.ndarray,
    place: np.ndarray,
    agree: np.ndarray,
) -> np.ndarray:
    """Points (c, 3) at the least squares of the observations (e,) that agree; Jacobians by differences."""
    for _ in range(_STEPS):
        error, _ = views.errors(s, points[candidate], place)
        size = 1e-6 * (1.0 + np.linalg.norm(points[candidate] - views.centre[place], axis=1))
        columns = [
            (views.errors(s, points[candidate] + size[:, None] * axis, place)[0] - error) / size[:, None]
            for axis in np.eye(3)
        ]
        jacobian = np.stack(columns, axis=-1)  # (e, 4, 3)
        use = agree & np.isfinite(error).all(axis=1) & np.isfinite(jacobian).all(axis=(1, 2))
        h, b = np.zeros((len(points), 3, 3)), np.zeros((len(points), 3))
        np.add.at(h, candidate[use], np.einsum("eki,ekj->eij", jacobian[use], jacobian[use]))
        np.add.at(b, candidate[use], np.einsum("eki,ek->ei", jacobian[use], error[use]))
        h += 1e-9 * (1.0 + np.trace(h, axis1=1, axis2=2))[:, None, None] * np.eye(3)
        points = points - np.linalg.solve(h, b[..., None])[..., 0]
    return points


@dataclass(frozen=True, eq=False)
class _Views:
    """Observations of some landmarks, one landmark's after the other's."""

    rows: np.ndarray
    """(n,) of the selection's observations."""
    start: np.ndarray
    """(l + 1,) where each landmark's begin."""
    rotation: np.ndarray
    """(n, 3, 3) world_R_cam."""
    centre: np.ndarray
    """(n, 3) of the camera, in the world."""

    @classmethod
    def of(cls, s: Selection, landmarks: np.ndarray) -> _Views:
        """Views of landmarks (l,), ascending numbers of the selection."""
        seen, rig = s.observations, s.rig
        assert rig is not None
        rows = np.flatnonzero(np.isin(seen.landmark, landmarks))
        rows = rows[np.argsort(seen.landmark[rows], kind="stable")]
        start = np.searchsorted(seen.landmark[rows], np.append(landmarks, len(s.landmarks)))
        mountings = np.stack([camera.body_T_cam for camera in rig])[seen.camera[rows]]
        poses = SE3(s.world_T_body[seen.keyframe[rows]]) * SE3(mountings)
        return cls(rows, start, np.asarray(poses.rotation.to_matrix()), np.asarray(poses.translation))

    def limits(self, s: Selection, confidence: float) -> np.ndarray:
        """(n,) largest chi2 of an inlier."""
        seen = s.observations
        dims = 2 + np.isfinite(seen.right[self.rows]) + np.isfinite(seen.depth[self.rows])
        return np.array([chi2_quantile(confidence, dim) for dim in (2, 3, 4)])[dims - 2]

    def judges(self, of: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of candidates for landmarks `of` (c,), each with all observations of its landmark.

        Candidate (e,) and observation (e,) of each pair, and where each candidate's pairs begin (c,).
        """
        count = np.diff(self.start)[of]
        first = np.cumsum(count) - count
        candidate = np.repeat(np.arange(len(of)), count)
        return candidate, np.arange(count.sum()) - first[candidate] + self.start[of[candidate]], first

    def chi2(self, s: Selection, points: np.ndarray, place: np.ndarray) -> np.ndarray:
        """(e,) of points (e, 3) in observations `place` (e,); infinite where no camera's model holds."""
        error, holds = self.errors(s, points, place)
        with np.errstate(invalid="ignore", over="ignore"):
            chi2 = (error * error).sum(axis=1)
        return np.where(holds & np.isfinite(chi2), chi2, np.inf)

    def errors(self, s: Selection, points: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(e, 4) of pixel, right column and depth in sigmas, 0 where not measured; (e,) the model holds."""
        rig, seen, rows = s.rig, s.observations, self.rows[place]
        assert rig is not None
        local = np.einsum("ei,eij->ej", points - self.centre[place], self.rotation[place])
        pixels, holds = rig.project(seen.camera[rows], local)
        error, sigma = np.zeros((len(rows), 4)), seen.sigma[rows, None]
        with np.errstate(all="ignore"):
            error[:, :2] = (pixels - seen.pixel[rows]) / sigma
            for number, camera in enumerate(rig):
                own = np.flatnonzero((seen.camera[rows] == number) & np.isfinite(seen.right[rows]))
                if len(own):
                    error[own, 2] = camera.right_column(local[own]) - seen.right[rows[own]]
            error[:, 2:3] /= sigma
            far = (local[:, 2] - seen.depth[rows]) / seen.depth_sigma[rows]
        error[:, 3] = np.where(np.isfinite(seen.depth[rows]), far, 0.0)
        return error, holds

    def rays(self, s: Selection) -> tuple[np.ndarray, np.ndarray]:
        """Unit rays (n, 3) in the world; (n,) [m] how far right column or depth say, NaN: nothing."""
        rig, seen = s.rig, s.observations
        assert rig is not None
        local, depth = np.full((len(self.rows), 3), np.nan), seen.depth[self.rows].copy()
        with np.errstate(all="ignore"):
            for number, camera in enumerate(rig):
                own = np.flatnonzero(seen.camera[self.rows] == number)
                pixel, right = seen.pixel[self.rows[own]], seen.right[self.rows[own]]
                local[own] = camera.unproject(pixel)
                if camera.baseline is not None:
                    found = camera.locate(pixel, right)[:, 2]
                    depth[own] = np.where(np.isfinite(right), found, depth[own])
            reach = depth / local[:, 2]
        return np.einsum("nij,nj->ni", self.rotation, local), np.where(reach > 0.0, reach, np.nan)


def _candidates(s: Selection, views: _Views) -> tuple[np.ndarray, np.ndarray]:
    """Points (c, 3) in the world, and which landmark of the views each is of, ascending within each kind."""
    rays, reach = views.rays(s)
    owner = np.repeat(np.arange(len(views.start) - 1), np.diff(views.start))
    metric = np.isfinite(reach)
    alone = views.centre[metric] + reach[metric, None] * rays[metric]
    first, second = _pairs(views.start)
    with np.errstate(all="ignore"):
        met = triangulate(views.centre[first], rays[first], views.centre[second], rays[second])
    points = np.concatenate([alone, np.where(np.isfinite(met.error)[:, None], met.points, np.nan)])
    of = np.concatenate([owner[metric], owner[first]])
    good = np.isfinite(points).all(axis=1)
    return points[good], of[good]


def _pairs(start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of observations of one landmark each; of many, those that stand farthest apart."""
    found = []
    for first, end in zip(start[:-1].tolist(), start[1:].tolist(), strict=True):
        pairs = sorted(combinations(range(first, end), 2), key=lambda pair: pair[0] - pair[1])
        found += pairs[:_MAX_PAIRS]
    first, second = np.array(found, np.int64).reshape(-1, 2).T
    return first, second
