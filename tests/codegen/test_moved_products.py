"""Products in two halves (J x per edge, then J' of it) against dense numpy; where halves are shared."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernel_cases import Case, runner_for, upper_triangles
from image_edges import images, photo_edge
from test_packed_products import Products

import graphopt
from graphopt.codegen.gpu.moved_products import moved_kernel, transposed_product
from graphopt.codegen.gpu.stored_products import stored_rows_kernel, stored_tiles_kernel
from graphopt.types import registry

TAGS = ["EDGE_OBSERVATION_BAL", "EDGE_SE3:QUAT", "EDGE_SE2_XY", "EDGE_SE3_TRACKXYZ"]
VARIANTS = [("address", "double"), ("address", "mixed"), ("storage", "mixed"), ("address", "two_float")]
CASES = [
    *((tag, variant) for variant in VARIANTS[:2] for tag in TAGS),
    *((TAGS[2], variant) for variant in VARIANTS[2:]),  # drivers take seconds for two floats
]
TOLERANCE = {"double": 1e-10, "mixed": 3e-4, "two_float": 3e-4}


@pytest.fixture(params=VARIANTS[:3], ids="-".join)
def runner(request):
    made = runner_for(*request.param)
    yield made
    assert made.device.messages == []


class Halves(Products):
    """t in the order of the first slot's view, and what other views make of it."""

    def moved(self, sources):
        """(num_edges, residual_dim) of the kernel, in the primary order, and that order."""
        primary = self.case.view(0, True)
        kernel = moved_kernel(self.case.signature, sources, self.runner.arithmetic)
        arrays = self.arrays(primary)
        num, dim = len(primary.edges), self.case.type.residual_dim
        arrays["moved"] = np.full(num * dim, np.nan, self.runner.real)
        groups = -(-num // kernel.workgroup_size)
        params = {"num_edges": num, "parity": 0}
        (moved,) = self.runner.run(kernel, arrays, params, groups, ["moved"])
        return moved, primary.edges

    def close(self, actual, expected, scale):
        """Errors relative to the largest term."""
        assert np.abs(actual - expected).max() < TOLERANCE[self.runner.arithmetic] * scale

    def check_moved(self, moved, order, sources):
        """t against numpy."""
        case = self.case
        jx = sum(
            np.einsum("nij,nj->ni", self.jacobians[t], self.vectors[t][case.rows[:, t]]) for t in sources
        )
        expected = np.einsum("nij,nj->ni", self.omega, jx)[order]
        self.close(moved.reshape(expected.shape), expected, np.abs(expected).max())

    def check_slot(self, slot, sources, moved, order):
        """Both shapes, adding and not."""
        view = self.case.view(slot, False)
        place = np.empty(self.case.n, np.uint32)
        place[order] = np.arange(self.case.n)
        arrays = self.arrays(view) | {"moved": moved, "edge_place": place[view.edges]}
        dim = self.case.type.vertices[slot].tangent_dim
        places = self.case.offsets[slot][view.destinations].astype(np.int64)[:, None] + np.arange(dim)
        expected, scale = self.expected(view, sources)
        is_ordered = slot == 0
        product = transposed_product(self.case.signature, slot, sources, is_ordered, self.runner.arithmetic)
        for kernel, groups in [
            (stored_tiles_kernel(product), view.num_tiles),
            (stored_rows_kernel(product), len(view.destinations)),
        ]:
            assert ("edge_place" in kernel.buffers) != is_ordered
            for accumulate in (0, 1):
                (y,) = self.runner.run(kernel, arrays, self.params(view, accumulate), groups, ["y"])
                self.close(y[places], expected + accumulate, scale)

    def check_all(self, sources):
        """One t, all slots."""
        moved, order = self.moved(sources)
        self.check_moved(moved, order, sources)
        for slot in range(self.case.signature.arity):
            self.check_slot(slot, sources, moved, order)


@pytest.mark.parametrize("tag,runner", CASES, indirect=["runner"])
def test_rows_and_tiles(tag, runner):
    """Of one slot's x or all, with robust kernels and full information."""
    halves = Halves(Case(registry.edge_type(tag), n=300, kernel=1), runner)
    for sources in ((0, 1), (1,)):
        halves.check_all(sources)


def test_solve_writes_packed_records(runner):
    """x_l = -H_ll^-1 y into the records of landmarks, and nothing else."""
    kind = registry.edge_type("EDGE_OBSERVATION_BAL")
    halves = Halves(Case(kind, n=300, kernel=1, num_vertices=60), runner)
    case, view = halves.case, halves.case.view(1, False)
    moved, order = halves.moved((0,))
    place = np.empty(case.n, np.uint32)
    place[order] = np.arange(case.n)
    expected, _ = halves.expected(view, (0,))
    root = np.random.default_rng(3).normal(size=(len(view.destinations), 3, 3))
    inverse = root @ root.transpose(0, 2, 1)
    arrays = halves.arrays(view) | {
        "moved": moved,
        "edge_place": place[view.edges],
        "inverse": np.concatenate([np.zeros(5), upper_triangles(inverse).ravel()]).astype(runner.real),
        "dest_inverse": (5 + 6 * np.arange(len(view.destinations))).astype(np.uint32),
    }
    product = transposed_product(case.signature, 1, (0,), False, runner.arithmetic)
    kernel = stored_tiles_kernel(product, True)
    (packed,) = runner.run(kernel, arrays, halves.params(view), view.num_tiles, ["packed1"])
    packed = packed.reshape(len(case.estimates[1]), -1)
    solved = -np.einsum("nij,nj->ni", inverse, expected)
    halves.close(packed[view.destinations, 3:6], solved, np.abs(solved).max())
    untouched = halves.packed(1)
    untouched[view.destinations, 3:6] = packed[view.destinations, 3:6]
    np.testing.assert_array_equal(packed, untouched)


@pytest.fixture
def users_types():
    """Edges of one and of three vertices, with an argument that is called like t."""
    start = set(registry.all_types())

    @graphopt.edge_type(tag="EDGE_TEST_ALONE", vertices=("VERTEX_XY",), measurement_dim=2)
    def EdgeTestAlone(place, moved):
        """Something of one vertex."""
        return np.stack([place[0] * place[1], place[1]], axis=-1) - moved

    @graphopt.edge_type(
        tag="EDGE_TEST_THREE", vertices=("VERTEX_SE2", "VERTEX_XY", "VERTEX_XY"), measurement_dim=2
    )
    def EdgeTestThree(pose, second, moved, measured):
        """Something of two points and a pose's frame."""
        seen = pose.inverse().act(moved) - second * second
        return np.stack([seen[0] * seen[1], np.sin(seen[1])], axis=-1) - measured

    yield EdgeTestAlone, EdgeTestThree
    for kind in set(registry.all_types()) - start:
        registry.unregister(kind)


def test_users_edges_of_one_and_three_vertices(users_types, runner):
    """All sources or some."""
    alone, three = users_types
    Halves(Case(alone, 300, "full", kernel=1), runner).check_all((0,))
    halves = Halves(Case(three, 300, "diagonal", kernel=2), runner)
    for sources in ((0, 1, 2), (0, 2)):
        halves.check_all(sources)


@pytest.mark.parametrize("variant", [("address", "double"), ("storage", "mixed")], ids="-".join)
def test_images(variant):
    """Samples in both halves."""
    runner = runner_for(*variant)
    Halves(Case(photo_edge(), 300, "full", 1, images=images()), runner).check_all((0, 1))
    assert runner.device.messages == []
