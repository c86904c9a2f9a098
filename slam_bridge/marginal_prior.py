"""A dense prior over states of a map: what marginalized states said about those that stay.

    chi2 = (d - m)' Omega (d - m),     d: by how much the states have moved since x^0

States are named by a kind (`POSE`, `VELOCITY`, `GYRO_BIAS`, `ACC_BIAS` of a keyframe, or `LANDMARK`) and an
id.
Their d stand one after the other in the order of the prior, 6 numbers for a pose, 3 for all others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.geometry import SE3, SO3, Sim3, quaternion
from slam_bridge.dense import eliminated
from slam_bridge.tables import MapError

POSE, VELOCITY, GYRO_BIAS, ACC_BIAS, LANDMARK = range(5)
"""Kinds of states."""
STATE_COLUMNS = ("world_T_body", "velocity", "gyro_bias", "acc_bias")
"""The column of `Map.keyframes` of each kind but the last, which is `position` of `Map.landmarks`."""

_KNOWN = 1e-9
"""Of the information in a direction to that of its parts: rounding leaves less."""


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
            if value.shape != shape or not kernels.all_finite(np.ascontiguousarray(value, float)):
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

    def is_absolute(self, gravity: np.ndarray | None) -> bool:
        """Whether it says where the whole is: position, and the turn about gravity (3,); None: any turn.

        What was marginalized without a fixed keyframe says how states lie to each other, and no more.
        """
        whole = self._whole(np.eye(3) if gravity is None else gravity[None] / np.linalg.norm(gravity))
        known = np.einsum("dn,de,en->n", whole, self.information, whole)
        usual = np.einsum("dn,d,dn->n", whole, np.diag(self.information), whole)
        return bool((known > _KNOWN * usual).any())

    def _whole(self, axes: np.ndarray) -> np.ndarray:
        """(d, 3 + a) how d changes where the whole is shifted, or turned about axes (a, 3) of the world."""
        columns = []
        placed = (self.kind == POSE) | (self.kind == LANDMARK)
        middle = self.reference[placed, :3].mean(axis=0) if placed.any() else np.zeros(3)
        for kind, reference in zip(self.kind.tolist(), self.reference, strict=True):
            lever = reference[:3] - (0.0 if kind == VELOCITY else middle)
            moved = np.hstack([np.eye(3) * (kind != VELOCITY), np.cross(axes, lever).T])
            if kind == POSE:
                back = np.asarray(SO3(reference[3:]).to_matrix()).T
                columns += [back @ moved, np.hstack([np.zeros((3, 3)), 0.5 * back @ axes.T])]
            else:
                columns.append(moved if kind in (VELOCITY, LANDMARK) else 0.0 * moved)
        return np.vstack(columns)

    def without(self, drop: Any) -> MarginalPrior:
        """The prior over the other states, those of `drop` (s,) bool summed out (Schur complement)."""
        gone = np.repeat(np.asarray(drop, bool), self.dims)
        reduced, _ = eliminated(self.information, np.zeros(len(gone)), gone)
        kept = ~np.asarray(drop, bool)
        return MarginalPrior(
            self.kind[kept], self.owner[kept], self.reference[kept], reduced, self.offset[~gone]
        )

    def without_owners(self, keyframes: Any = (), landmarks: Any = ()) -> MarginalPrior | None:
        """The prior without the states of these ids; itself if it has none of them, None if no other."""
        is_point = self.kind == LANDMARK
        drop = np.where(is_point, np.isin(self.owner, landmarks), np.isin(self.owner, keyframes))
        return self._kept(drop)

    def within(self, keyframes: Any, inertial: Any, landmarks: Any) -> MarginalPrior | None:
        """What it says about poses of `keyframes`, states of `inertial` and `landmarks` (ids) alone."""
        with_states = np.isin(self.owner, inertial)
        here = np.where(self.kind == POSE, np.isin(self.owner, keyframes), with_states)
        return self._kept(~np.where(self.kind == LANDMARK, np.isin(self.owner, landmarks), here))

    def _kept(self, drop: np.ndarray) -> MarginalPrior | None:
        if not drop.any():
            return self
        return None if drop.all() else self.without(drop)

    def transformed(self, new_S_old: np.ndarray) -> MarginalPrior:
        """The prior in a world that was moved by a Sim3 (8,): d becomes A d, Omega A^-T Omega A^-1."""
        motion, size = Sim3(new_S_old), float(new_S_old[7])
        turn = np.asarray(SO3(new_S_old[3:7]).to_matrix())
        d = int(self.dims.sum())
        back, there, reference = np.eye(d), np.eye(d), self.reference.copy()
        for row, (kind, start) in enumerate(zip(self.kind.tolist(), self.starts.tolist(), strict=False)):
            rows = slice(start, start + 3)
            if kind == POSE:
                there[rows, rows] *= size
                back[rows, rows] /= size
                reference[row, 3:] = np.asarray((SO3(new_S_old[3:7]) * SO3(reference[row, 3:])).storage)
            elif kind in (VELOCITY, LANDMARK):
                there[rows, rows], back[rows, rows] = size * turn, turn.T / size
            if kind == VELOCITY:
                reference[row, :3] = size * turn @ reference[row, :3]
            elif kind in (POSE, LANDMARK):
                reference[row, :3] = motion.act(reference[row, :3])
        information = back.T @ self.information @ back
        return replace(self, reference=reference, information=information, offset=there @ self.offset)

    def renamed(self, landmarks: dict[int, int]) -> MarginalPrior:
        """The prior with landmarks that are others' now; who is in it already keeps his own state."""
        known = set(self.landmarks.tolist())
        twice = [gone for gone, kept in landmarks.items() if gone in known and kept in known]
        prior = self.without_owners(landmarks=twice)
        assert prior is not None
        owner = prior.owner.copy()
        for row in np.flatnonzero(prior.kind == LANDMARK).tolist():
            owner[row] = landmarks.get(int(owner[row]), int(owner[row]))
        return replace(prior, owner=owner)
