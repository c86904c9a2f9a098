"""Tracking: where each frame is, from corners followed out of the last one and the landmarks they show.

    predict    IMU, or the last motion again (turned as the gyroscope says)
    follow     KLT from the predicted pixels, there and back
    pose       `pose_optimization`, or `pose_inertial_optimization`; tracks of outliers are dropped
    keyframe   where parallax, lost landmarks or time ask for one

With an IMU a frame's state goes on from the last frame's with its prior, or from the last keyframe's as soon
as mapping has optimized it (ORB-SLAM3: `PoseInertialOptimizationLastFrame`, `...LastKeyFrame`).
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from graphopt.geometry import SE3
from slam_bridge.map import Map
from slam_bridge.marginal_prior import MarginalPrior
from slam_bridge.pipeline.features import Tracks, follow
from slam_bridge.pipeline.inputs import Frame, Sensors
from slam_bridge.pipeline.keyframes import KeyframeMaker, View, needs_keyframe, parallax_of
from slam_bridge.pipeline.look_back import Dark, LookBack, Missed, Waiting, WayBack, by_imu
from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.pipeline.trajectory import FrameLog
from slam_bridge.pipeline.two_view import (
    angular_sigma,
    camera_pose,
    placed,
    rays_of,
    turned,
    two_views,
)
from slam_bridge.preintegration import Preintegrated, preintegrate
from slam_bridge.problems import (
    FrameGraph,
    FrameObservations,
    FrameState,
    InertialFrameGraph,
    global_ba,
    pose_inertial_optimization,
    pose_optimization,
)

_IDENTITY = np.array(SE3.identity_storage, float)
_FAR_ENOUGH = 4.0
"""Times the parallax that a mono map starts with: where two views do not agree then, others are tried."""
_MOST_MISSED = 100
"""Frames that are followed back from where tracking goes on: five seconds, as `lost_seconds`."""
_MOST_WAITING = 200
"""Frames before a mono map's second keyframe whose poses are found afterwards: of a camera at rest the
last."""


class Status(Enum):
    """What tracking does. The value is the sentence shown to the user."""

    STARTING = "waiting for enough parallax or corners to start the map"
    TRACKING = "tracking"
    BRIDGING = "too few landmarks; the IMU says where the frame is"
    LOST = "lost; looking for a place seen before"
    SKIPPED = "left out, because tracking was busy"
    BLIND = "no camera gave an image of its size"
    LATE = "came after later frames, whose landmarks it does not show"


@dataclass(frozen=True, eq=False)
class Where:
    """Where the last frame is; replaced as a whole, so that other threads may read it."""

    stamp: int | None
    """[ns]."""
    keyframe: int
    """-1: none yet."""
    keyframe_T_body: np.ndarray
    """(7,)."""


@dataclass(frozen=True, eq=False)
class Predicted:
    """Where a frame should be."""

    world_T_body: np.ndarray
    world_T_reference: np.ndarray
    """(7,) of the last keyframe, when this was predicted: mapping may move it at any time."""
    previous: FrameState | None = None
    """State of the last frame or keyframe, with an IMU that is initialized."""
    measured: Preintegrated | None = None
    """Since that."""
    prior: MarginalPrior | None = None
    """What is known about the last frame; None: from a keyframe."""


@dataclass(frozen=True, eq=False)
class Aside:
    """Tracks of a camera that gives no image for the moment."""

    stamp: int
    """[ns] of its last image."""
    image: np.ndarray
    tracks: Tracks


@dataclass(frozen=True, eq=False)
class Recognised:
    """Where a frame is in a map, and what it shows of it."""

    keyframe: int
    keyframe_T_body: np.ndarray
    """(7,)."""
    pixel: np.ndarray
    """(m, 2) in the frame's first image."""
    landmark: np.ndarray
    """(m,) ids."""


class Tracker:
    """Follows frames and asks for keyframes."""

    def __init__(self, sensors: Sensors, options: PipelineOptions, world: Map, log: FrameLog):
        self._sensors, self._options, self._world, self._log = sensors, options, world, log
        self._rig = sensors.rig
        self.maker = KeyframeMaker(sensors.rig, options, world)
        self.tracks = Tracks.none()
        self.status = Status.STARTING
        self.is_inertial = False
        """The IMU is initialized: the mapper says so."""
        self.where = Where(None, -1, _IDENTITY)
        self._reference_stamp = self.last_stamp = 0
        """[ns] of the last keyframe, and of the last frame."""
        self.step = _IDENTITY.copy()
        """(7,) motion of the last frame."""
        self.image = np.zeros((0, 0), np.uint8)
        """In which corners were tracked last."""
        self.found_at = 0.0
        """When the last frame's pose was found (`time.perf_counter`)."""
        self._step_seconds = 0.0
        """Time that `step` took."""
        self._graph = FrameGraph(self._rig)
        self._inertial_graphs = [InertialFrameGraph(self._rig, is_free) for is_free in (False, True)]
        self._num_reference = 0
        self._missed: deque[Missed] = deque(maxlen=_MOST_MISSED)
        self._ways_back: list[WayBack] = []
        self._dark: list[Dark] = []
        self._paired = -(1 << 62)
        """Stamp of the last frame that showed metres [ns]."""
        self._aside: dict[int, Aside] = {}
        """By camera, the tracks that were lost when another one took its part."""
        self._first: Waiting | None = None
        self._waiting: list[Waiting] = []
        """Stamps and tracks of the frames between the first one of a mono map and the second keyframe."""
        self._origin = -1
        """First keyframe of a mono map."""
        self._shown: Tracks | None = None
        """Tracks of the second one, with their landmarks."""
        self.lost_since: int | None = None
        self._state: FrameState | None = None
        self._prior: MarginalPrior | None = None
        self.optimized = -1
        """Last keyframe that a bundle adjustment has seen: the mapper says so."""

    # ---------------------------------------------------------------- frames

    def process(self, frame: Frame, is_behind: bool = False) -> View | None:
        """Take one frame; the view of a new keyframe that mapping should see.

        is_behind: tracking or mapping is, so that there is one only where landmarks run out.
        """
        view = self._start(frame) if self.status is Status.STARTING else self._track(frame, is_behind)
        self.image, self.last_stamp = frame.images[0], frame.stamp
        return view

    @property
    def reference(self) -> int:
        """Last keyframe."""
        return self.where.keyframe

    @property
    def reference_T_body(self) -> np.ndarray:
        """(7,) of the last frame."""
        return self.where.keyframe_T_body

    @property
    def oldest_needed(self) -> int:
        """Stamp [ns] from which on IMU samples are needed."""
        return (
            self._reference_stamp
            if self.reference >= 0
            else self._first[0]
            if self._first
            else self.last_stamp
        )

    @property
    def has_pose(self) -> bool:
        """The last frame's pose is known."""
        return self.status in (Status.TRACKING, Status.BRIDGING)

    def _track(self, frame: Frame, is_behind: bool) -> View | None:
        stamp = frame.stamp
        if self.reference < 0:  # in a map of an earlier run, not yet recognised
            self._miss(stamp, is_measured=False)
            self.miss(frame)
            return None
        predicted, was_lost = self._predicted(stamp), self.status is Status.LOST
        before = self.tracks
        self.tracks = self._carried(frame, self._expected(predicted.world_T_body, frame.cameras[0]), True)
        if before.camera != frame.cameras[0]:
            self._change_camera(frame, before, predicted.world_T_body)
        pose, inliers, anchor = self._pose(predicted)
        if inliers >= self._options.min_inliers:
            self.status, self.lost_since = Status.TRACKING, None
        else:
            self._miss(stamp, predicted.measured is not None)
            pose, anchor = predicted.world_T_body, predicted.world_T_reference
        self.found_at = time.perf_counter()
        if self.status is Status.LOST:  # a guess from a guess and so on would end anywhere
            self.step = _IDENTITY.copy()
            self.miss(frame)
            self._measure_in_the_dark(stamp)
            return None
        self._advance(pose, anchor, stamp)
        if was_lost:  # that motion took more than one frame
            self.step = _IDENTITY.copy()
            self._turn_back(frame)
        self._log.add(stamp, self.reference, self.reference_T_body.copy())
        if self._options.localization:
            return None
        if (self._is_between_pairs(frame) or is_behind) and inliers >= self._options.keyframe_features:
            return None
        return self.add_keyframe(frame) if self._needs_keyframe(stamp, inliers) else None

    def _is_between_pairs(self, frame: Frame) -> bool:
        """The frame shows no metres, one shortly before it did: the next one may again."""
        if frame.shows_metres:
            self._paired = frame.stamp
        return 0.0 < 1e-9 * (frame.stamp - self._paired) <= self._options.start_seconds

    def _miss(self, stamp: int, is_measured: bool) -> None:
        """The images do not show where the frame is. is_measured: the IMU says how it moved."""
        self.lost_since = stamp if self.lost_since is None else self.lost_since
        since = 1e-9 * (stamp - self.lost_since)
        bridged = self.is_inertial and is_measured and since <= self._options.lost_seconds
        self.status = Status.BRIDGING if bridged else Status.LOST

    def _measure_in_the_dark(self, stamp: int) -> None:
        """Keep what the IMU says about a lost frame, for as long as it may bridge, see `by_imu`."""
        assert self.lost_since is not None
        if not self.is_inertial and 1e-9 * (stamp - self.lost_since) <= self._options.lost_seconds:
            measured = self._measured(self._reference_stamp, stamp, self._state_of(self.reference))
            if measured is not None:
                self._dark.append(Dark(stamp, self.reference, measured))

    def _advance(self, pose: np.ndarray, anchor: np.ndarray, stamp: int) -> None:
        """The frame's pose relative to the last keyframe, and the motion that led to it.

        anchor (7,): of that keyframe, read together with what the pose was found from.
        """
        now = np.asarray((SE3(anchor).inverse() * SE3(pose)).storage)
        self.step = np.asarray((SE3(self.reference_T_body).inverse() * SE3(now)).storage)
        self.where, self._step_seconds = Where(stamp, self.reference, now), 1e-9 * (stamp - self.last_stamp)

    def motion_in(self, lag: int) -> np.ndarray:
        """body_T_later (7,) after a lag [ns], if the body goes on as it did between the last two frames."""
        share = 1e-9 * lag / self._step_seconds if self._step_seconds > 0.0 else 0.0
        return np.asarray(SE3.exp(share * np.asarray(SE3(self.step).log())).storage)

    def pose(self) -> np.ndarray:
        """world_T_body (7,) of the last frame as the map is now."""
        return self.placed(self.where)

    def placed(self, where: Where) -> np.ndarray:
        """world_T_body (7,) as the map is now."""
        return self._placed(where.keyframe, where.keyframe_T_body)

    def _placed(self, keyframe: int, relative: np.ndarray) -> np.ndarray:
        """world_T_body (7,) of keyframe_T_body (7,); keyframe -1: the world."""
        if keyframe < 0:
            return relative.copy()
        return np.array((SE3(self._keyframe_pose(keyframe)) * SE3(relative)).storage)

    def _keyframe_pose(self, keyframe: int) -> np.ndarray:
        with self._world.lock:
            frames = self._world.keyframes
            return frames["world_T_body"][frames.rows(keyframe)].copy()

    # ---------------------------------------------------------------- prediction

    def _predicted(self, stamp: int) -> Predicted:
        if self.is_inertial and self._has_velocity():
            with self._world.lock:
                previous, start, prior = self._known_state()
                anchor = self._keyframe_pose(self.reference)
            measured = self._measured(start, stamp, previous)
            if measured is not None:
                pose = previous.predicted(measured, self._world.gravity).world_T_body
                return Predicted(np.asarray(pose), anchor, previous, measured, prior)
        state = self._state_of(self.reference)
        last, step = SE3(state.world_T_body) * SE3(self.reference_T_body), self.step.copy()
        recent = self._measured(self.last_stamp, stamp, state)
        if recent is not None:
            step[3:] = recent.delta_rotation
        return Predicted(np.asarray((last * SE3(step)).storage), state.world_T_body)

    def _has_velocity(self) -> bool:
        """The last frame's velocity is known; not so at a place that was just recognised."""
        with self._world.lock:
            frames = self._world.keyframes
            return self._state is not None or bool(frames["has_states"][frames.rows(self.reference)])

    def _known_state(self) -> tuple[FrameState, int, MarginalPrior | None]:
        """State to go on from and its stamp: a keyframe that mapping just optimized, else the last frame."""
        if self.optimized == self.reference or self._prior is None or self._state is None:
            self.optimized = -1
            return self._state_of(self.reference), self._reference_stamp, None
        return self._state, self.last_stamp, self._prior

    def _state_of(self, keyframe: int) -> FrameState:
        with self._world.lock:
            frames = self._world.keyframes
            row = frames.rows(keyframe)
            names = ("world_T_body", "velocity", "gyro_bias", "acc_bias")
            return FrameState(*(frames[name][row].copy() for name in names))

    def _measured(self, start: int, end: int, state: FrameState) -> Preintegrated | None:
        noise = self._sensors.noise
        if not self._options.is_inertial or noise is None or end <= start:
            return None
        part = self._sensors.imu.between_or_none(start, end)
        return None if part is None else preintegrate(part, noise, state.gyro_bias, state.acc_bias)

    def _expected(self, predicted: np.ndarray, camera_now: int) -> np.ndarray:
        """Pixels (n, 2) of the tracks in a camera at a pose (7,); without a landmark they only turn."""
        tracks, camera = self.tracks, self._rig[camera_now]
        points, known = self._landmarks(tracks)
        last = SE3(self._keyframe_pose(self.reference)) * SE3(self.reference_T_body)
        with np.errstate(all="ignore"):
            world_T_cam = camera_pose(predicted, camera)
            before = camera_pose(np.asarray(last.storage), self._rig[tracks.camera])
            local = turned(world_T_cam.rotation.inverse() * before.rotation, tracks.ray)
            local[known] = placed(world_T_cam.inverse(), points[known])
            return camera.project(local)

    def look_aside(self, frame: Frame) -> Status:
        """Take a frame that is older than the last one: its pose from the landmarks that both show.

        Before a mono map starts it waits with the others, see `look_back`.
        """
        if self.status is Status.STARTING and self._first is not None:
            self._wait(frame.stamp, self._carried(frame, self.tracks.pixel.copy()))
            return Status.STARTING
        if self.status is not Status.TRACKING:
            return Status.LATE
        start = np.array((SE3(self.pose()) * SE3(self.motion_in(frame.stamp - self.last_stamp))).storage)
        view = Missed.of(frame)
        found = self._beside(view, self.image, self.tracks.keep(self.tracks.landmark >= 0), start)
        return Status.LATE if found is None else Status.TRACKING

    def miss(self, *frames: Frame) -> None:
        """Keep frames without pose, to follow them back from the next one that has one."""
        self._missed.extend(Missed.of(frame) for frame in frames)

    def _turn_back(self, frame: Frame) -> None:
        """Begin to follow frames back that were missed before this one, which shows landmarks."""
        before = [view for view in self._missed if view.stamp != frame.stamp]
        self._missed.clear()
        if before:
            tracks = self.tracks.keep(self.tracks.landmark >= 0)
            at = self.reference, self.reference_T_body.copy()
            self._ways_back.append(WayBack(before, frame.images[0], tracks, *at))

    def follow_back(self) -> bool:
        """Find the pose of one more frame that was missed; False where none is left."""
        while self._ways_back:
            way = self._ways_back[0]
            if way.frames and way.keyframe in self._world.keyframes:
                view, start = way.frames.pop(), self._placed(way.keyframe, way.keyframe_T_body)
                found = self._beside(view, way.image, way.tracks, start)
                if found is not None:
                    way.image, (way.tracks, way.keyframe_T_body) = view.image, found
                    way.keyframe = self.reference
                    return True
            self._ways_back.pop(0)
        return False

    def _beside(
        self, view: Missed, image: np.ndarray, tracks: Tracks, start: np.ndarray
    ) -> tuple[Tracks, np.ndarray] | None:
        """Log a frame at about a pose (7,), from the landmarks of tracks in another image; None: too few.

        The tracks that it shows, and its keyframe_T_body (7,).
        """
        with self._world.lock:
            points, known = self._landmarks(tracks)
            anchor = self._keyframe_pose(self.reference)
        tracks, points, camera = tracks.keep(known), points[known], self._rig[view.camera]
        with np.errstate(all="ignore"):
            guess = camera.project(camera.in_camera(start, points))
        pixel, found = follow(image, view.image, tracks.pixel, guess, self._options, is_near=True)
        pose = self._pose_from(points[found], pixel[found], view.camera, start)
        if pose is None:
            return None
        relative = np.array((SE3(anchor).inverse() * SE3(pose)).storage)
        self._log.add(view.stamp, self.reference, relative)
        return replace(tracks, pixel=pixel, camera=view.camera).keep(found), relative

    def _pose_from(
        self, points: np.ndarray, pixel: np.ndarray, camera: int, start: np.ndarray
    ) -> np.ndarray | None:
        """world_T_body (7,) of a frame that shows points (n, 3) at pixels (n, 2); None: too few agree."""
        if len(points) < self._options.min_inliers:
            return None
        seen = FrameObservations.of(points, pixel, camera, sigma=self._options.detected_sigma)
        found = pose_optimization(self._rig, start, seen, graph=self._graph)
        if not found.is_usable or found.num_inliers < self._options.min_inliers:
            return None
        return found.keyframes.world_T_body[0]

    def _carried(self, frame: Frame, guess: np.ndarray, is_near: bool = False) -> Tracks:
        """The tracks, followed from the last image into this one, be it of another camera."""
        camera = frame.cameras[0]
        pixel, found = follow(self.image, frame.images[0], self.tracks.pixel, guess, self._options, is_near)
        tracks = replace(self.tracks, pixel=pixel, age=self.tracks.age + 1, camera=camera).keep(found)
        tracks.ray = rays_of(self._rig[camera], tracks.pixel, self._options.widest)
        return tracks.keep(np.isfinite(tracks.ray[:, 0]))

    def _change_camera(self, frame: Frame, before: Tracks, predicted: np.ndarray) -> None:
        """Put aside what the present camera does not show of tracks before, and take up its own.

        predicted: world_T_body (7,). A camera that misses some images thus costs no keyframes.
        """
        camera = frame.cameras[0]
        lost = before.keep((before.landmark >= 0) & ~np.isin(before.ids, self.tracks.ids))
        self._aside[before.camera] = Aside(self.last_stamp, self.image, lost)
        mine = self._aside.pop(camera, None)
        if mine is None or 1e-9 * (frame.stamp - mine.stamp) > self._options.start_seconds:
            return
        points, known = self._landmarks(mine.tracks)
        tracks, model = mine.tracks.keep(known), self._rig[camera]
        with np.errstate(all="ignore"):
            guess = model.project(model.in_camera(predicted, points[known]))
        pixel, found = follow(mine.image, frame.images[0], tracks.pixel, guess, self._options)
        ray = rays_of(model, pixel, self._options.widest)
        tracks = replace(tracks, pixel=pixel, ray=ray).keep(found & np.isfinite(ray[:, 0]))
        joined = self.tracks.joined(tracks.keep(~np.isin(tracks.ids, self.tracks.ids)))
        order = np.argsort(joined.ids)
        self.tracks = joined.keep(order)

    def _landmarks(self, tracks: Tracks) -> tuple[np.ndarray, np.ndarray]:
        """Positions (n, 3) of the tracks' landmarks, and (n,) bool: there is one."""
        points = np.zeros((len(tracks), 3))
        with self._world.lock:
            rows = self._world.landmarks.find(tracks.landmark)
            known = rows >= 0
            points[known] = self._world.landmarks["position"][rows[known]]
        tracks.landmark[~known] = -1
        return points, known

    # ---------------------------------------------------------------- pose

    def _pose(self, predicted: Predicted) -> tuple[np.ndarray, int, np.ndarray]:
        """The frame's pose, how many landmarks agree, and the last keyframe's pose as it was with these.

        Tracks of landmarks that do not agree are dropped.
        """
        with self._world.lock:
            points, known = self._landmarks(self.tracks)
            anchor = self._keyframe_pose(self.reference)
        rows = np.flatnonzero(known)
        self._state = self._prior = None
        if len(rows) < self._options.min_inliers:
            return predicted.world_T_body, 0, anchor
        tracks, sigma = self.tracks, self._options.sigma
        seen = FrameObservations.of(points[rows], tracks.pixel[rows], tracks.camera, sigma=sigma)
        if predicted.previous is not None and predicted.measured is not None:
            found = pose_inertial_optimization(
                self._rig, None, predicted.previous, predicted.measured, seen, predicted.prior,
                graph=self._inertial_graphs[predicted.prior is not None], gravity=self._world.gravity,
            )  # fmt: skip
        else:
            found = pose_optimization(self._rig, predicted.world_T_body, seen, graph=self._graph)
        if not found.is_usable or found.num_inliers < self._options.min_inliers:
            return predicted.world_T_body, 0, anchor
        self._state, self._prior = found.extra.get("state"), found.extra.get("prior")
        good = np.ones(len(self.tracks), bool)
        good[rows[~found.inliers]] = False
        self.tracks = self.tracks.keep(good)
        return found.keyframes.world_T_body[0], found.num_inliers, anchor

    # ---------------------------------------------------------------- keyframes

    def _needs_keyframe(self, stamp: int, inliers: int) -> bool:
        passed = 1e-9 * (stamp - self._reference_stamp)
        recent = stamp - round(1e9 * self._options.start_seconds)
        inliers += sum(len(aside.tracks) for aside in self._aside.values() if aside.stamp >= recent)
        if self.status is Status.BRIDGING:
            return passed >= self._options.start_seconds
        parallax = parallax_of(self._last_view(), self.tracks, SE3(self.reference_T_body), self._rig)
        is_late = self._options.is_inertial and passed >= self._options.keyframe_seconds
        if self._options.is_inertial and not self.is_inertial:  # at rest there is nothing to initialize from
            is_moving = parallax > 2.0 * angular_sigma(self._rig[0], self._options.sigma)
            is_late = is_moving and passed >= self._options.start_seconds
        return is_late or needs_keyframe(self._options, inliers, self._num_reference, parallax)

    def _last_view(self) -> View:
        """Of the last keyframe, as the camera of the tracks had it: cameras side by side show no motion."""
        view, camera = self.maker.views[-1], self.tracks.camera
        if view.camera == camera:
            return view
        points, known = self._landmarks(self.tracks)
        with np.errstate(all="ignore"):
            ray = self._rig[camera].in_camera(self._keyframe_pose(self.reference), points[known])
            ray /= np.linalg.norm(ray, axis=1, keepdims=True)
        return replace(view, ids=self.tracks.ids[known], ray=ray, camera=camera)

    def add_keyframe(self, frame: Frame, at: tuple[int, np.ndarray] | None = None) -> View:
        """Make the present frame a keyframe, linked to the last one by the IMU where there is one.

        at: a keyframe and keyframe_T_body (7,), of which the pose follows wherever mapping has the keyframe
        now; None: as tracked from the last one; keyframe -1: the world. The map gets the keyframe with all
        that it sees in one step: nobody finds half of it.
        """
        stamp, at = frame.stamp, at or (self.reference, self.reference_T_body)
        prepared = self.maker.prepare(frame, self.tracks, self._placed(*at), self.motion_in)
        with self._world.lock:
            where = self._placed(*at)
            state, measured, has_velocity = FrameState(where, *np.zeros((3, 3))), None, True
            if self.reference >= 0 and self._options.is_inertial:
                before = self._state_of(self.reference)
                measured = self._measured(self._reference_stamp, stamp, before)
                has_velocity = measured is not None or not self.is_inertial
                if measured is not None and self.is_inertial and not self._has_velocity():
                    before = self._moving(before, where, measured)
                state = replace(self._keyframe_state(before, measured), world_T_body=where)
            elif self.is_inertial:  # recognised in a map of an earlier run: its biases are a start
                latest = self._state_of(int(self._world.keyframes.ids[-1]))
                has_velocity, state = False, replace(latest, world_T_body=where)
            keyframe = self._world.add_keyframe(
                stamp, where, state.velocity if self._options.is_inertial and has_velocity else None,
                gyro_bias=state.gyro_bias, acc_bias=state.acc_bias,
            )  # fmt: skip
            if measured is not None:
                self._world.add_imu(self.reference, keyframe, measured)
            self._log.add_keyframe(stamp, keyframe)
            self.tracks, view = self.maker.insert(keyframe, stamp, prepared)
        self.where, self._reference_stamp = Where(stamp, keyframe, _IDENTITY), stamp
        self._num_reference = int((self.tracks.landmark >= 0).sum())
        return view

    def _moving(self, before: FrameState, now: np.ndarray, measured: Preintegrated) -> FrameState:
        """The last keyframe's state with the velocity that leads to a pose (7,), written into the map.

        p = p_0 + v t + g t^2 / 2 + R_0 dp, solved for v.
        """
        dt, gravity = measured.dt, self._world.gravity
        fall = np.asarray(SE3(before.world_T_body).rotation.act(measured.delta_position))
        velocity = (now[:3] - before.world_T_body[:3] - fall) / dt - 0.5 * dt * gravity
        frames = self._world.keyframes
        frames["velocity"][frames.rows(self.reference)] = velocity
        return replace(before, velocity=velocity)

    def _keyframe_state(self, before: FrameState, measured: Preintegrated | None) -> FrameState:
        """Velocity and biases: as the frame's optimization found, else as the IMU says since the last one."""
        if self._state is not None:
            return self._state
        if self.is_inertial and measured is not None:
            return before.predicted(measured, self._world.gravity)
        return before

    # ---------------------------------------------------------------- start

    def _start(self, frame: Frame) -> View | None:
        start = self._start_metric if self._options.is_metric else self._start_mono
        return start(frame)

    def _start_metric(self, frame: Frame) -> View | None:
        """The first frame that shows enough landmarks is the map's first keyframe, at the origin."""
        self.tracks = Tracks.none()
        if not self.maker.shows_enough(frame):
            self.miss(frame)
            return None
        view = self.add_keyframe(frame, (-1, _IDENTITY))
        self.status = Status.TRACKING
        self._turn_back(frame)
        self._log.add(frame.stamp, view.keyframe, _IDENTITY.copy())
        return view

    def _start_mono(self, frame: Frame) -> View | None:
        """Two frames with enough parallax give the first two keyframes; the median distance is 1."""
        stamp = frame.stamp
        if self._first is not None:
            self.tracks = self._carried(frame, self.tracks.pixel.copy())
        if self._first is None or len(self.tracks) < self._options.keyframe_features:
            self._waiting = []
            self._begin_with(frame, Tracks.none())
            return None
        first_stamp, first = self._first
        pose = self._two_view_pose(first)
        if pose is None and self._moved_since(first) > _FAR_ENOUGH * self._options.keyframe_parallax / 460.0:
            self._waiting.append(self._first)  # more parallax than that makes no better start
            self._begin_with(frame, self.tracks)
            return None
        if pose is None:
            self._wait(stamp, self.tracks)
            return None
        before, now = first.keep(np.isin(first.ids, self.tracks.ids)), self.tracks
        self.tracks = before
        self._first_keyframe(first_stamp, before)
        self.tracks, self._origin = now, self.reference
        self._log.add(first_stamp, self._origin, _IDENTITY.copy())
        view = self.add_keyframe(frame, (-1, pose))
        self._settle(view)
        self.status = Status.TRACKING
        self._shown = replace(self.tracks, landmark=self.tracks.landmark.copy())
        self._log.add(stamp, view.keyframe, _IDENTITY.copy())
        return view

    def _wait(self, stamp: int, tracks: Tracks) -> None:
        """Keep a frame until the map has started."""
        self._waiting.append(Waiting(stamp, tracks))
        del self._waiting[:-_MOST_WAITING]

    def _begin_with(self, frame: Frame, tracks: Tracks) -> None:
        """Take a frame as the first of the two that start a mono map; tracks: that are known in it."""
        self.tracks = self.maker.detected(frame, tracks)
        self._first = Waiting(frame.stamp, replace(self.tracks, pixel=self.tracks.pixel.copy()))

    def look_back(self) -> None:
        """Poses of the frames that were missed, or waited for a mono map to start, see `LookBack`."""
        while self.follow_back():
            pass
        if self.is_inertial and self._dark:
            known = set(self._log.poses(self._world)[0].tolist())
            dark = [one for one in self._dark if one.stamp not in known]
            for stamp, keyframe, relative in by_imu(self._world, dark):
                self._log.add(stamp, keyframe, relative)
        self._dark = []
        if not self._waiting or self._first is None or self._shown is None:
            return
        in_order = sorted(self._waiting, key=lambda one: one.stamp)
        split = sum(one.stamp < self._first.stamp for one in in_order)
        self._waiting = []
        if self._origin not in self._world.keyframes:
            return
        for frames in (in_order[:split][::-1], in_order[split:]):
            back = LookBack(self._world, self._options, self._origin, self._first, self._shown)
            for stamp, relative in back.poses(frames):
                self._log.add(stamp, self._origin, relative)

    def _moved_since(self, first: Tracks) -> float:
        """Median angle [rad] between the rays of tracks in an earlier frame and now."""
        rays = first.ray[np.searchsorted(first.ids, self.tracks.ids)]
        return float(np.median(np.linalg.norm(rays - self.tracks.ray, axis=1))) if len(rays) else 0.0

    def _two_view_pose(self, first: Tracks) -> np.ndarray | None:
        """world_T_body (7,) of the present frame with the first one at the origin; None: not yet."""
        camera, options = self._rig[0], self._options
        rays = first.ray[np.searchsorted(first.ids, self.tracks.ids)], self.tracks.ray
        sigma = angular_sigma(camera, options.sigma)
        if not self._moved_since(first) >= options.keyframe_parallax / 460.0:
            return None
        found = two_views(*rays, sigma)
        if found is None:
            return None
        wide = found.inliers & (found.parallax > options.min_parallax * sigma)
        if wide.sum() < options.keyframe_features or found.inliers.mean() < 0.7:
            return None
        if np.median(found.parallax[found.inliers]) < options.keyframe_parallax / 460.0:
            return None  # so little shows a depth to a few times itself: the map's unit would drift
        distance = float(np.median(np.linalg.norm(found.points[wide], axis=1)))
        motion = found.b_T_a.copy()
        motion[:3] /= distance
        mounting = SE3(camera.body_T_cam)
        return np.asarray((mounting * SE3(motion).inverse() * mounting.inverse()).storage)

    def _first_keyframe(self, stamp: int, tracks: Tracks) -> None:
        """The first keyframe of a mono map, with corners but without landmarks."""
        zero = np.zeros(3) if self._options.is_inertial else None
        self.where = Where(stamp, self._world.add_keyframe(stamp, _IDENTITY, zero), _IDENTITY)
        self._reference_stamp = stamp
        self._log.add_keyframe(stamp, self.reference)
        self.maker.views.append(View(self.reference, stamp, tracks.ids, tracks.pixel, tracks.ray))

    def _settle(self, view: View) -> None:
        """Optimize the first two keyframes of a mono map, and bring the median distance back to 1."""
        global_ba(self._world, options=self._options.solve.with_changes(iterations=20))
        with self._world.lock:
            size = float(np.median(np.linalg.norm(self._world.landmarks["position"], axis=1)))
            self._world.transform(np.append(_IDENTITY, 1.0 / size))

    # ---------------------------------------------------------------- after changes of the map

    def moved(self) -> None:
        """The map moved as a whole: the last frame's state and motion mean nothing any more."""
        self.step, self._state, self._prior = _IDENTITY.copy(), None, None

    def rescaled(self, factor: float) -> None:
        """The map's unit changed: lengths are `factor` times as long."""
        self.moved()
        moved = self.reference_T_body.copy()
        moved[:3] *= factor
        self.where = replace(self.where, keyframe_T_body=moved)
        for way in self._ways_back:
            way.keyframe_T_body[:3] *= factor

    def relocalized(self, frame: Frame, found: Recognised) -> View | None:
        """Go on from a place that was recognised; the view of a new keyframe, where a map is made."""
        self.tracks = self.maker.tracks_of(found.pixel, found.landmark, frame.cameras[0])
        self.status, self.lost_since = Status.TRACKING, None
        self.found_at = time.perf_counter()
        self.moved()
        view = None
        if self._options.localization:
            self.refer_to(found, frame.stamp)
        else:
            view = self.add_keyframe(frame, (found.keyframe, found.keyframe_T_body))
        self._log.add(frame.stamp, self.reference, self.reference_T_body.copy())
        self._turn_back(frame)
        return view

    def refer_to(self, found: Recognised, stamp: int) -> None:
        """Count the last frame's pose from another keyframe, which shows most of what is tracked."""
        self.where = Where(stamp, found.keyframe, found.keyframe_T_body.copy())
        self._reference_stamp = stamp
        self._num_reference = len(self.tracks)

    def needs_landmarks(self, stamp: int) -> bool:
        """Landmarks of the map have to be looked for: few are left, or they were found long ago."""
        shown, options = len(self.tracks), self._options
        few = shown < options.keyframe_features or shown < options.keyframe_ratio * self._num_reference
        is_late = 1e-9 * (stamp - self._reference_stamp) >= options.keyframe_seconds
        return self.status is Status.TRACKING and (few or is_late)

    def looked(self, stamp: int) -> None:
        """Landmarks were looked for at a stamp [ns], found or not."""
        self._reference_stamp = stamp

    def show(self, found: Recognised, stamp: int) -> None:
        """Track landmarks of the map from where the last frame shows them."""
        kept = self.tracks.keep(~np.isin(self.tracks.landmark, found.landmark))
        self.tracks = kept.joined(self.maker.tracks_of(found.pixel, found.landmark, kept.camera))
        self.refer_to(found, stamp)

    def renamed(self, kept: np.ndarray, gone: np.ndarray) -> None:
        """Landmarks were merged: tracks of the ones that are gone show those that were kept."""
        order = np.argsort(gone)
        place = np.searchsorted(gone[order], self.tracks.landmark)
        place[place == len(gone)] = 0
        hit = gone[order][place] == self.tracks.landmark
        self.tracks.landmark[hit] = kept[order][place[hit]]
