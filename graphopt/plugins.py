"""Tables by name that other packages can add rows to.

A row comes from one of three places, in this order:

    register(name, row)     a program's own
    option_names            this package's, as "module:object", imported when the name is first asked for
    entry points            those of an installed package, likewise: group "graphopt.linear_solvers" in its
                            pyproject.toml, name = "module:object"
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from graphopt.errors import OptionError, PluginError
from graphopt.suggestions import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Row = TypeVar("Row")


@cache
def entry_points_of(group: str) -> dict[str, EntryPoint]:
    """Entry points of installed packages by name; looked for once per process."""
    from importlib.metadata import entry_points  # takes milliseconds: only for names that are not known here

    return {entry.name: entry for entry in entry_points(group=group)}


def load_entry_point(group: str, name: str) -> Any:
    """The object of an entry point, None if no installed package has it.

    Raises `PluginError`, which names package and cause, where importing it fails.
    """
    entry = entry_points_of(group).get(name)
    if entry is None:
        return None
    try:
        return entry.load()
    except Exception as error:
        raise PluginError(
            f"{_whose(entry)} cannot be imported: {type(error).__name__}: {error}. "
            "Repair, update or uninstall that package."
        ) from error


def _whose(entry: EntryPoint) -> str:
    package = f"package '{entry.dist.name}'" if entry.dist is not None else "an installed package"
    return f"'{entry.name}' of {entry.group}, which {package} offers as {entry.value},"


class Table(Mapping[str, Row], Generic[Row]):
    """Name -> row. Iterates over what this package and the program have; `names` has all."""

    def __init__(self, group: str, option: str, built_in: Mapping[str, str | Row], kind: type[Row]):
        """group: of entry points. option: name of the option that takes these names, for errors.

        built_in: name -> row, or "module:object" where it is. kind: type of a row.
        """
        self.group, self.option, self._kind = group, option, kind
        self._built_in = dict(built_in)
        self._rows: dict[str, Row] = {}

    def register(self, name: str, row: Row) -> None:
        """Add a row; `OptionError` where this package has one of that name. One's own is replaced."""
        if not isinstance(name, str) or not name or not set(name).isdisjoint(":, ="):
            raise OptionError(
                f"{self.option} cannot be called {name!r}: a word without ':', ',', '=' is expected."
            )
        if name in self._built_in or name == "auto":
            raise OptionError(f"{self.option} '{name}' is graphopt's own. Choose another name.")
        self._rows[name] = self._checked(row, f"{self.option} '{name}'")

    def unregister(self, name: str) -> None:
        """Take a row of `register` away."""
        if name in self._built_in or name not in self._rows:
            raise OptionError(f"{self.option} '{name}' is not registered by the program.")
        del self._rows[name]

    def __getitem__(self, name: str) -> Row:
        """The row of a name; `KeyError` where nobody has it, `PluginError` for a package that is broken."""
        row = self._rows.get(name)
        if row is not None:
            return row
        if name in self._built_in:
            row = self._built_in[name]
            if isinstance(row, str):
                module, _, attribute = row.partition(":")
                row = cast("Row", getattr(importlib.import_module(module), attribute))
        else:
            offered = load_entry_point(self.group, name)
            if offered is None:
                raise KeyError(name)
            row = self._checked(offered, _whose(entry_points_of(self.group)[name]))
        self._rows[name] = row
        return row

    def _checked(self, row: Any, whose: str) -> Row:
        if not isinstance(row, self._kind):
            raise PluginError(
                f"{whose} is a {type(row).__name__}, expected {self._kind.__module__}.{self._kind.__name__}."
            )
        return row

    def __contains__(self, name: object) -> bool:
        """Somebody has a row of this name; nothing is imported to find out."""
        return name in self._rows or name in self._built_in or name in entry_points_of(self.group)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._built_in, *self._rows)))

    def __len__(self) -> int:
        return len({*self._built_in, *self._rows})

    def names(self) -> tuple[str, ...]:
        """All names, those of installed packages too, none of which is imported for it."""
        return tuple(dict.fromkeys((*self, *entry_points_of(self.group))))

    def row(self, name: Any, *others: str) -> Row:
        """The row of a name; `OptionError` with all names where there is none.

        others: names that the option takes beside those of rows, such as "auto".
        """
        if not isinstance(name, str) or name not in self:
            raise self.unknown(name, *others)
        return self[name]

    def unknown(self, name: Any, *others: str) -> OptionError:
        """The error for a name that nobody has."""
        known = (*others, *self.names())
        return OptionError(
            f"{self.option} is '{name}', expected one of {', '.join(known)}.{did_you_mean(str(name), known)}"
        )
