"""Programs write one format in several ways: the known layouts, as data.

    g2o              C++ g2o (its master and releases, ORB-SLAM's fork). VERTEX_SE3:EXPMAP and EDGE_SE3:EXPMAP
                     are written and read as the inverse pose, VERTEX_SIM3:EXPMAP and EDGE_SIM3:EXPMAP as the
                     logarithm of the inverse, VERTEX_CAM with fx fy cx cy baseline, edges of any arity as
                     `TAG ids || numbers`. Quaternions of measurements and offsets are normalised when read,
                     those of VERTEX_SE3:QUAT are not: files of six digits have another chi2 than in g2opy.
    g2opy            g2opy 2.3: poses and similarities as they are, `TAG count ids numbers`, VERTEX_CAM
                     without intrinsics
    toro             TORO's .graph, with GTSAM's BR lines
    isam             iSAM: R, upper triangle of the square root of the information
    isam-covariance  the same tags with covariances, as some of GTSAM's files have them

The measurements of EDGE_PROJECT_... and EDGE_SE3_PROJECT_... are pixels and the same in both dialects of g2o;
what differs is the pose of the camera that they are seen from.

Sources: g2o/types/slam3d/edge_se3.cpp, parameter_se3_offset.cpp; g2o/types/sba/vertex_se3_expmap.cpp,
edge_se3_expmap.cpp, vertex_cam.cpp, edge_project_xyz.cpp; g2o/types/slam2d/edge_se2_lotsofxy.cpp; ORB-SLAM's
Thirdparty/g2o/types/types_seven_dof_expmap.cpp; isam/Loader.cpp. ORB-SLAM3's own vertex (VertexSim3Expmap in
src/OptimizableTypes.cpp) has the parameters of both cameras behind the logarithm: 15 numbers with two pinhole
cameras, 23 with two of Kannala and Brandt, whose distortion is read over (reported).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np

from graphopt.errors import OptionError
from graphopt.graph import Graph
from graphopt.types import EdgeType, registry, sba, sim3
from graphopt.types.files import EdgeFile, VertexFile

Layout = VertexFile | EdgeFile
ATTACHMENT = "dialect"
"""Key in `graph.attachments`: name of the dialect that the graph was read in."""


@dataclass(frozen=True, eq=False)
class Dialect:
    """One way to write a format."""

    name: str
    format: str
    """Name of the format as in `io.FORMATS`."""
    program: str
    """Who writes it."""
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    """Tag -> layout, where it is not the type's own (`kind.file`)."""
    ids_before_bars: bool = False
    """Edges of any arity: `TAG ids || numbers` instead of `TAG count ids numbers`."""
    normalizes: frozenset[str] = frozenset()
    """Tags whose quaternions (numbers 3 to 6) are scaled to length 1 on reading, however close they are."""
    holds_covariances: bool = False
    """The noise entries are covariances."""

    def layout(self, kind: Any, tag: str) -> Any:
        """Layout of the lines of a type under one of its tags."""
        if tag in getattr(kind, "alias_files", ()):
            return kind.file_for(tag)
        if self.ids_before_bars and isinstance(kind, EdgeType) and _is_variadic(kind):
            return kind.file.alternatives[0]
        return self.layouts.get(kind.tag, kind.file)

    def normalized(self, tag: str, tokens: np.ndarray) -> np.ndarray:
        """Tokens as this program takes them; a zero quaternion is left as it is."""
        if tag not in self.normalizes:
            return tokens
        length = np.linalg.norm(tokens[:, 3:7], axis=1, keepdims=True)
        result = tokens.copy()
        result[:, 3:7] /= np.where(length > 0.0, length, 1.0)
        return result


def _is_variadic(kind: EdgeType) -> bool:
    return hasattr(registry.find(kind.tag), "instantiate")


def _expmap_layouts() -> dict[str, Layout]:
    """C++ g2o: the tokens of g2opy, but of the inverse pose."""
    return {sba.VertexSE3Expmap.tag: sba.INVERSE_FILE, sba.EdgeSE3Expmap.tag: sba.INVERSE_EDGE_FILE}


DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            "g2o",
            "g2o",
            "C++ g2o",
            {
                **_expmap_layouts(),
                sim3.VertexSim3Expmap.tag: sim3.LOGARITHM_VERTEX_FILE,
                sim3.EdgeSim3.tag: sim3.LOGARITHM_EDGE_FILE,
                sba.VertexCam.tag: sba.CAM_WITH_INTRINSICS_FILE,
            },
            ids_before_bars=True,
            normalizes=frozenset(
                "EDGE_SE3:QUAT PARAMS_SE3OFFSET PARAMS_CAMERACALIB "
                "VERTEX_SE3:EXPMAP EDGE_SE3:EXPMAP VERTEX_CAM".split()
            ),
        ),
        Dialect("g2opy", "g2o", "g2opy 2.3"),
        Dialect("toro", "toro", "TORO and GTSAM"),
        Dialect("isam", "isam", "iSAM, with square roots of informations"),
        Dialect("isam-covariance", "isam", "GTSAM, with covariances", holds_covariances=True),
    )
}
"""Name -> dialect. The first one of a format is its default."""

SAME_TOKENS = tuple(_expmap_layouts())
"""Tags whose lines look alike in both dialects of g2o and mean different things."""


def dialects_of(format: str) -> list[Dialect]:
    """Dialects of a format, the default first; none if it has only one way."""
    return [dialect for dialect in DIALECTS.values() if dialect.format == format]


def look_up(name: str, format: str | None = None) -> Dialect:
    """Dialect of that name. OptionError if there is none, or if it is not one of `format`."""
    if name not in DIALECTS:
        close = get_close_matches(name, DIALECTS, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise OptionError(f"dialect '{name}' is unknown.{hint} Known dialects: {_listed(DIALECTS.values())}.")
    dialect = DIALECTS[name]
    if format is not None and dialect.format != format:
        fitting = dialects_of(format)
        known = f"Dialects of {format}: {_listed(fitting)}." if fitting else f"{format} has no dialects."
        raise OptionError(f"dialect '{name}' is one of the format {dialect.format}, not of {format}. {known}")
    return dialect


def _listed(dialects: Any) -> str:
    return ", ".join(f"{dialect.name} ({dialect.program})" for dialect in dialects)


def for_writing(graph: Graph, format: str, requested: str | None) -> Dialect | None:
    """Dialect to write in: the one asked for, else the one the graph was read in, else the default's."""
    if requested is not None:
        return look_up(requested, format)
    known = dialects_of(format)
    came_from = graph.attachments.get(ATTACHMENT)
    return next((dialect for dialect in known if dialect.name == came_from), known[0] if known else None)


def depends_on_dialect(graph: Graph) -> bool:
    """Tell whether lines of this graph mean different things in the dialects of g2o."""
    sets = (*graph.vertex_sets, *graph.edge_sets)
    return any(len(set_) > 0 and set_.type.tag in SAME_TOKENS for set_ in sets)


def differs_between_dialects(graph: Graph) -> bool:
    """Tell whether any line of this graph's .g2o file is another one in the other dialect."""
    cpp = DIALECTS["g2o"]
    return any(
        len(elements) > 0
        and (elements.type.tag in cpp.layouts or hasattr(registry.find(elements.type.tag), "instantiate"))
        for elements in (*graph.vertex_sets, *graph.edge_sets)
    )


def reread(graph: Graph, old: Dialect, new: Dialect) -> None:
    """Change the numbers of a graph that was read in `old` to what they are in `new`, in place.

    Only lines that look alike in both change: the others tell their dialect by their number of tokens.
    """
    for vertex_set in graph.vertex_sets:
        if vertex_set.type.tag in SAME_TOKENS:
            tokens = old.layout(vertex_set.type, vertex_set.type.tag).encode(vertex_set.estimate)
            vertex_set.estimate[:] = new.layout(vertex_set.type, vertex_set.type.tag).decode(
                new.normalized(vertex_set.type.tag, tokens)
            )
    for edge_set in graph.edge_sets:
        if edge_set.type.tag in SAME_TOKENS:
            before, after = (each.layout(edge_set.type, edge_set.type.tag) for each in (old, new))
            tokens = before.encode(edge_set.measurement, edge_set.information)
            edge_set.measurement[:] = after.decode(new.normalized(edge_set.type.tag, tokens))[0]


def readings_are_equal(graph: Graph) -> bool:
    """Tell whether all poses in question are their own inverse, so that the dialect makes no difference."""
    values = [vertex_set.estimate for vertex_set in graph.vertex_sets if vertex_set.type.tag in SAME_TOKENS]
    values += [edge_set.measurement for edge_set in graph.edge_sets if edge_set.type.tag in SAME_TOKENS]
    identity = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    return all(np.array_equal(part[:, :6], np.broadcast_to(identity, part[:, :6].shape)) for part in values)
