"""Hook of mkdocs: the table of built-in types is put into its page from the registry."""

from typing import Any

from graphopt.types.table import markdown_tables

MARK = "<!-- builtin types -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the mark, where a page has it."""
    return markdown.replace(MARK, markdown_tables()) if MARK in markdown else markdown
