"""Reading and writing graphs: .g2o, TORO, iSAM, BAL, Bundler, COLMAP, libmv, and trajectories.

docs/formats.md has the details. What reads and writes COLMAP models as arrays is in `graphopt.colmap`.
"""

from __future__ import annotations

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
