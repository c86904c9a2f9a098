"""The optimizations of a visual-inertial SLAM, one file each; all return a `Result`."""

from slam_bridge.options import SolveOptions
from slam_bridge.problems.essential_graph_optimization import (
    Links,
    essential_graph_optimization,
    essential_links,
)
from slam_bridge.problems.frame import FrameGraph, FrameObservations
from slam_bridge.problems.full_inertial_ba import full_inertial_ba
from slam_bridge.problems.global_ba import global_ba
from slam_bridge.problems.inertial_initialization import (
    InertialStart,
    InitializationOptions,
    inertial_initialization,
    initialize,
)
from slam_bridge.problems.landmark_covariance import landmark_covariances
from slam_bridge.problems.local_ba import local_ba
from slam_bridge.problems.local_inertial_ba import local_inertial_ba
from slam_bridge.problems.marginalize import marginalize
from slam_bridge.problems.pose_inertial_optimization import (
    FrameState,
    InertialFrameGraph,
    pose_inertial_optimization,
)
from slam_bridge.problems.pose_optimization import keyframe_pose_optimization, pose_optimization
from slam_bridge.problems.relocalize import relocalize
from slam_bridge.problems.result import Result, States
from slam_bridge.problems.sim3_alignment import sim3_alignment, umeyama

__all__ = [
    "FrameGraph",
    "FrameObservations",
    "FrameState",
    "InertialFrameGraph",
    "InertialStart",
    "InitializationOptions",
    "Links",
    "Result",
    "SolveOptions",
    "States",
    "essential_graph_optimization",
    "essential_links",
    "full_inertial_ba",
    "global_ba",
    "inertial_initialization",
    "initialize",
    "keyframe_pose_optimization",
    "landmark_covariances",
    "local_ba",
    "local_inertial_ba",
    "marginalize",
    "pose_inertial_optimization",
    "pose_optimization",
    "relocalize",
    "sim3_alignment",
    "umeyama",
]
