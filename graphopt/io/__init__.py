"""Reading and writing graphs: .g2o, TORO, iSAM, BAL, Bundler, COLMAP, libmv, and trajectories.

docs/formats.md has the details. What reads and writes COLMAP models as arrays is in `graphopt.colmap`;
its names can be imported from here as well.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from graphopt.io.bal_problem import BalProblem
from graphopt.io.dialects import DIALECTS, Dialect
from graphopt.io.formats import (
    FORMATS,
    Format,
    check_representable,
    check_writable,
    detect_format,
    format_for_writing,
    read,
    read_with_report,
    register_format,
    write,
)
from graphopt.io.read_report import ReadReport
from graphopt.io.trajectory import (
    poses_of,
    read_euroc,
    read_kitti,
    read_stamped,
    read_tum,
    write_kitti,
    write_tum,
)
from graphopt.option_names import FOLDER_FORMATS

__all__ = [
    "DIALECTS",
    "FORMATS",
    "BalProblem",
    "Dialect",
    "Format",
    "ReadReport",
    "check_representable",
    "check_writable",
    "detect_format",
    "format_for_writing",
    "poses_of",
    "read",
    "read_euroc",
    "read_kitti",
    "read_stamped",
    "read_tum",
    "read_with_report",
    "register_format",
    "write",
    "write_kitti",
    "write_tum",
]

_COLMAP = (
    "ColmapCamera",
    "ColmapFrames",
    "ColmapImages",
    "ColmapModel",
    "ColmapPoints",
    "ColmapRig",
    "ColmapSensor",
    "read_colmap",
    "write_colmap",
)


def __getattr__(name: str) -> Any:
    """Names of `graphopt.colmap`, which stands above this package."""
    if name not in _COLMAP:
        raise AttributeError(f"module 'graphopt.io' has no attribute '{name}'")
    return getattr(import_module(FOLDER_FORMATS["colmap"].rpartition(".")[0]), name)
