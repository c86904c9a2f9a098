"""Products from stored Jacobians against dense numpy, in all shapes; what is stored, and how much of it."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernel_cases import Case, runner_for, upper_triangles
from test_packed_products import Products

import graphopt
from graphopt.codegen.gpu import EDGE_BLOCK
from graphopt.codegen.gpu.packed_products import packed_record_dim
from graphopt.codegen.gpu.stored_products import (
    StoredProduct,
    store_kernel,
    stored_entries,
    stored_rows_kernel,
    stored_tiles_kernel,
)
from graphopt.errors import OptionError
from graphopt.types import registry

TAGS = ["EDGE_OBSERVATION_BAL", "EDGE_SE3:QUAT", "EDGE_SE2_XY", "EDGE_SE3_TRACKXYZ"]
VARIANTS = [("address", "double"), ("address", "mixed"), ("storage", "double"), ("address", "two_float")]
CASES = [
    (tag, variant)
    for variant in VARIANTS
    for tag in (TAGS if variant[1] != "two_float" else TAGS[2:3])  # drivers take seconds for two floats
]


@pytest.fixture(params=VARIANTS, ids="-".join)
def runner(request):
    made = runner_for(*request.param)
    yield made
    assert made.device.messages == []


class Stored(Products):
    """Products whose records may be of x alone, and the stored numbers of a view."""

    def __init__(self, case, runner, holds_estimate):
        super().__init__(case, runner)
        self.holds_estimate = holds_estimate

    def packed(self, k):
        """Packed records of a slot."""
        records = super().packed(k)
        if self.holds_estimate[k]:
            return records
        vertex = self.case.type.vertices[k]
        x = np.zeros(
            (len(records), packed_record_dim(0, vertex.tangent_dim, self.runner.arithmetic)), records.dtype
        )
        x[:, : vertex.tangent_dim] = records[:, vertex.storage_dim :][:, : vertex.tangent_dim]
        return x

    def stored(self, view, sources):
        """What the store kernel writes for a view."""
        count = stored_entries(self.case.signature, view.slot, sources).count
        kernel = store_kernel(self.case.signature, view.slot, sources, self.runner.arithmetic)
        num = -(-len(view.edges) // EDGE_BLOCK) * EDGE_BLOCK
        arrays = self.case.arrays(view.edges) | {"stored": np.zeros(num * count, self.runner.real)}
        groups = -(-len(view.edges) // kernel.workgroup_size)
        (stored,) = self.runner.run(kernel, arrays, {"num_edges": len(view.edges)}, groups, ["stored"])
        return stored

    def product(self, slot, sources, stored_sources):
        """The product of a slot."""
        own = self.case.signature
        return StoredProduct(own, slot, sources, stored_sources, self.holds_estimate, self.runner.arithmetic)

    def check(self, actual, expected, scale):
        """Errors relative to the largest term."""
        assert np.abs(actual - expected).max() < (1e-10 if self.runner.real == np.float64 else 3e-5) * scale


@pytest.mark.parametrize("holds_estimate", [(False, False), (True, False)])
@pytest.mark.parametrize("tag,runner", CASES, indirect=["runner"])
def test_rows_and_tiles(tag, holds_estimate, runner):
    """From stored numbers for these sources, or for more of them."""
    products = Stored(Case(registry.edge_type(tag), n=300, kernel=1), runner, holds_estimate)
    case = products.case
    for slot in range(case.signature.arity):
        view = case.view(slot, False)
        dim = case.type.vertices[slot].tangent_dim
        places = case.offsets[slot][view.destinations].astype(np.int64)[:, None] + np.arange(dim)
        for sources, stored_sources in [((1 - slot,), (1 - slot,)), ((0, 1), (0, 1)), ((1 - slot,), (0, 1))]:
            arrays = products.arrays(view) | {"stored": products.stored(view, stored_sources)}
            expected, scale = products.expected(view, sources)
            product = products.product(slot, sources, stored_sources)
            tiles, rows = stored_tiles_kernel(product), stored_rows_kernel(product)
            for kernel, groups in [(tiles, view.num_tiles), (rows, len(view.destinations))]:
                for accumulate in (0, 1):
                    (y,) = runner.run(kernel, arrays, products.params(view, accumulate), groups, ["y"])
                    products.check(y[places], expected + accumulate, scale)


@pytest.mark.parametrize("holds_estimate", [(False, False), (False, True)])
def test_solve_writes_packed_records(holds_estimate, runner):
    """x_l = -H_ll^-1 y into the records of landmarks, and nothing else."""
    case, slot = Case(registry.edge_type("EDGE_OBSERVATION_BAL"), n=300, kernel=1, num_vertices=60), 1
    products = Stored(case, runner, holds_estimate)
    view = case.view(slot, False)
    expected, _ = products.expected(view, (0,))
    root = np.random.default_rng(3).normal(size=(len(view.destinations), 3, 3))
    inverse = root @ root.transpose(0, 2, 1)
    arrays = products.arrays(view) | {
        "stored": products.stored(view, (0,)),
        "inverse": np.concatenate([np.zeros(5), upper_triangles(inverse).ravel()]).astype(runner.real),
        "dest_inverse": (5 + 6 * np.arange(len(view.destinations))).astype(np.uint32),
    }
    kernel = stored_tiles_kernel(products.product(slot, (0,), (0,)), True)
    (packed,) = runner.run(kernel, arrays, products.params(view), view.num_tiles, ["packed1"])
    packed = packed.reshape(len(case.estimates[1]), -1)
    solved = -np.einsum("nij,nj->ni", inverse, expected)
    first = 3 if holds_estimate[1] else 0
    products.check(packed[view.destinations, first : first + 3], solved, np.abs(solved).max())
    untouched = products.packed(1)
    untouched[view.destinations, first : first + 3] = packed[view.destinations, first : first + 3]
    np.testing.assert_array_equal(packed, untouched)


@pytest.fixture
def three_points():
    """A user's edge with constants and repetitions among its Jacobians."""
    start = set(registry.all_types())

    @graphopt.edge_type(
        tag="EDGE_TEST_BEND", vertices=("VERTEX_XY", "VERTEX_XY", "VERTEX_XY"), measurement_dim=2
    )
    def EdgeTestBend(first, second, third, measured):
        """Second difference, and something that is not linear."""
        return first - 2.0 * second + third * third - measured

    yield EdgeTestBend
    for kind in set(registry.all_types()) - start:
        registry.unregister(kind)


def test_constants_are_not_stored(three_points, runner):
    """Of a linear edge nothing at all; zeros and repetitions never."""
    products = Stored(Case(three_points, 200, "identity"), runner, (False,) * 3)
    signature = products.case.signature
    # J of the first two is constant, that of the third diagonal: two numbers
    assert stored_entries(signature, 0, (1,)).count == 0
    assert stored_entries(signature, 0, (1, 2)).count == 2
    assert stored_entries(signature, 2, (0, 1)).count == 2
    for slot, sources in [(0, (1, 2)), (2, (0, 1)), (1, (0,)), (0, (0, 1, 2))]:
        view = products.case.view(slot, False)
        arrays = products.arrays(view)
        if stored_entries(signature, slot, sources).count:
            arrays["stored"] = products.stored(view, sources)
        expected, scale = products.expected(view, sources)
        kernel = stored_tiles_kernel(products.product(slot, sources, sources))
        (y,) = runner.run(kernel, arrays, products.params(view), view.num_tiles, ["y"])
        places = products.case.offsets[slot][view.destinations].astype(np.int64)[:, None] + np.arange(2)
        products.check(y[places], expected, scale)


def test_the_shorter_form_is_stored():
    """Factors where residuals are few, blocks where they are many."""
    few = Case(registry.edge_type("EDGE_OBSERVATION_BAL"), n=4).signature
    assert stored_entries(few, 1, (0,)).has_factors and stored_entries(few, 1, (0,)).count <= 2 * (9 + 3)
    many = Case(registry.edge_type("EDGE_SE3:QUAT"), n=4).signature
    assert not stored_entries(many, 1, (0,)).has_factors and stored_entries(many, 1, (0,)).count <= 36


def test_slots_that_do_not_exist_are_refused():
    """Where the kernel is made."""
    signature = Case(registry.edge_type("EDGE_SE2"), n=4).signature
    for slot, sources in [(0, ()), (0, (2,)), (3, (0,)), (0, (1, 1))]:
        with pytest.raises(OptionError, match="expected one or several"):
            store_kernel(signature, slot, sources)
        with pytest.raises(OptionError, match="expected one or several"):
            StoredProduct(signature, slot, sources, (0, 1), (False, False), "double")
