"""Visual-inertial SLAM on graphopt: map, cameras, preintegration, and the optimizations of a SLAM program.

world = slam_bridge.Map(rig)
...
result = slam_bridge.local_inertial_ba(world, keyframes)
"""

from slam_bridge import problems, vib  # noqa: F401  (vib: how maps are saved)
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
from slam_bridge.problems import *  # noqa: F403 - problems.__all__
from slam_bridge.readers import Calibration, StateTable, read_calibration, read_imu, read_states
from slam_bridge.tables import MapError, Table
from slam_bridge.window import Window

__all__ = [
    "GRAVITY",
    "Backend",
    "Calibration",
    "Camera",
    "CameraError",
    "ImuCalibration",
    "ImuDataError",
    "ImuNoise",
    "ImuSamples",
    "ImuTidied",
    "Map",
    "MapError",
    "MarginalPrior",
    "Preintegrated",
    "Preintegrator",
    "Rig",
    "StateTable",
    "Table",
    "Window",
    "cam_T_world_from_world_T_body",
    "gravity_of",
    "pose_of_matrix",
    "preintegrate",
    "preintegrate_intervals",
    "preintegrate_many",
    "read_calibration",
    "read_imu",
    "read_states",
    "world_T_body_from_cam_T_world",
]
__all__ += problems.__all__
