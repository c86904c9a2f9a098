"""BAL problems as graphs and back.

BAL       VERTEX_CAM_BAL (9 numbers), VERTEX_TRACKXYZ marginalized, EDGE_OBSERVATION_BAL
fixed K   VERTEX_SE3:EXPMAP, VERTEX_TRACKXYZ marginalized, EDGE_SE3_PROJECT_XYZ:EXPMAP with fx fy cx cy

Camera i is vertex i, point j is vertex num_cameras + j.
"""

from __future__ import annotations

import numpy as np

from graphopt.errors import FormatError
from graphopt.geometry import SE3, SO3
from graphopt.graph import Graph
from graphopt.io.bal_problem import (
    BalProblem,
    format_bal,
    parse_bal,
    parse_bal_npz,
)
from graphopt.io.g2o_write import check_finite
from graphopt.io.read_report import ReadReport

CAMERA, POINT, OBSERVATION = "VERTEX_CAM_BAL", "VERTEX_TRACKXYZ", "EDGE_OBSERVATION_BAL"
POSE, PINHOLE_OBSERVATION = "VERTEX_SE3:EXPMAP", "EDGE_SE3_PROJECT_XYZ:EXPMAP"


def graph_of(problem: BalProblem, report: ReadReport) -> Graph:
    """Graph of a problem of either kind; counts and warnings go to the report."""
    graph = Graph()
    num_cameras, num_points = len(problem.cameras), len(problem.points)
    vertices = np.stack([problem.point_index, problem.camera_index], axis=1).astype(np.int64)
    vertices[:, 0] += num_cameras
    if problem.intrinsics is None:
        camera_tag, edge_tag, cameras, measurement = (
            CAMERA,
            OBSERVATION,
            problem.cameras,
            problem.observations,
        )
        vertices = vertices[:, ::-1]
    else:
        camera_tag, edge_tag = POSE, PINHOLE_OBSERVATION
        rotation = np.asarray(SO3.exp(problem.cameras[:, 3:]).storage)
        cameras = np.concatenate([problem.cameras[:, :3], rotation], axis=1)
        constants = np.broadcast_to(problem.intrinsics, (len(problem.observations), 4))
        measurement = np.concatenate([problem.observations, constants], axis=1)
    graph.add_vertices(camera_tag, np.arange(num_cameras), cameras)
    graph.add_vertices(POINT, num_cameras + np.arange(num_points), problem.points, marginalized=True)
    graph.add_edges(edge_tag, vertices, measurement)
    report.vertices.update({camera_tag: num_cameras, POINT: num_points})
    report.edges[edge_tag] = len(vertices)
    for what, index, count in (
        ("cameras", problem.camera_index, num_cameras),
        ("points", problem.point_index, num_points),
    ):
        is_seen = np.zeros(count, bool)
        is_seen[index] = True
        unseen = np.count_nonzero(~is_seen)
        if unseen:
            report.warnings.append(f"{unseen} {what} have no observation")
    return graph


def read_bal(data: bytes, path: str, report: ReadReport) -> Graph:
    """Graph of a BAL text."""
    report.num_lines = data.count(b"\n")
    return graph_of(parse_bal(data, path), report)


def read_bal_npz(data: bytes, path: str, report: ReadReport) -> Graph:
    """Graph of a numpy archive."""
    return graph_of(parse_bal_npz(data, path), report)


def read_fixed_intrinsics(data: bytes, path: str, report: ReadReport) -> Graph:
    """Graph of the variant with shared, known intrinsics."""
    report.num_lines = data.count(b"\n")
    return graph_of(parse_bal(data, path, has_intrinsics=True), report)


def problem_of(graph: Graph) -> tuple[BalProblem, list[str]]:
    """Problem of a graph with BAL cameras, and what is lost. FormatError names what BAL cannot hold."""
    check_finite(graph)
    for elements in (*graph.vertex_sets, *graph.edge_sets):
        if len(elements) and elements.type.tag not in (CAMERA, POINT, OBSERVATION):
            raise FormatError(
                f"BAL's format has no place for {len(elements)} {elements.type.tag}; it holds {CAMERA}, "
                f"{POINT} and {OBSERVATION}. Formats for any graph: g2o, graph_npz."
            )
    sets = {vertex_set.type.tag: vertex_set for vertex_set in graph.vertex_sets}
    if CAMERA not in sets or POINT not in sets or not any(len(edge_set) for edge_set in graph.edge_sets):
        raise FormatError(
            f"BAL's format needs cameras ({CAMERA}), points ({POINT}) and observations ({OBSERVATION})"
        )
    edges = graph.edge_set(OBSERVATION)
    cameras, points = sets[CAMERA], sets[POINT]
    _, camera_row = graph.find_vertices(edges.vertices[:, 0])
    _, point_row = graph.find_vertices(edges.vertices[:, 1])
    problem = BalProblem(camera_row, point_row, edges.measurement, cameras.estimate, points.estimate)
    return problem, _losses(graph)


def _losses(graph: Graph) -> list[str]:
    warnings = []
    edges = graph.edge_set(OBSERVATION)
    if (edges.information != np.eye(2)).any():
        warnings.append("information matrices other than the identity are not kept")
    if edges.kernel.any():
        warnings.append("robust kernels are not kept")
    if any(vertex_set.fixed.any() for vertex_set in graph.vertex_sets):
        warnings.append("which vertices are fixed is not kept")
    if graph.unparsed:
        warnings.append(f"{len(graph.unparsed)} lines with unknown tags are not kept")
    expected = 0
    for tag in (CAMERA, POINT):
        ids = graph.vertex_set(tag).ids
        if not np.array_equal(ids, np.arange(expected, expected + len(ids))):
            warnings.append("vertex ids are not kept: cameras and points are counted from 0")
            break
        expected += len(ids)
    return warnings


def write_bal(graph: Graph) -> tuple[bytes, list[str]]:
    """BAL text of a graph with BAL cameras."""
    problem, warnings = problem_of(graph)
    return format_bal(problem), warnings


def write_fixed_intrinsics(graph: Graph) -> tuple[bytes, list[str]]:
    """Text of the variant with shared intrinsics. FormatError if the graph is no such problem."""
    check_finite(graph)
    expected = {POSE, POINT, PINHOLE_OBSERVATION}
    present = {elements.type.tag for elements in (*graph.vertex_sets, *graph.edge_sets) if len(elements)}
    if present != expected:
        raise FormatError(
            f"this format holds exactly {', '.join(sorted(expected))}, the graph {', '.join(sorted(present))}"
        )
    edges, poses, points = (
        graph.edge_set(PINHOLE_OBSERVATION),
        graph.vertex_set(POSE),
        graph.vertex_set(POINT),
    )
    intrinsics = edges.measurement[0, 2:6]
    if (edges.measurement[:, 2:6] != intrinsics).any():
        raise FormatError("this format has one set of intrinsics for all observations, the graph has several")
    _, point_row = graph.find_vertices(edges.vertices[:, 0])
    _, pose_row = graph.find_vertices(edges.vertices[:, 1])
    rotation = np.asarray(SE3(poses.estimate).rotation.log())
    cameras = np.concatenate([poses.estimate[:, :3], rotation], axis=1)
    problem = BalProblem(pose_row, point_row, edges.measurement[:, :2], cameras, points.estimate, intrinsics)
    lost = (
        (edges.information != np.eye(2)).any()
        or edges.kernel.any()
        or any(s.fixed.any() for s in graph.vertex_sets)
    )
    return format_bal(problem), [
        "information, kernels and which vertices are fixed are not kept"
    ] if lost else []
