"""iSAM's text format: writing. The layout is that of `io.isam`; estimates have no place in it."""

from __future__ import annotations

import numpy as np

from graphopt.errors import FormatError
from graphopt.graph import EdgeSet, Graph
from graphopt.io.dialects import Dialect
from graphopt.io.g2o_write import Block, join_blocks, losses, unparsed_block
from graphopt.io.isam import HALF_ANGLES, ISAM_ROTATION, TO_ROLL_PITCH_YAW
from graphopt.io.tagged import format_rows
from graphopt.io.toro import unit_poses
from graphopt.types.files import matrix_to_triangle
from graphopt.types.toro import euler_from_pose

_TAGS = {
    "EDGE_SE2": "ODOMETRY",
    "EDGE_SE2_XY": "LANDMARK",
    "EDGE_SE3:QUAT": "EDGE3",
    "EDGE_SE3_TRACKXYZ": "POINT3",
}


def write_isam(graph: Graph, dialect: Dialect | None = None) -> tuple[bytes, list[str]]:
    """Text of a graph of poses and landmarks, in iSAM's dialect or in that of covariances.

    FormatError names what iSAM cannot hold.
    """
    covariance = dialect is not None and dialect.holds_covariances
    warnings = [line for line in losses(graph) if "g2o" not in line]
    blocks = []
    for edge_set in graph.edge_sets:
        if len(edge_set) == 0:
            continue
        if edge_set.type.tag not in _TAGS:
            raise FormatError(
                f"iSAM's format has no line for {edge_set.type.tag}; it holds {', '.join(_TAGS)}. Write a "
                ".g2o instead."
            )
        if edge_set.type.parameters:
            _refuse_offsets(graph, edge_set)
        values = np.concatenate(_tokens(edge_set, covariance), axis=1)
        blocks.append(
            Block(2, edge_set.sequence, format_rows(_TAGS[edge_set.type.tag], edge_set.vertices, values))
        )
    if not blocks:
        raise FormatError("iSAM's format holds edges only, and the graph has none")
    if graph.unparsed:
        blocks.append(unparsed_block(graph))
    warnings.append(f"estimates of {graph.num_vertices} vertices are not kept: the format has only edges")
    fixed = sum(int(vertex_set.fixed.sum()) for vertex_set in graph.vertex_sets)
    if fixed:
        warnings.append(f"that {fixed} vertices are fixed is not kept")
    return join_blocks(blocks, keep_order=True), warnings


def _refuse_offsets(graph: Graph, edges: EdgeSet) -> None:
    """POINT3 is seen from the pose itself."""
    for parameters in graph.parameter_sets:
        used = np.isin(parameters.ids, edges.parameters)
        if not np.allclose(parameters.values[used], parameters.type.identity):
            raise FormatError(
                "iSAM's POINT3 knows no sensor offset; the graph has one that is not the identity"
            )


def _tokens(edges: EdgeSet, covariance: bool) -> tuple[np.ndarray, np.ndarray]:
    """Measurement and triangle of R, or of the covariance, of each edge."""
    if covariance:
        _factor(edges.information, edges)  # refuses what has no inverse
        spread = np.linalg.inv(edges.information)
        if edges.type.tag != "EDGE_SE3:QUAT":
            return edges.measurement, matrix_to_triangle(spread)
        spread *= np.outer(HALF_ANGLES, HALF_ANGLES)
        return euler_from_pose(unit_poses(edges.measurement)), matrix_to_triangle(spread)
    if edges.type.tag != "EDGE_SE3:QUAT":
        return edges.measurement, matrix_to_triangle(_factor(edges.information, edges))
    information = edges.information / np.outer(HALF_ANGLES, HALF_ANGLES)
    factor = _factor(information[:, TO_ROLL_PITCH_YAW][:, :, TO_ROLL_PITCH_YAW], edges)
    triangle = matrix_to_triangle(factor)
    for row, column, position in ISAM_ROTATION:
        triangle[:, position] = factor[:, row, column]
    return euler_from_pose(unit_poses(edges.measurement)), triangle


def _factor(information: np.ndarray, edges: EdgeSet) -> np.ndarray:
    """Upper triangular R with R' R = information."""
    try:
        return np.swapaxes(np.linalg.cholesky(information), 1, 2)
    except np.linalg.LinAlgError:
        bad = int(np.argmin(np.linalg.eigvalsh(information)[:, 0]))
        raise FormatError(
            f"the information of edge {edges.vertices[bad].tolist()} ({edges.type.tag}) is not positive "
            "definite, so it has no "
            "square root to write"
        ) from None
