"""Visual-inertial SLAM on graphopt: map, cameras, preintegration, and the optimizations of a SLAM program.

world = slam_bridge.Map(rig)
...
result = slam_bridge.local_inertial_ba(world, keyframes)
"""

from slam_bridge.backend import Backend
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
from slam_bridge.map import Map
from slam_bridge.marginal_prior import MarginalPrior
from slam_bridge.preintegration import (
    Preintegrated,
    Preintegrator,
    preintegrate,
    preintegrate_intervals,
    preintegrate_many,
)
from slam_bridge.problems import (
    FrameGraph,
    FrameObservations,
    FrameState,
    InertialFrameGraph,
    InertialStart,
    InitializationOptions,
    Links,
    Result,
    SolveOptions,
    States,
    essential_graph_optimization,
    essential_links,
    full_inertial_ba,
    global_ba,
    inertial_initialization,
    initialize,
    keyframe_pose_optimization,
    landmark_covariances,
    local_ba,
    local_inertial_ba,
    marginalize,
    pose_inertial_optimization,
    pose_optimization,
    relocalize,
    sim3_alignment,
    umeyama,
)
from slam_bridge.readers import Calibration, StateTable, read_calibration, read_imu, read_states
from slam_bridge.tables import MapError, Table
from slam_bridge.window import Window

__all__ = [
    "GRAVITY",
    "Backend",
    "Calibration",
    "Camera",
    "CameraError",
    "FrameGraph",
    "FrameObservations",
    "FrameState",
    "ImuCalibration",
    "ImuDataError",
    "ImuNoise",
    "ImuSamples",
    "ImuTidied",
    "InertialFrameGraph",
    "InertialStart",
    "InitializationOptions",
    "Links",
    "Map",
    "MapError",
    "MarginalPrior",
    "Preintegrated",
    "Preintegrator",
    "Result",
    "Rig",
    "SolveOptions",
    "StateTable",
    "States",
    "Table",
    "Window",
    "cam_T_world_from_world_T_body",
    "essential_graph_optimization",
    "essential_links",
    "full_inertial_ba",
    "global_ba",
    "gravity_of",
    "inertial_initialization",
    "initialize",
    "keyframe_pose_optimization",
    "landmark_covariances",
    "local_ba",
    "local_inertial_ba",
    "marginalize",
    "pose_inertial_optimization",
    "pose_of_matrix",
    "pose_optimization",
    "preintegrate",
    "preintegrate_intervals",
    "preintegrate_many",
    "read_calibration",
    "read_imu",
    "read_states",
    "relocalize",
    "sim3_alignment",
    "umeyama",
    "world_T_body_from_cam_T_world",
]
