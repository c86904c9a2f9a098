"""Visual-inertial SLAM on graphopt: preintegration, inertial BA, initialization, pose graph, readers.

imu = slam_bridge.read_imu("mav0/imu0/data.csv")
noise = slam_bridge.ImuNoise()
factors = [slam_bridge.preintegrate(imu.between(a, b), noise) for a, b in zip(stamps[:-1], stamps[1:])]
window = slam_bridge.InertialWindow(slam_bridge.Keyframes.start(poses), factors, visual)
result = slam_bridge.solve(window)
"""

from slam_bridge.imu import GRAVITY, ImuDataError, ImuNoise, ImuSamples
from slam_bridge.inertial_ba import InertialOptions, InertialResult, InertialWindow, build_graph, solve
from slam_bridge.initialization import InertialStart, initialize
from slam_bridge.pose_graph import (
    PoseGraphOptions,
    PoseGraphResult,
    PoseLinks,
    close_loops,
    moved_points,
    pose_graph,
)
from slam_bridge.preintegration import Preintegrated, preintegrate
from slam_bridge.readers import StateTable, read_imu, read_states
from slam_bridge.window import (
    Camera,
    Keyframes,
    PosePriors,
    Visual,
    WindowError,
    cam_T_world_from_world_T_body,
    world_T_body_from_cam_T_world,
)

__all__ = [
    "GRAVITY",
    "Camera",
    "ImuDataError",
    "ImuNoise",
    "ImuSamples",
    "InertialOptions",
    "InertialResult",
    "InertialStart",
    "InertialWindow",
    "Keyframes",
    "PoseGraphOptions",
    "PoseGraphResult",
    "PoseLinks",
    "PosePriors",
    "Preintegrated",
    "StateTable",
    "Visual",
    "WindowError",
    "build_graph",
    "cam_T_world_from_world_T_body",
    "close_loops",
    "initialize",
    "moved_points",
    "pose_graph",
    "preintegrate",
    "read_imu",
    "read_states",
    "solve",
    "world_T_body_from_cam_T_world",
]
