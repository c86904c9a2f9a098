"""Robust kernels in .g2o files: comments, which g2o skips, behind all other lines.

    # kernel: TAG NAME WIDTH               of all edges of a tag
    # kernel: TAG NAME WIDTH 0-41 57       of some: numbers among the lines of that tag, from 0

g2o's own format knows no kernels: a program sets them after it has read a file.
"""

from __future__ import annotations

import re

import numpy as np

from graphopt.errors import FormatError, GraphOptError
from graphopt.graph import EdgeSet, Graph
from graphopt.io.numbers import RaggedRows
from graphopt.types.robust_kernels import robust_kernel

_LINE = re.compile(rb"^#[ \t]*kernel:[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_RANGES_PER_LINE = 64
_EXPECTED = "expected '# kernel: TAG NAME WIDTH' and maybe numbers of edges, such as 0-41"


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
    for found in _LINE.finditer(data):
        words = found[1].decode("utf-8", "replace").split()
        try:
            _take(words, graph)
        except (ValueError, IndexError, GraphOptError) as error:
            line = data.count(b"\n", 0, found.start()) + 1
            raise FormatError(f"{path}:{line}: {found[0].decode()[:80]!r}: {error}; {_EXPECTED}") from error


def _take(words: list[str], graph: Graph) -> None:
    if len(words) < 3:
        raise ValueError(f"{len(words)} words")
    tag, name, width = words[0], words[1], float(RaggedRows(words[2].encode(), "WIDTH").values[0])
    if not width > 0.0:
        raise ValueError(f"the width is {width}, must be > 0")
    number = robust_kernel(name).number
    sets = [edge_set for edge_set in graph.edge_sets if edge_set.type.tag == tag]
    if not sets:
        raise ValueError(f"the file has no edge {tag}")
    count = sum(map(len, sets))
    rows = np.arange(count)
    if len(words) > 3:
        rows = np.concatenate([_numbers(word, count) for word in words[3:]])
    chosen = np.zeros(count, bool)
    chosen[rows] = True
    owner = np.repeat(np.arange(len(sets)), [len(set_) for set_ in sets])
    place = np.concatenate([np.arange(len(set_)) for set_ in sets])
    order = np.argsort(np.concatenate([set_.sequence for set_ in sets]), kind="stable")
    for k, set_ in enumerate(sets):
        mine = place[order][chosen & (owner[order] == k)]
        kernel, widths = np.array(set_.kernel), np.array(set_.kernel_width)
        kernel[mine], widths[mine] = number, width
        set_.kernel, set_.kernel_width = kernel, widths


def _numbers(word: str, count: int) -> np.ndarray:
    match = _RANGE.fullmatch(word)
    begin, end = (int(match[1]), int(match[2] or match[1])) if match else (0, count)
    if not begin <= end < count:
        raise ValueError(f"{word!r} is none of the {count} edges 0-{count - 1}")
    return np.arange(begin, end + 1)
