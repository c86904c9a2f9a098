"""Pictures of an evaluation: convergence, phases, memory, trajectories, errors over time, sparsity."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.evaluate.report import figure
from graphopt.evaluate.report.sparsity import raster
from graphopt.evaluate.results import Results

Drawn = list[tuple[Path, str]]
"""Files with their captions."""

_PHASES = ("read", "analyze", "prepare", "linearize", "solve", "update", "restart", "verify", "other")
_WIDE = 20.0
"""Ratio of the largest to the smallest bar from which on a linear axis hides the small ones."""
_COLOURS = ("#1f77b4", "#d1495b", "#2e9e6b", "#e9a03b", "#7a5bb5", "#5b6b7a", "#9c6644", "#c77dba", "#9fb0c0")


def draw(results: Results, folder: Path) -> Drawn:
    """Draw what the entries have numbers for; returns the files and captions."""
    good = {key: entry for key, entry in results.entries.items() if "error" not in entry}
    drawn: Drawn = []
    for make in (
        _convergence,
        _times,
        _phases,
        _memory,
        _trajectories,
        _errors_over_time,
        _local_ba,
        _sparsity,
    ):
        drawn += make(good, folder)
    return drawn


def _groups(entries: dict[str, dict[str, Any]], field: str) -> dict[str, list[dict[str, Any]]]:
    """Entries that have a field, by problem."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for key, entry in entries.items():
        if entry.get(field):
            groups.setdefault(entry.get("problem", key), []).append(entry)
    return groups


def _file_name(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text)


def _convergence(entries: dict[str, dict[str, Any]], folder: Path) -> Drawn:
    drawn: Drawn = []
    for problem, runs in _groups(entries, "convergence").items():
        drawing = figure.new_figure(8.0, 4.0)
        axes = drawing.add_subplot()
        for run, colour in zip(runs, _cycle(), strict=False):
            count = max(run.get("observations") or run.get("edges") or 1, 1)
            start = run.get("robust_initial_chi2", run["initial_chi2"])
            points = [(0.0, start), *run["convergence"]]
            times, values = zip(*points, strict=True)
            axes.plot(times, np.divide(values, count), "o-", markersize=3, color=colour, label=run["solver"])
        axes.set(xlabel="time of the call [s]", ylabel="chi2 / edges", title=problem, yscale="log")
        _finish(axes, legend=True)
        drawn.append(
            (folder / f"convergence-{_file_name(problem)}.png", f"Convergence over time: {problem}.")
        )
        figure.save(drawing, drawn[-1][0])
    return drawn


def _times(entries: dict[str, dict[str, Any]], folder: Path) -> Drawn:
    return _bars(
        entries, folder, "seconds", "time", "whole call [s]", "Time of the whole call, set-up included."
    )


def _memory(entries: dict[str, dict[str, Any]], folder: Path) -> Drawn:
    caption = "Memory of graph, structure and solver."
    return _bars(
        entries, folder, "memory_bytes", "memory", "memory [MiB]", caption, lambda value: value / 2**20
    )


def _bars(
    entries: dict[str, dict[str, Any]],
    folder: Path,
    field: str,
    name: str,
    label: str,
    caption: str,
    scale: Callable[[float], float] = float,
) -> Drawn:
    """Bars by problem, one colour per solver, from 0; on a logarithmic scale where they differ a lot."""
    groups = _groups(entries, field)
    solvers = list(dict.fromkeys(run.get("solver", "") for runs in groups.values() for run in runs))
    if not groups:
        return []
    drawing = figure.new_figure(max(6.0, 1.2 * len(groups) + 3.0), 4.0)
    axes = drawing.add_subplot()
    width = 0.8 / len(solvers)
    drawn = np.array([scale(run[field]) for runs in groups.values() for run in runs])
    is_wide = drawn.min() > 0.0 and drawn.max() > _WIDE * drawn.min()
    for number, (solver, colour) in enumerate(zip(solvers, _cycle(), strict=False)):
        heights = [_of_solver(runs, solver, field, scale) for runs in groups.values()]
        places = np.arange(len(groups)) - 0.4 + width * (number + 0.5)
        axes.bar(places, heights, width, color=colour, label=solver or None)
    axes.set_xticks(np.arange(len(groups)), list(groups), rotation=20, ha="right")
    axes.set(ylabel=label, yscale="log" if is_wide else "linear")
    _finish(axes, legend=len(solvers) > 1)
    figure.save(drawing, folder / f"{name}.png")
    return [(folder / f"{name}.png", caption)]


def _of_solver(runs: list[dict[str, Any]], solver: str, field: str, scale: Callable[[float], float]) -> float:
    return next((scale(run[field]) for run in runs if run.get("solver", "") == solver), math.nan)


def _phases(entries: dict[str, dict[str, Any]], folder: Path) -> Drawn:
    """Stacked bars: which part of the call takes how long."""
    runs = {key: entry["phases"] for key, entry in entries.items() if entry.get("phases")}
    if not runs:
        return []
    parts = list(dict.fromkeys(part for phases in runs.values() for part in phases))
    parts = [part for part in _PHASES if part in parts] if "total" in parts else parts
    drawing = figure.new_figure(9.0, 0.45 * len(runs) + 1.6)
    axes = drawing.add_subplot()
    left = np.zeros(len(runs))
    for part, colour in zip(parts, _cycle(), strict=False):
        share = np.array(
            [100.0 * phases.get(part, 0.0) / max(_total(phases, parts), 1e-12) for phases in runs.values()]
        )
        axes.barh(list(runs), share, left=left, color=colour, label=part)
        left += share
    axes.set(xlabel="share of the time [%]", xlim=(0.0, 100.0))
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize=8, ncols=5, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    _finish(axes, legend=False)
    figure.save(drawing, folder / "phases.png")
    return [(folder / "phases.png", "Where the time goes.")]


def _total(phases: dict[str, float], parts: list[str]) -> float:
    return sum(phases.get(part, 0.0) for part in parts)


def _trajectories(entries: dict[str, dict[str, Any]], folder: Path) -> Drawn:
    drawn: Drawn = []
    for key, entry in entries.items():
        if not (curve := entry.get("curve")):
            continue
        truth, estimate = np.array(curve["truth"]), np.array(curve["estimate"])
        drawing = figure.new_figure(11.0, 5.0)
        top = _widest_plane(truth)
        for column, (horizontal, vertical) in enumerate((top, (top[0], 3 - sum(top)))):
            axes = drawing.add_subplot(1, 2, column + 1)
            axes.plot(truth[:, horizontal], truth[:, vertical], "--", color=figure.EDGE, label="truth")
            axes.plot(estimate[:, horizontal], estimate[:, vertical], color=figure.ACCENT, label="estimate")
            axes.set(xlabel=f"{'xyz'[horizontal]} [m]", ylabel=f"{'xyz'[vertical]} [m]", aspect="equal")
            _finish(axes, legend=column == 0)
        drawn.append((folder / f"trajectory-{_file_name(key)}.png", f"Trajectory and truth, aligned: {key}."))
        figure.save(drawing, drawn[-1][0])
    return drawn


def _widest_plane(positions: np.ndarray) -> tuple[int, int]:
    """The two axes along which a trajectory extends most."""
    extent = np.ptp(positions, axis=0)
    first, second = sorted(np.argsort(extent)[-2:].tolist())
    return first, second


def _errors_over_time(entries: dict[str, dict[str, Any]], folder: Path) -> Drawn:
    curves = {key: entry["curve"] for key, entry in entries.items() if entry.get("curve")}
    if not curves:
        return []
    drawing = figure.new_figure(9.0, 3.6)
    axes = drawing.add_subplot()
    for (key, curve), colour in zip(curves.items(), _cycle(), strict=False):
        axes.plot(curve["times_s"], curve["error_m"], color=colour, linewidth=1.0, label=key)
    axes.set(xlabel="time [s]", ylabel="position error [m]")
    _finish(axes, legend=True)
    figure.save(drawing, folder / "errors.png")
    return [(folder / "errors.png", "Position error over time, after the alignment.")]


def _local_ba(entries: dict[str, dict[str, Any]], folder: Path) -> Drawn:
    """Time of every bundle adjustment of a sequence, and its size."""
    runs = {
        key: entry["local_ba"]["calls"]
        for key, entry in entries.items()
        if entry.get("local_ba", {}).get("calls")
    }
    if not runs:
        return []
    drawing = figure.new_figure(9.0, 3.6)
    axes = drawing.add_subplot()
    for (key, calls), colour in zip(runs.items(), _cycle(), strict=False):
        axes.plot([1e3 * call["seconds"] for call in calls], ".", color=colour, markersize=4, label=key)
    axes.set(xlabel="call", ylabel="time [ms]", ylim=(0.0, None))
    _finish(axes, legend=True)
    figure.save(drawing, folder / "local_ba.png")
    return [(folder / "local_ba.png", "Time of every local bundle adjustment.")]


def _sparsity(entries: dict[str, dict[str, Any]], folder: Path) -> Drawn:
    """Blocks of H and of the Schur complement, by problem."""
    drawn: Drawn = []
    for problem, runs in _groups(entries, "sparsity").items():
        patterns = runs[0]["sparsity"]
        drawing = figure.new_figure(5.0 * len(patterns), 5.0)
        for column, (title, image) in enumerate(patterns.items()):
            axes = drawing.add_subplot(1, len(patterns), column + 1)
            axes.imshow(raster(image), cmap="Blues", interpolation="nearest")
            axes.set(
                title=f"{title}: {image['rows']} rows, {image['nonzeros']:,} numbers", xticks=[], yticks=[]
            )
        drawn.append((folder / f"sparsity-{_file_name(problem)}.png", f"Where numbers are: {problem}."))
        figure.save(drawing, drawn[-1][0])
    return drawn


def _finish(axes: Any, *, legend: bool) -> None:
    axes.grid(True, color="#e3e8ee", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(frameon=False, fontsize=8)


def _cycle() -> Iterator[str]:
    while True:
        yield from _COLOURS
