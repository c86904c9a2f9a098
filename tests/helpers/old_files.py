"""What a file of the archive of old files gives: numbers that any later release must find in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import graphopt
from graphopt.distributed.checkpoint import read_checkpoint
from graphopt.evaluate.results import load
from slam_bridge.exchange.convert import read_map_file


def names(folder: Path) -> list[str]:
    """Its files, and the folders that are read as one."""
    beside = (".features", ".keyframes", ".mappoints")  # what map.yaml names
    files = (path.name for path in folder.iterdir() if path.suffix not in beside)
    return sorted(name for name in files if name != "expected.json")


def contents(folder: Path, name: str) -> dict[str, Any]:
    """Counts and sums of what is read."""
    path = folder / name
    if name == "cache":
        return {"chi2": optimize_own_type()}
    if name == "evaluation":
        return vars(load(path))
    if name.startswith(("map.", "colmap")) and name != "map.g2o":
        return _of_map(read_map_file(path).map)
    if path.suffix == ".checkpoint":
        graph = graphopt.read(folder / "flat.npz")
        return {"iterations": read_checkpoint(str(path), graph), **_of_graph(graph)}
    return _of_graph(graphopt.io.read_with_report(path)[0])


def _of_graph(graph: graphopt.Graph) -> dict[str, Any]:
    elements = [*graph.vertex_sets, *graph.edge_sets, *graph.parameter_sets]
    return {
        "counts": {each.type.tag: len(each) for each in elements},
        "ids": int(sum(each.ids.sum() for each in graph.vertex_sets)),
        "fixed": int(sum(each.fixed.sum() for each in graph.vertex_sets)),
        "kernels": int(sum((each.kernel != 0).sum() for each in graph.edge_sets)),
        "estimates": float(sum(np.abs(each.estimate).sum() for each in graph.vertex_sets)),
        "measurements": float(sum(np.abs(each.measurement).sum() for each in graph.edge_sets)),
        "information": float(sum(each.information.sum() for each in graph.edge_sets)),
        "chi2": graph.chi2(),
    }


def _of_map(world: Any) -> dict[str, Any]:
    return {
        "keyframes": len(world.keyframes),
        "landmarks": len(world.landmarks),
        "observations": len(world.observations),
        "imu": len(world.imu),
        "poses": float(np.abs(world.keyframes["world_T_body"]).sum()),
        "points": float(np.abs(world.landmarks["position"]).sum()),
        "pixels": float(np.abs(world.observations["pixel"]).sum()),
    }


def optimize_own_type() -> float:
    """chi2 of a curve y = a exp(b x) through three points, an edge type of a user's own."""
    curve = graphopt.vertex_type(tag="VERTEX_OLD_CURVE", tangent_dim=2)(np.add)
    point = graphopt.edge_type(tag="EDGE_OLD_POINT", vertices=[curve], measurement_dim=2)(
        lambda c, xy: np.stack([c[..., 0] * np.exp(c[..., 1] * xy[..., 0]) - xy[..., 1]], axis=-1)
    )
    try:
        graph = graphopt.Graph()
        graph.add_vertices(curve, [0], [[1.0, 0.0]])
        graph.add_edges(point, [[0]] * 3, [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]])
        return graphopt.optimize(graph, device="cpu").final_chi2
    finally:
        graphopt.types.registry.unregister(point)
        graphopt.types.registry.unregister(curve)
