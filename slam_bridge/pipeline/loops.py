"""Loops: is the present keyframe where an older one was, and what that does to the map.

    candidates   keyframes that look alike (`PlaceIndex`), at least `loop_gap` older
    geometry     mono: `sim3_alignment` of both views' landmarks; else PnP: old landmarks, present pixels
    correction   `essential_graph_optimization`: "4dof" with an IMU, "se3" with stereo, else "sim3"
    fusion       landmarks that both views have become one

`Loops.find` looks for one after each keyframe, `Mapper` corrects the map: only while that is written tracking
stands still.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphopt.geometry import SE3
from slam_bridge.cameras import Rig
from slam_bridge.map import Map
from slam_bridge.pipeline.features import Detector, matched_near, resized
from slam_bridge.pipeline.inputs import Frame
from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.pipeline.places import LEVELS, Place, PlaceIndex, common, look
from slam_bridge.pipeline.tracking import Recognised
from slam_bridge.problems import (
    FrameObservations,
    essential_graph_optimization,
    pose_optimization,
    relocalize,
    sim3_alignment,
)
from slam_bridge.problems.essential_graph_optimization import DEFAULTS as LOOP_OPTIONS
from slam_bridge.problems.result import Result

_POSITION_SIGMA, _ROTATION_SIGMA, _SCALE_SIGMA = 0.05, 0.01, 0.01
"""Of a loop, as of the links of the essential graph [m, rad, none]."""
_NO_PIXELS = np.zeros((0, 2))
_DENSE = 4
"""So many times the corners of a frame are described where a place is to be recognised: 1000 in ORB-SLAM3."""
_NEIGHBOURS = 10
"""Keyframes whose landmarks are looked for where a pose says that they are."""
_RADIUS = 20.0
"""[px] around there."""
_FEW = 6
"""Landmarks whose agreement is a pose to look for more from."""
BEFORE_ALL = int(np.iinfo(np.int64).min // 2)
"""Stamp of keyframes of an earlier run, whose clock may have been another."""
_PAUSE = 5
"""Keyframes after a loop that are not looked at; ORB-SLAM3: 10 of its denser ones."""


@dataclass(frozen=True, eq=False)
class FoundPose:
    """Where a view is, from landmarks of a keyframe."""

    relative: np.ndarray
    """keyframe_T_body (7,)."""
    rows: np.ndarray
    """(m,) corners of the view that agree."""
    landmark: np.ndarray
    """(m,) ids of what they show."""


@dataclass(frozen=True, eq=False)
class Loop:
    """A place that was seen before."""

    old: int
    now: int
    old_S_now: np.ndarray
    """(8,) Sim3."""
    landmarks: np.ndarray
    """(k, 2) ids of landmarks, kept and gone, that are the same."""


class Loops:
    """Finds loops and closes them."""

    def __init__(self, rig: Rig, options: PipelineOptions, world: Map):
        self._rig, self._options, self._world = rig, options, world
        self.index = PlaceIndex()
        self._detectors: dict[tuple[int, ...], list[Detector]] = {}
        self.found: list[Loop] = []
        self.others: list[Any] = []
        """Sessions of other maps, which a keyframe may show."""
        self._pause = 0

    def look_at_keyframe(self, frame: Frame, keyframe: int, pixel: np.ndarray) -> Place:
        """Describe a keyframe with tracks (n, 2), at all sizes where it may show an earlier place."""
        before = frame.stamp - int(1e9 * self._options.loop_gap)
        is_alone = not self.others and self.index.oldest > before
        return self.look(frame, keyframe, pixel, 1 if is_alone else len(LEVELS))

    def look(
        self, frame: Frame, keyframe: int = -1, pixel: np.ndarray = _NO_PIXELS, levels: int = len(LEVELS)
    ) -> Place:
        """Describe a frame with tracks (n, 2); of a keyframe, if it is one. levels: of `LEVELS`."""
        shape = frame.images[0].shape
        if shape not in self._detectors:
            dense = replace(self._options, max_features=_DENSE * self._options.max_features)
            sizes = [resized(frame.images[0], size).shape for size in LEVELS]
            self._detectors[shape] = [Detector(one, np.ones(one, bool), dense) for one in sizes]
        return look(frame, self._detectors[shape][:levels], keyframe, pixel)

    def restore(self) -> None:
        """Index the keyframes whose features came with the map; they are older than whatever comes."""
        with self._world.lock:
            found = {key: one for key, one in self._world.features.items() if key in self._world.keyframes}
        for keyframe, one in found.items():
            self.index.add(Place(keyframe, BEFORE_ALL, one.descriptor, one.pixel, len(one.pixel)))

    def find(self, place: Place, may_close: bool) -> bool:
        """Add a keyframe to the index; True where it closes a loop."""
        candidates: list[Place] = []
        if self._options.loops and may_close and self._pause <= 0:
            before = place.stamp - int(1e9 * self._options.loop_gap)
            candidates = self.index.query(place.descriptor, before)
            candidates = [old for old in candidates if old.keyframe not in self._connected(place.keyframe)]
        self._pause -= 1
        self.add(place)
        for old in candidates:
            loop = self._verified(place, old)
            if loop is not None:
                self.found.append(loop)
                return True
        return False

    def _connected(self, keyframe: int) -> set[int]:
        """Keyframes that share so many landmarks with this one that there is no loop to close."""
        with self._world.lock:
            ids, counts = self._world.covisible([keyframe])
        return set(ids[counts >= self._options.keyframe_features].tolist())

    def add(self, place: Place) -> None:
        """Remember a keyframe's look, in the index and in the map."""
        self.index.add(place)
        with self._world.lock:
            if place.keyframe in self._world.keyframes:
                stored = self.index.places[place.keyframe]
                self._world.set_features(place.keyframe, stored.pixel, stored.descriptor)

    def recognised(self, here: Place, least: int | None = None) -> Recognised | None:
        """Where a view is among the keyframes; None: nowhere that it could tell.

        least: landmarks that must agree, None: `min_inliers`.
        """
        for old in self.index.query(here.descriptor, here.stamp):
            found = self.pose_among(here, old, least or self._options.min_inliers)
            if found is not None:
                return Recognised(old.keyframe, found.relative, here.pixel[found.rows], found.landmark)
        return None

    def visible(self, here: Place, world_T_body: np.ndarray, near: int) -> Recognised | None:
        """Landmarks of keyframes about `near` that a view shows where its pose (7,) says; None: too few.

        The keyframe that shows most of them is the one that the pose is then counted from.
        """
        rows, chosen = self._shown(here, world_T_body, near)
        if len(rows) < self._options.min_inliers:
            return None
        with self._world.lock:
            places = [self.index.places[key] for key in self._about(near)]
            counts = [int(np.isin(self.landmarks_of(place), chosen).sum()) for place in places]
            best = places[int(np.argmax(counts))]
            relative = (SE3(self._pose(best)).inverse() * SE3(world_T_body)).storage
        return Recognised(best.keyframe, np.array(relative), here.pixel[rows], chosen)

    def _about(self, keyframe: int) -> list[int]:
        """Keyframes of the index that show what this one shows, it first."""
        keyframes = [keyframe, *self._world.covisible([keyframe])[0][:_NEIGHBOURS].tolist()]
        return [key for key in keyframes if key in self.index.places]

    def _shown(self, here: Place, world_T_body: np.ndarray, near: int) -> tuple[np.ndarray, np.ndarray]:
        """Corners (m,) of a view that show landmarks (m,) of keyframes about `near`, by its pose (7,)."""
        camera, world = self._rig[here.camera], self._world
        with world.lock:
            places = [self.index.places[key] for key in self._about(near)]
            ids = [self.landmarks_of(place) for place in places]
            landmark = np.concatenate([np.zeros(0, np.int64), *(one[one >= 0] for one in ids)])
            bits = [place.descriptor[one >= 0] for one, place in zip(ids, places, strict=True)]
            descriptor = np.concatenate([np.zeros((0, 32), np.uint8), *bits])
            landmark, first = np.unique(landmark, return_index=True)
            points = world.landmarks["position"][world.landmarks.rows(landmark)]
        local = camera.in_camera(world_T_body, points)
        with np.errstate(all="ignore"):
            inside = camera.sees(local)
            expected = camera.project(local)[inside]
        landmark, descriptor = landmark[inside], descriptor[first][inside]
        off = np.linalg.norm(here.pixel[:, None] - expected, axis=2)
        pairs = matched_near(here.descriptor, descriptor, off <= _RADIUS)
        return pairs[:, 0], landmark[pairs[:, 1]]

    @property
    def _enough(self) -> int:
        """Landmarks that must agree; without a scale both views must have tracked and mapped them."""
        return self._options.loop_inliers // (2 if self._options.mode == "mono" else 1)

    def _verified(self, now: Place, old: Place) -> Loop | None:
        if self._options.mode == "mono":
            return self._similar(now, old)
        found = self.pose_among(now, old, self._enough)
        if found is None:
            return None
        mine = self.landmarks_of(now)[found.rows]
        same = (mine >= 0) & (mine != found.landmark)
        pairs = np.stack([found.landmark[same], mine[same]], axis=1)
        return Loop(old.keyframe, now.keyframe, np.append(found.relative, 1.0), pairs)

    def joining(self, now: Place, theirs: Loops) -> Loop | None:
        """A place of another map, `theirs`, that a keyframe of this one shows; landmarks are of both maps."""
        for old in theirs.index.query(now.descriptor, now.stamp):
            if self._options.mode == "mono":
                loop = self._similar(now, old, theirs)
            else:
                loop = self._placed_in(now, old, theirs)
            if loop is not None:
                return loop
        return None

    def _placed_in(self, now: Place, old: Place, theirs: Loops) -> Loop | None:
        found = theirs.pose_among(now, old, self._enough)
        if found is None:
            return None
        mine = self.landmarks_of(now)[found.rows]
        pairs = np.stack([found.landmark[mine >= 0], mine[mine >= 0]], axis=1)
        return Loop(old.keyframe, now.keyframe, np.append(found.relative, 1.0), pairs)

    def pose_among(self, now: Place, old: Place, least: int) -> FoundPose | None:
        """Where a view is, from an old one's landmarks; None where fewer than `least` agree.

        More are then looked for where the pose says that they are, as ORB-SLAM3 does.
        """
        rows, rows_old = common(now, old)
        with self._world.lock:
            landmark = self.landmarks_of(old)[rows_old]
            rows, landmark = rows[landmark >= 0], landmark[landmark >= 0]
            anchor = self._pose(old)
        if len(rows) < _FEW:
            return None
        found = relocalize(self._rig, self._seen(now, rows, landmark), min_inliers=_FEW)
        for _ in range(2):
            if not found.is_usable:
                break
            pose = found.keyframes.world_T_body[0]
            more, theirs = self._shown(now, pose, old.keyframe)
            better = pose_optimization(self._rig, pose, self._seen(now, more, theirs))
            if not better.is_usable or better.num_inliers <= found.num_inliers:
                break
            found, rows, landmark = better, more, theirs
        if not found.is_usable or found.num_inliers < least:
            return None
        relative = (SE3(anchor).inverse() * SE3(found.keyframes.world_T_body[0])).storage
        return FoundPose(np.array(relative), rows[found.inliers], landmark[found.inliers])

    def _seen(self, here: Place, rows: np.ndarray, landmark: np.ndarray) -> FrameObservations:
        """Corners (n,) of a view as observations of landmarks (n,)."""
        with self._world.lock:
            points = self._world.landmarks["position"][self._world.landmarks.rows(landmark)]
        sigma = self._options.detected_sigma
        return FrameObservations.of(points, here.pixel[rows], here.camera, sigma=sigma)

    def _similar(self, now: Place, old: Place, of_old: Loops | None = None) -> Loop | None:
        """Sim3 between both views' landmarks, each in its own camera, which is the body of a mono map.

        of_old: of the old view's map, if that is another one.
        """
        of_old = of_old or self
        shown = of_old.pose_among(now, old, self._options.min_inliers)
        if shown is None:
            return None
        with self._world.lock, of_old._world.lock:
            mine, theirs = self.landmarks_of(now)[shown.rows], shown.landmark
            of_view = of_old.landmarks_of(old)
            has = (mine >= 0) & np.isin(theirs, of_view)
            if int(has.sum()) < self._enough:
                return None
            rows_now, mine, theirs = shown.rows[has], mine[has], theirs[has]
            rows_old = np.argmax(of_view == theirs[:, None], axis=1)
            first, second = of_old._in_camera(old, theirs), self._in_camera(now, mine)
        pixels, sigma = (old.pixel[rows_old], now.pixel[rows_now]), self._options.detected_sigma
        camera = self._rig[0]
        found = sim3_alignment(first, second, (camera, camera), pixels[0], pixels[1], sigma=sigma)
        if not found.is_usable or found.num_inliers < self._enough:
            return None
        pairs = np.stack([theirs, mine], axis=1)
        same = found.inliers & ((pairs[:, 0] != pairs[:, 1]) | (of_old is not self))
        return Loop(old.keyframe, now.keyframe, found.extra["first_S_second"], pairs[same])

    def _in_camera(self, place: Place, landmarks: np.ndarray) -> np.ndarray:
        """Landmarks (n,) in the camera of a place (n, 3)."""
        table = self._world.landmarks
        return self._rig[0].in_camera(self._pose(place), table["position"][table.rows(landmarks)])

    def _pose(self, place: Place) -> np.ndarray:
        with self._world.lock:
            frames = self._world.keyframes
            return frames["world_T_body"][frames.rows(place.keyframe)].copy()

    def landmarks_of(self, place: Place) -> np.ndarray:
        """(n,) ids of the landmarks that a place's corners show now, -1: none."""
        with self._world.lock:
            seen = self._world.observations
            rows = np.sort(seen.rows_where("keyframe", [place.keyframe]))
            pixel, landmark = seen["pixel"][rows], seen["landmark"][rows]
        keys, wanted = _keys(pixel), _keys(place.pixel)
        order = np.argsort(keys)
        if not len(order):
            return np.full(len(wanted), -1)
        spot = np.clip(np.searchsorted(keys[order], wanted), 0, len(order) - 1)
        return np.where(keys[order][spot] == wanted, landmark[order][spot], -1)

    def corrected(self) -> Result:
        """The poses that the loop found last asks for; the map has the loop then, but stays where it is."""
        loop, world = self.found[-1], self._world
        self._pause = _PAUSE
        information = np.diag(np.repeat([_ROTATION_SIGMA, _POSITION_SIGMA, _SCALE_SIGMA], (3, 3, 1)) ** -2.0)
        world.add_loops([loop.old], [loop.now], loop.old_S_now[None, :7], information, loop.old_S_now[7:])
        mode = {"stereo": "se3", "rgbd": "se3", "mono": "sim3"}.get(self._options.mode, "4dof")
        return essential_graph_optimization(world, mode, options=LOOP_OPTIONS.with_changes(update=False))

    def fuse(self, loop: Loop, tracker: Any) -> int:
        """Landmarks that both views of a loop show become one; says how many. Tracking stands still."""
        world, pairs = self._world, loop.landmarks
        with world.lock:
            pairs = pairs[(world.landmarks.find(pairs) >= 0).all(axis=1)]
            pairs = pairs[np.unique(pairs[:, 1], return_index=True)[1]]
            pairs = pairs[~np.isin(pairs[:, 1], pairs[:, 0])]
            if len(pairs):
                world.merge_landmarks(pairs[:, 0], pairs[:, 1])
                tracker.renamed(pairs[:, 0], pairs[:, 1])
        return len(pairs)


def _keys(pixel: np.ndarray) -> np.ndarray:
    """One number per pixel (n, 2); tracks of one image are never at exactly the same place."""
    return pixel[:, 0] * 65536.0 + pixel[:, 1]
