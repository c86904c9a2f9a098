"""Covariances of a model's poses, intrinsics and points: blocks of inv(J' J) at its estimates.

    cam_T_world:  R <- exp(omega) R,  t <- t + v;   rows and columns are (omega [rad], v [m])

for an error of one pixel per coordinate. They are those of `pycolmap.estimate_ba_covariance` with the same
gauge, but that COLMAP's rotations are in half angles, as Ceres' quaternions are: the functions that have
pycolmap's names give these. Components that are constant have no rows and columns, what is constant as a
whole no covariance. COLMAP refuses rigs of several cameras.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from graphopt.colmap.adjustment import opened
from graphopt.colmap.options import Config, config_of, prior_options_of, settings_of
from graphopt.colmap.priors import add_priors, in_metres, priors_of
from graphopt.colmap.problem import Problem, everything, problem_of
from graphopt.errors import OptionError
from graphopt.geometry import SE3
from graphopt.io.extra_types import FRAME_TAG, POINT_TAG, SENSOR_TAG
from graphopt.solver.marginals import compute_covariances, compute_marginals

POINTS = ("marginal", "conditional")
_TRANSLATION = 3
"""Rows of a pose whose rotation is constant, at most."""


@dataclass(frozen=True)
class ModelCovariance:
    """Covariances by COLMAP's ids; what is constant has none."""

    poses: dict[int, np.ndarray] = field(default_factory=dict)
    """Image -> (6, 6) of cam_T_world, fewer rows where components are constant."""
    intrinsics: dict[int, np.ndarray] = field(default_factory=dict)
    """Camera -> (k, k) of the parameters that are refined, in COLMAP's order."""
    points: dict[int, np.ndarray] = field(default_factory=dict)
    """Point -> (3, 3) [m^2]."""

    def get_cam_cov_from_world(self, image_id: int) -> np.ndarray | None:
        """As `pycolmap.BACovariance` has it: rotation in half angles; None for what is constant."""
        found = self.poses.get(image_id)
        if found is None:
            return None
        scale = np.ones(len(found))
        scale[: 3 * (len(found) > _TRANSLATION)] = 0.5
        return scale[:, None] * found * scale

    def get_point_cov(self, point3D_id: int) -> np.ndarray | None:
        """As `pycolmap.BACovariance` has it, where points are "conditional"; None for what is constant."""
        return self.points.get(point3D_id)


def covariance(
    reconstruction: Any,
    poses: bool | Sequence[int] = True,
    intrinsics: bool = False,
    points: bool | str = False,
    gauge: str | None = None,
    *,
    options: Any = None,
    config: Any = None,
    pose_priors: Sequence[Any] | Mapping[int, Any] | None = None,
    prior_options: Any = None,
    **marginals: Any,
) -> ModelCovariance:
    """Covariances of a `pycolmap.Reconstruction`, a `ColmapModel` or a folder, at its present estimates.

    poses: of all images, or of those with these ids. points: "marginal" (True), or "conditional": given all
        poses and intrinsics, as COLMAP's are.
    gauge: "TWO_CAMS_FROM_WORLD", "THREE_POINTS" or "UNSPECIFIED"; None: the config's, else by two cameras,
        or none where there are pose_priors. Without any H is singular, and `singular` says what then:
        "error" (default), "hold", "damp" or "pseudo-inverse".
    options, config, pose_priors, prior_options: as of `bundle_adjustment`; priors are in the model's world.
    marginals: singular, device ("cpu", the default, or "vulkan"), as of `graphopt.compute_marginals`.

    Raises `SolverError` where the observations do not determine what is asked for; it names the vertices.
    """
    chosen = settings_of(options).options
    if points not in (True, False, *POINTS):
        raise OptionError(f"points is {points!r}, expected True, False, {' or '.join(POINTS)}.")
    model, _ = opened(reconstruction)
    pose_list, intrinsics_list = priors_of(pose_priors or ())
    part = everything(model, chosen) if config is None else config_of(config)
    if gauge is not None or (config is None and pose_priors):
        part = replace(part, fixed_gauge=gauge or "UNSPECIFIED")
    problem = problem_of(model, chosen, part, hold_scale=True)
    add_priors(problem, in_metres(pose_list), intrinsics_list, prior_options_of(prior_options))
    images = _images(problem, part, poses)
    pairs = dict(zip(images, _pairs(problem, images), strict=True))
    cameras = _free_cameras(problem) if intrinsics else {}
    free_points = _free_points(problem) if points in (True, "marginal") else {}
    wanted = {pair for found in pairs.values() for pair in found}
    wanted |= {(id_, id_) for id_ in (*cameras.values(), *free_points.values())}
    blocks = compute_marginals(problem.graph, sorted(wanted), **marginals) if wanted else {}
    ids = problem.model.images.ids
    return ModelCovariance(
        {int(ids[image]): _pose(problem, image, found, blocks) for image, found in pairs.items() if found},
        {id_: blocks[vertex, vertex] for id_, vertex in cameras.items()},
        _conditional(problem, **marginals)
        if points == "conditional"
        else {id_: blocks[vertex, vertex] for id_, vertex in free_points.items()},
    )


def _images(problem: Problem, part: Config, poses: bool | Sequence[int]) -> list[int]:
    """Rows of the images whose poses are asked for."""
    ids = problem.model.images.ids
    row_of = {int(id_): row for row, id_ in enumerate(ids.tolist())}
    asked = (sorted(part.images) if poses else []) if isinstance(poses, bool) else list(poses)
    for id_ in asked:
        if id_ not in row_of:
            raise OptionError(f"a covariance is asked of image {id_}, but the model has no such image.")
    return [row_of[id_] for id_ in asked]


def _active(problem: Problem) -> set[int]:
    selection = problem.graph.select(0)
    return {
        int(id_)
        for vertices, active in zip(selection.vertex_sets, selection.active, strict=True)
        for id_ in vertices.ids[active & ~vertices.fixed].tolist()
    }


def _pairs(problem: Problem, images: list[int]) -> list[list[tuple[int, int]]]:
    """Blocks that each pose's covariance is made of: of the image's frame, and of its place on the rig."""
    graph, places = problem.graph, problem.places
    poses = [vertices for vertices in graph.vertex_sets if vertices.type.tag in (FRAME_TAG, SENSOR_TAG)]
    free = {id_ for vertices in poses for id_ in vertices.ids[~vertices.look("fixed")].tolist()}
    has_sensors = len(places.offsets) > 0 and not graph.parameter_sets
    found = []
    for frame, offset in zip(places.owner[images].tolist(), places.offset[images].tolist(), strict=True):
        ends = [frame, problem.first_sensor + offset] if offset >= 0 and has_sensors else [frame]
        vertices = [id_ for id_ in ends if id_ in free]
        found.append([(first, second) for first in vertices for second in vertices if first <= second])
    return found


def _pose(
    problem: Problem, image: int, pairs: list[tuple[int, int]], blocks: dict[tuple[int, int], np.ndarray]
) -> np.ndarray:
    """Covariance of cam_T_world = sensor_T_rig rig_T_world from those of both."""
    places, graph = problem.places, problem.graph
    offset = int(places.offset[image])
    if offset < 0:
        return blocks[pairs[0]]
    if graph.parameter_sets:
        sensor = SE3(places.offsets[offset]).inverse()
    else:
        sensor = SE3(graph.vertex_set(SENSOR_TAG).estimate[offset])
    frame = int(places.owner[image])
    turn = np.asarray(sensor.rotation.to_matrix())
    moved = turn @ np.asarray(graph.vertex(frame).estimate)[:3]
    of_frame = np.kron(np.eye(2), turn)
    of_sensor = np.eye(6)
    of_sensor[3:, :3] = -_cross(moved)
    jacobian = {frame: of_frame, problem.first_sensor + offset: of_sensor}
    total = np.zeros((6, 6))
    for first, second in pairs:
        left, right = (jacobian[id_][:, _moving(graph, id_)] for id_ in (first, second))
        part = left @ blocks[first, second] @ right.T
        total += part if first == second else part + part.T
    return total


def _cross(v: np.ndarray) -> np.ndarray:
    return np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])


def _moving(graph: Any, id_: int) -> np.ndarray:
    """(6,) bool: components of a vertex that are not held."""
    number, row = graph.vertex_place(id_)
    held = graph.vertex_sets[number].held
    return np.ones(6, bool) if held is None else ~held[row]


def _free_cameras(problem: Problem) -> dict[int, int]:
    """Camera -> vertex, of those that move."""
    active = _active(problem)
    ids = {camera.id: problem.first_camera + row for row, camera in enumerate(problem.model.cameras)}
    return {camera: vertex for camera, vertex in ids.items() if vertex in active}


def _free_points(problem: Problem) -> dict[int, int]:
    """Point -> vertex, of those that move."""
    active = _active(problem)
    ids = problem.model.points.ids.tolist()
    every = {point: problem.first_point + row for row, point in enumerate(ids)}
    return {point: vertex for point, vertex in every.items() if vertex in active}


def _conditional(problem: Problem, **marginals: Any) -> dict[int, np.ndarray]:
    """Covariances of points given everything else."""
    for vertices in problem.graph.vertex_sets:
        if vertices.type.tag != POINT_TAG:
            vertices.fixed[:] = True
    points = {vertex: point for point, vertex in _free_points(problem).items()}
    found = compute_covariances(problem.graph, **marginals) if points else {}
    return {points[vertex]: block for vertex, block in found.items()}
