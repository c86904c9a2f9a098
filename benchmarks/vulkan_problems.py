"""Problems for the benchmarks of the Vulkan solver: block patterns of published sizes, random H on them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from graphopt.solver.vulkan.data.layout import BlockLayout

PUBLISHED = {  # cameras, points, observations; Agarwal et al., Bundle Adjustment in the Large
    "ladybug-49": (49, 7776, 31843),
    "trafalgar-257": (257, 65132, 225911),
    "dubrovnik-356": (356, 226730, 1255268),
    "final-961": (961, 187103, 1692975),
    "venice-1778": (1778, 993923, 5001946),
    "final-4585": (4585, 1324582, 9125125),
    "final-13682": (13682, 4456117, 28987644),
}
CAMERA_DIM, POINT_DIM = 9, 3


def generated(name: str, generator: str) -> str:
    """An .npz file of a published size, written by `python GENERATOR NAME FILE` unless it is there."""
    if not generator or name not in PUBLISHED:
        return name
    folder = Path(tempfile.gettempdir()) / "graphopt-benchmarks"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.npz"
    if not path.is_file():
        partial = folder / f"{name}.partial.npz"
        subprocess.run([sys.executable, generator, name, str(partial)], check=True)
        partial.replace(path)
    return str(path)


def observations(name: str) -> tuple[np.ndarray, np.ndarray]:
    """(m,) camera and point of each observation, sorted by point, then camera."""
    if Path(name).suffix == ".npz":
        arrays = np.load(name)
        camera, point = arrays["camera_index"].astype(np.int64), arrays["point_index"].astype(np.int64)
        key = np.unique(point * (camera.max() + 1) + camera)
        return key % (camera.max() + 1), key // (camera.max() + 1)
    num_cameras, num_points, num_observations = PUBLISHED[name]
    rng = np.random.default_rng(0)
    # Tracks of geometric length around a camera of their own; duplicates are drawn again.
    share = rng.exponential(size=num_points) + 0.4
    center = rng.integers(num_cameras, size=num_points)
    keys = np.empty(0, np.int64)
    while len(keys) < num_observations:
        missing = int(1.1 * (num_observations - len(keys))) + 100
        point = rng.choice(num_points, size=missing, p=share / share.sum())
        spread = rng.normal(scale=0.12 * num_cameras, size=missing)
        camera = (center[point] + np.rint(spread).astype(np.int64)) % num_cameras
        keys = np.unique(np.concatenate([keys, point * num_cameras + camera]))
    if len(keys) > num_observations:
        keys = np.sort(rng.choice(keys, size=num_observations, replace=False))
    return keys % num_cameras, keys // num_cameras


def layout_of(camera: np.ndarray, point: np.ndarray) -> BlockLayout:
    """Block pattern: cameras kept, points eliminated."""
    num_cameras, num_points = int(camera.max()) + 1, int(point.max()) + 1
    degree = np.bincount(point, minlength=num_points)
    per_column = np.concatenate([np.ones(num_cameras, np.int64), degree + 1])
    col_ptr = np.concatenate([[0], np.cumsum(per_column)])
    row_idx = np.empty(col_ptr[-1], np.int32)
    row_idx[col_ptr[1:] - 1] = np.arange(num_cameras + num_points)
    place = np.ones(len(row_idx), bool)
    place[col_ptr[1:] - 1] = False
    row_idx[place] = camera
    dims = np.repeat(np.array([CAMERA_DIM, POINT_DIM], np.int32), [num_cameras, num_points])
    return BlockLayout(dims, col_ptr, row_idx, num_cameras)


def fill(
    layout: BlockLayout, camera: np.ndarray, point: np.ndarray, values: np.ndarray, b: np.ndarray
) -> None:
    """Random J'J, with 1 on the diagonal besides."""
    rng = np.random.default_rng(1)
    num_cameras = layout.num_kept
    hpp = np.zeros((num_cameras, CAMERA_DIM, CAMERA_DIM)) + np.eye(CAMERA_DIM)
    hll = np.zeros((layout.num_landmarks, POINT_DIM, POINT_DIM)) + np.eye(POINT_DIM)
    items = layout.block_offset[layout.items]
    for first in range(0, len(camera), 500_000):
        part = slice(first, first + 500_000)
        jc = rng.normal(size=(len(camera[part]), 2, CAMERA_DIM))
        jp = rng.normal(size=(len(camera[part]), 2, POINT_DIM))
        w = np.einsum("nki,nkj->nji", jc, jp).reshape(-1, CAMERA_DIM * POINT_DIM)  # column-major
        values[items[part][:, None] + np.arange(CAMERA_DIM * POINT_DIM)] = w
        add_blocks(hpp, camera[part], np.einsum("nki,nkj->nij", jc, jc))
        add_blocks(hll, point[part], np.einsum("nki,nkj->nij", jp, jp))
    for blocks, offset in (
        (hpp, layout.diagonal_offset[:num_cameras]),
        (hll, layout.diagonal_offset[num_cameras:]),
    ):
        size = blocks[0].size
        values[offset[:, None] + np.arange(size)] = blocks.reshape(-1, size)
    b[:] = rng.normal(size=layout.dim)


def add_blocks(total: np.ndarray, index: np.ndarray, blocks: np.ndarray) -> None:
    """total[index[k]] += blocks[k] for all k."""
    order = np.argsort(index, kind="stable")
    first = np.flatnonzero(np.diff(index[order], prepend=-1))
    total[index[order[first]]] += np.add.reduceat(blocks[order], first)


def floors(layout: BlockLayout, real: int) -> dict[str, float]:
    """Bytes that have to move at least: one pass over H_pl, and twice S's triangle, [GB]."""
    w = float(np.sum(layout.dims[layout.item_row].astype(np.int64) * POINT_DIM)) * real
    return {"hpl_gb": w / 1e9, "implicit_product_ms_at_4TBs": 2e3 * w / 4e12}
