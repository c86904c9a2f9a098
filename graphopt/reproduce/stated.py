"""The stated numbers: tables and rows of `results.json`, or of a file that `graphopt reproduce -o` wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphopt.errors import FormatError, OptionError
from graphopt.suggestions import did_you_mean

FILE = Path(__file__).with_name("results.json")
_TABLE = ("name", "title", "date", "commit", "machine", "note", "rows")
_ROW = ("name", "problem", "size", "seconds", "chi2", "peers")
_NUMBERS = ("seconds", "chi2", "initial_chi2", "vertices", "edges", "peers")


@dataclass(frozen=True)
class Stated:
    """Tables by name, and what the sources of other solvers' numbers are."""

    tables: dict[str, dict[str, Any]]
    sources: dict[str, str]
    """By name: a sentence."""

    def rows(self, table: str) -> dict[str, dict[str, Any]]:
        """Rows of a table by name."""
        return {row["name"]: row for row in self.tables[table]["rows"]}

    def chosen(self, tables: Iterable[str], rows: Iterable[str]) -> Stated:
        """Some tables, all if none is named, with some of their rows; an `OptionError` names the nearest."""
        requested, names = list(tables) or list(self.tables), list(rows)
        _refuse_unknown("table", requested, self.tables)
        known = [name for table in requested for name in self.rows(table)]
        _refuse_unknown("row", names, known)
        kept = {}
        for name in dict.fromkeys(requested):
            picked = [row for row in self.tables[name]["rows"] if not names or row["name"] in names]
            if picked:
                kept[name] = {**self.tables[name], "rows": picked}
        return replace(self, tables=kept)

    def against(self, other: Stated) -> Stated:
        """These tables with the numbers of others; a row that those lack has none."""
        tables = {}
        for name, table in self.tables.items():
            there = other.rows(name) if name in other.tables else {}
            head = other.tables.get(name, {"date": "", "commit": "", "machine": "not stated"})
            rows = [{**row, **_numbers(there.get(row["name"]), row)} for row in table["rows"]]
            tables[name] = {
                **table,
                **{key: head[key] for key in ("date", "commit", "machine")},
                "rows": rows,
            }
        return replace(self, tables=tables, sources={**self.sources, **other.sources})


def _numbers(row: dict[str, Any] | None, recipe: dict[str, Any]) -> dict[str, Any]:
    if row is None:
        row = {"seconds": {}, "chi2": None, "peers": []}
    by_solver = {peer["solver"]: peer for peer in row["peers"]}
    unknown = {"seconds": None, "chi2": None}
    peers = [{**peer, **by_solver.get(peer["solver"], unknown)} for peer in recipe["peers"]]
    return {**{key: row.get(key) for key in _NUMBERS}, "peers": peers}


def _refuse_unknown(what: str, names: list[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise OptionError(f"There is no {what} '{name}'.{hint} Known: {', '.join(known)}.")


def load(path: Path = FILE) -> Stated:
    """Read stated numbers; `FormatError` says what a file lacks."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OptionError(f"{path} does not exist. Expected what graphopt reproduce -o wrote.") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FormatError(f"{path}: this is no JSON of results: {error}.") from None
    if not isinstance(document, dict) or not isinstance(document.get("tables"), list):
        raise FormatError(
            f"{path}: expected an object with a list 'tables', as graphopt reproduce -o writes."
        )
    for number, table in enumerate(document["tables"], 1):
        _check(table, _TABLE, f"{path}: table {number}")
        for place, row in enumerate(table["rows"], 1):
            _check(row, _ROW, f"{path}: table '{table['name']}', row {place}")
    return Stated({table["name"]: table for table in document["tables"]}, document.get("sources", {}))


def _check(entry: Any, fields: tuple[str, ...], where: str) -> None:
    missing = [name for name in fields if not isinstance(entry, dict) or name not in entry]
    if missing:
        raise FormatError(f"{where} lacks {', '.join(missing)}. Expected what graphopt reproduce -o writes.")
