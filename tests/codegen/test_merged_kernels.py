"""Kernels over several edge sets with the same destinations, against dense numpy."""

from __future__ import annotations

import numpy as np
import pytest
from edge_products import Stored
from gpu_kernel_cases import Case, instance, runner_for, upper_triangles
from test_gpu_kernels import CHI2_TOLERANCE, PRODUCT_TOLERANCE, TOLERANCE

from graphopt.codegen.gpu import TILE, EdgeSignature
from graphopt.codegen.gpu.merged_kernels import (
    merged_chi2_kernel,
    merged_linearize_kernel,
    merged_product_kernel,
)
from graphopt.codegen.gpu.merged_tiles import merged_name
from graphopt.codegen.gpu.packed_products import recomputed_product
from graphopt.errors import OptionError
from graphopt.types import registry
from graphopt.vulkan.data.views import EdgeView
from graphopt.vulkan.kernels.merging import union_tiles

VARIANTS = [
    (access, arithmetic)
    for arithmetic in ("double", "mixed", "two_float")
    for access in ("address", "storage")
]
UNTOUCHED = 7.0
# drivers take seconds to compile two-float functions
CASES = [
    (tag, v)
    for tag, variants in (("EDGE_SE3_TRACKXYZ", VARIANTS[:3]), ("EDGE_SE2", VARIANTS[2:4]))
    for v in variants
]
CASES += [("EDGE_SE2_XY", v) for v in VARIANTS]


class Union:
    """Views on the same vertices: one type with several robust kernels and kinds of information."""

    def __init__(self, tag, variant, num_vertices, slot):
        self.runner = runner_for(*variant)
        kind = registry.edge_type(tag)
        sets = [("full", 1, 300), ("diagonal", 0, 90), ("full", 2, 3)]
        cases = [Case(kind, n, information, k, 0, num_vertices) for information, k, n in sets]
        for case in cases[1:]:  # a graph has one set of parameters of a type
            case.x, case.parameters = cases[0].x, cases[0].parameters
        self.members = [(case, slot) for case in cases]
        kinds = cases[0].type.vertices
        self.members += [
            (cases[0], k) for k, each_kind in enumerate(kinds) if k != slot and each_kind is kinds[slot]
        ]
        self.slot, self.dim, self.cases = slot, kinds[slot].tangent_dim, cases
        self.views = [case.view(own, False) for case, own in self.members]
        as_solver = [
            EdgeView(v.slot, v.edges, v.first, v.destinations.astype(np.int64), v.tiles, v.num_tiles)
            for v in self.views
        ]
        self.tiles = union_tiles(as_solver, num_vertices, num_vertices)
        self.signatures = [case.signature for case, _ in self.members]

    @property
    def places(self):
        """(num_destinations, dim) scalars of the destinations."""
        first = self.cases[0].offsets[self.slot][self.tiles.blocks].astype(np.int64)
        return first[:, None] + np.arange(self.dim)

    def arrays(self, named):
        """Buffers of a merged kernel. named: of each member by its own names."""
        count = len(self.tiles.blocks)
        arrays = {
            merged_name(self.signatures, k, name): array
            for k, own in enumerate(named)
            for name, array in own.items()
        }
        return arrays | {
            "first": self.tiles.first,
            "tiles": self.tiles.tiles,
            "dest_block": (3 + self.dim**2 * np.arange(count)).astype(np.uint32),
            "dest_scalar": self.cases[0].offsets[self.slot][self.tiles.blocks],
            "dest_row": self.tiles.blocks.astype(np.uint32),
            "values": np.full(3 + self.dim**2 * count, UNTOUCHED, self.runner.real),
            "b": np.full(self.cases[0].dim, UNTOUCHED, self.runner.real),
            "y": np.full(self.cases[0].dim, UNTOUCHED, self.runner.real),
        }

    def params(self, accumulate=0):
        """Push constants."""
        own = {"num_tiles": self.tiles.num_tiles, "first_tile": 0, "ping_pong": 0}
        return own | {"accumulate": accumulate}

    def total(self, per_edge):
        """Sum of each member's (n, ...) contributions per destination, and of their absolute values."""
        shape = (len(self.tiles.blocks), *per_edge[0].shape[1:])
        sums, sizes = np.zeros(shape), np.zeros(shape)
        place = {vertex: k for k, vertex in enumerate(self.tiles.blocks.tolist())}
        for (case, slot), own in zip(self.members, per_edge, strict=True):
            for row, value in zip(case.rows[:, slot].tolist(), own, strict=True):
                if row in place:
                    sums[place[row]] += value
                    sizes[place[row]] += np.abs(value)
        return sums, sizes


@pytest.fixture(
    params=[(*case, num) for case in CASES for num in (2, 90)],
    ids=lambda p: f"{p[0]}-{'-'.join(p[1])}-{p[2]}",
)
def union(request):
    """Destinations with hundreds of edges (2 vertices), or many destinations per tile (90)."""
    tag, variant, num_vertices = request.param
    made = Union(tag, variant, num_vertices, 1 if tag == "EDGE_SE3_TRACKXYZ" else 0)
    total = made.tiles.first.sum(axis=1, dtype=np.int64)
    assert np.diff(total).max() > TILE if num_vertices == 2 else np.diff(made.tiles.tiles).max() > 1
    yield made
    assert made.runner.device.messages == []


def test_linearize(union):
    """H and b of every destination by one launch, assigned or added to what is there; twice the same bits."""
    runner = union.runner
    hessians, gradients = [], []
    for case, slot in union.members:
        error, jacobians, _, weight = case.evaluate()
        omega = weight[:, None, None] * case.information
        hessians.append(np.einsum("nia,nij,njb->nab", jacobians[slot], omega, jacobians[slot]))
        gradients.append(-np.einsum("nia,nij,nj->na", jacobians[slot], omega, error))
    expected, _ = union.total(hessians)
    expected_b, size = union.total(gradients)
    members = tuple((case.signature, slot) for case, slot in union.members)
    kernel = merged_linearize_kernel(members, runner.arithmetic)
    named = [case.arrays(view.edges) for (case, _), view in zip(union.members, union.views, strict=True)]
    arrays, groups = union.arrays(named), union.tiles.num_tiles
    tolerance = TOLERANCE[runner.arithmetic]
    for accumulate in (0, 1):
        start = UNTOUCHED * accumulate
        values, b = runner.run(kernel, arrays, union.params(accumulate), groups, ["values", "b"])
        again = runner.run(kernel, arrays, union.params(accumulate), groups, ["values", "b"])
        np.testing.assert_array_equal(values, again[0])
        np.testing.assert_array_equal(b, again[1])
        assert (
            np.abs(values[3:].reshape(expected.shape) - start - expected).max()
            < tolerance * np.abs(expected).max()
        )
        assert np.abs(b[union.places] - start - expected_b).max() < tolerance * size.max()
        others = np.setdiff1d(np.arange(len(b)), union.places)
        assert (b[others] == UNTOUCHED).all() and (values[:3] == UNTOUCHED).all()


def test_products(union):
    """y of every destination; Jacobians of every other edge set are read, of the others computed anew."""
    runner = union.runner
    products, named, per_edge = [], [], []
    for number, ((case, slot), view) in enumerate(zip(union.members, union.views, strict=True)):
        sources = tuple(k for k in range(case.signature.arity) if k != slot)
        is_stored = number % 2 == 0
        dense = Stored(case, runner, (True,) * case.signature.arity)
        own = dense.arrays(view)
        if is_stored:
            product, more = dense.form(view, sources)
            own |= more
        else:
            product = recomputed_product(case.signature, slot, sources, runner.arithmetic)
        products.append(product)
        named.append(own)
        moved = dense.moved(sources)
        per_edge.append(np.einsum("nia,nij,nj->na", dense.jacobians[slot], dense.omega, moved))
    expected, size = union.total(per_edge)
    kernel = merged_product_kernel(tuple(products))
    arrays, groups = union.arrays(named) | {"status": np.zeros(8, np.uint32)}, union.tiles.num_tiles
    for accumulate in (0, 1):
        [y] = runner.run(kernel, arrays, union.params(accumulate), groups, ["y"])
        [again] = runner.run(kernel, arrays, union.params(accumulate), groups, ["y"])
        np.testing.assert_array_equal(y, again)
        error = np.abs(y[union.places] - UNTOUCHED * accumulate - expected).max()
        assert error < PRODUCT_TOLERANCE[runner.arithmetic] * size.max()
        others = np.setdiff1d(np.arange(len(y)), union.places)
        assert (y[others] == UNTOUCHED).all()
    check_solve(union, products, arrays, expected)


def check_solve(union, products, arrays, expected):
    """The same kernel that goes on to x = -H^-1 y, into the destinations' packed records and nowhere else."""
    runner, dim = union.runner, union.dim
    root = np.random.default_rng(3).normal(size=(len(expected), dim, dim))
    inverse = root @ root.transpose(0, 2, 1)
    arrays = arrays | {
        "inverse": np.concatenate([np.zeros(5), upper_triangles(inverse).ravel()]).astype(runner.real),
        "dest_inverse": (5 + dim * (dim + 1) // 2 * np.arange(len(expected))).astype(np.uint32),
    }
    if union.slot in products[0].sources or len(union.members) > len(union.cases):
        return  # the vertices themselves are read: a landmark is never coupled with its like
    name = merged_name(union.signatures, 0, f"packed{union.slot}")
    kernel = merged_product_kernel(tuple(products), True)
    [packed] = runner.run(kernel, arrays, union.params(), union.tiles.num_tiles, [name])
    vertex = union.cases[0].type.vertices[union.slot]
    records = packed.reshape(len(union.cases[0].estimates[union.slot]), -1)
    before = arrays[name].reshape(records.shape).copy()
    own = np.ix_(union.tiles.blocks, vertex.storage_dim + np.arange(dim))
    solved = -np.einsum("nij,nj->ni", inverse, expected)
    assert (
        np.abs(records[own] - solved).max() < 10 * PRODUCT_TOLERANCE[runner.arithmetic] * np.abs(solved).max()
    )
    before[own] = records[own]
    np.testing.assert_array_equal(records, before)


def test_chi2(union):
    """Every edge set has its own workgroups and parts, wherever those are."""
    runner = union.runner
    kernel = merged_chi2_kernel(tuple(case.signature for case in union.cases), runner.arithmetic)
    groups = [-(-case.n // kernel.workgroup_size) for case in union.cases]
    firsts = [4, 1, 20]
    starts = np.concatenate([[0], np.cumsum(groups)])
    sets = np.stack([starts, [*(case.n for case in union.cases), 0], [*firsts, 0]], axis=1)
    arrays = {
        merged_name([each_case.signature for each_case in union.cases], k, name): array
        for k, case in enumerate(union.cases)
        for name, array in case.arrays(np.arange(case.n)).items()
    } | {"sets": sets.astype(np.uint32), "partial": np.full(25, UNTOUCHED)}
    params = {"num_groups": int(starts[-1])}
    [partial] = runner.run(kernel, arrays, params, int(starts[-1]), ["partial"])
    touched = np.zeros(25, bool)
    for case, first, count in zip(union.cases, firsts, groups, strict=True):
        _, _, rho, _ = case.evaluate()
        sums = [rho[k * kernel.workgroup_size : (k + 1) * kernel.workgroup_size].sum() for k in range(count)]
        error = np.abs(partial[first : first + count] - sums).max()
        assert error < CHI2_TOLERANCE[runner.arithmetic] * max(sums)
        touched[first : first + count] = True
    assert (partial[~touched] == UNTOUCHED).all()


def test_destinations_of_different_types_are_refused():
    signature = EdgeSignature(instance(registry.edge_type("EDGE_SE2_XY")), "full")
    with pytest.raises(OptionError, match="vertices of one type, got VertexSE2, VertexPointXY"):
        merged_linearize_kernel(((signature, 0), (signature, 1)), "double")


@pytest.mark.parametrize("seed", range(20))
def test_tiles_of_the_union(seed):
    """All destinations in whole tiles that fit, none with kept and eliminated ones; the views' edges."""
    rng = np.random.default_rng(seed)
    num_blocks = int(rng.integers(1, 400))
    num_kept = int(rng.integers(0, num_blocks + 1))
    views = []
    for _ in range(rng.integers(1, 6)):
        count = rng.integers(0, 5, num_blocks) * (rng.random(num_blocks) < rng.random())
        count[rng.random(num_blocks) < 0.01] = 300
        blocks = np.flatnonzero(count)
        first = np.concatenate([[0], np.cumsum(count[blocks])]).astype(np.uint32)
        views.append((count, EdgeView(0, np.zeros(first[-1], np.uint32), first, blocks, first, 0)))
    found = union_tiles([view for _, view in views], num_kept, num_blocks)
    total = sum(count for count, _ in views)
    np.testing.assert_array_equal(found.blocks, np.flatnonzero(total))
    for number, (count, _) in enumerate(views):
        np.testing.assert_array_equal(np.diff(found.first[:, number].astype(int)), count[found.blocks])
    assert found.tiles[0] == 0 and found.tiles[-1] == len(found.blocks)
    for k, (begin, end) in enumerate(zip(found.tiles[:-1], found.tiles[1:], strict=True)):
        assert end > begin
        assert total[found.blocks[begin:end]].sum() <= TILE or end == begin + 1
        is_kept = found.blocks[begin:end] < num_kept
        assert is_kept.all() if k < found.num_kept_tiles else not is_kept.any()
