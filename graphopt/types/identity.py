"""Types are found again, not copied: what `pickle` and `copy` do with them.

A type holds functions, and a graph is of a type only if it has the very same object. So a pickled type is its
tag and the module that defines it; reading it imports that module, where the definition registers it, and
looks the tag up. That is what makes a graph travel to another process (multiprocessing with `spawn`), or to
a file and back.
"""

from __future__ import annotations

import importlib
import itertools
import pickle
import sys
from typing import Any

from graphopt.errors import TypeRegistryError

_definitions = itertools.count()

VERTICES: dict[str, Any] = {}
PARAMETERS: dict[str, Any] = {}
EDGES: dict[str, Any] = {}
"""Registered types by tag, alias and class name; `types.registry` fills these tables."""
_TABLES = {"VertexType": VERTICES, "ComputedVertexType": VERTICES, "ParameterType": PARAMETERS}
"""By the name of a kind of types; others are kinds of edges."""


class KnownByTag:
    """Base of the kinds of types: copies are the type itself, a pickle names it."""

    name: str
    tag: str
    doc: str
    aliases: tuple[str, ...]
    home: str
    definition: int
    """Number of the definition in this process: another type never has it."""

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """A type with a number."""
        made = super().__new__(cls)
        vars(made)["definition"] = next(_definitions)
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.tag}>"

    def _facts(self, kind: str, **facts: Any) -> dict[str, Any]:
        """Of any kind of type, and these, for tables and JSON."""
        aliases = [*self.aliases, *getattr(self, "alias_files", ())]
        named = {"kind": kind, "name": self.name, "tag": self.tag, "aliases": aliases}
        return {**named, **facts, "doc": self.doc}

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: object) -> Any:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        derived = self._derivation()
        if derived is not None:
            return derived
        if registered(type(self).__name__, self.tag) is not self:
            raise pickle.PicklingError(
                f"{self!r} cannot be pickled: nobody would find it again under its tag. "
                "Define it with graphopt.vertex_type, edge_type, parameter_type or group_type."
            )
        return find_type, (type(self).__name__, self.tag, self.home, self._sizes())

    def _derivation(self) -> tuple[Any, ...] | None:
        """(function, arguments) that make this type from another one; None: it is registered itself."""
        return None

    def _sizes(self) -> tuple[int, ...]:
        """What must be the same in a type found under this tag."""
        return ()


def registered(kind: str, tag: str) -> Any:
    """Type of a tag in the table of a kind ("VertexType", "ParameterType", or an edge's), or None."""
    return _TABLES.get(kind, EDGES).get(tag)


def import_home(home: str) -> None:
    """Import the module of a `home`, "module:qualified name", unless it is there or is a program."""
    module = home.partition(":")[0]
    if module and module not in sys.modules and module not in ("__main__", "__mp_main__"):
        importlib.import_module(module)


def find_type(kind: str, tag: str, home: str, sizes: tuple[int, ...]) -> Any:
    """The registered type with this tag; the module that defines it is imported where it is not there yet."""
    found = registered(kind, tag)
    if found is None and home:
        import_home(home)
        found = registered(kind, tag)
    if found is None:
        where = f"It is defined in {home.replace(':', ' as ')}; " if home else ""
        raise TypeRegistryError(
            f"A pickle needs the {kind} {tag}, which this process does not know. {where}"
            "import what defines it before reading the pickle."
        )
    if found._sizes() != sizes:
        raise TypeRegistryError(
            f"A pickle needs the {kind} {tag} with sizes {sizes}, here it has {found._sizes()}: "
            "its definition has changed."
        )
    return found


def home_of(function: Any) -> str:
    """Where a user's function stands, "module:qualified name"; "" if it does not say."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    return f"{module}:{name}" if module and name else ""


def home_of_caller(name: str) -> str:
    """The same for a type that a call defines: the module that calls, and the type's name."""
    frame = sys._getframe(2)
    function = frame.f_code.co_name
    inside = "" if function == "<module>" else f"{function}.<locals>."
    return f"{frame.f_globals.get('__name__', '')}:{inside}{name}"
