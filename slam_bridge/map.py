"""The map of a visual-inertial SLAM: keyframes, landmarks, observations, IMU measurements, loops.

    map = Map(rig)
    k = map.add_keyframe(stamp, world_T_body, velocity)
    points = map.add_landmarks(positions, reference=k)
    map.add_observations(k, points, pixels, camera=0)
    map.add_imu(before, k, preintegrated)

Everything is arrays in `Table`s: rows have ids that stay (`map.landmarks.ids`), columns are live numpy views
(`map.keyframes["world_T_body"]`). Frames: body is the IMU's; poses are world_T_body x, y, z, qx, qy, qz, qw;
velocities are in the world [m/s], biases in the body [rad/s, m/s^2]; gravity is (0, 0, -9.81) unless given.

Threads: every method holds `map.lock`, a re-entrant lock. An optimization of `slam_bridge.problems` takes
what it needs in one go, computes without the lock and writes back what still exists; `snapshot` does the same
for whatever else wants to read in peace. Hold the lock while you write into columns yourself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from graphopt.geometry import SE3, Sim3
from slam_bridge.cameras import Camera, Rig
from slam_bridge.imu import GRAVITY
from slam_bridge.preintegration import Preintegrated, combined_informations, measurements
from slam_bridge.tables import FARTHEST_PIXEL, MapError, Table, whole_numbers

if TYPE_CHECKING:
    from slam_bridge.marginal_prior import MarginalPrior

map_files: dict[str, Callable[..., Any]] = {}
"""How maps are written and read, "save" and "load"; filled by `vib`."""

_POSE, _VECTOR, _FLAG, _NUMBER, _ID = ((7,), float), ((3,), float), ((), bool), ((), float), ((), np.int64)

KEYFRAME_COLUMNS = {
    "stamp": _ID,  # [ns]
    "world_T_body": _POSE,
    "velocity": _VECTOR,  # in the world [m/s]
    "gyro_bias": _VECTOR,  # [rad/s]
    "acc_bias": _VECTOR,  # [m/s^2]
    "has_states": _FLAG,  # velocity and biases mean something
    "fixed": _FLAG,  # held by every optimization
}
LANDMARK_COLUMNS = {
    "position": _VECTOR,  # in the world [m]
    "reference": _ID,  # keyframe that it moves with, -1: none
}
OBSERVATION_COLUMNS = {
    "keyframe": _ID,
    "landmark": _ID,
    "camera": ((), np.int32),
    "pixel": ((2,), float),  # [px]
    "right": _NUMBER,  # column in the right image of a rectified pair [px], NaN: not seen there
    "depth": _NUMBER,  # z in the camera [m], NaN: not measured
    "sigma": _NUMBER,  # of u, v and the right column [px]
    "depth_sigma": _NUMBER,  # [m], NaN where there is no depth
    "flow": ((2,), float),  # velocity of the pixel [px/s]; for the time offset of the camera
    "inlier": _FLAG,  # as the last optimization that saw it judged
}
IMU_COLUMNS = {
    "first": _ID,
    "second": _ID,
    "measurement": ((65,), float),  # of EdgeInertialCombined, with gravity zero
    "information": ((15, 15), float),
}
LOOP_COLUMNS = {
    "first": _ID,
    "second": _ID,
    "first_S_second": ((8,), float),  # Sim3: x, y, z, qx, qy, qz, qw, scale
    "information": ((7, 7), float),  # of (rotation, translation, log of scale) as EdgeSim3 has it
    "inlier": _FLAG,
}
POSE_PRIOR_COLUMNS = {
    "keyframe": _ID,
    "world_T_body": _POSE,
    "information": ((6, 6), float),  # of (translation, quaternion's vector part) in the body, as EdgeSE3Prior
}

_Method = TypeVar("_Method", bound=Any)


def _locked(method: _Method) -> _Method:
    """Hold the map's lock while the method runs."""

    @wraps(method)
    def holding(self: Map, *arguments: Any, **named: Any) -> Any:
        with self.lock:
            return method(self, *arguments, **named)

    return holding  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Features:
    """What a keyframe looks like: corners of its first camera with their descriptors, to recognise it by."""

    pixel: np.ndarray
    """(n, 2) float64 [px]; equal to the `pixel` of an observation where the corner shows a landmark."""
    descriptor: np.ndarray
    """(n, 32) uint8: 256 bits that are compared one by one, as ORB's."""

    @property
    def nbytes(self) -> int:
        """Memory of both."""
        return self.pixel.nbytes + self.descriptor.nbytes


class Map:
    """Keyframes, landmarks, observations, IMU measurements, loops and priors of one world."""

    def __init__(self, rig: Rig | Camera | Sequence[Camera] | None = None, gravity: Any = GRAVITY):
        self.rig: Rig | None = rig if rig is None or isinstance(rig, Rig) else Rig(rig)
        """Cameras; None where there are no observations."""
        self.gravity = np.array(gravity, float)
        """(3,) in the world [m/s^2]."""
        if self.gravity.shape != (3,) or not 0.0 < np.abs(self.gravity).max() < 1e6:
            raise MapError(
                f"Map: gravity is {gravity!r}, expected three finite numbers [m/s^2], not all zero."
            )
        self.keyframes = Table("keyframe", KEYFRAME_COLUMNS)
        self.landmarks = Table("landmark", LANDMARK_COLUMNS)
        self.observations = Table("observation", OBSERVATION_COLUMNS, indexed=("keyframe", "landmark"))
        self.imu = Table("IMU measurement", IMU_COLUMNS)
        self.loops = Table("loop", LOOP_COLUMNS)
        self.pose_priors = Table("pose prior", POSE_PRIOR_COLUMNS)
        self.preintegrated: dict[int, Preintegrated] = {}
        """Per id of `imu` the measurement with its samples."""
        self.features: dict[int, Features] = {}
        """Per id of a keyframe what it looks like; see `set_features`."""
        self.priors: list[MarginalPrior] = []
        """What marginalized states left behind, see `problems.marginalize`."""
        self.lock = threading.RLock()

    def __repr__(self) -> str:
        parts = (
            (self.keyframes, "keyframes"),
            (self.landmarks, "landmarks"),
            (self.observations, "observations"),
        )
        named = ", ".join(f"{len(table)} {name}" for table, name in parts)
        return f"<Map: {named}, {len(self.imu)} IMU measurements, {len(self.loops)} loops>"

    def __getstate__(self) -> dict[str, Any]:
        """What pickle and copy take: a snapshot, without the lock."""
        state = vars(self.snapshot())
        del state["lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.lock = threading.RLock()

    @property
    def tables(self) -> dict[str, Table]:
        """All tables by name."""
        names = ("keyframes", "landmarks", "observations", "imu", "loops", "pose_priors")
        return {name: getattr(self, name) for name in names}

    @property
    def nbytes(self) -> int:
        """Memory of all tables and features."""
        parts = (*self.tables.values(), *self.features.values())
        return sum(part.nbytes for part in parts)

    # ---------------------------------------------------------------- adding

    @_locked
    def add_keyframes(
        self,
        stamps: Any,
        world_T_body: Any,
        velocity: Any = None,
        gyro_bias: Any = (0.0, 0.0, 0.0),
        acc_bias: Any = (0.0, 0.0, 0.0),
        fixed: Any = False,
    ) -> np.ndarray:
        """Add n keyframes and return their ids (n,).

        stamps (n,) int64 [ns]; world_T_body (n, 7); velocity (n, 3) [m/s], None: without inertial states;
        biases (3,) or (n, 3) [rad/s, m/s^2]; fixed (n,) or one bool.
        """
        poses = _poses("world_T_body", world_T_body)
        count = len(poses)
        has_states = velocity is not None
        states = {
            name: _numbers(name, np.broadcast_to(np.asarray(values, float), (count, 3)), (count, 3))
            for name, values in (
                ("velocity", velocity if has_states else (0.0, 0.0, 0.0)),
                ("gyro_bias", gyro_bias),
                ("acc_bias", acc_bias),
            )
        }
        values = {"stamp": _stamps(stamps, count), "world_T_body": poses, **states}
        return self.keyframes.append(count, {**values, "has_states": has_states, "fixed": fixed})

    def add_keyframe(self, stamp: int, world_T_body: Any, velocity: Any = None, **rest: Any) -> int:
        """Add one keyframe and return its id; see `add_keyframes`."""
        row = None if velocity is None else np.reshape(velocity, (1, 3))
        return int(self.add_keyframes([stamp], np.reshape(world_T_body, (1, -1)), row, **rest)[0])

    @_locked
    def add_landmarks(self, positions: Any, reference: Any = -1) -> np.ndarray:
        """Add m landmarks (m, 3) [m] and return their ids; reference: keyframe each moves with, -1: none."""
        points = _numbers("positions", np.atleast_2d(np.asarray(positions, float)), (-1, 3))
        keyframe = _spread("reference", whole_numbers(reference), (len(points),))
        self.keyframes.rows(keyframe[keyframe >= 0])
        return self.landmarks.append(len(points), {"position": points, "reference": keyframe})

    @_locked
    def add_observations(
        self,
        keyframe: Any,
        landmark: Any,
        pixel: Any,
        camera: Any = 0,
        right: Any = np.nan,
        depth: Any = np.nan,
        sigma: Any = 1.0,
        depth_sigma: Any = np.nan,
        flow: Any = (0.0, 0.0),
    ) -> np.ndarray:
        """Add o observations and return their ids.

        keyframe, landmark: ids (o,) or one; pixel (o, 2) [px] as the camera's model has it; camera: number in
        the rig. right (o,): column in the right image of a rectified pair [px], NaN where not seen. depth
        (o,) [m] with depth_sigma [m] for RGB-D. sigma (o,) [px] > 0. flow (o, 2) [px/s], for
        `Camera.time_offset`.
        """
        pixels = _numbers("pixel", np.atleast_2d(np.asarray(pixel, float)), (-1, 2))
        count = len(pixels)
        values = {
            name: _spread(name, _as(value, dtype, name), (count, *shape))
            for name, value, dtype, shape in (
                ("keyframe", keyframe, np.int64, ()),
                ("landmark", landmark, np.int64, ()),
                ("camera", camera, np.int32, ()),
                ("right", right, float, ()),
                ("depth", depth, float, ()),
                ("sigma", sigma, float, ()),
                ("depth_sigma", depth_sigma, float, ()),
                ("flow", flow, float, (2,)),
            )
        }
        self.keyframes.rows(values["keyframe"])
        self.landmarks.rows(values["landmark"])
        self._check_observations({**values, "pixel": pixels})
        return self.observations.append(count, {**values, "pixel": pixels, "inlier": True})

    def _check_observations(self, values: dict[str, np.ndarray]) -> None:
        if self.rig is None:
            raise MapError("this map has no cameras, so it takes no observations: Map(rig).")
        camera, stereo = values["camera"], np.isfinite(values["right"])
        depth = np.isfinite(values["depth"])
        pairs = np.array([camera.baseline is not None for camera in self.rig])
        if len(camera) and not (camera.min() >= 0 and camera.max() < len(self.rig)):
            raise MapError(
                f"camera is {camera.min()} to {camera.max()}; the rig has 0 to {len(self.rig) - 1}."
            )
        with np.errstate(invalid="ignore"):
            beyond = (np.abs(values["pixel"]) > FARTHEST_PIXEL).any(axis=1)
            beyond |= stereo & (np.abs(values["right"]) > FARTHEST_PIXEL)
        for bad, text in (
            (~(values["sigma"] > 0.0), "sigma is {sigma}, must be > 0 px"),
            (beyond, "pixel is {pixel}, right {right}: no image has such pixels"),
            (stereo & ~pairs[camera], "right is {right} px, but camera {camera} has no baseline"),
            (depth & ~(values["depth_sigma"] > 0.0), "depth is {depth} m with depth_sigma {depth_sigma} m"),
            (depth & stereo, "right is {right} px and depth {depth} m: give one of the two"),
            (~np.isfinite(values["flow"]).all(axis=1), "flow is {flow} px/s, must be finite"),
        ):
            if bad.any():
                row = int(np.argmax(bad))
                named = {name: value[row] for name, value in values.items()}
                raise MapError(f"observation in row {row}: {text.format(**named)}.")

    @_locked
    def add_imu(
        self, first: Any, second: Any, measured: Preintegrated | Sequence[Preintegrated]
    ) -> np.ndarray:
        """Add preintegrated measurements from keyframes `first` to `second` (k,); return their ids."""
        ends = [np.atleast_1d(whole_numbers(ids)) for ids in (first, second)]
        given = list(measured) if isinstance(measured, Sequence) else [measured]
        if not len(ends[0]) == len(ends[1]) == len(given):
            raise MapError(
                f"add_imu: {len(ends[0])} first, {len(ends[1])} second keyframes, {len(given)} measurements."
            )
        missing = [k for k, interval in enumerate(given) if not isinstance(interval, Preintegrated)]
        if missing:
            k = missing[0]
            raise MapError(
                f"add_imu: measurement {k}, from keyframe {ends[0][k]} to {ends[1][k]}, is {given[k]!r}, "
                "expected Preintegrated. `preintegrate_intervals` has None where samples are missing: leave "
                "these out."
            )
        if (ends[0] == ends[1]).any():
            raise MapError("add_imu: a measurement links two different keyframes.")
        rows = [self.keyframes.rows(end) for end in ends]
        self._refuse_order(ends, rows)
        self._refuse_repeated(ends)
        for row in rows:
            self.keyframes["has_states"][row] = True
        ids = self.imu.append(len(given), {"first": ends[0], "second": ends[1], **_imu_columns(given)})
        self.preintegrated.update(zip(ids.tolist(), given, strict=True))
        return ids

    def _refuse_order(self, ends: list[np.ndarray], rows: list[np.ndarray]) -> None:
        """IMU measurements lead forward in time."""
        first, second = (self.keyframes["stamp"][row] for row in rows)
        late = first >= second
        if late.any():
            k = int(np.argmax(late))
            raise MapError(
                f"add_imu: measurement {k} leads from keyframe {ends[0][k]} at {first[k]} ns to {ends[1][k]} "
                f"at {second[k]} ns, which is not later."
            )

    def _refuse_repeated(self, ends: list[np.ndarray]) -> None:
        """Two measurements of one motion would count its samples twice."""
        near = np.flatnonzero(np.isin(self.imu["first"], ends[0]))
        known = set(zip(self.imu["first"][near].tolist(), self.imu["second"][near].tolist(), strict=True))
        for pair in zip(*(end.tolist() for end in ends), strict=True):
            if pair in known:
                raise MapError(
                    f"add_imu: there is a measurement from keyframe {pair[0]} to {pair[1]}; "
                    "set_imu replaces it."
                )
            known.add(pair)

    @_locked
    def set_imu(self, ids: Any, measured: Sequence[Preintegrated]) -> None:
        """Replace measurements, as after integrating with other biases."""
        rows = self.imu.rows(ids)
        for name, values in _imu_columns(list(measured)).items():
            self.imu[name][rows] = values
        self.preintegrated.update(zip(np.ravel(ids).tolist(), measured, strict=True))

    @_locked
    def add_loops(
        self, first: Any, second: Any, first_T_second: Any, information: Any, scale: Any = 1.0
    ) -> np.ndarray:
        """Add k loop closures and return their ids.

        first_T_second (k, 7) relative poses; information (7, 7) or (k, 7, 7) of (rotation, translation, log
        of scale) [rad, m]; scale (k,): metres of the first per metre of the second, 1 where both are metric.
        """
        poses = _poses("first_T_second", first_T_second)
        count = len(poses)
        ends = [_spread("keyframes", whole_numbers(ids), (count,)) for ids in (first, second)]
        for end in ends:
            self.keyframes.rows(end)
        same = ends[0] == ends[1]
        if same.any():
            row = int(np.argmax(same))
            raise MapError(f"add_loops: row {row} links keyframe {int(ends[0][row])} with itself.")
        scales = _positive("scale", scale, count)[:, None]
        matrices = _informations(_spread("information", np.asarray(information, float), (count, 7, 7)))
        values = {
            "first": ends[0],
            "second": ends[1],
            "first_S_second": np.concatenate([poses, scales], axis=1),
        }
        return self.loops.append(count, {**values, "information": matrices, "inlier": True})

    @_locked
    def add_pose_priors(
        self, keyframe: Any, world_T_body: Any, position_sigma: Any, rotation_sigma: Any
    ) -> np.ndarray:
        """Add measured poses (k, 7) of keyframes, with standard deviations [m, rad]; return ids."""
        poses = _poses("world_T_body", world_T_body)
        count = len(poses)
        owner = _spread("keyframe", whole_numbers(keyframe), (count,))
        self.keyframes.rows(owner)
        information = np.zeros((count, 6, 6))
        for first, name, sigma, factor in (
            (0, "position_sigma", position_sigma, 1.0),
            (3, "rotation_sigma", rotation_sigma, 2.0),  # residual: half the turn
        ):
            weights = (factor / _positive(name, sigma, count)) ** 2
            for k in range(first, first + 3):
                information[:, k, k] = weights
        values = {"keyframe": owner, "world_T_body": poses, "information": information}
        return self.pose_priors.append(count, values)

    @_locked
    def set_features(self, keyframe: int, pixel: Any, descriptor: Any) -> None:
        """Corners (n, 2) [px] of a keyframe's first camera and their descriptors (n, 32) uint8.

        They are saved with the map, so that a later run recognises the place.
        """
        self.keyframes.rows(keyframe)
        pixels = _numbers("pixel", np.asarray(pixel, float).reshape(-1, 2), (-1, 2))
        bits = np.asarray(descriptor)
        if bits.shape != (len(pixels), 32) or bits.dtype != np.uint8:
            raise MapError(
                f"set_features: descriptor has shape {bits.shape} and type {bits.dtype}, expected "
                f"({len(pixels)}, 32) of uint8."
            )
        self.features[int(keyframe)] = Features(pixels, bits)

    # ---------------------------------------------------------------- removing and joining

    @_locked
    def remove_keyframes(self, ids: Any, join_imu: bool = True) -> None:
        """Remove keyframes, what they observe, their loops and measured poses.

        join_imu: the IMU measurements before and after a removed keyframe become one, integrated anew from
        the samples of both, with the biases of the earlier one; otherwise they go. Landmarks that referred to
        a removed keyframe refer to the first one left that observes them. Marginal priors keep what they
        say about others.
        """
        gone = np.atleast_1d(whole_numbers(ids))
        self.keyframes.rows(gone)
        for keyframe in gone.tolist():
            self._unlink(keyframe, join_imu)
        self.observations.drop(self._of_keyframes(gone))
        self.pose_priors.keep(~np.isin(self.pose_priors["keyframe"], gone))
        self.loops.keep(~(np.isin(self.loops["first"], gone) | np.isin(self.loops["second"], gone)))
        self._forget(keyframes=gone)
        for keyframe in gone.tolist():
            self.features.pop(keyframe, None)
        self.keyframes.remove(gone)
        lost = np.isin(self.landmarks["reference"], gone)
        self.landmarks["reference"][lost] = self._first_observers(self.landmarks.ids[lost])

    def _unlink(self, keyframe: int, join: bool) -> None:
        before = self.imu.ids[self.imu["second"] == keyframe]
        after = self.imu.ids[self.imu["first"] == keyframe]
        ends = self.imu["first"][self.imu.rows(before)], self.imu["second"][self.imu.rows(after)]
        if join and len(before) == 1 and len(after) == 1:
            join = not ((self.imu["first"] == ends[0]) & (self.imu["second"] == ends[1])).any()
        if join and len(before) == 1 and len(after) == 1:
            pair = self.preintegrated[int(before[0])], self.preintegrated[int(after[0])]
            self.remove_imu([*before, *after])
            self.add_imu(*ends, pair[0].joined(pair[1]))
        else:
            self.remove_imu([*before, *after])

    def _first_observers(self, landmarks: np.ndarray) -> np.ndarray:
        """The smallest keyframe that observes each landmark, -1: none."""
        rows = self.observations.rows_where("landmark", landmarks)
        seen, keyframe = self.observations["landmark"][rows], self.observations["keyframe"][rows]
        order = np.lexsort((keyframe, seen))
        seen, first = np.unique(seen[order], return_index=True)
        result = np.full(len(landmarks), -1)
        result[np.isin(landmarks, seen)] = keyframe[order][first]
        return result

    @_locked
    def remove_landmarks(self, ids: Any) -> None:
        """Remove landmarks and the observations of them."""
        gone = np.atleast_1d(whole_numbers(ids))
        rows = self.landmarks.rows(gone)
        self.observations.drop(self.observations.rows_where("landmark", gone))
        self.landmarks.drop(rows)
        self._forget(landmarks=gone)

    def _forget(self, keyframes: Any = (), landmarks: Any = ()) -> None:
        """Sum states that leave the map out of the priors."""
        left = (prior.without_owners(keyframes, landmarks) for prior in self.priors)
        self.priors = [prior for prior in left if prior is not None]

    @_locked
    def remove_unseen_landmarks(self, min_observations: int = 1) -> np.ndarray:
        """Remove landmarks with fewer observations than that, and their observations; return their ids."""
        seen = self.landmarks.rows(self.observations["landmark"])
        few = self.landmarks.ids[np.bincount(seen, minlength=len(self.landmarks)) < min_observations]
        self.remove_landmarks(few)
        return few

    @_locked
    def remove_observations(self, ids: Any) -> None:
        """Remove observations."""
        self.observations.remove(ids)

    @_locked
    def remove_imu(self, ids: Any) -> None:
        """Remove IMU measurements."""
        self.imu.remove(ids)
        for id_ in np.ravel(ids).tolist():
            del self.preintegrated[int(id_)]

    @_locked
    def merge_landmarks(self, kept: Any, gone: Any) -> None:
        """Landmarks `gone` (k,) are those of `kept` (k,): the latter take over the observations.

        Where one camera of a keyframe sees both, the observation of the kept one stays. Chains (a into b, b
        into c) are followed; a cycle is a `MapError`.
        """
        given = [np.ravel(whole_numbers(ids)) for ids in (gone, kept)]
        if len(given[0]) != len(given[1]):
            raise MapError(f"merge_landmarks: {len(given[0])} landmarks are to go into {len(given[1])}.")
        target = dict(zip(*(ids.tolist() for ids in given), strict=True))
        if len(target) < len(given[0]):
            raise MapError("merge_landmarks: a landmark is to go into two others, or is named twice.")
        self.landmarks.rows([*target, *target.values()])
        final = {id_: _followed(target, id_) for id_ in sorted(target)}
        merged, into = (np.array(list(ids), np.int64) for ids in (final, final.values()))
        seen = self.observations
        rows = seen.rows_where("landmark", np.concatenate([merged, into]))
        renamed = seen["landmark"][rows].copy()
        is_gone = np.isin(renamed, merged)
        renamed[is_gone] = into[np.searchsorted(merged, renamed[is_gone])]
        places = np.stack([seen["keyframe"][rows], seen["camera"][rows], renamed], axis=1)
        order = np.argsort(is_gone, kind="stable")  # those of the kept ones come first and win
        _, first = np.unique(places[order], axis=0, return_index=True)
        mask = np.ones(len(seen), bool)
        mask[rows] = False
        mask[rows[order[first]]] = True
        seen.change("landmark", rows, renamed)
        seen.keep(mask)
        self.landmarks.remove(list(final))
        self.priors = [prior.renamed(final) for prior in self.priors]

    # ---------------------------------------------------------------- questions

    @_locked
    def observed_landmarks(self, keyframes: Any) -> np.ndarray:
        """Ids of the landmarks that these keyframes observe, ascending."""
        rows = self._of_keyframes(keyframes)
        return np.unique(self.observations["landmark"][rows])

    @_locked
    def covisible(self, keyframes: Any) -> tuple[np.ndarray, np.ndarray]:
        """Other keyframes that observe landmarks of these, and how many observations, most first."""
        shared = self.observations.rows_where("landmark", self.observed_landmarks(keyframes))
        counts = np.bincount(
            self.keyframes.rows(self.observations["keyframe"][shared]), minlength=len(self.keyframes)
        )
        counts[self.keyframes.rows(keyframes)] = 0
        order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        return self.keyframes.ids[order], counts[order]

    def _of_keyframes(self, keyframes: Any) -> np.ndarray:
        """Rows of the observations that these keyframes make."""
        self.keyframes.rows(keyframes)
        return self.observations.rows_where("keyframe", keyframes)

    # ---------------------------------------------------------------- whole maps

    @_locked
    def snapshot(self) -> Map:
        """Independent copy, for a thread that reads or optimizes while others go on; ids are the same."""
        other = Map(self.rig, self.gravity)
        for name, table in self.tables.items():
            setattr(other, name, table.copy())
        other.preintegrated = dict(self.preintegrated)
        other.features = dict(self.features)
        other.priors = list(self.priors)
        return other

    @_locked
    def follow(self, earlier: Map) -> None:
        """Give out ids from where another map's end, so that `prepend` can bring both together."""
        if any(table.next_id for table in self.tables.values()):
            raise MapError("follow: the map has given out ids already.")
        with earlier.lock:
            for name, table in self.tables.items():
                table.next_id = earlier.tables[name].next_id

    @_locked
    def prepend(self, earlier: Map) -> None:
        """Take in all rows of another map, whose ids are below those of this one (`follow`), as they are.

        Both must have the same cameras and be in the same frame: `transform` one of them first.
        """
        with earlier.lock:
            if (self.rig is None) != (earlier.rig is None) or not (
                self.rig is None or earlier.rig is None or self.rig.is_same(earlier.rig)
            ):
                raise MapError("prepend: the maps have other cameras.")
            for name, table in self.tables.items():
                ids, theirs = table.ids, earlier.tables[name].ids
                if len(ids) and len(theirs) and int(ids[0]) <= int(theirs[-1]):
                    raise MapError(
                        f"prepend: {table.kind} {int(ids[0])} of this map is not above {int(theirs[-1])}, "
                        f"the "
                        "last of the other one. Begin this map with `follow`."
                    )
            for name, table in self.tables.items():
                mine, theirs = table.arrays(), earlier.tables[name].arrays()
                joined = {key: np.concatenate([theirs[key], mine[key]]) for key in mine if key != "next_id"}
                last = max(int(theirs["next_id"]), int(mine["next_id"]))
                table.fill({**joined, "next_id": np.array(last)})
            self.preintegrated = {**earlier.preintegrated, **self.preintegrated}
            self.features = {**earlier.features, **self.features}
            self.priors = [*earlier.priors, *self.priors]

    @_locked
    def apply(self, changed: Map, keyframes: Iterable[int] | None = None) -> None:
        """Take states, positions and inliers from a snapshot that was optimized, where both still have them.

        Keyframes and landmarks that were added meanwhile stay as they are. `keyframes`: only these of them.
        """
        for name, columns in (
            ("keyframes", ("world_T_body", "velocity", "gyro_bias", "acc_bias")),
            ("landmarks", ("position",)),
            ("observations", ("inlier",)),
            ("loops", ("inlier",)),
        ):
            mine, theirs = self.tables[name], changed.tables[name]
            ids = theirs.ids
            if name == "keyframes" and keyframes is not None:
                ids = np.asarray(list(keyframes), np.int64)
            ids = ids[mine.find(ids) >= 0]
            for column in columns:
                mine[column][mine.find(ids)] = theirs[column][theirs.rows(ids)]

    @_locked
    def transform(self, new_S_old: Any) -> None:
        """Move the whole map: a Sim3 (8,) or a pose (7,) from the present world to the new one.

        Measured poses and marginal priors move with it, distances in them and in loops are scaled. Gravity
        stays: it is that of the new world. IMU measurements, which know metres, stay as well.
        """
        motion = np.asarray(new_S_old, float)
        if motion.shape not in ((7,), (8,)):
            raise MapError(f"transform got shape {motion.shape}, expected (7,) or (8,): x, y, z, q, scale.")
        motion = motion.copy() if len(motion) == 8 else np.append(motion, 1.0)
        motion[:7] = _poses("new_S_old", motion[:7])[0]
        _positive("the scale of new_S_old", motion[7], 1)
        similarity, rotation = Sim3(motion), SE3(motion[:7]).rotation
        for poses in (self.keyframes["world_T_body"], self.pose_priors["world_T_body"]):
            turned = (rotation * SE3(poses).rotation).storage if len(poses) else poses[:, 3:]
            poses[:, :3] = similarity.act(poses[:, :3])
            poses[:, 3:] = turned
        shrunk = np.array(
            [1.0] * 3 + [1.0 / motion[7]] * 3 + [1.0]
        )  # of (rotation, translation, log of scale)
        self.loops["first_S_second"][:, :3] *= motion[7]
        self.loops["information"][:] *= shrunk[:, None] * shrunk
        shrunk = np.array([1.0 / motion[7]] * 3 + [1.0] * 3)
        self.pose_priors["information"][:] *= shrunk[:, None] * shrunk
        self.priors = [prior.transformed(motion) for prior in self.priors]
        self.keyframes["velocity"][:] = motion[7] * np.asarray(rotation.act(self.keyframes["velocity"]))
        points = self.landmarks["position"]
        finite = np.isfinite(points).all(axis=1)
        points[finite] = similarity.act(points[finite])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the map to a .vib file (HDF5, needs h5py); all of it, or nothing.

        Features are in it, so that a later run recognises its places (`pipeline.Slam`). Raises `OptionError`
        for another suffix.
        """
        map_files["save"](self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Map:
        """Read a map that `save` wrote, or an older version's .npz; `FormatError` where it is damaged."""
        return map_files["load"](path)


def _numbers(name: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array if it is finite and has the shape (-1: any length); an empty list is no rows."""
    if array.shape == (1, 0) and shape[0] == -1:  # of atleast_2d
        array = array.reshape(0, *shape[1:])
    if array.ndim != len(shape) or any(
        have != want for have, want in zip(array.shape, shape, strict=True) if want >= 0
    ):
        raise MapError(f"{name} has shape {array.shape}, expected {str(shape).replace('-1', 'n')}.")
    bad = ~np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
    if bad.any():
        row = int(np.argmax(bad))
        raise MapError(f"{name} of row {row} is {array[row]}: not finite. Leave such rows out.")
    return array


def _poses(name: str, value: Any) -> np.ndarray:
    """Poses (n, 7), a copy with quaternions of length 1; `MapError` where one is none."""
    poses = _numbers(name, np.atleast_2d(np.asarray(value, float)), (-1, 7)).copy()
    length = np.linalg.norm(poses[:, 3:], axis=1)
    if len(poses) and (np.abs(length - 1.0) > 1e-2).any():
        row = int(np.argmax(np.abs(length - 1.0)))
        raise MapError(f"{name} of row {row}: its quaternion has length {length[row]:.4f}, expected 1.")
    poses[:, 3:] /= length[:, None]
    return poses


def _positive(name: str, value: Any, count: int) -> np.ndarray:
    """Numbers (n,), or one for all, that are positive and finite."""
    numbers = _spread(name, np.asarray(value, float), (count,))
    bad = ~((numbers > 0.0) & np.isfinite(numbers))
    if bad.any():
        row = int(np.argmax(bad))
        raise MapError(f"{name} of row {row} is {numbers[row]}, must be > 0 and finite.")
    return numbers


def _informations(matrices: np.ndarray) -> np.ndarray:
    """Matrices (n, d, d) that are symmetric and have no negative eigenvalue."""
    matrices = _numbers("information", matrices, matrices.shape)
    turned = matrices.swapaxes(1, 2)
    size = np.abs(matrices).max(axis=(1, 2), initial=0.0)
    lowest = np.linalg.eigvalsh(0.5 * (matrices + turned)).min(axis=1, initial=np.inf)
    odd = np.abs(matrices - turned).max(axis=(1, 2), initial=0.0) > 1e-6 * size
    bad = odd | (lowest < -1e-9 * size)
    if bad.any():
        row = int(np.argmax(bad))
        found = "not symmetric" if odd[row] else f"indefinite (eigenvalues from {lowest[row]:.3g})"
        raise MapError(f"information of row {row} is {found}, expected the inverse of a covariance.")
    return matrices


def _as(value: Any, dtype: Any, name: str) -> np.ndarray:
    """An array of the type; whole numbers are not made of others."""
    if np.dtype(dtype).kind == "i":
        return whole_numbers(value, name).astype(dtype, copy=False)
    return np.asarray(value, dtype)


def _spread(name: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array for all rows; `MapError` where it is neither one value nor one for each."""
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise MapError(f"{name} has shape {array.shape}, expected {shape} or one for all.") from None


def _stamps(stamps: Any, count: int) -> np.ndarray:
    given = np.atleast_1d(np.asarray(stamps))
    given = given.astype(np.int64) if given.size == 0 else given
    if given.dtype.kind not in "iu" or given.shape != (count,):
        raise MapError(
            f"stamps have shape {given.shape} and type {given.dtype}, expected ({count},) int64 nanoseconds."
        )
    return given.astype(np.int64)


def _imu_columns(measured: list[Preintegrated]) -> dict[str, np.ndarray]:
    return {
        "measurement": measurements(measured, np.zeros(3)),
        "information": combined_informations(measured),
    }


def _followed(target: dict[int, int], id_: int) -> int:
    seen = {id_}
    while id_ in target:
        id_ = target[id_]
        if id_ in seen:
            raise MapError(
                f"merge_landmarks: landmark {id_} would be merged into itself, by way of {sorted(seen)}."
            )
        seen.add(id_)
    return id_
