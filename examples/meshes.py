"""Triangle meshes: .off, .obj and .ply files (also .xz), edges, weights, pictures."""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path

import command
import numpy as np

from graphopt.geometry import SO3

_PLY_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1",
    "short": "i2", "int16": "i2", "ushort": "u2", "uint16": "u2",
    "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4",
    "float": "f4", "float32": "f4", "double": "f8", "float64": "f8",
}  # fmt: skip


@dataclass
class Mesh:
    """Vertices and the triangles between them."""

    points: np.ndarray  # (num_vertices, 3)
    triangles: np.ndarray  # (num_triangles, 3) int

    def edges(self) -> np.ndarray:
        """(num_edges, 2): each edge once, the smaller vertex first."""
        pairs = np.concatenate([self.triangles[:, [i, (i + 1) % 3]] for i in range(3)])
        return np.unique(np.sort(pairs, axis=1), axis=0)

    def cotangent_weights(self, edges: np.ndarray) -> np.ndarray:
        """(cot a + cot b) / 2 of the angles opposite each edge, between 0.05 and 20 (Sorkine and Alexa)."""
        weights = np.zeros((len(edges),))
        rows = {(int(i), int(j)): row for row, (i, j) in enumerate(edges)}
        for corner in range(3):
            apex, i, j = (self.triangles[:, (corner + k) % 3] for k in range(3))
            a, b = self.points[i] - self.points[apex], self.points[j] - self.points[apex]
            area = np.linalg.norm(np.cross(a, b), axis=1)
            cotangent = np.sum(a * b, axis=1) / np.maximum(area, 1e-30)
            row = [rows[(min(p, q), max(p, q))] for p, q in zip(i.tolist(), j.tolist(), strict=True)]
            np.add.at(weights, row, 0.5 * cotangent)
        return np.clip(weights, 0.05, 20.0)


def grid(rows: int, columns: int) -> Mesh:
    """A flat sheet in the plane z = 0, unit squares cut into triangles."""
    y, x = np.mgrid[:rows, :columns]
    corner = (y * columns + x)[:-1, :-1].ravel()
    lower = np.stack([corner, corner + 1, corner + columns], axis=1)
    upper = np.stack([corner + 1, corner + columns + 1, corner + columns], axis=1)
    points = np.stack([x.ravel(), y.ravel(), 0.0 * x.ravel()], axis=1)
    return Mesh(points.astype(float), np.concatenate([lower, upper]))


def read(path: Path) -> Mesh:
    """Read a mesh; polygons are cut into triangles."""
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    suffix = path.with_suffix("").suffix if path.suffix == ".xz" else path.suffix
    readers = {".off": _read_off, ".obj": _read_obj, ".ply": _read_ply}
    if suffix.lower() not in readers:
        raise command.ExampleError(f"{path}: expected one of {', '.join(readers)}, plain or .xz.")
    try:
        points, polygons = readers[suffix.lower()](data)
        triangles = [(p[0], p[k], p[k + 1]) for p in polygons for k in range(1, len(p) - 1)]
        mesh = Mesh(np.array(points, float).reshape(-1, 3), np.array(triangles, int).reshape(-1, 3))
    except (ValueError, IndexError, KeyError) as error:
        raise command.ExampleError(f"{path} cannot be read as {suffix} mesh: {error}.") from error
    if len(mesh.triangles) == 0 or mesh.triangles.min() < 0 or mesh.triangles.max() >= len(mesh.points):
        raise command.ExampleError(f"{path} has no triangles, or one with a vertex that does not exist.")
    return mesh


def write_obj(path: Path, mesh: Mesh) -> None:
    """Write an .obj file."""
    lines = [f"v {x:.9g} {y:.9g} {z:.9g}" for x, y, z in mesh.points]
    lines += [f"f {i} {j} {k}" for i, j, k in mesh.triangles + 1]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def _read_off(data: bytes) -> tuple[list, list]:
    lines = (line.split("#")[0] for line in data.decode("ascii").splitlines())
    words = " ".join(lines).split()
    if not words[0].endswith("OFF"):
        raise ValueError("it does not begin with OFF")
    num_points, num_faces = int(words[1]), int(words[2])
    points = np.array(words[4 : 4 + 3 * num_points], float).reshape(-1, 3)
    faces, place = [], 4 + 3 * num_points
    for _ in range(num_faces):
        size = int(words[place])
        faces.append([int(word) for word in words[place + 1 : place + 1 + size]])
        place += 1 + size
    return list(points), faces


def _read_obj(data: bytes) -> tuple[list, list]:
    points, faces = [], []
    for line in data.decode("utf-8").splitlines():
        key, *words = line.split() or [""]
        if key == "v":
            points.append([float(word) for word in words[:3]])
        elif key == "f":
            numbers = [int(word.split("/")[0]) for word in words]
            faces.append([number - 1 if number > 0 else len(points) + number for number in numbers])
    return points, faces


def _read_ply(data: bytes) -> tuple[list, list]:
    head, _, body = data.replace(b"end_header\r\n", b"end_header\n", 1).partition(b"end_header\n")
    order, elements = "", []
    for line in head.decode("ascii").splitlines():
        key, *words = line.split() or [""]
        if key == "format":
            order = {"binary_little_endian": "<", "binary_big_endian": ">", "ascii": ""}[words[0]]
        elif key == "element":
            elements.append((words[0], int(words[1]), []))
        elif key == "property":
            elements[-1][2].append(words)
    numbers = _PlyNumbers(body, order)
    elements_by_name = {
        name: [numbers.row(properties) for _ in range(count)] for name, count, properties in elements
    }
    lists = ("vertex_indices", "vertex_index")
    faces = [next(row[name] for name in lists if name in row) for row in elements_by_name["face"]]
    return [[row["x"], row["y"], row["z"]] for row in elements_by_name["vertex"]], faces


class _PlyNumbers:
    """Reads the body of a .ply file number by number."""

    def __init__(self, body: bytes, order: str) -> None:
        self._words = iter(body.split()) if not order else None
        self._body, self._order, self._place = body, order, 0

    def row(self, properties: list[list[str]]) -> dict:
        """One element: value, or list of values, by property."""
        row = {}
        for kind, *rest in properties:
            if kind == "list":
                row[rest[2]] = [int(self._next(rest[1])) for _ in range(int(self._next(rest[0])))]
            else:
                row[rest[0]] = self._next(kind)
        return row

    def _next(self, kind: str) -> float:
        if self._words is not None:
            word = next(self._words, None)
            if word is None:
                raise ValueError("it ends too early")
            return float(word)
        dtype = np.dtype(self._order + _PLY_TYPES[kind])
        value = np.frombuffer(self._body, dtype, 1, self._place)[0]
        self._place += dtype.itemsize
        return value.item()


def draw(path: Path, drawn: list[Mesh], marks: np.ndarray, turn: float = 0.0, tilt: float = 0.0) -> None:
    """Picture of meshes side by side, lit from the viewer; `marks` are rows of vertices to show as dots.

    They are seen along the axis in which the first is thinnest, turned and tilted by degrees.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.collections import PolyCollection

    thin = int(np.argmin(np.ptp(drawn[0].points, axis=0)))
    view = _turned_about(0, tilt) @ _turned_about(1, turn) @ np.eye(3)[[(thin + 1) % 3, (thin + 2) % 3, thin]]
    if thin == 1:  # keep z upright
        view = view[[1, 0, 2]]
    figure, axes = pyplot.subplots(1, len(drawn), figsize=(5.0 * len(drawn), 5.0), squeeze=False)
    for axis, mesh in zip(axes[0], drawn, strict=True):
        points = mesh.points @ view.T
        corners = points[mesh.triangles]
        normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-30)
        light = 0.25 + 0.75 * np.abs(normal @ np.array([0.3, 0.3, 0.905]))
        back_to_front = np.argsort(corners[:, :, 2].mean(axis=1))
        colors = light[back_to_front, None] * np.array([0.72, 0.78, 0.88])
        axis.add_collection(
            PolyCollection(corners[back_to_front, :, :2], facecolors=colors, edgecolors=colors)
        )
        axis.plot(*points[marks, :2].T, "r.", markersize=5)
        axis.autoscale_view()
        axis.set_aspect("equal")
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def _turned_about(axis: int, degrees: float) -> np.ndarray:
    """Rotation matrix about a coordinate axis."""
    vector = np.zeros(3)
    vector[axis] = np.radians(degrees)
    return SO3.exp(vector).to_matrix()
