"""`graphopt eval colmap`: sparse models refined by configuration, beside `pycolmap.bundle_adjustment`.

The mean squared error is chi2 / observations [px^2], without loss function. The result of the first
configuration is written as a model that COLMAP opens.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import graphopt.colmap
from graphopt.colmap.folders import read_colmap, write_colmap
from graphopt.colmap.graph import model_of
from graphopt.colmap.model import ColmapModel
from graphopt.errors import OptionError
from graphopt.evaluate import optional
from graphopt.evaluate.bal import errors
from graphopt.evaluate.report.sparsity import patterns
from graphopt.evaluate.runner import Unit
from graphopt.evaluate.solve import chi2_before_and_after, measure, timed_peer, units_of

PEERS = ("pycolmap",)


def units(
    paths: dict[str, Path],
    configurations: Sequence[str],
    peers: Sequence[str],
    refine: dict[str, Any],
    options: dict[str, Any],
    runs: int,
    folder: Path,
) -> list[Unit]:
    """One unit per model and configuration, and per model and peer.

    refine: fields of `graphopt.colmap.Options`. folder: where the refined models go.
    """
    entries = "graphopt.evaluate.colmap:evaluate", "graphopt.evaluate.colmap:evaluate_peer"
    made = units_of(entries, paths, configurations, peers, options, runs, refine=refine)
    for unit in made:
        if "configuration" in unit.arguments:
            is_first = unit.arguments["configuration"] == configurations[0]
            refined = str(folder / f"{unit.arguments['name']}-refined") if is_first else None
            unit.arguments["refined"] = refined
    return made


def evaluate(
    name: str,
    path: str,
    configuration: str,
    refine: dict[str, Any],
    options: dict[str, Any],
    runs: int,
    refined: str | None,
) -> dict[str, Any]:
    """The entry of one model under one configuration."""
    model = read_colmap(path)
    graph = graphopt.colmap.graph_of_model(model, graphopt.colmap.Options(**refine))
    entry, solved = measure(graph, configuration, options, runs)
    if refined is not None:
        write_colmap(model_of(solved)[0], refined)
        entry["refined"] = refined
    return {
        "problem": name,
        "solver": configuration,
        **_sizes(model),
        **entry,
        **errors(graph, entry),
        "sparsity": patterns(graph),
    }


def evaluate_peer(name: str, path: str, peer: str, refine: dict[str, Any], runs: int) -> dict[str, Any]:
    """The entry of one model under `pycolmap.bundle_adjustment` with the same options."""
    model = read_colmap(path)
    chosen = graphopt.colmap.Options(**refine)
    graph = graphopt.colmap.graph_of_model(model, chosen)
    entry, (scene,) = timed_peer(lambda: _colmap(model, chosen), runs)
    solved = graphopt.colmap.graph_of_model(_model_of_scene(scene), chosen)
    entry |= {**chi2_before_and_after(graph, solved), "robust_chi2": solved.chi2()}
    return {"problem": name, "solver": peer, **_sizes(model), **entry, **errors(graph, entry)}


def _colmap(model: ColmapModel, chosen: graphopt.colmap.Options) -> tuple[float, Any]:
    pycolmap = optional.load("pycolmap")
    if chosen.constant_images or chosen.constant_cameras:
        raise OptionError("constant images and cameras are not passed on to pycolmap.")
    pycolmap.logging.minloglevel = pycolmap.logging.Level.WARNING.value
    with tempfile.TemporaryDirectory() as folder:
        write_colmap(model, folder)
        scene = pycolmap.Reconstruction(folder)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    for name in (
        "focal_length",
        "principal_point",
        "extra_params",
        "rig_from_world",
        "sensor_from_rig",
        "points3D",
    ):
        if hasattr(options, f"refine_{name}"):
            setattr(options, f"refine_{name}", getattr(chosen, f"refine_{name}"))
    loss = getattr(options, "ceres", options)
    loss.loss_function_type = getattr(type(loss.loss_function_type), chosen.loss_function_type)
    loss.loss_function_scale = chosen.loss_function_scale
    started = time.perf_counter()
    pycolmap.bundle_adjustment(scene, options)
    return time.perf_counter() - started, scene


def _model_of_scene(scene: Any) -> ColmapModel:
    with tempfile.TemporaryDirectory() as folder:
        scene.write_binary(folder)
        return read_colmap(folder)


def _sizes(model: ColmapModel) -> dict[str, int]:
    return {
        "cameras": len(model.images.ids),
        "points": len(model.points.ids),
        "observations": len(model.points.track),
    }
