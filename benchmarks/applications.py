"""The applications of Opt and Thallo on this machine, with the published times of these beside.

    python benchmarks/applications.py [--device cpu|vulkan] [--scale S] [--repeats N] [--only NAME ...]
    python benchmarks/applications.py --tables figure11 table3 figure13 figure15 [--device ...]

Tables "1" and "2" of Thallo (Mara et al., TOG 2021; TITAN X Pascal, single precision, time to convergence)
have all 17 rows; a row is an example of `examples/`, on data that it makes: of like kind, not the same.
"figure11": sparse BundleFusion over the number of frames, by schedule (Thallo's is a plot). "table3": the
schedules of the dense one. "computed": both ways of computed values. "figure13": Opt's factors over CUDA
and Ceres (DeVito et al., TOG 2017), as its text says them. "figure15": what each rewrite of expressions
leaves of the operations (Opt's ablation is a plot). A time is that of a whole call, set-up included, after a
first one: kernels are compiled by then. S = 1 takes some seconds on a CPU; grids have S times the rows and
columns.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "examples")]

import bundle_fusion
import cotangent_smoothing
import deconvolution
import embedded_deformation
import face_fitting
import image_warping
import images
import intrinsic_images
import mesh_deformation
import meshes
import nonrigid_alignment
import optical_flow
import poisson_editing
import shape_and_shading
import shape_from_shading
import volumetric_deformation
from rich.console import Console
from rich.table import Table

import graphopt
from graphopt import codegen
from graphopt.errors import GraphOptError
from graphopt.evaluate import datasets
from graphopt.types.computed import inlined_edge_type

Solve = Callable[..., Any]


@dataclass(frozen=True)
class Application:
    """A row of Thallo's tables."""

    name: str
    table: str
    ceres: str
    opt: str
    by_hand: str
    thallo: str
    """Published times [ms]; "": not given."""
    make: Callable[[float], Solve]
    """Scale -> function of the options of `optimize` that solves."""


def sheet(scale: float):
    """A sheet held on the left, bent up on the right: mesh, rows, targets."""
    mesh = meshes.grid(int(24 * scale), int(48 * scale))
    x = mesh.points[:, 0]
    rows = np.flatnonzero((x == x.min()) | (x == x.max()))
    targets = mesh.points[rows].copy()
    targets[x[rows] == x.max()] += np.array([-14.0, 0.0, 8.0]) * x.max() / 20.0
    return mesh, rows, targets


def wavy(scale: float):
    """A wavy sheet with noise."""
    mesh = meshes.grid(int(36 * scale), int(48 * scale))
    points = mesh.points.copy()
    points[:, 2] = 1.5 * np.sin(0.3 * points[:, 0]) * np.cos(0.25 * points[:, 1])
    return meshes.Mesh(points + np.random.default_rng(0).normal(0.0, 0.15, points.shape), mesh.triangles)


def warped(scale: float):
    """A bar whose middle is drawn up."""
    y, x = np.mgrid[: int(48 * scale), : int(96 * scale)] / scale
    constraints = scale * np.array([[10, 30, 14, 34], [48, 30, 48, 12], [86, 30, 82, 34]], float)
    return (abs(y - 30) < 8) & (abs(x - 48) < 40), constraints


def scanned(scale: float):
    """A flat template, and a bent scan with normals."""
    template = meshes.grid(int(16 * scale), int(22 * scale))
    x, y = template.points[:, 0], template.points[:, 1]
    bent = template.points + np.stack([0 * x, 0 * x, 1.5 * np.sin(0.25 * x) * np.cos(0.2 * y)], axis=1)
    return template, bent, nonrigid_alignment.normals(meshes.Mesh(bent, template.triangles))


def lattice(scale: float):
    """A block whose end turns."""
    shape = (int(24 * scale), int(8 * scale), int(8 * scale))
    corner = np.zeros(3)
    return corner, 1.0, shape, volumetric_deformation.turned_end(corner, 1.0, shape, 60.0)


def flow(scale: float):
    """Two frames of a turned pattern."""
    return [images.gray(frame) for frame in optical_flow.generated(int(96 * scale))[:2]]


def bundles(cameras: int, points: int) -> Solve:
    """Bundle adjustment with Snavely's camera, from the same start each time."""
    graph = datasets.ba(cameras=cameras, points=points, camera="bal")
    return lambda **options: graphopt.optimize(graph.copy(), **options)


def blurred(scale: float, width: int, varies: bool) -> Solve:
    """Deconvolution of a generated picture."""
    truth = deconvolution.generated(int(128 * scale))
    shape = truth.shape
    weights = deconvolution.varying_motion(width, shape) if varies else deconvolution.disk(width)
    counted = deconvolution.counted_photons(truth, weights, 200.0)
    return lambda **options: deconvolution.sharpen(counted, weights, **options)


def solving(function: Callable[..., Any], *arguments: Any) -> Solve:
    """The function with its data."""
    return lambda **options: function(*arguments, **options)


APPLICATIONS = [
    Application(
        "BundleFusion",
        "1",
        "5394.10",
        "110.39",
        "5.57",
        "2.96",
        lambda s: solving(bundle_fusion.fuse, *bundle_fusion.generated(max(int(6 * s), 2))[:3]),
    ),
    Application(
        "Face Fit",
        "1",
        "25612.1",
        "1057.8",
        "1946.5",
        "46.3",
        lambda s: solving(face_fitting.fit, *face_fitting.generated(40, int(2000 * s * s))[:3], 0.002),
    ),
    Application(
        "Shape/Shading",
        "1",
        "21982.3",
        "2259.6",
        "",
        "171.86",
        lambda s: solving(shape_and_shading.refine, shape_and_shading.generated(int(96 * s))),
    ),
    Application(
        "Bundle Adjust",
        "1",
        "11954.56",
        "114.78",
        "",
        "89.47",
        lambda s: bundles(int(20 * s), int(2000 * s * s)),
    ),
    Application("Deconv. 11x11", "1", "25304.85", "195.93", "", "46.58", lambda s: blurred(s, 11, False)),
    Application(
        "Deconv. 15x15", "1", "55158.87", "does not compile", "", "93.11", lambda s: blurred(s, 15, False)
    ),
    Application(
        "SV Deconv.", "1", "81344.37", "does not compile", "", "137.92", lambda s: blurred(s, 11, True)
    ),
    Application(
        "ARAP",
        "2",
        "74339.97",
        "5201.91",
        "5355.39",
        "5122.35",
        lambda s: solving(mesh_deformation.deform, *sheet(s)),
    ),
    Application(
        "COT", "2", "", "118.21", "", "42.11", lambda s: solving(cotangent_smoothing.smooth, wavy(s))
    ),
    Application(
        "EMD",
        "2",
        "",
        "35.40",
        "",
        "29.13",
        lambda s: solving(embedded_deformation.deform, *sheet(s), int(100 * s * s)),
    ),
    Application(
        "IW", "2", "132.58", "138.09", "260.18", "128.65", lambda s: solving(image_warping.warp, *warped(s))
    ),
    Application(
        "IID",
        "2",
        "",
        "19.59",
        "",
        "19.11",
        lambda s: solving(intrinsic_images.separate, intrinsic_images.generated(int(96 * s))[0]),
    ),
    Application("OF", "2", "", "7.14", "", "6.77", lambda s: solving(optical_flow.estimate, *flow(s))),
    Application(
        "PIE",
        "2",
        "75404.39",
        "29.98",
        "32.43",
        "28.49",
        lambda s: solving(poisson_editing.paste, *poisson_editing.generated(int(192 * s))),
    ),
    Application(
        "RNA", "2", "", "36.34", "", "34.61", lambda s: solving(nonrigid_alignment.align, *scanned(s))
    ),
    Application(
        "SFS",
        "2",
        "75404.39",
        "88.99",
        "106.64",
        "84.13",
        lambda s: solving(shape_from_shading.refine, shape_from_shading.generated(int(96 * s))),
    ),
    Application(
        "VMD",
        "2",
        "187.96",
        "62.65",
        "65.70",
        "38.01",
        lambda s: solving(volumetric_deformation.bend, *lattice(s)),
    ),
]

FIGURE_13 = [
    ("IW", "1.1", "100", "image warping"),
    ("ARAP", "1.4", "20", "mesh deformation"),
    ("SFS", "1.5", "400", "shape from shading"),
    ("PIE", "1.2", "40 (Eigen)", "Poisson editing"),
]
"""Opt's throughput over CUDA's and Ceres', as sections 7.1.1 to 7.1.4 say it."""
REWRITTEN = {
    "SFS (two shades)": inlined_edge_type(
        shape_from_shading.EdgeShadeStep, 2 * ((shape_from_shading.KnownLightShade.definition,),)
    ),
    "IW": image_warping.EdgeRigidPixels,
    "ARAP": mesh_deformation.EdgeRigid,
    "COT": cotangent_smoothing.EdgeCotangent,
    "BundleFusion, dense": bundle_fusion.EdgeAligned,
}


def summary_of(result: Any) -> graphopt.Summary:
    """The summary among what an example returns."""
    return (
        result
        if isinstance(result, graphopt.Summary)
        else next(value for value in result if isinstance(value, graphopt.Summary))
    )


def timed(solve: Solve, repeats: int, **options: Any) -> tuple[float, graphopt.Summary]:
    """Shortest whole call [ms] after a first one, and the last summary."""
    solve(**options)
    seconds, summary = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        summary = summary_of(solve(**options))
        seconds.append(time.perf_counter() - start)
    assert summary is not None
    return 1e3 * min(seconds), summary


def print_tables(console: Console, args: argparse.Namespace, number: str) -> None:
    """Thallo's table 1 or 2."""
    table = Table(title=f"Thallo, table {number}; published: other data, TITAN X (Pascal), Ceres on 4 cores")
    for name in ("problem", "unknowns", "residuals", "chi2", "iterations", "here [ms]"):
        table.add_column(name, justify="left" if name == "problem" else "right")
    for name in ("Thallo", "Opt", "by hand", "Ceres"):
        table.add_column(f"{name} [ms]", justify="right")
    for application in APPLICATIONS:
        if application.table != number or (args.only and application.name not in args.only):
            continue
        published = [application.thallo, application.opt, application.by_hand, application.ceres]
        try:
            milliseconds, summary = timed(application.make(args.scale), args.repeats, device=args.device)
        except GraphOptError as error:
            table.add_row(application.name, "", "", str(error).split(". ")[0], "", "-", *published)
            continue
        chi2 = f"{summary.initial_chi2:.4g} -> {summary.final_chi2:.4g}"
        sizes = str(summary.vertices), str(summary.edges)
        table.add_row(
            application.name, *sizes, chi2, str(len(summary.iterations)), f"{milliseconds:.1f}", *published
        )
    console.print(table)
    console.print("unknowns: vertices; residuals: edges; all of the last level or round.")


def print_figure_11(console: Console, args: argparse.Namespace) -> None:
    """Sparse BundleFusion by number of frames and schedule."""
    schedules = ("auto",) if args.device == "cpu" else ("auto", "matrix-free", "blocks", "jacobians", "jp")
    table = Table(title="Thallo, figure 11: sparse BundleFusion [ms]; Thallo half of Opt, a tenth of Ceres")
    for name in ("frames", "unknowns", *schedules):
        table.add_column(name, justify="right")
    for frames in [max(int(count * args.scale), 2) for count in (4, 8, 16, 32)]:
        data = bundle_fusion.generated(frames)[:3]
        row = []
        for schedule in schedules:
            options = {"device": args.device, "schedule": schedule, "linear_solver": "auto"}
            if args.device != "cpu":
                options["linear_solver"] = "pcg"
            row.append(f"{timed(solving(bundle_fusion.fuse, *data, False), args.repeats, **options)[0]:.1f}")
        table.add_row(str(frames), str(6 * (frames - 1)), *row)
    console.print(table)


def print_table_3(console: Console, args: argparse.Namespace) -> None:
    """Schedules of dense BundleFusion, and computed values of shape and shading."""
    data = bundle_fusion.generated(max(int(6 * args.scale), 2))[:3]
    table = Table(title="Thallo, table 3: sparse + dense BundleFusion (106.34 ms unscheduled ... 2.96 ms)")
    table.add_column("schedule")
    table.add_column("here [ms]", justify="right")
    chosen = ("auto",) if args.device == "cpu" else ("matrix-free", "jacobians", "jp", "blocks", "auto")
    for schedule in chosen:
        options = {"device": args.device, "schedule": schedule}
        if schedule != "auto":
            options["linear_solver"] = "pcg"
        milliseconds, _ = timed(solving(bundle_fusion.fuse, *data), args.repeats, **options)
        table.add_row(schedule, f"{milliseconds:.1f}")
    console.print(table)


def print_computed(console: Console, args: argparse.Namespace) -> None:
    """Computed values put into the edges, or kept in arrays (Opt: a factor of 10 for shape from shading)."""
    table = Table(title="Computed values: inlined, or kept; conjugate gradients but for the first line each")
    for name in ("problem", "pixels", "values", "schedule", "here [ms]", "iterations", "chi2"):
        table.add_column(name, justify="left" if name == "problem" else "right")
    size = int(96 * args.scale)
    for name, refine in (
        ("shape from shading", shape_from_shading),
        ("shape and shading", shape_and_shading),
    ):
        solve = solving(refine.refine, refine.generated(size))
        ways = [("inline", "auto", "auto"), ("materialize", "auto", "auto")]
        if args.device != "cpu":
            ways[1:] = [
                (way, schedule, "pcg")
                for way in ("inline", "materialize")
                for schedule in ("blocks", "matrix-free", "jacobians")
            ]
        for way, schedule, solver in ways:
            options = {"computed": way, "schedule": schedule, "linear_solver": solver}
            found, summary = timed(solve, args.repeats, device=args.device, **options)
            row = f"{size * size}", way, schedule if solver == "pcg" else summary.linear_solver
            row += f"{found:.1f}", str(len(summary.iterations)), f"{summary.final_chi2:.6g}"
            table.add_row(name, *row)
    console.print(table)


def print_figure_13(console: Console, args: argparse.Namespace) -> None:
    """Opt's factors, beside this machine's time."""
    table = Table(title="Opt, figure 13: throughput of Opt over others, from its text (GeForce TITAN Black)")
    for name in ("problem", "over CUDA", "over Ceres", "here [ms]"):
        table.add_column(name, justify="left" if name == "problem" else "right")
    for name, cuda, ceres, label in FIGURE_13:
        make = next(application.make for application in APPLICATIONS if application.name == name)
        table.add_row(
            label, cuda, ceres, f"{timed(make(args.scale), args.repeats, device=args.device)[0]:.1f}"
        )
    console.print(table)


def print_figure_15(console: Console, args: argparse.Namespace) -> None:
    """Operations of H and b after each rewrite."""
    for name, kind in REWRITTEN.items():
        if kind is None:
            continue
        table = Table(title=f"Opt, figure 15, as operations: {name}")
        for column in ("after", "operations", "live registers"):
            table.add_column(column, justify="left" if column == "after" else "right")
        for step in codegen.explain_rewrites(kind, "identity"):
            table.add_row(str(step.rule), str(step.operations), str(step.live_registers))
        console.print(table)


TABLES: dict[str, Callable[[Console, argparse.Namespace], None]] = {
    "1": lambda console, args: print_tables(console, args, "1"),
    "2": lambda console, args: print_tables(console, args, "2"),
    "figure11": print_figure_11,
    "table3": print_table_3,
    "computed": print_computed,
    "figure13": print_figure_13,
    "figure15": print_figure_15,
}


def main(argv: list[str] | None = None) -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu, vulkan or vulkan:NUMBER (default: cpu)")
    parser.add_argument("--scale", type=float, default=1.0, metavar="S", help="default: 1")
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="the shortest counts; default: 1")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=[application.name for application in APPLICATIONS]
    )
    parser.add_argument("--tables", nargs="+", default=["1", "2"], choices=list(TABLES), help="default: 1 2")
    args = parser.parse_args(argv)
    console = Console(width=170)
    for table in args.tables:
        TABLES[table](console, args)


if __name__ == "__main__":
    main()
