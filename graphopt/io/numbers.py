"""Untagged numbers: a cursor over tables of known size and lines of any length, both parsed natively."""

from __future__ import annotations

import numpy as np

from graphopt import _native
from graphopt.errors import FormatError


def with_line_feeds(data: bytes) -> bytes:
    """A text whose lines end in CR alone (old Macs, some exporters) with LF instead; every other as it is."""
    return data.replace(b"\r", b"\n") if b"\n" not in data and b"\r" in data else data


class NumberReader:
    """Reads tables one after the other from a text in which line ends mean nothing."""

    def __init__(self, data: bytes, path: str):
        self._data = data
        self._path = path
        self._offset = 0
        self.line = 1
        """Line of the next token."""

    def table(
        self, what: str, rows: int, num_integers: int, num_values: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return integers (rows, num_integers) and values (rows, num_values) of the next tokens.

        `what` names the table in errors. Sizes that the rest of the text cannot hold are refused before any
        memory is asked for.
        """
        if not 0 <= rows < 1 << 62:
            raise FormatError(f"{self._path}:{self.line}: {rows} {what}: not a possible count")
        integers, values, offset, line, error = _native.read_table(
            self._data, self._offset, self.line, rows, num_integers, num_values
        )
        if error is not None:
            raise FormatError(f"{self._path}:{error[0]}: {what}: {error[1]}")
        self._offset, self.line = offset, line
        return integers, values

    def integers(self, what: str, count: int) -> list[int]:
        """Return the next `count` integers."""
        return self.table(what, 1, count, 0)[0][0].tolist()

    def expect_end(self) -> None:
        """Raise FormatError if anything follows."""
        if self._offset != len(self._data):
            rest = self._data[self._offset : self._offset + 40].split()[0].decode("ascii", "replace")
            raise FormatError(f"{self._path}:{self.line}: expected the end of the file, got {rest!r}")


class RaggedRows:
    """Lines of numbers; blank lines and comments are skipped."""

    def __init__(self, data: bytes, path: str, first_line: int = 1, separator: str = ""):
        values, row_start, lines, error = _native.read_ragged_rows(with_line_feeds(data), separator)
        if error is not None:
            raise FormatError(f"{path}:{error[0] + first_line - 1}: {error[1]}")
        self.values: np.ndarray = values  # (sum of lengths,) float64
        self.row_start: np.ndarray = row_start  # (rows + 1,) int64
        self.lines: np.ndarray = lines + (first_line - 1)  # (rows,) int64
        self.path = path

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def lengths(self) -> np.ndarray:
        """(rows,) int64: numbers per line."""
        return np.diff(self.row_start)

    def matrix(self, columns: int, layout: str) -> np.ndarray:
        """All rows as (rows, columns). Raises FormatError at the first line of another length."""
        wrong = np.flatnonzero(self.lengths != columns)
        if len(wrong):
            row = wrong[0]
            raise FormatError(
                f"{self.path}:{self.lines[row]}: got {self.lengths[row]} numbers, expected {columns} "
                f"({layout})"
            )
        return self.values.reshape(-1, columns)


def to_integers(values: np.ndarray, lines: np.ndarray, path: str, what: str) -> np.ndarray:
    """Numbers that must be whole, as int64. Raises FormatError at the first that is not or is beyond 2^53."""
    wrong = np.flatnonzero((values != np.trunc(values)) | (np.abs(values) >= 2.0**53))
    if len(wrong):
        row = wrong[0]
        raise FormatError(f"{path}:{lines[row]}: {what} {values[row]:.17g} is not an integer below 2^53")
    return values.astype(np.int64)


def format_table(values: np.ndarray) -> bytes:
    """Lines of a matrix (n, k), shortest decimals that read back to the same doubles."""
    return _native.format_rows("", False, np.empty((len(values), 0), np.int64), values)


def format_integer_table(integers: np.ndarray, values: np.ndarray) -> bytes:
    """Lines of integers (n, k) followed by numbers (n, m)."""
    return _native.format_rows("", False, integers, values)


def format_ragged(values: np.ndarray, row_start: np.ndarray, digits: int = 0) -> bytes:
    """Row r is the line of values[row_start[r]:row_start[r + 1]].

    digits: significant ones, at most 17; 0: shortest decimals that read back to the same doubles.
    """
    return _native.format_ragged_rows(values, row_start, digits)
