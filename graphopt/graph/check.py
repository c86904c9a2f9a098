"""What may go wrong in an optimization: findings about a graph that are not errors.

`severity` is "error" (the optimization will fail or give nonsense), "warning" (part of the answer is
undetermined or wrong in a way the user should know) or "note".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphopt.geometry import quaternion
from graphopt.graph.behind import points_behind
from graphopt.graph.bounds import bound_findings
from graphopt.graph.components import connected_components
from graphopt.graph.misread import misread
from graphopt.graph.select import select_connected
from graphopt.types.robust_kernels import num_kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphopt.graph.selection import Selection
    from graphopt.graph.sets import EdgeSet
    from graphopt.graph.store import GraphStore

_NEGATIVE_TOLERANCE = 1e-9  # eigenvalues this small relative to the largest count as zero
_SHOWN = 5  # ids in a message


@dataclass(frozen=True)
class Finding:
    """One observation about a graph."""

    kind: str
    """"no-edges", "non-finite", "zero-quaternion", "unknown-kernel", "information-indefinite",
    "information-singular", "isolated-vertices", "components", "gauge", "points-behind", "bounds-crossed",
    "bounds-violated", "misread" (units, orders or directions of numbers)."""
    severity: str
    """"error", "warning" or "note"."""
    message: str


def check(graph: GraphStore, level: int = 0) -> list[Finding]:
    """All findings about the edges of one level."""
    findings = list(_values(graph))
    if any(finding.severity == "error" for finding in findings):
        return findings
    for edge_set in graph.edge_sets:
        findings.extend(_information(edge_set))
    findings.extend(Finding(*found) for found in bound_findings(graph.vertex_sets))
    selection = graph.select(level)
    if not graph.convolutions:  # what is connected through these is not looked into
        connected = select_connected(graph, level) if graph.has_computed() else selection
        findings.extend(_topology(graph, connected, level))
    findings.extend(_behind(graph, selection))
    if not graph.has_computed():
        findings.extend(Finding(kind, "warning", words) for kind, words in misread(graph, selection.edges))
    return findings


def _values(graph: GraphStore) -> Iterator[Finding]:
    """What live views may have broken: numbers, kernels, vertex ids of edges."""
    arrays: list[tuple[str, np.ndarray, object]] = [
        *(
            (f"estimate of {rows.type.tag}", rows.look("estimate"), rows.type.wrap)
            for rows in graph.vertex_sets
        ),
        *(
            (f"measurement of {rows.type.tag}", rows.look("measurement"), rows.type.wrap_measurement)
            for rows in graph.edge_sets
        ),
        *((f"information of {rows.type.tag}", rows.look("information"), None) for rows in graph.edge_sets),
        *(
            (f"values of {rows.type.tag}", rows.look("values"), rows.type.wrap)
            for rows in graph.parameter_sets
        ),
    ]
    for what, array, wrap in arrays:
        bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
        if len(bad):
            yield Finding("non-finite", "error", f"The {what} holds NaN or infinity in rows {_some(bad)}.")
            continue
        for first in getattr(wrap, "quaternions", ()):
            bad = np.flatnonzero(~quaternion.has_direction(array[:, first : first + 4]))
            if len(bad):
                message = f"The {what} holds quaternions of length 0 in rows {_some(bad)}: no rotations."
                yield Finding("zero-quaternion", "error", message)
    for edge_set in graph.edge_sets:
        tag, kernel = edge_set.type.tag, edge_set.kernel
        if len(kernel) and not 0 <= kernel.min() <= kernel.max() < num_kernels():
            numbers = f"{int(kernel.min())} to {int(kernel.max())}"
            message = f"{tag}: robust kernels {numbers}, known are 0 to {num_kernels() - 1}."
            yield Finding("unknown-kernel", "error", message)
        missing = edge_set.vertices[graph.find_vertices(edge_set.vertices)[0] < 0]
        if len(missing):
            yield Finding(
                "missing-vertex", "error", f"{tag} names vertices {_some(np.unique(missing))}, not there."
            )


def _information(edge_set: EdgeSet) -> Iterator[Finding]:
    """Information matrices that are indefinite or singular."""
    if not len(edge_set):
        return
    eigenvalues = np.linalg.eigvalsh(edge_set.information)
    largest = np.maximum(np.abs(eigenvalues).max(axis=1), np.finfo(float).tiny)
    smallest = eigenvalues[:, 0] / largest
    for kind, severity, mask, meaning in (
        ("information-indefinite", "warning", smallest < -_NEGATIVE_TOLERANCE, "chi2 has no lower bound"),
        (
            "information-singular",
            "note",
            np.abs(smallest) <= _NEGATIVE_TOLERANCE,
            "some directions are not measured",
        ),
    ):
        count = int(np.count_nonzero(mask))
        if count:
            first = edge_set.vertices[np.argmax(mask)]
            yield Finding(
                kind,
                severity,
                f"{count} of {len(edge_set)} {edge_set.type.tag} have an information matrix that is "
                f"{kind.removeprefix('information-')} ({meaning}); the first joins vertices {_some(first)}.",
            )


def _topology(graph: GraphStore, selection: Selection, level: int) -> Iterator[Finding]:
    if not selection.num_active_edges:
        what = (
            "no edges" if not graph.num_edges else f"no edge of level {level} with a vertex that is not fixed"
        )
        yield Finding("no-edges", "error", f"The graph has {what}: there is nothing to optimize.")
        return
    isolated = [
        vertex_set.ids[~active]
        for vertex_set, active in zip(graph.vertex_sets, selection.active, strict=True)
    ]
    ids = np.sort(np.concatenate(isolated))
    if len(ids):
        yield Finding(
            "isolated-vertices",
            "note",
            f"{len(ids)} vertices have no active edge and stay as they are: {_some(ids)}.",
        )
    count, labels = connected_components(selection)
    if count > 1:
        sizes = np.sort(np.bincount(np.concatenate([label[label >= 0] for label in labels])))[::-1]
        yield Finding(
            "components",
            "warning",
            f"The graph falls apart into {count} components of {_some(sizes)} vertices, not connected; "
            "their positions relative to each other are arbitrary.",
        )
    if graph.gauge_freedom():
        yield Finding(
            "gauge",
            "note",
            "No vertex is fixed and no prior holds the graph as a whole; "
            f"vertex {graph.find_gauge()} would be fixed.",
        )


def _behind(graph: GraphStore, selection: Selection) -> Iterator[Finding]:
    for tag, rows in points_behind(graph, selection.edges).items():
        yield Finding(
            "points-behind",
            "warning",
            f"{len(rows)} {tag} are images of points that their cameras do not see, behind them: edges "
            f"{_some(np.array(rows))}.",
        )


def _some(values: np.ndarray) -> str:
    shown = ", ".join(str(int(value)) for value in values[:_SHOWN])
    return shown if len(values) <= _SHOWN else f"{shown}, ... ({len(values)} in all)"
