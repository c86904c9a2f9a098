"""Products from packed records against dense numpy, in both shapes, for vertices with few and many edges."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernel_cases import NOTHING, Case, Runner, upper_triangles
from vulkan_devices import shared_device

from graphopt.codegen.gpu import EdgeSignature
from graphopt.codegen.gpu.packed_products import (
    packed_record_dim,
    packed_rows_kernel,
    packed_tiles_kernel,
    recomputed_product,
)
from graphopt.errors import OptionError
from graphopt.types import registry
from graphopt.types.base import working_edge_type

TOLERANCE = {"double": 1e-11, "mixed": 3e-5, "two_float": 3e-5}
TAGS = ["EDGE_OBSERVATION_BAL", "EDGE_SE3:QUAT", "EDGE_SE2_XY", "EDGE_SE3_TRACKXYZ"]


@pytest.fixture(params=[("address", "double"), ("address", "mixed"), ("storage", "mixed")], ids="-".join)
def runner(request):
    access, arithmetic = request.param
    device = shared_device(access)
    yield Runner(device, arithmetic)
    assert device.messages == []


class Products:
    """A case with dense products, and the buffers of packed records."""

    def __init__(self, case: Case, runner: Runner):
        self.case, self.runner = case, runner
        _, self.jacobians, _, weight = self.case.evaluate()
        self.omega = weight[:, None, None] * self.case.information
        self.vectors = [self._vector(k) for k in range(self.case.signature.arity)]

    def _vector(self, k):
        """(num_vertices, tangent_dim): x of the vertices in a slot, 0 where fixed."""
        dim = self.case.type.vertices[k].tangent_dim
        offset = self.case.offsets[k].astype(np.int64)
        x = np.zeros((len(offset), dim))
        free = offset != NOTHING
        x[free] = self.case.x[offset[free, None] + np.arange(dim)]
        return x

    def packed(self, k):
        """Packed records of a slot."""
        vertex = self.case.type.vertices[k]
        stride = packed_record_dim(vertex.storage_dim, vertex.tangent_dim, self.runner.arithmetic)
        records = np.zeros((len(self.case.estimates[k]), stride), self.runner.real)
        records[:, : vertex.storage_dim] = self.case.estimates[k]
        records[:, vertex.storage_dim : vertex.storage_dim + vertex.tangent_dim] = self.vectors[k]
        return records

    def arrays(self, view):
        """Buffers by name."""
        case, real = self.case, self.runner.real
        begin, end = view.tiles[:-1], view.tiles[1:]
        ranges = np.stack([begin, end - begin, view.first[begin], view.first[end]], axis=1)
        arrays = case.arrays(view.edges)
        arrays |= {f"packed{k}": self.packed(k) for k in range(case.signature.arity)}
        arrays |= {f"parameter{k}": arrays[f"parameter{k}"] for k in range(len(case.parameters))}
        return arrays | {
            "first": view.first,
            "tile_ranges": ranges,
            "status": np.zeros(8, np.uint32),
            "dest_scalar": case.offsets[view.slot][view.destinations],
            "y": np.full(case.dim, 1.0, real),
        }

    def expected(self, view, sources):
        """(num_destinations, tangent_dim) dense products, and the size of their terms."""
        case, slot = self.case, view.slot
        moved = sum(
            np.einsum("nij,nj->ni", self.jacobians[t], self.vectors[t][case.rows[:, t]]) for t in sources
        )
        each = np.einsum("nia,nij,nj->na", self.jacobians[slot], self.omega, moved)
        rows = case.rows[:, slot]
        return np.stack([each[rows == d].sum(axis=0) for d in view.destinations]), np.abs(each).max()

    def params(self, view, accumulate=0):
        """Push constants by name."""
        return {
            "num_tiles": view.num_tiles,
            "first_tile": 0,
            "parity": 0,
            "accumulate": accumulate,
            "num_destinations": len(view.destinations),
            "first_destination": 0,
        }

    def check(self, actual, expected, scale):
        """Errors relative to the largest term."""
        error = np.abs(actual - expected).max() / scale
        assert error < TOLERANCE[self.runner.arithmetic] * 10, error


@pytest.mark.parametrize("tag", TAGS)
def test_rows_and_tiles(tag, runner, images=()):
    products = Products(Case(registry.edge_type(tag), n=300, kernel=1, images=images), runner)
    case = products.case
    for slot in range(case.signature.arity):
        view = case.view(slot, False)
        arrays = products.arrays(view)
        dim = case.type.vertices[slot].tangent_dim
        places = case.offsets[slot][view.destinations].astype(np.int64)[:, None] + np.arange(dim)
        for sources in [(1 - slot,), (0, 1)]:
            expected, scale = products.expected(view, sources)
            tiles = packed_tiles_kernel(case.signature, slot, sources, runner.arithmetic)
            rows = packed_rows_kernel(case.signature, slot, sources, runner.arithmetic)
            for kernel, groups in [(tiles, view.num_tiles), (rows, len(view.destinations))]:
                for accumulate in (0, 1):
                    (y,) = runner.run(kernel, arrays, products.params(view, accumulate), groups, ["y"])
                    products.check(y[places], expected + accumulate, scale)


@pytest.mark.parametrize("num_vertices", [3, 60])
def test_solve_writes_packed_records(num_vertices, runner, tag="EDGE_OBSERVATION_BAL", images=()):
    kind = registry.edge_type(tag)
    products = Products(Case(kind, n=300, kernel=1, num_vertices=num_vertices, images=images), runner)
    case, slot = products.case, 1
    view = case.view(slot, False)
    expected, _ = products.expected(view, (0,))
    rng = np.random.default_rng(3)
    dim, first = case.type.vertices[slot].tangent_dim, case.type.vertices[slot].storage_dim
    root = rng.normal(size=(len(view.destinations), dim, dim))
    inverse = root @ root.transpose(0, 2, 1)
    arrays = products.arrays(view) | {
        "inverse": np.concatenate([np.zeros(5), upper_triangles(inverse).ravel()]).astype(runner.real),
        "dest_inverse": (5 + dim * (dim + 1) // 2 * np.arange(len(view.destinations))).astype(np.uint32),
    }
    kernel = packed_tiles_kernel(case.signature, slot, (0,), runner.arithmetic, True)
    (packed,) = runner.run(kernel, arrays, products.params(view), view.num_tiles, ["packed1"])
    packed = packed.reshape(len(case.estimates[1]), -1)
    solved = -np.einsum("nij,nj->ni", inverse, expected)
    products.check(packed[view.destinations, first : first + dim], solved, np.abs(solved).max())
    untouched = products.packed(1)
    untouched[view.destinations, first : first + dim] = packed[view.destinations, first : first + dim]
    np.testing.assert_array_equal(packed, untouched)


def test_slots_that_do_not_exist_are_refused():
    signature = Case(registry.edge_type("EDGE_SE2"), n=4).signature
    for slot, sources in [(0, ()), (0, (2,)), (3, (0,)), (0, (1, 1))]:
        with pytest.raises(OptionError, match="expected one or several"):
            packed_rows_kernel(signature, slot, sources, "double")


@pytest.mark.parametrize("kernel", range(1, 6))
@pytest.mark.parametrize("tag", TAGS)
def test_a_robust_kernel_does_not_make_products_compute_in_float64(tag, kernel):
    """Its branches are no closed forms: what was float32 without it is float32 with it."""
    kind = working_edge_type(registry.edge_type(tag))
    plain, robust = (
        recomputed_product(EdgeSignature(kind, "identity", number), 0, (1,), "mixed")
        for number in (0, kernel)
    )
    assert len(robust.wide) == len(plain.wide)
