"""Robust kernels in .g2o files: comments, which g2o skips, behind all other lines.

    # kernel: TAG NAME WIDTH               of all edges of a tag
    # kernel: TAG NAME WIDTH 0-41 57       of some: numbers among the lines of that tag, from 0

g2o's own format knows no kernels: a program sets them after it has read a file.
"""

from __future__ import annotations

import numpy as np

from graphopt import _native
from graphopt.errors import FormatError, GraphOptError
from graphopt.graph import EdgeSet, Graph
from graphopt.io.numbers import with_line_feeds
from graphopt.types.robust_kernels import robust_kernel

_RANGES_PER_LINE = 64


def kernel_lines(graph: Graph) -> bytes:
    """Comments that hold the robust kernels of a graph; nothing where no edge has one."""
    lines: list[str] = []
    for tag in dict.fromkeys(edge_set.type.tag for edge_set in graph.edge_sets):
        sets = [edge_set for edge_set in graph.edge_sets if edge_set.type.tag == tag]
        kernel, width = (_in_file_order(sets, name) for name in ("kernel", "kernel_width"))
        pairs = np.stack([kernel, width], axis=1)
        for number, value in np.unique(pairs[kernel != 0], axis=0).tolist():
            rows = np.flatnonzero((kernel == number) & (width == value))
            head = f"# kernel: {tag} {robust_kernel(int(number)).name} {value!r}"
            if len(rows) == len(kernel):
                lines.append(head)
                continue
            ranges = _ranges(rows)
            for first in range(0, len(ranges), _RANGES_PER_LINE):
                lines.append(f"{head} {' '.join(ranges[first : first + _RANGES_PER_LINE])}")
    return "".join(f"{line}\n" for line in lines).encode()


def _in_file_order(sets: list[EdgeSet], column: str) -> np.ndarray:
    """A column of all edges of one tag, as their lines follow each other."""
    order = np.argsort(np.concatenate([set_.sequence for set_ in sets]), kind="stable")
    return np.concatenate([getattr(set_, column) for set_ in sets])[order]


def _ranges(rows: np.ndarray) -> list[str]:
    """Ascending numbers as first-last, or one number."""
    cuts = np.flatnonzero(np.diff(rows) > 1)
    firsts, lasts = rows[np.concatenate([[0], cuts + 1])], rows[np.concatenate([cuts, [len(rows) - 1]])]
    pairs = zip(firsts.tolist(), lasts.tolist(), strict=True)
    return [f"{a}" if a == b else f"{a}-{b}" for a, b in pairs]


def take_kernels(data: bytes, graph: Graph, path: str) -> None:
    """Give the edges of a graph the kernels that a file's comments name; `FormatError` for others."""
    if b"kernel:" not in data:
        return
    comments, wrong = _native.read_kernel_comments(with_line_feeds(data))
    for line, tag, name, width, ranges in comments:
        try:
            _take(graph, tag, robust_kernel(name).number, width, ranges)
        except GraphOptError as error:
            raise FormatError(f"{path}:{line}: {error}") from error
    if wrong is not None:
        raise FormatError(f"{path}:{wrong[0]}: {wrong[1]}")


def _take(graph: Graph, tag: str, number: int, width: float, ranges: list[tuple[int, int]]) -> None:
    sets = [edge_set for edge_set in graph.edge_sets if edge_set.type.tag == tag]
    if not sets:
        raise FormatError(f"the file has no edge {tag}")
    count = sum(map(len, sets))
    chosen = np.zeros(count, bool)
    for first, last in ranges or [(0, count - 1)]:
        if last >= count:
            raise FormatError(f"'{first}-{last}' is none of the edges 0-{count - 1} of {tag}")
        chosen[first : last + 1] = True
    owner = np.repeat(np.arange(len(sets)), [len(set_) for set_ in sets])
    place = np.concatenate([np.arange(len(set_)) for set_ in sets])
    order = np.argsort(np.concatenate([set_.sequence for set_ in sets]), kind="stable")
    for k, set_ in enumerate(sets):
        mine = place[order][chosen & (owner[order] == k)]
        kernel, widths = np.array(set_.kernel), np.array(set_.kernel_width)
        kernel[mine], widths[mine] = number, width
        set_.kernel, set_.kernel_width = kernel, widths
