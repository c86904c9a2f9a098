"""Small images inside the frusta of a 3-D page: those of one trajectory in one JPEG, cell by cell.

    cell k of an atlas with c columns: column k % c, row k // c, of width x height pixels

A file `NAME.jpg` with `NAME.json` beside it, {"rows": [...], "columns": c, "width": w, "height": h}: cell k
belongs to pose `rows[k]` of the trajectory's curve.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

MAX_FRUSTA = 150
"""Of one trajectory, and so of its images."""
MAX_BYTES = 8_000_000
"""Of all images of a page; trajectories beyond show frusta without."""
WIDTH, COLUMNS = 96, 12
"""Of a small image [px], and of an atlas."""


def frustum_rows(count: int) -> range:
    """Which of `count` poses get a frustum."""
    return range(0, count, max(1, -(-count // MAX_FRUSTA)))


def embedded(files: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """Atlases by name with the image as a data URL, for `viewer.trajectory_document`; up to `MAX_BYTES`."""
    atlases, left = {}, MAX_BYTES
    for name, path in files.items():
        layout = path.with_suffix(".json")
        if not (path.is_file() and layout.is_file()) or path.stat().st_size > left:
            continue
        left -= path.stat().st_size
        image = base64.b64encode(path.read_bytes()).decode()
        atlases[name] = {**json.loads(layout.read_text()), "image": f"data:image/jpeg;base64,{image}"}
    return atlases
