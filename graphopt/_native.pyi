"""Native text parsing and formatting; see native/bindings/text.cpp."""

from collections.abc import Mapping
from typing import Any

import numpy as np

ALL_IDS: int
COUNTED_IDS: int

def read_tagged_lines(
    text: bytes, rules: Mapping[str, tuple[int, tuple[int, ...], bool, str]]
) -> dict[str, Any]: ...
def read_table(
    text: bytes, offset: int, line: int, rows: int, num_integers: int, num_values: int
) -> tuple[np.ndarray, np.ndarray, int, int, tuple[int, str] | None]: ...
def read_ragged_rows(
    text: bytes, separator: str = ""
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, str] | None]: ...
def format_rows(tag: str, with_count: bool, ids: np.ndarray, values: np.ndarray) -> bytes: ...
def format_ragged_rows(values: np.ndarray, row_start: np.ndarray) -> bytes: ...
def positive_definite(matrices: np.ndarray, relative_tolerance: float = 1e-12) -> np.ndarray: ...
