"""`graphopt info`: what a graph file holds, and what may be wrong with it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from graphopt.cli import arguments, output, vib

if TYPE_CHECKING:
    from graphopt.graph import Graph
    from graphopt.io import ReadReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = "Count vertices, edges and parameters by type, and report what may be wrong."
    arguments.add_input(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print what the file holds; return 0."""
    if vib.holds_map(args.input):
        return vib.info(args)
    from graphopt.io import read_with_report

    graph, report = read_with_report(args.input, dialect=args.dialect)
    document = describe(graph, report)
    if args.json:
        output.print_json(document)
    else:
        _print(document)
    return 0


def describe(graph: Graph, report: ReadReport) -> dict[str, Any]:
    """Return the facts about a graph that was read, ready for JSON."""
    num_components, _ = graph.components()
    return {
        "path": str(report.path),
        "format": report.format,
        "dialect": report.dialect,
        "dialect_reason": report.dialect_reason,
        "seconds": report.seconds,
        "vertices": dict(report.vertices),
        "edges": dict(report.edges),
        "parameters": dict(report.parameters),
        "unknown_tags": dict(report.unknown_tags),
        "fixed": sum(int(vertex_set.fixed.sum()) for vertex_set in graph.vertex_sets),
        "marginalized": sum(int(vertex_set.marginalized.sum()) for vertex_set in graph.vertex_sets),
        "smallest_id": min(
            (int(vertex_set.ids.min()) for vertex_set in graph.vertex_sets if len(vertex_set)), default=None
        ),
        "largest_id": max(
            (int(vertex_set.ids.max()) for vertex_set in graph.vertex_sets if len(vertex_set)), default=None
        ),
        "robust_edges": sum(int((edge_set.kernel != 0).sum()) for edge_set in graph.edge_sets),
        "components": num_components,
        "chi2": float(graph.chi2()) if graph.num_edges else 0.0,
        "has_estimates": not report.needs_initialization,
        "findings": [
            {"kind": finding.kind, "severity": finding.severity, "message": finding.message}
            for finding in graph.check()
        ],
        "warnings": list(report.warnings),
    }


def _print(document: dict[str, Any]) -> None:
    rows: list[tuple[str, str, str]] = []
    for key, name in (("vertices", "vertex"), ("edges", "edge"), ("parameters", "parameter")):
        rows.extend((name, tag, str(count)) for tag, count in document[key].items())
    rows.extend(("kept as is", tag, str(count)) for tag, count in document["unknown_tags"].items())
    print(f"{document['path']} ({document['format']})\n")
    output.print_table(("what", "tag", "count"), rows, numeric=("count",))
    print()

    chi2 = (
        output.number(document["chi2"]) if document["has_estimates"] else "unknown: the file has no estimates"
    )
    facts = [
        ("vertices", f"{sum(document['vertices'].values())}, {document['fixed']} of them fixed"),
        ("edges", f"{sum(document['edges'].values())}, {document['robust_edges']} with a robust kernel"),
        ("ids", f"{document['smallest_id']} to {document['largest_id']}"),
        ("components", str(document["components"])),
        ("chi2", chi2),
        ("read in", output.seconds(document["seconds"])),
    ]
    if document["dialect"] is not None:
        facts.insert(0, ("dialect", f"{document['dialect']} ({document['dialect_reason']})"))
    facts.extend((finding["severity"], finding["message"]) for finding in document["findings"])
    facts.extend(("warning", warning) for warning in document["warnings"])
    output.print_facts(facts)
