"""What changed between two results of the same kind, column by column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from graphopt.errors import OptionError
from graphopt.evaluate.results import Results
from graphopt.evaluate.tables import COLUMNS, Column

ERROR_SHARE = 0.01
"""Of the tolerance of times: accuracies repeat much better."""


@dataclass(frozen=True)
class Change:
    """One number of one entry in both results."""

    key: str
    column: str
    before: float | None
    after: float | None
    text: str
    """How the two are written."""
    verdict: str
    """ "same", "better", "worse", "failed", "mended", "only in A", "only in B"."""

    @property
    def ratio(self) -> float | None:
        """after / before."""
        if not self.before or self.after is None:
            return None
        return self.after / self.before


def compare(before: Results, after: Results, tolerance: float) -> list[Change]:
    """All changes, entry by entry; tolerance is the relative change of a time or memory that counts."""
    if before.kind != after.kind:
        raise OptionError(
            f"A is an evaluation of {before.kind}, B of {after.kind}: they have no numbers in common."
        )
    changes: list[Change] = []
    for key in dict.fromkeys((*before.entries, *after.entries)):
        changes += _entry(
            key, before.entries.get(key), after.entries.get(key), COLUMNS[before.kind], tolerance
        )
    return changes


def _entry(
    key: str,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    columns: tuple[Column, ...],
    tolerance: float,
) -> list[Change]:
    if before is None or after is None:
        where = "only in B" if before is None else "only in A"
        return [Change(key, "", None, None, "", where)]
    if "error" in before or "error" in after:
        if "error" not in after:
            return [Change(key, "", None, None, "", "mended")]
        return [Change(key, "", None, None, after["error"], "same" if "error" in before else "failed")]
    return [
        _change(key, each_column, before, after, tolerance)
        for each_column in columns
        if _has_numbers(each_column, before, after)
    ]


def _has_numbers(column: Column, before: dict[str, Any], after: dict[str, Any]) -> bool:
    return bool(column.better) and all(
        isinstance(column.value(entry), (int, float)) for entry in (before, after)
    )


def _change(
    key: str, column: Column, before: dict[str, Any], after: dict[str, Any], tolerance: float
) -> Change:
    old, new = float(column.value(before)), float(column.value(after))
    allowed = tolerance * (ERROR_SHARE if column.is_error else 1.0) * max(abs(old), 1e-12)
    verdict = "same"
    if not math.isclose(old, new, rel_tol=0.0, abs_tol=allowed):
        verdict = "better" if (new < old) == (column.better == "lower") else "worse"
    return Change(key, column.title, old, new, f"{column.text(before)} -> {column.text(after)}", verdict)
