"""The similarity between two keyframes that see the same points: what a loop closure measures.

    point_1 = s R point_2 + t          first_S_second, points in the frames of the two cameras

Start: three points at a time by Umeyama's method, the best of many (RANSAC). Then, as ORB-SLAM3's
`OptimizeSim3`, the points of each are projected into the other's image, with a robust kernel, and pairs of
which either error is too large are left out.

Cameras of any model, beyond 90 degrees too: errors are those along each pixel's ray (EDGE_VI_SIM3_RAY,
EDGE_VI_INVERSE_SIM3_RAY), in pixels. References: Umeyama, PAMI 1991; Horn, JOSA 1987.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import graphopt
from graphopt import edge_errors
from graphopt.errors import OptionError
from graphopt.evaluate.report.trajectory import alignment
from graphopt.geometry import SO3, Sim3
from graphopt.strategies.quantiles import chi2_quantile
from graphopt.types.sim3 import VertexSim3Expmap
from graphopt.types.visual_inertial import EdgeInverseSim3Ray, EdgeSim3Ray
from slam_bridge.cameras import Camera
from slam_bridge.options import Clock, SolveOptions, optimize
from slam_bridge.problems.pose_optimization import BY_CHANCE
from slam_bridge.problems.result import Result

_DEFAULTS = SolveOptions(iterations=10, rounds=3, confidence=0.99, device="cpu")
_STEP = 1e-6
"""Of differences of a pixel by its unit ray."""
_MIN_PAIRS = 3
_OPEN = 0.2
"""Standard deviation [rad, none] of turns and logarithms of scales beyond which nothing is known of them."""


def sim3_alignment(
    points_first: Any,
    points_second: Any,
    cameras: tuple[Camera, Camera],
    pixels_first: Any,
    pixels_second: Any,
    sigma: Any = 1.0,
    fix_scale: bool = False,
    start: Any = None,
    options: SolveOptions | None = None,
    trials: int = 300,
) -> Result:
    """Align n pairs of points (n, 3) in the frames of two cameras, observed at pixels (n, 2).

    sigma: of the pixels, one or (n,) [px]. fix_scale: True for metric maps. start: first_S_second (8,); None:
    RANSAC with so many trials. `extra`: "first_S_second" (8,), "information" (7, 7) of (rotation,
    translation, log of scale) as `Map.add_loops` takes it. `inliers` are the pairs. Refused with fewer than
    three inliers, fewer than a tenth of the pairs (chance finds these), and where the pairs leave the turn or
    the scale open, as on a line, or the scale if the cameras stand in one place.
    """
    options = options or _DEFAULTS
    clock = Clock(options)
    one, two, rays, usable = _pairs(cameras, points_first, points_second, pixels_first, pixels_second)
    n = len(usable)
    weights = _weights(sigma, n)
    limit = chi2_quantile(options.confidence, 2)
    if start is None:
        similarity = _ransac(one, two, rays, weights, usable, limit, fix_scale, trials)
    else:
        similarity = _checked(start)
    clock.lap("start")
    inliers, summary, rounds = usable.copy(), graphopt.Summary(1, 2 * n, options.method), 0
    chi2 = np.full(n, np.inf)
    if int(usable.sum()) >= _MIN_PAIRS:
        graph = _graph(similarity, one, two, rays, fix_scale, options, limit)
        while rounds < options.rounds and not (rounds and clock.is_over) and inliers.sum() >= _MIN_PAIRS:
            for edges in graph.edge_sets:
                edges.information = (weights * inliers)[:, None, None] * np.eye(2)
            summary, rounds = optimize(graph, options, clock), rounds + 1
            errors = [edge_errors(graph, edges) for edges in graph.edge_sets]
            chi2 = np.maximum(*(weights * np.einsum("nd,nd->n", error, error) for error in errors))
            before, inliers = inliers, usable & (chi2 <= limit)
            if np.array_equal(before, inliers) and rounds > 1:
                break
        similarity = graph.vertex_sets[0].estimate[0, :8].copy()
    information, refused = np.zeros((7, 7)), _too_few(inliers)
    if not refused:
        seen = [ray[inliers] for ray in rays]
        information = _information(similarity, one[inliers], two[inliers], weights[inliers], seen)
        refused = _left_open(information, fix_scale)
    clock.lap("judge")
    return Result(
        "sim3_alignment",
        summary,
        observations=np.arange(n),
        inliers=inliers,
        observation_chi2=chi2,
        chi2={"all": summary.final_chi2},
        rejected={"beside cameras": np.flatnonzero(~usable), "chi2": np.flatnonzero(usable & ~inliers)},
        seconds=clock.total(),
        rounds=rounds,
        extra={"first_S_second": similarity, "information": information},
        refused=refused,
    )


def _pairs(
    cameras: tuple[Camera, Camera], *arrays: Any
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray], np.ndarray]:
    """Points (n, 3) of both, rays (n, 3, 3) of both, and (n,) bool: all is finite and before its camera."""
    given = [np.asarray(values, float) for values in arrays]
    n = len(given[0])
    for values, width in zip(given, (3, 3, 2, 2), strict=True):
        if values.shape != (n, width):
            raise OptionError(f"sim3_alignment got shape {values.shape}, expected ({n}, {width}).")
    rays = [_rays(camera, pixel) for camera, pixel in zip(cameras, given[2:], strict=True)]
    numbers = np.concatenate([*(ray.reshape(n, 9) for ray in rays), *given[:2]], axis=1)
    usable = np.asarray(np.isfinite(numbers).all(axis=1))
    with np.errstate(invalid="ignore"):
        for points, ray in zip(given[:2], rays, strict=True):
            usable &= np.einsum("nd,nd->n", points, ray[:, 2]) > 0.0
    first, second = (np.where(usable[:, None], points, 1.0) for points in given[:2])
    return first, second, [np.where(usable[:, None, None], ray, np.eye(3)) for ray in rays], usable


def _weights(sigma: Any, n: int) -> np.ndarray:
    """(n,) 1 / sigma^2."""
    spread = np.broadcast_to(np.asarray(sigma, float), (n,))
    bad = ~(np.isfinite(spread) & (spread > 0.0))
    if bad.any():
        row = int(np.argmax(bad))
        raise OptionError(f"sigma of pair {row} is {spread[row]} px, expected finite and > 0.")
    return spread**-2.0


def _checked(start: Any) -> np.ndarray:
    given = np.asarray(start, float)
    if given.shape != (8,) or not np.isfinite(given).all() or not given[7] > 0.0:
        raise OptionError(
            f"start is {given}, expected finite (8,): x, y, z, qx, qy, qz, qw, scale > 0. None: RANSAC."
        )
    return given


def _too_few(inliers: np.ndarray) -> str:
    good, needed = int(inliers.sum()), max(_MIN_PAIRS, int(np.ceil(BY_CHANCE * len(inliers))))
    return "" if good >= needed else f"{good} pairs agree, at least {needed} are needed."


def _left_open(information: np.ndarray, fix_scale: bool) -> str:
    """Empty, or why points on a line or in one place show no rotation or scale."""
    size = 6 if fix_scale else 7
    values, vectors = np.linalg.eigh(information[:size, :size])
    smallest = max(1e-12 * values[-1], 1e-300)
    deviation = np.linalg.norm(vectors / np.sqrt(np.maximum(values, smallest)), axis=1)
    open_ones = values <= smallest
    deviation[np.abs(vectors[:, open_ones]).max(axis=1, initial=0.0) > 1e-3] = np.inf
    worst = {"turn": float(deviation[:3].max()), "log of scale": float(deviation[6:].max(initial=0.0))}
    wide = [f"{name} {value:.2g}" for name, value in worst.items() if not value < _OPEN]
    if not wide:
        return ""
    return (
        f"The pairs leave open how they lie: deviations {', '.join(wide)}, allowed {_OPEN}. They are on a "
        "line or in one place, or the cameras are (fix_scale=True then); take pairs from all over the images."
    )


def _rays(camera: Camera, pixel: np.ndarray) -> np.ndarray:
    """(n, 3, 3): the pixel's derivative by its ray (two rows), and the unit ray; NaN where there is none."""
    ray = camera.unproject(pixel)
    least = np.eye(3)[np.argmin(np.abs(np.nan_to_num(ray)), axis=1)]
    axes = [np.cross(ray, least)]
    axes[0] /= np.linalg.norm(axes[0], axis=1, keepdims=True)
    axes.append(np.cross(ray, axes[0]))
    result = np.zeros((len(ray), 3, 3))
    result[:, 2] = ray
    with np.errstate(all="ignore"):
        for axis in axes:
            slope = (camera.project(ray + _STEP * axis) - camera.project(ray - _STEP * axis)) / (2.0 * _STEP)
            result[:, :2] += slope[:, :, None] * axis[:, None, :]
    return result


def umeyama(first: np.ndarray, second: np.ndarray, fix_scale: bool = False) -> np.ndarray:
    """first_S_second (8,) with the smallest sum of |first - S second|^2, of points (n, 3).

    Raises `OptionError` for no points, or differing numbers of them.
    """
    if first.shape != second.shape or first.shape[1:] != (3,) or not len(first):
        raise OptionError(f"umeyama got {first.shape} and {second.shape}, expected (n, 3) twice, n > 0.")
    scale, rotation, translation = alignment(second, first, "se3" if fix_scale else "sim3")
    if scale <= 1e-9:  # mirrored, or without extent: no scale says anything
        scale, rotation, translation = alignment(second, first, "se3")
    return np.concatenate([translation, np.asarray(SO3.from_matrix(rotation).storage), [scale]])


def _pair_chi2(
    similarity: np.ndarray, one: np.ndarray, two: np.ndarray, rays: list[np.ndarray], weights: np.ndarray
) -> np.ndarray:
    """(n,) the larger chi2 of the two projections."""
    motion = Sim3(similarity)
    there, back = np.asarray(motion.act(two)), np.asarray(motion.inverse().act(one))
    chi2 = np.zeros(len(one))
    for point, ray in ((there, rays[0]), (back, rays[1])):
        seen = np.einsum("nij,nj->ni", ray, point)
        with np.errstate(invalid="ignore", divide="ignore"):
            error = seen[:, :2] / seen[:, 2:]
            own = np.where(seen[:, 2] > 0.0, weights * (error * error).sum(axis=1), np.inf)
        chi2 = np.maximum(chi2, np.nan_to_num(own, nan=np.inf))
    return chi2


def _ransac(
    one: np.ndarray,
    two: np.ndarray,
    rays: list[np.ndarray],
    weights: np.ndarray,
    usable: np.ndarray,
    limit: float,
    fix_scale: bool,
    trials: int,
) -> np.ndarray:
    rng, rows = np.random.default_rng(0), np.flatnonzero(usable)
    best, best_count = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]), -1
    if len(rows) < _MIN_PAIRS:
        return best
    for _ in range(trials):
        chosen = rng.choice(rows, 3, replace=False)
        similarity = umeyama(one[chosen], two[chosen], fix_scale)
        count = int((_pair_chi2(similarity, one, two, rays, weights)[rows] <= 4.0 * limit).sum())
        if count > best_count:
            best, best_count = similarity, count
    close = rows[_pair_chi2(best, one, two, rays, weights)[rows] <= 4.0 * limit]
    return umeyama(one[close], two[close], fix_scale) if len(close) >= _MIN_PAIRS else best


def _graph(
    similarity: np.ndarray,
    one: np.ndarray,
    two: np.ndarray,
    rays: list[np.ndarray],
    fix_scale: bool,
    options: SolveOptions,
    limit: float,
) -> graphopt.Graph:
    """Vertex 0 is first_S_second; points of the second are seen in the first, and those of the first back."""
    graph, n = graphopt.Graph(), len(one)
    numbers = [*similarity, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, float(fix_scale)]
    graph.add_vertices(VertexSim3Expmap, [0], [numbers])
    for kind, points, ray in ((EdgeSim3Ray, two, rays[0]), (EdgeInverseSim3Ray, one, rays[1])):
        measured = np.concatenate([ray.reshape(n, 9), points], axis=1)
        ends = np.zeros((n, 1), np.int64)
        graph.add_edges(kind, ends, measured, 2.0 * np.eye(2), kernel=options.kernel, kernel_width=limit**0.5)
    return graph


def _information(
    similarity: np.ndarray, one: np.ndarray, two: np.ndarray, weights: np.ndarray, rays: list[np.ndarray]
) -> np.ndarray:
    """(7, 7) of (rotation, translation, log of scale): J' J of the projections into both images.

    Into the first alone the scale is open: a longer way and larger points are the same picture.
    """
    motion = Sim3(similarity)
    there, back = np.asarray(motion.act(two)), np.asarray(motion.inverse().act(one))
    turn = np.asarray(motion.inverse().act(np.eye(3)) - motion.inverse().act(np.zeros((3, 3)))).T
    first = _projection(there, rays[0]) @ _moved(there)
    second = _projection(back, rays[1]) @ turn @ _moved(one)
    jacobian = np.concatenate([first, second], axis=1)
    return np.einsum("n,nij,nik->jk", weights, jacobian, jacobian)


def _projection(point: np.ndarray, rays: np.ndarray) -> np.ndarray:
    """(n, 2, 3) derivative of errors by points (n, 3)."""
    seen = np.einsum("nij,nj->ni", rays, point)
    error = seen[:, :2] / seen[:, 2:]
    return (rays[:, :2] - error[:, :, None] * rays[:, 2:]) / seen[:, 2, None, None]


def _moved(point: np.ndarray) -> np.ndarray:
    """(n, 3, 7) derivative of points by a small similarity in front of them."""
    x, y, z = point.T
    moved = np.zeros((len(point), 3, 7))
    moved[:, 0, 1], moved[:, 0, 2], moved[:, 1, 0] = z, -y, -z
    moved[:, 1, 2], moved[:, 2, 0], moved[:, 2, 1] = x, y, -x
    moved[:, :, 3:6] = np.eye(3)
    moved[:, :, 6] = point
    return moved
