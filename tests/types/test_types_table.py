"""The documentation's table of types is the registry's."""

from pathlib import Path

import docs_tables

from graphopt.types import BUILTIN_TYPES
from graphopt.types.table import markdown_tables

ROOT = Path(__file__).resolve().parents[2]


def test_table_is_put_into_its_page():
    """The site's hook replaces the mark in docs/api/builtin_types.md by one row per type."""
    page = (ROOT / "docs" / "api" / "builtin_types.md").read_text(encoding="utf-8")
    assert docs_tables.on_page_markdown(page).endswith(f"{markdown_tables()}\n")
    rows = [line for line in markdown_tables().splitlines() if line.startswith("| `")]
    assert len(rows) == len(BUILTIN_TYPES)
