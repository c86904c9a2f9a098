"""Tables in HTML, for what objects show of themselves in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """A table of texts; the first column is a heading where there is no head."""
    lines = []
    if head:
        lines.append("<tr>" + "".join(f"<th>{escape(title)}</th>" for title in head) + "</tr>")
    for row in rows:
        tags = ["td"] * len(row) if head else ["th", *["td"] * (len(row) - 1)]
        cells = (f"<{tag}>{escape(str(cell))}</{tag}>" for tag, cell in zip(tags, row, strict=True))
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return "<table>" + "".join(lines) + "</table>"
