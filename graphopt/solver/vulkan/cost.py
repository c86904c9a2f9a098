"""What an iteration of Levenberg-Marquardt costs on a device, by schedule, and the cheapest one.

A schedule says what is stored of H: all blocks ("blocks") or, beside the diagonal, nothing, so that every
product recomputes the Jacobians ("matrix-free"); and whether Schur elimination forms S ("explicit"),
multiplies through H_pl ("implicit") or is left out ("off"). Each pass over edges, blocks or vectors takes the
longest of

    bytes / bandwidth,   operations / rate,   scattered 16-byte reads / their rate

and its dispatches (`device.figures`). Operations come from the compiled programs; a product J'w Omega J x
costs about `PRODUCT_FLOPS` times the residual (one forward and one reverse derivative). Conjugate gradients
are taken to run `PCG_ITERATIONS` times. The space is that of Thallo (Mara et al. 2021), with the Schur
complement as a part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from graphopt.codegen import information_dim
from graphopt.codegen.gpu import narrow_record_dim, record_dim
from graphopt.cpu_kernels import kernels
from graphopt.device.figures import DeviceFigures
from graphopt.device.protocol import Precision
from graphopt.solver.cpu import compiled_edge
from graphopt.solver.structure import EdgeGroup, Structure
from graphopt.types.base import working_edge_type

PCG_ITERATIONS = 20
PRODUCT_FLOPS = 3.0
_EFFICIENCY = 0.6  # of bandwidth and arithmetic that whole kernels reach
_PAIR_EFFICIENCY = 0.25  # of arithmetic: forming S, measured on an H200
_WORD = 16  # bytes of a scattered read

Products = Literal["blocks", "matrix-free"]
Elimination = Literal["explicit", "implicit", "off"]


@dataclass(frozen=True)
class Pass:
    """Work between two barriers."""

    nbytes: float = 0.0
    flops: float = 0.0
    gathers: float = 0.0
    dispatches: int = 1
    efficiency: float = _EFFICIENCY

    def seconds(self, figures: DeviceFigures, precision: Precision) -> float:
        """Predicted time on a device."""
        rate = figures.flops(precision)
        return (
            max(
                self.nbytes / (_EFFICIENCY * figures.bytes_per_second),
                self.flops / (self.efficiency * rate) if rate else 0.0,
                self.gathers / figures.gathers_per_second,
            )
            + self.dispatches * figures.dispatch_seconds
        )


@dataclass(frozen=True)
class GroupSize:
    """What of an edge group the cost depends on."""

    num_edges: int
    edge_bytes: int
    """Rows and data of one edge."""
    record_words: tuple[int, ...]
    """Scattered reads of 16 bytes for the estimate in each slot."""
    tangent_dims: tuple[int, ...]
    is_eliminated: tuple[bool, ...]
    """Whether Schur eliminates the vertices of a slot."""
    chi2_flops: int
    linearize_flops: int


@dataclass(frozen=True)
class ProblemSize:
    """What of a problem the cost depends on; numbers of scalars."""

    groups: tuple[GroupSize, ...]
    dim: int
    kept_dim: int
    diagonal: int
    """Of all diagonal blocks."""
    kept_off_diagonal: int
    """Of H_pp's upper triangle, without the diagonal."""
    coupling: int
    """Of H_pl."""
    pair_flops: float
    """To form S."""
    num_pairs: float
    schur: float
    """Of S's upper triangle, at most."""

    @property
    def eliminates(self) -> bool:
        """Some vertices can be eliminated, others stay."""
        return self.num_pairs > 0.0

    @property
    def values(self) -> int:
        """Of H as it is stored."""
        return self.diagonal + self.kept_off_diagonal + self.coupling


@dataclass(frozen=True)
class Prediction:
    """The cost of one schedule."""

    schur: Elimination
    products: Products
    seconds: dict[str, float]
    """Per iteration: linearize, eliminate, solve, update."""
    memory_bytes: float

    @property
    def name(self) -> str:
        """Short name: "implicit, matrix-free"."""
        return f"{self.schur}, {self.products}"

    @property
    def total(self) -> float:
        """Seconds per iteration."""
        return sum(self.seconds.values())


def problem_size(structure: Structure, precision: Precision) -> ProblemSize:
    """Sizes of a structure; compiles the programs of its edge types if they are not.

    Edges that share a block of H count as if each had one, so that the pattern of H need not be known.
    """
    squares = structure.dims.astype(np.int64) ** 2
    kept_off_diagonal, coupling, degree = _off_diagonal(structure)
    pairs, flops, schur = _pairs(structure, coupling, degree) if structure.has_schur else (0.0, 0.0, 0.0)
    return ProblemSize(
        groups=tuple(_group_size(structure, group, precision) for group in structure.groups),
        dim=structure.dim,
        kept_dim=structure.kept_dim,
        diagonal=int(squares.sum()),
        kept_off_diagonal=kept_off_diagonal,
        coupling=coupling,
        pair_flops=flops,
        num_pairs=pairs,
        schur=schur,
    )


def _off_diagonal(structure: Structure) -> tuple[int, int, np.ndarray]:
    """Numbers in off-diagonal blocks between kept vertices, and between a kept and an eliminated one.

    And (num_eliminated,) the kept neighbours of each eliminated block, once per edge.
    """
    kept, coupling = 0, 0
    degree = np.zeros(structure.num_blocks - structure.num_kept, np.int32)
    for group in structure.groups:
        dims = [structure.selection.vertex_sets[number].type.tangent_dim for number in group.vertex_sets]
        tables = [structure.vertex_blocks[number] for number in group.vertex_sets]
        found = kernels.couplings(group.vertex_rows, tables, structure.num_kept, degree)
        for (a, b), optimized, across in zip(combinations(dims, 2), *found, strict=True):
            coupling += across * a * b
            kept += (optimized - across) * a * b
    return kept, coupling, degree


def _pairs(structure: Structure, coupling: int, degree: np.ndarray) -> tuple[float, float, float]:
    """Pairs of kept neighbours over all landmarks, operations to form S from them, and scalars of S at most.

    All kept neighbours count as of the same, mean dimension.
    """
    num_kept, degree = structure.num_kept, degree.astype(np.float64)
    own = structure.dims[num_kept:].astype(np.float64)
    mean_dim = coupling / max(float((degree * own).sum()), 1.0)
    pairs = 0.5 * degree * (degree + 1.0)
    flops = 2.0 * float((pairs * (mean_dim**2 * own + mean_dim * own**2)).sum())
    full = 0.5 * float(structure.kept_dim) * (structure.kept_dim + 1.0)
    num_pairs = float(pairs.sum())
    return num_pairs, flops, min(full, num_pairs * mean_dim**2)


def _group_size(structure: Structure, group: EdgeGroup, precision: Precision) -> GroupSize:
    edge_type = working_edge_type(group.edge_set.type)
    compiled = compiled_edge(edge_type, group.information, group.kernel)
    vertices = edge_type.vertices
    num_data = edge_type.measurement_dim + information_dim(edge_type.residual_dim, group.information)
    rows = 4 * (len(vertices) + len(edge_type.parameters))
    words = [_words(v.storage_dim, precision) for v in vertices]
    blocks = [structure.vertex_blocks[number] for number in group.vertex_sets]
    return GroupSize(
        num_edges=len(group.rows),
        edge_bytes=rows + 8 * (num_data + (group.kernel != 0)),
        record_words=tuple(words),
        tangent_dims=tuple(v.tangent_dim for v in vertices),
        is_eliminated=tuple(structure.has_schur and bool((b >= structure.num_kept).any()) for b in blocks),
        chi2_flops=compiled.chi2.num_flops,
        linearize_flops=compiled.linearize.num_flops,
    )


def _words(storage_dim: int, precision: Precision) -> int:
    """Reads of 16 bytes per record."""
    nbytes = 8 * record_dim(storage_dim) if precision == "double" else 4 * narrow_record_dim(storage_dim)
    return -(-nbytes // _WORD)


def predict(size: ProblemSize, figures: DeviceFigures, precision: Precision) -> list[Prediction]:
    """All schedules that a problem allows, the cheapest first."""
    eliminations: Iterable[Elimination] = ("explicit", "implicit") if size.eliminates else ("off",)
    found = []
    for schur in eliminations:
        for products in ("blocks", "matrix-free"):
            if not (schur == "explicit" and products == "matrix-free"):
                found.append(_predict(size, figures, precision, schur, products))
    return sorted(found, key=lambda one: one.total)


def cheapest(predictions: Sequence[Prediction], memory_limit: float) -> Prediction:
    """The schedule predicted to be fastest of those that fit; that with the least memory if none does."""
    fitting = [one for one in predictions if one.memory_bytes <= memory_limit]
    return (
        min(fitting, key=lambda one: one.total)
        if fitting
        else min(predictions, key=lambda one: one.memory_bytes)
    )


def _predict(
    size: ProblemSize,
    figures: DeviceFigures,
    precision: Precision,
    schur: Elimination,
    products: Products,
) -> Prediction:
    real = 8 if precision == "double" else 4
    phases = {
        "linearize": _linearize(size, real, products),
        "eliminate": _eliminate(size, real, schur),
        "solve": [
            *(PCG_ITERATIONS * _product(size, real, schur, products)),
            *(PCG_ITERATIONS * _vectors(size.dim if schur == "off" else size.kept_dim, real)),
        ],
        "update": [*_residuals(size), Pass(nbytes=4.0 * 8 * size.dim)],
    }
    seconds = {
        name: sum(one.seconds(figures, precision) for one in passes) for name, passes in phases.items()
    }
    return Prediction(schur, products, seconds, _memory(size, real, schur, products))


def _residuals(size: ProblemSize) -> list[Pass]:
    return [
        Pass(
            nbytes=float(g.num_edges * g.edge_bytes),
            flops=float(g.num_edges * g.chi2_flops),
            gathers=float(g.num_edges * sum(g.record_words)),
        )
        for g in size.groups
    ]


def _linearize(size: ProblemSize, real: int, products: Products) -> list[Pass]:
    """One pass per slot, with its diagonal blocks and b; one per pair of slots for the other blocks."""
    passes = [Pass(nbytes=float(real * (size.diagonal + size.dim)), dispatches=1)]
    for g in size.groups:
        for slot in range(len(g.record_words)):
            passes.append(_edge_pass(g, float(g.linearize_flops), skip=slot))
        if products == "blocks":
            dims = g.tangent_dims
            for a in range(len(dims)):
                for b in range(a + 1, len(dims)):
                    written = g.num_edges * real * dims[a] * dims[b]
                    passes.append(_edge_pass(g, float(g.linearize_flops), more_bytes=float(written)))
    return passes


def _edge_pass(
    g: GroupSize, flops_per_edge: float, skip: int | None = None, more_bytes: float = 0.0, more_words: int = 0
) -> Pass:
    """A pass over the edges of a view; records of the slot that it is sorted by are read once."""
    words = sum(w for slot, w in enumerate(g.record_words) if slot != skip) + more_words
    return Pass(
        nbytes=g.num_edges * g.edge_bytes + more_bytes,
        flops=g.num_edges * flops_per_edge,
        gathers=float(g.num_edges * words),
    )


def _eliminate(size: ProblemSize, real: int, schur: Elimination) -> list[Pass]:
    if schur == "off":
        return [Pass(nbytes=2.0 * real * size.diagonal)]
    once = Pass(nbytes=real * (size.coupling + 2.0 * size.diagonal), dispatches=5)
    if schur == "implicit":
        return [once]
    queue = Pass(
        nbytes=12.0 * size.num_pairs + real * (size.schur + size.coupling),
        flops=size.pair_flops,
        efficiency=_PAIR_EFFICIENCY,
        dispatches=2,
    )
    return [once, queue]


def _product(size: ProblemSize, real: int, schur: Elimination, products: Products) -> list[Pass]:
    """One product of the conjugate gradients."""
    if schur == "explicit":
        return [Pass(nbytes=real * size.schur, dispatches=2)]
    if products == "blocks":
        if schur == "off":
            return [Pass(nbytes=float(real * size.values), dispatches=2)]
        return [Pass(nbytes=float(real * size.coupling)) for _ in range(2)]
    passes = []
    for g in size.groups:
        for slot, is_landmark in enumerate(g.is_eliminated):
            others = [t for t in range(len(g.record_words)) if t != slot]
            words = sum(-(-g.tangent_dims[t] * real // _WORD) for t in others)
            flops = PRODUCT_FLOPS * g.chi2_flops
            passes.append(_edge_pass(g, flops, skip=slot, more_words=words))
            if schur == "implicit" and is_landmark:
                passes.append(Pass(nbytes=float(real * 2 * size.diagonal)))
    return passes


def _vectors(dim: int, real: int) -> list[Pass]:
    """Updates of the conjugate gradients."""
    return [Pass(nbytes=10.0 * real * dim, dispatches=2)]


def _memory(size: ProblemSize, real: int, schur: Elimination, products: Products) -> float:
    """Edges once per slot, H as far as it is stored, S and its queue, vectors, two versions of estimates."""
    views = sum(g.num_edges * g.edge_bytes * len(g.record_words) for g in size.groups)
    blocks = size.values if products == "blocks" else size.diagonal
    explicit = real * size.schur + 12.0 * size.num_pairs if schur == "explicit" else 0.0
    return views + real * (blocks + size.diagonal + 12.0 * size.dim) + explicit + 16.0 * size.dim
