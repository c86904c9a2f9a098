"""Visual-inertial problems in files, and to and from other programs."""

from slam_bridge.exchange.colmap import map_of_model, model_of_map, read_colmap_map, write_colmap_map
from slam_bridge.exchange.convert import read_map_file, write_map_file
from slam_bridge.exchange.errors import normalised_errors, normalised_squares, truth_errors
from slam_bridge.exchange.graphs import graph_of_map, map_of_graph, optimizer_of_map, options_of_graph
from slam_bridge.exchange.osmap import read_osmap, write_osmap
from slam_bridge.exchange.pyslam import read_pyslam_map, write_pyslam_map
from slam_bridge.exchange.solve import Solved, solve_problem
from slam_bridge.vib import is_vib, read_vib, write_vib
from slam_bridge.vib_problem import Truth, VibProblem

__all__ = [
    "Solved",
    "Truth",
    "VibProblem",
    "graph_of_map",
    "is_vib",
    "map_of_graph",
    "map_of_model",
    "model_of_map",
    "normalised_errors",
    "normalised_squares",
    "optimizer_of_map",
    "options_of_graph",
    "read_colmap_map",
    "read_map_file",
    "read_osmap",
    "read_pyslam_map",
    "read_vib",
    "solve_problem",
    "truth_errors",
    "write_colmap_map",
    "write_map_file",
    "write_osmap",
    "write_pyslam_map",
    "write_vib",
]
