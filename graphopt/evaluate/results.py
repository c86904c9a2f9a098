"""The folder that an evaluation writes: `results.json` and what is drawn from it.

    {"format": 1, "kind": "bal", "command": ..., "started": ..., "machine": {...}, "options": {...},
     "entries": {key: {"seconds": ..., ...} or {"error": ...}}}

The file is written whole after each entry, so that an interrupted evaluation goes on where it stopped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphopt.errors import FormatError, OptionError
from graphopt.io.files import write_bytes

FILE = "results.json"
FORMAT = 1


@dataclass
class Results:
    """What `results.json` holds."""

    kind: str
    """What was evaluated: bal, colmap, pose-graph, trajectory, euroc, ..."""
    options: dict[str, Any]
    """What changes the numbers; an evaluation resumes only under the same ones."""
    command: str = ""
    started: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By key: the numbers of one unit, or {"error": sentence}."""

    @property
    def failed(self) -> list[str]:
        """Keys of what failed."""
        return [key for key, entry in self.entries.items() if "error" in entry]

    def save(self, folder: Path) -> None:
        """Write `results.json`, whole or not at all."""
        document = {"format": FORMAT, **vars(self)}
        text = json.dumps(plain(document), indent=2, allow_nan=False) + "\n"
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / FILE, text.encode())


def load(path: str | Path) -> Results:
    """Read results from their folder or file; `FormatError` says what is wrong with it."""
    path = Path(path)
    file = path / FILE if path.is_dir() else path
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OptionError(
            f"{file} does not exist. Expected a folder that graphopt eval wrote with -o."
        ) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FormatError(f"{file}: this is no results.json of graphopt eval: {error}") from None
    required = {"kind", "options", "entries"}
    if not isinstance(document, dict) or not required <= document.keys():
        raise FormatError(
            f"{file}: this is no results.json of graphopt eval: {', '.join(sorted(required))} missing."
        )
    if document.pop("format", None) != FORMAT:
        raise FormatError(f"{file}: written by another version of graphopt, expected format {FORMAT}.")
    known = {name: document[name] for name in Results.__dataclass_fields__ if name in document}
    return Results(**known)


def plain(value: Any) -> Any:
    """Plain Python for JSON: numpy numbers become numbers, NaN and infinity null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
