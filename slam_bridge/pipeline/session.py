"""One map that is being built or only read: tracking, mapping, places; and how two of them become one.

A frame of which tracking knows nothing is looked up among the places seen before. Where that fails a new map
begins (`Slam`), with an IMU after `lost_seconds`; one without metres that has not started yet is dropped if
the earlier one is recognised meanwhile. As soon as one of its keyframes shows a place of an earlier map, both
are joined (Campos et al., ORB-SLAM3, section VI): the present map is moved to where the earlier one is, by a
similarity with one camera alone, by position and heading where both know gravity, else by a pose.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from graphopt.geometry import SO3, Sim3
from slam_bridge.imu import gravity_of
from slam_bridge.map import Map
from slam_bridge.pipeline.inputs import Frame, Sensors
from slam_bridge.pipeline.loops import Loop, Loops
from slam_bridge.pipeline.mapping import Mapper
from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.pipeline.places import Place
from slam_bridge.pipeline.tracking import Status, Tracker
from slam_bridge.pipeline.trajectory import FrameLog


class Session:
    """One map with what works on it."""

    def __init__(
        self, sensors: Sensors, options: PipelineOptions, others: list[Session], world: Map | None = None
    ):
        """others: sessions whose maps this one may be joined with; world: a map of an earlier run."""
        self.options, self._others = options, others
        self.world = world if world is not None else Map(sensors.rig, gravity_of(sensors.gravity))
        if world is None and others:
            self.world.follow(others[-1].world)
        self.log = FrameLog()
        self.tracker = Tracker(sensors, options, self.world, self.log)
        self.loops = Loops(sensors.rig, options, self.world)
        self.loops.others = others
        self._began: int | None = None
        """Stamp of the first frame [ns]."""
        self.mapper = Mapper(self.tracker, self.world, self.log, self.loops, options, self._join)
        if world is not None:
            self.loops.restore()
            self.tracker.status = Status.LOST
            self.tracker.is_inertial = options.is_inertial and not options.localization and _is_upright(world)

    def process(self, frame: Frame, is_behind: bool = False) -> Status:
        """Take a frame; what tracking did with it. is_behind: see `Tracker.process`."""
        tracker = self.tracker
        self._began = frame.stamp if self._began is None else self._began
        with self.mapper.turns.frame():
            if frame.stamp < tracker.last_stamp:
                return tracker.look_aside(frame)
            view = tracker.process(frame, is_behind)
            if view is None and tracker.status in (Status.LOST, Status.BRIDGING):
                found = self.loops.recognised(self.loops.look(frame))
                view = None if found is None else tracker.relocalized(frame, found)
            elif self.options.localization and tracker.needs_landmarks(frame.stamp):
                here = self.loops.look(frame, levels=1)
                found = self.loops.visible(here, tracker.pose(), tracker.reference)
                tracker.looked(frame.stamp)
                if found is not None:
                    tracker.show(found, frame.stamp)
            elif tracker.status is Status.TRACKING and view is None and self._is_seen_elsewhere(frame):
                view = tracker.add_keyframe(frame)
            if tracker.status is Status.TRACKING:
                tracker.follow_back()
        if view is not None:
            self.mapper.submit(view, frame)
        return tracker.status

    def _is_seen_elsewhere(self, frame: Frame) -> bool:
        """A frame shows a place of another map; looked for while a run that was lost would have been."""
        assert self._began is not None
        if not self._others or 1e-9 * (frame.stamp - self._began) > self.options.lost_seconds:
            return False
        place, others = self.loops.look(frame), [other for other in self._others if self._fits(other)]
        least = self.options.loop_inliers
        return any(other.loops.recognised(place, least) is not None for other in others)

    def may_begin(self, frame: Frame) -> bool:
        """A new map may begin with a frame that this one does not know."""
        since, options = self.tracker.lost_since, self.options
        if options.localization or since is None:
            return False
        is_due = not options.is_inertial or 1e-9 * (frame.stamp - since) > options.lost_seconds
        return is_due and (not options.is_metric or self.tracker.maker.shows_enough(frame))

    def _join(self, place: Place) -> dict[str, Any] | None:
        """Join with the first of the other maps that a keyframe shows; what was done, None: nothing."""
        for other in self._others:
            if len(other.loops.index) and self._fits(other):
                loop = self.loops.joining(place, other.loops)
                if loop is not None:
                    other.tracker.look_back()
                    with self.mapper.turns.alone():
                        return self.take_in(other, loop)
        return None

    def _fits(self, other: Session) -> bool:
        """Both maps are of the same cameras and, with an IMU, know gravity."""
        if other.options.mode != self.options.mode:
            return False
        if not self.options.is_inertial:
            return True
        return other.tracker.is_inertial and self.tracker.is_inertial

    def take_in(self, other: Session, loop: Loop) -> dict[str, Any]:
        """Move this map to where another one is, and take its keyframes in; tracking stands still."""
        started = time.perf_counter()
        with self.world.lock, other.world.lock:
            motion = self._motion_to(other, loop)
            self.world.transform(motion)
            self.world.prepend(other.world)
            if motion[7] != 1.0:
                self.log.scale(float(motion[7]))
                self.tracker.rescaled(float(motion[7]))
            merged = self.loops.fuse(loop, self.tracker)
            self.log.prepend(other.log)
            self.loops.index.take_in(other.loops.index)
        self.tracker.moved()
        self._others.remove(other)
        return {
            "step": "join",
            "keyframes": [loop.old, loop.now],
            "landmarks": merged,
            "scale": float(motion[7]),
            "seconds": time.perf_counter() - started,
        }

    def _motion_to(self, other: Session, loop: Loop) -> np.ndarray:
        """theirs_S_ours (8,) between the worlds."""
        poses = [
            np.append(world.keyframes["world_T_body"][world.keyframes.rows(keyframe)], 1.0)
            for world, keyframe in ((other.world, loop.old), (self.world, loop.now))
        ]
        motion = Sim3(poses[0]) * Sim3(loop.old_S_now) * Sim3(poses[1]).inverse()
        found = np.array(motion.storage)
        if not self.options.is_inertial:
            return found
        # both worlds are upright: of the turn only that about gravity is taken, about the keyframe's place
        axis = self.world.gravity / np.linalg.norm(self.world.gravity)
        quaternion = found[3:7]
        along = np.append(axis * (quaternion[:3] @ axis), quaternion[3])
        heading = along / np.linalg.norm(along)
        there = np.asarray(motion.act(poses[1][:3]))
        shift = there - np.asarray(SO3(heading).act(poses[1][:3]))
        return np.concatenate([shift, heading, [1.0]])


def _is_upright(world: Map) -> bool:
    """The map has inertial states that an initialization found."""
    return bool(len(world.imu)) and bool((world.keyframes["velocity"] != 0.0).any())
