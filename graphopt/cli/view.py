"""`graphopt view`: one interactive page of a graph file, a trajectory, or a folder of `graphopt eval`."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from graphopt.cli import output
from graphopt.errors import OptionError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = "Write one self-contained page: poses, edges, points, errors as colour; no network."
    source = "graph file, trajectory, or folder of graphopt eval"
    parser.add_argument("input", metavar="FILE|RESULT", help=source)
    target = "page to write (default: NAME.html in the present folder, NAME as in NAME.g2o)"
    parser.add_argument("-o", "--output", metavar="FILE.html", help=target)
    parser.add_argument("--before", metavar="FILE", help="graph with the estimates before the optimization")
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def run(args: argparse.Namespace) -> int:
    """Write the page; return 0."""
    from graphopt.io import check_writable
    from graphopt.io.files import write_bytes

    source = Path(args.input)
    target = Path(args.output or f"{source.name.split('.')[0]}.html")
    if target.suffix.lower() not in (".html", ".htm"):
        raise OptionError(f"{target}: the page's name must end in .html.")
    check_writable(target)
    page = _result_page(source) if _is_result(source) else _graph_page(source, args.before)
    write_bytes(target, page.encode(errors="replace"))
    output.print_facts([("written", str(target))])
    if args.open:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())
    return 0


def _is_result(source: Path) -> bool:
    """A folder of graphopt eval, or its results.json; a COLMAP model is a folder too."""
    return source.name == "results.json" or (source / "results.json").exists()


def _graph_page(source: Path, before: str | None) -> str:
    import graphopt
    from graphopt.evaluate.report.viewer import graph_page
    from graphopt.io.trajectory import TIMESTAMPS

    graph = graphopt.read(source)
    old = None if before is None else graphopt.read(before)
    times = graph.attachments.get(TIMESTAMPS)
    return graph_page(graph, source.name, before=old, times=times if isinstance(times, dict) else None)


def _result_page(source: Path) -> str:
    from graphopt.evaluate.report.thumbnails import embedded
    from graphopt.evaluate.report.viewer import trajectory_page
    from graphopt.evaluate.results import load

    entries = {key: entry for key, entry in load(source).entries.items() if entry.get("curve")}
    curves = {key: entry["curve"] for key, entry in entries.items()}
    if not curves:
        raise OptionError(
            f"{source}: no entry has a trajectory to show. View a graph, or open {source}/report.html."
        )
    folder = source if source.is_dir() else source.parent
    maps = [folder / entry["points_file"] for entry in entries.values() if "points_file" in entry]
    points = [np.load(map_) for map_ in maps if map_.is_file()]
    images = embedded(
        {key: folder / entry["images_file"] for key, entry in entries.items() if "images_file" in entry}
    )
    return trajectory_page(curves, source.resolve().name, np.concatenate(points) if points else None, images)
