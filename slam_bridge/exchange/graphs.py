"""Maps to and from graphs, and with them .g2o files and the drop-in's objects; robust kernels are kept.

    graph = graph_of_map(world)                       g2o's own types: keyframes, landmarks, pixels
    graphopt.write(graph, "map.g2o")
    world = map_of_graph(graphopt.read("map.g2o"))
    world = map_of_graph(optimizer.graph())           a `graphopt.g2o.SparseOptimizer`

    map                        form "g2o": vertex, edge                form "states"
    pose of keyframe in row k  VERTEX_SE3:EXPMAP k, cam_T_world        VERTEX_SE3:QUAT 4 k, world_T_body
    landmark in row m          VERTEX_TRACKXYZ K + m                   VERTEX_TRACKXYZ 4 K + m
    pixel                      EDGE_SE3_PROJECT_XYZ:EXPMAP             EDGE_VI_PIXEL_*
    pixel with right column    EDGE_STEREO_SE3_PROJECT_XYZ:EXPMAP      EDGE_VI_STEREO
    IMU, priors                -                                       EDGE_IMU_INERTIAL_COMBINED, ...

Form "g2o" is what ORB-SLAM hands to g2o: one pinhole camera, whose mounting goes into the poses. Form
"states" is a `Window`'s graph and holds everything, for graphopt only. A graph has no times, no mounting of
g2o's cameras and no IMU samples: read maps have the keyframe's number in seconds for stamps, and cameras that
are the body.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import graphopt
from graphopt.errors import OptionError
from graphopt.geometry import SE3
from graphopt.graph.sets import EdgeSet
from graphopt.strategies.quantiles import chi2_quantile
from graphopt.types import inertial, sba, slam3d, visual_inertial
from graphopt.types.robust_kernels import robust_kernel
from slam_bridge.cameras import Camera, world_T_body_from_cam_T_world
from slam_bridge.map import Map
from slam_bridge.options import SolveOptions
from slam_bridge.selection import select
from slam_bridge.window import Window

FORMS = ("g2o", "states")
_SECOND = 1_000_000_000
_IDENTITY = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])


def graph_of_map(world: Map, form: str = "g2o", options: SolveOptions | None = None) -> graphopt.Graph:
    """The graph of a whole map, with the robust kernel of `options`; the columns `fixed` are kept.

    Raises `OptionError` where form "g2o" cannot hold the map: several cameras, distortion, depths.
    """
    if form not in FORMS:
        raise OptionError(f"form is {form!r}, expected one of {', '.join(FORMS)}.")
    options = options or SolveOptions()
    if form == "g2o":
        return _sba_graph(world, options)
    frames = world.keyframes
    inertial_ids = frames.ids[frames["has_states"]] if len(world.imu) else ()
    return Window(hold_gauge=False).load(select(world, frames.ids, inertial=inertial_ids), options)


def _sba_graph(world: Map, options: SolveOptions) -> graphopt.Graph:
    with world.lock:
        camera = _only_pinhole(world)
        seen, frames = world.observations, world.keyframes
        graph = graphopt.Graph()
        count, points = len(frames), len(world.landmarks)
        poses = (SE3(frames["world_T_body"]) * SE3(camera.body_T_cam)).inverse().storage
        graph.add_vertices(sba.VertexSE3Expmap, np.arange(count), poses, fixed=frames["fixed"])
        graph.add_vertices(
            slam3d.VertexPointXYZ, count + np.arange(points), world.landmarks["position"], marginalized=True
        )
        ends = [count + world.landmarks.rows(seen["landmark"]), frames.rows(seen["keyframe"])]
        stereo = np.isfinite(seen["right"])
        baseline = camera.baseline or 0.0
        for kind, rows, image, constants in (
            (sba.EdgeSE3ProjectXYZ, np.flatnonzero(~stereo), ("pixel",), camera.intrinsics),
            (
                sba.EdgeStereoSE3ProjectXYZ,
                np.flatnonzero(stereo),
                ("pixel", "right"),
                np.append(camera.intrinsics, baseline * camera.intrinsics[0]),
            ),
        ):
            if not len(rows):
                continue
            measured = np.concatenate([seen[name][rows].reshape(len(rows), -1) for name in image], axis=1)
            dim = measured.shape[1]
            values = np.concatenate([measured, np.tile(constants, (len(rows), 1))], axis=1)
            information = seen["sigma"][rows, None, None] ** -2.0 * np.eye(dim)
            graph.add_edges(kind, np.stack([end[rows] for end in ends], axis=1), values, information)
            width = chi2_quantile(options.confidence, dim) ** 0.5
            graph.set_robust_kernel(options.kernel, width, kind)
        return graph


def _only_pinhole(world: Map) -> Camera:
    cameras = list(world.rig or ())
    instead = "Use form='states', or a .vib file."
    if len(cameras) != 1 or cameras[0].model != "pinhole":
        names = ", ".join(camera.model for camera in cameras) or "no camera"
        raise OptionError(f"g2o's projections are of one pinhole camera; the map has {names}. {instead}")
    if np.isfinite(world.observations["depth"]).any():
        raise OptionError(f"g2o's projections have no depths; the map has RGB-D observations. {instead}")
    return cameras[0]


def map_of_graph(graph: graphopt.Graph, visual_only: bool = False) -> Map:
    """The map of a graph of poses, points and projections; ids ascend as in the graph.

    Poses are VERTEX_SE3:EXPMAP (the camera is the body) or VERTEX_SE3:QUAT. visual_only: leave IMU
    measurements out, which have no samples in a graph. Raises `OptionError` for edges that a map cannot hold.
    """
    if len(_set_of(graph.edge_sets, inertial.EdgeInertialCombined) or ()) and not visual_only:
        raise OptionError(
            "the graph has IMU measurements, but not their samples, which a map needs: keep maps with an IMU "
            "in .vib files, or ask for visual_only."
        )
    poses, points = _poses(graph), _set_of(graph.vertex_sets, slam3d.VertexPointXYZ)
    parts = [part for edges in graph.edge_sets if len(edges) for part in _parts(graph, edges, visual_only)]
    if points is None or not parts:
        raise OptionError("the graph has no landmarks that cameras observe; expected projections of points.")
    return _map_of(poses, points, parts)


def options_of_graph(graph: graphopt.Graph) -> SolveOptions:
    """Options with the robust kernel of a graph's projections, its width as `confidence`."""
    from scipy.special import chdtr

    for edges in graph.edge_sets:
        if len(edges) and edges.type.tag in (*_SBA, *_VI):
            number = int(edges.kernel[0])
            if not number:
                return SolveOptions(kernel=None)
            confidence = float(chdtr(edges.type.residual_dim, float(edges.kernel_width[0]) ** 2))
            name = robust_kernel(number).name
            return SolveOptions(kernel=name, confidence=min(max(confidence, 1e-6), 1.0 - 1e-12))
    raise OptionError("the graph has no projections of landmarks, so no kernel of theirs.")


def optimizer_of_map(world: Map, options: SolveOptions | None = None) -> Any:
    """The drop-in's objects of form "g2o": a `graphopt.g2o.SparseOptimizer` without an algorithm."""
    import graphopt.g2o as g2o

    graph, optimizer = graph_of_map(world, options=options), g2o.SparseOptimizer()
    for kind, make, value_of in (
        (sba.VertexSE3Expmap, g2o.VertexSE3Expmap, _se3_quat),
        (slam3d.VertexPointXYZ, g2o.VertexPointXYZ, np.asarray),
    ):
        vertices = _set_of(graph.vertex_sets, kind)
        for row, id_ in enumerate(vertices.ids.tolist()):
            vertex: Any = make()
            vertex.set_id(id_)
            vertex.set_estimate(value_of(vertices.estimate[row]))
            vertex.set_fixed(bool(vertices.fixed[row]))
            vertex.set_marginalized(bool(vertices.marginalized[row]))
            optimizer.add_vertex(vertex)
    for edges in graph.edge_sets:
        make = getattr(g2o, edges.type.name)
        dim, number = edges.type.residual_dim, int(edges.kernel[0]) if len(edges) else 0
        kernel = robust_kernel(number).name
        for row in range(len(edges)):
            edge: Any = make()
            edge.set_vertex(0, optimizer.vertex(int(edges.vertices[row, 0])))
            edge.set_vertex(1, optimizer.vertex(int(edges.vertices[row, 1])))
            edge.set_measurement(edges.measurement[row, :dim])
            edge.set_information(edges.information[row])
            names = ("fx", "fy", "cx", "cy", "bf")
            for name, value in zip(names, edges.measurement[row, dim:].tolist(), strict=False):
                setattr(edge, name, value)
            if number:
                edge.set_robust_kernel(getattr(g2o, f"RobustKernel{kernel}")(float(edges.kernel_width[row])))
            optimizer.add_edge(edge)
    return optimizer


def _se3_quat(storage: np.ndarray) -> Any:
    from graphopt.g2o import Quaternion, SE3Quat

    return SE3Quat(Quaternion(storage[6], *storage[3:6]), storage[:3])


# ------------------------------------------------------------------------ from graphs

_SBA = {
    sba.EdgeSE3ProjectXYZ.tag: sba.EdgeSE3ProjectXYZ,
    sba.EdgeStereoSE3ProjectXYZ.tag: sba.EdgeStereoSE3ProjectXYZ,
    sba.EdgeProjectXYZ2UV.tag: sba.EdgeProjectXYZ2UV,
    sba.EdgeProjectXYZ2UVU.tag: sba.EdgeProjectXYZ2UVU,
}
_VI = {pixel_edge.tag: model for model, pixel_edge in visual_inertial.PIXEL_EDGES.items()}
_VI[visual_inertial.EdgeStereo.tag] = "pinhole"
_KEPT_APART = (inertial.EdgeInertialCombined.tag, slam3d.EdgeSE3Prior.tag)


def _set_of(sets: Any, kind: Any) -> Any:
    """The set of a type; None where there is none."""
    return next((set_ for set_ in sets if set_.type is kind), None)


def _constants(graph: graphopt.Graph, kind: Any, ids: np.ndarray) -> np.ndarray:
    """(n, d) values of parameters by id."""
    parameters = _set_of(graph.parameter_sets, kind)
    order = np.argsort(parameters.ids)
    return parameters.values[order[np.searchsorted(parameters.ids[order], ids)]]


class _Part:
    """Observations of edges of one set by one camera."""

    def __init__(self, edges: EdgeSet, rows: np.ndarray, camera: Camera, flipped: bool):
        self.camera = camera
        self.pose, self.point = edges.vertices[rows][:, [1, 0] if flipped else [0, 1]].T
        dim = edges.type.residual_dim
        self.image = edges.measurement[rows, :dim]
        information = edges.information[rows]
        diagonal = np.einsum("eii->ei", information)
        if not (diagonal > 0.0).all() or not np.allclose(information, diagonal[:, :1, None] * np.eye(dim)):
            raise OptionError(
                f"{edges.type.tag}: information is not 1 / sigma^2 times the identity, which is all that an "
                "observation of a map has."
            )
        self.sigma = diagonal[:, 0] ** -0.5


def _poses(graph: graphopt.Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids, world_T_body (k, 7) and fixed of the vertices that are poses."""
    for kind in (sba.VertexSE3Expmap, slam3d.VertexSE3):
        vertices = _set_of(graph.vertex_sets, kind)
        if vertices is not None and len(vertices):
            values = vertices.estimate
            if kind is sba.VertexSE3Expmap:
                values = world_T_body_from_cam_T_world(values, _IDENTITY)
            return vertices.ids, np.array(values), vertices.fixed
    raise OptionError("the graph has no poses: expected VERTEX_SE3:EXPMAP or VERTEX_SE3:QUAT.")


def _parts(graph: graphopt.Graph, edges: EdgeSet, visual_only: bool) -> list[_Part]:
    tag, rows = edges.type.tag, np.arange(len(edges))
    if tag in _SBA:
        dim = edges.type.residual_dim
        constants = edges.measurement[:, dim:]
        if edges.parameters.shape[1]:
            f, cx, cy, baseline = _constants(graph, sba.CameraParameters, edges.parameters[:, 0]).T
            constants = np.stack([f, f, cx, cy, f * baseline], axis=1)[:, : 5 if dim == 3 else 4]
        distinct, of = np.unique(constants, axis=0, return_inverse=True)
        return [
            _Part(edges, np.flatnonzero(of.ravel() == k), _pinhole(camera), True)
            for k, camera in enumerate(distinct)
        ]
    if tag in _VI:
        pairs, of = np.unique(edges.parameters, axis=0, return_inverse=True)
        return [
            _Part(edges, rows[of.ravel() == k], _vi_camera(graph, tag, pair), False)
            for k, pair in enumerate(pairs)
        ]
    if visual_only or tag in _KEPT_APART:
        return []
    raise OptionError(f"the graph has {len(edges)} edges {tag}, which a map does not hold.")


def _pinhole(constants: np.ndarray) -> Camera:
    """Of fx, fy, cx, cy and for a pair bf; a bf of zero is no pair."""
    baseline = constants[4] / constants[0] if len(constants) > 4 else 0.0
    return Camera.pinhole(_IDENTITY, *constants[:4], baseline=baseline if baseline > 0.0 else None)


def _vi_camera(graph: graphopt.Graph, tag: str, pair: np.ndarray) -> Camera:
    mounting = _constants(graph, slam3d.ParameterSE3Offset, pair[:1])[0]
    if tag == visual_inertial.EdgeStereo.tag:
        values = _constants(graph, visual_inertial.ParameterStereoCamera, pair[1:])[0]
        return Camera.pinhole(mounting, *values[:4], baseline=values[4])
    kind = visual_inertial.INTRINSICS_PARAMETERS[_VI[tag]]
    return Camera(mounting, _VI[tag], _constants(graph, kind, pair[1:])[0])


def _map_of(poses: tuple[np.ndarray, np.ndarray, np.ndarray], points: Any, parts: list[_Part]) -> Map:
    cameras: list[Camera] = []
    numbers = [_camera_number(cameras, part.camera) for part in parts]
    world = Map(cameras)
    ids, values, fixed = poses
    order = np.argsort(ids)
    frames = world.add_keyframes(np.arange(len(ids)) * _SECOND, values[order], fixed=fixed[order])
    by_id = np.argsort(points.ids)
    landmarks = world.add_landmarks(points.estimate[by_id])
    for part, number in zip(parts, numbers, strict=True):
        right = part.image[:, 2] if part.image.shape[1] == 3 else np.nan
        world.add_observations(
            frames[np.searchsorted(ids[order], part.pose)],
            landmarks[np.searchsorted(points.ids[by_id], part.point)],
            part.image[:, :2],
            number,
            right,
            sigma=part.sigma,
        )
    return world


def _camera_number(cameras: list[Camera], camera: Camera) -> int:
    """Number of a camera among those found; a pixel's camera and a pair's left one are the same."""
    for number, known in enumerate(cameras):
        alike = known.model == camera.model and np.array_equal(known.body_T_cam, camera.body_T_cam)
        if alike and np.array_equal(known.intrinsics, camera.intrinsics):
            if None in (known.baseline, camera.baseline) or known.baseline == camera.baseline:
                cameras[number] = camera if known.baseline is None else known
                return number
    cameras.append(camera)
    return len(cameras) - 1
