"""The optimizations of a visual-inertial SLAM, one file each; all take a `Map` and return a `Result`."""

from slam_bridge.problems.full_inertial_ba import full_inertial_ba
from slam_bridge.problems.global_ba import global_ba
from slam_bridge.problems.local_ba import local_ba
from slam_bridge.problems.local_inertial_ba import local_inertial_ba
from slam_bridge.problems.options import SolveOptions
from slam_bridge.problems.result import Result, States

__all__ = [
    "Result",
    "SolveOptions",
    "States",
    "full_inertial_ba",
    "global_ba",
    "local_ba",
    "local_inertial_ba",
]
