"""The block solver of a distributed optimization: each rank's part, and what combines them.

It implements `solver.block_solver.BlockSolver`, so that every algorithm, stop rule and callback works as on
one rank. Its vectors are `vectors.RankVector`: the kept vertices of all ranks, then this rank's eliminated
ones. Collectives per call:

    linearize   one sum: chi2, and b and H's diagonal of the kept vertices that several ranks have
    solve       one sum of b_s and of diagonal blocks of S, and one per iteration of the conjugate gradients,
                of the rows that several ranks have
    trial       solve, and chi2, gain and step size
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.device import is_driven, open_device
from graphopt.distributed.communicator import Communicator, RankError, agreed, together
from graphopt.distributed.interface import interface
from graphopt.distributed.part import NoPart, SolverPart
from graphopt.distributed.pcg import StopRule, iterate, iterate_natively, iterates_natively
from graphopt.distributed.protocol import Part
from graphopt.distributed.scattering import Share
from graphopt.distributed.transport import connect
from graphopt.distributed.vectors import RankVector, rank_vector
from graphopt.errors import DeviceError, GraphError, OptionError
from graphopt.linear.options import SolverOptions
from graphopt.linear.pcg import MIXED_PCG_TOLERANCE, PCG_TOLERANCE
from graphopt.linear.systems import no_schur
from graphopt.linear.table import PRECONDITIONERS
from graphopt.problem.structure import Structure
from graphopt.solver.external import ExternalPart, ExternalPlaces
from graphopt.solver.trial import Damping, DefaultTrial, Trial
from graphopt.types.base import VertexType


@dataclass(frozen=True)
class _TypeOfVertices:
    """Stands for the vertex sets of one type on all ranks."""

    type: VertexType
    has_bounds: bool = False
    """Graphs with bounds are optimized by one rank."""


@dataclass(frozen=True)
class _Vertices:
    vertex_sets: tuple[_TypeOfVertices, ...]


class WholeStructure:
    """What algorithms ask about the structure of the whole: sizes and types."""

    def __init__(self, comm: Communicator, share: Share, part: Part):
        own = part.structure
        types: list[VertexType] = []
        if own is not None:
            sets = zip(own.selection.vertex_sets, own.num_free, strict=True)
            types = [set_.type for set_, num_free in sets if num_free]
        num_own = 0 if own is None else own.num_blocks - own.num_kept
        edges = sum(len(group.rows) for group in own.groups) if own is not None else 0
        has_kernels = own is not None and own.has_kernels
        told = comm.share((part.own_dim, num_own, edges, types, has_kernels))
        self.has_kernels = any(told_size[4] for told_size in told)
        self.kept_dim, self.num_kept = int(share.kept_dims.sum()), len(share.kept_ids)
        self.dim = self.kept_dim + sum(told_size[0] for told_size in told)
        self.num_blocks = self.num_kept + sum(told_size[1] for told_size in told)
        self.num_edges = sum(told_size[2] for told_size in told)
        every = {kind.tag: kind for told_size in told for kind in told_size[3]}
        self.selection = _Vertices(tuple(map(_TypeOfVertices, every.values())))
        self.vertex_blocks = [np.zeros(1, np.int64)] * len(every)
        self.groups: list[Any] = []
        """None of all ranks: who looks at single edges runs on one rank."""

    @property
    def has_schur(self) -> bool:
        """There are blocks to keep and blocks to eliminate."""
        return 0 < self.num_kept < self.num_blocks


class DistributedBlockSolver(DefaultTrial):
    """Implements `BlockSolver` over the ranks of a communicator; every call is collective.

    Steps are those of conjugate gradients, each rank with products of its own S_r, whose sum is never formed.
    """

    linear_solver = "pcg"

    def __init__(self, share: Share, options: SolverOptions, comm: Communicator, part: Part, transport: str):
        """transport: how messages of conjugate gradients go, see `transport`."""
        self.comm, self.part, self._share, self._options = comm, part, share, options
        self.kept_dim = int(share.kept_dims.sum())
        self.structure: Any = WholeStructure(comm, share, part)
        if not self.structure.num_blocks:
            raise agreed(
                GraphError("There is nothing to optimize: no active edge has a vertex that is not fixed.")
            )
        if options.schur in ("explicit", "implicit") and not self.structure.has_schur:
            raise agreed(OptionError(no_schur(options.schur, self.structure)))
        self.dim = self.kept_dim + part.own_dim
        self._kept: dict[str, np.ndarray] = {}
        """b, diagonal and dx of the kept vertices of all ranks, once they are asked for."""
        self._shared = interface(comm, part.kept_blocks, share.kept_dims)
        dims, of_h = share.kept_dims[part.kept_blocks], PRECONDITIONERS[options.preconditioner].is_of_h
        self._own = together(comm, lambda: part.iterating(self._shared, dims, of_h))
        self.transport = connect(comm, self._own, transport)
        is_mixed = part.solver is not None and part.solver.precision == "mixed"
        self._precision = "mixed" if any(comm.share(is_mixed)) else "double"
        coarse = MIXED_PCG_TOLERANCE if self._precision == "mixed" else PCG_TOLERANCE
        self._tolerance = options.pcg_tolerance or coarse
        self._iterate = iterate_natively if iterates_natively(comm, self._own) else iterate
        self._double: DistributedBlockSolver | None = None
        self.iterations: int | None = None
        """Of the last solve of this optimization."""

    # ---------------------------------------------------------------- vectors

    def _with_own(self, kept: np.ndarray, name: str) -> RankVector:
        """A vector of the kept vertices with the rank's own entries of its block solver's."""
        places, solver = self.part.kept_scalars, self.part.solver
        own = np.empty(0) if solver is None else np.asarray(getattr(solver, name))[len(places) :]
        return rank_vector(np.concatenate([kept, own]), self.comm, self.kept_dim)

    def _local(self, vector: np.ndarray) -> np.ndarray:
        """The rank's own entries of a vector."""
        return np.concatenate([vector[self.part.kept_scalars], vector[self.kept_dim :]])

    def _kept_vector(self, name: str) -> np.ndarray:
        """Put together when it is asked for, from what each rank owns. Collective then."""
        if name not in self._kept:
            packed, places, is_owned = np.zeros(self.kept_dim), self.part.kept_scalars, self._shared.is_owned
            if name == "dx" and self.part.solver is not None:
                packed[places[is_owned]] = np.asarray(self.part.solver.dx)[: len(places)][is_owned]
            elif name != "dx":
                packed[places[is_owned]] = self._own.kept(name)[is_owned]
            self._kept[name] = self.comm.sum(packed)
        return self._kept[name]

    @property
    def b(self) -> RankVector:
        """Right-hand side."""
        return self._with_own(self._kept_vector("b"), "b")

    @property
    def diagonal(self) -> RankVector:
        """Diagonal of H."""
        return self._with_own(self._kept_vector("diagonal"), "diagonal")

    @property
    def dx(self) -> RankVector:
        """Step."""
        return self._with_own(self._kept_vector("dx"), "dx")

    @dx.setter
    def dx(self, step: np.ndarray) -> None:
        plain = np.asarray(step)
        self._kept["dx"] = plain[: self.kept_dim].copy()
        if self.part.solver is not None:
            self.part.solver.dx = self._local(plain)

    def chi2(self) -> float:
        """Of all ranks."""
        part = self.part
        own = self._own.linearize()[-1] if part.solver is None else part.solver.chi2()
        return float(self.comm.sum(np.array([own]))[0])

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

    def update(self) -> None:
        """Each rank moves the vertices that it has."""
        if self.part.solver is not None:
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
        """Take the numbers of each rank's share; every optimization takes the same way."""
        if isinstance(self.part, NoPart):
            self.part.refresh()
        elif self.part.solver is not None:
            self.part.solver.refresh()
        self.iterations, self._double = None, None

    def finish(self) -> None:
        """Bring the estimates into each rank's share; no collective."""
        if self.part.solver is not None:
            self.part.solver.finish()

    def external(self, places: ExternalPlaces) -> ExternalPart:
        """Not over ranks."""
        raise DeviceError(
            "Edges that are evaluated elsewhere cannot be scattered to ranks. Optimize without comm."
        )

    def first_non_finite(self) -> str | None:
        """What the first rank that finds one says."""
        own = None if self.part.solver is None else self.part.solver.first_non_finite()
        return next((found for found in self.comm.share(own) if found is not None), None)

    @property
    def precision(self) -> str:
        """Mixed, where a rank computes so."""
        return self._precision

    def in_double(self) -> DistributedBlockSolver | None:
        """The same at the same estimates; None: a rank cannot. Made once."""
        if self._precision == "double":
            return None
        if self._double is None:
            try:
                part = together(self.comm, self.part.in_double)
            except RankError as error:
                raise agreed(DeviceError(str(error))) from error
            if any(self.comm.share(part is None)):
                return None
            self._double = DistributedBlockSolver(
                self._share, self._options, self.comm, cast("Part", part), self.transport
            )
        return self._double

    def linearize(self) -> float:
        """Each rank its part; one sum, of what several ranks have."""
        total = self.comm.sum(self._own.linearize())
        self._own.linearized(total)
        self._kept.clear()
        return float(total[-1])

    def largest_diagonal(self) -> float:
        """Of the kept vertices, and of each rank's own."""
        return max(self.comm.share(self._own.largest("diagonal")))

    def largest_gradient(self) -> float:
        """Likewise, of b."""
        return max(self.comm.share(self._own.largest("b")))

    def solve(self, damping: float | np.ndarray) -> bool:
        """Eliminate, iterate, substitute back."""
        if np.ndim(damping) == 0:
            total = self._iterated(Damping(float(damping)))
        else:
            total = self._iterated(np.asarray(damping))
        if total is not None:
            self._own.substitute(total)
        return total is not None

    def trial(self, damping: Damping) -> Trial:
        """On a device the last submission moves the estimates and finds chi2."""
        start = time.perf_counter()
        total = self._iterated(damping)
        seconds = {"solve": time.perf_counter() - start}
        if total is None:
            return Trial(False, seconds=seconds)
        found = self._own.substitute_and_move(total)
        chi2, gain = self.comm.sum(np.array([found.chi2, found.gain])).tolist()
        size = max(self.comm.share(found.step_size))
        seconds["update"] = time.perf_counter() - start - seconds["solve"]
        return Trial(True, chi2, gain, size, seconds, self._rule(damping).tolerance > self._tolerance)

    def _iterated(self, damping: Damping | np.ndarray) -> np.ndarray | None:
        """The step of the shared rows, as the ranks agree on it; None: not definite, on some rank."""
        self._kept.pop("dx", None)
        own = damping if isinstance(damping, Damping) else self._local(damping)
        total = self.comm.sum(self._own.reduce(own))
        if total[-1]:
            return None
        iterations = self._iterate(self.comm, self._own, total, self._rule(damping))
        if iterations is None:
            return None
        self.iterations = iterations
        return self.comm.sum(self._own.solution())

    def _rule(self, damping: Damping | np.ndarray) -> StopRule:
        most = self._options.pcg_iterations or max(self.kept_dim, 1)
        accuracy = damping.accuracy if isinstance(damping, Damping) else None
        if accuracy is None or not isinstance(damping, Damping):
            return StopRule(self._tolerance, most)
        share = max(accuracy**2, self._tolerance)
        patience = kernels.patience_after(-1 if self.iterations is None else self.iterations)
        return StopRule(share, most, share, damping.worth, patience)

    def describe(self) -> dict[str, Any]:
        """Of this rank; memory is its own."""
        own: dict[str, Any] = {"device": "none", "device_name": "no edges", "memory_bytes": 0}
        if self.part.solver is not None:
            own = dict(self.part.solver.describe())
        own["memory_bytes"] += 24 * self.kept_dim
        schur = "explicit" if self._options.schur == "explicit" else "implicit"
        return own | {
            "linear_solver": self.linear_solver, "precision": self.precision, "factorized_on": "",
            "schur": schur if self.structure.has_schur else "off",
        }  # fmt: skip


def make_solver(
    share: Share, options: SolverOptions, comm: Communicator, transport: str = "auto"
) -> DistributedBlockSolver:
    """The block solver of the ranks. Collective."""
    part = together(comm, lambda: _make_part(share, options))
    return DistributedBlockSolver(share, options, comm, part, transport)


def _make_part(share: Share, options: SolverOptions) -> Part:
    selection = share.select()
    if not any(selection.free(number).any() for number in range(len(selection.vertex_sets))):
        return NoPart(share)
    structure = Structure(selection)
    is_resident = is_driven(options.device) and open_device(options.device).submits_whole_programs
    if options.schur != "explicit" and is_resident and structure.num_kept:
        from graphopt.distributed.resident import ResidentPart

        resident = ResidentPart.of(share, structure, options)
        if resident is not None:
            return resident
    return SolverPart(share, structure, options)
