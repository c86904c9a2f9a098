"""What a map read from a file must hold: finite numbers, unit quaternions, ids that exist.

Maps that are built by `Map.add_*` hold it anyway. A landmark's position may be infinite or NaN: such
landmarks take no part in optimizations (`Selection.landmarks_nowhere`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from slam_bridge.marginal_prior import LANDMARK
from slam_bridge.tables import MapError, Table

if TYPE_CHECKING:
    from slam_bridge.map import Map

_MAY_BE_MISSING = {"right", "depth", "depth_sigma"}  # NaN: not measured
_REFERENCES = {"keyframe": "keyframes", "landmark": "landmarks", "first": "keyframes", "second": "keyframes"}


def check_map(world: Map) -> None:
    """`MapError` names the table, column, row and id of a number that no map has."""
    for name, table in world.tables.items():
        for column in table.columns:
            values = table[column]
            if values.dtype.kind == "f" and (name, column) != ("landmarks", "position"):
                _check_finite(name, table, column, values)
            if column in _REFERENCES:
                known = world.tables[_REFERENCES[column]].find(values) >= 0
                _refuse(name, table, column, ~known, f"no id of {_REFERENCES[column]}")
    reference = world.landmarks["reference"]
    lost = (reference >= 0) & (world.keyframes.find(reference) < 0)
    _refuse("landmarks", world.landmarks, "reference", lost, "no id of keyframes, and not -1")
    for name, column, first in (
        ("keyframes", "world_T_body", 3),
        ("pose_priors", "world_T_body", 3),
        ("loops", "first_S_second", 3),
    ):
        table = world.tables[name]
        length = np.linalg.norm(table[column][:, first : first + 4], axis=1)
        _refuse(name, table, column, np.abs(length - 1.0) > 1e-2, "without a unit quaternion")
    _check_observations(world)
    for number, prior in enumerate(world.priors):
        is_point = prior.kind == LANDMARK
        known = np.where(is_point, world.landmarks.find(prior.owner), world.keyframes.find(prior.owner)) >= 0
        if not known.all():
            owner = int(prior.owner[np.argmin(known)])
            raise MapError(f"priors/{number}: it holds a state of {owner}, which is not in the map.")


def _check_finite(name: str, table: Table, column: str, values: np.ndarray) -> None:
    bad = np.isinf(values) if column in _MAY_BE_MISSING else ~np.isfinite(values)
    _refuse(
        name, table, column, np.asarray(bad.any(axis=tuple(range(1, bad.ndim)))), "expected finite numbers"
    )


def _check_observations(world: Map) -> None:
    table, name = world.observations, "observations"
    if not len(table):
        return
    cameras = 0 if world.rig is None else len(world.rig)
    camera = table["camera"]
    _refuse(name, table, "camera", (camera < 0) | (camera >= cameras), f"the rig has {cameras} cameras")
    _refuse(name, table, "sigma", ~(table["sigma"] > 0.0), "must be > 0 px")
    measured = np.isfinite(table["depth"])
    _refuse(name, table, "depth_sigma", measured & ~(table["depth_sigma"] > 0.0), "must be > 0 m")
    assert world.rig is not None
    pairs = np.array([camera.baseline is not None for camera in world.rig])
    alone = np.isfinite(table["right"]) & ~pairs[camera]
    _refuse(name, table, "right", alone, "but its camera has no baseline")


def _refuse(name: str, table: Table, column: str, bad: np.ndarray, reason: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        shown = np.array2string(np.ravel(table[column][row]), precision=4, threshold=10, max_line_width=200)
        raise MapError(f"{name}/{column} of row {row} (id {int(table.ids[row])}) is {shown}: {reason}.")
