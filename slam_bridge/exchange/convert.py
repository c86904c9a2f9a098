"""Maps from one program's file to another's: what `graphopt convert` does where one of them is a map.

.vib                 visual-inertial problem                read, written
.npz                 a map of an older version              read
.json, its folder    pySLAM's map                           read, written
.yaml                ORB-SLAM by Osmap                      read, written
folder               COLMAP sparse model                    read, written
.g2o                 g2o's types of one pinhole camera; of other rigs a window's graph (form "states")
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import graphopt
from graphopt.errors import FormatError, OptionError
from slam_bridge.exchange.colmap import read_colmap_map, write_colmap_map
from slam_bridge.exchange.graphs import graph_of_map, map_of_graph
from slam_bridge.exchange.osmap import read_osmap, write_osmap
from slam_bridge.exchange.pyslam import read_pyslam_map, write_pyslam_map
from slam_bridge.map import Map
from slam_bridge.vib import read_vib, write_vib
from slam_bridge.vib_problem import VibProblem

_SUFFIXES = {
    ".vib": "vib", ".npz": "npz", ".json": "pyslam", ".yaml": "osmap", ".yml": "osmap", ".osa": "osmap",
    ".g2o": "g2o", "": "colmap",
}  # fmt: skip
_KEPT = {
    "colmap": (),
    "osmap": ("standard deviations",),
    "pyslam": ("standard deviations", "right columns"),
    "g2o": ("standard deviations", "right columns", "depths"),
}
"""What a format has a place for, of `_contents`."""


def map_format(path: str | os.PathLike[str]) -> str:
    """Format of a map's file by its name; `OptionError` for others."""
    format = _SUFFIXES.get(Path(path).suffix.lower())
    if format is None:
        known = ", ".join(suffix for suffix in _SUFFIXES if suffix)
        raise OptionError(f"{os.fspath(path)}: no file of a map, expected {known}, or a folder for COLMAP.")
    if format == "colmap" and (Path(path) / "map.json").is_file():
        return "pyslam"
    return format


def read_map_file(path: str | os.PathLike[str]) -> VibProblem:
    """The map in a file of any of these formats; `FormatError`, `OSError` as its reader raises them."""
    kind = map_format(path)
    if kind == "vib":
        return read_vib(path)
    if kind == "npz":
        return VibProblem(Map.load(path))
    if kind == "pyslam":
        return VibProblem(read_pyslam_map(path))
    if kind == "osmap":
        return VibProblem(read_osmap(path))
    if kind == "colmap":
        return VibProblem(read_colmap_map(path))
    try:
        return VibProblem(map_of_graph(graphopt.read(path)))
    except OptionError as error:
        raise FormatError(f"{os.fspath(path)}: {error}") from error


def write_map_file(problem: VibProblem | Map, path: str | os.PathLike[str]) -> list[str]:
    """Write a map in the format that the name asks for; the sentences say what that has no place for."""
    problem = VibProblem.of(problem)
    kind, world = map_format(path), problem.map
    lost = [] if kind == "vib" else [f"the {name}" for name in _beside(problem)]
    if kind == "vib":
        write_vib(problem, path)
    elif kind == "npz":
        raise OptionError(f"{os.fspath(path)}: archives of older versions are only read; write a .vib file.")
    elif kind == "colmap":
        write_colmap_map(world, path)
    elif kind == "pyslam":
        write_pyslam_map(world, path)
    elif kind == "osmap":
        write_osmap(world, path)
    else:
        form = "g2o" if _is_one_pinhole(world) else "states"
        lost += graphopt.write(graph_of_map(world, form), path)
        if form == "states":
            return lost
    if kind in _KEPT:
        kept = _KEPT[kind]
        lost += [f"{count} {name}" for name, count in _contents(world).items() if count and name not in kept]
    return [f"not in the {kind} file: {name}" for name in lost]


def _is_one_pinhole(world: Map) -> bool:
    cameras = list(world.rig or ())
    depths = bool(np.isfinite(world.observations["depth"]).any())
    return len(cameras) == 1 and cameras[0].model == "pinhole" and not depths


def _beside(problem: VibProblem) -> list[str]:
    parts = {"truth": problem.truth, "raw IMU": problem.imu, "provenance": problem.provenance or None}
    return [name for name, part in parts.items() if part is not None]


def _contents(world: Map) -> dict[str, int]:
    seen = world.observations
    return {
        "right columns": int(np.isfinite(seen["right"]).sum()),
        "depths": int(np.isfinite(seen["depth"]).sum()),
        "standard deviations": int((seen["sigma"] != 1.0).sum()),
        "velocities and biases": int(world.keyframes["has_states"].sum()),
        "IMU measurements": len(world.imu),
        "loops": len(world.loops),
        "priors": len(world.priors) + len(world.pose_priors),
    }
