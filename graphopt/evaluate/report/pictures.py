"""Pictures of a graph before and after, of the convergence, and both in one figure for `--plot`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import graphopt.evaluate.report.figure as figure
from graphopt.evaluate.report.scene import Scene, scene

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from graphopt.graph import Graph

MAX_LINES = 60_000
"""Edges drawn at most; of more, an evenly spaced selection is drawn."""


def plot_graph(path: str | Path, graph: Graph, title: str = "") -> None:
    """Draw one graph into a file."""
    drawing = figure.new_figure(6.0, 6.0)
    draw_scene(_axes(drawing, 1, 1, scene(graph).dim), scene(graph), title)
    figure.save(drawing, path)


def plot_before_after(
    path: str | Path, before: Graph, after: Graph, chi2: tuple[float, float] | None = None
) -> None:
    """Draw a graph before and after its optimization, with `chi2` (before, after) in the titles."""
    drawing = figure.new_figure(11.0, 5.6)
    _draw_pair(drawing, 2, before, after, chi2)
    figure.save(drawing, path)


def plot_convergence(path: str | Path, runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw chi2 against iterations and time for several runs: name -> summary as a dictionary."""
    drawing = figure.new_figure(11.0, 4.2)
    by_iteration, by_time = drawing.subplots(1, 2)
    for name, run in runs.items():
        draw_convergence(by_iteration, run, label=name)
        draw_convergence(by_time, run, label=name, against_time=True)
    by_iteration.legend(frameon=False)
    figure.save(drawing, path)


def plot_run(path: str | Path, before: Graph, after: Graph, summary: Mapping[str, Any]) -> None:
    """Draw before, after and the convergence side by side: what `graphopt optimize --plot` writes."""
    drawing = figure.new_figure(16.0, 5.2)
    _draw_pair(drawing, 3, before, after, (summary["initial_chi2"], summary["final_chi2"]))
    draw_convergence(drawing.add_subplot(1, 3, 3), summary)
    figure.save(drawing, path)


def draw_convergence(
    axes: Axes, summary: Mapping[str, Any], *, label: str | None = None, against_time: bool = False
) -> None:
    """Draw chi2 after each iteration on a logarithmic scale, against iterations or seconds."""
    from matplotlib.ticker import MaxNLocator

    chi2 = [summary["initial_chi2"], *(entry["chi2"] for entry in summary["iterations"])]
    spent = np.cumsum([0.0, *(entry["seconds"] for entry in summary["iterations"])])
    horizontal = 1e3 * spent if against_time else np.arange(len(chi2))
    axes.plot(
        horizontal,
        chi2,
        "o-",
        markersize=4,
        linewidth=1.5,
        color=None if label else figure.ACCENT,
        label=label,
    )
    positive = [value for value in chi2 if value is not None and value > 0.0]
    if positive:
        axes.set_yscale("log")
    axes.set_xlabel("time in iterations [ms]" if against_time else "iteration")
    axes.set_ylabel("chi2")
    axes.set_title("convergence", color=figure.INK)
    axes.set_box_aspect(0.85)
    if not against_time:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(True, which="major", color="#e3e8ee", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)


def draw_scene(axes: Axes, drawn: Scene, title: str) -> None:
    """Draw poses, points and edges with equal aspect; poses are coloured by their order."""
    if drawn.is_ba:
        _scatter(axes, drawn.points, 1.0, color=figure.POINT, alpha=0.5, linewidths=0)
        _scatter(axes, drawn.poses, 18.0, color=figure.CAMERA, marker="^", linewidths=0)
    else:
        _draw_lines(axes, drawn)
        colours = np.arange(drawn.num_poses)
        size = float(np.clip(4000.0 / max(drawn.num_poses, 1), 1.5, 14.0))
        _scatter(axes, drawn.poses, size, c=colours, cmap=figure.POSE, linewidths=0, zorder=3)
        _scatter(axes, drawn.points, 10.0, color=figure.CAMERA, marker="x", linewidths=0.8, zorder=4)
    _frame(axes, drawn)
    axes.set_title(title, color=figure.INK, y=0.98 if drawn.dim == 3 else 1.0)


def _draw_pair(
    drawing: Any, num_columns: int, before: Graph, after: Graph, chi2: tuple[float, float] | None
) -> None:
    names = ("before", "after")
    for column, (name, graph) in enumerate(zip(names, (before, after), strict=True)):
        drawn = scene(graph)
        title = name if chi2 is None else f"{name}: chi2 {chi2[column]:.6g}"
        draw_scene(_axes(drawing, num_columns, column + 1, drawn.dim), drawn, title)


def _axes(drawing: Any, num_columns: int, column: int, dim: int) -> Axes:
    projection = "3d" if dim == 3 else None
    return drawing.add_subplot(1, num_columns, column, projection=projection)


def _scatter(axes: Axes, positions: NDArray[np.float64], size: float, **style: Any) -> None:
    if len(positions):
        three = {"depthshade": False} if positions.shape[1] == 3 else {}
        axes.scatter(*positions.T, s=size, **three, **style)


def _draw_lines(axes: Axes, drawn: Scene) -> None:
    lines = drawn.lines[:: max(1, -(-len(drawn.lines) // MAX_LINES))]
    style = {"colors": figure.EDGE, "linewidths": 0.5, "alpha": 0.6, "zorder": 1}
    if drawn.dim == 2:
        from matplotlib.collections import LineCollection

        axes.add_collection(LineCollection(list(drawn.positions[lines]), **style))
    else:
        from mpl_toolkits.mplot3d.art3d import Line3DCollection

        axes.add_collection(Line3DCollection(list(drawn.positions[lines]), **style))


def _frame(axes: Any, drawn: Scene) -> None:
    """Fit the limits to nearly all vertices, equal on every axis; far outliers must not shrink the rest."""
    limits = _limits(drawn)
    for setter, (low, high) in zip(("set_xlim", "set_ylim", "set_zlim"), limits, strict=False):
        getattr(axes, setter)(low, high)
    if drawn.dim == 2:
        axes.set_aspect("equal")
        axes.tick_params(labelsize=8, colors=figure.INK)
        axes.spines[["top", "right"]].set_visible(False)
        return
    axes.set_box_aspect(np.diff(limits, axis=1).ravel(), zoom=1.05)
    axes.view_init(elev=24.0, azim=-58.0)
    axes.tick_params(labelsize=7, colors=figure.INK, pad=-2)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_pane_color((1.0, 1.0, 1.0, 0.0))
        axis._axinfo["grid"].update(color="#e3e8ee", linewidth=0.6)


def _limits(drawn: Scene) -> NDArray[np.float64]:
    """Return (dim, 2): what to show of each axis. All poses, and 98 % of a point cloud."""
    finite = drawn.positions[np.isfinite(drawn.positions).all(axis=1)]
    poses = drawn.poses[np.isfinite(drawn.poses).all(axis=1)]
    if len(finite) == 0:
        return np.array([[-1.0, 1.0]] * drawn.dim)
    share = 1.0 if drawn.is_ba else 0.0
    low, high = np.percentile(finite, [share, 100.0 - share], axis=0)
    if len(poses):
        low, high = np.minimum(low, poses.min(axis=0)), np.maximum(high, poses.max(axis=0))
    margin = 0.04 * max(float(np.max(high - low)), 1e-9)
    return np.stack([low - margin, high + margin], axis=-1)
