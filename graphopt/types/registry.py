"""Types by tag, alias and class name.

There are three tables (vertices, parameters, edges): `vertex_type`, `parameter_type` and `edge_type` look a
name up, `register` adds a type, `unregister` takes a user's type away again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from graphopt.errors import PluginError, TypeRegistryError
from graphopt.plugins import entry_points_of, load_entry_point
from graphopt.types.base import AnyEdgeType, EdgeType, ParameterType, VariadicEdgeType, VertexType
from graphopt.types.identity import EDGES, PARAMETERS, VERTICES

AnyType = VertexType | ParameterType | EdgeType | VariadicEdgeType
T = TypeVar("T", VertexType, ParameterType, EdgeType, VariadicEdgeType)

ENTRY_POINTS = "graphopt.types"
"""Group of the entry points of packages that have types."""


def names_of(kind: AnyType) -> tuple[str, ...]:
    """Every name a type is found by: class name, tag, aliases."""
    names = (kind.name, kind.tag, *kind.aliases, *getattr(kind, "alias_files", ()))
    return tuple(dict.fromkeys(names))


def _table(kind: AnyType) -> dict:
    if isinstance(kind, VertexType):
        return VERTICES
    return PARAMETERS if isinstance(kind, ParameterType) else EDGES


def register(kind: T) -> T:
    """Add a type under its class name, tag and aliases, and return it.

    A type of the same name or tag that was defined in the same place (module and qualified name) is replaced,
    as when a notebook's cell runs again; graphs that have it keep it. `TypeRegistryError` where a name is
    taken otherwise.
    """
    table = _table(kind)
    for old in {id(old): old for name in names_of(kind) if (old := table.get(name)) is not None}.values():
        if old is not kind and kind.home and old.home == kind.home:
            unregister(old)
    for name in names_of(kind):
        if name in table and table[name] is not kind:
            raise TypeRegistryError(
                f"{kind!r}: the name {name!r} is taken by {table[name]!r}. "
                "Choose another tag or name, or take that type away with graphopt.types.registry.unregister."
            )
    for name in names_of(kind):
        table[name] = kind
    return kind


def unregister(kind: AnyType) -> None:
    """Remove a type and all its names."""
    table = _table(kind)
    if table.get(kind.tag) is not kind:
        raise TypeRegistryError(f"{kind!r} is not registered.")
    for name in names_of(kind):
        del table[name]


def vertex_type(name: str | VertexType) -> VertexType:
    """Vertex type of a tag, alias or class name; a type is returned as it is."""
    return name if isinstance(name, VertexType) else _look_up(VERTICES, name, "vertex")


def parameter_type(name: str | ParameterType) -> ParameterType:
    """Parameter type of a tag, alias or class name; a type is returned as it is."""
    return name if isinstance(name, ParameterType) else _look_up(PARAMETERS, name, "parameter")


def edge_type(name: str | AnyEdgeType) -> AnyEdgeType:
    """Edge type of a tag, alias or class name; a type is returned as it is."""
    return name if isinstance(name, (EdgeType, VariadicEdgeType)) else _look_up(EDGES, name, "edge")


def find(name: str) -> AnyType | None:
    """Type of a tag, alias or class name in any of the three tables, None if there is none.

    An installed package is imported that has an entry point of this name in the group "graphopt.types": the
    module that defines the type, or anything in it.
    """
    for _ in range(2):
        for table in (VERTICES, EDGES, PARAMETERS):
            if name in table:
                return table[name]
        if load_entry_point(ENTRY_POINTS, name) is None:
            return None
    raise PluginError(
        f"An installed package offers '{name}' in the group {ENTRY_POINTS}, but importing "
        f"{entry_points_of(ENTRY_POINTS)[name].value} registers no type of that tag or name."
    )


def vertex_types() -> tuple[VertexType, ...]:
    """All vertex types in the order of registration."""
    return tuple(dict.fromkeys(VERTICES.values()))


def parameter_types() -> tuple[ParameterType, ...]:
    """All parameter types in the order of registration."""
    return tuple(dict.fromkeys(PARAMETERS.values()))


def edge_types() -> tuple[AnyEdgeType, ...]:
    """All edge types in the order of registration."""
    return tuple(dict.fromkeys(EDGES.values()))


def all_types() -> Iterator[AnyType]:
    """Every registered type once."""
    yield from vertex_types()
    yield from parameter_types()
    yield from edge_types()


def _look_up(table: dict, name: str, kind: str):
    found = table.get(name)
    if found is None and isinstance(name, str):
        find(name)
        found = table.get(name)
    if found is None:
        from difflib import get_close_matches

        if callable(name):
            raise TypeRegistryError(
                f"{name!r} is a function, expected a {kind} type or its name. @graphopt.{kind}_type(...) "
                "above a function makes a type of it."
            )
        close = get_close_matches(str(name), table, n=3, cutoff=0.6)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise TypeRegistryError(
            f"no {kind} type is called {name!r}.{hint} "
            f"graphopt.{kind}_type defines one; graphopt.types.registry.{kind}_types() lists all."
        )
    return found
