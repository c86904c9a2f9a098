"""The same bundle adjustment problem in other solvers, where they are installed.

| peer | model | what differs |
|---|---|---|
| pyceres | Ceres, through pycolmap's bundle adjuster (RADIAL) | none: BAL's camera |
| gtsam | `GeneralSFMFactorCal3Bundler`, Levenberg-Marquardt, METIS | none: BAL's camera |

BAL's camera looks along -z with y up; both peers' look along z with y down, so rows y and z of the pose
and the measured v change sign. The cost is ours, recomputed from the peer's estimates. g2opy registers
no edge with BAL's nine parameters, so it has no row here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.evaluate import optional
from graphopt.evaluate.bal import errors, sizes
from graphopt.evaluate.solve import chi2_before_and_after, timed_peer

if TYPE_CHECKING:
    from graphopt.graph import Graph

PEERS = ("pyceres", "gtsam")
_FLIP = np.diag([1.0, -1.0, -1.0])


def bal(name: str, path: str, peer: str, runs: int) -> dict[str, Any]:
    """The entry of one problem under one peer; `OptionError` where it is not installed."""
    import graphopt

    graph = graphopt.read(path)
    entry = solve(graph, peer, runs)
    return {"problem": name, "solver": peer, **sizes(graph), **entry, **errors(graph, entry)}


def solve(graph: Graph, peer: str, runs: int) -> dict[str, Any]:
    """Seconds, iterations and chi2 of one peer on a graph of BAL's cameras and points, the median run."""
    function = {"pyceres": _ceres, "gtsam": _gtsam}[peer]
    entry, (iterations, solved) = timed_peer(lambda: function(graph), runs)
    return entry | {"iterations": iterations, **chi2_before_and_after(graph, solved)}


def _arrays(graph: Any) -> tuple[Any, Any, Any, np.ndarray, np.ndarray]:
    """Camera set, point set, observations, and rows (m,) of both."""
    observations = graph.edge_set("EDGE_OBSERVATION_BAL")
    cameras = graph.vertex_set(observations.type.vertices[0].tag)
    points = graph.vertex_set(observations.type.vertices[1].tag)
    rows = [
        _rows(vertices.ids, observations.vertices[:, slot]) for slot, vertices in enumerate((cameras, points))
    ]
    return cameras, points, observations, rows[0], rows[1]


def _rows(ids: np.ndarray, requested: np.ndarray) -> np.ndarray:
    order = np.argsort(ids)
    return order[np.searchsorted(ids[order], requested)]


def _flipped_cameras(cameras: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rotations (n, 3, 3) and translations (n, 3) of cam_T_world for a camera that looks along z, y down."""
    from graphopt.geometry import SO3

    rotation = np.asarray(SO3.exp(cameras[:, :3]).to_matrix())
    return _FLIP @ rotation, cameras[:, 3:6] @ _FLIP


def _ceres(graph: Any) -> tuple[float, int, Any]:
    """Seconds, iterations, and the graph with Ceres' estimates, by way of COLMAP's bundle adjuster."""
    pycolmap = optional.load("pycolmap")
    cameras, points, observations, camera_rows, point_rows = _arrays(graph)
    rotation, translation = _flipped_cameras(cameras.estimate)
    scene = pycolmap.Reconstruction()
    pixels = observations.measurement * [1.0, -1.0]
    order = np.argsort(camera_rows, kind="stable")
    first = np.searchsorted(camera_rows[order], np.arange(len(cameras) + 1))
    tracks = [pycolmap.Track() for _ in range(len(points))]
    for row in range(len(cameras)):
        focal, k1, k2 = cameras.estimate[row, 6:]
        camera = pycolmap.Camera(
            camera_id=row + 1, model="RADIAL", width=1, height=1, params=[focal, 0, 0, k1, k2]
        )
        scene.add_camera_with_trivial_rig(camera)
        seen = order[first[row] : first[row + 1]]
        image = pycolmap.Image(f"{row}", pixels[seen], camera_id=row + 1, image_id=row + 1)
        pose = pycolmap.Rigid3d(pycolmap.Rotation3d(rotation[row]), translation[row])
        scene.add_image_with_trivial_frame(image, pose)
        for place, point in enumerate(point_rows[seen]):
            tracks[point].add_element(row + 1, place)
    for row, track in enumerate(tracks):
        scene.add_point3D_with_id(row + 1, pycolmap.Point3D(xyz=points.estimate[row], track=track))
        for element in track.elements:
            scene.image(element.image_id).set_point3D_for_point2D(element.point2D_idx, row + 1)

    options = pycolmap.BundleAdjustmentOptions()
    options.refine_focal_length = options.refine_extra_params = True
    options.refine_principal_point = options.print_summary = False
    options.min_track_length = 0
    config = pycolmap.BundleAdjustmentConfig()
    for identifier in scene.images:
        config.add_image(identifier)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    started = time.perf_counter()
    summary = pycolmap.create_default_bundle_adjuster(options, config, scene).solve()
    seconds = time.perf_counter() - started

    solved = graph.copy()
    poses = [scene.image(row + 1).cam_from_world() for row in range(len(cameras))]
    taken = [scene.camera(row + 1).params[[0, 3, 4]] for row in range(len(cameras))]
    _take(
        solved,
        cameras,
        _unflipped([pose.rotation.matrix() for pose in poses], [pose.translation for pose in poses], taken),
    )
    _take(solved, points, np.array([scene.point3D(row + 1).xyz for row in range(len(points))]))
    done = summary.ceres_summary
    return seconds, done.num_successful_steps + done.num_unsuccessful_steps, solved


def _gtsam(graph: Any) -> tuple[float, int, Any]:
    """Seconds, iterations, and the graph with GTSAM's estimates."""
    gtsam = optional.load("gtsam")
    cameras, points, observations, camera_rows, point_rows = _arrays(graph)
    rotation, translation = _flipped_cameras(cameras.estimate)
    camera_key, point_key = gtsam.symbol_shorthand.C, gtsam.symbol_shorthand.P
    noise = gtsam.noiseModel.Isotropic.Sigma(2, 1.0)
    factors, start = gtsam.NonlinearFactorGraph(), gtsam.Values()
    pixels = observations.measurement * [1.0, -1.0]
    for pixel, camera, point in zip(pixels, camera_rows.tolist(), point_rows.tolist(), strict=True):
        factors.add(gtsam.GeneralSFMFactorCal3Bundler(pixel, noise, camera_key(camera), point_key(point)))
    for row, (focal, k1, k2) in enumerate(cameras.estimate[:, 6:]):
        world_T_cam = gtsam.Pose3(gtsam.Rot3(rotation[row]), translation[row]).inverse()
        start.insert(
            camera_key(row),
            gtsam.PinholeCameraCal3Bundler(world_T_cam, gtsam.Cal3Bundler(focal, k1, k2, 0, 0)),
        )
    for row, place in enumerate(points.estimate):
        start.insert(point_key(row), place)
    started = time.perf_counter()
    parameters = gtsam.LevenbergMarquardtParams.CeresDefaults()
    parameters.setOrderingType("METIS")
    optimizer = gtsam.LevenbergMarquardtOptimizer(factors, start, parameters)
    result = optimizer.optimize()
    seconds = time.perf_counter() - started

    solved = graph.copy()
    refined = [result.atPinholeCameraCal3Bundler(camera_key(row)) for row in range(len(cameras))]
    poses = [vertex.pose().inverse() for vertex in refined]
    inner = [
        [camera.calibration().fx(), camera.calibration().k1(), camera.calibration().k2()]
        for camera in refined
    ]
    _take(
        solved,
        cameras,
        _unflipped(
            [pose.rotation().matrix() for pose in poses], [pose.translation() for pose in poses], inner
        ),
    )
    _take(solved, points, np.array([result.atPoint3(point_key(row)) for row in range(len(points))]))
    return seconds, optimizer.iterations(), solved


def _unflipped(rotations: Any, translations: Any, intrinsics: Any) -> np.ndarray:
    """(n, 9) estimates of BAL cameras: the inverse of `_flipped_cameras`."""
    from graphopt.geometry import SO3

    rotation = _FLIP @ np.asarray(rotations)
    angle_axis = np.asarray(SO3.from_matrix(rotation).log())
    return np.concatenate([angle_axis, np.asarray(translations) @ _FLIP, np.asarray(intrinsics)], axis=1)


def _take(graph: Any, vertex_set: Any, estimate: np.ndarray) -> None:
    graph.vertex_set(vertex_set.type.tag).estimate[:] = estimate
