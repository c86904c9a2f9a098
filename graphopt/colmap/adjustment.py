"""Bundle adjustment of COLMAP models: in place of `pycolmap.bundle_adjustment`, on any GPU or on the CPU.

    import graphopt.colmap, pycolmap
    reconstruction = pycolmap.Reconstruction("sparse/0")
    summary = graphopt.colmap.bundle_adjustment(reconstruction, device="auto")
    reconstruction.write("sparse/0")

The residuals are COLMAP's reprojection errors, of which a point behind its camera has none; the options have
COLMAP's names and defaults. A pose is that of a frame of a rig; the places of cameras on rigs are refined as
well. One frame holds the gauge. The scale, which nothing determines unless a rig with two cameras is held, is
kept: the first two frames stay as far apart.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.colmap.folders import read_colmap
from graphopt.colmap.graph import graph_of, model_of
from graphopt.colmap.model import ColmapModel
from graphopt.colmap.rigs import CAMERA, ColmapRig, places_of
from graphopt.errors import OptionError
from graphopt.geometry import SE3
from graphopt.io.extra_types import POINT_TAG, POSE_TAG, SENSOR_TAG, Refined
from graphopt.io.read_report import ReadReport
from graphopt.optimizer.options import AutoOptions

if TYPE_CHECKING:
    from graphopt.graph import Graph
    from graphopt.optimizer import Summary

LOSSES = {"TRIVIAL": None, "SOFT_L1": "PseudoHuber", "CAUCHY": "Cauchy", "HUBER": "Huber"}
"""COLMAP's loss functions -> robust kernels of the same formula."""
_INACTIVE = 1
"""Level of edges that do not take part."""


@dataclass(frozen=True)
class Options:
    """What is refined and how; names and defaults are those of `pycolmap.BundleAdjustmentOptions`."""

    refine_focal_length: bool = True
    """Focal lengths."""
    refine_principal_point: bool = False
    """Principal points."""
    refine_extra_params: bool = True
    """Distortion parameters."""
    refine_rig_from_world: bool = True
    """The poses."""
    refine_sensor_from_rig: bool = True
    """The places of cameras on their rigs, but for the reference."""
    refine_points3D: bool = True
    """The points."""
    loss_function_type: str = "TRIVIAL"
    """TRIVIAL, SOFT_L1, CAUCHY or HUBER."""
    loss_function_scale: float = 1.0
    """[px]."""
    min_track_length: int = 0
    """Points with fewer observations stay where they are, and these observations do not take part."""
    constant_images: Collection[int] = ()
    """Ids of images whose frames stay where they are."""
    constant_cameras: Collection[int] = ()
    """Ids of cameras whose intrinsics stay."""
    constant_rig_from_world_rotation: bool = False
    """Frames move, but do not turn."""

    def __post_init__(self) -> None:
        if self.loss_function_type not in LOSSES:
            known = ", ".join(LOSSES)
            raise OptionError(f"loss_function_type is '{self.loss_function_type}', expected one of {known}.")
        if not self.loss_function_scale > 0.0:
            raise OptionError(f"loss_function_scale is {self.loss_function_scale}, must be > 0 px.")

    @property
    def refined(self) -> Refined:
        """Which intrinsics move."""
        return Refined(self.refine_focal_length, self.refine_principal_point, self.refine_extra_params)


def bundle_adjustment(reconstruction: Any, options: Any = None, **optimize: Any) -> Summary:
    """Refine a `pycolmap.Reconstruction` in place: its poses, points, intrinsics and points' errors.

    options: `Options`, or a `pycolmap.BundleAdjustmentOptions`. Of Ceres' options those of `_CERES` are taken
    (iterations, seconds, tolerances, GPU); others are refused by name where they are not pycolmap's defaults.
    optimize: device, precision, configuration, max_iterations, time_limit, ... of `graphopt.optimize`; they
    come before what `options` say.

    Raises `OptionError` for what cannot be refined here or is not an option here.
    """
    chosen, settings = settings_of(options)
    with tempfile.TemporaryDirectory() as folder:
        reconstruction.write_binary(folder)
        model = read_colmap(folder)
    graph = graph_of_model(model, chosen)
    summary = adjust(graph, **settings | optimize)
    _take(reconstruction, model_of(graph)[0])
    return summary


def adjust(graph: Graph, **optimize: Any) -> Summary:
    """Optimize the graph of a model, on one device or several, its scale kept."""
    import graphopt

    centres = _first_centres(graph)
    several = "," in optimize.get("device", "auto")
    summary = (graphopt.distributed.optimize if several else graphopt.optimize)(graph, **optimize)
    if centres is not None:
        _keep_scale(graph, centres)
    return summary


def options_of(options: Any) -> Options:
    """`Options` from ours, from pycolmap's, or the defaults."""
    return settings_of(options)[0]


def settings_of(options: Any) -> tuple[Options, dict[str, Any]]:
    """`Options`, and what pycolmap's options say to `graphopt.optimize`.

    `OptionError` names options that differ from pycolmap's defaults and have no meaning here.
    """
    if options is None or isinstance(options, Options):
        return options or Options(), {}
    if not hasattr(options, "refine_focal_length") or not hasattr(options, "todict"):
        kind = type(options).__name__
        raise OptionError(f"options are a {kind}, expected Options or pycolmap.BundleAdjustmentOptions.")
    given, defaults = _flat(options.todict()), _flat(type(options)().todict())
    changed = {name: value for name, value in given.items() if value != defaults[name]}
    own = {field.name for field in fields(Options)} - {"constant_images", "constant_cameras"}
    chosen = {name: given[name] for name in own & given.keys()}
    chosen["loss_function_type"] = getattr(given["loss_function_type"], "name", given["loss_function_type"])
    unknown = sorted(changed.keys() - own - _CERES.keys() - {"print_summary"})
    if unknown:
        raise OptionError(
            f"{', '.join(unknown)}: options of Ceres or Caspar that have no meaning here. Leave them at "
            f"their defaults; taken are {', '.join(sorted({*own, *_CERES}))}, and, as keywords, those of "
            "graphopt.optimize, such as linear_solver."
        )
    settings: dict[str, Any] = {}
    rules: dict[str, Any] = {}
    for name in _CERES.keys() & changed.keys():
        target, value = _CERES[name], changed[name]
        if name == "use_gpu":
            number = str(given["gpu_index"])  # -1: any
            settings["device"] = f"vulkan:{number}" if number.isdigit() else "vulkan"
        elif name in ("function_tolerance", "gradient_tolerance"):
            rules[target] = value
        elif name != "gpu_index":
            settings[target] = value
    if rules:
        settings["options"] = AutoOptions(**rules)
    return Options(**chosen), settings


_CERES = {
    "max_num_iterations": "max_iterations",
    "max_solver_time_in_seconds": "time_limit",
    "function_tolerance": "function_tolerance",
    "gradient_tolerance": "gradient_tolerance",
    "use_gpu": "device",
    "gpu_index": "device",
}
"""Ceres' options that are taken where they are not pycolmap's defaults, and what they become."""


def _flat(options: dict[str, Any]) -> dict[str, Any]:
    """Nested options by their own names; those of Caspar, which occur twice, with its name in front."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, dict):
            prefix = "caspar." if name == "caspar" else ""
            found |= {f"{prefix}{inner}": leaf for inner, leaf in _flat(value).items()}
        else:
            found[name] = value
    return found


def graph_of_model(model: ColmapModel, options: Options) -> Graph:
    """The graph of a model under these options; what is constant is fixed."""
    name = "the reconstruction"
    report = ReadReport(name, "colmap")
    graph = graph_of(model, name, report, options.refined, options.refine_sensor_from_rig, hides=True)
    poses, points = graph.vertex_set(POSE_TAG), graph.vertex_set(POINT_TAG)
    rows = _rows("image", model.images.ids, options.constant_images)
    constant = np.unique(places_of(model, name).owner[rows])
    poses.fixed[:] = np.isin(poses.ids, constant) | (not options.refine_rig_from_world)
    if options.constant_rig_from_world_rotation:
        graph.hold(poses.ids, range(3))  # the update of VERTEX_SE3:EXPMAP turns, then moves
    camera_rows = _rows("camera", np.array([camera.id for camera in model.cameras]), options.constant_cameras)
    for camera_set in graph.vertex_sets:
        if camera_set.type.tag.startswith("VERTEX_CAMERA_"):
            camera_set.fixed[np.isin(camera_set.ids, len(model.images.ids) + camera_rows)] = True
    short = np.diff(model.points.track_start) < options.min_track_length
    points.fixed[:] = short | (not options.refine_points3D)
    if not options.refine_points3D:
        points.marginalized[:] = False
    for edges in graph.edge_sets:
        edges.level[np.isin(edges.vertices[:, 1], points.ids[short])] = _INACTIVE
    kernel = LOSSES[options.loss_function_type]
    if kernel is not None:
        graph.set_robust_kernel(kernel, options.loss_function_scale)
    return graph


def _rows(what: str, ids: np.ndarray, wanted: Collection[int]) -> np.ndarray:
    """Rows of some ids; `OptionError` for one that the model does not have."""
    row_of = {identifier: row for row, identifier in enumerate(ids.tolist())}
    for identifier in wanted:
        if identifier not in row_of:
            raise OptionError(f"{what} {identifier} is to be constant, but the model has no such {what}.")
    return np.array([row_of[identifier] for identifier in wanted], np.int64)


def _first_centres(graph: Graph) -> np.ndarray | None:
    """(2, 3) centres of the first two frames; None where something else determines the scale."""
    poses, points = graph.vertex_set(POSE_TAG), graph.vertex_set(POINT_TAG)
    baselines = [
        np.abs(parameter_set.values[:, :3]).max(initial=0.0) for parameter_set in graph.parameter_sets
    ]
    if len(poses) < 2 or poses.fixed.sum() > 1 or points.fixed.any() or any(baselines):
        return None
    return _centres(poses.estimate[:2])


def _centres(cam_T_world: np.ndarray) -> np.ndarray:
    return np.asarray(SE3(cam_T_world).inverse().translation)


def _keep_scale(graph: Graph, before: np.ndarray) -> None:
    """Scale poses and points about the first frame, so that the second is as far from it as before."""
    poses, points = graph.vertex_set(POSE_TAG), graph.vertex_set(POINT_TAG)
    centres = _centres(poses.estimate)
    now = np.linalg.norm(centres[1] - centres[0])
    wanted = np.linalg.norm(before[1] - before[0])
    if not (np.isfinite(now) and now > 0.0 and wanted > 0.0):
        return
    origin, scale = centres[0], wanted / now
    points.estimate[:] = origin + scale * (points.estimate - origin)
    rotation = SE3(poses.estimate).rotation
    poses.estimate[:, :3] = -np.asarray(rotation.act(origin + scale * (centres - origin)))
    for vertex_set in graph.vertex_sets:
        if vertex_set.type.tag == SENSOR_TAG:
            vertex_set.estimate[:, :3] *= scale


def _take(reconstruction: Any, model: ColmapModel) -> None:
    """Put a model's numbers into the reconstruction it came from."""
    import pycolmap

    for camera in model.cameras:
        reconstruction.camera(camera.id).params = camera.params
    frames = model.frames
    for rig in model.rigs:
        _take_rig(reconstruction.rig(rig.id), rig)
    if frames is not None:
        for identifier, pose in zip(frames.ids.tolist(), frames.pose, strict=True):
            moved = pycolmap.Rigid3d(pycolmap.Rotation3d(pose[[1, 2, 3, 0]]), pose[4:])
            reconstruction.frame(identifier).rig_from_world = moved
    else:
        images = model.images
        for identifier, q, t in zip(images.ids.tolist(), images.quaternion, images.translation, strict=True):
            moved = pycolmap.Rigid3d(pycolmap.Rotation3d(q[[1, 2, 3, 0]]), t)
            reconstruction.image(identifier).cam_from_world = moved
    points = reconstruction.points3D
    for identifier, place, error in zip(
        model.points.ids.tolist(), model.points.xyz, model.points.error.tolist(), strict=True
    ):
        point = points[identifier]
        point.xyz, point.error = place, error


def _take_rig(target: Any, rig: ColmapRig) -> None:
    import pycolmap

    for sensor in rig.sensors:
        if sensor.type == CAMERA and sensor.pose is not None:
            moved = pycolmap.Rigid3d(pycolmap.Rotation3d(sensor.pose[[1, 2, 3, 0]]), sensor.pose[4:])
            target.set_sensor_from_rig(pycolmap.sensor_t(pycolmap.SensorType.CAMERA, sensor.id), moved)
