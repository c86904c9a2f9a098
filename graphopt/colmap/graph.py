"""A COLMAP model as a graph and back.

Image row i is vertex i (VERTEX_SE3:EXPMAP, cam_T_world), camera row j vertex num_images + j
(VERTEX_CAMERA_<MODEL>), point row k vertex num_images + num_cameras + k (VERTEX_TRACKXYZ, marginalized).
Element t of the concatenated tracks is an edge EDGE_PROJECT_<MODEL> of sequence number num_vertices + t, by
which it is found again.

Images of one frame of a rig share a vertex, that of the first of them, which is rig_T_world. Where such an
image is not of the rig's reference, its edges are EDGE_PROJECT_<MODEL>_RIG with rig_T_cam as a parameter: the
rig's calibration is constant; with `refine_sensors` it is a vertex of EDGE_PROJECT_<MODEL>_SENSOR.

Everything else (names, colours, keypoints without a point) stays in `graph.attachments["colmap"]`.
Writing puts the graph's estimates into that model. Vertices and edges that were removed from the graph
take their images, points and track elements with them. The error of a point is computed anew where the
point, an image that sees it or a camera has changed; all else keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphopt.colmap.model import (
    CAMERA,
    NO_POINT,
    UNKNOWN_ERROR,
    ColmapCamera,
    ColmapFrames,
    ColmapImages,
    ColmapModel,
    ColmapPoints,
    Observations,
)
from graphopt.colmap.rigs import (
    Places,
    from_storage,
    image_poses,
    moved_rigs,
    outdated,
    places_of,
    to_storage,
)
from graphopt.errors import FormatError
from graphopt.geometry import SE3
from graphopt.geometry.cameras import CAMERA_MODELS
from graphopt.graph import EdgeSet, Graph
from graphopt.graph.columns import Columns
from graphopt.graph.edge_columns import Slot, edge_set_of
from graphopt.graph.residuals import errors
from graphopt.graph.sets import VertexSet
from graphopt.graph.validate import check_finite as check_finite_numbers
from graphopt.io import extra_types
from graphopt.io.extra_types import AS_COLMAP, Refined
from graphopt.io.g2o_write import check_finite
from graphopt.io.read_report import ReadReport
from graphopt.types import registry
from graphopt.types.base import EdgeType

ATTACHMENT = "colmap"
OFFSET_TAG = "PARAMS_SE3OFFSET"


def graph_of(
    model: ColmapModel,
    path: str,
    report: ReadReport,
    refined: Refined = AS_COLMAP,
    refine_sensors: bool = False,
    hides: bool = False,
    chosen: np.ndarray | None = None,
    seen: Observations | None = None,
) -> Graph:
    """Graph of a model.

    refined: which intrinsics an optimization moves; cameras of which nothing moves are fixed.
    refine_sensors: the places of cameras on rigs are vertices (`extra_types.sensor_vertex`), not parameters.
    hides: poses and observations are those of COLMAP's adjustment (`extra_types.projection_types`).
    chosen: rows of the observations that become edges, None: all. seen: `model.observations()`.
    """
    images, points = model.images, model.points
    num_images, num_cameras = len(images.ids), len(model.cameras)
    num_vertices = num_images + num_cameras + len(points.ids)
    graph = Graph()
    places = places_of(model, path)
    owners = np.unique(places.owner)
    poses = _frame_poses(model)[places.frame[owners]]
    pose_type = extra_types.frame_vertex() if hides else extra_types.POSE_TAG
    graph.add_vertices(pose_type, owners, poses, order=owners)
    types = {
        each_camera.model: extra_types.projection_types(each_camera.model, refined, hides)
        for each_camera in model.cameras
    }
    for name in sorted(types):
        is_fixed = not any(map(refined.moves, CAMERA_MODELS[name].parameter_names))
        _add_cameras(graph, model, name, types[name].camera, is_fixed)
    first_point = num_images + num_cameras
    _add_points(graph, first_point, points.xyz)
    image_row, point_row, pixel, *_ = model.observations() if seen is None else seen
    if chosen is not None:
        image_row, point_row, pixel = image_row[chosen], point_row[chosen], pixel[chosen]
    camera_rows = _camera_rows(model)
    if len(places.offsets):
        _add_sensors(graph, report, places.offsets, refine_sensors, num_vertices, model)
    for name in sorted(types):
        with_model = np.array([camera.model == name for camera in model.cameras])
        report.vertices[types[name].camera.tag] = int(with_model.sum())
        for edge_type, on_rig in ((types[name].edge, False), (types[name].rig_edge, True)):
            of_images = ((places.offset >= 0) == on_rig) & with_model[camera_rows]
            mine = None if of_images.all() else np.flatnonzero(of_images[image_row])
            rows = [each if mine is None else each[mine] for each in (image_row, point_row, pixel)]
            if on_rig and not len(rows[0]):
                continue
            slots = [
                (places.owner, rows[0]), ((first_point, len(points.ids)), rows[1]),
                (num_images + camera_rows, rows[0]),
            ]  # fmt: skip
            parameters = None
            if on_rig and refine_sensors:
                slots.append((num_vertices + places.offset, rows[0]))
                edge_type = extra_types.free_rig_edge(name, refined, hides)
            elif on_rig:
                parameters = places.offset[rows[0], None]
            order = _elements(len(image_row), chosen, mine, num_vertices)
            _add_observations(graph, edge_type, order, slots, rows[2], parameters)
            report.edges[edge_type.tag] = len(rows[0])
    report.vertices.update({extra_types.POSE_TAG: len(owners), extra_types.POINT_TAG: len(points.ids)})
    graph.attachments[ATTACHMENT] = model
    return graph


def _add_sensors(
    graph: Graph,
    report: ReadReport,
    offsets: np.ndarray,
    are_refined: bool,
    num_vertices: int,
    model: ColmapModel,
) -> None:
    """Places of cameras on rigs: vertices where they are refined, else parameters."""
    numbers = np.arange(len(offsets))
    if are_refined:
        sensors = np.asarray(SE3(offsets).inverse().storage)
        graph.add_vertices(extra_types.sensor_vertex(), num_vertices + numbers, sensors)
    else:
        order = num_vertices + len(model.observations().pixel) + numbers
        graph.add_parameters(OFFSET_TAG, numbers, offsets, order=order)
        report.parameters[OFFSET_TAG] = len(offsets)


def _elements(
    count: int, chosen: np.ndarray | None, mine: np.ndarray | None, num_vertices: int
) -> np.ndarray:
    """Sequence numbers of the `mine` of the `chosen` of all track elements."""
    if chosen is None:
        return np.arange(num_vertices, num_vertices + count) if mine is None else num_vertices + mine
    return num_vertices + (chosen if mine is None else chosen[mine])


def _add_points(graph: Graph, first: int, xyz: np.ndarray) -> None:
    """Vertices of all points, whose ids begin at `first`."""
    ids, kind = first + np.arange(len(xyz)), registry.vertex_type(extra_types.POINT_TAG)
    check_finite_numbers(xyz, 1, f"{kind.tag} estimate", ids)
    flags = {"fixed": np.zeros(len(ids), bool), "marginalized": np.ones(len(ids), bool)}
    columns = {"sequence": ids.copy(), "ids": ids, "estimate": xyz.copy(), **flags}
    graph.adopt(VertexSet(kind, Columns.holding(columns)))


def _add_observations(
    graph: Graph,
    edge_type: EdgeType,
    order: np.ndarray,
    slots: Sequence[Slot],
    pixel: np.ndarray,
    parameters: np.ndarray | None,
) -> None:
    """The edges of a type, whose vertices are in the graph."""
    columns = {} if parameters is None else {"parameters": parameters}
    edges = edge_set_of(edge_type, order, slots, measurement=pixel, **columns)
    check_finite_numbers(pixel, 1, f"{edge_type.tag} measurement", edges.look("vertices"))
    graph.adopt(edges)


def _add_cameras(graph: Graph, model: ColmapModel, name: str, camera_type: Any, is_fixed: bool) -> None:
    """Vertices of the cameras of one camera model; their ids follow those of the images."""
    rows = np.array([j for j, camera in enumerate(model.cameras) if camera.model == name])
    params = np.array([model.cameras[j].params for j in rows])
    ids = len(model.images.ids) + rows
    graph.add_vertices(camera_type, ids, params, fixed=is_fixed, order=ids)


def _frame_poses(model: ColmapModel) -> np.ndarray:
    """(num_frames, 7) x y z qx qy qz qw of rig_T_world; without frames (num_images, 7) of cam_T_world."""
    if model.frames is not None:
        return to_storage(model.frames.pose)
    return to_storage(np.concatenate([model.images.quaternion, model.images.translation], axis=1))


def _camera_rows(model: ColmapModel) -> np.ndarray:
    """(num_images,) row of each image's camera."""
    row_of = {camera.id: row for row, camera in enumerate(model.cameras)}
    return np.array([row_of[camera_id] for camera_id in model.images.camera_ids.tolist()], np.int64)


def model_of(graph: Graph) -> tuple[ColmapModel, list[str]]:
    """Put a graph's estimates into the model it came from. FormatError if it came from elsewhere."""
    model = graph.attachments.get(ATTACHMENT)
    if not isinstance(model, ColmapModel):
        raise FormatError(
            "only a graph that was read from a COLMAP model can be written as one: image names, "
            "keypoints and "
            "camera sizes are not in the graph"
        )
    check_finite(graph)
    num_images, num_cameras = len(model.images.ids), len(model.cameras)
    first_point, num_vertices = num_images + num_cameras, num_images + num_cameras + len(model.points.ids)
    estimate: dict[int, np.ndarray] = {}
    for vertex_set in graph.vertex_sets:
        estimate.update(zip(vertex_set.ids.tolist(), vertex_set.estimate, strict=True))
    places = places_of(model, "the COLMAP model")
    sensors = [estimate.pop(num_vertices + k, None) for k in range(len(places.offsets))]
    are_moved = any(sensor is not None for sensor in sensors)
    if are_moved:
        places = places._replace(offsets=_moved_offsets(places, sensors))
    foreign = [id_ for id_ in estimate if not 0 <= id_ < num_vertices]
    if foreign:
        raise FormatError(f"vertex {foreign[0]} was added to the graph and has no place in the COLMAP model")
    error = _reprojection_errors(graph, num_vertices, len(model.points.track))
    kept_images = np.array([i in estimate for i in places.owner.tolist()], bool)
    track_image = model.observations().image_row
    kept_track = ~np.isnan(error) & kept_images[track_image]
    point_of = np.repeat(np.arange(len(model.points.ids)), np.diff(model.points.track_start))
    kept_points = np.array([first_point + k in estimate for k in range(len(model.points.ids))], bool)
    kept_points &= np.bincount(point_of[kept_track], minlength=len(kept_points)) > 0
    kept_track &= kept_points[point_of]
    warnings = [
        f"{int((~kept).sum())} {what} were removed from the graph and are left out"
        for what, kept in (("images", kept_images), ("points", kept_points), ("track elements", kept_track))
        if not kept.all()
    ]
    cameras = [
        ColmapCamera(c.id, c.model, c.width, c.height, np.array(estimate.get(num_images + j, c.params)))
        for j, c in enumerate(model.cameras)
    ]
    frame_poses, same = _moved_frames(model, places, estimate)
    same &= not are_moved
    stays = kept_track & _views_that_stay(model, cameras, places, same)[track_image]
    points = _points(model, estimate, first_point, kept_points, kept_track, point_of, error, stays)
    images = _images(model, places, frame_poses, same, kept_images, kept_track, point_of)
    if any(vertex_set.fixed.any() for vertex_set in graph.vertex_sets):
        warnings.append("which vertices are fixed is not kept")
    result = ColmapModel(cameras, images, points)
    if model.frames is not None:
        result.rigs = moved_rigs(model.rigs, places) if are_moved else model.rigs
        result.frames = _frames(
            model, places, frame_poses, np.logical_and.reduce(same[:, 3:], axis=1), kept_images
        )
    return result, warnings


def _moved_offsets(places: Places, sensors: list[np.ndarray | None]) -> np.ndarray:
    """(k, 7) rig_T_sensor from the graph's sensor_T_rig, as before where the graph has none."""
    moved = [np.asarray(SE3(sensor).inverse().storage) if sensor is not None else None for sensor in sensors]
    return np.array([new if new is not None else old for new, old in zip(moved, places.offsets, strict=True)])


def _moved_frames(
    model: ColmapModel, places: Places, estimate: dict[int, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Poses (num_frames, 7) from the graph, and which numbers (num_frames, 7) are as in the model."""
    before = _frame_poses(model)
    after = before.copy()
    for owner in np.unique(places.owner).tolist():
        if owner in estimate:
            after[places.frame[owner]] = estimate[owner]
    return after, before == after


def _views_that_stay(
    model: ColmapModel, cameras: list[ColmapCamera], places: Places, same: np.ndarray
) -> np.ndarray:
    """Whether neither pose nor camera of an image (num_images,) has changed."""
    pairs = zip(cameras, model.cameras, strict=True)
    stays = np.array([np.array_equal(new.params, old.params) for new, old in pairs], bool)
    return np.logical_and.reduce(same, axis=1)[places.frame] & stays[_camera_rows(model)]


def _frames(
    model: ColmapModel, places: Places, frame_poses: np.ndarray, is_old: np.ndarray, kept_images: np.ndarray
) -> ColmapFrames:
    """Frames with the graph's poses; images that were removed are not in them, nor frames without images."""
    old = model.frames
    assert old is not None
    pose = from_storage(frame_poses)
    pose[is_old, :4] = old.pose[is_old, :4]
    removed = set(model.images.ids[~kept_images].tolist())
    data = [
        rows[[not (kind == CAMERA and row in removed) for kind, _, row in rows.tolist()]] for rows in old.data
    ]
    had_images = np.isin(np.arange(len(old.ids)), places.frame)
    has_images = np.isin(np.arange(len(old.ids)), places.frame[kept_images])
    return ColmapFrames(old.ids, old.rig_ids, pose, data).select(np.flatnonzero(has_images | ~had_images))


def _reprojection_errors(graph: Graph, num_vertices: int, num_elements: int) -> np.ndarray:
    """(num_elements,) distance [px] of each track element, NaN where its edge was removed."""
    error = np.full(num_elements, np.nan)
    for edge_set in graph.edge_sets:
        element, distance = element_errors(graph, edge_set, num_vertices)
        if len(element) and not 0 <= element.min() <= element.max() < num_elements:
            raise FormatError("edges were added to the graph; they have no keypoints in the COLMAP model")
        error[element] = distance
    return error


def element_errors(graph: Graph, edge_set: EdgeSet, num_vertices: int) -> tuple[np.ndarray, np.ndarray]:
    """Track elements (m,) of the edges of a set, and their distances (m,) [px], infinite where not finite.

    num_vertices: of the whole model. FormatError for edges that are no observations.
    """
    if not edge_set.type.tag.startswith("EDGE_PROJECT_"):
        if len(edge_set):
            raise FormatError(f"{len(edge_set)} edges {edge_set.type.tag} have no place in a COLMAP model")
        return np.empty(0, np.int64), np.empty(0)
    with np.errstate(all="ignore"):
        residual = errors(graph, edge_set, np.arange(len(edge_set)))
        distance = np.linalg.norm(residual.reshape(-1, 2), axis=1)
    return edge_set.sequence - num_vertices, np.where(np.isfinite(distance), distance, np.inf)


def mean_errors(total: np.ndarray, length: np.ndarray) -> np.ndarray:
    """(n,) [px] of points from the sums over their tracks and their lengths."""
    mean = total / np.maximum(length, 1)
    return np.where(np.isfinite(mean), mean, UNKNOWN_ERROR)


def _points(
    model: ColmapModel,
    estimate: dict[int, np.ndarray],
    first_point: int,
    kept_points: np.ndarray,
    kept_track: np.ndarray,
    point_of: np.ndarray,
    error: np.ndarray,
    stays: np.ndarray,
) -> ColmapPoints:
    """Points with new errors, but those that have not moved and whose track elements all stay."""
    rows = np.flatnonzero(kept_points)
    length = np.bincount(point_of[kept_track], minlength=len(kept_points))[rows]
    total = np.bincount(point_of[kept_track], weights=error[kept_track], minlength=len(kept_points))[rows]
    old = model.points
    xyz = np.array([estimate[first_point + k] for k in rows.tolist()]).reshape(-1, 3)
    is_new = (xyz != old.xyz[rows]).any(axis=1)
    is_new |= np.bincount(point_of[~stays], minlength=len(kept_points))[rows] > 0
    return ColmapPoints(
        ids=old.ids[rows],
        xyz=xyz,
        rgb=old.rgb[rows],
        error=np.where(is_new, mean_errors(total, length), old.error[rows]),
        track_start=np.concatenate([[0], np.cumsum(length)]),
        track=old.track[kept_track],
    )


def _images(
    model: ColmapModel,
    places: Places,
    frame_poses: np.ndarray,
    same: np.ndarray,
    kept_images: np.ndarray,
    kept_track: np.ndarray,
    point_of: np.ndarray,
) -> ColmapImages:
    old = model.images
    rows = np.flatnonzero(kept_images)
    poses = image_poses(places, frame_poses)[rows]
    beyond = np.flatnonzero(~np.isfinite(poses).all(axis=1))
    if len(beyond):
        raise FormatError(f"image {old.ids[rows[beyond[0]]]} stands beyond the largest double")
    image_row = model.observations().image_row
    keypoint = old.keypoint_start[image_row] + model.points.track[:, 1]
    point_ids = old.point_ids.copy()
    point_ids[keypoint[~kept_track]] = NO_POINT
    length = np.diff(old.keypoint_start)
    kept_keypoint = np.repeat(kept_images, length)
    # what nobody changed keeps its digits, and quaternions their sign
    may_stay = same[places.frame[rows]] & ~outdated(model, "the COLMAP model")[rows][:, None]
    turned, moved = (~np.logical_and.reduce(each, axis=1) for each in (may_stay[:, 3:], may_stay))
    quaternion = np.where(turned[:, None], poses[:, [6, 3, 4, 5]], old.quaternion[rows])
    return ColmapImages(
        ids=old.ids[rows],
        quaternion=quaternion,
        translation=np.where(moved[:, None], poses[:, :3], old.translation[rows]),
        camera_ids=old.camera_ids[rows],
        names=[old.names[i] for i in rows.tolist()],
        keypoint_start=np.concatenate([[0], np.cumsum(length[rows])]),
        xy=old.xy[kept_keypoint],
        point_ids=point_ids[kept_keypoint],
    )
