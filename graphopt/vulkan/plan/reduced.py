"""The shape of the reduced system S, before anything of it is formed: how far apart its rows are.

Kept vertices meet where they share a landmark or an edge. By breadth-first search from an outer vertex they
fall into levels, of which only neighbours meet: S is block-tridiagonal with the levels w_1, w_2, ... as
blocks. That bounds both ways to solve with it:

    Cholesky             sum over levels of w^3 / 3 + w^2 w' + w w'^2 operations, w': the next level
    conjugate gradients  a change reaches the next level in one iteration: some per level

A vertex that meets nearly all others, as a calibration that many images share, is no step between these: such
*hubs* are set aside, and border every level as rows that Cholesky eliminates last (w' becomes w' + border).

A sample of the landmarks will do, so that a plan takes milliseconds.

Reference: E. Cuthill, J. McKee, Reducing the bandwidth of sparse symmetric matrices, 1969 (level structures).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.problem.structure import Structure
from graphopt.vulkan.plan.couplings import couplings_of

HUB = 8.0
"""A vertex that is at so many times the places of the median one is a hub, if hubs are few."""
MOST_HUBS = 0.05
"""Of the kept vertices."""


@dataclass(frozen=True)
class ReducedShape:
    """Rows of S by level."""

    rows: int
    components: tuple[np.ndarray, ...]
    """Scalar rows of each level (float64), in order, per component of the graph of kept vertices but hubs."""
    border: float = 0.0
    """Scalar rows of the hubs."""

    @property
    def diameter(self) -> int:
        """Levels of the longest component: about how far apart two kept vertices are."""
        return max((len(widths) for widths in self.components), default=0)

    @property
    def widest(self) -> float:
        """Scalar rows of the largest level, with the border."""
        return max((float(widths.max()) for widths in self.components), default=0.0) + self.border

    @property
    def flops(self) -> float:
        """Operations of Cholesky level by level."""
        inside = sum(float(_factor_flops(widths, self.border)) for widths in self.components)
        return inside + self.border**3 / 3.0

    @property
    def stored(self) -> float:
        """Scalars of the upper triangle inside of the levels and between neighbours, at most."""
        inside = sum(float((0.5 * w**2).sum() + (w[:-1] * w[1:]).sum()) for w in self.components)
        return inside + self.border * self.rows


def _factor_flops(w: np.ndarray, border: float) -> float:
    after = np.append(w[1:], 0.0) + border
    return float((w**3 / 3.0 + w**2 * after + w * after**2).sum())


def reduced_shape(structure: Structure) -> ReducedShape:
    """Level structure of the kept vertices, from a sample of the eliminated ones."""
    num_kept = structure.num_kept
    meetings = couplings_of(structure).meetings
    is_hub = _hubs(np.bincount(meetings[:, 1], minlength=num_kept))
    meetings = meetings[~is_hub[meetings[:, 1]]]
    dims = structure.dims[:num_kept]
    components = kernels.level_widths(meetings[:, 0].copy(), meetings[:, 1].copy(), ~is_hub, dims)
    return ReducedShape(structure.kept_dim, tuple(components), float(dims[is_hub].sum()))


def _hubs(count: np.ndarray) -> np.ndarray:
    """(num_kept,) bool; count: places of each kept block."""
    is_hub = count > HUB * np.median(count) if count.size else np.zeros(0, bool)
    return is_hub if is_hub.sum() <= MOST_HUBS * count.size else np.zeros(count.size, bool)
