"""The back end of a SLAM program: frames with their tracks in, optimized poses out.

    backend = Backend(rig, noise)
    backend.add_imu(stamp, gyro, acc)
    frame = backend.add_frame(stamp, tracks={17: (412.3, 80.1), ...}, pose=world_T_body)
    backend.pose(frame)
    backend.local()
    backend.close_loop(frame, old, old_T_frame)
    backend.finish()

Frames and tracks have the client's own numbers; poses go in and come out as 4x4 matrices or as (7,) arrays x,
y, z, qx, qy, qz, qw, world_T_body, as the client began. The body is the IMU's frame, without an IMU whatever
`Camera.body_T_cam` is relative to. Landmarks are made from tracks: of a right column or a depth at once, else
as soon as two rays make an angle; windows, graphs and priors are kept here.

Where the first frame has no pose, stereo or depth with an IMU finds which way is down; one camera with an
IMU wants the client's poses of the first seconds, then `inertial_initialization(backend.map)`.

Threads: every method may be called from any thread. `add_imu`, `add_frame` and `pose` never wait for an
optimization, except the `lag` that `add_frame` marginalizes; `local`, `close_loop` and `finish` work on what
was there when they began, one at a time, and write their result in one step. Callbacks run in the thread that
optimized, after the map is written and without its lock: they may call any method.

The map (`backend.map`) and all functions of `slam_bridge.problems` stay usable beside it.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from graphopt.errors import OptionError
from graphopt.geometry import SE3
from slam_bridge.cameras import Camera, Rig, pose_of_matrix
from slam_bridge.frame_finder import NEEDED, SEEN, FrameFinder
from slam_bridge.imu import GRAVITY, ImuNoise, ImuSamples
from slam_bridge.map import Map
from slam_bridge.marginal_prior import STATE_COLUMNS
from slam_bridge.options import SolveOptions
from slam_bridge.preintegration import Preintegrated, preintegrate
from slam_bridge.problems import (
    FrameObservations,
    FrameState,
    Result,
    essential_graph_optimization,
    full_inertial_ba,
    global_ba,
    landmark_covariances,
    local_ba,
    local_inertial_ba,
    marginalize,
)
from slam_bridge.problems.essential_graph_optimization import DEFAULTS as LOOP_OPTIONS
from slam_bridge.rays import triangulate
from slam_bridge.tables import MapError, whole_numbers
from slam_bridge.window import Window

Moved = Callable[[dict[int, np.ndarray]], None]
_WINDOW = 10
"""Frames of a local optimization; 7 to 10 in VINS-Mono and Basalt."""
_MOST_FIXED = 20
"""Others that see the same landmarks and stay, at most."""
_PARALLAX = 4.0
"""A landmark is made where two rays make an angle of so many times their error."""
_LIMIT = 2.45
"""Rays that miss each other by more times their error are of different points: 95 % of two numbers."""


class Backend:
    """A map that grows frame by frame, and what is done to it."""

    def __init__(
        self,
        rig: Rig | Camera,
        noise: ImuNoise | None = None,
        *,
        device: str = "auto",
        lag: int | None = None,
        window: int = _WINDOW,
        sigma: float = 1.0,
        gravity: Any = GRAVITY,
    ):
        """rig: cameras; noise: of the IMU, None: without.

        device: as in `graphopt.optimize`. lag: frames that are kept; older ones are marginalized, None: none.
        window: frames that `local` moves. sigma: standard deviation of tracks [px]. gravity (3,) [m/s^2].
        """
        for name, value, least in (("window", window, 2), ("lag", lag, 3)):
            if value is not None and (not isinstance(value, int) or value < least):
                raise OptionError(f"Backend: {name} is {value!r}, expected a whole number from {least} on.")
        if lag is not None and lag <= window:
            raise OptionError(f"Backend: lag is {lag}, expected more than the window of {window} frames.")
        if not sigma > 0.0:
            raise OptionError(f"Backend: sigma is {sigma}, must be > 0 px.")
        self.map = Map(Rig.of(rig), gravity)
        """Keyframes, landmarks, observations; ids of keyframes are the frames' numbers."""
        self._rig, self._noise = Rig.of(rig), noise
        self._options = SolveOptions(device=device)
        self._lag, self._size, self._sigma = lag, window, float(sigma)
        self._windows = {"local": Window(), "all": Window()}
        self._finder = FrameFinder(self._rig)
        self._callbacks: list[Moved] = []
        self._solving, self._input = threading.Lock(), threading.RLock()
        self._as_matrix = False
        self._samples: list[tuple[int, np.ndarray, np.ndarray]] = []
        self._landmark: dict[int, int] = {}
        """Landmark by the client's track."""
        self._pending: dict[int, list[tuple[int, int, np.ndarray]]] = {}
        """Of tracks without landmark: frame, camera, pixel of each view."""

    def on_moved(self, callback: Moved) -> None:
        """Call with the new poses by frame whenever an optimization has moved some."""
        self._callbacks.append(callback)

    # ---------------------------------------------------------------- input

    def add_imu(self, stamp: int, gyro: Any, acc: Any) -> None:
        """Add a sample: stamp [ns], gyro (3,) [rad/s], acc (3,) [m/s^2]; in the order of time."""
        if self._noise is None:
            raise OptionError("add_imu: this back end has no IMU; make it with Backend(rig, ImuNoise(...)).")
        turn, force = np.array(gyro, float), np.array(acc, float)
        if turn.shape != (3,) or force.shape != (3,) or not np.isfinite([turn, force]).all():
            raise MapError(
                f"add_imu: the sample at {stamp} ns is {gyro!r}, {acc!r}, expected 3 finite numbers each."
            )
        with self._input:
            if self._samples and stamp <= self._samples[-1][0]:
                raise MapError(
                    f"add_imu: the sample at {stamp} ns follows one at {self._samples[-1][0]} ns. Sort "
                    f"them, and "
                    "leave repeated ones out."
                )
            self._samples.append((int(stamp), turn, force))

    def add_frame(
        self,
        stamp: int,
        tracks: Mapping[int, Any] | tuple[Any, Any],
        pose: Any = None,
        right: Any = None,
        depth: Any = None,
        *,
        camera: Any = 0,
        velocity: Any = None,
        depth_sigma: float = 0.02,
    ) -> int:
        """Add a keyframe; its number, which counts from 0.

        stamp [ns]; tracks: pixels (2,) by the client's track, or (tracks (n,), pixels (n, 2)). pose:
        world_T_body where the client knows it, 4x4 or (7,); None: from the landmarks among the tracks, else
        from the IMU. right (n,): columns in the right image of a rectified pair [px]; depth (n,) [m] with
        `depth_sigma` [m]; NaN where there is none. camera: one number or (n,). velocity (3,) [m/s]: of the
        first frame with an IMU.

        Raises `MapError` for arrays that do not fit, a stamp that does not ascend, or a pose that nothing
        tells.
        """
        ids, pixel = _tracks(tracks)
        count = len(ids)
        columns = {
            "right": _column("right", right, count),
            "depth": _column("depth", depth, count),
            "camera": np.broadcast_to(whole_numbers(camera), (count,)),
        }
        with self._input, self.map.lock:
            before = self._last(stamp)
            measured = None if before is None else self._measured(before, stamp)
            state = self._state(before, measured, pose, velocity, (ids, pixel, columns))
            frame = self._add(stamp, state, before, measured)
            self._observe(frame, ids, pixel, columns, depth_sigma)
            passed = bisect_right(self._samples, stamp, key=itemgetter(0))
            del self._samples[: max(passed - 2, 0)]
        if self._lag is not None:
            self._slide()
        return frame

    def _last(self, stamp: int) -> int | None:
        """The last frame; `MapError` where its stamp is not earlier."""
        frames = self.map.keyframes
        if not len(frames):
            return None
        if stamp <= int(frames["stamp"][-1]):
            raise MapError(
                f"add_frame: the stamp {stamp} ns follows {int(frames['stamp'][-1])} ns, must ascend."
            )
        return int(frames.ids[-1])

    def _measured(self, before: int, stamp: int) -> Preintegrated | None:
        """What the IMU measured since a frame."""
        if self._noise is None or not self._samples:
            return None
        frames = self.map.keyframes
        row = frames.rows(before)
        start = int(frames["stamp"][row])
        stamps = np.array([sample[0] for sample in self._samples], np.int64)
        gyro, acc = (np.stack([sample[k] for sample in self._samples]) for k in (1, 2))
        part = ImuSamples(stamps, gyro, acc).between_or_none(start, stamp)
        if part is None:
            return None
        return preintegrate(part, self._noise, frames["gyro_bias"][row], frames["acc_bias"][row])

    def _state(
        self, before: int | None, measured: Preintegrated | None, pose: Any, velocity: Any, tracks: Any
    ) -> FrameState:
        """Pose, velocity and biases of a new frame."""
        zero = np.zeros(3)
        given = None if pose is None else self._pose_in(pose)
        if before is None:
            if given is None:
                given = np.array(SE3.identity_storage, float)
            start = zero if velocity is None else np.asarray(velocity, float)
            self._finder.begin(knows_velocity=velocity is not None)
            return FrameState(given, start, zero.copy(), zero.copy())
        last = self._state_of(before)
        if given is None and measured is not None:
            seen = self._landmarks_among(*tracks)
            if len(seen) < SEEN and not self._finder.knows_velocity:
                raise MapError(
                    f"add_frame: no pose was given, {len(seen)} of its tracks have a landmark, and the "
                    "velocity of the frame before is unknown. One camera with an IMU needs poses of the "
                    "first seconds, in any unit, then `inertial_initialization(backend.map)`; or pose and "
                    "velocity of the first frame."
                )
            return self._finder.with_imu(last, measured, seen, self.map.gravity)
        self._finder.begin(knows_velocity=False)
        if given is not None:
            state = last if measured is None else last.predicted(measured, self.map.gravity)
            return replace(state, world_T_body=given)
        found = self._finder.by_images(last.world_T_body, self._landmarks_among(*tracks))
        if found is None:
            raise MapError(
                "add_frame: no pose was given, no samples of an IMU lead to this frame, and fewer than "
                f"{NEEDED} of its tracks have a landmark that agrees."
            )
        return replace(last, world_T_body=found)

    def _state_of(self, frame: int) -> FrameState:
        frames = self.map.keyframes
        row = frames.rows(frame)
        return FrameState(*(frames[name][row].copy() for name in STATE_COLUMNS))

    def _landmarks_among(
        self, ids: np.ndarray, pixel: np.ndarray, columns: dict[str, np.ndarray]
    ) -> FrameObservations:
        """Observations of the landmarks that tracks have."""
        known = np.array([track in self._landmark for track in ids.tolist()], bool)
        landmarks = [self._landmark[track] for track in ids[known].tolist()]
        return FrameObservations.of(
            self.map.landmarks["position"][self.map.landmarks.rows(landmarks)], pixel[known],
            columns["camera"][known], columns["right"][known], sigma=self._sigma,
            covariance=landmark_covariances(self.map, landmarks),
        )  # fmt: skip

    def _add(self, stamp: int, state: FrameState, before: int | None, measured: Preintegrated | None) -> int:
        is_inertial = self._noise is not None
        frame = self.map.add_keyframe(
            int(stamp), state.world_T_body, state.velocity if is_inertial else None,
            gyro_bias=state.gyro_bias, acc_bias=state.acc_bias,
        )  # fmt: skip
        if measured is not None and before is not None:
            self.map.add_imu(before, frame, measured)
        return frame

    # ---------------------------------------------------------------- landmarks

    def _observe(
        self,
        frame: int,
        ids: np.ndarray,
        pixel: np.ndarray,
        columns: dict[str, np.ndarray],
        depth_sigma: float,
    ) -> None:
        """Observations of known tracks; landmarks of those that show where they are."""
        numbers, has = ids.tolist(), np.isfinite(columns["right"]) | np.isfinite(columns["depth"])
        known = np.array([track in self._landmark for track in numbers], bool)
        fresh = np.flatnonzero(~known & has)
        if len(fresh):
            points = self._located(frame, pixel[fresh], {name: one[fresh] for name, one in columns.items()})
            good = np.isfinite(points).all(axis=1)
            added = self.map.add_landmarks(points[good], frame)
            self._landmark.update(zip(ids[fresh[good]].tolist(), added.tolist(), strict=True))
            known[fresh[good]] = True
        rows = np.flatnonzero(known)
        landmarks = [self._landmark[numbers[row]] for row in rows]
        if len(rows):
            depth = columns["depth"][rows]
            sigma = np.where(np.isfinite(depth), depth_sigma, np.nan)
            self.map.add_observations(
                frame, landmarks, pixel[rows], columns["camera"][rows], columns["right"][rows], depth,
                self._sigma, sigma,
            )  # fmt: skip
        for row in np.flatnonzero(~known).tolist():
            view = (frame, int(columns["camera"][row]), pixel[row])
            self._pending.setdefault(numbers[row], []).append(view)
        self._by_motion([numbers[row] for row in np.flatnonzero(~known).tolist()])

    def _located(self, frame: int, pixel: np.ndarray, columns: dict[str, np.ndarray]) -> np.ndarray:
        """Points (n, 3) in the world of right columns or depths, NaN where they are not ahead."""
        pose = self.map.keyframes["world_T_body"][self.map.keyframes.rows(frame)]
        points = np.full((len(pixel), 3), np.nan)
        for number, camera in enumerate(self._rig):
            own = columns["camera"] == number
            stereo, deep = own & np.isfinite(columns["right"]), own & np.isfinite(columns["depth"])
            with np.errstate(divide="ignore", invalid="ignore"):
                if stereo.any():
                    local = camera.locate(pixel[stereo], columns["right"][stereo])
                    sigma = camera.intrinsics[0] * float(camera.baseline or 0.0) / self._sigma
                    local[~((local[:, 2] > 0.0) & (local[:, 2] < sigma / _PARALLAX))] = np.nan
                    points[stereo] = camera.in_world(pose, local)
                if deep.any():
                    ray = camera.unproject(pixel[deep])
                    depth = np.where(columns["depth"][deep] > 0.0, columns["depth"][deep], np.nan)
                    points[deep] = camera.in_world(pose, ray / ray[:, 2:] * depth[:, None])
        return points

    def _by_motion(self, tracks: list[int]) -> None:
        """Landmarks of tracks whose first ray and last one meet at an angle."""
        tracks = [track for track in tracks if len(self._pending[track]) > 1]
        if not tracks:
            return
        ends = [[self._ray(self._pending[track][k]) for track in tracks] for k in (0, -1)]
        (first, first_ray), (last, last_ray) = (map(np.array, zip(*end, strict=True)) for end in ends)
        seen = triangulate(first, first_ray, last, last_ray)
        error = self._sigma / float(min(np.sqrt(np.prod(camera.intrinsics[:2])) for camera in self._rig))
        good = (seen.parallax > _PARALLAX * error) & (seen.error <= _LIMIT * error)
        for track, point in zip(np.array(tracks)[good].tolist(), seen.points[good], strict=True):
            views = self._pending.pop(track)
            views = [view for view in views if view[0] in self.map.keyframes]
            landmark = int(self.map.add_landmarks(point[None], views[0][0])[0])
            self._landmark[track] = landmark
            frames, cameras, pixels = zip(*views, strict=True)
            self.map.add_observations(
                list(frames), landmark, np.array(pixels), list(cameras), sigma=self._sigma
            )

    def _ray(self, view: tuple[int, int, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Centre (3,) and direction (3,) in the world of a pixel."""
        frame, number, pixel = view
        frames, camera = self.map.keyframes, self._rig[number]
        pose = SE3(frames["world_T_body"][frames.rows(frame)]) * SE3(camera.body_T_cam)
        return np.asarray(pose.translation), np.asarray(pose.rotation.act(camera.unproject(pixel)))

    # ---------------------------------------------------------------- output and optimization

    def pose(self, frame: int) -> np.ndarray:
        """world_T_body of a frame, (4, 4) if the client gives matrices, else (7,)."""
        with self.map.lock:
            frames = self.map.keyframes
            return self._pose_out(frames["world_T_body"][frames.rows(frame)].copy())

    def local(self) -> Result:
        """Optimize the last `window` frames with their landmarks and IMU; others that see these stay."""
        with self._solving:
            with self.map.lock:
                frames = self.map.keyframes.ids
                recent, held = frames[-self._size :].copy(), None
                if len(recent) == len(frames) and not self._is_anchored():
                    recent, held = recent[1:], recent[:1]
            if self._noise is not None:
                if held is not None:
                    found = full_inertial_ba(self.map, options=self._options, window=self._windows["all"])
                else:
                    found = local_inertial_ba(
                        self.map, recent, None, self._options, self._windows["local"], _MOST_FIXED
                    )
            else:
                found = local_ba(self.map, recent, held, self._options, self._windows["local"], _MOST_FIXED)
            self._clean(found)
        return self._told(found)

    def close_loop(self, i: int, j: int, T: Any, information: Any = None) -> Result:
        """Frame j is where i was, or near: T is i_T_j, 4x4 or (7,). All poses and landmarks follow.

        information (6, 6) or (7, 7) of (rotation, translation[, log of scale]); None: 0.01 rad, 0.05 m, 1 %.
        With an IMU position and heading are corrected, else whole poses. A loop that contradicts the map is
        rejected: `Result.rejected["loop"]`.
        """
        sigma = np.repeat([0.01, 0.05, 0.01], (3, 3, 1))
        weights = np.diag(sigma**-2.0)
        if information is not None:
            given = np.asarray(information, float)
            if given.shape not in ((6, 6), (7, 7)):
                raise OptionError(
                    f"close_loop: information has shape {given.shape}, expected (6, 6) or (7, 7)."
                )
            weights[: len(given), : len(given)] = given
        with self._solving:
            self.map.add_loops(i, j, self._pose_in(T)[None], weights)
            mode = "4dof" if self._noise is not None else "se3"
            options = LOOP_OPTIONS.with_changes(device=self._options.device)
            found = essential_graph_optimization(self.map, mode, options=options)
        return self._told(found)

    def finish(self) -> Result:
        """Optimize everything."""
        with self._solving:
            options = self._options.with_changes(iterations=20)
            solve = full_inertial_ba if self._noise is not None else global_ba
            found = solve(self.map, options=options)
            self._clean(found)
        return self._told(found)

    def _is_anchored(self) -> bool:
        """Something says where the map is: a fixed frame, a measured pose, a prior."""
        return bool(self.map.keyframes["fixed"].any()) or bool(len(self.map.pose_priors) or self.map.priors)

    def _clean(self, found: Result) -> None:
        """Drop rejected observations, and landmarks that fewer than two are left of."""
        with self.map.lock:
            parts = [found.rejected.get(name, np.zeros(0, np.int64)) for name in ("chi2", "behind camera")]
            gone = np.concatenate(parts)
            gone = gone[self.map.observations.find(gone) >= 0]
            if found.is_usable and len(gone):
                self.map.remove_observations(gone)
                self._forget(self.map.remove_unseen_landmarks(1))

    def _forget(self, landmarks: np.ndarray) -> None:
        lost = set(landmarks.tolist())
        if lost:
            self._landmark = {track: one for track, one in self._landmark.items() if one not in lost}

    def _slide(self) -> None:
        """Marginalize frames beyond the lag."""
        with self._solving, self._input, self.map.lock:
            count = len(self.map.keyframes) - (self._lag or 0)
            if count <= 0:
                return
            old = self.map.keyframes.ids[:count].copy()
            marginalize(self.map, old)
            left = self.map.landmarks
            self._landmark = {track: one for track, one in self._landmark.items() if one in left}
            frames = self.map.keyframes
            for track in list(self._pending):
                views = [view for view in self._pending[track] if view[0] in frames]
                if views:
                    self._pending[track] = views
                else:
                    del self._pending[track]

    def _told(self, found: Result) -> Result:
        """The result, after the callbacks."""
        if found.is_usable and self._callbacks and len(found.keyframes):
            states = zip(found.keyframes.ids.tolist(), found.keyframes.world_T_body, strict=True)
            moved = {frame: self._pose_out(pose) for frame, pose in states}
            for callback in self._callbacks:
                callback(moved)
        return found

    def _pose_in(self, given: Any) -> np.ndarray:
        """(7,) of a pose as the client has it."""
        pose = np.asarray(given, float)
        if pose.shape == (4, 4):
            self._as_matrix = True
            return pose_of_matrix(pose)
        if pose.shape != (7,) or not np.isfinite(pose).all() or abs(np.linalg.norm(pose[3:]) - 1.0) > 1e-2:
            raise MapError(
                f"a pose has shape {pose.shape}, expected (4, 4), or (7,): x, y, z and a unit quaternion "
                f"x, y, z, w."
            )
        return pose

    def _pose_out(self, pose: np.ndarray) -> np.ndarray:
        return np.asarray(SE3(pose).to_matrix()) if self._as_matrix else pose


def _tracks(given: Mapping[int, Any] | tuple[Any, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Tracks (n,) and pixels (n, 2)."""
    if isinstance(given, Mapping):
        given = list(given), [np.asarray(pixel, float) for pixel in given.values()]
    ids = np.atleast_1d(whole_numbers(given[0], "tracks"))
    pixel = np.asarray(given[1], float).reshape(-1, 2) if len(ids) else np.zeros((0, 2))
    if len(pixel) != len(ids) or not np.isfinite(pixel).all():
        raise MapError(
            f"add_frame: {len(ids)} tracks and {len(pixel)} pixels, expected a finite pixel for each."
        )
    if len(np.unique(ids)) < len(ids):
        raise MapError("add_frame: a track is named twice.")
    return ids, pixel


def _column(name: str, given: Any, count: int) -> np.ndarray:
    values = np.full(count, np.nan) if given is None else np.asarray(given, float)
    if values.shape != (count,):
        raise MapError(f"add_frame: {name} has shape {values.shape}, expected ({count},): one per track.")
    return values
