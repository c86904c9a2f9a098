"""Which dialect of g2o is a file in? What its lines say, and how well both readings explain the edges.

In order: a comment `# dialect: NAME`, which our writer puts first; lines whose number of tokens only one
dialect explains; then, for poses that look alike in both, both readings are tried: most edges better
explained (chi2), more points in front of their cameras, pixels that some intrinsics explain. Where these say
nothing or contradict each other, the file is taken for C++ g2o's, or for g2opy's if that halves chi2, and a
warning says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from graphopt.geometry import SE3
from graphopt.graph import EdgeSet, Graph
from graphopt.graph.residuals import edge_chi2
from graphopt.io.dialects import (
    DIALECTS,
    SAME_TOKENS,
    Dialect,
    depends_on_dialect,
    look_up,
    readings_are_equal,
    reread,
)
from graphopt.io.read_report import ReadReport
from graphopt.io.tagged import TaggedRows
from graphopt.types import EdgeType, VariadicEdgeType, registry
from graphopt.types.sba import EdgeProjectPSI2UV, VertexSE3Expmap
from graphopt.types.slam3d import VertexPointXYZ

CPP, PYTHON = DIALECTS["g2o"], DIALECTS["g2opy"]
_MARK = re.compile(rb"^#[ \t]*dialect:[ \t]*([A-Za-z0-9_-]+)[ \t\r]*$", re.MULTILINE)
_HEAD = 4096
"""Bytes in which the comment is looked for."""
_SAMPLE = 5000
"""Edges of each type that both readings are tried on."""
_MOST = 0.8
"""Share of the edges that must be explained better to decide."""
_CLEARLY = 0.8
"""An edge is explained better if its chi2 is below this times the other."""
_FITS = 0.25
"""Factor between the unexplained shares of the pixels that decides."""
_FEWEST = 12
"""Observations that a fit of intrinsics needs."""
_IN_FRONT = 0.2
"""Difference of the shares of points in front of their cameras that decides."""


def mark(dialect: Dialect) -> bytes:
    """Comment that names the dialect of a file."""
    return f"# dialect: {dialect.name}\n".encode()


def marked(data: bytes) -> Dialect | None:
    """Dialect that a comment at the start of a file names, if it is one of g2o's."""
    match = _MARK.search(data[:_HEAD])
    name = match[1].decode() if match else ""
    return DIALECTS[name] if name in DIALECTS and DIALECTS[name].format == "g2o" else None


class TokenEvidence(NamedTuple):
    """Lines that only one dialect explains."""

    dialect: Dialect
    sentence: str


def token_evidence(groups: Iterable[TaggedRows]) -> list[TokenEvidence]:
    """What the numbers of tokens say, one entry for each kind of line."""
    evidence = []
    for group in groups:
        dialect = _only_reader(group)
        if dialect is not None:
            where = f"{group.tag} with {group.values.shape[1]} numbers (line {group.lines[0]})"
            evidence.append(TokenEvidence(dialect, where))
    return evidence


def _only_reader(group: TaggedRows) -> Dialect | None:
    """Dialect that alone has such lines, None if both have them or neither."""
    kind = registry.find(group.tag)
    if isinstance(kind, VariadicEdgeType) and group.ids.shape[1] >= 2:
        kind = kind.instantiate(group.ids.shape[1])
    elif not isinstance(kind, EdgeType) and (kind is None or kind.tag not in CPP.layouts):
        return None
    if kind.tag in SAME_TOKENS or group.tag in getattr(kind, "alias_files", ()):
        return None
    standard = [dialect.layout(kind, group.tag).num_tokens for dialect in (CPP, PYTHON)]
    if standard[0] == standard[1] or group.values.shape[1] not in standard:
        return None
    return (CPP, PYTHON)[standard.index(group.values.shape[1])]


class Reading(NamedTuple):
    """How well a reading explains a sample of the edges."""

    chi2: np.ndarray  # (k,)
    in_front: float
    """Share of the observed points that lie before their cameras, NaN without observations."""
    unexplained: float
    """Share of the pixels' variance that no focal length and principal point explain, NaN without any.

    It needs no intrinsics, which files of g2o lack.
    """


def _evaluate(graph: Graph) -> Reading:
    chi2, points, pixels = [np.empty(0)], [np.empty((0, 3))], [np.empty((0, 2))]
    for edge_set in graph.edge_sets:
        tags = {edge_set.type.tag, *(kind.tag for kind in edge_set.type.vertices)}
        if len(edge_set) == 0 or not tags & set(SAME_TOKENS):
            continue
        rows = np.unique(np.linspace(0, len(edge_set) - 1, min(len(edge_set), _SAMPLE)).astype(np.int64))
        with np.errstate(all="ignore"):
            chi2.append(edge_chi2(graph, edge_set, rows))
        if (
            edge_set.type.vertices[:2] == (VertexPointXYZ, VertexSE3Expmap)
            and edge_set.type is not EdgeProjectPSI2UV
        ):
            points.append(_points_in_camera(graph, edge_set, rows))
            pixels.append(edge_set.measurement[rows, :2])
    point_cam = np.concatenate(points)
    in_front = float(np.mean(point_cam[:, 2] > 0.0)) if len(point_cam) else np.nan
    return Reading(np.concatenate(chi2), in_front, _unexplained(point_cam, np.concatenate(pixels)))


def _points_in_camera(graph: Graph, edges: EdgeSet, rows: np.ndarray) -> np.ndarray:
    """(k, 3) observed points in the frames of their cameras."""
    point, pose = (
        graph.vertex_set(kind).estimate[graph.find_vertices(edges.vertices[rows, position])[1]]
        for position, kind in enumerate((VertexPointXYZ, VertexSE3Expmap))
    )
    return np.asarray(SE3(pose).act(point))


def _unexplained(point_cam: np.ndarray, pixel: np.ndarray) -> float:
    """Fit u = fx x / z + cx and v = fy y / z + cy: share of the variance that is left, 1 at most."""
    with np.errstate(all="ignore"):
        ray = point_cam[:, :2] / point_cam[:, 2:]
    ray, pixel = (part[np.isfinite(ray).all(axis=1)] for part in (ray, pixel))
    if len(ray) < _FEWEST:
        return np.nan
    ray, pixel = ray - ray.mean(axis=0), pixel - pixel.mean(axis=0)
    with np.errstate(all="ignore"):
        explained = np.einsum("ni,ni->i", ray, pixel) ** 2 / np.einsum("ni,ni->i", ray, ray)
        return float(1.0 - explained.sum() / np.einsum("ni,ni->", pixel, pixel))


class Verdict(NamedTuple):
    """Which reading is better, and whether the other is plausible too."""

    dialect: Dialect
    reason: str
    is_certain: bool


def compare(graph: Graph, current: Dialect) -> Verdict | None:
    """Try both readings of a graph that was read in `current`; None if no edge tells them apart.

    The graph is as before afterwards.
    """
    other = PYTHON if current is CPP else CPP
    kept = [
        (vertex_set, vertex_set.estimate.copy())
        for vertex_set in graph.vertex_sets
        if vertex_set.type.tag in SAME_TOKENS
    ]
    kept_edges = [
        (edge_set, edge_set.measurement.copy())
        for edge_set in graph.edge_sets
        if edge_set.type.tag in SAME_TOKENS
    ]
    readings = {current.name: _evaluate(graph)}
    reread(graph, current, other)
    readings[other.name] = _evaluate(graph)
    for vertices, estimate in kept:
        vertices.estimate[:] = estimate
    for kept_edge, measurement in kept_edges:
        kept_edge.measurement[:] = measurement
    return _judge(readings[CPP.name], readings[PYTHON.name])


def _judge(cpp: Reading, python: Reading) -> Verdict | None:
    """Each kind of evidence votes for one reading or for none; they decide if they do not contradict."""
    if len(cpp.chi2) == 0:
        return None
    sums = [float(np.sum(chi2.chi2)) for chi2 in (cpp, python)]
    better = [float(np.mean(a.chi2 < _CLEARLY * b.chi2)) for a, b in ((cpp, python), (python, cpp))]
    votes = [_vote(better[0] >= _MOST, better[1] >= _MOST)]
    reason = f"chi2 {sums[0]:.6g} as {CPP.name}, {sums[1]:.6g} as {PYTHON.name}"
    if len(cpp.chi2) >= _SAMPLE:
        reason += f" over {len(cpp.chi2)} edges"
    votes.append(_vote(*_larger(cpp.in_front - python.in_front, _IN_FRONT)))
    if votes[-1] is not None:
        reason += f"; points in front of their cameras {cpp.in_front:.0%} and {python.in_front:.0%}"
    rest = cpp.unexplained, python.unexplained
    votes.append(_vote(rest[0] < _FITS * rest[1], rest[1] < _FITS * rest[0]))
    if votes[-1] is not None:
        reason += f"; share of the pixels that no intrinsics explain {rest[0]:.3g} and {rest[1]:.3g}"
    cast = {vote.name for vote in votes if vote is not None}
    if len(cast) == 1:
        return Verdict(DIALECTS[cast.pop()], reason, True)
    return Verdict(PYTHON if sums[1] < 0.5 * sums[0] else CPP, reason, False)


def _vote(for_cpp: bool, for_python: bool) -> Dialect | None:
    return CPP if for_cpp else PYTHON if for_python else None


def _larger(difference: float, threshold: float) -> tuple[bool, bool]:
    return difference >= threshold, -difference >= threshold


def settle(
    graph: Graph, current: Dialect, is_asked: bool, evidence: list[TokenEvidence], report: ReadReport
) -> None:
    """Decide on the dialect of a graph that was read in `current`, and change the graph to it.

    The report gets the dialect and the reason; a warning where the other one is plausible, or where the
    dialect that was asked for (or named by the file) is not.
    """
    named = [token.dialect for token in evidence]
    matters = depends_on_dialect(graph) and not readings_are_equal(graph)
    if not matters and not named:
        return
    verdict = compare(graph, current) if matters and not report.needs_initialization else None
    chosen, reason = _choose(current if is_asked else None, verdict, evidence, report)
    report.dialect, report.dialect_reason = chosen.name, reason
    if chosen is not current:
        reread(graph, current, chosen)


def _choose(
    requested: Dialect | None, verdict: Verdict | None, evidence: list[TokenEvidence], report: ReadReport
) -> tuple[Dialect, str]:
    by_tokens = {token.dialect.name for token in evidence}
    sentences = "; ".join(token.sentence for token in evidence)
    if requested is not None:
        if verdict is not None and verdict.is_certain and verdict.dialect is not requested:
            report.warnings.append(
                f"read in the dialect {requested.name}, but the file looks like {verdict.dialect.name}: "
                f"{verdict.reason}. To read it so: dialect='{verdict.dialect.name}'"
            )
        return requested, report.dialect_reason
    if len(by_tokens) == 1:
        chosen = look_up(by_tokens.pop())
        if verdict is not None and verdict.is_certain and verdict.dialect is not chosen:
            _warn(report, chosen, f"{sentences}, but {verdict.reason}")
        return chosen, f"only this dialect has {sentences}"
    if verdict is None:
        _warn(report, CPP, "no edge tells the readings of its poses apart")
        return CPP, "nothing in the file tells, so C++ g2o's layout is taken"
    if not verdict.is_certain:
        _warn(report, verdict.dialect, verdict.reason)
    return verdict.dialect, verdict.reason


def _warn(report: ReadReport, chosen: Dialect, why: str) -> None:
    other = PYTHON if chosen is CPP else CPP
    report.warnings.append(
        f"poses of {', '.join(SAME_TOKENS)} are taken as {chosen.program} writes them "
        f"(dialect '{chosen.name}'), but {other.program}'s layout is plausible too: {why}. "
        f"If that is wrong: dialect='{other.name}'"
    )
