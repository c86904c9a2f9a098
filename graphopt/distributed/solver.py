"""The block solver of a distributed optimization: each rank's part, and what combines them.

It implements `solver.block_solver.BlockSolver`, so that every algorithm, stop rule and callback works as on
one rank. Its vectors are `vectors.RankVector`: the kept vertices of all ranks, then this rank's eliminated
ones. Collectives per call:

    linearize   one sum of 1 + 2 kept_dim numbers (chi2, b, H's diagonal)
    solve       exact: one sum of S and b_s;  conjugate gradients: one of b_s and of the preconditioner's
                numbers, and one of kept_dim numbers per iteration
    trial       solve, and three of one number (chi2, gain, step size)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.distributed.communicator import Communicator, agreed, together
from graphopt.distributed.part import NoPart, Part, SolverPart
from graphopt.distributed.pcg import BlockJacobi, ConjugateGradients, Preconditioner
from graphopt.distributed.scattering import Share
from graphopt.distributed.schwarz import AdditiveSchwarz
from graphopt.distributed.system import FactorizedSystem, ReducedSystem
from graphopt.distributed.vectors import RankVector, rank_vector
from graphopt.errors import DeviceError, GraphError, OptionError
from graphopt.solver.external import ExternalPart, ExternalPlaces
from graphopt.solver.linear.factor_pcg import FACTOR_PRECONDITIONERS
from graphopt.solver.linear_systems import ReducedSize, too_large_to_form
from graphopt.solver.registry import SolverOptions
from graphopt.solver.structure import Structure
from graphopt.solver.trial import TrialsByParts
from graphopt.types.base import VertexType


@dataclass(frozen=True)
class _TypeOfVertices:
    """Stands for the vertex sets of one type on all ranks."""

    type: VertexType


@dataclass(frozen=True)
class _Vertices:
    vertex_sets: tuple[_TypeOfVertices, ...]


class WholeStructure:
    """What algorithms ask about the structure of the whole: sizes and types."""

    def __init__(self, comm: Communicator, share: Share, part: Part):
        own = part.structure
        types: list[VertexType] = []
        if own is not None:
            sets = zip(own.selection.vertex_sets, own.vertex_blocks, strict=True)
            types = [one.type for one, blocks in sets if (blocks >= 0).any()]
        num_own = 0 if own is None else own.num_blocks - own.num_kept
        edges = sum(len(group.rows) for group in own.groups) if own is not None else 0
        told = comm.share((part.own_dim, num_own, edges, part.pairs(), types))
        self.kept_dim, self.num_kept = int(share.kept_dims.sum()), len(share.kept_ids)
        self.dim = self.kept_dim + sum(one[0] for one in told)
        self.num_blocks = self.num_kept + sum(one[1] for one in told)
        self.num_edges = sum(one[2] for one in told)
        self.pairs = sum(one[3] for one in told)
        every = {kind.tag: kind for one in told for kind in one[4]}
        self.selection = _Vertices(tuple(map(_TypeOfVertices, every.values())))
        self.vertex_blocks = [np.zeros(1, np.int64)] * len(every)
        self.groups: list[Any] = []
        """None of all ranks: who looks at single edges runs on one rank."""

    @property
    def has_schur(self) -> bool:
        """There are blocks to keep and blocks to eliminate."""
        return 0 < self.num_kept < self.num_blocks


class DistributedBlockSolver(TrialsByParts):
    """Implements `BlockSolver` over the ranks of a communicator; every call is collective."""

    def __init__(self, share: Share, options: SolverOptions, comm: Communicator):
        self.comm, self._options = comm, options
        if options.preconditioner in FACTOR_PRECONDITIONERS:
            raise agreed(
                OptionError(
                    f"preconditioner '{options.preconditioner}' works on one device, not over several ranks. "
                    "Use preconditioner='hschur', or linear_solver='cholesky'."
                )
            )
        self.kept_dim = int(share.kept_dims.sum())
        structure = together(comm, lambda: _structure(share))
        forms, factorizes = _ways(comm, share, structure, options)
        self.part: Part = together(comm, lambda: _make_part(share, structure, options, forms))
        self.structure: Any = WholeStructure(comm, share, self.part)
        if not self.structure.num_blocks:
            raise agreed(
                GraphError("There is nothing to optimize: no active edge has a vertex that is not fixed.")
            )
        self.dim = self.kept_dim + self.part.own_dim
        self._forms = forms
        self._system = self._make_system(share.kept_dims, forms, factorizes)
        self._b, self._dx, self._diagonal = (
            rank_vector(np.zeros(self.dim), comm, self.kept_dim) for _ in range(3)
        )

    def _make_system(self, dims: np.ndarray, forms: bool, factorizes: bool) -> ReducedSystem:
        comm, part, options = self.comm, self.part, self._options
        if factorizes:
            system = FactorizedSystem(comm, part, dims, options)
            if system.linear_solver != "pcg":  # the same on all ranks: they have the same pattern
                return system
        preconditioner: Preconditioner
        if forms:
            preconditioner = AdditiveSchwarz(comm, part, dims)
        else:
            preconditioner = BlockJacobi(comm, part, dims, options.preconditioner == "hpp")
        return ConjugateGradients(comm, part, dims, preconditioner, options)

    # ---------------------------------------------------------------- BlockSolver

    @property
    def b(self) -> RankVector:
        """Right-hand side."""
        return self._b

    @property
    def dx(self) -> RankVector:
        """Step."""
        return self._dx

    @dx.setter
    def dx(self, step: np.ndarray) -> None:
        self._dx[:] = step

    @property
    def diagonal(self) -> RankVector:
        """Diagonal of H."""
        return self._diagonal

    def linearize(self) -> float:
        """Each rank its part; one sum."""
        chi2, b, diagonal = self.part.linearize()
        kept, places = self.kept_dim, self.part.kept_scalars
        packed = np.zeros(1 + 2 * kept)
        packed[0] = chi2
        packed[1 + places] = b[: len(places)]
        packed[1 + kept + places] = diagonal[: len(places)]
        total = self.comm.sum(packed)
        self._b[:kept], self._diagonal[:kept] = total[1 : 1 + kept], total[1 + kept :]
        self._b[kept:], self._diagonal[kept:] = b[len(places) :], diagonal[len(places) :]
        return float(total[0])

    def chi2(self) -> float:
        """Sum over the ranks."""
        own = self.part.linearize()[0] if self.part.solver is None else self.part.solver.chi2()
        return float(self.comm.sum(np.array([own]))[0])

    def solve(self, damping: float | np.ndarray) -> bool:
        """Eliminate on each rank, solve for the kept vertices, substitute back on each rank."""
        full = np.empty(self.dim)
        full[:] = damping
        formed = self.part.reduce(full[self.kept_dim :])
        kept = self._system.solve(formed, full[: self.kept_dim])
        if kept is None:
            return False
        places = self.part.kept_scalars
        own = self.part.back_substitute(np.ascontiguousarray(kept[places]))
        self._dx[: self.kept_dim] = kept
        self._dx[self.kept_dim :] = own[len(places) :]
        return True

    def multiply(self, vector: np.ndarray) -> RankVector:
        """H times a vector, with one sum."""
        plain, places = np.asarray(vector), self.part.kept_scalars
        result = np.zeros(self.dim)
        packed = np.zeros(self.kept_dim)
        if self.part.solver is not None:
            product = self.part.solver.multiply(self._local(plain))
            packed[places] = product[: len(places)]
            result[self.kept_dim :] = product[len(places) :]
        result[: self.kept_dim] = self.comm.sum(packed)
        return rank_vector(result, self.comm, self.kept_dim)

    def _local(self, vector: np.ndarray) -> np.ndarray:
        """The rank's own entries of a vector."""
        return np.concatenate([vector[self.part.kept_scalars], vector[self.kept_dim :]])

    def update(self) -> None:
        """Each rank moves the vertices that it has."""
        if self.part.solver is not None:
            self.part.solver.dx = self._local(np.asarray(self._dx))
            self.part.solver.update()

    def push(self) -> None:
        """Remember the estimates."""
        if self.part.solver is not None:
            self.part.solver.push()

    def pop(self) -> None:
        """Return to the last push."""
        if self.part.solver is not None:
            self.part.solver.pop()

    def discard_top(self) -> None:
        """Forget the last push."""
        if self.part.solver is not None:
            self.part.solver.discard_top()

    def refresh(self) -> None:
        """Take the numbers of each rank's share."""
        if self.part.solver is not None:
            self.part.solver.refresh()

    def finish(self) -> None:
        """Bring the estimates into each rank's share; no collective."""
        if self.part.solver is not None:
            self.part.solver.finish()

    def external(self, places: ExternalPlaces) -> ExternalPart:
        """Not over ranks."""
        raise DeviceError(
            "Edges that are evaluated elsewhere cannot be dealt to ranks. Optimize without comm."
        )

    def first_non_finite(self) -> str | None:
        """What the first rank that finds one says."""
        own = None if self.part.solver is None else self.part.solver.first_non_finite()
        return next((one for one in self.comm.share(own) if one is not None), None)

    def describe(self) -> dict[str, Any]:
        """Of this rank; memory is its own."""
        own = {"device": "none", "device_name": "no edges", "precision": "double", "memory_bytes": 0}
        if self.part.solver is not None:
            own = dict(self.part.solver.describe())
        factorized = self._system.linear_solver != "pcg"
        schur = "off"
        if self.structure.num_kept < self.structure.num_blocks:
            schur = "explicit" if self._forms else "implicit"
        memory = int(own["memory_bytes"]) + self._system.memory_bytes + 3 * self._b.nbytes  # type: ignore[call-overload]
        return {
            **own,
            "linear_solver": self._system.linear_solver,
            "factorized_on": "cpu" if factorized else "",
            "schur": schur,
            "memory_bytes": memory,
        }


def _structure(share: Share) -> Structure | None:
    selection = share.select()
    if not any(selection.free(number).any() for number in range(len(selection.vertex_sets))):
        return None
    return Structure(selection)


def _make_part(share: Share, structure: Structure | None, options: SolverOptions, forms: bool) -> Part:
    if structure is None:
        return NoPart(share)
    return SolverPart(share, structure, options, forms)


def _ways(
    comm: Communicator, share: Share, structure: Structure | None, options: SolverOptions
) -> tuple[bool, bool]:
    """Whether the ranks' S_r are formed, and whether S is factorized. Collective."""
    pairs, num_own = 0.0, 0
    if structure is not None:
        pairs, num_own = ReducedSize.of(structure).pairs, structure.num_blocks - structure.num_kept
    told = comm.share((pairs, num_own))
    has_schur = len(share.kept_ids) > 0 and any(one[1] for one in told)
    if options.schur in ("explicit", "implicit") and not has_schur:
        sentence = (
            f"schur '{options.schur}' needs marginalized vertices beside others that stay; this graph has "
            f"{sum(one[1] for one in told)} to eliminate and {len(share.kept_ids)} to keep. "
            "Mark landmarks with vertex_set.marginalized = True, or use schur='off'."
        )
        raise agreed(OptionError(sentence))
    iterates = options.linear_solver == "pcg"
    if options.schur == "implicit":
        return False, False
    if options.linear_solver in ("cholesky", "dense") or options.schur == "explicit" or not has_schur:
        return True, not iterates
    size = ReducedSize(sum(one[0] for one in told), int(share.kept_dims.sum()), len(share.kept_ids))
    return (False, False) if too_large_to_form(size) else (True, not iterates)
