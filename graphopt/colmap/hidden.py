"""Observations without a residual: COLMAP's adjustment counts nothing of points behind their cameras.

So a step that takes everything behind its camera has a cost of 0.
"""

from __future__ import annotations

import numpy as np

from graphopt.colmap.model import ColmapModel, Observations
from graphopt.colmap.rigs import image_poses, places_of, to_storage
from graphopt.cpu_kernels import kernels
from graphopt.geometry import SE3
from graphopt.geometry.cameras import CAMERA_MODELS

_NAME = "the reconstruction"


def num_hidden(model: ColmapModel, seen: Observations) -> int:
    """How many of all observations of a model have no residual."""
    known = [CAMERA_MODELS[camera.model] for camera in model.cameras]
    row_of = {camera.id: row for row, camera in enumerate(model.cameras)}
    rows = np.array([row_of[id_] for id_ in model.images.camera_ids.tolist()], np.int64)
    planes = _cam_T_world(model)[:, 2].copy()
    planes[~np.array([each.sees_ahead for each in known], bool)[rows]] = [0.0, 0.0, 0.0, 1.0]
    points = np.ascontiguousarray(model.points.xyz)
    least = float(np.finfo(float).eps)
    found = int(kernels.count_behind(seen.image_row, seen.point_row, planes, points, least))
    special = np.array([each.has_image is not None for each in known], bool)
    return found + (_num_without_image(model, seen, rows, special) if special.any() else 0)


def _cam_T_world(model: ColmapModel) -> np.ndarray:
    """(num_images, 3, 4)."""
    if model.frames is None:
        poses = to_storage(np.concatenate([model.images.quaternion, model.images.translation], axis=1))
    else:
        poses = image_poses(places_of(model, _NAME), to_storage(model.frames.pose))
    return np.asarray(SE3(poses).to_matrix())[:, :3]


def _num_without_image(model: ColmapModel, seen: Observations, rows: np.ndarray, special: np.ndarray) -> int:
    """Of cameras that have a test of their own; rows (num_images,) of their cameras."""
    poses, total = _cam_T_world(model), 0
    for row in np.flatnonzero(special).tolist():
        mine = np.flatnonzero(rows[seen.image_row] == row)
        pose, camera = poses[seen.image_row[mine]], model.cameras[row]
        point = (
            np.einsum("nij,nj->ni", pose[:, :, :3], model.points.xyz[seen.point_row[mine]]) + pose[:, :, 3]
        )
        has_image = CAMERA_MODELS[camera.model].has_image
        assert has_image is not None
        total += int(
            (~has_image(np.broadcast_to(camera.params, (len(mine), len(camera.params))), point)).sum()
        )
    return total
