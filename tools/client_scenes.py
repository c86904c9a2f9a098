"""Small scenes for the optimizers of published SLAM programs, in the terms of each program.

One scene: eight cameras on a line see 60 points; pixels have noise of 1 px, one in twenty is a wrong match.
A driver builds from it the objects that a program's optimizer asks for (keyframes, map points, measurements),
calls the optimizer's own functions as the program does, and returns nothing: what is compared is the chi2 of
each optimization, which `client_worker` notes.
"""

from __future__ import annotations

import importlib
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np

CAMERA = SimpleNamespace(fx=450.0, fy=450.0, cx=320.0, cy=240.0, baseline=0.15, bf=67.5)


class Scene:
    """Poses (camera in the world), points, and who sees what where."""

    def __init__(self) -> None:
        random = np.random.default_rng(11)
        self.points = random.uniform([-3.0, -2.0, 5.0], [5.0, 2.0, 12.0], (60, 3))
        """(60, 3) points in the world [m]."""
        self.positions = np.array([[0.3 * i, 0.05 * np.sin(i), 0.0] for i in range(8)])
        """(8, 3) cameras in the world [m]; all look along z."""
        self.pixels = np.empty((8, 60, 3))
        """u, v, and u in the right camera [px]."""
        for i, position in enumerate(self.positions):
            x, y, z = (self.points - position).T
            u, v = CAMERA.fx * x / z + CAMERA.cx, CAMERA.fy * y / z + CAMERA.cy
            self.pixels[i] = np.stack([u, v, u - CAMERA.bf / z], axis=1)
        self.pixels += random.normal(0.0, 1.0, self.pixels.shape)
        self.pixels[:, ::20] += 25.0
        self.start_points = self.points + random.normal(0.0, 0.05, self.points.shape)
        self.start_positions = self.positions + random.normal(0.0, 0.03, self.positions.shape)
        self.start_positions[:2] = self.positions[:2]


class Named(SimpleNamespace):
    """An object with the attributes that it was given; usable as a key, ordered by its id."""

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __lt__(self, other: Any) -> bool:
        return self.id < other.id

    def __le__(self, other: Any) -> bool:
        return self.id <= other.id


# -------------------------------------------------------------------- stereo_ptam, rgbd_ptam


def _ptam_keyframes(g2o: Any, scene: Scene) -> list[Any]:
    points = [
        Named(id=i, position=start_point, update_position=_ignore)
        for i, start_point in enumerate(scene.start_points)
    ]
    keyframes = []
    for k, position in enumerate(scene.start_positions):
        pose = g2o.Isometry3d(g2o.Quaternion(), position)
        frame = Named(id=k, pose=pose, cam=CAMERA, orientation=pose.orientation(), position=pose.position())
        seen = [_ptam_measurement(point, scene.pixels[k, point.id], (k + point.id) % 4) for point in points]
        frame.measurements = lambda seen=seen: seen
        frame.update_pose = frame.update_reference = frame.update_preceding = _ignore
        frame.reference_keyframe = frame.preceding_keyframe = keyframes[-1] if keyframes else None
        step = scene.positions[k] - scene.positions[max(k - 1, 0)]
        frame.preceding_constraint = frame.reference_constraint = g2o.Isometry3d(g2o.Quaternion(), step)
        keyframes.append(frame)
    return keyframes


def _ptam_measurement(point: Any, pixel: np.ndarray, kind: int) -> Any:
    return Named(
        mappoint=point,
        xyx=pixel,
        xy=pixel[:2] if kind != 3 else pixel[[2, 1]],
        is_stereo=lambda: kind < 2,
        is_left=lambda: kind == 2,
        is_right=lambda: kind == 3,
        from_triangulation=lambda: True,
    )


def _ignore(*arguments: Any, **keywords: Any) -> None:
    """Programs put results back into their map; there is none."""


def run_ptam(g2o: Any) -> None:
    """Local bundle adjustment of the mapping thread; propagation and pose graph of loop closing."""
    optimization = importlib.import_module("optimization")
    for name in ("cv2", "components", "covisibility"):  # pictures and map, which loopclosing.py imports
        sys.modules.setdefault(name, StandIn(name))
    importlib.import_module("loopclosing")
    contrib = importlib.import_module("g2o.contrib")
    keyframes = _ptam_keyframes(g2o, Scene())
    local = optimization.LocalBA()
    local.set_data(keyframes[2:], keyframes[:2])
    local.optimize(10)
    local.get_bad_measurements()
    local.update_points()
    local.update_poses()
    graph = optimization.PoseGraphOptimization()
    back = g2o.Isometry3d(g2o.Quaternion(), Scene().positions[7] - Scene().positions[0])
    graph.set_data(keyframes, [(keyframes[0], keyframes[7], back)])
    contrib.SmoothEstimatePropagator(graph, max(20, len(keyframes) * 0.1)).propagate(graph.vertex(0))
    graph.optimize(20)
    graph.update_poses_and_points(keyframes, exclude={keyframes[1]})
    graph.update_poses_and_points(keyframes[-2:], correction=back.inverse() * back)


# -------------------------------------------------------------------- twitchslam


def run_twitchslam(g2o: Any) -> None:
    """Bundle adjustment of the last frames, then with fixed points; pixels are normalized."""
    scene = Scene()
    frames = []
    for k, position in enumerate(scene.start_positions):
        pose = np.eye(4)
        pose[:3, 3] = -position
        pixels = (scene.pixels[k, :, :2] - [CAMERA.cx, CAMERA.cy]) / CAMERA.fx
        frames.append(Named(id=k, pose=pose, kps=pixels))
    points = [
        Named(id=i, pt=np.append(start_point, 1.0), frames=frames, idxs=[i] * len(frames))
        for i, start_point in enumerate(scene.start_points)
    ]
    optimize = importlib.import_module("optimize_g2o").optimize
    optimize(frames, points, 6, False, rounds=10)
    optimize(frames, points, 6, True, rounds=10)


# -------------------------------------------------------------------- pyslam


class Settings:
    """A share of 0.8, or yes, whatever the setting's name."""

    def __getattr__(self, name: str) -> float:
        if name.startswith("__"):
            raise AttributeError(name)
        return 0.8


class Value(np.ndarray):
    """An array that is an attribute in old versions of a program and a method in new ones."""

    def __call__(self) -> np.ndarray:
        """The array."""
        return np.array(self)


class No:
    """False, as an attribute and as a method."""

    def __bool__(self) -> bool:
        return False

    def __call__(self) -> bool:
        """No."""
        return False


class StandIn(ModuleType):
    """A module of a program that its optimizer imports: names that matter here, and mocks for all others."""

    FrameShared = SimpleNamespace(feature_manager=SimpleNamespace(inv_level_sigmas2=[1.0]))
    Frame = FeatureTrackerShared = FrameShared
    MapPoint = SimpleNamespace(global_lock=threading.Lock())
    Parameters = Settings()

    @staticmethod
    def poseRt(rotation: Any, translation: Any) -> np.ndarray:
        """Homogeneous matrix."""
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = rotation, np.ravel(translation)
        return pose

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


def stand_in(names: list[str]) -> None:
    """Let these modules be imported."""
    for name in names:
        sys.modules[name] = StandIn(name)
        sys.modules[name].__path__ = []


def run_pyslam(g2o: Any, optimizer: ModuleType) -> None:
    """Bundle adjustment with two rounds, and the pose of one frame; monocular and stereo pixels."""
    scene = Scene()
    frames = [_pyslam_frame(scene, k) for k in range(len(scene.positions))]
    points = []
    for i, start_point in enumerate(scene.start_points):
        seen = [(frame, i) for frame in frames]
        points.append(
            Named(
                id=i,
                pt=start_point.view(Value),
                is_bad=No(),
                observations=lambda seen=seen: seen,
                update_position=_ignore,
                update_normal_and_depth=_ignore,
            )
        )
    optimizer.bundle_adjustment(frames, points, None, rounds=10, use_robust_kernel=True)
    frame = frames[5]
    frame.points, frame.outliers = points, np.zeros(len(points), bool)
    optimizer.pose_optimization(frame)


def _pyslam_frame(scene: Scene, k: int) -> Any:
    pixels = scene.pixels[k]
    translation = -scene.start_positions[k]
    right = np.where(np.arange(len(pixels)) % 2 == 0, pixels[:, 2], -1.0)
    return Named(
        id=k,
        kid=k,
        is_bad=No(),
        is_keyframe=True,
        Rcw=np.eye(3).view(Value),
        tcw=translation.view(Value),
        pose=StandIn.poseRt(np.eye(3), translation).view(Value),
        Tcw=StandIn.poseRt(np.eye(3), translation).view(Value),
        kps_sem=None,
        kpsu=pixels[:, :2],
        kps_ur=right,
        octaves=np.zeros(len(pixels), int),
        camera=CAMERA,
        update_pose=_ignore,
    )
