"""Hook of mkdocs: tables of built-in types and of the causes of errors are put into their pages."""

from typing import Any

from graphopt.error_codes import pages
from graphopt.types.table import markdown_tables

TABLES = {"<!-- builtin types -->": markdown_tables, "<!-- error codes -->": pages}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marks, where a page has them."""
    for mark, table in TABLES.items():
        if mark in markdown:
            markdown = markdown.replace(mark, table())
    return markdown
