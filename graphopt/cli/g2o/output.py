"""What the g2o program prints and writes beside the graph: statistics, summary, covariances, gnuplot data."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from graphopt.g2o import Factory, VertexSE2, VertexSE3
from graphopt.io.files import write_bytes

_SHOWN = 10
"""Edges that a line names."""
_STATISTICS = (
    ("iteration", "iteration"),
    ("numVertices", "num_vertices"),
    ("numEdges", "num_edges"),
    ("chi2", "chi2"),
    ("timeResiduals", "time_residuals"),
    ("timeLinearize", "time_linearize"),
    ("timeQuadraticForm", "time_quadratic_form"),
    ("timeSchurComplement", "time_schur_complement"),
    ("timeSymbolicDecomposition", "time_symbolic_decomposition"),
    ("timeNumericDecomposition", "time_numeric_decomposition"),
    ("timeLinearSolution", "time_linear_solution"),
    ("iterationsLinearSolver", "iterations_linear_solver"),
    ("timeUpdate", "time_update"),
    ("timeIteration", "time_iteration"),
    ("levenbergIterations", "levenberg_iterations"),
    ("timeLinearSolver", "time_linear_solver"),
    ("hessianDimension", "hessian_dimension"),
    ("hessianPoseDimension", "hessian_pose_dimension"),
    ("hessianLandmarkDimension", "hessian_landmark_dimension"),
    ("choleskyNNZ", "choleskyNNZ"),
    ("timeMarginals", "time_marginals"),
)


def statistics_line(statistics: Any) -> str:
    """One iteration, in g2o's order."""
    return "".join(f"{name}= {getattr(statistics, attribute):g}\t " for name, attribute in _STATISTICS) + "\n"


def summary_text(values: dict[str, Any]) -> str:
    """Names and values, each on a line, sorted by name."""
    names = sorted(values)
    texts = [f"{values[name]:g}" if isinstance(values[name], float) else str(values[name]) for name in names]
    return ",".join(names) + "\n" + ",".join(texts) + "\n"


def count_summary(optimizer: Any) -> dict[str, Any]:
    """What the summary says about the graph."""
    vertices, edges = optimizer.vertices().values(), optimizer.edges()
    largest = optimizer.max_dimension()
    poses = sum(vertex.dimension() == largest for vertex in vertices)
    tags = sorted({Factory.instance().tag(edge) for edge in edges})
    return {
        "n_vertices": len(vertices),
        "n_edges": len(edges),
        "n_poses": poses,
        "n_landmarks": len(vertices) - poses,
        "edge_types": "".join(f"{tag} " for tag in tags),
    }


def behind_lines(optimizer: Any) -> list[str]:
    """A line per edge type with images of points that are behind their cameras; edges by their vertices."""
    from graphopt.g2o import files

    graph, lines = files.graph_of(optimizer, 0), []
    for tag, rows in graph.points_behind().items():
        vertices = graph.edge_set(tag).vertices[rows[:_SHOWN]].tolist()
        named = ", ".join(" ".join(map(str, vertex)) for vertex in vertices) + (
            ", ..." if len(rows) > _SHOWN else ""
        )
        lines.append(f"# {len(rows)} points behind their cameras: {tag}, edges of vertices {named}")
    return lines


def marginal_lines(optimizer: Any) -> list[str]:
    """Covariance of each vertex that is optimized, and with the one before it; none if H is singular."""
    free = optimizer.index_mapping()
    pairs = [(i, i) for i in range(len(free))] + [(i - 1, i) for i in range(1, len(free))]
    matrix, good = optimizer.compute_marginals(pairs)
    lines: list[str] = []
    for vertex in optimizer.active_vertices() if good else ():
        lines.append(f"Vertex id:{vertex.id()}")
        i = vertex.hessian_index()
        for row in (i, i - 1):
            if row >= 0:
                lines.append(f"inv block :{row}, {i}")
                lines += [" ".join(f"{value:12.6g}" for value in line) for line in matrix.block(row, i)]
    return lines


# -------------------------------------------------------------------- gnuplot


def dump_edges(edges: Iterable[Any]) -> str:
    """Commands that let gnuplot draw the edges: what `-guiout` prints."""
    lines = ["set terminal x11 noraise", "set size ratio -1", 'plot "-" w l']
    return "\n".join([*lines, *map(_edge_text, edges), "e"]) + "\n"


def save_gnuplot(filename: str, optimizer: Any) -> list[Path]:
    """Write edges and vertices for gnuplot, beside `filename`; returns the files. OSError if it fails."""
    root, extension = os.path.splitext(filename)
    extension = extension or ".dat"
    largest = optimizer.max_dimension()
    edges = sorted(optimizer.edges(), key=lambda each_edge: each_edge.internal_id())
    odometry, landmark = [], []
    for edge in edges:
        if len(edge.vertices()) == 2:
            same = all(vertex.dimension() == largest for vertex in edge.vertices())
            (odometry if same else landmark).append(edge)
    parts = {
        "odom_edges": [_edge_text(edge) + "\n" for edge in odometry],
        "landmarks_edges": [_edge_text(edge) + "\n" for edge in landmark],
        "edges": [_edge_text(each_edge) + "\n" for each_edge in edges],
        "vertices": [_vertex_text(vertex) + "\n" for vertex in optimizer.vertices().values()],
    }
    written = []
    for name, texts in parts.items():
        if texts or name in ("edges", "vertices"):
            path = Path(f"{root}_{name}{extension}")
            write_bytes(path, "".join(texts).encode())
            written.append(path)
    return written


def _vertex_text(vertex: Any) -> str:
    """The numbers of an estimate: x y theta, or x y z qx qy qz, or a point."""
    numbers = vertex.get_minimal_estimate_data()
    if isinstance(vertex, VertexSE2):
        numbers = vertex.estimate().to_vector()
    return " ".join(f"{value:g}" for value in numbers)


def _edge_text(edge: Any) -> str:
    """Both ends as two lines of a segment; between poses in space in one line, as g2o writes it."""
    ends = [_vertex_text(vertex) for vertex in edge.vertices() if vertex is not None]
    if len(ends) == 2 and all(isinstance(vertex, VertexSE3) for vertex in edge.vertices()):
        return " ".join(ends)
    return "\n".join([*ends, ""])
