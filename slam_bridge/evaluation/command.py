"""What `graphopt slam` runs: a source through the pipeline, trajectory and map into files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.evaluate.trajectories import Trajectory, compare, load
from graphopt.io.trajectory import write_tum
from slam_bridge.evaluation.entry import DEFAULT_ALIGNMENT
from slam_bridge.map import Map
from slam_bridge.options import SolveOptions
from slam_bridge.pipeline import PipelineOptions, PipelineResult, open_source, run
from slam_bridge.pipeline.sources import Source


def slam(
    source: str,
    mode: str,
    calibration: str | None = None,
    output: str | None = None,
    map: str | None = None,
    localization: bool = False,
    save_map: str | None = None,
    images: list[str] | None = None,
    imu: str | None = None,
    depth: str | None = None,
    start: int = 0,
    when_busy: str | None = None,
    single_thread: bool = False,
    max_frames: int | None = None,
    truth: str | None = None,
    align: str | None = None,
    live: int | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Run, write, and say what was found; a file that cannot be written goes to the temporary folder."""
    topics = {"images": images, "imu": imu, "depth": depth}
    is_table = imu is not None and Path(imu).is_file()
    named = {name: topic for name, topic in topics.items() if topic and not (name == "imu" and is_table)}
    opened = open_source(source, calibration, imu if is_table else None, named, start)
    options = PipelineOptions(
        mode=mode,
        localization=localization,
        single_thread=single_thread,
        when_busy=when_busy or ("drop" if opened.is_live else "wait"),
        solve=SolveOptions(iterations=5, rounds=2, device=device),
    )
    world = None if map is None else Map.load(map)
    with _shown(live, f"{opened.name} ({mode})") as watch:
        found = run(opened, options, watch, world, max_frames)
    facts = _facts(opened, found, mode)
    failed = [
        fault
        for path, write in ((output, _write_trajectory), (save_map, _write_map))
        if path is not None and (fault := _fault(path, write, found))
    ]
    if len(found.stamps) >= 3:
        facts |= _errors(opened, found, truth, align or DEFAULT_ALIGNMENT[mode])
    return {**facts, "failed": failed}


def _shown(live: int | None, title: str) -> Any:
    """What watches a run: the page of `--live`, or nobody."""
    if live is None:
        return nullcontext(None)
    from graphopt.evaluate.report.live import LiveView
    from slam_bridge.evaluation.live import Watch

    class Shown(LiveView):
        def __enter__(self) -> Any:
            return Watch(super().__enter__(), title)

    return Shown(live)


def _fault(path: str, write: Callable[[PipelineResult, str], None], found: PipelineResult) -> str:
    """Write a file, where that fails (a full disk) one in a folder for temporary ones; what is to be said."""
    try:
        write(found, path)
        return ""
    except OSError as error:
        fault = f"{path}: {error.strerror or error}; the file that was there stays as it was"
    try:
        spare = str(Path(tempfile.mkdtemp(prefix="graphopt-")) / Path(path).name)
        write(found, spare)
    except OSError as error:
        return f"{fault}, and {tempfile.gettempdir()} took none either: {error.strerror or error}."
    return f"{fault}. What was found is in {spare}."


def _write_trajectory(found: PipelineResult, path: str) -> None:
    write_tum(path, found.stamps * 1e-9, found.world_T_body)


def _write_map(found: PipelineResult, path: str) -> None:
    found.world.save(path)


def _facts(source: Source, found: PipelineResult, mode: str) -> dict[str, Any]:
    return {
        "source": source.name,
        "mode": mode,
        "notes": "; ".join(source.notes),
        "frames": found.num_frames,
        "frames_with_pose": len(found.stamps),
        "frames_dropped": found.num_dropped,
        "latency": str(found.latency),
        "keyframes": len(found.world.keyframes),
        "landmarks": len(found.world.landmarks),
        "loops": len(found.world.loops),
        "maps": found.maps,
        "message": found.message,
    }


def _errors(source: Source, found: PipelineResult, truth: str | None, align: str) -> dict[str, Any]:
    """Absolute error and scale against a file, or the source's own truth."""
    if truth is not None:
        reference = load(truth)
    elif source.truth is not None:
        reference = Trajectory(source.truth.stamps * 1e-9, source.truth.world_T_body)
    else:
        return {}
    estimate = Trajectory(found.stamps * 1e-9, found.world_T_body)
    errors = compare(estimate, reference, align=align)  # type: ignore[arg-type]
    scale = compare(estimate, reference, align="sim3").scale
    return {
        "ate_rmse_m": float(np.sqrt(np.mean(errors.absolute**2))),
        "scale": float(scale),
        "path_m": float(errors.path_length),
    }
