"""What a new keyframe adds to the map: corners, matches in other cameras, landmarks by stereo, depth, motion.

A corner without landmark is kept with its rays in the last keyframes (`View`). Its landmark is made as soon
as two rays make an angle of `min_parallax` times their error: those of a stereo pair, or those of the oldest
view and the present one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from graphopt.geometry import SE3
from slam_bridge.cameras import Camera, Rig
from slam_bridge.map import Map
from slam_bridge.pipeline.features import Detector, Tracks, follow
from slam_bridge.pipeline.inputs import Frame
from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.pipeline.two_view import (
    angular_sigma,
    camera_pose,
    placed,
    rays_of,
    turned,
)
from slam_bridge.rays import triangulate

LIMIT = 2.45
"""Angles beyond so many times their error are wrong: 95 % of two numbers."""
FARTHEST = 1.0
"""Landmarks of the first stereo pair have a parallax of at least so many errors of a ray: where all is far,
a map has to begin with points whose distance is hardly known. Motion tells more soon."""
_NUM_VIEWS = 10
_FLAT = 0.05
"""Depths beside a corner differ by this fraction at most: at an edge a depth is of one side or the other."""
Motion = Callable[[int], np.ndarray]


def standing(lag: int) -> np.ndarray:
    """body_T_later (7,) of a body that does not move."""
    return np.array(SE3.identity_storage, float)


def depth_sigma(depth: np.ndarray) -> np.ndarray:
    """Standard deviation [m] of depths [m] of structured light.

    Nguyen, Izadi and Lovell, Modeling Kinect Sensor Noise, 3DIMPVT 2012, equation for axial noise.
    """
    return 0.0012 + 0.0019 * (depth - 0.4) ** 2


def measured_depths(image: np.ndarray, pixel: np.ndarray, farthest: float) -> np.ndarray:
    """(n,) depths [m] at pixels (n, 2) of a depth image, NaN: none, beyond `farthest`, or at an edge."""
    height, width = image.shape
    column, row = np.rint(pixel).astype(int).T if len(pixel) else np.zeros((2, 0), int)
    steps = np.arange(-1, 2)
    rows = np.clip(row[:, None, None] + steps[:, None], 0, height - 1)
    columns = np.clip(column[:, None, None] + steps, 0, width - 1)
    around = image[rows, columns].reshape(len(pixel), 9).astype(float)
    middle = around[:, 4].copy()
    with np.errstate(invalid="ignore"):
        known = np.where(np.isfinite(around) & (around > 0.0), around, middle[:, None])
        good = (middle > 0.0) & (middle <= farthest) & (np.ptp(known, axis=1) <= _FLAT * middle)
    return np.where(good, middle, np.nan)


@dataclass(frozen=True, eq=False)
class View:
    """What one keyframe sees, landmarks or not."""

    keyframe: int
    stamp: int
    ids: np.ndarray
    """(n,) of the tracks, ascending."""
    pixel: np.ndarray
    """(n, 2) in the image in which they are tracked."""
    ray: np.ndarray
    """(n, 3) in that camera's frame."""
    others: dict[int, np.ndarray] = field(default_factory=dict)
    """By number of another camera (n, 2) its pixels at the moment of the first image, NaN: not matched."""
    depth: np.ndarray | None = None
    """(n,) z in the camera [m], NaN: not measured."""
    camera: int = 0
    """Number in the rig of the camera with the tracks."""

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Rows of tracks, -1 where they are not in this view."""
        place = np.searchsorted(self.ids, ids)
        place[place == len(self.ids)] = 0
        return np.where(self.ids[place] == ids, place, -1) if len(self.ids) else np.full(len(ids), -1)


@dataclass(frozen=True, eq=False)
class Prepared:
    """What the images of a keyframe show, before the map has it."""

    tracks: Tracks
    others: dict[int, np.ndarray]
    """As in `View`."""
    depth: np.ndarray | None
    """As in `View`."""
    points: np.ndarray
    """(n, 3) in the body's frame [m]."""
    parallax: np.ndarray
    """(n,) [rad] of the rays that the points come from; infinite where a depth was measured, 0: no point."""


class KeyframeMaker:
    """Adds keyframes to a map."""

    def __init__(self, rig: Rig, options: PipelineOptions, world: Map):
        self._options, self._world = options, world
        self._rig, self._widest = rig, options.widest
        self._sigma = [angular_sigma(camera, options.sigma) for camera in self._rig]
        self._detectors: dict[int, Detector] = {}
        self._next_track = 0
        self.views: deque[View] = deque(maxlen=_NUM_VIEWS)

    @property
    def least_parallax(self) -> float:
        """Of a landmark by stereo [rad]. The first keyframe takes all that are surely not at infinity."""
        return (self._options.min_parallax if self.views else FARTHEST) * max(self._sigma)

    def tracks_of(self, pixel: np.ndarray, landmark: np.ndarray, camera: int) -> Tracks:
        """Tracks of pixels (n, 2) of a camera that show landmarks (n,)."""
        ids = np.arange(self._next_track, self._next_track + len(pixel))
        self._next_track += len(ids)
        tracks = Tracks.new(ids, pixel, rays_of(self._rig[camera], pixel, self._widest), camera)
        tracks.landmark[:] = landmark
        return tracks.keep(np.isfinite(tracks.ray[:, 0]))

    def detected(self, frame: Frame, tracks: Tracks) -> Tracks:
        """The tracks, and new corners where there were none."""
        camera, shape = frame.cameras[0], frame.images[0].shape
        if camera not in self._detectors:
            self._detectors[camera] = Detector(shape, self._usable(shape, self._rig[camera]), self._options)
        pixel = self._detectors[camera].detect(frame.corners, tracks.pixel)
        found = self.tracks_of(pixel, np.full(len(pixel), -1), camera)
        return self._thinned(tracks, self._detectors[camera].cell).joined(found) if len(tracks) else found

    def _thinned(self, tracks: Tracks, size: int) -> Tracks:
        """Not more than `max_features`: of those that share a cell of this size the youngest go first."""
        surplus = len(tracks) - self._options.max_features
        if surplus <= 0:
            return tracks
        cell = (tracks.pixel // size).astype(int) @ [1, 1 << 16]
        order = np.lexsort((-tracks.age, cell))
        first = np.ones(len(tracks), bool)
        first[1:] = cell[order][1:] != cell[order][:-1]
        crowd = order[~first]
        gone = crowd[np.argsort(tracks.age[crowd], kind="stable")[:surplus]]
        return tracks.keep(~np.isin(np.arange(len(tracks)), gone))

    def _usable(self, shape: tuple[int, int], camera: Camera) -> np.ndarray:
        """(height, width) bool: inside a border, and of rays that are not too far from the axis."""
        step = 4
        row, column = np.meshgrid(*(np.arange(0, size, step) for size in shape), indexing="ij")
        pixel = np.stack([column, row], axis=-1).reshape(-1, 2).astype(float)
        fine = np.isfinite(rays_of(camera, pixel, self._widest)).all(axis=1).reshape(row.shape)
        mask = np.repeat(np.repeat(fine, step, axis=0), step, axis=1)[: shape[0], : shape[1]]
        mask[:8] = mask[-8:] = mask[:, :8] = mask[:, -8:] = False
        return mask

    def prepare(
        self, frame: Frame, tracks: Tracks, world_T_body: np.ndarray, motion: Motion = standing
    ) -> Prepared:
        """Corners, matches in other cameras, and points of a frame at about this pose.

        motion: body_T_later (7,) after so many nanoseconds, for images that are not of one moment.
        """
        tracks = self.detected(frame, tracks)
        count = len(tracks)
        points, parallax = np.zeros((count, 3)), np.zeros(count)
        others, depth = {}, None
        if self._options.is_stereo:
            for place, camera in enumerate(frame.cameras[1:], 1):
                later = motion(frame.lags[place]) if frame.lags[place] else None
                pair = frame.images[0], frame.images[place]
                there, seen, angle = self.match(pair, camera, tracks, world_T_body, later)
                others[camera] = there
                better = angle > parallax
                points[better], parallax[better] = seen[better], angle[better]
        elif self._options.has_depth and frame.depth is not None:
            depth = measured_depths(frame.depth, tracks.pixel, self._options.max_depth)
            has = np.isfinite(depth)
            local = tracks.ray / tracks.ray[:, 2:] * depth[:, None]
            points[has] = placed(SE3(self._rig[0].body_T_cam), local[has])
            parallax[has] = np.inf
        return Prepared(tracks, others, depth, points, parallax)

    def shows_enough(self, frame: Frame) -> bool:
        """A frame alone shows so many landmarks in metres that a map can begin with it."""
        trial = self.prepare(frame, Tracks.none(), standing(0))
        near = trial.parallax > FARTHEST * max(self._sigma)
        return int(near.sum()) >= self._options.keyframe_features // 2

    def match(
        self,
        images: tuple[np.ndarray, np.ndarray],
        camera: int,
        tracks: Tracks,
        world_T_body: np.ndarray,
        body_T_later: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pixels (n, 2) in another camera, NaN: none; points (n, 3) in the body; parallax (n,) [rad].

        Searched where the landmark is, or where points of the landmarks' median distance would be; a match
        has to meet its ray within `LIMIT` errors ahead of both cameras. body_T_later: how the body moved up
        to the other image; its pixels are then moved to where they were at the moment of the first one.
        """
        left, right = self._rig[tracks.camera], self._rig[camera]
        rays, body_T_left, body_T_right = tracks.ray, SE3(left.body_T_cam), SE3(right.body_T_cam)
        body_T_then = body_T_right if body_T_later is None else SE3(body_T_later) * body_T_right
        distance = self._distances(tracks, world_T_body, camera)
        with np.errstate(all="ignore"):
            point = placed(body_T_then.inverse() * body_T_left, rays * distance[:, None])
            guess = right.project(point)
        there, found = follow(images[0], images[1], tracks.pixel, guess, self._options)
        right_rays = rays_of(right, there, self._widest)
        found &= np.isfinite(right_rays).all(axis=1)
        centres = [np.asarray(pose.translation) for pose in (body_T_left, body_T_then)]
        seen = triangulate(
            centres[0],
            turned(body_T_left.rotation, rays),
            centres[1],
            turned(body_T_then.rotation, right_rays),
        )
        parallel = seen.parallax < max(self._sigma) * LIMIT  # too far to say more than where it is not
        found &= (seen.error <= LIMIT * max(self._sigma)) | (parallel & found)
        if body_T_later is not None:
            with np.errstate(all="ignore"):
                then = right.project(placed(body_T_then.inverse(), seen.points))
                there = there + right.project(placed(body_T_right.inverse(), seen.points)) - then
            found &= np.isfinite(there).all(axis=1)
        there[~found] = np.nan
        return there, seen.points, np.where(found & np.isfinite(seen.error), seen.parallax, 0.0)

    def _distances(self, tracks: Tracks, world_T_body: np.ndarray, camera: int) -> np.ndarray:
        """(n,) [m] from the tracks' camera to landmarks; of the others the median one, or 20 baselines."""
        left = self._rig[tracks.camera]
        centre = np.asarray(camera_pose(world_T_body, left).translation)
        base = np.linalg.norm(left.body_T_cam[:3] - self._rig[camera].body_T_cam[:3])
        result = np.full(len(tracks), 20.0 * base)
        with self._world.lock:
            rows = self._world.landmarks.find(tracks.landmark)
            known = rows >= 0
            points = self._world.landmarks["position"][rows[known]].copy()
        if known.any():
            result[known] = np.linalg.norm(points - centre, axis=1)
            result[~known] = np.median(result[known])
        return result

    def insert(self, keyframe: int, stamp: int, prepared: Prepared) -> tuple[Tracks, View]:
        """Observations and new landmarks of a keyframe that the map has already; returns tracks with them."""
        tracks, parallax = prepared.tracks, prepared.parallax
        view = View(
            keyframe, stamp, tracks.ids, tracks.pixel.copy(), tracks.ray.copy(),
            prepared.others, prepared.depth, tracks.camera,
        )  # fmt: skip
        with self._world.lock:
            frames = self._world.keyframes
            pose = SE3(frames["world_T_body"][frames.rows(keyframe)].copy())
            tracks.landmark[self._world.landmarks.find(tracks.landmark) < 0] = -1
            self._observe(view, np.flatnonzero(tracks.landmark >= 0), tracks.landmark)
            fresh = np.flatnonzero((tracks.landmark < 0) & (parallax > self.least_parallax))
            points = placed(pose, prepared.points[fresh])
            tracks.landmark[fresh] = self._world.add_landmarks(points, keyframe)
            self._observe(view, fresh, tracks.landmark)
            self.views.append(view)
            tracks = self._by_motion(tracks, view)
        return tracks, view

    def _observe(self, view: View, rows: np.ndarray, landmark: np.ndarray) -> None:
        """Add observations of rows of a view; `landmark` has one id per row of the view."""
        sigma = self._options.sigma
        if len(rows):
            depths = {}
            if view.depth is not None:
                depth = view.depth[rows]
                depths = {"depth": depth, "depth_sigma": depth_sigma(depth)}
            self._world.add_observations(
                view.keyframe, landmark[rows], view.pixel[rows], view.camera, sigma=sigma, **depths
            )
        for camera, there in view.others.items():
            seen = rows[np.isfinite(there[rows, 0])]
            if len(seen):
                self._world.add_observations(view.keyframe, landmark[seen], there[seen], camera, sigma=sigma)

    def _by_motion(self, tracks: Tracks, view: View) -> Tracks:
        """Landmarks of tracks whose oldest ray and present one meet; tracks whose rays miss are dropped."""
        pending = np.flatnonzero(tracks.landmark < 0)
        frames = self._world.keyframes
        older = [
            each_view for each_view in self.views if each_view is not view and each_view.keyframe in frames
        ]
        if not len(pending) or not older:
            return tracks
        origin, first_ray = np.full((len(pending), 3), np.nan), np.full((len(pending), 3), np.nan)
        for frame in reversed(older):  # the oldest one wins
            rows = frame.find(tracks.ids[pending])
            pose = camera_pose(frames["world_T_body"][frames.rows(frame.keyframe)], self._rig[frame.camera])
            has = rows >= 0
            origin[has] = np.asarray(pose.translation)
            first_ray[has] = turned(pose.rotation, frame.ray[rows[has]])
        pose = camera_pose(frames["world_T_body"][frames.rows(view.keyframe)], self._rig[view.camera])
        ray = turned(pose.rotation, view.ray[pending])
        seen = triangulate(origin, first_ray, np.asarray(pose.translation), ray)
        wide = seen.parallax > self._options.min_parallax * self._sigma[view.camera]
        meets = seen.error <= LIMIT * self._sigma[view.camera]
        fresh = pending[wide & meets]
        if len(fresh):
            tracks.landmark[fresh] = self._world.add_landmarks(seen.points[wide & meets], view.keyframe)
            for frame in (*older, view):
                rows = frame.find(tracks.ids[fresh])
                landmark = np.full(len(frame.ids), -1)
                landmark[rows[rows >= 0]] = tracks.landmark[fresh[rows >= 0]]
                self._observe(frame, np.flatnonzero(landmark >= 0), landmark)
        wrong = np.zeros(len(tracks), bool)
        wrong[pending[wide & ~meets]] = True
        return tracks.keep(~wrong)


def needs_keyframe(options: PipelineOptions, inliers: int, of_keyframe: int, parallax: float) -> bool:
    """Whether a frame has to become a keyframe for what it sees.

    inliers: landmarks that it shows; of_keyframe: that the last keyframe showed; parallax: mean angle of
    tracks since that one [rad].
    """
    few = inliers < options.keyframe_features or inliers < options.keyframe_ratio * of_keyframe
    return few or parallax > options.keyframe_parallax / 460.0


def parallax_of(view: View, tracks: Tracks, view_T_body: SE3, rig: Rig) -> float:
    """Mean angle [rad] that tracks moved since a view, without the turn of view_T_body."""
    rows = view.find(tracks.ids)
    has = rows >= 0
    if not has.any():
        return 0.0
    then, now_in = (SE3(rig[camera].body_T_cam) for camera in (view.camera, tracks.camera))
    now = turned((then.inverse() * view_T_body * now_in).rotation, tracks.ray[has])
    cosine = np.clip(np.einsum("ni,ni->n", view.ray[rows[has]], now), -1.0, 1.0)
    return float(np.nanmean(np.arccos(cosine)))
