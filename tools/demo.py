"""What `make demo` runs: two problems of our own, made, optimized and drawn by the `graphopt` command."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

PROBLEMS = {
    "sphere": ("sphere", ["sphere", "--noise-rotation", "0.02"], "g2o"),
    "ba": ("bundle adjustment", ["ba", "--cameras", "60", "--points", "6000"], "txt"),
}


def graphopt(*arguments: str) -> None:
    """Run the installed command, shown as one would type it."""
    print("$ graphopt", *arguments, flush=True)
    # Not `python -m graphopt`: that would take the source tree, which has no native modules.
    subprocess.run([str(Path(sys.executable).parent / "graphopt"), *arguments], check=True)


def main(folder: Path) -> int:
    """Generate, optimize, draw; then print one table of both."""
    started = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, arguments, suffix) in PROBLEMS.items():
        source, target = f"{folder}/{name}.{suffix}", f"{folder}/{name}_optimized.{suffix}"
        graphopt("generate", *arguments, "-o", source)
        picture, stats = f"{folder}/{name}.png", f"{folder}/{name}.json"
        graphopt("optimize", source, "-o", target, "--plot", picture, "--stats", stats)
    summaries = {
        title: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for name, (title, *_) in PROBLEMS.items()
    }
    print_summaries(summaries)
    draw_convergence(folder / "convergence.png", summaries)
    files = ", ".join(sorted(path.name for path in folder.glob("*.png")))
    print(f"{time.perf_counter() - started:.1f} s. Pictures in {folder}/: {files}")
    return 0


def print_summaries(summaries: dict[str, dict]) -> None:
    """Print one line per problem."""
    table = Table()
    numeric = ("vertices", "edges", "chi2 before", "chi2 after", "iterations", "time")
    for column in ("problem", *numeric, "termination"):
        table.add_column(column, justify="right" if column in numeric else "left")
    for title, summary in summaries.items():
        table.add_row(
            title,
            str(summary["vertices"]),
            str(summary["edges"]),
            f"{summary['initial_chi2']:.6g}",
            f"{summary['final_chi2']:.6g}",
            str(len(summary["iterations"])),
            f"{summary['seconds']['total'] * 1e3:.0f} ms",
            summary["termination"],
        )
    Console(width=130).print(table)


def draw_convergence(path: Path, summaries: dict[str, dict]) -> None:
    """Draw both convergence curves into one picture."""
    from graphopt.evaluate.report import plot_convergence

    plot_convergence(path, summaries)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
