"""Table of all types for the documentation: `python -m graphopt.types.table`."""

from __future__ import annotations

from graphopt.types import BUILTIN_TYPES
from graphopt.types.base import AnyEdgeType, EdgeType, ParameterType, VariadicEdgeType, VertexType


def _counts(counts: tuple[int, ...]) -> str:
    first, *others = counts
    return f"{first} ({', '.join(map(str, sorted(others)))})" if others else str(first)


def _other_tags(kind: VertexType | ParameterType | AnyEdgeType) -> str:
    names = [*kind.aliases, *getattr(kind, "alias_files", ())]
    return ", ".join(f"`{name}`" for name in names if name.isupper() or "_" in name)


def _state_row(kind: VertexType | ParameterType) -> str:
    update = kind.tangent_dim if isinstance(kind, VertexType) else "-"
    return (
        f"| `{kind.tag}` | {kind.name} | {kind.storage_dim} | {update} | {_counts(kind.file.token_counts)} "
        f"| {_other_tags(kind)} | {kind.doc} |"
    )


def _edge_row(kind: AnyEdgeType) -> str:
    if isinstance(kind, VariadicEdgeType):
        ends = f"`{kind.first.tag}`, n times `{kind.rest.tag}`"
        d = kind.residual_dim_per_vertex
        sizes, tokens, parameters = f"{d} n | {d} n", "by arity", ""
    else:
        ends = ", ".join(f"`{vertex.tag}`" for vertex in kind.vertices)
        parameters = ", ".join(f"`{parameter.tag}`" for parameter in kind.parameters)
        sizes, tokens = f"{kind.measurement_dim} | {kind.residual_dim}", _counts(kind.file.token_counts)
    doc = kind.doc.splitlines()[0].replace("|", "\\|")
    cells = (f"`{kind.tag}`", kind.name, ends, parameters, sizes, tokens, _other_tags(kind), doc)
    return "| " + " | ".join(cells) + " |"


def markdown_tables() -> str:
    """Tables of the built-in vertex, parameter and edge types."""
    state = "| tag | class | stored | update | tokens | other tags | |\n|---|---|---|---|---|---|---|"
    edge = (
        "| tag | class | vertices | parameters | measurement | residual | tokens | other tags | error |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    parts = [
        "## Vertices\n",
        state,
        *(_state_row(kind) for kind in BUILTIN_TYPES if isinstance(kind, VertexType)),
        "\n## Parameters\n",
        state,
        *(_state_row(kind) for kind in BUILTIN_TYPES if isinstance(kind, ParameterType)),
        "\n## Edges\n",
        edge,
        *(_edge_row(kind) for kind in BUILTIN_TYPES if isinstance(kind, (EdgeType, VariadicEdgeType))),
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    print(markdown_tables(), end="")
