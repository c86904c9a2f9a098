"""A dense prior over states of a map: what marginalized states said about those that stay.

    chi2 = (d - m)' Omega (d - m),     d: by how much the states have moved since x^0

States are named by a kind (`POSE`, `VELOCITY`, `GYRO_BIAS`, `ACC_BIAS` of a keyframe, or `LANDMARK`) and an
id.
Their d stand one after the other in the order of the prior, 6 numbers for a pose, 3 for all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from graphopt.geometry import SE3, quaternion
from slam_bridge.tables import MapError

POSE, VELOCITY, GYRO_BIAS, ACC_BIAS, LANDMARK = range(5)
"""Kinds of states."""
STATE_COLUMNS = ("world_T_body", "velocity", "gyro_bias", "acc_bias")
"""The column of `Map.keyframes` of each kind but the last, which is `position` of `Map.landmarks`."""


@dataclass(frozen=True, eq=False)
class MarginalPrior:
    """Gaussian over s states."""

    kind: np.ndarray
    """(s,) int64: `POSE` to `LANDMARK`."""
    owner: np.ndarray
    """(s,) int64: id of the keyframe or landmark."""
    reference: np.ndarray
    """(s, 7) x^0; of vectors the first three numbers."""
    information: np.ndarray
    """(d, d) positive semi-definite."""
    offset: np.ndarray
    """(d,) m."""

    ARRAYS: ClassVar[tuple[str, ...]] = ("kind", "owner", "reference", "information", "offset")

    def __post_init__(self) -> None:
        for name, dtype in (("kind", np.int64), ("owner", np.int64)):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype))
        s, d = len(self.kind), int(self.dims.sum())
        for name, shape in (
            ("owner", (s,)),
            ("reference", (s, 7)),
            ("information", (d, d)),
            ("offset", (d,)),
        ):
            value = np.asarray(getattr(self, name))
            if value.shape != shape or not np.isfinite(value).all():
                raise MapError(f"MarginalPrior.{name} has shape {value.shape}, expected finite {shape}.")

    @property
    def dims(self) -> np.ndarray:
        """(s,) numbers of each state's d."""
        return np.where(self.kind == POSE, 6, 3)

    @property
    def starts(self) -> np.ndarray:
        """(s + 1,) where each state's d begins."""
        return np.concatenate([[0], np.cumsum(self.dims)])

    @property
    def keyframes(self) -> np.ndarray:
        """Ids of the keyframes that have a state in it, ascending."""
        return np.unique(self.owner[self.kind != LANDMARK])

    @property
    def landmarks(self) -> np.ndarray:
        """Ids of the landmarks in it, ascending."""
        return np.unique(self.owner[self.kind == LANDMARK])

    def arrays(self) -> dict[str, np.ndarray]:
        """The fields, for a file."""
        return {name: getattr(self, name) for name in self.ARRAYS}

    def moved(self, states: np.ndarray) -> np.ndarray:
        """d (d,) of states (s, 7)."""
        parts = []
        for kind, before, now in zip(self.kind.tolist(), self.reference, states, strict=True):
            if kind == POSE:
                change = np.asarray((SE3(before).inverse() * SE3(now)).storage)
                parts += [change[:3], np.asarray(quaternion.vector_part(change[3:]))]
            else:
                parts.append(now[:3] - before[:3])
        return np.concatenate(parts) if parts else np.zeros(0)

    def chi2(self, states: np.ndarray) -> float:
        """chi2 of states (s, 7)."""
        error = self.moved(states) - self.offset
        return float(error @ self.information @ error)

    def without(self, drop: Any) -> MarginalPrior:
        """The prior over the other states, those of `drop` (s,) bool summed out (Schur complement)."""
        gone = np.repeat(np.asarray(drop, bool), self.dims)
        h = self.information
        keep_drop = h[np.ix_(~gone, gone)]
        gain = keep_drop @ np.linalg.pinv(h[np.ix_(gone, gone)], hermitian=True)
        reduced = h[np.ix_(~gone, ~gone)] - gain @ keep_drop.T
        kept = ~np.asarray(drop, bool)
        return MarginalPrior(
            self.kind[kept],
            self.owner[kept],
            self.reference[kept],
            0.5 * (reduced + reduced.T),
            self.offset[~gone],
        )
