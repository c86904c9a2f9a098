"""Synthetic pose graphs: sphere, torus, Manhattan world, cubic grid.

Each walks along a path of true poses, measures consecutive poses and some revisits (loop closures) with
noise, and starts the estimates from the chained measurements, as a robot would. The same seed gives the same
graph, and `start="truth"` the same measurements with the true poses as estimates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import graphopt.evaluate.datasets.noise as noise
from graphopt.errors import OptionError
from graphopt.geometry import SE2, SE3, SO3, quaternion
from graphopt.graph import Graph

Array = NDArray[np.float64]
Pairs = NDArray[np.int64]
Start = Literal["odometry", "truth"]


def sphere(
    nodes_per_level: int = 50,
    laps: int = 50,
    radius: float = 100.0,
    noise_translation: float = 0.01,
    noise_rotation: float = 0.005,
    seed: int = 0,
    start: Start = "odometry",
) -> Graph:
    """Poses on a spiral from pole to pole of a sphere, as g2o's `create_sphere` makes it.

    Each pose is joined to the next and to its three neighbours one lap later.

    nodes_per_level: poses per lap.
    laps: from pole to pole.
    radius: of the sphere [m].
    noise_translation, noise_rotation: standard deviations of measurements [m], [rad].
    seed: of the random numbers.
    start: estimates: "odometry" (integrated noisy measurements) or "truth".
    """
    count = nodes_per_level * laps
    index = np.arange(count)
    longitude = -np.pi + 2.0 * np.pi * (index % nodes_per_level) / nodes_per_level
    latitude = -0.5 * np.pi + np.pi * index / count
    rotation = _about_z(longitude) @ _about_y(latitude)
    poses = _pose_storage(rotation, radius * rotation[..., :, 0])
    closures = _neighbours_on_next_lap(nodes_per_level, laps)
    return _graph(_SPACE, poses, closures, (noise_translation, noise_rotation), _measuring(seed), start)


def torus(
    nodes_per_ring: int = 50,
    rings: int = 50,
    radius: float = 100.0,
    tube: float = 40.0,
    noise_translation: float = 0.01,
    noise_rotation: float = 0.005,
    seed: int = 0,
    start: Start = "odometry",
) -> Graph:
    """Poses on a spiral around a torus, closed: the last ring meets the first.

    nodes_per_ring: poses per small circle.
    rings: small circles.
    radius: of the torus' centre line [m].
    tube: radius of its cross section [m].
    noise_translation, noise_rotation: standard deviations of measurements [m], [rad].
    seed: of the random numbers.
    start: estimates: "odometry" (integrated noisy measurements) or "truth".
    """
    if tube >= radius:
        raise OptionError(f"tube is {tube}, must be smaller than radius ({radius}).")
    count = nodes_per_ring * rings
    index = np.arange(count)
    around = 2.0 * np.pi * index / count
    across = 2.0 * np.pi * (index % nodes_per_ring) / nodes_per_ring
    rotation = _about_z(around) @ _about_y(across)
    centre = radius * np.stack([np.cos(around), np.sin(around), np.zeros(count)], axis=-1)
    poses = _pose_storage(rotation, centre + tube * rotation[..., :, 0])
    closures = _neighbours_on_next_lap(nodes_per_ring, rings)
    seam = np.stack([index[:nodes_per_ring], index[-nodes_per_ring:]], axis=-1)
    pairs = np.concatenate([closures, seam])
    return _graph(_SPACE, poses, pairs, (noise_translation, noise_rotation), _measuring(seed), start)


def manhattan(
    nodes: int = 3500,
    block: int = 5,
    closures: float = 0.5,
    noise_translation: float = 0.05,
    noise_rotation: float = 0.02,
    seed: int = 0,
    start: Start = "odometry",
) -> Graph:
    """Planar poses of a random walk, one metre a step, that turns left, right or not at every crossing.

    nodes: poses.
    block: steps between crossings.
    closures: probability that a pose that returns to a place is joined to the last pose that was there.
    noise_translation, noise_rotation: standard deviations of measurements [m], [rad].
    seed: of the random numbers.
    start: estimates: "odometry" (integrated noisy measurements) or "truth".
    """
    rng = np.random.default_rng(seed)
    turns = np.where(np.arange(nodes) % block == block - 1, rng.integers(-1, 2, nodes), 0)
    quarter = np.concatenate([[0], np.cumsum(turns)[:-1]])
    heading = 0.5 * np.pi * quarter
    step = np.stack([np.cos(heading), np.sin(heading)], axis=-1).round()
    place = np.concatenate([np.zeros((1, 2)), np.cumsum(step, axis=0)[:-1]])
    poses = np.concatenate([place, _wrap(heading)[:, None]], axis=-1)
    pairs = _thin(rng, _revisits(place.astype(np.int64)), closures)
    return _graph(_PLANE, poses, pairs, (noise_translation, noise_rotation), rng, start)


def grid(
    size: int = 10,
    step: float = 1.0,
    closures: float = 0.5,
    noise_translation: float = 0.02,
    noise_rotation: float = 0.01,
    seed: int = 0,
    start: Start = "odometry",
) -> Graph:
    """Poses on a cubic grid of size^3 places, walked row by row in alternating direction.

    Each pose looks along its way with a random roll.

    size: poses along each side.
    step: distance between neighbours [m].
    closures: probability that neighbours that are not consecutive on the walk are joined.
    noise_translation, noise_rotation: standard deviations of measurements [m], [rad].
    seed: of the random numbers.
    start: estimates: "odometry" (integrated noisy measurements) or "truth".
    """
    rng = np.random.default_rng(seed)
    place = _snake(size)
    turn = rng.normal(0.0, 1.0, (len(place), 3))
    poses = SE3.from_parts(step * place, SO3.exp(turn).storage).storage
    pairs = _thin(rng, _grid_neighbours(place, size), closures)
    return _graph(_SPACE, poses, pairs, (noise_translation, noise_rotation), _measuring(seed), start)


def _measuring(seed: int) -> np.random.Generator:
    """Random numbers of measurements, others than those of a path from the same seed."""
    return np.random.default_rng([seed, 3])


@dataclass(frozen=True)
class _Kind:
    """What tells planar graphs from those in space."""

    group: type[SE2] | type[SE3]
    vertex: str
    edge: str
    small_motions: Callable[..., SE2 | SE3]
    information: Callable[[float, float], Array]


_PLANE = _Kind(SE2, "VERTEX_SE2", "EDGE_SE2", noise.small_motions_2d, noise.information_2d)
_SPACE = _Kind(SE3, "VERTEX_SE3:QUAT", "EDGE_SE3:QUAT", noise.small_motions_3d, noise.information_3d)


def _graph(
    kind: _Kind, poses: Array, closures: Pairs, sigmas: tuple[float, float], rng: Any, start: Start
) -> Graph:
    """Noisy measurements along the path and of the closures; sigmas: of translations [m], rotations [rad]."""
    group: Any = kind.group
    pairs = _with_odometry(len(poses), closures)
    true_step = group(poses[pairs[:, 0]]).inverse() * group(poses[pairs[:, 1]])
    measured = true_step * kind.small_motions(rng, len(pairs), *sigmas)
    steps = group(measured.storage[: len(poses) - 1])
    estimates = poses if start == "truth" else noise.chain(poses[0], steps)
    ids = np.arange(len(poses))
    graph = Graph()
    graph.add_vertices(kind.vertex, ids, estimates, fixed=ids == 0)
    graph.add_edges(kind.edge, pairs, measured.storage, kind.information(*sigmas))
    return graph


def _with_odometry(num_poses: int, closures: Pairs) -> Pairs:
    """Return (pose, next pose) for the whole path, then the closures that are no such step."""
    path = np.stack([np.arange(num_poses - 1), np.arange(1, num_poses)], axis=-1)
    far = closures[np.abs(closures[:, 0] - closures[:, 1]) > 1]
    return np.concatenate([path, far]).astype(np.int64)


def _neighbours_on_next_lap(per_lap: int, laps: int) -> Pairs:
    """Join every pose to the three poses nearest to it on the following lap."""
    pose = np.arange(per_lap * (laps - 1))
    pairs = np.stack([np.repeat(pose, 3), (pose[:, None] + per_lap + [-1, 0, 1]).ravel()], axis=-1)
    return pairs[pairs[:, 1] < per_lap * laps]


def _revisits(place: NDArray[np.int64]) -> Pairs:
    """Join every pose to the last earlier pose at the same place, if there is one."""
    _, label = np.unique(place, axis=0, return_inverse=True)
    order = np.argsort(label.ravel(), kind="stable")
    same = np.diff(label.ravel()[order]) == 0
    return np.stack([order[:-1][same], order[1:][same]], axis=-1)


def _snake(size: int) -> NDArray[np.int64]:
    """Return the (size^3, 3) places of a cubic grid on a walk whose steps all have length one."""
    z, y, x = np.unravel_index(np.arange(size**3), (size, size, size))
    x = np.where((z * size + y) % 2 == 1, size - 1 - x, x)
    y = np.where(z % 2 == 1, size - 1 - y, y)
    return np.stack([x, y, z], axis=-1)


def _grid_neighbours(place: NDArray[np.int64], size: int) -> Pairs:
    index = np.empty((size,) * 3, np.int64)
    index[tuple(place.T)] = np.arange(len(place))
    along = [(index.take(range(size - 1), axis), index.take(range(1, size), axis)) for axis in range(3)]
    pairs = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=-1) for a, b in along])
    return np.sort(pairs, axis=1)


def _thin(rng: np.random.Generator, pairs: Pairs, share: float) -> Pairs:
    return pairs[rng.random(len(pairs)) < share]


def _wrap(angle: Array) -> Array:
    return np.remainder(angle + np.pi, 2.0 * np.pi) - np.pi


def _about_z(angle: Array) -> Array:
    c, s, o, i = np.cos(angle), np.sin(angle), np.zeros_like(angle), np.ones_like(angle)
    return np.stack([c, -s, o, s, c, o, o, o, i], axis=-1).reshape(*angle.shape, 3, 3)


def _about_y(angle: Array) -> Array:
    c, s, o, i = np.cos(angle), np.sin(angle), np.zeros_like(angle), np.ones_like(angle)
    return np.stack([c, o, s, o, i, o, -s, o, c], axis=-1).reshape(*angle.shape, 3, 3)


def _pose_storage(rotation: Array, translation: Array) -> Array:
    """Return SE(3) storage (n, 7) of rotation matrices (n, 3, 3) and translations (n, 3)."""
    return SE3.from_parts(translation, quaternion.from_matrix(rotation)).storage
