"""Images of a scene: one ray per pixel through the camera's own model, cast against boxes.

    ray_world = R unproject(pixel),     t = first hit,     grey = texture(face(o + t ray), footprint)
    footprint = 1.3 t sqrt(solid angle of the pixel) / |cos of incidence|

So distortion is exact whatever the model, and a point of a surface appears where `Camera.project` puts it.
A pixel is the mean of n x n rays (`supersample`), each of a texture that is averaged over its footprint. With
n = 1 it is a point sample at the middle of the pixel, and only pixels at the edges of objects are means.
Pixels are kept in blocks of 16 x 16, each with a cone around its rays; a box is only cast against blocks
whose cone meets its bounding sphere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import OptionError
from graphopt.geometry import SE3, SO3
from slam_bridge.cameras import Camera
from slam_bridge.generator.scene import FACE_AXES, Box, Scene

_BLOCK = 16
_NOTHING = np.int16(-1)
_TINY = np.float32(1e-12)  # rays along a plane meet it far away
_SPREAD = np.float32(1.3)  # of a lens, in pixels; less leaves stairs at edges, more hides corners


@dataclass(frozen=True, eq=False)
class View:
    """What one camera sees, without noise."""

    grey: np.ndarray
    """(height, width) float32, 0 to 255."""
    depth: np.ndarray
    """(height, width) float32 distance along the ray of the pixel's middle [m]; infinite where none is."""
    face: np.ndarray
    """(height, width) int16: 6 times the box + its face, the room first; -1 where there is no ray."""


def _shifts(n: int) -> list[tuple[float, float]]:
    """Places (du, dv) [px] of n x n rays in a pixel; of four on a turned grid no two share a line."""
    if n == 2:
        return [(-0.375, -0.125), (-0.125, 0.375), (0.125, -0.375), (0.375, 0.125)]
    places = (np.arange(n) + 0.5) / n - 0.5
    return [(float(du), float(dv)) for dv in places for du in places]


class Renderer:
    """Renders a scene for one camera; rays are computed once."""

    def __init__(self, camera: Camera, scene: Scene, supersample: int = 2):
        if camera.resolution is None:
            raise OptionError(f"camera {camera.name!r} has no resolution; images need one.")
        if supersample not in (1, 2, 3, 4):
            raise OptionError(f"supersample is {supersample}, expected 1 to 4.")
        self.camera, self.scene, self.supersample = camera, scene, supersample
        self._boxes = (scene.room, *scene.boxes)
        width, height = camera.resolution
        columns, rows = -(-width // _BLOCK) * _BLOCK, -(-height // _BLOCK) * _BLOCK
        u, v = np.meshgrid(np.minimum(np.arange(columns), width - 1), np.minimum(np.arange(rows), height - 1))
        self._pixels = _in_blocks(np.stack([u, v], axis=-1).astype(float))
        self._rays = camera.unproject(self._pixels)
        ends = [
            camera.unproject(self._pixels + step) - camera.unproject(self._pixels - step)
            for step in _HALF_STEPS
        ]
        self._slopes = np.stack(ends, axis=-1).astype(
            np.float32
        )  # (blocks, pixels, 3, 2): per pixel along u, v
        solid = np.linalg.norm(np.cross(*np.moveaxis(np.nan_to_num(self._slopes), -1, 0)), axis=-1)
        self._width = np.sqrt(np.maximum(solid, 1e-12)).astype(np.float32)  # of a pixel [rad]
        self._valid = np.asarray(np.isfinite(self._rays).all(axis=-1))
        self._rays = np.where(self._valid[..., None], self._rays, [0.0, 0.0, 1.0]).astype(np.float32)
        self._slopes = np.nan_to_num(self._slopes)
        self._axes, self._cone = _cones(self._rays, self._valid)

    def render(self, world_T_body: Any) -> View:
        """The view from a pose of the body (7,)."""
        pose = SE3(np.asarray(world_T_body, float)) * SE3(self.camera.body_T_cam)
        origin, rotation = np.asarray(pose.translation), np.asarray(SO3(pose.storage[3:]).to_matrix())
        n = self.supersample
        if n == 1:
            view = self._pass(origin, rotation, 0.0, 0.0, 1.0)
            return self._smoothed(view, origin, rotation)
        parts = [self._pass(origin, rotation, *shift, 1.0 / n).grey for shift in _shifts(n)]
        _, distance, face = self._hits(origin, rotation, 0.0, 0.0)
        depth = np.where(self._valid, distance, np.inf).astype(np.float32)
        return View(np.mean(parts, axis=0), self._image(depth), self._image(face))

    def _hits(
        self, origin: np.ndarray, rotation: np.ndarray, du: float, dv: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Directions in the world of rays shifted by (du, dv) [px], and what they hit: distance, face."""
        rays = self._rays
        if du or dv:
            rays = rays + self._slopes @ np.array([du, dv], np.float32)
        directions = rays @ rotation.T.astype(np.float32)
        distance, face = self._cast(origin, rotation, directions)
        face[~self._valid] = _NOTHING
        return directions, distance, face

    def _pass(self, origin: np.ndarray, rotation: np.ndarray, du: float, dv: float, size: float) -> View:
        directions, distance, face = self._hits(origin, rotation, du, dv)
        grey = self._shade(origin, directions, distance, face, self._width * np.float32(size))
        distance = np.where(self._valid, distance, np.inf).astype(np.float32)
        return View(*(self._image(values) for values in (grey, distance, face)))

    def _cast(
        self, origin: np.ndarray, rotation: np.ndarray, directions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """First hits: distance and face per pixel (blocks, pixels)."""
        distance, face = from_inside(self.scene.room, origin, directions)
        for number in self._visible(origin, rotation):
            box = self._boxes[number]
            blocks = np.flatnonzero(self._meets(box, origin, rotation))
            if not len(blocks):
                continue
            hit, side = from_outside(box, origin, directions[blocks])
            nearer = hit < distance[blocks]
            distance[blocks] = np.where(nearer, hit, distance[blocks])
            face[blocks] = np.where(nearer, np.int16(6 * number) + side, face[blocks])
        return distance, face

    def _visible(self, origin: np.ndarray, rotation: np.ndarray) -> list[int]:
        """Numbers of the boxes that some block may see."""
        return [k for k, box in enumerate(self._boxes) if k and self._meets(box, origin, rotation).any()]

    def _meets(self, box: Box, origin: np.ndarray, rotation: np.ndarray) -> np.ndarray:
        """(blocks,) bool: the cone of the block meets the bounding sphere of the box."""
        towards = (box.centre - origin) @ rotation
        far, radius = float(np.linalg.norm(towards)), float(np.linalg.norm(box.half))
        if far <= radius:
            return np.ones(len(self._cone), bool)
        angle = np.arccos(np.clip(self._axes @ (towards / far), -1.0, 1.0))
        return angle <= self._cone + np.arcsin(radius / far)

    def _shade(
        self,
        origin: np.ndarray,
        directions: np.ndarray,
        distance: np.ndarray,
        face: np.ndarray,
        width: np.ndarray,
    ) -> np.ndarray:
        """Grey of each pixel; any shape, rows of directions (..., 3)."""
        flat = face.ravel()
        order = np.argsort(flat, kind="stable")
        known, begins = np.unique(flat[order], return_index=True)
        grey = np.zeros(len(flat), np.float32)
        rays, far, size = directions.reshape(-1, 3), distance.ravel(), width.ravel()
        for face_number, rows in zip(known.tolist(), np.split(order, begins[1:]), strict=True):
            if face_number >= 0:
                box = self._boxes[face_number // 6]
                grey[rows] = shade_face(box, face_number % 6, origin, rays[rows], far[rows], size[rows])
        return grey.reshape(face.shape)

    def _smoothed(self, view: View, origin: np.ndarray, rotation: np.ndarray) -> View:
        """Pixels beside another face once more, with 2 x 2 rays each."""
        edge = np.zeros(view.face.shape, bool)
        for axis in range(2):
            differs = np.diff(view.face, axis=axis) != 0
            edge[tuple(slice(1, None) if k == axis else slice(None) for k in range(2))] |= differs
            edge[tuple(slice(None, -1) if k == axis else slice(None) for k in range(2))] |= differs
        v, u = np.nonzero(edge & (view.face >= 0))
        if not len(v):
            return view
        block = (v // _BLOCK) * (-(-view.face.shape[1] // _BLOCK)) + u // _BLOCK
        inside = (v % _BLOCK) * _BLOCK + u % _BLOCK
        shifts = 0.25 * np.array([[-1, -1], [1, -1], [-1, 1], [1, 1]], np.float32)
        rays = self._rays[block, inside][:, None] + np.einsum(
            "nij,kj->nki", self._slopes[block, inside], shifts
        )
        directions = rays @ rotation.T.astype(np.float32)
        distance, face = from_inside(self.scene.room, origin, directions)
        for number in np.unique(view.face[view.face >= 6] // 6).tolist():
            hit, side = from_outside(self._boxes[number], origin, directions)
            nearer = hit < distance
            distance, face = (
                np.where(nearer, hit, distance),
                np.where(nearer, np.int16(6 * number) + side, face),
            )
        width = np.broadcast_to(0.5 * self._width[block, inside][:, None], face.shape)
        view.grey[v, u] = self._shade(origin, directions, distance, face, width).mean(axis=1)
        return view

    def _image(self, blocks: np.ndarray) -> np.ndarray:
        """(height, width) of (blocks, pixels)."""
        assert self.camera.resolution is not None
        width, height = self.camera.resolution
        columns = -(-width // _BLOCK)
        rows = len(blocks) // columns
        whole = blocks.reshape(rows, columns, _BLOCK, _BLOCK).swapaxes(1, 2).reshape(rows * _BLOCK, -1)
        return np.ascontiguousarray(whole[:height, :width])


_HALF_STEPS = (np.array([0.5, 0.0]), np.array([0.0, 0.5]))


def _in_blocks(image: np.ndarray) -> np.ndarray:
    """(blocks, pixels, ...) of (height, width, ...)."""
    rows, columns = (size // _BLOCK for size in image.shape[:2])
    whole = image.reshape(rows, _BLOCK, columns, _BLOCK, *image.shape[2:]).swapaxes(1, 2)
    return whole.reshape(rows * columns, _BLOCK * _BLOCK, *image.shape[2:])


def _cones(rays: np.ndarray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Axis (b, 3) and half the opening (b,) [rad] of a cone around the rays of each block."""
    weighted = np.where(valid[..., None], rays, 0.0).sum(axis=1)
    axes = weighted / np.maximum(np.linalg.norm(weighted, axis=1, keepdims=True), 1e-9)
    cosine = np.where(valid, np.einsum("bpi,bi->bp", rays, axes), 1.0).min(axis=1)
    opening = np.where(valid.any(axis=1), np.arccos(np.clip(cosine, -1.0, 1.0)) + 5e-3, -np.inf)
    return axes, opening


def from_inside(box: Box, origin: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distance and face (...,) where rays from a point inside an unturned box leave it."""
    distance = np.full(directions.shape[:-1], np.inf, np.float32)
    face = np.zeros(directions.shape[:-1], np.int16)
    for axis in range(3):
        component = directions[..., axis]
        ahead = component > 0.0
        away = [np.float32(box.half[axis] + sign * (box.centre[axis] - origin[axis])) for sign in (-1.0, 1.0)]
        hit = np.where(ahead, away[1], away[0]) / np.maximum(np.abs(component), _TINY)
        nearer = hit < distance
        distance = np.where(nearer, hit, distance)
        face = np.where(nearer, (2 * axis + ahead).astype(np.int16), face)
    return distance, face


def from_outside(box: Box, origin: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distance and face (...,) where rays enter a box; infinite where they miss it."""
    rays = directions @ box.world_R_box.astype(np.float32)
    start = box.to_box(origin).astype(np.float32)
    enter = np.full(directions.shape[:-1], -np.inf, np.float32)
    leave = np.full(directions.shape[:-1], np.inf, np.float32)
    face = np.zeros(directions.shape[:-1], np.int16)
    for axis in range(3):
        component = rays[..., axis]
        inverse = 1.0 / np.where(np.abs(component) < _TINY, _TINY, component)
        size = np.float32(box.half[axis]) * np.abs(inverse)
        middle = -start[axis] * inverse
        near = middle - size
        later = near > enter
        enter = np.where(later, near, enter)
        face = np.where(later, (2 * axis + (component < 0.0)).astype(np.int16), face)
        leave = np.minimum(leave, middle + size)
    hits = (enter < leave) & (enter > 0.0)
    return np.where(hits, enter, np.float32(np.inf)), face


def shade_face(
    box: Box, face: int, origin: np.ndarray, rays: np.ndarray, distance: np.ndarray, width: np.ndarray
) -> np.ndarray:
    """Grey (n,) where rays (n, 3) meet a face after distance (n,); pixels are `width` (n,) wide [rad]."""
    across, down = FACE_AXES[face]
    local = rays @ box.world_R_box.astype(np.float32) if box.yaw else rays
    start = box.to_box(origin)
    chosen = box.faces[face]
    cosine = np.maximum(np.abs(local[:, face // 2]), np.float32(0.02))
    footprint = _SPREAD * distance * width / cosine
    x = np.float32(start[across] + box.half[across] + chosen.offset[0]) + distance * local[:, across]
    y = np.float32(start[down] + box.half[down]) + distance * local[:, down]
    if down == 2:
        y = np.float32(2.0 * box.half[down]) - y
    return chosen.texture.sample(x, y + np.float32(chosen.offset[1]), footprint)
