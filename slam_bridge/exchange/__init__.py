"""Visual-inertial problems in files, and to and from other programs."""

from slam_bridge.exchange.errors import normalised_errors, truth_errors
from slam_bridge.exchange.problem import Truth, VibProblem
from slam_bridge.exchange.solve import Solved, solve_problem
from slam_bridge.exchange.vib import is_vib, read_vib, write_vib

__all__ = [
    "Solved",
    "Truth",
    "VibProblem",
    "is_vib",
    "normalised_errors",
    "read_vib",
    "solve_problem",
    "truth_errors",
    "write_vib",
]
