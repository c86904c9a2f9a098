"""The documentation's table of types is the registry's."""

import importlib.util
from pathlib import Path

from graphopt.types import BUILTIN_TYPES
from graphopt.types.table import markdown_tables

ROOT = Path(__file__).resolve().parents[2]


def test_table_is_put_into_its_page():
    """The site's hook replaces the mark in docs/api/builtin_types.md by one row per type."""
    spec = importlib.util.spec_from_file_location("docs_tables", ROOT / "tools" / "docs_tables.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    page = (ROOT / "docs" / "api" / "builtin_types.md").read_text(encoding="utf-8")
    assert hook.on_page_markdown(page).endswith(f"{markdown_tables()}\n")
    rows = [line for line in markdown_tables().splitlines() if line.startswith("| `")]
    assert len(rows) == len(BUILTIN_TYPES)
