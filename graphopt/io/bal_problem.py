"""Bundle Adjustment in the Large: the files as arrays.

    num_cameras num_points num_observations
    camera point x y             one line per observation; pixels, origin in the image centre
    9 numbers per camera: angle-axis (3), translation (3), focal length, k1, k2
    3 numbers per point

    point_cam = R point_world + t;  p = -point_cam[:2] / point_cam[2];  pixel = f (1 + k1 |p|^2 + k2 |p|^4) p

(Agarwal et al., Bundle Adjustment in the Large, ECCV 2010.) A relative (gbp-poplar, TUM RGB-D) has one set of
intrinsics `fx fy cx cy` in a second line and 6 numbers per camera: translation, then angle-axis, z forward.
"""

from __future__ import annotations

import io
import struct
import zipfile
from dataclasses import dataclass

import numpy as np

from graphopt.errors import FormatError
from graphopt.io.numbers import NumberReader, format_integer_table, format_table

CAMERA_DIM = 9
_ARRAYS = ("camera_index", "point_index", "observations", "cameras", "points")


@dataclass
class BalProblem:
    """One problem. Indices count cameras and points from 0."""

    camera_index: np.ndarray  # (m,) int
    point_index: np.ndarray  # (m,) int
    observations: np.ndarray  # (m, 2) [px]
    cameras: np.ndarray  # (num_cameras, 9), or (num_cameras, 6) where the intrinsics are shared
    points: np.ndarray  # (num_points, 3)
    intrinsics: np.ndarray | None = None
    """(4,) fx fy cx cy of the variant with shared, known intrinsics."""

    def check(self, path: str) -> None:
        """Raise FormatError for wrong shapes, indices out of range and numbers that are not finite."""
        m = len(self.observations)
        expected = {
            "camera_index": (m,),
            "point_index": (m,),
            "observations": (m, 2),
            "cameras": (len(self.cameras), CAMERA_DIM if self.intrinsics is None else 6),
            "points": (len(self.points), 3),
        }
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise FormatError(f"{path}: {name} has shape {getattr(self, name).shape}, expected {shape}")
        for name, index, count in (
            ("camera", self.camera_index, len(self.cameras)),
            ("point", self.point_index, len(self.points)),
        ):
            wrong = np.flatnonzero((index < 0) | (index >= count))
            if len(wrong):
                raise FormatError(
                    f"{path}: observation {wrong[0]} names {name} {index[wrong[0]]}, "
                    f"expected 0 to {count - 1} ({count} {name}s)"
                )
        for name in ("observations", "cameras", "points"):
            bad = np.flatnonzero(~np.isfinite(getattr(self, name)).all(axis=1))
            if len(bad):
                raise FormatError(f"{path}: row {bad[0]} of {name} is not finite")


def parse_bal(data: bytes, path: str, *, has_intrinsics: bool = False) -> BalProblem:
    """Read BAL text, or its variant with `fx fy cx cy` in line 2. Raises FormatError with the line."""
    reader = NumberReader(data, path)
    num_cameras, num_points, num_observations = _read_counts(reader, path)
    intrinsics = reader.table("intrinsics", 1, 0, 4)[1][0] if has_intrinsics else None
    index, observations = reader.table("observations", num_observations, 2, 2)
    cameras = reader.table("cameras", num_cameras, 0, 6 if has_intrinsics else CAMERA_DIM)[1]
    points = reader.table("points", num_points, 0, 3)[1]
    reader.expect_end()
    problem = BalProblem(index[:, 0], index[:, 1], observations, cameras, points, intrinsics)
    problem.check(path)
    return problem


def _read_counts(reader: NumberReader, path: str) -> list[int]:
    counts = reader.integers("header (cameras, points, observations)", 3)
    if min(counts) < 0:
        raise FormatError(f"{path}:1: negative count in {counts}, expected cameras, points, observations")
    return counts


def parse_bal_npz(data: bytes, path: str) -> BalProblem:
    """Read a numpy archive with the arrays camera_index, point_index, observations, cameras, points."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            missing = [name for name in _ARRAYS if name not in archive.files]
            if missing:
                raise FormatError(
                    f"{path}: no array {', '.join(missing)}; it has {', '.join(archive.files) or 'none'}"
                )
            refuse_oversized(data, path)
            arrays = {name: archive[name] for name in _ARRAYS}
    except (
        ValueError,
        OSError,
        EOFError,
        KeyError,
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
    ) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{path}: not a readable .npz archive ({error})") from error
    except Exception as error:  # numpy's header parser lets SyntaxError, TokenError, zlib.error, ... through
        raise FormatError(f"{path}: damaged .npz archive ({type(error).__name__}: {error})") from error
    for name in _ARRAYS:
        if arrays[name].dtype.kind not in ("iu" if name.endswith("index") else "fiu"):
            raise FormatError(f"{path}: {name} holds {arrays[name].dtype}, expected numbers")
    index = {name: arrays[name].astype(np.int64) for name in _ARRAYS[:2]}
    values = {name: np.ascontiguousarray(arrays[name], dtype=np.float64) for name in _ARRAYS[2:]}
    problem = BalProblem(**index, **values)
    problem.check(path)
    return problem


def refuse_oversized(data: bytes, path: str) -> None:
    """Refuse an archive that claims to unpack to far more than numbers compress, before it is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            claimed = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, NotImplementedError, struct.error) as error:
        raise FormatError(f"{path}: damaged or truncated .npz archive ({error})") from error
    if claimed > max(64 << 20, 300 * len(data)):
        raise FormatError(f"{path}: claims to unpack to {claimed} bytes from {len(data)}; this is no problem")


def format_bal(problem: BalProblem) -> bytes:
    """BAL text of a problem (either variant)."""
    header = f"{len(problem.cameras)} {len(problem.points)} {len(problem.observations)}\n".encode()
    if problem.intrinsics is not None:
        header += format_table(problem.intrinsics[None])
    index = np.stack([problem.camera_index, problem.point_index], axis=1)
    parts = [header, format_integer_table(index, problem.observations)]
    if problem.intrinsics is None:  # one number per line, as the original files are
        parts += [format_table(problem.cameras.reshape(-1, 1)), format_table(problem.points.reshape(-1, 1))]
    else:
        parts += [format_table(problem.cameras), format_table(problem.points)]
    return b"".join(parts)
