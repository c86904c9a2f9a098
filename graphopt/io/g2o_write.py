"""g2o's text format, and with it TORO's: writing.

Lines come in the order of `sequence` (that of the file the graph was read from) where that is an order g2o
can read: parameters before edges, vertices before their edges. Otherwise parameters, then vertices, then
edges. FIX lines stand last. Numbers are the shortest decimals that read back to the same doubles.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from graphopt.errors import FormatError
from graphopt.graph import EdgeSet, Graph, ParameterSet, VertexSet
from graphopt.io.dialect_choice import mark
from graphopt.io.dialects import ATTACHMENT, Dialect, differs_between_dialects, for_writing
from graphopt.io.g2o_kernels import kernel_lines
from graphopt.io.numbers import format_table
from graphopt.io.tagged import format_rows
from graphopt.types import VertexType, registry

G2O_TAGS = frozenset(
    """
    VERTEX_SE2 VERTEX_XY VERTEX_SE3:QUAT VERTEX_TRACKXYZ VERTEX_SE3:EXPMAP VERTEX_SIM3:EXPMAP VERTEX_CAM
    VERTEX_INTRINSICS VERTEX_ODOM_DIFFERENTIAL PARAMS_SE2OFFSET PARAMS_SE3OFFSET PARAMS_CAMERACALIB
    PARAMS_CAMERAPARAMETERS EDGE_SE2 EDGE_SE2_XY EDGE_BEARING_SE2_XY EDGE_SE2_OFFSET
    EDGE_SE2_POINTXY_OFFSET EDGE_SE2_CALIB EDGE_SE2_XY_CALIB EDGE_SE2_ODOM_DIFFERENTIAL_CALIB
    EDGE_SE2_TWOPOINTSXY EDGE_SE2_LOTSOFXY EDGE_POINTXY EDGE_PRIOR_SE2 EDGE_PRIOR_SE2_XY EDGE_PRIOR_XY
    EDGE_SE3:QUAT EDGE_SE3_OFFSET EDGE_SE3_TRACKXYZ EDGE_SE3_LOTSOF_XYZ EDGE_SE3_PRIOR EDGE_SE3_XYZ_PRIOR
    EDGE_PROJECT_DEPTH EDGE_PROJECT_DISPARITY EDGE_POINTXYZ EDGE_POINTXYZ_PRIOR EDGE_SE3:EXPMAP
    EDGE_PROJECT_XYZ2UV:EXPMAP EDGE_PROJECT_XYZ2UVU:EXPMAP EDGE_SE3_PROJECT_XYZ:EXPMAP
    EDGE_SE3_PROJECT_XYZONLYPOSE:EXPMAP EDGE_STEREO_SE3_PROJECT_XYZ:EXPMAP
    EDGE_STEREO_SE3_PROJECT_XYZONLYPOSE:EXPMAP EDGE_PROJECT_P2MC EDGE_PROJECT_P2SC EDGE_CAM EDGE_SCALE
    EDGE_SIM3:EXPMAP EDGE_PROJECT_SIM3_XYZ:EXPMAP EDGE_PROJECT_INVERSE_SIM3_XYZ:EXPMAP EDGE_V_V_GICP
    """.split()
)
"""Tags that g2o 2.3.0 registers for its files."""


class Block(NamedTuple):
    """Lines of one set, or unparsed ones (phase -1)."""

    phase: int
    """0 parameters, 1 vertices, 2 edges, in case the order of the file cannot be kept."""
    sequence: np.ndarray  # (n,)
    text: bytes


def write_g2o(graph: Graph, dialect: Dialect | None = None) -> tuple[bytes, list[str]]:
    """Text of a graph, and sentences about what g2o will not find in it.

    None: the dialect the graph was read in, else C++ g2o's. Where lines differ between dialects, a comment in
    front names it. FormatError for numbers that are not finite.
    """
    dialect = dialect or for_writing(graph, "g2o", None)
    assert dialect is not None
    check_finite(graph)
    blocks = [_parameter_block(parameter_set) for parameter_set in graph.parameter_sets if len(parameter_set)]
    blocks += [_vertex_block(vertex_set, dialect) for vertex_set in graph.vertex_sets if len(vertex_set)]
    blocks += [_edge_block(edge_set, dialect) for edge_set in graph.edge_sets if len(edge_set)]
    if graph.unparsed:
        blocks.append(unparsed_block(graph))
    text = join_blocks(blocks, keep_order=_order_is_readable(graph))
    head = mark(dialect) if differs_between_dialects(graph) else b""
    kernels = kernel_lines(graph)
    return head + text + fix_lines(graph) + kernels, losses(graph) + ignored_numbers(graph, dialect)


def check_finite(graph: Graph) -> None:
    """Refuse to write estimates that are not numbers: no reader accepts them."""
    for vertex_set in graph.vertex_sets:
        bad = np.flatnonzero(~np.isfinite(vertex_set.estimate).all(axis=1))
        if len(bad):
            raise FormatError(
                f"vertex {vertex_set.ids[bad[0]]} ({vertex_set.type.tag}) has the estimate "
                f"{vertex_set.estimate[bad[0]].tolist()}, which is "
                "not finite; nothing was written"
            )


def _parameter_block(parameters: ParameterSet) -> Block:
    tokens = parameters.type.file.lossless(parameters.values).encode(parameters.values)
    return Block(0, parameters.sequence, format_rows(parameters.type.tag, parameters.ids[:, None], tokens))


def _vertex_block(vertices: VertexSet, dialect: Dialect) -> Block:
    return Block(1, vertices.sequence, vertex_lines(vertices.type, vertices.ids, vertices.estimate, dialect))


def vertex_lines(kind: VertexType, ids: np.ndarray, estimate: np.ndarray, dialect: Dialect) -> bytes:
    """A line for each of some vertices of a type; ids (n,), estimate (n, storage_dim)."""
    tokens = _vertex_layout(kind, estimate, dialect).encode(estimate)
    return format_rows(kind.tag, ids[:, None], tokens)


def _vertex_layout(kind: VertexType, estimate: np.ndarray, dialect: Dialect) -> Any:
    layout = dialect.layout(kind, kind.tag)
    return layout.lossless(estimate) if layout.alternatives else layout


def _edge_layout(edges: EdgeSet, dialect: Dialect) -> Any:
    layout = dialect.layout(edges.type, edges.type.tag)
    return layout.lossless(edges.measurement, edges.information) if layout.alternatives else layout


def _edge_block(edges: EdgeSet, dialect: Dialect) -> Block:
    tokens = _edge_layout(edges, dialect).encode(edges.measurement, edges.information)
    ids = np.concatenate([edges.vertices, edges.parameters], axis=1)
    counted = hasattr(registry.edge_type(edges.type.tag), "instantiate")
    if counted and dialect.ids_before_bars:
        return Block(2, edges.sequence, _rows_with_bars(edges.type.tag, ids, tokens))
    return Block(2, edges.sequence, format_rows(edges.type.tag, ids, tokens, with_count=counted))


def _rows_with_bars(tag: str, ids: np.ndarray, tokens: np.ndarray) -> bytes:
    """Lines `tag ids || numbers`."""
    heads = format_rows(tag, ids, np.empty((len(ids), 0))).split(b"\n")[:-1]
    tails = format_table(tokens).split(b"\n")[:-1]
    return b"".join(b"%s || %s\n" % (head.rstrip(), tail) for head, tail in zip(heads, tails, strict=True))


def ignored_numbers(graph: Graph, dialect: Dialect) -> list[str]:
    """Sentences about numbers that are written behind those that g2o reads: intrinsics, a fixed scale."""
    sentences = []
    for elements in (*graph.vertex_sets, *graph.edge_sets):
        if len(elements) == 0 or elements.type.tag not in G2O_TAGS:
            continue
        if isinstance(elements, VertexSet):
            chosen = _vertex_layout(elements.type, elements.estimate, dialect)
        else:
            chosen = _edge_layout(elements, dialect)
        extra = chosen.num_tokens - dialect.layout(elements.type, elements.type.tag).num_tokens
        if extra > 0:
            sentences.append(
                f"{extra} constants at the end of each of {len(elements)} {elements.type.tag} lines (camera "
                "intrinsics and the like) are read by graphopt; g2o ignores them and takes its defaults"
            )
    return sentences


def unparsed_block(graph: Graph) -> Block:
    """Return the lines that no reader understood."""
    text = "".join(line.text + "\n" for line in graph.unparsed).encode("utf-8", "surrogateescape")
    return Block(-1, np.array([line.order for line in graph.unparsed], np.int64), text)


def join_blocks(blocks: list[Block], keep_order: bool) -> bytes:
    """All lines in the order of their sequence numbers; by phase first unless `keep_order`."""
    blocks = sorted(blocks, key=lambda block: int(block.sequence[0]))
    apart = all(a.sequence[-1] <= b.sequence[0] for a, b in pairwise(blocks))
    if apart and keep_order:
        return b"".join(block.text for block in blocks)
    lines = [line for block in blocks for line in block.text.split(b"\n")[:-1]]
    sequence = np.concatenate([block.sequence for block in blocks])
    phase = np.repeat([block.phase for block in blocks], [len(block.sequence) for block in blocks])
    order = np.argsort(sequence, kind="stable")
    if not keep_order:
        phase = _follow_predecessor(phase[order])
        order = order[np.argsort(phase, kind="stable")]
    return b"\n".join(lines[i] for i in order) + b"\n"


def _follow_predecessor(phase: np.ndarray) -> np.ndarray:
    """Unparsed lines (-1) take the phase of the last other line before them, so that they stay behind it."""
    last = np.maximum.accumulate(np.where(phase >= 0, np.arange(len(phase)), -1))
    return np.where(last >= 0, phase[np.maximum(last, 0)], 0)


def _order_is_readable(graph: Graph) -> bool:
    """Tell whether parameters and vertices stand before the edges that need them."""
    first_edge = min(
        (int(edge_set.sequence[0]) for edge_set in graph.edge_sets if len(edge_set)), default=None
    )
    if first_edge is None:
        return True
    if any(
        parameter_set.sequence[-1] > first_edge
        for parameter_set in graph.parameter_sets
        if len(parameter_set)
    ):
        return False
    if all(vertex_set.sequence[-1] < first_edge for vertex_set in graph.vertex_sets if len(vertex_set)):
        return True
    starts = np.cumsum([0] + [len(vertex_set) for vertex_set in graph.vertex_sets])
    sequence = np.concatenate([vertex_set.sequence for vertex_set in graph.vertex_sets])
    for edge_set in graph.edge_sets:
        numbers, rows = graph.find_vertices(edge_set.vertices.ravel())
        if (
            sequence[starts[numbers] + rows].reshape(edge_set.vertices.shape) > edge_set.sequence[:, None]
        ).any():
            return False
    return True


def fix_lines(graph: Graph) -> bytes:
    """One FIX line for each fixed vertex, as g2o writes them."""
    fixed = [vertex_set.ids[vertex_set.fixed] for vertex_set in graph.vertex_sets]
    return b"".join(format_rows("FIX", ids[:, None], np.empty((len(ids), 0))) for ids in fixed if len(ids))


def losses(graph: Graph) -> list[str]:
    """Sentences about what a .g2o file of this graph does not hold, or g2o does not read."""
    sentences = []
    kernels = sum(int((edge_set.kernel != 0).sum()) for edge_set in graph.edge_sets)
    if kernels:
        sentences.append(
            f"robust kernels of {kernels} edges are comments: graphopt reads them, g2o has to be told"
        )
    levels = sum(int((edge_set.level != 0).sum()) for edge_set in graph.edge_sets)
    if levels:
        sentences.append(f"levels of {levels} edges are not kept")
    marginalized = sum(int(vertex_set.marginalized.sum()) for vertex_set in graph.vertex_sets)
    if marginalized:
        sentences.append(f"the marginalized flags of {marginalized} vertices are not kept")
    others = sorted(set(graph.attachments) - {ATTACHMENT})
    if others:
        sentences.append(f"what only {', '.join(others)} files hold is not kept")
    for elements in (*graph.vertex_sets, *graph.edge_sets, *graph.parameter_sets):
        if len(elements) and elements.type.tag not in G2O_TAGS:
            sentences.append(
                f"{elements.type.tag} is a tag of this package: g2o skips its {len(elements)} lines"
            )
    large = sum(int((np.abs(vertex_set.ids) > 2**31 - 1).sum()) for vertex_set in graph.vertex_sets)
    if large:
        sentences.append(f"{large} vertex ids do not fit into g2o's 32 bits")
    negative = sum(int((vertex_set.ids < 0).sum()) for vertex_set in graph.vertex_sets)
    if negative:
        sentences.append(f"{negative} vertex ids are negative: g2o skips these vertices and their edges")
    return sentences
