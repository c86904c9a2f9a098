"""Small images inside the frusta of a 3-D page: those of one trajectory in one JPEG, cell by cell.

    cell k of an atlas with c columns: column k % c, row k // c, of width x height pixels

A file `NAME.jpg` with `NAME.json` beside it, {"rows": [...], "columns": c, "width": w, "height": h}: cell k
belongs to pose `rows[k]` of the trajectory's curve.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphopt.evaluate import optional
from graphopt.io.files import write_bytes

MAX_FRUSTA = 150
"""Of one trajectory, and so of its images."""
MAX_BYTES = 8_000_000
"""Of all images of a page; trajectories beyond show frusta without."""
WIDTH, COLUMNS = 96, 12
"""Of a small image [px], and of an atlas."""


def frustum_rows(count: int) -> range:
    """Which of `count` poses get a frustum."""
    return range(0, count, max(1, -(-count // MAX_FRUSTA)))


def write_atlas(path: Path, rows: Sequence[int], images: Sequence[NDArray[np.uint8]]) -> None:
    """Write grey images (h, w), those of the poses `rows` of a curve, as one JPEG with its layout beside it.

    Needs OpenCV.
    """
    cv2 = optional.load("cv2", "opencv-python-headless")
    height = round(WIDTH * images[0].shape[0] / images[0].shape[1])
    atlas = np.zeros((-(-len(rows) // COLUMNS) * height, COLUMNS * WIDTH), np.uint8)
    for k, image in enumerate(images):
        top, left = k // COLUMNS * height, k % COLUMNS * WIDTH
        small = cv2.resize(image, (WIDTH, height), interpolation=cv2.INTER_AREA)
        atlas[top : top + height, left : left + WIDTH] = small
    layout = {"rows": list(rows), "columns": COLUMNS, "width": WIDTH, "height": height}
    write_bytes(path, cv2.imencode(".jpg", atlas, (cv2.IMWRITE_JPEG_QUALITY, 75))[1].tobytes())
    write_bytes(path.with_suffix(".json"), json.dumps(layout).encode())


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
