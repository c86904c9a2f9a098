"""Scenes of a room and boxes in it, with textures: what a trajectory moves through.

The room is seen from inside, the boxes (turned about z) from outside. Faces of a box are numbered
2 axis + side: 0, 1 have the smallest and largest x, 2, 3 those of y, 4, 5 of z. A face's texture begins at
the face's corner with the smallest coordinates; `across` and `down` are the two other axes in ascending
order, but on walls z runs downwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphopt.errors import OptionError
from slam_bridge.generator.texture import Texture, fallen_leaves, sky
from slam_bridge.generator.trajectory import Trajectory

FACE_AXES = ((1, 2), (1, 2), (0, 2), (0, 2), (0, 1), (0, 1))
"""Axes of `across` and `down` per face."""


@dataclass(frozen=True, eq=False)
class Face:
    """Texture of one face."""

    texture: Texture
    offset: tuple[float, float] = (0.0, 0.0)
    """Place in the texture of the face's corner [m]."""


@dataclass(frozen=True, eq=False)
class Box:
    """A box turned about z."""

    centre: np.ndarray
    """(3,) in the world [m]."""
    half: np.ndarray
    """(3,) half the sides [m]."""
    yaw: float
    """[rad]."""
    faces: tuple[Face, ...]
    """Six, numbered as above."""

    @property
    def world_R_box(self) -> np.ndarray:
        """(3, 3)."""
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])

    def to_box(self, points: Any) -> np.ndarray:
        """Points (..., 3) of the world in the box's frame."""
        return (np.asarray(points, float) - self.centre) @ self.world_R_box


@dataclass(frozen=True, eq=False)
class Scene:
    """A room, seen from inside, and boxes, seen from outside."""

    room: Box
    boxes: tuple[Box, ...] = ()
    place: str = ""
    sources: dict[str, Any] = field(default_factory=dict)
    """How it was made."""

    def describe(self) -> dict[str, Any]:
        """Sizes and places, for JSON."""
        return {
            "place": self.place,
            "room": _describe(self.room),
            "boxes": [_describe(box) for box in self.boxes],
            **self.sources,
        }


def _describe(box: Box) -> dict[str, Any]:
    return {"centre": box.centre.tolist(), "half": box.half.tolist(), "yaw": float(box.yaw)}


@dataclass(frozen=True)
class _Place:
    margin: float
    """From the trajectory to the walls [m]."""
    height: float
    """Of the ceiling above the highest place [m]."""
    spacing: float
    """Between boxes [m]."""
    sizes: tuple[float, float]
    """Half the sides of a box's ground [m]."""
    heights: tuple[float, float]
    """Of boxes [m]."""
    clearance: float
    """Between the trajectory and a box [m]."""
    texel: tuple[float, float]
    """Sides of texels: the finest and the coarsest [m]."""
    largest: float
    """Of what is painted [m]."""
    open_sky: bool = False


_PLACES = {
    "room": _Place(1.8, 1.4, 1.2, (0.15, 0.45), (0.5, 2.2), 0.45, (0.004, 0.01), 0.8),
    "hall": _Place(5.0, 4.0, 3.0, (0.3, 1.2), (0.8, 5.0), 1.5, (0.007, 0.02), 1.6),
    "corridor": _Place(2.5, 1.8, 4.0, (0.3, 1.0), (0.6, 2.6), 1.0, (0.007, 0.02), 1.0),
    "outdoors": _Place(40.0, 30.0, 14.0, (1.5, 6.0), (2.0, 14.0), 4.0, (0.015, 0.03), 4.0, True),
}
_TEXELS = 14e6  # of all faces of the room
_TILE = 4096  # texels of a texture's side at most
_MAX_BOXES = 400
_PLAIN = Texture(np.full((1, 1), 128, np.uint8), 1.0)


def scene_around(trajectory: Trajectory, place: str, seed: int = 0, textured: bool = True) -> Scene:
    """A scene that leaves the trajectory free: its walls lie around it, its boxes beside it.

    textured: False where only its geometry is wanted, which is the same.
    """
    if place not in _PLACES:
        raise OptionError(f"place is {place!r}, expected one of {', '.join(_PLACES)}.")
    generator = np.random.default_rng([seed, 2])
    look = _PLACES[place]
    path = trajectory.position(np.linspace(0.0, trajectory.duration, max(int(10 * trajectory.duration), 2)))
    low, high = path.min(axis=0) - look.margin, path.max(axis=0) + look.margin
    low[2] = min(path[:, 2].min() - 0.5, 0.0)
    high[2] = path[:, 2].max() + look.height
    room = _room(low, high, look, np.random.default_rng([seed, 20]), textured)
    boxes = _boxes(path, low, high, look, generator, textured)
    return Scene(room, boxes, place, {"seed": seed})


def _room(
    low: np.ndarray, high: np.ndarray, look: _Place, generator: np.random.Generator, textured: bool
) -> Box:
    sides = high - low
    area = 2.0 * (sides[0] * sides[1] + sides[0] * sides[2] + sides[1] * sides[2])
    texel = float(np.clip(np.sqrt(area / _TEXELS), *look.texel))
    faces = []
    for across, down in FACE_AXES:
        columns, rows = (min(int(np.ceil(sides[axis] / texel)), _TILE) for axis in (across, down))
        made = fallen_leaves(rows, columns, texel, generator, look.largest) if textured else _PLAIN
        faces.append(Face(made))
    if look.open_sky:
        faces[5] = Face(sky(float(sides[:2].max()) / 256, generator))
    return Box(0.5 * (low + high), 0.5 * sides, 0.0, tuple(faces))


def _boxes(
    path: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    look: _Place,
    generator: np.random.Generator,
    textured: bool,
) -> tuple[Box, ...]:
    """Boxes on a jittered grid of the ground, where the path leaves room."""
    from scipy.spatial import KDTree

    texel = look.texel[0] * 1.5
    side = min(int(max(2.2 * look.sizes[1], look.heights[1]) / texel) + 1, 1024)
    paint = np.random.default_rng(int(generator.integers(2**62)))
    pool = [fallen_leaves(side, side, texel, paint, look.largest) if textured else _PLAIN for _ in range(6)]
    near = KDTree(path[:, :2])
    grid = [np.arange(low[k] + 0.5 * look.spacing, high[k], look.spacing) for k in range(2)]
    places = np.stack(np.meshgrid(*grid), axis=-1).reshape(-1, 2)
    places = places + generator.uniform(-0.35, 0.35, places.shape) * look.spacing
    boxes = []
    for place in places[generator.permutation(len(places))]:
        half = np.append(generator.uniform(*look.sizes, 2), 0.5 * generator.uniform(*look.heights))
        yaw = float(generator.uniform(0.0, np.pi))
        offsets = generator.uniform(0.0, side * texel, (6, 2))
        chosen = generator.integers(0, len(pool), 6)
        radius = float(np.linalg.norm(half[:2]))
        inside = ((place > low[:2] + radius) & (place < high[:2] - radius)).all()
        free = near.query(place)[0] > radius + look.clearance
        apart = all(
            np.linalg.norm(place - blocker.centre[:2]) > radius + np.linalg.norm(blocker.half[:2])
            for blocker in boxes
        )
        if not (inside and free and apart):
            continue
        faces = tuple(Face(pool[c], (float(o[0]), float(o[1]))) for c, o in zip(chosen, offsets, strict=True))
        boxes.append(Box(np.append(place, low[2] + half[2]), half, yaw, faces))
        if len(boxes) == _MAX_BOXES:
            break
    return tuple(boxes)
