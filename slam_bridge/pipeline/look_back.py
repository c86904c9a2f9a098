"""Poses of frames that were not known when they came, found backwards in time.

`LookBack`: frames before a map of one camera, mapped backwards from the first keyframe on.
`WayBack`: frames before a place is recognised, or a stereo map begins, followed backwards from there.
`by_imu`: frames in the dark before an IMU was initialized, once it is.

A map of one camera starts once two frames have enough parallax and only one motion explains them; before a
wall that may take seconds, at whose begin most landmarks of these two frames were not in sight yet. So frames
are tracked backwards in a copy of the map that grows as the map itself does: keyframes, landmarks by
triangulation, local bundle adjustment. Then each frame is placed among these landmarks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from graphopt.geometry import SE3
from slam_bridge.map import Map
from slam_bridge.marginal_prior import STATE_COLUMNS
from slam_bridge.pipeline.features import Tracks
from slam_bridge.pipeline.inputs import Frame
from slam_bridge.pipeline.keyframes import KeyframeMaker, Prepared, View, needs_keyframe, parallax_of
from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.preintegration import Preintegrated
from slam_bridge.problems import FrameGraph, FrameObservations, FrameState, local_ba, pose_optimization


class Missed(NamedTuple):
    """A frame of which tracking knew nothing."""

    stamp: int
    """[ns]."""
    image: np.ndarray
    camera: int

    @classmethod
    def of(cls, frame: Frame) -> Missed:
        """The first image of a frame."""
        return cls(frame.stamp, frame.images[0], frame.cameras[0])


@dataclass(eq=False)
class WayBack:
    """How far frames are followed back; a step per new frame, so that none waits for it."""

    frames: list[Missed]
    """Those that are left, the latest last."""
    image: np.ndarray
    """Of the frame after them, and what is tracked in it."""
    tracks: Tracks
    keyframe: int
    keyframe_T_body: np.ndarray
    """(7,) of that frame."""


class Dark(NamedTuple):
    """A frame that showed nothing, and the IMU since the last keyframe."""

    stamp: int
    """[ns]."""
    keyframe: int
    measured: Preintegrated


def by_imu(world: Map, frames: list[Dark]) -> Iterator[tuple[int, int, np.ndarray]]:
    """Stamp, keyframe, keyframe_T_body (7,) of frames, as the IMU says between two keyframes that it links.

    What it misses the second one by is shared out by time.
    """
    for dark in frames:
        link = np.flatnonzero(world.imu["first"] == dark.keyframe)
        if not len(link):
            continue
        poses, whole = world.keyframes, world.preintegrated[int(world.imu.ids[link[0]])]
        rows = poses.rows([dark.keyframe, world.imu["second"][link[0]]])
        state = FrameState(*(poses[name][rows[0]] for name in STATE_COLUMNS))
        start = SE3(state.world_T_body).inverse()
        end, now = (
            start * SE3(state.predicted(measured, world.gravity).world_T_body)
            for measured in (whole, dark.measured)
        )
        missed = (start * SE3(poses["world_T_body"][rows[1]]) * end.inverse()).log()
        share = SE3.exp(dark.measured.dt / whole.dt * np.asarray(missed))
        yield dark.stamp, dark.keyframe, np.array((share * now).storage)


class Waiting(NamedTuple):
    """A frame without a pose."""

    stamp: int
    """[ns]."""
    tracks: Tracks


class LookBack:
    """Finds poses of frames, one after the other away from the first keyframe in time."""

    def __init__(self, world: Map, options: PipelineOptions, origin: int, first: Waiting, shown: Tracks):
        """origin: the first keyframe, which frame `first` became.

        shown: tracks of the second keyframe, with their landmarks.
        """
        assert world.rig is not None
        self._world, self._options, self._rig = world.snapshot(), options, world.rig
        self._graph = FrameGraph(world.rig)
        self._maker = KeyframeMaker(world.rig, options, self._world)
        self._origin, tracks = origin, first.tracks
        self._maker.views.append(View(origin, first.stamp, tracks.ids, tracks.pixel, tracks.ray))
        self._landmark = dict(zip(shown.ids.tolist(), shown.landmark.tolist(), strict=True))
        """Of a track; -1: it contradicted the others."""
        self._added: list[int] = []
        self._pose = self._place(origin)
        self._last, self._num_last = self._pose, len(self._shown(tracks)[0])

    def poses(self, frames: list[Waiting]) -> list[tuple[int, np.ndarray]]:
        """Stamps [ns] and origin_T_body (7,) of frames, up to one that shows too little."""
        start = self._pose
        for number, frame in enumerate(frames):
            if not self._track(frame):
                frames = frames[:number]
                break
        if len(self._added) > 1:
            local_ba(self._world, self._added, None, self._options.solve)
        self._pose, found = start, []
        anchor = SE3(self._place(self._origin)).inverse()
        for frame in frames:
            if self._placed(frame.tracks):
                found.append((frame.stamp, np.array((anchor * SE3(self._pose)).storage)))
        return found

    def _place(self, keyframe: int) -> np.ndarray:
        frames = self._world.keyframes
        return frames["world_T_body"][frames.rows(keyframe)].copy()

    def _shown(self, tracks: Tracks) -> tuple[np.ndarray, np.ndarray]:
        """Rows of tracks with a landmark, and positions (n, 3) of these."""
        landmark = np.array([self._landmark.get(track, -1) for track in tracks.ids.tolist()], np.int64)
        place = self._world.landmarks.find(landmark)
        rows = np.flatnonzero(place >= 0)
        return rows, self._world.landmarks["position"][place[rows]]

    def _placed(self, tracks: Tracks) -> int:
        """Landmarks that agree with the frame's pose, which is then the present one; 0: too few."""
        rows, points = self._shown(tracks)
        least = self._options.min_inliers
        if len(rows) < least:
            return 0
        seen = FrameObservations.of(points, tracks.pixel[rows], sigma=self._options.sigma)
        found = pose_optimization(self._rig, self._pose, seen, graph=self._graph)
        if not found.is_usable or found.num_inliers < least:
            return 0
        self._pose = found.keyframes.world_T_body[0]
        self._landmark.update(dict.fromkeys(tracks.ids[rows[~found.inliers]].tolist(), -1))
        return found.num_inliers

    def _track(self, frame: Waiting) -> bool:
        """Find a frame's pose and make it a keyframe where one is due; False where it shows too little."""
        inliers = self._placed(frame.tracks)
        if not inliers:
            return False
        motion = SE3(self._last).inverse() * SE3(self._pose)
        parallax = parallax_of(self._maker.views[-1], frame.tracks, motion, self._rig)
        if needs_keyframe(self._options, inliers, self._num_last, parallax):
            self._add(frame)
        return True

    def _add(self, frame: Waiting) -> None:
        """Make a frame a keyframe, with landmarks of tracks that it and earlier ones of these show."""
        tracks = frame.tracks
        known = np.array([self._landmark.get(track, -2) for track in tracks.ids.tolist()], np.int64)
        tracks = tracks.keep(known != -1)
        tracks.landmark[:] = np.maximum(known[known != -1], -1)
        zeros = np.zeros(len(tracks))
        keyframe = self._world.add_keyframe(frame.stamp, self._pose)
        prepared = Prepared(tracks, {}, None, np.zeros((len(tracks), 3)), zeros)
        tracks, _ = self._maker.insert(keyframe, frame.stamp, prepared)
        has = tracks.landmark >= 0
        self._landmark.update(zip(tracks.ids[has].tolist(), tracks.landmark[has].tolist(), strict=True))
        self._added.append(keyframe)
        options = self._options
        recent = self._added[-options.local_keyframes :]
        local_ba(self._world, recent, None, options.solve, max_fixed=options.local_fixed)
        self._pose = self._last = self._place(keyframe)
        self._num_last = int(has.sum())
