"""One entry of `graphopt eval euroc|tumvi|kitti`: some runs over a sequence, trajectories, errors and times.

The numbers of an entry are those of the run with the median error; `runs` has all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.errors import OptionError
from graphopt.evaluate.published import is_whole
from graphopt.evaluate.report import frustum_rows, write_atlas
from graphopt.evaluate.trajectories import Trajectory, compare, curve
from graphopt.io.files import write_bytes
from graphopt.io.trajectory import write_tum
from graphopt.option_names import ALIGNMENTS
from slam_bridge.evaluation.live import watching
from slam_bridge.map import Map
from slam_bridge.options import SolveOptions
from slam_bridge.pipeline.options import PipelineOptions
from slam_bridge.pipeline.result import PipelineResult
from slam_bridge.pipeline.system import peak_memory, run
from slam_bridge.readers.sequence import Sequence, opencv
from slam_bridge.readers.sequences import find_sequences, open_sequence

DEFAULT_ALIGNMENT = {
    "stereo-inertial": "se3",
    "stereo": "se3",
    "rgbd-inertial": "se3",
    "rgbd": "se3",
    "mono-inertial": "sim3",
    "mono": "sim3",
}


@dataclass(frozen=True)
class EntryRequest:
    """What is measured: one sequence in one mode."""

    kind: str
    name: str
    folder: str
    output: str
    """Folder that trajectories (TUM), maps and images are written to."""
    mode: str
    runs: int = 1
    single_thread: bool = False
    max_frames: int | None = None
    calibration: str | None = None
    align: str | None = None
    delta: float = 1.0
    delta_unit: str = "frames"
    tolerance: float = 0.01
    configuration: str | None = None
    device: str = "auto"
    published: dict[str, Any] | None = None
    """Errors of others."""
    live: int | None = None
    """Port of a page that shows the run."""

    @property
    def options(self) -> PipelineOptions:
        """Of the pipeline."""
        return PipelineOptions(
            mode=self.mode,
            single_thread=self.single_thread,
            solve=SolveOptions(iterations=5, rounds=2, device=self.device, configuration=self.configuration),
        )

    @property
    def alignment(self) -> str:
        """Before errors are taken."""
        return self.align or DEFAULT_ALIGNMENT[self.mode]


def evaluate(**given: Any) -> dict[str, Any]:
    """Run a sequence as often as asked for; given: fields of `EntryRequest`."""
    wanted = EntryRequest(**given)
    sequence = open_sequence(wanted.kind, wanted.folder, wanted.calibration).first(wanted.max_frames)
    entries = [_run(wanted, sequence, number) for number in range(wanted.runs)]
    ranks = [entry.get("ate_rmse_m", float(number)) for number, entry in enumerate(entries)]
    middle = entries[int(np.argsort(ranks, kind="stable")[(wanted.runs - 1) // 2])]
    short = ("ate_rmse_m", "scale", "tracked_fraction", "real_time_factor", "message", "trajectory")
    whole = is_whole(wanted.kind, wanted.name, len(sequence))
    return {
        "sequence": wanted.name,
        "problem": wanted.name,
        "mode": wanted.mode,
        "configuration": wanted.configuration or "auto",
        "alignment": wanted.alignment,
        **middle,
        "is_clip": not whole,
        "published": (wanted.published or {}) if whole else {},
        "runs": [{key: entry[key] for key in short if key in entry} for entry in entries],
    }


def _run(wanted: EntryRequest, sequence: Sequence, number: int) -> dict[str, Any]:
    """One run: its trajectory as a file, facts and errors."""
    with watching(wanted.live, f"{wanted.name} ({wanted.mode})") as watch:
        result = run(sequence, wanted.options, watch)
    output = Path(wanted.output)
    file = output / "trajectories" / f"{_file_name(wanted.name)}-{number + 1}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_tum(file, result.stamps * 1e-9, result.world_T_body)
    seen = sequence.of_camera() if wanted.mode == "mono" else sequence
    errors = {}
    if seen.truth is not None and len(result.stamps) >= 3:
        rules = {name: getattr(wanted, name) for name in ("delta", "delta_unit", "tolerance")}
        errors = _errors(result, seen, wanted.alignment, rules, output / "maps" / f"{file.stem}.npy")
    return {"trajectory": str(file), **_facts(sequence, result), **errors}


def _facts(sequence: Sequence, result: PipelineResult) -> dict[str, Any]:
    """What a run says without a truth."""
    spent = result.frame_seconds
    return {
        "frames": result.num_frames,
        "tracked_fraction": result.tracked_fraction,
        "real_time_factor": sequence.seconds / result.tracking_wall_seconds,
        "duration_s": sequence.seconds,
        "tracking": _statistics(spent),
        "local_ba": {
            **_statistics(np.array([call["seconds"] for call in result.calls])),
            "calls": result.calls,
        },
        "phases": _summed([call["phases"] for call in result.calls]),
        "pipeline_phases": result.phases,
        "steps": result.steps,
        "keyframes": len(result.world.keyframes),
        "points": len(result.world.landmarks),
        "loops": len(result.world.loops),
        "map_bytes": result.world.nbytes,
        "memory_bytes": peak_memory(),
        "message": result.message,
        "notes": "; ".join(sequence.notes),
    }


def _errors(
    result: PipelineResult, sequence: Sequence, align: str, rules: dict[str, Any], points: Path
) -> dict[str, Any]:
    """Errors after the alignment asked for, and the absolute ones after each alignment.

    points: file (.npy) for the map's landmarks (n, 3) after the first of them.
    """
    truth = sequence.truth
    assert truth is not None
    estimate = Trajectory(result.stamps * 1e-9, result.world_T_body)
    reference = Trajectory(truth.stamps * 1e-9, truth.world_T_body)
    errors = compare(estimate, reference, align=align, **rules)  # type: ignore[arg-type]
    statistics = errors.statistics()
    others = {
        name: compare(estimate, reference, align=name, **rules)
        for name in ALIGNMENTS
        if name != "none"  # type: ignore[arg-type]
    }
    drawn = curve(errors, body_R_cam=sequence.rig[0].body_T_cam[3:])
    _write_points(points, result.world, errors.alignment)
    images = points.with_suffix(".jpg")
    _write_images(images, sequence, errors.times[0] + np.array(drawn["times_s"]))
    rmse = {name: float(np.sqrt(np.mean(other.absolute**2))) for name, other in others.items()}
    return {
        **statistics,
        "scale": others["sim3"].scale,
        "ate_of_path": statistics["ate_rmse_m"] / max(errors.path_length, 1e-12),
        "ate_by_alignment_m": rmse,
        "curve": drawn,
        "points_file": f"{points.parent.name}/{points.name}",
        "images_file": f"{images.parent.name}/{images.name}",
    }


def _write_points(path: Path, world: Map, alignment: tuple[float, np.ndarray, np.ndarray]) -> None:
    """Landmarks (n, 3) float32 of a map in the truth's frame."""
    scale, rotation, shift = alignment
    placed = scale * world.landmarks["position"] @ rotation.T + shift
    buffer = BytesIO()
    np.save(buffer, placed.astype(np.float32))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, buffer.getvalue())


def _write_images(path: Path, sequence: Sequence, times: np.ndarray) -> None:
    """Left images at some of a curve's times [s], small ones in one file."""
    rows = list(frustum_rows(len(times)))
    frames = np.searchsorted(sequence.stamps, np.rint(1e9 * times[rows] - 1e6).astype(np.int64))
    rows = np.minimum(frames, len(sequence) - 1).tolist()
    images = [next(image for image in sequence.images(row) if image is not None) for row in rows]
    write_atlas(path, rows, images)


def _statistics(seconds: np.ndarray) -> dict[str, float]:
    if not len(seconds):
        return {"count": 0}
    return {
        "count": len(seconds),
        "mean_s": float(seconds.mean()),
        "std_s": float(seconds.std()),
        "median_s": float(np.median(seconds)),
        "max_s": float(seconds.max()),
    }


def _summed(phases: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for phase in phases for name in phase)
    return {name: sum(phase.get(name, 0.0) for phase in phases) for name in names}


def _file_name(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text)


def list_sequences(kind: str, root: str, names: list[str] | None) -> dict[str, str]:
    """Folders of the sequences below a root by name, for the command line; checks what can be checked."""
    if not Path(root).is_dir():
        raise OptionError(f"--root {root}: no such folder.")
    opencv()
    return {name: str(path) for name, path in find_sequences(kind, root, names).items()}
