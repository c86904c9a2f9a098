"""Figures without a window: one style for every picture, matplotlib only where it is asked for."""

from __future__ import annotations

import importlib.util
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from graphopt.errors import OptionError
from graphopt.io.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".pdf", ".svg", ".jpg", ".jpeg")

INK = "#1f2a36"
EDGE = "#9fb0c0"
POSE = "viridis"
POINT = "#3f7fbf"
CAMERA = "#d1495b"
ACCENT = "#1f77b4"


def require_matplotlib(path: str) -> None:
    """Raise `OptionError` if pictures cannot be drawn here, or not in the format that `path` names."""
    if Path(path).suffix.lower() not in FORMATS:
        raise OptionError(f"{path}: a picture's name must end in one of {', '.join(FORMATS)}.")
    missing = missing_matplotlib()
    if missing is not None:
        raise OptionError(missing)


def missing_matplotlib() -> str | None:
    """Why nothing can be drawn, and what to do; None: matplotlib is there."""
    if importlib.util.find_spec("matplotlib") is not None:
        return None
    return "Pictures need matplotlib, which is not installed. Install it with: pip install 'graphopt[plot]'"


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of `width` by `height` inches that no window belongs to."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained", facecolor="white")


def save(figure: Figure, path: str | Path) -> None:
    """Write the figure in the format that the path's ending names."""
    require_matplotlib(str(path))
    buffer = BytesIO()
    figure.savefig(buffer, format=Path(path).suffix[1:].lower())
    write_bytes(path, buffer.getvalue())
