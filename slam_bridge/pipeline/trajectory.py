"""Poses of all frames, kept relative to keyframes: what moves a keyframe moves its frames (ORB-SLAM3).

    world_T_frame = world_T_first  exp(a log(C))  first_T_frame,     C = first_T_second  inv(tracked_T_second)

A frame was tracked from the keyframe before it; so was the frame that became the next keyframe. C is what
optimization changed between both since. A frame takes as much of it as it had moved of the way between them,
so that the trajectory passes through both, however far a loop or a bundle adjustment moved them.
"""

from __future__ import annotations

import os
import struct
import tempfile
from typing import IO

import numpy as np

from graphopt.geometry import SE3
from slam_bridge.map import Map

_FRAME = np.dtype([("stamp", np.int64), ("keyframe", np.int64), ("keyframe_T_frame", float, 7)])
_HELD = 8192 * _FRAME.itemsize
"""Bytes of frames in memory, before they go to a temporary file: memory does not grow with time."""


class _Frames:
    """Records of frames in the order of their coming."""

    def __init__(self) -> None:
        self._recent, self._limit = bytearray(), _HELD
        self._file: IO[bytes] | None = None
        self._written = 0
        """Bytes in the file."""

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def __len__(self) -> int:
        return (self._written + len(self._recent)) // _FRAME.itemsize

    def append(self, stamp: int, keyframe: int, keyframe_T_frame: np.ndarray) -> None:
        """Add a frame; it replaces the last one if that has the same stamp."""
        if (
            self._recent
            and struct.unpack_from("=q", self._recent, len(self._recent) - _FRAME.itemsize)[0] == stamp
        ):
            del self._recent[-_FRAME.itemsize :]
        self._recent += struct.pack("=qq7d", stamp, keyframe, *keyframe_T_frame.tolist())
        if len(self._recent) >= self._limit:
            self._write()

    def _write(self) -> None:
        """Move what is in memory to the file; where the disk is full it stays."""
        try:
            self._file = self._file or tempfile.TemporaryFile(prefix="graphopt-", buffering=0)
            done = 0
            while done < len(self._recent):
                done += os.pwrite(self._file.fileno(), self._recent[done:], self._written + done)
        except OSError:
            self._limit = 2 * len(self._recent)
            return
        self._written += len(self._recent)
        self._recent, self._limit = bytearray(), _HELD

    def all(self) -> np.ndarray:
        """(n,) records, a copy."""
        written = b"" if self._file is None else os.pread(self._file.fileno(), self._written, 0)
        return np.frombuffer(written + bytes(self._recent), _FRAME).copy()

    def replace(self, frames: np.ndarray) -> None:
        """Take other records (n,) instead."""
        self._recent, self._written = bytearray(frames.tobytes()), 0


class FrameLog:
    """Frames with a pose relative to a keyframe, and keyframes that have left the map."""

    def __init__(self) -> None:
        self._frames = _Frames()
        self._parents: dict[int, tuple[int, np.ndarray]] = {}
        self._stamp_of: dict[int, int] = {}
        """Of keyframes, in the order of time."""
        self._breaks: set[int] = set()
        """Keyframes before which tracking began anew: nothing leads to them from the one before."""

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, stamp: int, keyframe: int, keyframe_T_frame: np.ndarray) -> None:
        """Add a frame [ns]."""
        self._frames.append(stamp, keyframe, keyframe_T_frame)

    def add_keyframe(self, stamp: int, keyframe: int) -> None:
        """The frame at this stamp [ns] is this keyframe of the map."""
        self._stamp_of[keyframe] = stamp

    def remove_keyframe(self, keyframe: int, parent: int, parent_T_keyframe: np.ndarray) -> None:
        """A keyframe leaves the map; its frames then hang on another one."""
        self._parents[keyframe] = parent, parent_T_keyframe

    def scale(self, factor: float) -> None:
        """The map's unit changed: lengths become `factor` times as long."""
        frames = self._frames.all()
        frames["keyframe_T_frame"][:, :3] *= factor
        self._frames.replace(frames)
        for _, pose in self._parents.values():
            pose[:3] *= factor

    def prepend(self, earlier: FrameLog) -> None:
        """Take in the frames of an earlier map, whose keyframes are in this one's map now."""
        self._frames.replace(np.concatenate([earlier._frames.all(), self._frames.all()]))
        self._parents = {**earlier._parents, **self._parents}
        self._breaks |= earlier._breaks
        if self._stamp_of:
            self._breaks.add(next(iter(self._stamp_of)))
        self._stamp_of = {**earlier._stamp_of, **self._stamp_of}

    def poses(self, world: Map) -> tuple[np.ndarray, np.ndarray]:
        """Stamps (n,) [ns] and world_T_body (n, 7) as the map has its keyframes now."""
        frames = self._frames.all()
        if not len(frames):
            return np.zeros(0, np.int64), np.zeros((0, 7))
        places = self._places(world, frames["keyframe"])
        anchors = SE3(np.stack([places[keyframe] for keyframe in frames["keyframe"].tolist()]))
        relative = self._corrected(frames, places)
        poses = np.array((anchors * SE3(relative)).storage)
        poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
        order = np.argsort(frames["stamp"], kind="stable")
        return frames["stamp"][order], poses[order]

    def _places(self, world: Map, used: np.ndarray) -> dict[int, np.ndarray]:
        """world_T_body (7,) of every keyframe that there was, in the map or hanging on one."""
        known = {*used.tolist(), *self._stamp_of}
        with world.lock:
            ids, poses = world.keyframes.ids.tolist(), world.keyframes["world_T_body"].copy()
        places = dict(zip(ids, poses, strict=True))
        for keyframe in sorted(known - places.keys()):  # parents are older
            parent, step = self._parents[keyframe]
            places[keyframe] = np.asarray((SE3(places[parent]) * SE3(step)).storage)
        return places

    def _corrected(self, frames: np.ndarray, places: dict[int, np.ndarray]) -> np.ndarray:
        """keyframe_T_frame (n, 7), with each frame's share of what moved the next keyframe since."""
        keyframes, stamps = frames["keyframe"], frames["stamp"]
        relative = frames["keyframe_T_frame"].copy()
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
