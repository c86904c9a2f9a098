"""What of a problem the cost of its schedules depends on: numbers of edges, scalars, operations."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from graphopt.codegen import information_dim, sampled_runs
from graphopt.codegen.gpu import EDGE_BLOCK, EdgeSignature, float32_record_dim, record_dim
from graphopt.device.protocol import Precision
from graphopt.errors import DeviceLimitError
from graphopt.linear.vectors import dot
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.cpu import compiled_edge
from graphopt.types.base import working_edge_type, working_vertex_type
from graphopt.vulkan.data.images import num_image_bytes
from graphopt.vulkan.data.views import MANY_EDGES, are_long
from graphopt.vulkan.plan.couplings import couplings_of

_WORD = 16  # bytes of a scattered read
MAX_ENTRIES = 1 << 32
"""Of an array, which kernels count in 32 bits."""
BYTES_PER_EDGE = 16
"""Of arrays that are reached with 32-bit offsets: entries of pair lists, places."""
MAX_VIEWS = 8
"""That one kernel sums over: its text and the time to compile it grow with them."""


def is_mergeable(structure: Structure, group: EdgeGroup, slot: int) -> bool:
    """The view of a slot may be summed by one kernel with others, see `merging`.

    Its destinations have few edges each, and none of them is cut into parts (`long_sums`).
    """
    if not structure.num_free[group.vertex_sets[slot]]:
        return False
    counts = np.diff(structure.sorted_edges(group, slot).first.astype(np.int64))
    return 0 < counts.sum() < MANY_EDGES * len(counts) and not are_long(counts).any()


def mergeable_slots(structure: Structure, group: EdgeGroup) -> tuple[bool, ...]:
    """Which of a group's views there are others to be summed with."""
    all_slots = [number for each_group in structure.groups for number in each_group.vertex_sets]
    return tuple(
        all_slots.count(number) > 1 and is_mergeable(structure, group, slot)
        for slot, number in enumerate(group.vertex_sets)
    )


@dataclass(frozen=True)
class GroupSize:
    """What of an edge group the cost depends on."""

    tag: str
    """Of the edge set: groups with the same one have the same schedule."""
    num_edges: int
    residual_dim: int
    edge_bytes: int
    """Rows and data of one edge."""
    record_words: tuple[int, ...]
    """Scattered reads of 16 bytes for the estimate in each slot."""
    tangent_dims: tuple[int, ...]
    is_eliminated: tuple[bool, ...]
    """Whether Schur eliminates the vertices of a slot."""
    chi2_flops: int
    linearize_flops: int
    kept_off_diagonal: int
    """Numbers in its off-diagonal blocks between kept vertices."""
    coupling: int
    """In those between a kept and an eliminated one."""
    num_blocks: int
    """All of them."""
    weight_dim: int
    """Numbers of the information times the weight of the robust kernel that depend on the edge."""
    signature: EdgeSignature
    """What its kernels are made from."""
    pixel_words: int = 0
    """Scattered reads of 16 bytes for the images that an edge samples."""
    vertex_sets: tuple[int, ...] = ()
    """Number of the vertex set of each slot."""
    num_destinations: tuple[int, ...] = ()
    """Optimized vertices of this set."""
    may_merge: tuple[bool, ...] = ()
    """Whether the view of each slot may be summed with others."""
    chi2_values: int = 0
    """Alive at the same time, in the residual."""
    linearize_values: int = 0

    @property
    def arity(self) -> int:
        """Vertices of an edge."""
        return len(self.tangent_dims)

    @property
    def num_pairs(self) -> int:
        """Pairs of slots."""
        return self.arity * (self.arity - 1) // 2

    def others(self, slot: int) -> list[int]:
        """The other slots."""
        return [t for t in range(self.arity) if t != slot]

    def stored_dim(self, slot: int) -> int:
        """Numbers that a view stores of an edge for its products, if none is constant or there twice."""
        own, others = self.tangent_dims[slot], sum(self.tangent_dims[t] for t in self.others(slot))
        return min(own * others, self.residual_dim * (own + others))


@dataclass(frozen=True)
class ProblemSize:
    """What of a problem the cost depends on; numbers of scalars."""

    groups: tuple[GroupSize, ...]
    dim: int
    kept_dim: int
    diagonal: int
    """Of all diagonal blocks."""
    pair_flops: float
    """To form S."""
    num_pairs: float
    schur: float
    """Of S's upper triangle, at most."""
    names_a_vertex_twice: bool = False
    """Some edge does: all edge sets store blocks, or none."""
    image_bytes: int = 0
    """Of the images that edges sample."""
    vertex_tags: tuple[str, ...] = ()
    """Of all vertex sets."""

    @property
    def kept_off_diagonal(self) -> int:
        """Of H_pp's upper triangle, without the diagonal."""
        return sum(group.kept_off_diagonal for group in self.groups)

    @property
    def coupling(self) -> int:
        """Of H_pl."""
        return sum(group.coupling for group in self.groups)

    @property
    def tags(self) -> list[str]:
        """Edge sets that may have schedules of their own."""
        return list(dict.fromkeys(group.tag for group in self.groups))

    @property
    def eliminates(self) -> bool:
        """Some vertices can be eliminated, others stay."""
        return self.num_pairs > 0.0

    @property
    def values(self) -> int:
        """Of H as it is stored."""
        return self.diagonal + self.kept_off_diagonal + self.coupling


def check_edges(structure: Structure) -> None:
    """`DeviceLimitError` where an array of edges or estimates has more entries than kernels count."""
    for group in structure.groups:
        edge_type = working_edge_type(group.edge_set.type)
        own = EdgeSignature(edge_type, group.information, group.kernel)
        num = -(-len(group.rows) // EDGE_BLOCK) * EDGE_BLOCK
        entries = num * max(own.num_rows, own.num_data, BYTES_PER_EDGE // 4)
        _check_entries(f"{len(group.rows)} edges {group.edge_set.type.tag}", entries)
    for vertex_set in structure.selection.vertex_sets:
        dim = working_vertex_type(vertex_set.type).storage_dim
        _check_entries(f"{len(vertex_set)} vertices {vertex_set.type.tag}", len(vertex_set) * record_dim(dim))


def _check_entries(name: str, entries: int) -> None:
    if entries >= MAX_ENTRIES:
        raise DeviceLimitError(
            f"{name} take {entries} numbers in one array; kernels count to {MAX_ENTRIES - 1}. Use "
            "device='cpu', or fewer of them per call."
        )


def problem_size(structure: Structure, precision: Precision) -> ProblemSize:
    """Sizes of a structure; compiles the programs of its edge types if they are not.

    Edges that share a block of H count as if each had one, so that the pattern of H need not be known.
    """
    groups = tuple(_group_size(structure, group, precision) for group in structure.groups)
    coupling = sum(group.coupling for group in groups)
    pairs, flops, schur = _pairs(structure, coupling) if structure.has_schur else (0.0, 0.0, 0.0)
    return ProblemSize(
        groups=groups,
        dim=structure.dim,
        kept_dim=structure.kept_dim,
        diagonal=sum(
            number * vertex_set.type.tangent_dim**2
            for number, vertex_set in zip(structure.num_free, structure.selection.vertex_sets, strict=True)
        ),
        pair_flops=flops,
        num_pairs=pairs,
        schur=schur,
        names_a_vertex_twice=any(_names_twice(group) for group in structure.groups),
        image_bytes=num_image_bytes(structure),
        vertex_tags=tuple(vertex_set.type.tag for vertex_set in structure.selection.vertex_sets),
    )


def _off_diagonal(structure: Structure, group: EdgeGroup) -> tuple[int, int, int]:
    """Numbers in blocks between kept vertices, and between a kept and an eliminated one; number of blocks."""
    dims = [structure.selection.vertex_sets[number].type.tangent_dim for number in group.vertex_sets]
    found = couplings_of(structure).pairs[group]
    kept, coupling = 0, 0
    for (a, b), optimized, across in zip(combinations(dims, 2), *found, strict=True):
        coupling += across * a * b
        kept += (optimized - across) * a * b
    return kept, coupling, sum(found[0])


def _names_twice(group: EdgeGroup) -> bool:
    """Some edge has one vertex in two slots."""
    return any(
        group.vertex_sets[a] == group.vertex_sets[b]
        and bool((group.vertex_rows[:, a] == group.vertex_rows[:, b]).any())
        for a, b in combinations(range(len(group.vertex_sets)), 2)
    )


def _pairs(structure: Structure, coupling: int) -> tuple[float, float, float]:
    """Pairs of kept neighbours over all landmarks, operations to form S from them, and scalars of S at most.

    From the sampled landmarks; all kept neighbours count as of the same, mean dimension.
    """
    found = couplings_of(structure)
    landmark_dims = structure.dims[structure.num_kept :: found.stride]
    scale = (structure.num_blocks - structure.num_kept) / len(landmark_dims)
    by_dim = []
    for dim in np.flatnonzero(np.bincount(landmark_dims)).tolist():
        degree = found.degree[landmark_dims == dim].astype(np.float64)
        by_dim.append((dim, scale * float(degree.sum()), 0.5 * scale * dot(degree, degree + 1.0)))
    mean_dim = coupling / max(sum(dim * edges for dim, edges, _ in by_dim), 1.0)
    num_pairs = sum(pairs for *_, pairs in by_dim)
    flops = sum(2.0 * pairs * (mean_dim**2 * dim + mean_dim * dim**2) for dim, _, pairs in by_dim)
    full = 0.5 * float(structure.kept_dim) * (structure.kept_dim + 1.0)
    return num_pairs, flops, min(full, num_pairs * mean_dim**2)


def _group_size(structure: Structure, group: EdgeGroup, precision: Precision) -> GroupSize:
    edge_type = working_edge_type(group.edge_set.type)
    compiled = compiled_edge(edge_type, group.information, group.kernel)
    vertices = edge_type.vertices
    num_data = edge_type.measurement_dim + information_dim(edge_type.residual_dim, group.information)
    rows = 4 * (len(vertices) + len(edge_type.parameters))
    words = [_words(v.storage_dim, precision) for v in vertices]
    blocks = [structure.vertex_blocks[number] for number in group.vertex_sets]
    kept_off_diagonal, coupling, num_blocks = _off_diagonal(structure, group)
    return GroupSize(
        tag=group.edge_set.type.tag,
        num_edges=len(group.rows),
        residual_dim=edge_type.residual_dim,
        edge_bytes=rows + 8 * (num_data + (group.kernel != 0)),
        record_words=tuple(words),
        tangent_dims=tuple(v.tangent_dim for v in vertices),
        is_eliminated=tuple(
            structure.has_schur and int(b.max(initial=-1)) >= structure.num_kept for b in blocks
        ),
        chi2_flops=compiled.chi2.num_flops,
        linearize_flops=compiled.linearize.num_flops,
        kept_off_diagonal=kept_off_diagonal,
        coupling=coupling,
        num_blocks=num_blocks,
        weight_dim=information_dim(edge_type.residual_dim, group.information) or int(group.kernel != 0),
        signature=EdgeSignature(edge_type, group.information, group.kernel),
        pixel_words=sampled_runs(compiled.chi2),
        vertex_sets=tuple(group.vertex_sets),
        num_destinations=tuple(structure.num_free[number] for number in group.vertex_sets),
        may_merge=mergeable_slots(structure, group),
        chi2_values=compiled.chi2.num_registers,
        linearize_values=compiled.linearize.num_registers,
    )


def _words(storage_dim: int, precision: Precision) -> int:
    """Reads of 16 bytes per record."""
    nbytes = 8 * record_dim(storage_dim) if precision == "double" else 4 * float32_record_dim(storage_dim)
    return -(-nbytes // _WORD)
