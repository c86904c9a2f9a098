"""Visual-inertial SLAM on graphopt: map, cameras, preintegration, and the optimizations of a SLAM program.

map = slam_bridge.Map(rig)
...
result = slam_bridge.local_inertial_ba(map, keyframes)
"""

from slam_bridge.arrays import Keyframes, PosePriors, Visual, WindowError
from slam_bridge.cameras import (
    Camera,
    CameraError,
    Rig,
    cam_T_world_from_world_T_body,
    pose_of_matrix,
    world_T_body_from_cam_T_world,
)
from slam_bridge.imu import (
    GRAVITY,
    ImuCalibration,
    ImuDataError,
    ImuNoise,
    ImuSamples,
    ImuTidied,
    gravity_of,
)
from slam_bridge.inertial_ba import InertialOptions, InertialResult, InertialWindow, build_graph, solve
from slam_bridge.initialization import InertialStart, initialize
from slam_bridge.map import Map
from slam_bridge.marginal_prior import MarginalPrior
from slam_bridge.pose_graph import (
    PoseGraphOptions,
    PoseGraphResult,
    PoseLinks,
    close_loops,
    moved_points,
    pose_graph,
)
from slam_bridge.preintegration import (
    Preintegrated,
    Preintegrator,
    preintegrate,
    preintegrate_intervals,
    preintegrate_many,
)
from slam_bridge.problems import (
    Result,
    SolveOptions,
    States,
    full_inertial_ba,
    global_ba,
    local_ba,
    local_inertial_ba,
)
from slam_bridge.readers import Calibration, StateTable, read_calibration, read_imu, read_states
from slam_bridge.tables import MapError, Table
from slam_bridge.window import Window

__all__ = [
    "GRAVITY",
    "Calibration",
    "Camera",
    "CameraError",
    "ImuCalibration",
    "ImuDataError",
    "ImuNoise",
    "ImuSamples",
    "ImuTidied",
    "InertialOptions",
    "InertialResult",
    "InertialStart",
    "InertialWindow",
    "Keyframes",
    "Map",
    "MapError",
    "MarginalPrior",
    "PoseGraphOptions",
    "PoseGraphResult",
    "PoseLinks",
    "PosePriors",
    "Preintegrated",
    "Preintegrator",
    "Result",
    "Rig",
    "SolveOptions",
    "StateTable",
    "States",
    "Table",
    "Visual",
    "Window",
    "WindowError",
    "build_graph",
    "cam_T_world_from_world_T_body",
    "close_loops",
    "full_inertial_ba",
    "global_ba",
    "gravity_of",
    "initialize",
    "local_ba",
    "local_inertial_ba",
    "moved_points",
    "pose_graph",
    "pose_of_matrix",
    "preintegrate",
    "preintegrate_intervals",
    "preintegrate_many",
    "read_calibration",
    "read_imu",
    "read_states",
    "solve",
    "world_T_body_from_cam_T_world",
]
