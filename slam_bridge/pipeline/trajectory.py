"""Poses of all frames, kept relative to keyframes: what moves a keyframe moves its frames (ORB-SLAM3)."""

from __future__ import annotations

import numpy as np

from graphopt.geometry import SE3
from slam_bridge.map import Map


class FrameLog:
    """Frames with a pose relative to a keyframe, and keyframes that have left the map."""

    def __init__(self) -> None:
        self._stamps: list[int] = []
        self._keyframes: list[int] = []
        self._relative: list[np.ndarray] = []
        self._parents: dict[int, tuple[int, np.ndarray]] = {}

    def __len__(self) -> int:
        return len(self._stamps)

    def add(self, stamp: int, keyframe: int, keyframe_T_frame: np.ndarray) -> None:
        """Add a frame [ns]."""
        self._stamps.append(stamp)
        self._keyframes.append(keyframe)
        self._relative.append(keyframe_T_frame)

    def remove_keyframe(self, keyframe: int, parent: int, parent_T_keyframe: np.ndarray) -> None:
        """A keyframe leaves the map; its frames then hang on another one."""
        self._parents[keyframe] = parent, parent_T_keyframe

    def scale(self, factor: float) -> None:
        """The map's unit changed: lengths become `factor` times as long."""
        for one in (*self._relative, *(pose for _, pose in self._parents.values())):
            one[:3] *= factor

    def poses(self, world: Map) -> tuple[np.ndarray, np.ndarray]:
        """Stamps (n,) [ns] and world_T_body (n, 7) as the map has its keyframes now."""
        if not self._stamps:
            return np.zeros(0, np.int64), np.zeros((0, 7))
        resolved = [self._resolved(one) for one in self._keyframes]
        with world.lock:
            rows = world.keyframes.rows([one for one, _ in resolved])
            anchors = world.keyframes["world_T_body"][rows].copy()
        steps = SE3(np.stack([pose for _, pose in resolved])) * SE3(np.stack(self._relative))
        poses = np.array((SE3(anchors) * steps).storage)
        poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
        stamps = np.array(self._stamps, np.int64)
        order = np.argsort(stamps, kind="stable")
        return stamps[order], poses[order]

    def _resolved(self, keyframe: int) -> tuple[int, np.ndarray]:
        """The keyframe in the map that this one hangs on, and its pose relative to that."""
        pose = np.array(SE3.identity_storage, float)
        while keyframe in self._parents:
            keyframe, step = self._parents[keyframe]
            pose = np.asarray((SE3(step) * SE3(pose)).storage)
        return keyframe, pose
