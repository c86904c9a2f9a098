"""What one adjustment solves: the graph of a model under options and a config, and the model from its result.

Residuals, what is constant and the gauge are those of COLMAP's `bundle_adjustment_ceres.cc`:

- observations of `config.images`, but for ignored points and tracks that are too short;
- of variable and constant points also the observations in other images, whose poses and intrinsics stay;
- a point of which observations are missing stays, as do the cameras on a rig whose reference has none;
- TWO_CAMS_FROM_WORLD: the first frame stays, and of the second one that coordinate of its translation in
  which both are farthest apart. Where the scale is free, this coordinate is brought back at the end by a
  similarity, which changes no residual;
- THREE_POINTS: the first three linearly independent points stay, in the order of COLMAP's hash table
  (`three_points`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from graphopt.colmap import three_points
from graphopt.colmap.graph import element_errors, graph_of, mean_errors
from graphopt.colmap.model import CAMERA, ColmapModel, Observations
from graphopt.colmap.options import LOSSES, Config, Options
from graphopt.colmap.rigs import Places, from_storage, image_poses, moved_rigs, places_of, to_storage
from graphopt.errors import GraphError, OptionError
from graphopt.geometry import SE3
from graphopt.graph import Graph
from graphopt.io.extra_types import FRAME_TAG, POINT_TAG, SENSOR_TAG, projection_types
from graphopt.io.read_report import ReadReport

_NAME = "the reconstruction"
_APART = 1e-9
"""Distance [m] of two frames that fixes a scale."""


@dataclass
class Problem:
    """A graph to be optimized, and where its vertices come from."""

    model: ColmapModel
    graph: Graph
    places: Places
    seen: Observations
    """`model.observations()`."""
    owners: np.ndarray
    """(frames with images,) first image of each, the ids of their vertices."""
    scale: ScaleGauge | None = None
    """The coordinate that is brought back at the end; None: the scale is not free."""
    shift: np.ndarray = field(default_factory=lambda: np.zeros(3))
    """Of the world of the graph: point of the model = point of the graph + shift."""

    @property
    def first_camera(self) -> int:
        """Id of the vertex of camera row 0."""
        return len(self.model.images.ids)

    @property
    def first_point(self) -> int:
        """Id of the vertex of point row 0."""
        return self.first_camera + len(self.model.cameras)

    @property
    def first_sensor(self) -> int:
        """Id of the vertex of row 0 of `places.offsets`."""
        return self.first_point + len(self.model.points.ids)

    @property
    def first_outside(self) -> int:
        """Id of the constant pose of image row 0, where it is needed."""
        return self.first_sensor + len(self.places.offsets)


@dataclass
class ScaleGauge:
    """Of the frame of a vertex that coordinate of its translation that stays; another frame is constant."""

    first: int
    second: int
    coordinate: int
    value: float


def everything(model: ColmapModel, options: Options) -> Config:
    """What `pycolmap.bundle_adjustment` takes: all images, gauge by two cameras; what options hold."""
    rows = _rows("image", model.images.ids, options.constant_images)
    frames = places_of(model, _NAME).frame[rows]
    of_frames = model.images.ids if model.frames is None else model.frames.ids
    _rows("camera", np.array([camera.id for camera in model.cameras]), options.constant_cameras)
    return Config(
        images=frozenset(model.images.ids.tolist()),
        constant_cam_intrinsics=frozenset(int(id_) for id_ in options.constant_cameras),
        constant_rig_from_world_poses=frozenset(of_frames[frames].tolist()),
        fixed_gauge="TWO_CAMS_FROM_WORLD",
    )


def _rows(what: str, ids: np.ndarray, wanted: Collection[int]) -> np.ndarray:
    """Rows of some ids; `OptionError` for one that the model does not have."""
    row_of = {identifier: row for row, identifier in enumerate(ids.tolist())}
    for identifier in wanted:
        if identifier not in row_of:
            raise OptionError(f"{what} {identifier} is asked for, but the model has no such {what}.")
    return np.array([row_of[identifier] for identifier in wanted], np.int64)


def _chosen(ids: np.ndarray, wanted: Collection[int]) -> np.ndarray:
    return np.isin(ids, np.fromiter(wanted, np.int64, len(wanted)))


def problem_of(
    model: ColmapModel, options: Options, config: Config | None = None, hold_scale: bool = False
) -> Problem:
    """The problem of a model; config None: all of it, as `everything` says.

    hold_scale: a gauge by two cameras holds its coordinate in the graph, even where nothing else holds the
    scale.
    """
    try:
        return _problem_of(model, options, config, hold_scale)
    except (GraphError, KeyError, IndexError, ValueError):
        model.check(_NAME)  # names by COLMAP's ids what is not finite, and what refers to nothing
        raise


def _problem_of(model: ColmapModel, options: Options, config: Config | None, hold_scale: bool) -> Problem:
    config = everything(model, options) if config is None else _with_constants(model, options, config)
    _check(model, config)
    seen = model.observations()
    is_inside, is_outside = _observations(model, options, config, seen)
    takes_all = bool(is_inside.all())
    places = places_of(model, _NAME)
    graph = graph_of(
        model,
        _NAME,
        ReadReport(_NAME, "colmap"),
        options.refined,
        options.refine_sensor_from_rig and len(places.offsets) > 0,
        hides=True,
        chosen=None if takes_all else np.flatnonzero(is_inside),
        seen=seen,
    )
    problem = Problem(model, graph, places, seen, np.unique(places.owner))
    image_count, count = seen.image_count, seen.track_length
    if not takes_all:
        image_count = np.bincount(seen.image_row[is_inside], minlength=len(image_count))
        count = np.bincount(seen.point_row[is_inside | is_outside], minlength=len(count))
    taking_part = np.flatnonzero(image_count)
    _fix_cameras(problem, config, taking_part)
    _fix_frames(problem, options, config, taking_part)
    _fix_sensors(problem, options, config, taking_part)
    _fix_points(problem, options, config, seen.track_length, count)
    if is_outside.any():
        _add_outside(problem, options, np.flatnonzero(is_outside))
    kernel = LOSSES[options.loss_function_type]
    if kernel is not None:
        graph.set_robust_kernel(kernel, options.loss_function_scale)
    fix_gauge(problem, options, config, taking_part)
    if problem.scale is not None and (hold_scale or not _has_free_scale(problem)):
        graph.hold([problem.scale.second], [3 + problem.scale.coordinate])
        problem.scale = None
    return problem


def _with_constants(model: ColmapModel, options: Options, config: Config) -> Config:
    """A config with what options have as constant, too."""
    more = everything(model, options)
    return replace(
        config,
        constant_cam_intrinsics=config.constant_cam_intrinsics | more.constant_cam_intrinsics,
        constant_rig_from_world_poses=config.constant_rig_from_world_poses
        | more.constant_rig_from_world_poses,
    )


def _check(model: ColmapModel, config: Config) -> None:
    frames = model.images.ids if model.frames is None else model.frames.ids
    cameras = np.array([camera.id for camera in model.cameras], np.int64)
    for what, ids, wanted in (
        ("image", model.images.ids, config.images),
        ("point", model.points.ids, config.variable_points | config.constant_points),
        ("camera", cameras, config.constant_cam_intrinsics | config.constant_sensor_from_rig_poses),
        ("frame", frames, config.constant_rig_from_world_poses),
    ):
        named = np.fromiter(wanted, np.int64, len(wanted))
        missing = named[~np.isin(named, ids)] if len(named) else named
        if len(missing):
            raise OptionError(f"the config names {what} {missing.min()}, but the model has no such {what}.")


def counted_points(model: ColmapModel, options: Options, config: Config, seen: Observations) -> np.ndarray:
    """Points (n,) bool that are not ignored and whose tracks are long enough."""
    counts = seen.track_length >= max(options.min_track_length, 0)
    if config.ignored_points:
        counts &= ~_chosen(model.points.ids, config.ignored_points)
    return np.asarray(counts)


def _observations(
    model: ColmapModel, options: Options, config: Config, seen: Observations
) -> tuple[np.ndarray, np.ndarray]:
    """Which observations (m,) bool are of images that take part, and which are only for their points."""
    point_counts = counted_points(model, options, config, seen)
    image_counts = _chosen(model.images.ids, config.images)
    is_inside = np.ones(len(seen.pixel), bool)
    for counts, row in ((image_counts, seen.image_row), (point_counts, seen.point_row)):
        if not counts.all():
            is_inside &= counts[row]
    named = config.variable_points | config.constant_points
    is_outside = np.zeros(len(seen.pixel), bool)
    if named:
        point_counts &= _chosen(model.points.ids, named)
        is_outside = ~image_counts[seen.image_row] & point_counts[seen.point_row]
    return is_inside, is_outside


def _fix_cameras(problem: Problem, config: Config, taking_part: np.ndarray) -> None:
    """Constant intrinsics, and those of images that are there only for their points."""
    model = problem.model
    ids = np.array([camera.id for camera in model.cameras], np.int64)
    is_constant = _chosen(ids, config.constant_cam_intrinsics)
    is_constant |= ~np.isin(ids, model.images.camera_ids[taking_part])
    for vertices in problem.graph.vertex_sets:
        if vertices.type.tag.startswith("VERTEX_CAMERA_"):
            vertices.fixed[is_constant[vertices.ids - problem.first_camera]] = True


def _frame_ids(problem: Problem) -> np.ndarray:
    """Ids of the frames of the vertices of poses."""
    model = problem.model
    return (
        model.images.ids if model.frames is None else model.frames.ids[problem.places.frame[problem.owners]]
    )


def _fix_frames(problem: Problem, options: Options, config: Config, taking_part: np.ndarray) -> None:
    frames = problem.graph.vertex_set(FRAME_TAG)
    is_constant = _chosen(_frame_ids(problem), config.constant_rig_from_world_poses)
    is_constant |= ~np.isin(frames.ids, problem.places.owner[taking_part])
    frames.fixed[:] = is_constant | (not options.refine_rig_from_world)
    if options.constant_rig_from_world_rotation:
        problem.graph.hold(frames.ids[~frames.fixed], range(3))


def _fix_sensors(problem: Problem, options: Options, config: Config, taking_part: np.ndarray) -> None:
    """Constant places on rigs, and those on rigs whose reference takes no part."""
    places, model = problem.places, problem.model
    if not options.refine_sensor_from_rig or len(places.offsets) == 0:
        return
    seen = {
        (int(model.frames.rig_ids[frame]), camera)
        for frame, camera in zip(
            places.frame[taking_part].tolist(), model.images.camera_ids[taking_part].tolist(), strict=True
        )
        if model.frames is not None
    }
    references = {rig.id: rig.sensors[0] for rig in model.rigs}
    alone = [
        references[rig].type != CAMERA or (rig, references[rig].id) not in seen for rig, _ in places.sensors
    ]
    constant = [camera in config.constant_sensor_from_rig_poses for _, camera in places.sensors]
    problem.graph.vertex_set(SENSOR_TAG).fixed[:] = np.array(alone) | np.array(constant)


def _fix_points(
    problem: Problem, options: Options, config: Config, lengths: np.ndarray, count: np.ndarray
) -> None:
    """Points of which observations are missing stay; lengths of tracks, and count of what takes part."""
    points, model = problem.graph.vertex_set(POINT_TAG), problem.model
    points.fixed[:] = (lengths > count) | (count == 0) | (not options.refine_points3D)
    if config.constant_points:
        points.fixed[_chosen(model.points.ids, config.constant_points)] = True
    if not options.refine_points3D:
        points.marginalized[:] = False


def _add_outside(problem: Problem, options: Options, rows: np.ndarray) -> None:
    """Observations in images that take no part: of constant poses."""
    model, graph = problem.model, problem.graph
    image_row, point_row, pixel = (each[rows] for each in problem.seen[:3])
    frames = to_storage(model.frames.pose) if model.frames is not None else _image_storage(model)
    images = np.unique(image_row)
    poses = image_poses(problem.places, frames)[images]
    graph.add_vertices(FRAME_TAG, problem.first_outside + images, poses, fixed=True)
    camera_of = {camera.id: row for row, camera in enumerate(model.cameras)}
    camera_row = np.array([camera_of[id_] for id_ in model.images.camera_ids[image_row].tolist()], np.int64)
    names = np.array([camera.model for camera in model.cameras])[camera_row]
    for name in np.unique(names).tolist():
        mine = names == name
        ends = [problem.first_outside + image_row, problem.first_point + point_row]
        ends = np.stack([*ends, problem.first_camera + camera_row], axis=1)[mine]
        edge = projection_types(name, options.refined, True).edge
        graph.add_edges(edge, ends, pixel[mine])


def _image_storage(model: ColmapModel) -> np.ndarray:
    return to_storage(np.concatenate([model.images.quaternion, model.images.translation], axis=1))


# ------------------------------------------------------------------------ gauge


def fix_gauge(problem: Problem, options: Options, config: Config, taking_part: np.ndarray) -> None:
    """Hold what COLMAP holds under the gauge of a config."""
    if config.fixed_gauge == "TWO_CAMS_FROM_WORLD":
        if not options.refine_rig_from_world or _fix_two_frames(problem, options, taking_part):
            return
    elif config.fixed_gauge != "THREE_POINTS":
        return
    counted = counted_points(problem.model, options, config, problem.seen)
    rows = three_points.order_of_points(problem.model, problem.seen, counted, config)
    three_points.fix(problem.graph.vertex_set(POINT_TAG), rows)


def _fix_two_frames(problem: Problem, options: Options, taking_part: np.ndarray) -> bool:
    """Hold a frame and a coordinate of another; False if there are no such frames."""
    frames, places = problem.graph.vertex_set(FRAME_TAG), problem.places
    row_of = {id_: row for row, id_ in enumerate(frames.ids.tolist())}
    images = taking_part[np.argsort(problem.model.images.ids[taking_part], kind="stable")]
    known = images[_has_known_place(problem, options, images)]
    order = list(dict.fromkeys(row_of[owner] for owner in places.owner[known].tolist()))
    fixed = frames.look("fixed")
    constant = [row for row in order if fixed[row]]
    if len(constant) > 1:
        return True
    first = constant[0] if constant else (order[0] if order else None)
    second = None
    for row in order:
        if row == first or first is None:
            continue
        baseline = np.asarray((SE3(frames.estimate[first]) * SE3(frames.estimate[row]).inverse()).translation)
        if np.abs(baseline).max() > _APART:
            second, coordinate = row, int(np.abs(baseline).argmax())
            break
    if first is None or second is None:
        return False
    frames.fixed[first] = True
    value = float(frames.estimate[second, coordinate])
    problem.scale = ScaleGauge(int(frames.ids[first]), int(frames.ids[second]), coordinate, value)
    return True


def _has_known_place(problem: Problem, options: Options, images: np.ndarray) -> np.ndarray:
    """Images (n,) of the reference of their rig, or of a camera whose place on it is constant."""
    offset = problem.places.offset[images]
    if not options.refine_sensor_from_rig or len(problem.places.offsets) == 0:
        return np.ones(len(images), bool)
    return (offset < 0) | problem.graph.vertex_set(SENSOR_TAG).fixed[offset]


def _has_free_scale(problem: Problem) -> bool:
    """Whether nothing but the second frame would hold the scale."""
    graph = problem.graph
    frames, points = graph.vertex_set(FRAME_TAG), graph.vertex_set(POINT_TAG)
    if frames.fixed.sum() > 1 or points.fixed.any():
        used = np.zeros(len(points), bool)
        seeing = np.zeros(problem.first_outside + problem.first_camera, bool)
        for edges in graph.edge_sets:
            used[edges.vertices[:, 1] - problem.first_point] = True
            seeing[edges.vertices[:, 0]] = True
        if (frames.fixed & seeing[frames.ids]).sum() > 1 or (points.fixed & used).any():
            return False
    for parameters in graph.parameter_sets:
        if np.abs(parameters.values[:, :3]).max(initial=0.0) > 0.0:
            return False
    if len(problem.places.offsets) and not graph.parameter_sets:
        sensors = graph.vertex_set(SENSOR_TAG)
        return not np.abs(sensors.estimate[sensors.fixed, :3]).max(initial=0.0) > 0.0
    return True


def keep_gauge(problem: Problem) -> None:
    """Scale the world about the first frame, so that the second one's coordinate is what it was."""
    if problem.scale is None:
        return
    gauge, graph = problem.scale, problem.graph
    frames, points = graph.vertex_set(FRAME_TAG), graph.vertex_set(POINT_TAG)
    rows = {id_: row for row, id_ in enumerate(frames.ids.tolist())}
    centres = np.asarray(SE3(frames.estimate).inverse().translation)
    second, origin = rows[gauge.second], centres[rows[gauge.first]]
    rotation = SE3(frames.estimate).rotation
    turned = np.asarray(SE3(frames.estimate[second]).rotation.act(origin))[gauge.coordinate]
    reach = frames.estimate[second, gauge.coordinate] + turned
    scale = (gauge.value + turned) / reach if reach != 0.0 else 0.0
    if not (np.isfinite(scale) and scale > 0.0):
        return
    points.estimate[:] = origin + scale * (points.estimate - origin)
    first_before = frames.estimate[rows[gauge.first]].copy()
    moved = origin + scale * (centres - origin)
    frames.estimate[:, :3] = -np.asarray(rotation.act(moved))
    frames.estimate[rows[gauge.first]] = first_before
    if len(problem.places.offsets) and not graph.parameter_sets:
        graph.vertex_set(SENSOR_TAG).estimate[:, :3] *= scale


# ------------------------------------------------------------------------ back


def refined_model(problem: Problem) -> ColmapModel:
    """The model with the graph's estimates; what was constant keeps its digits."""
    model, graph = problem.model, problem.graph
    points, frames = graph.vertex_set(POINT_TAG), graph.vertex_set(FRAME_TAG)
    changed = replace(model.points, xyz=np.where(points.fixed[:, None], model.points.xyz, points.estimate))
    cameras = list(model.cameras)
    for vertices in graph.vertex_sets:
        if vertices.type.tag.startswith("VERTEX_CAMERA_"):
            for id_, params, is_fixed in zip(
                vertices.ids.tolist(), vertices.estimate, vertices.fixed, strict=True
            ):
                if not is_fixed:
                    row = id_ - problem.first_camera
                    cameras[row] = replace(cameras[row], params=params.copy())
    result = replace(model, cameras=cameras, points=changed)
    count = len(problem.owners)
    pose, is_free = from_storage(frames.estimate[:count]), ~frames.fixed[:count]
    if model.frames is None:
        result.images = replace(model.images)
        rows = problem.owners[is_free]
        result.images.quaternion = model.images.quaternion.copy()
        result.images.translation = model.images.translation.copy()
        result.images.quaternion[rows], result.images.translation[rows] = pose[is_free, :4], pose[is_free, 4:]
        return _with_errors(problem, result)
    moved = model.frames.pose.copy()
    moved[problem.places.frame[problem.owners[is_free]]] = pose[is_free]
    result.frames = replace(model.frames, pose=moved)
    if len(problem.places.offsets) and not graph.parameter_sets:
        sensors = graph.vertex_set(SENSOR_TAG)
        if not sensors.fixed.all():
            free = np.flatnonzero(~sensors.fixed)
            offsets = np.asarray(SE3(sensors.estimate[free]).inverse().storage)
            names = tuple(problem.places.sensors[row] for row in free.tolist())
            result.rigs = moved_rigs(model.rigs, problem.places._replace(offsets=offsets, sensors=names))
    return _with_errors(problem, _with_image_poses(problem, result))


def _with_image_poses(problem: Problem, refined: ColmapModel) -> ColmapModel:
    """Poses of images that moved, as frames and rigs have them now; not of models taken from memory."""
    model = problem.model
    if model.seen is not None or model.frames is None or refined.frames is None:
        return refined
    places = places_of(refined, _NAME)
    is_moved = (model.frames.pose != refined.frames.pose).any(axis=1)[places.frame]
    if len(places.offsets):
        is_turned = (problem.places.offsets != places.offsets).any(axis=1)
        is_moved |= (places.offset >= 0) & is_turned[places.offset]
    pose = from_storage(image_poses(places, to_storage(refined.frames.pose)))
    images = replace(model.images)
    images.quaternion = np.where(is_moved[:, None], pose[:, :4], model.images.quaternion)
    images.translation = np.where(is_moved[:, None], pose[:, 4:], model.images.translation)
    return replace(refined, images=images)


def _with_errors(problem: Problem, refined: ColmapModel) -> ColmapModel:
    """Mean reprojection errors of points that take part whole; not of models taken from memory."""
    model, graph = problem.model, problem.graph
    if model.seen is not None or all(vertices.fixed.all() for vertices in graph.vertex_sets):
        return refined
    point_row, error = problem.seen.point_row, np.full(len(model.points.track), np.nan)
    for edges in graph.edge_sets:
        if edges.type.tag.startswith("EDGE_PROJECT_"):
            inside = edges.vertices[:, 0] < problem.first_camera
            element, distance = element_errors(graph, edges, problem.first_sensor)
            error[element[inside]] = distance[inside]
    lengths = np.diff(model.points.track_start)
    is_known = np.bincount(point_row[~np.isnan(error)], minlength=len(lengths)) == lengths
    mean = mean_errors(np.bincount(point_row, np.nan_to_num(error), len(lengths)), lengths)
    return replace(
        refined, points=replace(refined.points, error=np.where(is_known, mean, model.points.error))
    )
