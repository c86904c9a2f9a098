"""Poses of all frames, kept relative to keyframes: what moves a keyframe moves its frames (ORB-SLAM3).

    world_T_frame = world_T_first  exp(a log(C))  first_T_frame,     C = first_T_second  inv(tracked_T_second)

A frame was tracked from the keyframe before it; so was the frame that became the next keyframe. C is what
optimization changed between both since. A frame takes as much of it as it had moved of the way between them,
so that the trajectory passes through both, however far a loop or a bundle adjustment moved them.
"""

from __future__ import annotations

from array import array

import numpy as np

from graphopt.geometry import SE3
from slam_bridge.map import Map


class FrameLog:
    """Frames with a pose relative to a keyframe, and keyframes that have left the map."""

    def __init__(self) -> None:
        self._stamps, self._keyframes = array("q"), array("q")
        self._relative = array("d")
        """7 numbers per frame."""
        self._parents: dict[int, tuple[int, np.ndarray]] = {}
        self._stamp_of: dict[int, int] = {}
        """Of keyframes, in the order of time."""
        self._breaks: set[int] = set()
        """Keyframes before which tracking began anew: nothing leads to them from the one before."""

    def __len__(self) -> int:
        return len(self._stamps)

    def add(self, stamp: int, keyframe: int, keyframe_T_frame: np.ndarray) -> None:
        """Add a frame [ns]."""
        self._stamps.append(stamp)
        self._keyframes.append(keyframe)
        self._relative.extend(keyframe_T_frame.tolist())

    def add_keyframe(self, stamp: int, keyframe: int) -> None:
        """The frame at this stamp [ns] is this keyframe of the map."""
        self._stamp_of[keyframe] = stamp

    def stamp_of(self, keyframe: int) -> int:
        """Stamp [ns] of a keyframe of this run."""
        return self._stamp_of[keyframe]

    def remove_keyframe(self, keyframe: int, parent: int, parent_T_keyframe: np.ndarray) -> None:
        """A keyframe leaves the map; its frames then hang on another one."""
        self._parents[keyframe] = parent, parent_T_keyframe

    def scale(self, factor: float) -> None:
        """The map's unit changed: lengths become `factor` times as long."""
        moved = self._poses()
        moved[:, :3] *= factor
        self._relative = array("d", moved.ravel().tobytes())
        for _, pose in self._parents.values():
            pose[:3] *= factor

    def prepend(self, earlier: FrameLog) -> None:
        """Take in the frames of an earlier map, whose keyframes are in this one's map now."""
        self._stamps = earlier._stamps + self._stamps
        self._keyframes = earlier._keyframes + self._keyframes
        self._relative = earlier._relative + self._relative
        self._parents = {**earlier._parents, **self._parents}
        self._breaks |= earlier._breaks
        if self._stamp_of:
            self._breaks.add(next(iter(self._stamp_of)))
        self._stamp_of = {**earlier._stamp_of, **self._stamp_of}

    def _poses(self) -> np.ndarray:
        """keyframe_T_frame (n, 7), a copy."""
        return np.array(self._relative).reshape(-1, 7)

    def poses(self, world: Map) -> tuple[np.ndarray, np.ndarray]:
        """Stamps (n,) [ns] and world_T_body (n, 7) as the map has its keyframes now."""
        if not self._stamps:
            return np.zeros(0, np.int64), np.zeros((0, 7))
        places = self._places(world)
        anchors = SE3(np.stack([places[keyframe] for keyframe in self._keyframes]))
        relative = self._corrected(self._poses(), places)
        poses = np.array((anchors * SE3(relative)).storage)
        poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
        stamps = np.array(self._stamps, np.int64)
        order = np.argsort(stamps, kind="stable")
        return stamps[order], poses[order]

    def _places(self, world: Map) -> dict[int, np.ndarray]:
        """world_T_body (7,) of every keyframe that there was, in the map or hanging on one."""
        known = {*self._keyframes, *self._stamp_of}
        with world.lock:
            ids, poses = world.keyframes.ids.tolist(), world.keyframes["world_T_body"].copy()
        places = dict(zip(ids, poses, strict=True))
        for keyframe in sorted(known - places.keys()):  # parents are older
            parent, step = self._parents[keyframe]
            places[keyframe] = np.asarray((SE3(places[parent]) * SE3(step)).storage)
        return places

    def _corrected(self, relative: np.ndarray, places: dict[int, np.ndarray]) -> np.ndarray:
        """keyframe_T_frame (n, 7), with each frame's share of what moved the next keyframe since."""
        keyframes, stamps = np.array(self._keyframes), np.array(self._stamps, np.int64)
        pairs = list(zip(self._stamp_of, list(self._stamp_of)[1:], strict=False))
        for first, second in pairs:
            if second in self._breaks:
                continue
            start, end = self._stamp_of[first], self._stamp_of[second]
            last = np.flatnonzero((keyframes == first) & (stamps == end))
            if not len(last):
                continue
            rows = np.flatnonzero((keyframes == first) & (stamps > start) & (stamps <= end))
            now = SE3(places[first]).inverse() * SE3(places[second])
            change = (now * SE3(relative[last[0]]).inverse()).log()
            share = _travelled(relative[rows[np.argsort(stamps[rows])]])
            share = share[np.argsort(np.argsort(stamps[rows])), None]
            relative[rows] = np.asarray((SE3.exp(share * np.asarray(change)) * SE3(relative[rows])).storage)
        return relative


def _travelled(poses: np.ndarray) -> np.ndarray:
    """(n,) of the way from the origin through poses (n, 7) up to each of them, as a fraction of all of it."""
    places = np.concatenate([np.zeros((1, 3)), poses[:, :3]])
    way = np.cumsum(np.linalg.norm(np.diff(places, axis=0), axis=1))
    return way / max(way[-1], 1e-300)
