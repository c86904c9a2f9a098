"""Priors of an adjustment: positions, rotations and gravity of images, and intrinsics.

    position    p_prior + R^-1 t                      [m], of cam_T_world = (R, t): prior minus camera centre
    rotation    log(R R_prior^-1)                     [rad], in the frame of the camera
    gravity     R g_world - g_prior                   of unit vectors
    intrinsics  parameters - prior                    in their own units

Each is weighted by the inverse of its covariance. Positions are those of COLMAP's pose-prior adjustment
(`AbsolutePosePositionPriorCostFunctor`): before, the model is moved onto them by a similarity that RANSAC
finds. WGS84 positions (latitude, longitude [deg], altitude [m]) become east, north, up of the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from graphopt.colmap.model import ColmapFrames, ColmapModel, ColmapSensor
from graphopt.colmap.options import LOSSES, PriorOptions, _name
from graphopt.colmap.problem import Problem
from graphopt.colmap.rigs import image_poses, places_of, to_storage
from graphopt.errors import OptionError
from graphopt.geometry import SE3, SO3
from graphopt.geometry.alignment import alignment
from graphopt.geometry.arrays import Array
from graphopt.io.extra_types import FRAME_TAG, SENSOR_TAG, frame_vertex, sensor_vertex
from graphopt.types import EdgeType, VertexType, edge_type

_SEMI_MAJOR, _FLATTENING = 6378137.0, 1.0 / 298.257223563
_CHI2_95_OF_3 = 7.814727903251179
_LEAST = 3
"""Positions that fix a similarity."""


@dataclass(frozen=True)
class PosePrior:
    """What is known of an image beforehand, beyond what a `pycolmap.PosePrior` can say."""

    image_id: int
    position: Any = None
    """(3,) of the camera's centre in the world [m]; of WGS84 latitude, longitude [deg] and altitude [m]."""
    position_covariance: Any = None
    """(3, 3) [m^2]; of WGS84 along east, north, up. None: `PriorOptions.prior_position_fallback_stddev`."""
    coordinate_system: str = "CARTESIAN"
    """CARTESIAN or WGS84."""
    rotation: Any = None
    """(4,) x y z w of cam_R_world."""
    rotation_covariance: Any = None
    """(3, 3) [rad^2] in the frame of the camera."""
    gravity: Any = None
    """(3,) direction of gravity in the frame of the camera."""
    gravity_stddev: float | None = None
    """[rad]; None: `PriorOptions.gravity_stddev`."""

    def __post_init__(self) -> None:
        if self.rotation is not None and self.rotation_covariance is None:
            raise OptionError(f"the rotation prior of image {self.image_id} needs a rotation_covariance.")
        if self.coordinate_system not in ("CARTESIAN", "WGS84"):
            raise OptionError(
                f"coordinate_system is '{self.coordinate_system}', expected CARTESIAN or WGS84."
            )


@dataclass(frozen=True)
class IntrinsicsPrior:
    """What is known of a camera beforehand."""

    camera_id: int
    params: Sequence[float]
    """(n,) in COLMAP's order."""
    covariance: Any
    """(n, n), or (n,) variances; infinity where nothing is known."""


def priors_of(
    priors: Sequence[Any] | Mapping[int, Any],
) -> tuple[list[PosePrior], list[IntrinsicsPrior]]:
    """Ours from ours and from `pycolmap.PosePrior`; those of pycolmap 3.12 by the ids of their images."""
    poses: list[PosePrior] = []
    intrinsics: list[IntrinsicsPrior] = []
    if isinstance(priors, Mapping):
        return [_of_pycolmap(prior, int(image)) for image, prior in priors.items()], intrinsics
    for prior in priors if isinstance(priors, Iterable) else [priors]:
        if isinstance(prior, IntrinsicsPrior):
            intrinsics.append(prior)
        elif isinstance(prior, PosePrior):
            poses.append(prior)
        elif hasattr(prior, "corr_data_id") and hasattr(prior, "position_covariance"):
            if _name(prior.corr_data_id.sensor_id.type) == "CAMERA":
                poses.append(_of_pycolmap(prior, int(prior.corr_data_id.id)))
        elif hasattr(prior, "position_covariance"):
            raise OptionError(
                "a pycolmap.PosePrior of this version does not say of which image it is: pass pose_priors as "
                "a dict {image id: prior}."
            )
        else:
            raise OptionError(
                f"a prior is a {type(prior).__name__}, expected pycolmap.PosePrior, or PosePrior or "
                "IntrinsicsPrior of graphopt.colmap."
            )
    return poses, intrinsics


def _of_pycolmap(prior: Any, image: int) -> PosePrior:
    position, covariance = np.asarray(prior.position), np.asarray(prior.position_covariance)
    gravity = np.asarray(getattr(prior, "gravity", np.full(3, np.nan)))
    system = _name(prior.coordinate_system)
    return PosePrior(
        image,
        position if np.isfinite(position).all() else None,
        covariance if np.isfinite(covariance).all() else None,
        system if system == "WGS84" else "CARTESIAN",
        gravity=gravity if np.isfinite(gravity).all() else None,
    )


def enu_of_wgs84(places: np.ndarray) -> np.ndarray:
    """(n, 3) east, north, up [m] of the first of latitude, longitude [deg] and altitude [m] on WGS84."""
    latitude, longitude, altitude = np.radians(places[:, 0]), np.radians(places[:, 1]), places[:, 2]
    squared = _FLATTENING * (2.0 - _FLATTENING)
    normal = _SEMI_MAJOR / np.sqrt(1.0 - squared * np.sin(latitude) ** 2)
    across = (normal + altitude) * np.cos(latitude)
    up = (normal * (1.0 - squared) + altitude) * np.sin(latitude)
    ecef = np.stack([across * np.cos(longitude), across * np.sin(longitude), up], axis=1)
    (s, c), (sl, cl) = ((np.sin(angle[0]), np.cos(angle[0])) for angle in (latitude, longitude))
    axes = np.array([[-sl, cl, 0.0], [-s * cl, -s * sl, c], [c * cl, c * sl, s]])
    return (ecef - ecef[0]) @ axes.T


def in_metres(priors: list[PosePrior]) -> list[PosePrior]:
    """Priors with cartesian positions. OptionError for both systems at once."""
    placed = [prior for prior in priors if prior.position is not None]
    systems = {prior.coordinate_system for prior in placed}
    if len(systems) > 1:
        raise OptionError(
            f"positions are {', '.join(sorted(systems))}; expected all CARTESIAN, or all WGS84."
        )
    if "WGS84" not in systems:
        return priors
    east_north_up = iter(enu_of_wgs84(np.array([prior.position for prior in placed], float)))
    return [
        prior if prior.position is None else replace(prior, position=next(east_north_up)) for prior in priors
    ]


# ------------------------------------------------------------------------ alignment


def centres_of(model: ColmapModel) -> np.ndarray:
    """(images, 3) centres of the cameras."""
    places = places_of(model, "the reconstruction")
    return np.asarray(SE3(image_poses(places, _frame_storage(model))).inverse().translation)


def _frame_storage(model: ColmapModel) -> np.ndarray:
    images = model.images
    pose = np.concatenate([images.quaternion, images.translation], axis=1)
    return to_storage(model.frames.pose if model.frames is not None else pose)


def aligned(model: ColmapModel, priors: list[PosePrior], options: PriorOptions) -> ColmapModel:
    """The model moved onto the priors' positions. OptionError where they do not fix a similarity."""
    row_of = {id_: row for row, id_ in enumerate(model.images.ids.tolist())}
    placed = {p.image_id: p for p in priors if p.position is not None and p.image_id in row_of}
    if not placed:
        return model
    source = centres_of(model)[[row_of[id_] for id_ in placed]]
    target = np.array([prior.position for prior in placed.values()], float)
    scale, rotation, shift = _robust_alignment(source, target, _largest_error(placed, options), options)
    return transformed(model, scale, rotation, shift)


def _largest_error(placed: dict[int, PosePrior], options: PriorOptions) -> float:
    if options.alignment_max_error > 0.0:
        return options.alignment_max_error
    variances = [
        np.trace(np.asarray(prior.position_covariance)) / 3.0
        for prior in placed.values()
        if prior.position_covariance is not None
    ]
    variances = [variance for variance in variances if variance > 0.0]
    variances = variances or [options.prior_position_fallback_stddev**2]
    return float(np.sqrt(_CHI2_95_OF_3 * np.median(variances)))


def _robust_alignment(
    source: np.ndarray, target: np.ndarray, largest: float, options: PriorOptions
) -> tuple[float, np.ndarray, np.ndarray]:
    """Similarity of most inliers, from all of them; the same draws in each call."""
    rng = np.random.default_rng(0)
    best, needed, trial = np.zeros(len(source), bool), float(options.alignment_max_num_trials), 0
    while len(source) >= _LEAST and trial < needed:
        rows = rng.choice(len(source), _LEAST, replace=False)
        inliers = _inliers(source, target, rows, largest)
        if inliers.sum() > best.sum():
            again = _inliers(source, target, np.flatnonzero(inliers), largest)
            best = again if again.sum() > inliers.sum() else inliers
            share = best.mean() ** _LEAST
            missed = np.log1p(-min(share, 1.0 - 1e-12))
            needed = min(needed, 3.0 * np.log(1.0 - options.alignment_confidence) / missed)
        trial += 1
    if best.sum() < _LEAST:
        raise OptionError(
            f"of {len(source)} positions {int(best.sum())} fit one similarity within {largest:g} m, "
            f"{_LEAST} are needed. Give more priors, or a larger alignment_max_error."
        )
    return alignment(source[best], target[best], "sim3")


def _inliers(source: np.ndarray, target: np.ndarray, rows: np.ndarray, largest: float) -> np.ndarray:
    scale, rotation, shift = alignment(source[rows], target[rows], "sim3")
    if not scale > 0.0:
        return np.zeros(len(source), bool)
    return np.linalg.norm(scale * source @ rotation.T + shift - target, axis=1) <= largest


def transformed(model: ColmapModel, scale: float, rotation: np.ndarray, shift: np.ndarray) -> ColmapModel:
    """The model in another world: point <- scale R point + shift."""
    moved = replace(model, points=replace(model.points, xyz=scale * model.points.xyz @ rotation.T + shift))
    storage = _frame_storage(model)
    centres = scale * np.asarray(SE3(storage).inverse().translation) @ rotation.T + shift
    turned = SE3(storage).rotation * SO3.from_matrix(rotation).inverse()
    pose = np.concatenate(
        [np.asarray(turned.storage)[:, [3, 0, 1, 2]], -np.asarray(turned.act(centres))], axis=1
    )
    if model.frames is None:
        moved.images = replace(model.images, quaternion=pose[:, :4], translation=pose[:, 4:])
        return moved
    moved.frames = ColmapFrames(model.frames.ids, model.frames.rig_ids, pose, model.frames.data)
    if scale != 1.0:
        moved.rigs = [
            replace(rig, sensors=[_scaled(sensor, scale) for sensor in rig.sensors]) for rig in model.rigs
        ]
    return moved


def _scaled(sensor: ColmapSensor, scale: float) -> ColmapSensor:
    if sensor.pose is None:
        return sensor
    return sensor._replace(pose=np.concatenate([sensor.pose[:4], scale * sensor.pose[4:]]))


# ------------------------------------------------------------------------ edges


def _position(cam_T_world: Any, measured: Array) -> Array:
    return measured - cam_T_world.inverse().translation


def _rotation(cam_T_world: Any, measured: Array) -> Array:
    return (cam_T_world.rotation * SO3(measured).inverse()).log()


def _gravity(cam_T_world: Any, measured: Array) -> Array:
    return cam_T_world.rotation.act(measured[..., :3]) - measured[..., 3:6]


_RESIDUALS = {"position": (_position, 3), "rotation": (_rotation, 4), "gravity": (_gravity, 6)}
"""Kind of prior -> residual of cam_T_world and measurement, and length of the measurement."""


@cache
def prior_type(kind: str, place: str) -> EdgeType:
    """Edge of a prior on a pose.

    place: "" for the reference of a rig, "RIG" for a camera with a constant place on it (a parameter),
    "SENSOR" where the place is a vertex.
    """
    residual, length = _RESIDUALS[kind]

    def of_frame(rig_T_world: Any, measured: Array) -> Array:
        """Prior of the reference."""
        return residual(rig_T_world, measured)

    def of_rig(rig_T_world: Any, rig_T_cam: Any, measured: Array) -> Array:
        """Prior of a camera with a constant place."""
        return residual(rig_T_cam.inverse() * rig_T_world, measured)

    def of_sensor(rig_T_world: Any, sensor_T_rig: Any, measured: Array) -> Array:
        """Prior of a camera whose place is refined."""
        return residual(sensor_T_rig * rig_T_world, measured)

    vertices: tuple[VertexType, ...] = (frame_vertex(),)
    if place == "SENSOR":
        vertices = (*vertices, sensor_vertex())
    define = edge_type(
        tag=f"EDGE_PRIOR_{kind.upper()}{f'_{place}' if place else ''}",
        name=f"EdgePrior{kind.title()}{place.title()}",
        vertices=vertices,
        parameters=("PARAMS_SE3OFFSET",) if place == "RIG" else (),
        measurement_dim=length,
        residual_dim=3,
    )
    return define({"": of_frame, "RIG": of_rig, "SENSOR": of_sensor}[place])


@cache
def intrinsics_type(camera: VertexType) -> EdgeType:
    """Edge of a prior on the intrinsics of a camera."""

    def residual(intrinsics: Array, measured: Array) -> Array:
        """Parameters minus prior."""
        return intrinsics - measured

    define = edge_type(
        tag=camera.tag.replace("VERTEX_", "EDGE_PRIOR_"),
        name=camera.name.replace("Vertex", "EdgePrior"),
        vertices=(camera,),
        measurement_dim=camera.storage_dim,
    )
    return define(residual)


def add_priors(
    problem: Problem, poses: list[PosePrior], intrinsics: list[IntrinsicsPrior], options: PriorOptions
) -> None:
    """Add the edges of priors of images and cameras that take part; others count nothing."""
    rows = _images_with_edges(problem) if poses else {}
    chosen = [prior for prior in poses if prior.image_id in rows]
    positions = [prior for prior in chosen if prior.position is not None]
    measured = np.array([prior.position for prior in positions], float).reshape(-1, 3) - problem.shift
    fallback = options.prior_position_fallback_stddev**2 * np.eye(3)
    weights = [
        _inverse(fallback if p.position_covariance is None else p.position_covariance, p.image_id)
        for p in positions
    ]
    kernel = LOSSES[options.prior_position_loss_function_type]
    _add(problem, "position", [rows[p.image_id] for p in positions], measured, weights, kernel, options)
    turned = [prior for prior in chosen if prior.rotation is not None]
    measured = np.array([prior.rotation for prior in turned], float).reshape(-1, 4)
    measured = measured / np.linalg.norm(measured, axis=1, keepdims=True)
    weights = [_inverse(prior.rotation_covariance, prior.image_id) for prior in turned]
    _add(problem, "rotation", [rows[p.image_id] for p in turned], measured, weights, None, options)
    _add_gravity(problem, chosen, rows, options)
    _add_intrinsics(problem, intrinsics)


def _add_gravity(
    problem: Problem, chosen: list[PosePrior], rows: dict[int, int], options: PriorOptions
) -> None:
    known = [
        (rows[prior.image_id], np.asarray(prior.gravity, float), stddev)
        for prior in chosen
        if prior.gravity is not None
        and (stddev := prior.gravity_stddev or options.gravity_stddev) is not None
    ]
    world = np.asarray(options.gravity_direction, float) / np.linalg.norm(options.gravity_direction)
    measured = [np.concatenate([world, down / np.linalg.norm(down)]) for _, down, _ in known]
    weights = [np.eye(3) / stddev**2 for _, _, stddev in known]
    _add(problem, "gravity", [row for row, _, _ in known], np.array(measured), weights, None, options)


def _images_with_edges(problem: Problem) -> dict[int, int]:
    """Image id -> row, of images with observations."""
    used: set[int] = set()
    num_points = len(problem.model.points.ids)
    for edges in problem.graph.edge_sets:
        if edges.type.tag.startswith("EDGE_PROJECT_"):
            element = edges.sequence - problem.first_point - num_points
            inside = edges.vertices[:, 0] < problem.first_camera
            used |= set(np.unique(problem.seen.image_row[element[inside]]).tolist())
    ids = problem.model.images.ids
    return {int(ids[row]): row for row in used}


def _add(
    problem: Problem,
    kind: str,
    rows: list[int],
    measured: np.ndarray,
    weights: list[np.ndarray],
    kernel: str | None,
    options: PriorOptions,
) -> None:
    """Edges of one kind; rows: of images. Those of which nothing moves are left out, as in COLMAP."""
    graph, places = problem.graph, problem.places
    frames = graph.vertex_set(FRAME_TAG)
    fixed = dict(zip(frames.ids.tolist(), frames.fixed.tolist(), strict=True))
    of_vertices = not graph.parameter_sets and len(places.offsets) > 0
    groups: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        offset, owner = int(places.offset[row]), int(places.owner[row])
        place = "" if offset < 0 else "SENSOR" if of_vertices else "RIG"
        moves = not fixed[owner] or (place == "SENSOR" and not graph.vertex_set(SENSOR_TAG).fixed[offset])
        if moves:
            groups.setdefault(place, []).append(number)
    for place, numbers in groups.items():
        image = np.array([rows[number] for number in numbers])
        ends = [places.owner[image]]
        if place == "SENSOR":
            ends.append(problem.first_sensor + places.offset[image])
        graph.add_edges(
            prior_type(kind, place),
            np.stack(ends, axis=1),
            measured[numbers],
            np.array([weights[number] for number in numbers]),
            kernel=kernel,
            kernel_width=options.prior_position_loss_scale,
            parameters=places.offset[image, None] if place == "RIG" else None,
        )


def _add_intrinsics(problem: Problem, priors: list[IntrinsicsPrior]) -> None:
    row_of = {camera.id: row for row, camera in enumerate(problem.model.cameras)}
    for prior in priors:
        if prior.camera_id not in row_of:
            raise OptionError(f"a prior is of camera {prior.camera_id}, which the model does not have.")
        vertex = problem.graph.vertex(problem.first_camera + row_of[prior.camera_id])
        params, covariance = np.asarray(prior.params, float), np.asarray(prior.covariance, float)
        length = vertex.type.storage_dim
        if params.shape != (length,) or covariance.shape not in ((length,), (length, length)):
            raise OptionError(
                f"the prior of camera {prior.camera_id} has params {params.shape} and covariance "
                f"{covariance.shape}, expected ({length},) and ({length}, {length}) or ({length},)."
            )
        if covariance.ndim == 1:
            if not (covariance > 0.0).all():
                raise OptionError(f"the variances of camera {prior.camera_id}'s prior must be > 0.")
            weight = np.diag(1.0 / covariance)
        else:
            weight = _inverse(covariance, f"camera {prior.camera_id}")
        problem.graph.add_edges(intrinsics_type(vertex.type), [[vertex.id]], params[None], weight[None])


def _inverse(covariance: Any, whose: Any) -> np.ndarray:
    matrix = np.asarray(covariance, float)
    if matrix.ndim != 2 or not np.isfinite(matrix).all() or not (np.linalg.eigvalsh(matrix) > 0.0).all():
        name = whose if isinstance(whose, str) else f"image {whose}"
        raise OptionError(f"the covariance of the prior of {name} is not positive definite.")
    return np.linalg.inv(0.5 * (matrix + matrix.T))
