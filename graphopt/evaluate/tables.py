"""Columns of the tables of each kind: what the terminal and the report show of an entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from graphopt.evaluate.results import Results

Better = Literal["lower", "higher", ""]


@dataclass(frozen=True)
class Column:
    """One column: a place in the entry and how to write it."""

    title: str
    path: str
    """Key in the entry; "a.b" for a dictionary in it."""
    write: Callable[[Any], str] = str
    better: Better = ""
    """Which direction is an improvement, for `graphopt compare`."""
    is_error: bool = False
    """An accuracy, which should not change; times and memory may by some percent."""
    is_detail: bool = False
    """Only in the report: a terminal is too narrow for it."""

    @property
    def is_number(self) -> bool:
        """Aligned to the right."""
        return self.write is not str

    def value(self, entry: dict[str, Any]) -> Any:
        """The number of an entry; None if it has none."""
        value: Any = entry
        for key in self.path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def text(self, entry: dict[str, Any]) -> str:
        """What the table shows."""
        value = self.value(entry)
        return "" if value is None else self.write(value)


def _count(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\u202f")


def _digits(value: float) -> str:
    return f"{value:.8g}"


def _short(value: float) -> str:
    return f"{value:.4g}"


def _seconds(value: float) -> str:
    return f"{value:.3f} s" if value >= 1.0 else f"{1e3 * value:.2f} ms"


def _mebibytes(value: float) -> str:
    return f"{value / 2**20:.1f} MiB"


def _share(value: float) -> str:
    return f"{100.0 * value:.1f} %"


_SOLVE = (
    Column("iterations", "iterations", _count),
    Column("time", "seconds", _seconds, "lower"),
    Column("memory", "memory_bytes", _mebibytes, "lower"),
    Column("solver", "linear_solver", is_detail=True),
    Column("device", "device"),
    Column("ended", "termination"),
)
_BA = (
    Column("problem", "problem"),
    Column("configuration", "solver"),
    Column("cameras", "cameras", _count, is_detail=True),
    Column("points", "points", _count, is_detail=True),
    Column("observations", "observations", _count),
    Column("initial MSE", "initial_mse", _short),
    Column("MSE", "mse", _digits, "lower", True),
    *_SOLVE,
)
_SEQUENCE = (
    Column("sequence", "sequence"),
    Column("mode", "mode"),
    Column("ATE rmse [m]", "ate_rmse_m", _short, "lower", True),
    Column("ORB-SLAM3 [m]", "published.orb_slam3_ate_m", _short, is_detail=True),
    Column("VINS [m]", "published.vins_ate_m", _short, is_detail=True),
    Column("OpenVINS [m]", "published.openvins_ate_m", _short, is_detail=True),
    Column("of path", "ate_of_path", _share),
    Column("RPE [m]", "rpe.translation_m.rmse", _short, "lower", True, is_detail=True),
    Column("RPE [deg]", "rpe.rotation_deg.rmse", _short, "lower", True, is_detail=True),
    Column("scale", "scale", _short),
    Column("tracked", "tracked_fraction", _share, "higher"),
    Column("real time", "real_time_factor", _short, "higher"),
    Column("local BA", "local_ba.mean_s", _seconds, "lower"),
    Column("std", "local_ba.std_s", _seconds, is_detail=True),
    Column("worst", "local_ba.max_s", _seconds, "lower"),
    Column("thesis, CPU", "published.local_ba_cpu_s.mean", _seconds, is_detail=True),
    Column("thesis, GPU", "published.local_ba_gpu_5_13_s.mean", _seconds, is_detail=True),
    Column("keyframes", "keyframes", _count),
    Column("points", "points", _count, is_detail=True),
    Column("ended", "message", is_detail=True),
    Column("notes", "notes", is_detail=True),
)
COLUMNS: dict[str, tuple[Column, ...]] = {
    "bal": _BA,
    "colmap": _BA,
    "vib": (
        Column("problem", "problem"),
        Column("configuration", "solver"),
        Column("keyframes", "keyframes", _count),
        Column("points", "points", _count),
        Column("observations", "observations", _count),
        Column("initial chi2", "initial_chi2", _short),
        Column("chi2", "chi2", _digits, "lower", True),
        Column("position [m]", "truth.position_m", _short, "lower", True),
        Column("rotation [deg]", "truth.rotation_deg", _short, "lower", True),
        Column("scale", "truth.scale", _digits),
        *_SOLVE,
    ),
    "pose-graph": (
        Column("graph", "problem"),
        Column("configuration", "solver"),
        Column("vertices", "vertices", _count),
        Column("edges", "edges", _count),
        Column("initial chi2", "initial_chi2", _short),
        Column("chi2", "chi2", _digits, "lower", True),
        *_SOLVE,
    ),
    "trajectory": (
        Column("trajectory", "trajectory"),
        Column("matched", "matched_poses", _count),
        Column("path [m]", "path_length_m", _short),
        Column("ATE rmse [m]", "ate_rmse_m", _digits, "lower", True),
        Column("ATE max [m]", "ate_max_m", _digits, "lower", True),
        Column("RPE [m]", "rpe.translation_m.rmse", _digits, "lower", True),
        Column("RPE [deg]", "rpe.rotation_deg.rmse", _digits, "lower", True),
        Column("scale", "scale", _digits),
    ),
    "euroc": _SEQUENCE,
    "tumvi": _SEQUENCE,
    "kitti": _SEQUENCE,
}


def columns(results: Results, with_details: bool = True) -> list[Column]:
    """Columns of a kind that any entry fills."""
    entries = [entry for entry in results.entries.values() if "error" not in entry]
    known = [column for column in COLUMNS[results.kind] if with_details or not column.is_detail]
    return [column for column in known if any(column.value(entry) is not None for entry in entries)]


def rows(results: Results, with_details: bool = True) -> list[list[str]]:
    """One row per entry that did not fail."""
    shown = columns(results, with_details)
    return [
        [column.text(entry) for column in shown] for entry in results.entries.values() if "error" not in entry
    ]


_ACCURACY = (
    Column("sequence", "label"),
    Column("mode", "mode"),
    Column("images", "frames", _count),
    Column("path", "path_length_m", lambda length: f"{length:.1f} m"),
    Column("ATE", "ate_rmse_m", lambda error: f"{error:.3f} m"),
    Column("of path", "ate_of_path", lambda share: f"{100.0 * share:.2f} %"),
    Column("scale error", "scale_error", lambda error: f"{100.0 * error:.2f} %"),
    Column("tracked", "tracked_fraction", _share),
    Column("ORB-SLAM3", "published.orb_slam3_ate_m", lambda error: f"{error:.3f} m"),
    Column("VINS", "published.vins_ate_m", lambda error: f"{error:.3f} m"),
    Column("OpenVINS", "published.openvins_ate_m", lambda error: f"{error:.3f} m"),
)


def accuracy(results: Results) -> str:
    """Accuracy of sequences as a table in Markdown: errors and scale of the run with the median error."""
    entries = [entry for entry in results.entries.values() if "ate_rmse_m" in entry]
    rows = []
    for entry in entries:
        scale = None if entry["mode"] in ("mono",) else abs(entry["scale"] - 1.0)
        label = entry["sequence"].split()[0] + (" (clip)" if entry.get("is_clip") else "")
        rows.append({**entry, "scale_error": scale, "label": label})
    shown = [column for column in _ACCURACY if any(column.value(row) is not None for row in rows)]
    lines = [[column.title for column in shown], ["--:" if column.is_number else "---" for column in shown]]
    lines += [[column.text(row) for column in shown] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
