"""Texts of tagged lines (.g2o, TORO, iSAM) as arrays: the native tokenizer, its errors as FormatError."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from graphopt import _native
from graphopt.errors import FormatError
from graphopt.io.numbers import with_line_feeds

ALL_IDS = _native.ALL_IDS
COUNTED_IDS = _native.COUNTED_IDS


_FIRST_TOKEN = re.compile(r"[ \t\r\v\f]*([^ \t\r\v\f]*)")


class TagRule(NamedTuple):
    """How the line of one tag is read."""

    num_ids: int
    """Leading integer tokens; ALL_IDS: the whole line; COUNTED_IDS: the first token says how many follow,
    or a token || ends them."""
    num_values: tuple[int, ...]
    """How many numbers may follow the ids; empty if the reader checks that itself."""
    longer_allowed: bool
    """Are lines with more numbers than the largest of `num_values` read too?"""
    layout: str
    """What the line holds, for error messages: "2 vertex ids, 3 measurement, 6 information"."""


class TaggedRows(NamedTuple):
    """Lines of one tag that have the same numbers of ids and values, in file order."""

    tag: str
    ids: np.ndarray  # (n, num_ids) int64
    values: np.ndarray  # (n, num_values) float64
    lines: np.ndarray  # (n,) int64, from 1


@dataclass(frozen=True)
class TaggedText:
    """A whole file."""

    path: str
    groups: list[TaggedRows]
    unknown: list[tuple[int, str]]
    """(line number, line) of tags without a rule, verbatim; bytes that are no UTF-8 become surrogates."""
    num_lines: int
    warnings: list[str]

    def with_tag(self, *tags: str) -> Iterator[TaggedRows]:
        """Yield the groups that have one of the tags."""
        return (group for group in self.groups if group.tag in tags)


def read_tagged(data: bytes, path: str, rules: Mapping[str, TagRule]) -> TaggedText:
    """Split a text into groups of equal lines. Raises FormatError at the first line that breaks its rule."""
    data = with_line_feeds(data)
    read = _native.read_tagged_lines(data, dict(rules))
    if read["error"] is not None:
        line, message = read["error"]
        raise FormatError(f"{path}:{line}: {message}{_end_hint(data, line, read['num_lines'])}")
    warnings = []
    commas, first = read["decimal_commas"]
    if commas:
        warnings.append(
            f"{commas} numbers with a decimal comma were read as if it were a point, first in line {first}"
        )
    unknown = [(line, text.decode("utf-8", "surrogateescape")) for line, text in read["unknown"]]
    groups = [TaggedRows(*group) for group in read["groups"]]
    return TaggedText(path, groups, unknown, read["num_lines"], warnings)


def tag_of(line: str) -> str:
    """First token of a line, by the tokenizer's blanks (Python's `split` knows more of them)."""
    return _FIRST_TOKEN.match(line)[1]  # type: ignore[index] - it matches every string


def _end_hint(data: bytes, line: int, num_lines: int) -> str:
    """Say so where the wrong line is a last one without its end: a copy that stopped early."""
    is_last = line == num_lines and not data.endswith(b"\n") and data.count(b"\n") < line
    return ". It is the last line and has no line end: the file seems to be cut off" if is_last else ""


def format_rows(tag: str, ids: np.ndarray, values: np.ndarray, with_count: bool = False) -> bytes:
    """Lines `tag [count] ids values`; doubles as the shortest decimals that read back to the same value.

    Raises FormatError for numbers that are not finite: no reader accepts them.
    """
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise FormatError(f"{tag} {ids[bad[0]].tolist()}: the line would hold a number that is not finite")
    return _native.format_rows(tag, with_count, ids, values)
