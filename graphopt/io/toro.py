"""TORO's .graph format (Grisetti): the tags VERTEX2, EDGE2, VERTEX3, EDGE3 (layouts: `types.toro`).

    BR      pose point bearing range sigma_bearing sigma_range
    EQUIV   i j

BR is GTSAM's and becomes EDGE_BEARING_RANGE_SE2_XY. EQUIV says that two vertices are one place; it is kept
verbatim and reported, but not used.

A point that only BR lines know is created; its estimate is what the first of them says, seen from that pose's
estimate.
"""

from __future__ import annotations

import numpy as np

import graphopt.io.extra_types as extra_types
from graphopt.errors import FormatError
from graphopt.graph import Graph
from graphopt.io.build import GraphBuilder
from graphopt.io.dialects import Dialect
from graphopt.io.g2o_file import POSE_DIM, ReadableType, add_fix, add_group, refuse_foreign, tag_table
from graphopt.io.g2o_write import Block, check_finite, join_blocks, losses, unparsed_block
from graphopt.io.read_report import ReadReport
from graphopt.io.tagged import TaggedRows, TagRule, format_rows, read_tagged
from graphopt.types import registry

BEARING_RANGE = TagRule(2, (4,), False, "BR, pose id, point id, bearing range, sigma of both")
_WRITTEN = {
    "VERTEX_SE2": "VERTEX2",
    "EDGE_SE2": "EDGE2",
    "VERTEX_SE3:QUAT": "VERTEX3",
    "EDGE_SE3:QUAT": "EDGE3",
}


def read_toro(data: bytes, path: str, report: ReadReport) -> Graph:
    """Make a graph of a TORO text. Raises FormatError with path and line."""
    types, rules = tag_table()
    text = read_tagged(data, path, {**rules, "BR": BEARING_RANGE})
    report.num_lines = text.num_lines
    report.warnings += text.warnings
    builder = GraphBuilder(path, report)
    for group in text.groups:
        if group.tag == "FIX":
            add_fix(builder, group)
        elif group.tag == "BR":
            _add_bearing_range(builder, group)
            _add_points(builder, group, text.groups, types)
        else:
            add_group(builder, types[group.tag], group)
    builder.keep_unparsed(text.unknown)
    equivalences = report.unknown_tags.get("EQUIV", 0)
    if equivalences:
        report.warnings.append(
            f"{equivalences} EQUIV lines (vertices that are one place) are kept but not used"
        )
    refuse_foreign(text.groups, text.unknown, path)
    return builder.build()


def _add_bearing_range(builder: GraphBuilder, group: TaggedRows) -> None:
    sigma = group.values[:, 2:]
    wrong = np.flatnonzero(~(sigma > 0.0).all(axis=1))
    if len(wrong):
        raise FormatError(
            f"{builder.path}:{group.lines[wrong[0]]}: BR: sigmas {sigma[wrong[0]].tolist()} must be > 0"
        )
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        information = np.eye(2) / (sigma**2)[:, None, :]
    if not np.isfinite(information).all():
        row = np.flatnonzero(~np.isfinite(information).all(axis=(1, 2)))[0]
        raise FormatError(
            f"{builder.path}:{group.lines[row]}: BR: sigmas {sigma[row].tolist()} are too small"
        )
    builder.add_edges(
        extra_types.EdgeBearingRange, group.ids, group.values[:, :2].copy(), information, group.lines
    )


def _add_points(
    builder: GraphBuilder, group: TaggedRows, groups: list[TaggedRows], types: dict[str, ReadableType]
) -> None:
    """Add points without a line of their own, from their first sighting."""
    pose_type, point_type = registry.vertex_type("VERTEX_SE2"), registry.vertex_type("VERTEX_XY")
    poses = [each_group for each_group in groups if types.get(each_group.tag) is pose_type]
    if not poses:
        return  # a file without vertices: the builder creates all of them
    written = [each_group.ids[:, 0] for each_group in groups if types.get(each_group.tag) is point_type]
    point_ids, first = np.unique(group.ids[:, 1], return_index=True)
    if written:
        new = ~np.isin(point_ids, np.concatenate(written))
        point_ids, first = point_ids[new], first[new]
    pose_id = np.concatenate([pose.ids[:, 0] for pose in poses])
    estimate = np.concatenate([pose.values[:, :3] for pose in poses])
    order = np.argsort(pose_id, kind="stable")
    at = np.minimum(np.searchsorted(pose_id, group.ids[first, 0], sorter=order), len(pose_id) - 1)
    x, y, theta = estimate[order[at]].T
    bearing, distance = group.values[first, 0] + theta, group.values[first, 1]
    points = np.stack([x + distance * np.cos(bearing), y + distance * np.sin(bearing)], axis=1)
    by_line = np.argsort(group.lines[first], kind="stable")
    builder.add_vertices(point_type, point_ids[by_line], points[by_line], group.lines[first][by_line])


def write_toro(graph: Graph, dialect: Dialect | None = None) -> tuple[bytes, list[str]]:
    """Text of a graph of 2-D or 3-D poses (and bearing-range points).

    FormatError names what TORO cannot hold.
    """
    check_finite(graph)
    bearing_range = extra_types.EdgeBearingRange
    points = registry.vertex_type("VERTEX_XY")
    blocks, warnings = [], [line for line in losses(graph) if "g2o skips" not in line]
    for vertex_set in graph.vertex_sets:
        if vertex_set.type is points and any(edges.type is bearing_range for edges in graph.edge_sets):
            warnings.append(f"estimates of {len(vertex_set)} points are not kept: BR lines alone hold them")
        elif len(vertex_set):
            tag = _toro_tag(vertex_set.type.tag)
            tokens = vertex_set.type.file_for(tag).encode(unit_poses(vertex_set.estimate))
            blocks.append(Block(1, vertex_set.sequence, format_rows(tag, vertex_set.ids[:, None], tokens)))
    for edge_set in graph.edge_sets:
        if len(edge_set) == 0:
            continue
        if edge_set.type is bearing_range:
            sigma = 1.0 / np.sqrt(np.einsum("nii->ni", edge_set.information))
            if not np.allclose(edge_set.information, np.eye(2) / (sigma**2)[:, None, :]):
                warnings.append("correlations of bearing and range are not kept")
            blocks.append(
                Block(
                    2,
                    edge_set.sequence,
                    format_rows("BR", edge_set.vertices, np.hstack([edge_set.measurement, sigma])),
                )
            )
        else:
            tag = _toro_tag(edge_set.type.tag)
            tokens = edge_set.type.file_for(tag).encode(
                unit_poses(edge_set.measurement), edge_set.information
            )
            blocks.append(Block(2, edge_set.sequence, format_rows(tag, edge_set.vertices, tokens)))
    fixed = sum(int(vertex_set.fixed.sum()) for vertex_set in graph.vertex_sets)
    if fixed:
        warnings.append(f"that {fixed} vertices are fixed is not kept")
    if graph.unparsed:
        blocks.append(unparsed_block(graph))
    return join_blocks(blocks, keep_order=False), warnings


def unit_poses(values: np.ndarray) -> np.ndarray:
    """(n, 7) poses with quaternions of length 1, of which alone the angles are exact; others as they are."""
    if values.shape[1] != POSE_DIM:
        return values
    length = np.linalg.norm(values[:, 3:], axis=1, keepdims=True)
    return np.concatenate([values[:, :3], values[:, 3:] / length], axis=1)


def _toro_tag(tag: str) -> str:
    if tag not in _WRITTEN:
        raise FormatError(
            f"TORO's format has no line for {tag}; it holds {', '.join(_WRITTEN)} and bearing-range "
            "edges. Write a .g2o instead."
        )
    return _WRITTEN[tag]
