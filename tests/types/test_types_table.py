"""The documentation's table of types is the registry's."""

from pathlib import Path

from graphopt.types.table import markdown_tables


def test_table_is_up_to_date():
    """docs/types.md ends with what `python -m graphopt.types.table` prints."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "types.md").read_text()
    assert page.endswith(markdown_tables())
