"""What a reader found: counts, lines it kept without understanding them, and what deserves a second look."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class ReadReport:
    """Result of reading one file beside the graph itself."""

    path: str
    format: str
    """Name of the format as in `io.FORMATS`."""
    dialect: str | None = None
    """Name of the dialect (`io.DIALECTS`) that was asked for or found; None where it makes no difference."""
    dialect_reason: str = ""
    """Why this dialect."""
    seconds: float = 0.0
    """[s] wall time, unpacking included."""
    num_lines: int = 0
    """Lines of a text file, 0 for binary ones."""
    vertices: Counter[str] = field(default_factory=Counter)
    """Tag -> how many."""
    edges: Counter[str] = field(default_factory=Counter)
    """Tag -> how many."""
    parameters: Counter[str] = field(default_factory=Counter)
    """Tag -> how many."""
    unknown_tags: Counter[str] = field(default_factory=Counter)
    """Tag -> lines kept verbatim in `graph.unparsed`."""
    warnings: list[str] = field(default_factory=list)
    """Sentences, each naming line numbers where there are some."""
    needs_initialization: bool = False
    """The file has no estimates; all are identities and should come from `graphopt.initialize`."""

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.format}, {self.seconds * 1e3:.1f} ms"]
        for title, counts in (
            ("vertices", self.vertices),
            ("edges", self.edges),
            ("parameters", self.parameters),
            ("unknown, kept verbatim", self.unknown_tags),
        ):
            if counts:
                parts = ", ".join(f"{count} {tag}" for tag, count in counts.most_common())
                lines.append(f"  {title}: {parts}")
        if self.dialect is not None:
            why = f" ({self.dialect_reason})" if self.dialect_reason else ""
            lines.append(f"  dialect: {self.dialect}{why}")
        if self.needs_initialization:
            lines.append("  no vertices in the file: identity estimates, to be initialized from the edges")
        lines += [f"  warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)
