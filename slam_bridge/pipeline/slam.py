"""A SLAM that is fed while it runs: IMU samples and images in, the present pose and a map out.

    slam = Slam(read_calibration("camchain.yaml", "imu.yaml"), PipelineOptions(mode="stereo-inertial"))
    slam.add_imu(stamp, gyro, acc)               # any thread; stamps in nanoseconds
    slam.add_images(stamp, left, right)
    slam.state().world_T_body
    result = slam.stop()
    result.world.save("map.vib")

Frames are tracked in a thread of their own (`Session`), keyframes go to the mapping thread; with
`single_thread` both happen inside `add_images`, and results depend on the input alone. Every method may be
called from any thread. Sources that feed one: `slam_bridge.pipeline.sources`.
"""

from __future__ import annotations

import threading
import time
import weakref
from array import array
from bisect import insort
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt import thread_switching
from graphopt.errors import OptionError
from graphopt.geometry import SE3
from slam_bridge.cameras import Camera, Rig
from slam_bridge.imu import ImuNoise
from slam_bridge.map import Map
from slam_bridge.pipeline.inputs import Complaints, Frame, FrameMaker, ImuBuffer, Sensors
from slam_bridge.pipeline.latency import Latencies
from slam_bridge.pipeline.one_camera import OneCamera
from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.pipeline.result import OtherMap, PipelineResult, SlamState, without_pose
from slam_bridge.pipeline.session import Session
from slam_bridge.pipeline.tracking import Status
from slam_bridge.readers.calibration import Calibration
from slam_bridge.readers.sequence import SequenceError

_STATUSES = tuple(Status)
_LATE = "frames waited for IMU samples that came later than the next frame"
_RECENT = 256
"""Frames back to which a repeated one is known as one."""
_PAUSE = 1_000_000_000
"""[ns] between frames that is worth a note, and by which a frame may be late."""
Watch = Callable[[int, "Slam"], None]
_SWITCH = 5e-4
"""[s] after which a thread that works in Python has to let another go on. Python's own 5 ms are a tenth of
the time between two frames, and a frame's tracking may wait for mapping many times."""


class Slam:
    """One run; `stop` ends it."""

    def __init__(
        self,
        rig: Calibration | Rig | Camera,
        options: PipelineOptions | None = None,
        map: Map | None = None,
        *,
        noise: ImuNoise | None = None,
        gravity: float | None = None,
        watch: Watch | None = None,
    ):
        """rig: cameras, or a calibration that has them with the IMU's noise and gravity [m/s^2].

        map: of an earlier run (`PipelineResult.world`, `Map.load`): it is recognised, and goes on from there;
        with `options.localization` it stays as it is. The map given is changed otherwise; its `snapshot` is
        not. watch: called after each frame with its number and this object, in the thread that tracks.

        Raises `SequenceError` where the mode needs cameras or noise that are not there, `OptionError` for a
        map without features or of other cameras.
        """
        self.options = options = PipelineOptions() if options is None else options
        _refuse_kinds(rig, options, map, noise)
        known = rig if isinstance(rig, Calibration) else Calibration(rig=Rig.of(rig))
        self._correction = known.imu
        noise = noise or known.noise
        if known.rig is None:
            raise SequenceError("Slam: the calibration has no cameras.")
        if options.is_inertial and noise is None:
            raise SequenceError(
                f"mode {options.mode} needs the noise of an IMU: Slam(rig, noise=ImuNoise(...)), or a "
                f"calibration file that has it. Choose mode {options.mode.removesuffix('-inertial')!r} "
                f"without."
            )
        cameras = _of_mode(known.rig, options)
        self._num_given, self._rig = len(known.rig), cameras
        self.complaints = Complaints()
        imu = ImuBuffer(self.complaints)
        self.sensors = Sensors(cameras, noise, gravity or known.gravity or 9.81, imu)
        self._frames = FrameMaker(cameras, options, self.complaints)
        if map is not None:
            _refuse_map(map, cameras)
        elif options.localization:
            raise OptionError("localization needs a map: Slam(rig, options, map=Map.load(...)).")
        self._alone = OneCamera(self.sensors, options) if options.is_metric and map is None else None
        self._others: list[Session] = []
        self.session = Session(self.sensors, options, self._others, map)
        self._watch = watch
        self._stamps, self._codes, self._spent = array("q"), array("b"), array("f")
        self._latencies = Latencies()
        self._num_frames = self._num_dropped = 0
        self._last_in = self._last_done = np.iinfo(np.int64).min
        self._last_tracked: int | None = None
        self.num_expected: int | None = None
        """Frames that there will be, for who watches; None: nobody knows."""
        self.waited = 0.0
        """Seconds that tracking waited for mapping."""
        self._inbox: list[tuple[int, Frame]] = []
        self._changed = threading.Condition()
        self._is_stopping = self._is_over = self._is_blind = False
        self._error: BaseException | None = None
        self._started: float | None = None
        self._messages: list[str] = []
        self._thread: threading.Thread | None = None
        self._end_switches: Callable[[], Any] = lambda: None
        if not options.single_thread:
            thread_switching.begin(_SWITCH)
            self._end_switches = weakref.finalize(self, thread_switching.end, _SWITCH)
            self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
            self._thread.start()

    # ---------------------------------------------------------------- what others read

    @property
    def world(self) -> Map:
        """The present map; hold its lock while you read several of its arrays."""
        return self.session.world

    @property
    def tracker(self) -> Any:
        """The present session's `Tracker`."""
        return self.session.tracker

    @property
    def log(self) -> Any:
        """The present session's `FrameLog`."""
        return self.session.log

    @property
    def mapper(self) -> Any:
        """The present session's `Mapper`."""
        return self.session.mapper

    @property
    def loops(self) -> Any:
        """The present session's `Loops`."""
        return self.session.loops

    @property
    def seconds(self) -> float:
        """From the first frame's stamp to the last tracked one's."""
        return 1e-9 * (self._stamps[-1] - self._stamps[0]) if self._stamps else 0.0

    @property
    def message(self) -> str:
        """What happened to the run so far: where tracking was lost for good and a new map began."""
        return " ".join(self._messages)

    # ---------------------------------------------------------------- input

    def add_imu(self, stamp: Any, gyro: Any, acc: Any) -> None:
        """Add one sample or n: stamp int or (n,) int64 [ns], gyro (n, 3) [rad/s], acc (n, 3) [m/s^2].

        The order does not matter, as long as samples are not older than the last keyframe.
        """
        self._refuse_end()
        if self._correction is not None:
            acc = np.asarray(acc, float) @ np.linalg.inv(self._correction.acc_matrix).T
            turn = np.asarray(gyro, float) - acc @ self._correction.gyro_D_acc.T
            gyro = turn @ np.linalg.inv(self._correction.gyro_matrix).T
        self.sensors.imu.add(stamp, gyro, acc)
        with self._changed:
            self._changed.notify_all()
        if self._thread is None:
            self._pump()

    def add_images(self, stamp: int, *images: Any, depth: Any = None, stamps: Any = None) -> bool:
        """Hand in the images of one moment; False where they were left out, `state().notes` says why.

        stamp [ns]: of the first camera; its `time_offset` is added to get the IMU's time. images: one array
        per camera, (height, width) or BGR, of 8 or 16 bits; None for a camera that has none. depth (height,
        width): of the first camera, in metres if floats. stamps (n,) [ns]: of each image, where they were not
        taken together. With `when_busy="wait"` this returns once there is room for the frame. A frame without
        an image of the first camera is tracked in the next one that has one, and has that one's stamp.
        """
        self._refuse_end()
        arrived = time.perf_counter()
        self._started = arrived if self._started is None else self._started
        if len(images) > self._num_given:
            raise SequenceError(
                f"add_images: {len(images)} images, the calibration has {self._num_given} cameras. Depth "
                "images are given as depth=."
            )
        count = len(self._rig)  # one camera of a mode that takes no more
        stamps = None if stamps is None else list(stamps)[:count]
        frame = self._frames.frame(stamp, images[:count], depth, stamps, arrived)
        if frame is None:
            self._note_blind(int(stamp if stamps is None else stamps[0]))
            return False
        if not self._is_new(frame.stamp):
            return False
        for camera in range(len(images), len(self._rig)):
            self.complaints.add(f"frames have no image of camera {camera}", frame.stamp)
        with self._changed:
            self._note_late_samples()
            self._make_room()
            insort(self._inbox, (frame.stamp, frame), key=lambda item: item[0])
            self._num_frames += 1
            self._changed.notify_all()
        if self._thread is None:
            self._pump()
        self._raise()
        return True

    def _note_blind(self, stamp: int) -> None:
        """Count a frame without an image that tracking could use; stamp [ns] of the first camera."""
        with self._changed:
            moment = stamp + round(1e9 * self._rig[0].time_offset)
            self._num_frames += 1
            self._is_blind = True
            self._note(moment, Status.BLIND, 0.0)

    def _is_new(self, stamp: int) -> bool:
        """The frame is none that was there already, and not too late."""
        with self._changed:
            waiting = [one for one, _ in self._inbox]
            if stamp in waiting or stamp == self._last_done or stamp in self._stamps[-_RECENT:]:
                self.complaints.add("frames with a stamp that was there already were left out", stamp)
                return False
            if stamp < self._last_done - _PAUSE:
                self.complaints.add(
                    "frames came more than 1 s after later ones had been tracked, and were left out", stamp
                )
                return False
            if stamp < self._last_in:
                self.complaints.add("frames came out of order", stamp)
            elif 0 <= self._last_in < stamp - _PAUSE:
                self.complaints.add("pauses between frames are longer than 1 s", self._last_in)
            self._last_in = max(self._last_in, stamp)
            return True

    def _note_late_samples(self) -> None:
        """Say that a frame still waits for IMU samples when the next one comes; the lock is held."""
        if self._inbox and self.options.is_inertial:
            stamp = self._inbox[-1][0]
            if not self.sensors.imu.covers(stamp):
                self.complaints.add(_LATE, stamp)

    def _make_room(self) -> None:
        """Wait until fewer than `max_frames` wait, or drop the oldest; the lock is held.

        Frames that wait for IMU samples count for nothing: whoever has these may be the caller.
        """
        while self._thread is not None and len(self._inbox) >= self.options.max_frames and self._is_ready():
            if self._error is not None:
                return
            if self.options.when_busy == "wait":
                self._changed.wait(0.1)
                continue
            stamp, _ = self._inbox.pop(0)
            self._num_dropped += 1
            self._note(stamp, Status.SKIPPED, 0.0)
            self.complaints.add("frames were dropped because tracking was busy", stamp)

    # ---------------------------------------------------------------- tracking

    def _is_ready(self) -> bool:
        """The oldest frame that waits has its IMU samples, or will not get them; the lock is held."""
        if not self._inbox:
            return False
        stamp = self._inbox[0][0]
        if not self.options.is_inertial or self._is_stopping or self.sensors.imu.covers(stamp):
            return True
        return self._inbox[-1][0] - stamp > 1e9 * self.options.imu_wait

    def _next(self) -> Frame | None:
        """The oldest frame, if it is ready; the lock is held."""
        if not self._is_ready():
            return None
        stamp, frame = self._inbox.pop(0)
        if self.options.is_inertial and not self.sensors.imu.covers(stamp):
            self.complaints.add("frames were tracked without the IMU, whose samples did not come", stamp)
        self._last_done = max(self._last_done, stamp)
        self._changed.notify_all()
        return frame

    def _pump(self) -> None:
        """Track what is ready, in the caller's thread."""
        while True:
            with self._changed:
                frame = self._next()
            if frame is None:
                return
            self._take(frame)

    def _run(self) -> None:
        """Track what is ready, in a thread."""
        try:
            while True:
                with self._changed:
                    while (frame := self._next()) is None:
                        if self._is_stopping:
                            return
                        self._changed.wait()
                self._take(frame)
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _take(self, frame: Frame) -> None:
        begin, waited = time.perf_counter(), self.mapper.waited
        seen = frame if self._alone is None else self._alone_or_whole(frame, self._alone)
        if seen is None:
            self._is_blind = True
            return self._note(frame.stamp, Status.BLIND, 0.0)
        frame, session = seen, self.session
        status = session.process(frame, self._is_behind())
        if status is Status.STARTING and self._is_in_the_last(frame):
            session, status = self._go_on_in_the_last(), Status.TRACKING
        elif status is Status.LOST and session.may_begin(frame):
            self._begin_anew(frame.stamp)
            session = self.session
            status = session.process(frame)
        waited = self.mapper.waited - waited
        now = time.perf_counter()
        self.waited += waited
        found_at = session.tracker.found_at if status is Status.TRACKING else now
        self._latencies.add((found_at if begin <= found_at else now) - frame.arrived)
        self._is_blind, self._last_tracked = False, frame.stamp
        if status is Status.STARTING and self._others:
            status = Status.LOST  # a map is there, only not of this place
        self._note(frame.stamp, status, now - begin - waited)
        oldest = session.tracker.oldest_needed
        if self._alone is not None and self._alone.camera is None:
            oldest = self._alone.frames[0].stamp
        self.sensors.imu.forget_before(oldest)
        if self._watch is not None:
            self._watch(len(self._stamps) - 1, self)

    def _alone_or_whole(self, frame: Frame, alone: OneCamera) -> Frame | None:
        """The frame as the present map's cameras have it, None: not at all; see `OneCamera`."""
        if frame.shows_metres:
            self._alone = None
            if alone.camera is not None:
                self._use_whole_rig(frame.stamp, alone)
            return frame
        alone.frames.append(frame)
        if alone.is_due:
            self._go_on_alone(alone, list(alone.frames)[:-1])
        return frame if alone.camera is None else alone.seen_by(frame)

    def _go_on_alone(self, alone: OneCamera, frames: list[Frame]) -> None:
        """Begin a map of the one camera that delivers, with the frames that waited for the others."""
        options = alone.choose()
        rig = _of_mode(Rig([self._rig[alone.camera or 0]]), options)
        self.sensors, self.options = replace(self.sensors, rig=rig), options
        self.session.mapper.abandon()
        self.session = Session(self.sensors, options, self._others)
        self._messages.append(alone.sentence())
        for seen in map(alone.seen_by, frames):
            if seen is not None:
                self.session.process(seen)

    def _use_whole_rig(self, stamp: int, alone: OneCamera) -> None:
        """Begin a map in metres; the frames before are followed back in it."""
        self.session.mapper.wait()
        if len(self.session.log):
            self._others.append(self.session)
        self.sensors, self.options = alone.given
        self.session = Session(self.sensors, self.options, self._others)
        self.session.tracker.miss(*alone.frames)
        self._messages.append(f"a map in metres began at {1e-9 * stamp:.3f} s.")

    def _is_behind(self) -> bool:
        """Frames come as fast as they are taken and there is no time for more; else mapping is waited for."""
        if self._thread is None:
            return False
        waiting, mapper = len(self._inbox), self.mapper
        if waiting and self.options.when_busy == "wait":  # whoever hands them in waits already
            mapper.catch_up()
            return False
        return mapper.is_behind or waiting > 1

    def _note(self, stamp: int, status: Status, seconds: float) -> None:
        with self._changed:
            self._stamps.append(stamp)
            self._codes.append(_STATUSES.index(status))
            self._spent.append(seconds)

    def _begin_anew(self, stamp: int) -> None:
        """Put the present map aside and begin another one."""
        session = self.session
        session.mapper.wait()
        since = session.tracker.lost_since
        if since is not None and len(session.log):
            self._messages.append(
                f"tracking was lost at {1e-9 * since:.3f} s and no place was recognised; a new map began at "
                f"{1e-9 * stamp:.3f} s."
            )
        if len(session.loops.index):  # else nothing of it could be recognised
            self._others.append(session)
        self.session = Session(self.sensors, self.options, self._others)

    def _is_in_the_last(self, frame: Frame) -> bool:
        """A frame with which no map starts shows the one before, where each has a unit of its own."""
        if not self._others or self.options.is_inertial or self.options.is_metric:
            return False
        last = self._others.pop()  # it must not be joined with itself
        found = last.process(frame)
        self._others.append(last)
        return found is Status.TRACKING

    def _go_on_in_the_last(self) -> Session:
        """Drop the map that has not started, and go on in the one before."""
        self.session.mapper.abandon()
        self.session = self._others.pop()
        self.session.mapper.start()
        self._messages.pop()
        return self.session

    # ---------------------------------------------------------------- output

    def state(self) -> SlamState:
        """How the run stands."""
        session = self.session
        with self._changed:
            counts = self._num_frames, self._num_dropped, len(self._inbox)
            stamp, is_blind = self._last_tracked, self._is_blind
        tracker, pose = session.tracker, None
        with session.world.lock:
            where = tracker.where
            if not is_blind and tracker.has_pose and where.keyframe in session.world.keyframes:
                pose, stamp = tracker.placed(where), where.stamp
            sizes = len(session.world.keyframes), len(session.world.landmarks)
        return SlamState(
            stamp,
            Status.BLIND if is_blind else tracker.status,
            pose,
            self.options.is_metric or tracker.is_inertial,
            *counts,
            *sizes,
            maps=1 + len(self._others),
            latency=self._latencies.summary(),
            notes=(*self._messages, *self.complaints.sentences()),
        )

    def stop(self) -> PipelineResult:
        """Track what waits, optimize the map at the end, and return all poses.

        Raises what tracking or mapping failed with; no thread is left then.
        """
        try:
            self._refuse_end()
            self._end()
        except BaseException:
            if not self._is_over:
                self.abandon()
            raise
        self._is_over = True
        ended = time.perf_counter()
        started = ended if self._started is None else self._started
        mode = self.options.mode  # maps of one camera alone come last where others are in metres
        session = max((*self._others, self.session), key=lambda one: (one.options.mode == mode, len(one.log)))
        stamps, poses, refused = self._finished(session)
        known = set(stamps.tolist())
        rest = [
            one
            for one in (*self._others, self.session)
            if one is not session and not known.issuperset(one.log.poses(one.world)[0].tolist())
        ]
        self._end_switches()
        now = time.perf_counter()
        spent = np.array(self._spent, float)
        return PipelineResult(
            stamps,
            poses,
            len(self._stamps),
            self._said(rest, stamps, refused),
            session.world,
            spent,
            [call for one in (*self._others, self.session) for call in one.mapper.calls],
            [step for one in (*self._others, self.session) for step in one.mapper.steps],
            now - started,
            ended - started,
            {"track": float(spent.sum()), "wait for mapping": self.waited, "end": now - ended},
            self._latencies.summary(),
            self._num_dropped,
            1 + len(rest),
            tuple(OtherMap(*one.log.poses(one.world), one.world) for one in rest),
        )

    def _end(self) -> None:
        """Track and map what waits."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread is None:
            self._pump()
        else:
            self._thread.join()
        self._raise()
        if self._alone is not None and self._alone.camera is None and self._alone.frames:
            self._go_on_alone(self._alone, list(self._alone.frames))
        self.mapper.wait()
        if self._others and not len(self.session.log):
            self._go_on_in_the_last()

    def _finished(self, session: Session) -> tuple[np.ndarray, np.ndarray, str]:
        """Stamps and poses after the last optimization, and what was refused."""
        refused = ""
        if not self.options.localization:
            refused = session.mapper.finish()
        for one in (*self._others, self.session):
            one.tracker.look_back()
        stamps, poses = session.log.poses(session.world)
        if not len(self._stamps):
            return stamps, poses, "no frames were given."
        if not len(stamps):
            starting = self.session.tracker.status is Status.STARTING
            why = Status.STARTING.value if starting else "no place of the map was recognised"
            return (
                stamps,
                poses,
                ("no frame has a pose: " if self.options.localization else "the map never started: ")
                + why
                + ".",
            )
        if refused and not self.options.is_metric:  # nothing else measures lengths
            refused += " There are no poses in metres; --mode mono gives some without."
            return stamps[:0], poses[:0], refused
        return stamps, poses, refused

    def _said(self, rest: list[Session], stamps: np.ndarray, refused: str) -> str:
        """The message; rest: other maps."""
        parts = [*self._messages, refused]
        if rest:
            parts.append(
                f"There are {1 + len(rest)} maps that no place joins; the poses are those of the one with "
                "most frames, `others` has the rest."
            )
        if len(stamps) or not refused:
            elsewhere = {stamp for one in rest for stamp in one.log.poses(one.world)[0].tolist()}
            statuses = [
                (stamp, Status.TRACKING if stamp in elsewhere else _STATUSES[code])
                for stamp, code in zip(self._stamps, self._codes, strict=True)
            ]
            parts.append(without_pose(statuses, stamps))
        parts += [f"{sentence}." for sentence in self.complaints.sentences()]
        return " ".join(part for part in parts if part)

    def abandon(self) -> None:
        """End without a result, after a failure elsewhere."""
        with self._changed:
            self._error = self._error or RuntimeError("the run was abandoned")
            self._inbox.clear()
            self._is_stopping = self._is_over = True
            self._changed.notify_all()
        for session in (*self._others, self.session):
            session.mapper.abandon()
        self._end_switches()

    def _refuse_end(self) -> None:
        self._raise()
        if self._is_over:
            raise SequenceError(
                "this Slam was stopped; make a new one, with the result's map to go on in it."
            )

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


def _refuse_kinds(rig: Any, options: Any, world: Any, noise: Any) -> None:
    """`OptionError` for arguments of another kind than they should be, with how to make that."""
    for name, value, kinds, way in (
        ("rig", rig, (Calibration, Rig, Camera, list, tuple), 'read_calibration("camchain.yaml")'),
        ("options", options, (PipelineOptions,), 'PipelineOptions(mode="stereo")'),
        ("map", world, (Map, type(None)), 'Map.load("map.vib")'),
        ("noise", noise, (ImuNoise, type(None)), "ImuNoise(gyro_noise, acc_noise, gyro_walk, acc_walk)"),
    ):
        if not isinstance(value, kinds):
            raise OptionError(f"Slam: {name} is {value!r}, expected {kinds[0].__name__}, as {way} makes.")


def _of_mode(rig: Rig, options: PipelineOptions) -> Rig:
    """The cameras that a mode uses. Without an IMU a mono map knows no lever arm: the camera is the body."""
    if options.is_stereo and len(rig) < 2:
        raise SequenceError("the rig has 1 camera, a stereo mode needs two. Choose mode 'mono'.")
    if options.is_stereo and not max(np.ptp([camera.body_T_cam[:3] for camera in rig], axis=0)) > 0.0:
        raise SequenceError(
            "all cameras of the rig are at the same place, a stereo mode needs a baseline. Check their "
            "body_T_cam (T_cam_imu, T_cn_cnm1 of Kalibr), or choose mode 'mono'."
        )
    cameras = list(rig) if options.is_stereo else [rig[0]]
    if options.mode == "mono":
        identity = np.array(SE3.identity_storage, float)
        cameras = [replace(cameras[0], body_T_cam=identity)]
    return Rig(cameras)


def _refuse_map(world: Map, rig: Rig) -> None:
    if not world.features:
        raise OptionError(
            "the map has no features to recognise its places by (Map.features); maps of the pipeline have "
            "them."
        )
    if world.rig is None or not world.rig.is_same(rig):
        raise OptionError(
            "the map was made with other cameras, or in another mode: take the calibration and mode of then."
        )
