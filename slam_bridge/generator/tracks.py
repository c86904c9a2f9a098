"""Tracks of landmarks through keyframes: who sees what, and how many exactly.

Landmarks begin on the surfaces that a keyframe sees, at random pixels. Another keyframe may observe one if
its camera's model holds there, nothing stands between, the distance is within 0.4 to 2.5 times that of the
first view, and the direction within 50 degrees of it. Tried are keyframes before and after, and those that
come back to the place (loops). `thinned` then leaves exactly as many landmarks and observations as were
asked for: tracks have geometric lengths, mostly of neighbouring keyframes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import KDTree

from graphopt.errors import OptionError
from graphopt.geometry import SE3
from slam_bridge.cameras import Rig
from slam_bridge.generator.render import from_inside
from slam_bridge.generator.scene import Box, Scene

_BEFORE, _AFTER, _REVISITS = 10, 24, 8
"""Keyframes that are tried for each landmark."""
_RANGE = 60.0  # farthest landmark [m]
_NEAREST = 0.25
_SKY = 5
_MOST_TRIED = 6  # points on surfaces for each landmark that is asked for
_REVISITED = 0.5  # share of landmarks that loops may see again


@dataclass(frozen=True, eq=False)
class Tracks:
    """Landmarks, and rows of who observes them."""

    points: np.ndarray
    """(m, 3) in the world [m]."""
    reference: np.ndarray
    """(m,) number of the keyframe that saw it first."""
    landmark: np.ndarray
    """(o,) number of the landmark, ascending."""
    keyframe: np.ndarray
    """(o,) number of the keyframe."""
    camera: np.ndarray
    """(o,) number of the camera."""


def tracks(
    rig: Rig, poses: np.ndarray, scene: Scene, num_landmarks: int, num_observations: int, seed: int = 0
) -> Tracks:
    """Exactly that many landmarks and observations from keyframes at poses (n, 7).

    Raises `OptionError` where the keyframes do not see enough.
    """
    if not 2 * num_landmarks <= num_observations:
        raise OptionError(
            f"{num_landmarks} landmarks with {num_observations} observations: each needs two at least."
        )
    generator = np.random.default_rng([seed, 5])
    kept, tried, batch = None, 0, 2 * num_landmarks + 50
    while kept is None or tried < _MOST_TRIED * num_landmarks:
        more = _all_tracks(rig, poses, scene, batch, generator)
        kept, tried = more if kept is None else _joined(kept, more), tried + batch
        counts = np.bincount(kept.landmark, minlength=len(kept.points))
        usable, most = int((counts >= 2).sum()), int(np.sort(counts)[-num_landmarks:].sum())
        if usable >= num_landmarks and most >= num_observations:
            return thinned(kept, num_landmarks, num_observations, generator)
        missing = 1.1 * num_landmarks * max(tried / max(usable, 1), num_observations / max(most, 1)) - tried
        batch = int(np.clip(missing, 0.2 * tried, 2.0 * tried))
    assert kept is not None
    raise OptionError(
        f"{len(poses)} keyframes see {usable} landmarks at least twice, at most {most} times in all; asked "
        f"for: {num_landmarks} landmarks with {num_observations} observations. Ask for fewer, or for more "
        "keyframes."
    )


def _joined(first: Tracks, second: Tracks) -> Tracks:
    """Landmarks of both."""
    return Tracks(
        np.concatenate([first.points, second.points]),
        np.concatenate([first.reference, second.reference]),
        np.concatenate([first.landmark, second.landmark + len(first.points)]),
        np.concatenate([first.keyframe, second.keyframe]),
        np.concatenate([first.camera, second.camera]),
    )


def _all_tracks(
    rig: Rig, poses: np.ndarray, scene: Scene, count: int, generator: np.random.Generator
) -> Tracks:
    """About `count` landmarks with all observations that are possible, the likeliest of each first."""
    boxes = KDTree([box.centre for box in scene.boxes]) if scene.boxes else None
    radius = max((float(np.linalg.norm(box.half)) for box in scene.boxes), default=0.0)
    places = KDTree(poses[:, :3])
    share = np.bincount(generator.integers(0, len(poses), count), minlength=len(poses))
    parts, points, total = [], [], 0
    for k in range(len(poses)):
        near = boxes.query_ball_point(poses[k, :3], _RANGE + radius) if boxes is not None else []
        around = [scene.boxes[b] for b in sorted(near)]
        new = _surface_points(rig, poses[k], scene, around, int(share[k]), generator)
        if not len(new):
            continue
        tried = _tried(k, poses, places, generator)
        row = _observable(rig, poses, k, tried, new, around)
        row = [np.concatenate([np.arange(len(new)), row[0]]), np.concatenate([np.full(len(new), k), row[1]]),
               np.concatenate([np.zeros(len(new), int), row[2]])]  # fmt: skip
        again = generator.random(len(new)) < _REVISITED
        far = np.abs(row[1] - k)
        loop = (far > _AFTER) | ((row[1] < k) & (far > _BEFORE))
        key = np.where(
            loop, generator.uniform(1.0, 2.0 * _AFTER, len(far)), far * generator.uniform(0.7, 1.4, len(far))
        )
        kept = ~loop | again[row[0]]
        order = np.lexsort((key[kept], row[0][kept]))
        parts.append(
            [row[0][kept][order] + total, row[1][kept][order], row[2][kept][order], np.full(len(order), k)]
        )
        points.append(new)
        total += len(new)
    if not parts:
        raise OptionError("the keyframes see no surface within range.")
    landmark, keyframe, camera, first = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    reference = np.zeros(total, np.int64)
    reference[landmark] = first
    return Tracks(np.concatenate(points), reference, landmark, keyframe, camera)


def _surface_points(
    rig: Rig, pose: np.ndarray, scene: Scene, around: list[Box], count: int, generator: np.random.Generator
) -> np.ndarray:
    """Points (q, 3) on surfaces at random pixels of the first camera."""
    camera = rig[0]
    assert camera.resolution is not None
    pixels = generator.uniform(8.0, np.array(camera.resolution) - 9.0, (count, 2))
    rays = camera.unproject(pixels)
    rays = rays[np.isfinite(rays).all(axis=1)]
    eye = SE3(pose) * SE3(camera.body_T_cam)
    directions = np.asarray(eye.rotation.act(rays))
    origin = np.asarray(eye.translation)
    distance, face = from_inside(scene.room, origin, directions)
    sky = (face == _SKY) & (scene.place == "outdoors")
    columns = np.ascontiguousarray(directions.T)
    for box in around:
        enter, leave = _crossing(box, origin[:, None], columns)
        hit = (enter < leave) & (enter > 0.0) & (enter < distance)
        sky[hit] = False
        distance = np.where(hit, enter, distance)
    kept = (distance > _NEAREST) & (distance < _RANGE) & ~sky
    return origin + distance[kept, None] * directions[kept]


def _tried(k: int, poses: np.ndarray, places: KDTree, generator: np.random.Generator) -> np.ndarray:
    """Numbers of keyframes that may see what keyframe k sees."""
    near = np.arange(max(k - _BEFORE, 0), min(k + _AFTER + 1, len(poses)))
    back = np.array(places.query_ball_point(poses[k, :3], 4.0), int)
    back = back[(back < k - _BEFORE) | (back > k + _AFTER)]
    alike = np.abs(np.sum(poses[back, 3:] * poses[k, 3:], axis=1)) > 0.9  # turned by 50 degrees at most
    back = back[alike]
    return np.sort(np.concatenate([near[near != k], generator.permutation(back)[:_REVISITS]]))


def _observable(
    rig: Rig, poses: np.ndarray, k: int, tried: np.ndarray, points: np.ndarray, around: list[Box]
) -> list[np.ndarray]:
    """Landmark, keyframe, camera of what is possible beside the first view."""
    first = (SE3(poses[k]) * SE3(rig[0].body_T_cam)).translation
    away = points - first
    size = np.linalg.norm(away, axis=1)
    rows: list[list[np.ndarray]] = [[], [], []]
    for number, camera in enumerate(rig):
        others = np.append(tried, k) if number else tried
        eyes = SE3(poses[others]) * SE3(np.broadcast_to(camera.body_T_cam, (len(others), 7)))
        origins = np.asarray(eyes.translation)[:, None]
        line = points - origins
        far = np.linalg.norm(line, axis=2)
        inside = SE3(np.asarray(eyes.storage)[:, None]).inverse_act(np.broadcast_to(points, line.shape))
        seen = camera.sees(inside) & (far > 0.4 * size) & (far < 2.5 * size) & (far > _NEAREST)
        seen &= np.sum(line * away, axis=2) > np.cos(np.radians(50.0)) * far * size
        j, i = np.nonzero(seen)
        hidden = _hidden(origins[j, 0], line[j, i], around)
        rows[0].append(i[~hidden])
        rows[1].append(others[j[~hidden]])
        rows[2].append(np.full(np.count_nonzero(~hidden), number))
    return [np.concatenate(row) for row in rows]


def _hidden(origins: np.ndarray, lines: np.ndarray, around: list[Box]) -> np.ndarray:
    """(n,) bool: a box stands between origins (n, 3) and origins + lines."""
    hidden = np.zeros(len(lines), bool)
    starts, rays = np.ascontiguousarray(origins.T), np.ascontiguousarray(lines.T)
    ends = starts + rays
    low = np.minimum(starts, ends).min(axis=1, initial=np.inf)
    high = np.maximum(starts, ends).max(axis=1, initial=-np.inf)
    for box in around:
        radius = float(np.hypot(box.half[0], box.half[1]))
        if (box.centre[:2] + radius < low[:2]).any() or (box.centre[:2] - radius > high[:2]).any():
            continue
        enter, leave = _crossing(box, starts, rays)
        hidden |= (enter < leave) & (enter > 0.0) & (enter < 1.0 - 1e-4)
    return hidden


def _crossing(box: Box, starts: np.ndarray, rays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """t (n,) where lines starts (3, n or 1) + t rays (3, n) enter and leave a box; enter > leave: nowhere."""
    x, y, z = (starts[k] - box.centre[k] for k in range(3))
    c, s = float(np.cos(box.yaw)), float(np.sin(box.yaw))
    parts = (
        (c * x + s * y, c * rays[0] + s * rays[1]),
        (c * y - s * x, c * rays[1] - s * rays[0]),
        (z, rays[2]),
    )
    enter, leave = np.full(rays.shape[1], -np.inf), np.full(rays.shape[1], np.inf)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # beside a face: infinite or NaN
        for (start, ray), half in zip(parts, box.half.tolist(), strict=True):
            inverse = 1.0 / ray
            middle, size = start * inverse, half * np.abs(inverse)
            enter = np.fmax(enter, -middle - size)
            leave = np.fmin(leave, size - middle)
    return enter, leave


def thinned(
    seen: Tracks, num_landmarks: int, num_observations: int, generator: np.random.Generator
) -> Tracks:
    """Exactly that many landmarks and observations out of those that are possible."""
    counts = np.bincount(seen.landmark, minlength=len(seen.points))
    chosen = _chosen(counts, num_landmarks, num_observations, generator)
    lengths = _lengths(counts[chosen], num_observations, generator)
    quota = np.zeros(len(seen.points), np.int64)
    quota[chosen] = lengths
    begins = np.concatenate([[0], np.cumsum(counts)[:-1]])
    rank = np.arange(len(seen.landmark)) - begins[seen.landmark]
    kept = rank < quota[seen.landmark]
    number = np.full(len(seen.points), -1)
    number[chosen] = np.arange(num_landmarks)
    return Tracks(
        seen.points[chosen],
        seen.reference[chosen],
        number[seen.landmark[kept]],
        seen.keyframe[kept],
        seen.camera[kept],
    )


def _chosen(counts: np.ndarray, num: int, total: int, generator: np.random.Generator) -> np.ndarray:
    """Landmarks at random; those that few see make room for others until there are observations enough."""
    usable = np.flatnonzero(counts >= 2)
    order = generator.permutation(usable)
    chosen, rest = order[:num], order[num:]
    rest = rest[np.argsort(-counts[rest], kind="stable")]
    chosen = chosen[np.argsort(counts[chosen], kind="stable")]
    gain = np.cumsum(np.maximum(counts[rest][: len(chosen)] - counts[chosen][: len(rest)], 0))
    missing = int(1.25 * total) - int(counts[chosen].sum())
    better = int(np.count_nonzero(counts[rest][: len(chosen)] > counts[chosen][: len(rest)]))
    swaps = min(int(np.searchsorted(gain, missing)) + 1, better) if missing > 0 else 0
    chosen[:swaps] = rest[:swaps]
    return np.sort(chosen)


def _lengths(counts: np.ndarray, total: int, generator: np.random.Generator) -> np.ndarray:
    """Lengths of tracks: geometric, 2 at least, `counts` at most, `total` in all."""
    mean = total / len(counts)
    lengths = 1 + generator.geometric(1.0 / max(mean - 1.0, 1.0 + 1e-9), len(counts))
    lengths = np.clip(lengths, 2, counts)
    while (missing := total - int(lengths.sum())) != 0:
        free = np.flatnonzero(lengths < counts) if missing > 0 else np.flatnonzero(lengths > 2)
        assert len(free), "the landmarks were chosen so that there are observations enough"
        changed = generator.permutation(free)[: abs(missing)]
        lengths[changed] += 1 if missing > 0 else -1
    return lengths
