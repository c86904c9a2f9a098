"""Mapping: what happens to the map after each keyframe, in a thread of its own or in line.

    inertial start     gravity, scale, biases: `inertial_initialization`, as soon as the motion shows them
    local BA           `local_ba`, then `local_inertial_ba`; rejected observations leave the map
    culling            landmarks with one observation; keyframes whose landmarks three others see
    loops              `Loops`; and everything at the end: `global_ba` or `full_inertial_ba`

`Turns` keeps tracking and those steps apart that move the whole map.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphopt.geometry import SE3, SO3, Sim3
from slam_bridge.map import Map
from slam_bridge.marginal_prior import STATE_COLUMNS
from slam_bridge.pipeline.inputs import Frame
from slam_bridge.pipeline.keyframes import View
from slam_bridge.pipeline.loops import Loops
from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.pipeline.places import Place
from slam_bridge.pipeline.tracking import Tracker
from slam_bridge.pipeline.trajectory import FrameLog
from slam_bridge.problems import (
    FrameState,
    InitializationOptions,
    Result,
    full_inertial_ba,
    global_ba,
    inertial_initialization,
    initialize,
    local_ba,
    local_inertial_ba,
)
from slam_bridge.problems.inertial_initialization import imu_chain, scale_by_stages
from slam_bridge.problems.scale import scale_deviation
from slam_bridge.window import Window

_REDUNDANT, _OTHERS = 0.9, 3
"""A keyframe goes where this fraction of its landmarks is seen by so many others: ORB-SLAM3."""
_PATIENCE = 4
"""Times `max_queue` that keyframes may wait before tracking does."""
_LONGEST_LINK = 3.0
"""[s] between keyframes with an IMU, at most: ORB-SLAM3."""


class Turns:
    """Who may work on the map as a whole: frames one by one, or a step that moves everything."""

    def __init__(self) -> None:
        self._next, self._world = threading.Lock(), threading.RLock()

    @contextmanager
    def frame(self) -> Iterator[None]:
        """One frame; waits behind a step that was asked for earlier."""
        with self._next:
            pass
        with self._world:
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A step during which no frame is tracked."""
        with self._next, self._world:
            yield


class Mapper:
    """Takes keyframes and improves the map."""

    def __init__(
        self,
        tracker: Tracker,
        world: Map,
        log: FrameLog,
        loops: Loops,
        options: PipelineOptions,
        join: Callable[[Place], dict[str, Any] | None] = lambda place: None,
    ):
        """join: brings another map together with this one where a place shows both; says what it did."""
        self._tracker, self._world, self._log, self._loops = tracker, world, log, loops
        self._options, self._join = options, join
        self._first = world.keyframes.next_id
        """First keyframe of this run; those of an earlier one are not part of windows."""
        self.turns = Turns()
        self.calls: list[dict[str, Any]] = []
        """Every local bundle adjustment: stamp [ns], seconds, sizes, phases."""
        self.steps: list[dict[str, Any]] = []
        """Everything larger: initialization, loops, bundle adjustments of the whole map."""
        self.waited = 0.0
        """Seconds that tracking spent in `submit`: all of mapping where there is no thread."""
        self._windows = {"visual": Window(), "inertial": Window(), "full": Window()}
        self._started_at: int | None = None
        self._next_start = 0
        """Earliest stamp of the next trial [ns]."""
        self._refinements = list(options.refine_seconds)
        self._queue: queue.Queue[tuple[View, Frame] | None] = queue.Queue(_PATIENCE * options.max_queue)
        self._taken = threading.Condition()
        """A keyframe left the queue, or a loop is closed."""
        self._is_closing = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self.start()

    # ---------------------------------------------------------------- thread

    def start(self) -> None:
        """Begin, or go on after `wait`."""
        if not self._options.single_thread:
            self._thread = threading.Thread(target=self._run, name="mapping", daemon=True)
            self._thread.start()

    @property
    def is_behind(self) -> bool:
        """As many keyframes wait as should."""
        return self._queue.qsize() >= self._options.max_queue

    def catch_up(self) -> None:
        """Wait until fewer than `max_queue` keyframes wait and no loop is being closed."""
        begin = time.perf_counter()
        with self._taken:
            self._taken.wait_for(lambda: not (self.is_behind or self._is_closing))
        self.waited += time.perf_counter() - begin

    def submit(self, view: View, frame: Frame) -> None:
        """Hand over a keyframe; waits while far too many of them wait.

        Raises what mapping failed with.
        """
        self._raise()
        begin = time.perf_counter()
        if self._thread is None:
            self._process(view, frame)
        else:
            self._queue.put((view, frame))
        self.waited += time.perf_counter() - begin

    def wait(self) -> None:
        """Until every keyframe is worked in."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        self._raise()

    def abandon(self) -> None:
        """End the thread without a word: the run has failed already."""
        self._error = self._error or RuntimeError("the run was abandoned")
        if self._thread is not None:
            self._queue.put(None)
            self._thread = None

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            with self._taken:
                self._taken.notify_all()
            if self._error is not None:
                continue
            try:
                self._process(*item)
            except BaseException as error:
                self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    # ---------------------------------------------------------------- one keyframe

    def _process(self, view: View, frame: Frame) -> None:
        options = self._options
        if options.is_inertial and not self._tracker.is_inertial:
            self._start_inertial(view.stamp)
        self._local(view)
        if self._started_at is not None and self._refinements:
            if 1e-9 * (view.stamp - self._started_at) >= self._refinements[0]:
                self._refinements.pop(0)
                self._whole("refinement")
        self._cull_keyframe(view.keyframe)
        place = self._loops.look_at_keyframe(frame, view.keyframe, view.pixel)
        may_close = self._tracker.is_inertial or not options.is_inertial
        if self._loops.find(place, may_close):
            self._close_loop()
        elif may_close and (joined := self._join(place)) is not None:
            self.steps.append(joined)
            self._local(view)

    def _local(self, view: View) -> None:
        """Local bundle adjustment of the last keyframes."""
        world, options = self._world, self._options
        with world.lock:
            ids = world.keyframes.ids
            recent = ids[ids >= self._first][-options.local_keyframes :].copy()
        if len(recent) < 2 and not options.is_metric:
            return
        inertial = self._tracker.is_inertial
        everything = len(world.keyframes) == len(recent)
        if not inertial:
            free = recent[1:] if everything else recent
            if not len(free):
                return
            held = recent[:1] if everything else None
            found = local_ba(world, free, held, options.solve, self._windows["visual"], options.local_fixed)
        elif everything:
            found = full_inertial_ba(world, options=options.solve, window=self._windows["full"])
        else:
            found = local_inertial_ba(
                world, recent, None, options.solve, self._windows["inertial"], options.local_fixed
            )
        self._book(view.stamp, found)
        self._drop(found)
        if inertial:
            self._tracker.optimized = view.keyframe

    def _book(self, stamp: int, found: Result) -> None:
        self.calls.append(
            {
                "stamp": stamp,
                "seconds": found.seconds["total"],
                "keyframes": len(found.keyframes),
                "points": len(found.landmarks),
                "observations": len(found.observations),
                "phases": {name: value for name, value in found.seconds.items() if name != "total"},
            }
        )

    def _drop(self, found: Result) -> None:
        """Remove observations that were rejected, and landmarks that are left with one."""
        world = self._world
        rejected = np.concatenate([found.rejected["chi2"], found.rejected["behind camera"]])
        with world.lock:
            rejected = rejected[world.observations.find(rejected) >= 0]
            if len(rejected):
                world.remove_observations(rejected)
                world.remove_unseen_landmarks(2)

    def _cull_keyframe(self, newest: int) -> None:
        """Remove the keyframe that a new one has pushed out of the window, if others see what it sees.

        newest: the one that is worked in; tracking may have added more meanwhile.
        """
        world, options = self._world, self._options
        with world.lock:
            ids, stamps = world.keyframes.ids, world.keyframes["stamp"]
            row = int(world.keyframes.rows(newest)) - options.local_keyframes
            if row < 1 or ids[row - 1] < self._first:
                return
            gap = 1e-9 * float(stamps[row + 1] - stamps[row - 1])
            if options.is_inertial and gap > _LONGEST_LINK:
                return
            keyframe, parent = int(ids[row]), int(ids[row - 1])
            if keyframe in world.loops["first"] or keyframe in world.loops["second"]:
                return
            if self._share_seen_elsewhere(keyframe) < _REDUNDANT:
                return
            poses = SE3(world.keyframes["world_T_body"][[row - 1, row]])
            step = np.asarray(poses.inverse().storage)[0]
            relative = np.array((SE3(step) * SE3(np.asarray(poses.storage)[1])).storage)
            self._log.remove_keyframe(keyframe, parent, relative)
            world.remove_keyframes([keyframe])
            world.remove_unseen_landmarks(2)
        self._loops.index.remove(keyframe)

    def _share_seen_elsewhere(self, keyframe: int) -> float:
        seen = self._world.observations
        mine = self._world.observed_landmarks([keyframe])
        if not len(mine):
            return 1.0
        others = seen.rows_where("landmark", mine)
        others = others[seen["keyframe"][others] != keyframe]
        pairs = np.unique(np.stack([seen["landmark"][others], seen["keyframe"][others]], axis=1), axis=0)
        counts = np.bincount(np.searchsorted(mine, pairs[:, 0]), minlength=len(mine))
        return float((counts >= _OTHERS).mean())

    # ---------------------------------------------------------------- whole map

    def _close_loop(self) -> None:
        """Correct the map with the loop found last; a file's frames wait for it (`catch_up`)."""
        self._is_closing = True
        try:
            self.steps.append(self._corrected())
        finally:
            with self._taken:
                self._is_closing = False
                self._taken.notify_all()

    def _corrected(self) -> dict[str, Any]:
        """What the loop found last did to the map; tracking waits while the result is written."""
        started, world, loop = time.perf_counter(), self._world, self._loops.found[-1]
        found = self._loops.corrected()
        accepted = bool(found.extra["loop_inliers"][-1])
        with self.turns.alone(), world.lock:
            row = int(world.keyframes.rows(loop.now))
            before = world.keyframes["world_T_body"][row, :3].copy()
            if found.is_usable:
                write_with_newer(world, found)
            if accepted:
                self._loops.fuse(loop, self._tracker)
            moved = np.linalg.norm(world.keyframes["world_T_body"][row, :3] - before)
            self._tracker.moved()
        return {
            "step": "loop",
            "keyframes": [loop.old, loop.now],
            "accepted": accepted,
            "moved": float(moved),
            "seconds": time.perf_counter() - started,
        }

    def _start_inertial(self, stamp: int) -> None:
        """Initialize the IMU if there are enough keyframes and their motion shows what it has to."""
        world, options = self._world, self._options
        frames = world.keyframes
        linked = len(world.imu) == len(frames) - 1
        span = 1e-9 * float(frames["stamp"][-1] - frames["stamp"][0])
        if len(frames) < options.inertial_keyframes or span < options.inertial_seconds or not linked:
            return
        if stamp < self._next_start:
            return
        self._next_start = stamp + int(1e9 * options.keyframe_seconds)
        started, trial, size, newest = time.perf_counter(), world, 1.0, int(frames.ids[-1])
        initial = InitializationOptions(with_scale=not options.is_metric)
        if initial.with_scale:
            trial = world.snapshot()
            size = self._scale_of(trial, initial)
            move_bodies(trial, size)
        later = options.solve.with_changes(iterations=20, update=False)
        found = inertial_initialization(trial, initial=initial, options=later)
        self.steps.append(
            {
                "step": "inertial initialization",
                "stamp": stamp,
                "seconds": time.perf_counter() - started,
                "refused": found.refused,
                "scale": float(found.extra["scale"]),
            }
        )
        if not found.is_usable:
            return
        factor = float(found.extra["scale"])
        with self.turns.alone():
            move_bodies(world, size)
            found.write_to(world)
            pass_on_states(world, newest)
            self._log.scale(factor)
            self._tracker.rescaled(factor)
            self._tracker.is_inertial = True
        self._started_at = stamp

    @staticmethod
    def _scale_of(world: Map, initial: InitializationOptions) -> float:
        """Metres per unit of a map in which levers were taken for metres; 1 where none fits.

        Bodies are at position_cam - R lever / s: s is found by iterating.
        """
        chain, links = imu_chain(world)
        rows, imu = world.keyframes.rows(chain), [world.preintegrated[link] for link in links]
        placed, arm, size = world.keyframes["world_T_body"][rows], _arms(world)[rows], 1.0
        cameras = placed[:, :3] + arm
        for _ in range(3):
            start = initialize(placed, imu, initial)
            if not 1e-3 < start.scale < 1e3:
                break
            size = start.scale
            placed[:, :3] = cameras - arm / size
        return size

    def finish(self) -> str:
        """Wait for all keyframes, then optimize the whole map; what the motion did not show, or nothing."""
        self.wait()
        options, found = self._options, None
        if options.final_ba and len(self._world.keyframes) > 2:
            found = self._whole("final")
        if options.is_inertial and not self._tracker.is_inertial:
            tried = [step["refused"] for step in self.steps if step["step"] == "inertial initialization"]
            return "the IMU was never initialized. " + (tried or ["There were too few keyframes for it."])[-1]
        if not options.is_inertial or options.is_metric or found is None:
            return ""
        off, spread = scale_by_stages(self._world, options.solve.with_changes(iterations=20))
        deviation = max(scale_deviation(found), float(np.hypot(off, spread)))
        self.steps[-1]["scale_deviation"] = deviation
        if deviation <= options.max_scale_deviation:
            return ""
        return (
            f"the motion shows lengths to {100.0 * deviation:.1f} % only (one standard deviation), allowed "
            f"are {100.0 * options.max_scale_deviation:g} %. Move more, with accelerations and turns."
        )

    def _whole(self, step: str) -> Result:
        """Optimize the whole map; tracking waits while the result is written."""
        options = self._options.solve.with_changes(iterations=20, update=False)
        solve = full_inertial_ba if self._tracker.is_inertial else global_ba
        found = solve(self._world, options=options)
        with self.turns.alone(), self._world.lock:
            if found.is_usable:
                write_with_newer(self._world, found)
            self._drop(found)
            self._tracker.moved()
        size = len(found.keyframes)
        self.steps.append({"step": step, "seconds": found.seconds["total"], "keyframes": size})
        return found


def _arms(world: Map) -> np.ndarray:
    """(k, 3) from each keyframe's body to its first camera, in the world's axes."""
    assert world.rig is not None
    poses = world.keyframes["world_T_body"]
    return np.asarray(SE3(poses).rotation.act(np.tile(world.rig[0].body_T_cam[:3], (len(poses), 1))))


def move_bodies(world: Map, size: float) -> None:
    """Bodies of a map of unknown unit, in which levers were taken for metres: of so many metres per unit."""
    if size != 1.0:
        world.keyframes["world_T_body"][:, :3] += _arms(world) * (1.0 - 1.0 / size)


def pass_on_states(world: Map, last: int) -> None:
    """Velocity and biases of the keyframes newer than `last`, as the IMU says from one to the next."""
    with world.lock:
        frames = world.keyframes
        for link, first, second in zip(world.imu.ids, world.imu["first"], world.imu["second"], strict=True):
            if second > last:
                before, now = frames.rows([first, second])
                state = FrameState(*(frames[name][before] for name in STATE_COLUMNS))
                state = state.predicted(world.preintegrated[int(link)], world.gravity)
                for name in STATE_COLUMNS[1:]:
                    frames[name][now] = getattr(state, name)


def write_with_newer(world: Map, found: Result) -> None:
    """Write a result into the map; keyframes newer than its last move as that one does, with their landmarks.

    Thus what was added while it was computed stays where it is seen (ORB-SLAM3: `RunGlobalBundleAdjustment`).
    """
    frames, last = world.keyframes, int(found.keyframes.ids[-1])
    newer = frames.ids > last
    if last not in frames or not newer.any():
        found.write_to(world)
        return
    row, scale = frames.rows(last), found.extra.get("scale", [1.0])[-1]
    before = Sim3(np.append(frames["world_T_body"][row], 1.0))
    found.write_to(world)
    motion = Sim3(np.append(frames["world_T_body"][row], scale)) * before.inverse()
    poses, points = frames["world_T_body"], world.landmarks["position"]
    poses[newer, :3] = np.asarray(motion.act(poses[newer, :3]))
    poses[newer, 3:] = np.asarray((motion.rotation * SO3(poses[newer, 3:])).storage)
    frames["velocity"][newer] = np.asarray(motion.rotation.act(frames["velocity"][newer]))
    fresh = ~np.isin(world.landmarks.ids, found.landmarks)
    points[fresh] = np.asarray(motion.act(points[fresh]))
