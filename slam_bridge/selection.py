"""What takes part in an optimization of a map: a selection, as arrays that no longer depend on the map.

Keyframes and landmarks of a selection have numbers 0, 1, ... in ascending order of their ids. What is
fixed, and who has inertial states, is said per keyframe. `select` holds the map's lock while it copies.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slam_bridge.cameras import Rig
from slam_bridge.map import Map
from slam_bridge.marginal_prior import LANDMARK, MarginalPrior
from slam_bridge.preintegration import Preintegrated
from slam_bridge.tables import FARTHEST_PIXEL, MapError, whole_numbers

_FAR = 1e5


@dataclass(frozen=True, eq=False)
class Observations:
    """o observations of a selection."""

    ids: np.ndarray
    """(o,) int64: in the map."""
    keyframe: np.ndarray
    """(o,) int64: number in the selection."""
    landmark: np.ndarray
    """(o,) int64: number in the selection."""
    camera: np.ndarray
    """(o,) int32."""
    pixel: np.ndarray
    """(o, 2) [px]."""
    right: np.ndarray
    """(o,) [px], NaN: none."""
    depth: np.ndarray
    """(o,) [m], NaN: none."""
    sigma: np.ndarray
    """(o,) [px]."""
    depth_sigma: np.ndarray
    """(o,) [m]."""
    flow: np.ndarray
    """(o, 2) [px/s]."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Selection:
    """Arrays of one optimization problem."""

    keyframes: np.ndarray
    """(k,) int64 ids, ascending."""
    world_T_body: np.ndarray
    """(k, 7)."""
    velocity: np.ndarray
    """(k, 3)."""
    gyro_bias: np.ndarray
    """(k, 3)."""
    acc_bias: np.ndarray
    """(k, 3)."""
    fixed: np.ndarray
    """(k,) bool: pose and states are held."""
    inertial: np.ndarray
    """(k,) bool: velocity and biases take part."""
    landmarks: np.ndarray
    """(m,) int64 ids, ascending."""
    points: np.ndarray
    """(m, 3)."""
    points_fixed: bool
    observations: Observations
    rig: Rig | None
    gravity: np.ndarray
    imu: np.ndarray
    """(i,) int64 ids of IMU measurements."""
    imu_ends: np.ndarray
    """(i, 2) int64: numbers of their keyframes."""
    imu_measurement: np.ndarray
    """(i, 65), gravity included."""
    imu_information: np.ndarray
    """(i, 15, 15)."""
    preintegrated: tuple[Preintegrated, ...] = ()
    """(i) with their samples."""
    priors: tuple[MarginalPrior, ...] = ()
    pose_prior_keyframe: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """(p,) number of a keyframe whose pose was measured."""
    pose_prior: np.ndarray = field(default_factory=lambda: np.zeros((0, 7)))
    pose_prior_information: np.ndarray = field(default_factory=lambda: np.zeros((0, 6, 6)))
    time_offset: np.ndarray | None = None
    """(cameras,) [s] as estimated so far, on top of what the stamps have of it; None: zeros."""

    def with_changes(self, **changes: Any) -> Selection:
        """The same selection with other arrays."""
        return replace(self, **changes)

    @property
    def free(self) -> np.ndarray:
        """Numbers of the keyframes that are not fixed."""
        return np.flatnonzero(~self.fixed)

    def refuse_non_finite(self) -> None:
        """`MapError` names a keyframe, observation or IMU measurement of numbers that are none.

        `Map.add_keyframes` and the like let none in; columns that were written by hand may have some.
        """
        states = {"world_T_body": self.world_T_body}
        if self.inertial.any():
            states |= {name: getattr(self, name) for name in ("velocity", "gyro_bias", "acc_bias")}
        for name, values in states.items():
            taken = np.ones(len(values), bool) if name == "world_T_body" else self.inertial
            bad = taken & ~np.isfinite(values).all(axis=1)
            _refuse("keyframe", self.keyframes, name, values, bad)
        length = np.linalg.norm(self.world_T_body[:, 3:], axis=1)
        wrong = np.abs(length - 1.0) > 1e-2
        _refuse("keyframe", self.keyframes, "world_T_body", self.world_T_body, wrong, "a unit quaternion")
        pixel = self.observations.pixel
        if len(pixel) and not (pixel.max() <= FARTHEST_PIXEL and pixel.min() >= -FARTHEST_PIXEL):
            bad = ~(np.abs(pixel) <= FARTHEST_PIXEL).all(axis=1)
            expected = f"finite numbers up to {FARTHEST_PIXEL:g} px"
            _refuse("observation", self.observations.ids, "pixel", pixel, np.asarray(bad), expected)
        sigma = self.observations.sigma
        if not (sigma > 0.0).all():
            _refuse("observation", self.observations.ids, "sigma", sigma, ~(sigma > 0.0), "a number > 0 [px]")
        for name in ("imu_measurement", "imu_information") if len(self.imu) else ():
            values = getattr(self, name).reshape(len(self.imu), -1)
            _refuse("IMU measurement", self.imu, name, values, np.asarray(~np.isfinite(values).all(axis=1)))

    def landmarks_in_priors(self) -> np.ndarray:
        """(m,) bool: a prior says something about the position."""
        result = np.zeros(len(self.landmarks), bool)
        for prior in self.priors:
            result |= np.isin(self.landmarks, prior.owner[prior.kind == LANDMARK])
        return result

    def landmarks_nowhere(self) -> np.ndarray:
        """(m,) bool: the position is not finite, as of a landmark at infinity."""
        if np.isfinite(self.points).all():
            return np.zeros(len(self.points), bool)
        return np.asarray(~np.isfinite(self.points).all(axis=1))

    def landmarks_far(self) -> np.ndarray:
        """(m,) bool: beyond 1e5 times the median distance, where no step of a solver moves their pixels.

        Such a landmark would turn the cameras after it, so it has to be judged before it may.
        """
        if not len(self.points) or not len(self.keyframes) or self.points_fixed:
            return np.zeros(len(self.points), bool)
        with np.errstate(invalid="ignore"):
            middle = self.world_T_body[:, :3].mean(axis=0).tolist()
            x, y, z = (np.abs(self.points[:, axis] - middle[axis]) for axis in range(3))
            away = np.maximum(np.maximum(x, y), z)
            if away.max() <= _FAR * away.min():  # so not beyond it times the median; a NaN is not less
                return np.zeros(len(away), bool)
            known = away if np.isfinite(away).all() else away[np.isfinite(away)]
            if not len(known):
                return np.zeros(len(away), bool)
            median = np.partition(known, len(known) // 2)[len(known) // 2]
            return np.asarray(away > _FAR * median)

    def holds(self) -> np.ndarray:
        """(o,) bool: the camera's model holds where the observed point is, see `RigCameraModel.cone`."""
        seen, rig = self.observations, self.rig
        if rig is None or not len(seen):
            return np.zeros(len(seen), bool)
        return rig.in_cones(self.world_T_body, seen.keyframe, seen.camera, self.points, seen.landmark)


def _refuse(
    kind: str,
    ids: np.ndarray,
    name: str,
    values: np.ndarray,
    bad: np.ndarray,
    expected: str = "finite numbers",
) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        shown = np.array2string(values[row], precision=4, threshold=10)
        raise MapError(
            f"{kind} {int(ids[row])}: {name} is {shown}, expected {expected}. Set it anew, or remove the "
            f"{kind}."
        )


def select(
    world: Map,
    free: Any,
    fixed: Any = (),
    *,
    inertial: Any = (),
    landmarks: Any = None,
    points_fixed: bool = False,
    visual: bool = True,
) -> Selection:
    """Copy a part of a map.

    free, fixed: ids of keyframes; those that the map itself fixes are fixed in any case. inertial: ids of
    those whose velocity and biases take part. landmarks: ids, by default all that those of `free` observe.
    All observations of these landmarks by these keyframes are taken, and all IMU measurements and measured
    poses between and of them; of the priors what they say about these states.
    """
    with world.lock:
        frames = world.keyframes
        free_ids = np.unique(whole_numbers(free))
        ids = np.union1d(free_ids, whole_numbers(fixed))
        rows = frames.rows(ids)
        number = np.full(len(frames), -1)
        number[rows] = np.arange(len(ids))
        held = frames["fixed"][rows] | ~among(ids, free_ids)
        with_states = among(ids, np.unique(whole_numbers(inertial)))
        seen, point_rows = _observations(world, ids, free_ids, number, landmarks, visual)
        imu_rows, ends = _imu(world, number, with_states)
        measurement = world.imu["measurement"][imu_rows].copy()
        measurement[:, 62:65] = world.gravity
        prior_number = number[frames.rows(world.pose_priors["keyframe"])]
        measured = np.flatnonzero(prior_number >= 0)
        states = {name: frames[name][rows] for name in ("velocity", "gyro_bias", "acc_bias")}
        return Selection(
            ids,
            frames["world_T_body"][rows],
            **states,
            fixed=held,
            inertial=with_states,
            landmarks=world.landmarks.ids[point_rows],
            points=world.landmarks["position"][point_rows],
            points_fixed=points_fixed,
            observations=seen,
            rig=world.rig,
            gravity=world.gravity.copy(),
            imu=world.imu.ids[imu_rows],
            imu_ends=ends,
            imu_measurement=measurement,
            imu_information=world.imu["information"][imu_rows],
            preintegrated=tuple(world.preintegrated[id_] for id_ in world.imu.ids[imu_rows].tolist()),
            priors=_priors(world, ids, whole_numbers(inertial), world.landmarks.ids[point_rows]),
            pose_prior_keyframe=prior_number[measured],
            pose_prior=world.pose_priors["world_T_body"][measured],
            pose_prior_information=world.pose_priors["information"][measured],
        )


def _observations(
    world: Map, keyframes: np.ndarray, free: np.ndarray, number: np.ndarray, landmarks: Any, visual: bool
) -> tuple[Observations, np.ndarray]:
    """Observations by these keyframes of the wanted landmarks, and the rows of the landmarks.

    number: per row of the map's keyframes its place in `keyframes`.
    """
    table = world.observations
    if not visual or not len(table):
        rows, points = np.zeros(0, np.int64), np.zeros(0, np.int64)
        return _taken(world, rows, rows, rows), points
    rows = table.rows_where("keyframe", keyframes)
    row = world.landmarks.rows(np.take(table["landmark"], rows))
    frame = np.take(number, world.keyframes.rows(np.take(table["keyframe"], rows)))
    wanted = np.zeros(len(world.landmarks), bool)
    if landmarks is None:
        by_free = slice(None) if len(free) == len(keyframes) else among(keyframes, free)[frame]
        wanted[row[by_free]] = True
    else:
        wanted[world.landmarks.rows(whole_numbers(landmarks))] = True
    points = np.flatnonzero(wanted)
    chosen = wanted[row]
    if not chosen.all():
        rows, row, frame = rows[chosen], row[chosen], frame[chosen]
    point_number = np.zeros(len(wanted), np.int64)
    point_number[points] = np.arange(len(points))
    return _taken(world, rows, frame, point_number[row]), points


def among(ids: np.ndarray, some: np.ndarray) -> np.ndarray:
    """(n,) bool: which of these ids are among some, which ascend."""
    if not len(some):
        return np.zeros(len(ids), bool)
    return some[np.minimum(np.searchsorted(some, ids), len(some) - 1)] == ids


def _taken(world: Map, rows: np.ndarray, keyframe: np.ndarray, landmark: np.ndarray) -> Observations:
    table = world.observations
    names = ("camera", "pixel", "right", "depth", "sigma", "depth_sigma", "flow")
    if len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows):  # ascending, so none is left out
        there = slice(int(rows[0]), int(rows[-1]) + 1)
        columns = [column[there].copy() for column in (table.ids, *(table[name] for name in names))]
    else:
        columns = [np.take(column, rows, axis=0) for column in (table.ids, *(table[name] for name in names))]
    return Observations(columns[0], keyframe, landmark, *columns[1:])


def _imu(world: Map, number: np.ndarray, inertial: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the IMU measurements between keyframes with inertial states, and the numbers of their ends."""
    ends = number[world.keyframes.rows(np.stack([world.imu["first"], world.imu["second"]], axis=1))]
    has = np.append(inertial, False)
    rows = np.flatnonzero(has[ends].all(axis=1)) if len(ends) else np.zeros(0, np.int64)
    return rows, ends[rows].reshape(-1, 2)


def _priors(
    world: Map, keyframes: np.ndarray, inertial: np.ndarray, landmarks: np.ndarray
) -> tuple[MarginalPrior, ...]:
    """What the map's priors say about states that take part; all others are summed out."""
    parts = (
        prior.within(keyframes, np.intersect1d(inertial, keyframes), landmarks) for prior in world.priors
    )
    return tuple(part for part in parts if part is not None)
