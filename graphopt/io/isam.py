"""iSAM's text format (Kaess), as `isam/Loader.cpp` reads it.

    ODOMETRY, EDGE2   i j  x y theta                 R: 6 numbers
    LANDMARK          i l  x y                       R: 3 numbers
    EDGE3             i j  x y z roll pitch yaw      R: 21 numbers or none (identity)
    POINT3            i l  x y z                     R: 6 numbers or none (identity)

R is the upper triangle, row by row, of the square root of the information: information = R' R. In EDGE3 iSAM
fills the rotation's part backwards: its R is of (x, y, z, yaw, pitch, roll), with i66 i56 i46 / i55 i45 / i44
in the place of i44 i45 i46 / i55 i56 / i66. g2o's rotation error is the quaternion's vector part, half of a
small angle, so the rotation's rows and columns of the information double.

In the dialect isam-covariance the numbers are the upper triangle of a covariance instead, in EDGE3 of (x, y,
z, roll, pitch, yaw): GTSAM ships such files (victoria_park.txt). Without a dialect the numbers are R, iSAM's
documented format, unless that cannot be meant: where the angle of the odometry would have a standard
deviation of more than half a turn (1 / |R_tt| > pi) and all triangles are covariances, they are taken for
covariances. The report says so, and warns where both readings are possible.

Poses and landmarks are numbered apart; where the numbers overlap, landmark l becomes vertex l + 1 + largest
pose number.
"""

from __future__ import annotations

import numpy as np

from graphopt import _native
from graphopt.errors import FormatError
from graphopt.graph import Graph
from graphopt.io.build import GraphBuilder
from graphopt.io.dialects import ATTACHMENT, DIALECTS, Dialect, look_up
from graphopt.io.g2o_file import refuse_foreign
from graphopt.io.read_report import ReadReport
from graphopt.io.tagged import TaggedRows, TaggedText, TagRule, read_tagged
from graphopt.types import EdgeType, registry
from graphopt.types.files import identity_matrices, triangle_to_matrix
from graphopt.types.toro import pose_from_euler

RULES = {
    "ODOMETRY": TagRule(2, (9,), False, "ODOMETRY, 2 pose ids, x y theta, 6 entries of R"),
    "EDGE2": TagRule(2, (9,), False, "EDGE2, 2 pose ids, x y theta, 6 entries of R"),
    "LANDMARK": TagRule(2, (5,), False, "LANDMARK, pose id, landmark id, x y, 3 entries of R"),
    "EDGE3": TagRule(2, (27, 6), False, "EDGE3, 2 pose ids, x y z roll pitch yaw, 21 entries of R"),
    "POINT3": TagRule(2, (9, 3), False, "POINT3, pose id, point id, x y z, 6 entries of R"),
}
_TARGET = {
    "ODOMETRY": "EDGE_SE2",
    "EDGE2": "EDGE_SE2",
    "LANDMARK": "EDGE_SE2_XY",
    "EDGE3": "EDGE_SE3:QUAT",
    "POINT3": "EDGE_SE3_TRACKXYZ",
}
_DIAGONAL = {
    "ODOMETRY": [3, 6, 8],
    "EDGE2": [3, 6, 8],
    "LANDMARK": [2, 4],
}
"""Positions of the diagonal of R on a line."""
_PLANAR = ("ODOMETRY", "EDGE2")
_LANDMARKS = ("LANDMARK", "POINT3")
ISAM_ROTATION = [(3, 3, 20), (3, 4, 19), (3, 5, 17), (4, 4, 18), (4, 5, 16), (5, 5, 15)]
"""(row, column of iSAM's R, position in the file's triangle of 21): i66 i56 i46 i55 i45 i44."""
TO_ROLL_PITCH_YAW = [0, 1, 2, 5, 4, 3]
HALF_ANGLES = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.0])
IDENTITY_OFFSET = 0
"""Id of the sensor offset that POINT3 edges refer to: none."""


def read_isam(data: bytes, path: str, report: ReadReport) -> Graph:
    """Make a graph of an iSAM text; its vertices are created with identity estimates. Raises FormatError."""
    text = read_tagged(data, path, RULES)
    report.num_lines = text.num_lines
    report.warnings += text.warnings
    builder = GraphBuilder(path, report)
    covariance = _find_dialect(text, report).holds_covariances
    shift = _landmark_shift(text, report)
    for group in text.groups:
        _add(builder, group, covariance, shift)
    if any(text.with_tag("POINT3")):
        offset = registry.parameter_type("PARAMS_SE3OFFSET")
        builder.add_parameters(
            offset, np.array([IDENTITY_OFFSET]), np.array([offset.identity]), np.array([0])
        )
    builder.keep_unparsed(text.unknown)
    refuse_foreign(text.groups, text.unknown, path)
    graph = builder.build()
    graph.attachments[ATTACHMENT] = report.dialect
    return graph


def _add(builder: GraphBuilder, group: TaggedRows, covariance: bool, shift: int) -> None:
    edge_type = registry.edge_type(_TARGET[group.tag])
    assert isinstance(edge_type, EdgeType)
    vertices = group.ids + np.array([0, shift]) if group.tag in _LANDMARKS else group.ids
    num_measured = {"EDGE3": 6, "LANDMARK": 2}.get(group.tag, 3)
    measurement, triangle = group.values[:, :num_measured], group.values[:, num_measured:]
    if group.tag == "EDGE3":
        measurement = pose_from_euler(measurement)
        if covariance and triangle.shape[1]:
            information = _invert(triangle_to_matrix(triangle, 6), builder.path, group)
            information *= np.outer(HALF_ANGLES, HALF_ANGLES)
        else:
            information = _information3(triangle, len(group.lines))
    elif triangle.shape[1] == 0:
        information = identity_matrices(len(group.lines), edge_type.residual_dim)
    elif covariance:
        information = _invert(triangle_to_matrix(triangle, edge_type.residual_dim), builder.path, group)
    else:
        information = _gram(_upper(triangle, edge_type.residual_dim))
    parameters = np.full((len(vertices), 1), IDENTITY_OFFSET) if group.tag == "POINT3" else None
    builder.add_edges(edge_type, vertices, measurement, information, group.lines, parameters)


def _upper(triangle: np.ndarray, dim: int) -> np.ndarray:
    factor = np.zeros((len(triangle), dim, dim))
    rows, columns = np.triu_indices(dim)
    factor[:, rows, columns] = triangle
    return factor


def _gram(factor: np.ndarray) -> np.ndarray:
    return np.swapaxes(factor, 1, 2) @ factor


def _information3(triangle: np.ndarray, count: int) -> np.ndarray:
    """(n, 21) R as in the file, or (n, 0) -> (n, 6, 6) information of g2o's error."""
    information = identity_matrices(count, 6)
    if triangle.shape[1]:
        factor = _upper(triangle, 6)
        for row, column, position in ISAM_ROTATION:
            factor[:, row, column] = triangle[:, position]
        information = _gram(factor)[:, TO_ROLL_PITCH_YAW][:, :, TO_ROLL_PITCH_YAW]
    return information * np.outer(HALF_ANGLES, HALF_ANGLES)


def _invert(covariance: np.ndarray, path: str, group: TaggedRows) -> np.ndarray:
    try:
        inverse = np.linalg.inv(covariance)
    except np.linalg.LinAlgError:
        row = int(np.argmin(np.abs(np.linalg.det(covariance))))
        raise FormatError(f"{path}:{group.lines[row]}: {group.tag}: the covariance is singular") from None
    return 0.5 * (inverse + np.swapaxes(inverse, 1, 2))


def _find_dialect(text: TaggedText, report: ReadReport) -> Dialect:
    """Dialect that was asked for, else what the numbers say; fills in the report."""
    if report.dialect is not None:
        report.dialect_reason = "as asked for"
        return look_up(report.dialect, "isam")
    groups = [group for group in text.groups if group.tag in _DIAGONAL and group.values.shape[1] > 3]
    factors = [np.abs(group.values[:, _DIAGONAL[group.tag]]) for group in groups]
    odometry = [part for group, part in zip(groups, factors, strict=True) if group.tag in _PLANAR]
    chosen, report.dialect_reason = DIALECTS["isam"], "iSAM's documented format"
    if odometry and all(map(_are_covariances, groups)):
        angle = 1.0 / max(float(np.median(np.concatenate(odometry)[:, 2])), 1e-300)
        if angle > np.pi:
            chosen = DIALECTS["isam-covariance"]
            report.dialect_reason = (
                f"as R the odometry's angle would have a standard deviation of {angle:.3g} rad"
            )
            report.warnings.append(
                f"the noise of the odometry is taken for covariances: {report.dialect_reason}. "
                "If it is the square root of the information: dialect='isam'"
            )
        elif max(float(part.max()) for part in factors) < 1.0:
            report.warnings.append(
                "all noise entries are below 1: they are read as R, the square root of the information, and "
                "could be covariances as well. If so: dialect='isam-covariance'"
            )
    report.dialect = chosen.name
    return chosen


def _are_covariances(group: TaggedRows) -> bool:
    """Tell whether all triangles of these lines are positive definite matrices."""
    dim = len(_DIAGONAL[group.tag])
    matrices = triangle_to_matrix(group.values[:, -dim * (dim + 1) // 2 :], dim)
    return bool(_native.positive_definite(np.ascontiguousarray(matrices)).all())


def _landmark_shift(text: TaggedText, report: ReadReport) -> int:
    poses = [group.ids.ravel() for group in text.with_tag("ODOMETRY", "EDGE2", "EDGE3")]
    poses += [group.ids[:, 0] for group in text.with_tag(*_LANDMARKS)]
    landmarks = [group.ids[:, 1] for group in text.with_tag(*_LANDMARKS)]
    if not landmarks or not np.isin(np.concatenate(landmarks), np.concatenate(poses)).any():
        return 0
    shift = int(np.concatenate(poses).max()) + 1
    if shift + int(np.concatenate(landmarks).max()) >= 1 << 63:
        raise FormatError(f"{text.path}: pose and landmark numbers overlap and are too large to tell apart")
    report.warnings.append(f"poses and landmarks use the same numbers: landmark l is vertex l + {shift}")
    return shift
