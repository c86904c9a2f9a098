"""What `graphopt slam` runs: a source through the pipeline, trajectory and map into files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.evaluate.trajectories import Trajectory, compare, load
from graphopt.io.trajectory import write_tum
from slam_bridge.evaluation.entry import DEFAULT_ALIGNMENT
from slam_bridge.evaluation.live import watching
from slam_bridge.map import Map
from slam_bridge.options import SolveOptions
from slam_bridge.pipeline import PipelineOptions, PipelineResult, open_source, run
from slam_bridge.pipeline.sources import Source


@dataclass(frozen=True)
class SlamRequest:
    """What the command line asks for."""

    source: str
    """Folder, bag, video, or number of a webcam."""
    mode: str
    calibration: str | None = None
    output: str | None = None
    """Trajectory to write."""
    map: str | None = None
    """Of an earlier run, to go on in."""
    localization: bool = False
    save_map: str | None = None
    images: list[str] | None = None
    """Topics of a bag's cameras."""
    imu: str | None = None
    """Topic of a bag's IMU, or the table of a video's."""
    depth: str | None = None
    start: int = 0
    """[ns] of a video's first frame."""
    when_busy: str | None = None
    single_thread: bool = False
    max_frames: int | None = None
    truth: str | None = None
    align: str | None = None
    live: int | None = None
    """Port of a page that shows the run."""
    device: str = "auto"

    def open(self) -> Source:
        """The source."""
        topics = {"images": self.images, "imu": self.imu, "depth": self.depth}
        table = self.imu if self.imu is not None and Path(self.imu).is_file() else None
        named = {name: topic for name, topic in topics.items() if topic and topic != table}
        return open_source(self.source, self.calibration, table, named, self.start)

    def options(self, is_live: bool) -> PipelineOptions:
        """Of the pipeline."""
        return PipelineOptions(
            mode=self.mode,
            localization=self.localization,
            single_thread=self.single_thread,
            when_busy=self.when_busy or ("drop" if is_live else "wait"),
            solve=SolveOptions(iterations=5, rounds=2, device=self.device),
        )


def slam(wanted: SlamRequest) -> dict[str, Any]:
    """Run, write, and say what was found; a file that cannot be written goes to the temporary folder."""
    opened = wanted.open()
    world = None if wanted.map is None else Map.load(wanted.map)
    with watching(wanted.live, f"{opened.name} ({wanted.mode})") as watch:
        found = run(opened, wanted.options(opened.is_live), watch, world, wanted.max_frames)
    facts = _facts(opened, found, wanted.mode)
    failed = [
        fault
        for path, write in ((wanted.output, _write_trajectory), (wanted.save_map, _write_map))
        if path is not None and (fault := _fault(path, write, found))
    ]
    if len(found.stamps) >= 3:
        facts |= _errors(opened, found, wanted.truth, wanted.align or DEFAULT_ALIGNMENT[wanted.mode])
    return {**facts, "failed": failed}


def _fault(path: str, write: Callable[[PipelineResult, str], None], found: PipelineResult) -> str:
    """Write a file, where that fails (a full disk) one in a folder for temporary ones; what is to be said."""
    try:
        write(found, path)
        return ""
    except OSError as error:
        fault = f"{path}: {error.strerror or error}; the file that was there stays as it was"
    folder = ""
    try:
        folder = tempfile.mkdtemp(prefix="graphopt-")
        spare = str(Path(folder) / Path(path).name)
        write(found, spare)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
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
