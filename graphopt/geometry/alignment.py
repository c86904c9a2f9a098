"""The motion that aligns positions best: Umeyama, PAMI 1991."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import OptionError
from graphopt.geometry.so3 import SO3
from graphopt.option_names import ALIGNMENTS, Alignment

Array = NDArray[np.float64]
LARGEST = 1e100
"""Coordinates beyond have squares that overflow."""


def alignment(source: Array, target: Array, kind: Alignment) -> tuple[float, Array, Array]:
    """(scale, rotation (3, 3), shift (3,)) that moves positions `source` (n, 3) onto `target` best.

    kind: "none", "se3", "sim3", or "yaw": a rotation about z and a translation, for estimates whose gravity
    is observed. `OptionError` for another kind, no positions, or numbers that are not finite.
    """
    if kind not in ALIGNMENTS:
        raise OptionError(f"align is '{kind}', expected one of {', '.join(ALIGNMENTS)}.")
    if kind == "none":
        return 1.0, np.eye(3), np.zeros(3)
    if not len(source) or not (np.abs(source) <= LARGEST).all() or not (np.abs(target) <= LARGEST).all():
        raise OptionError(
            "An alignment needs positions that are finite numbers; some are not, or none is there."
        )
    mean_source, mean_target = source.mean(axis=0), target.mean(axis=0)
    centred, centred_target = source - mean_source, target - mean_target
    covariance = centred_target.T @ centred / len(source)
    if kind == "yaw":
        # argmin over the angle of sum |t_i - Rz s_i|^2, in closed form
        angle = np.arctan2(covariance[1, 0] - covariance[0, 1], covariance[0, 0] + covariance[1, 1])
        rotation = np.asarray(SO3.exp(np.array([0.0, 0.0, angle])).to_matrix())
        return 1.0, rotation, mean_target - rotation @ mean_source
    left, strength, right = np.linalg.svd(covariance)
    # A reflection would fit mirrored positions better than any rotation; the sign keeps it out.
    sign = np.array([1.0, 1.0, np.sign(np.linalg.det(left @ right))])
    rotation = left * sign @ right
    variance = (centred**2).sum() / len(source)
    scale = float(strength @ sign / variance) if kind == "sim3" and variance > 0.0 else 1.0
    return scale, rotation, mean_target - scale * rotation @ mean_source
