"""Products J' w Omega J x of random edges, dense and in every form that the generator knows."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from gpu_kernel_cases import NOTHING, Case, Runner, upper_triangles

from graphopt.codegen.gpu import EDGE_BLOCK
from graphopt.codegen.gpu.moved_products import moved_kernel, transposed_product
from graphopt.codegen.gpu.packed_products import packed_record_dim, recomputed_product
from graphopt.codegen.gpu.product_shapes import rows_kernel, tiles_kernel
from graphopt.codegen.gpu.stored_products import StoredProduct, store_kernel, stored_entries


class Products:
    """Recomputed for each product, from packed records of estimates and x; dense ones to compare with."""

    tolerance: ClassVar = {"double": 1e-10, "mixed": 3e-4, "two_float": 3e-4}
    """Of the largest term."""

    def __init__(self, case: Case, runner: Runner):
        self.case, self.runner = case, runner
        _, self.jacobians, _, weight = self.case.evaluate()
        self.omega = weight[:, None, None] * self.case.information
        self.vectors = [self.vector(k) for k in range(self.case.signature.arity)]

    def vector(self, k):
        """(num_vertices, tangent_dim): x of the vertices in a slot, 0 where fixed."""
        dim = self.case.type.vertices[k].tangent_dim
        offset = self.case.offsets[k].astype(np.int64)
        x = np.zeros((len(offset), dim))
        free = offset != NOTHING
        x[free] = self.case.x[offset[free, None] + np.arange(dim)]
        return x

    def start_of_x(self, k):
        """Where x begins in a packed record of a slot."""
        return self.case.type.vertices[k].storage_dim

    def packed(self, k):
        """Packed records of a slot."""
        dim, first = self.case.type.vertices[k].tangent_dim, self.start_of_x(k)
        stride = packed_record_dim(first, dim, self.runner.arithmetic)
        records = np.zeros((len(self.case.estimates[k]), stride), self.runner.real)
        records[:, :first] = self.case.estimates[k][:, :first]
        records[:, first : first + dim] = self.vectors[k]
        return records

    def arrays(self, view):
        """Buffers by name."""
        case, real = self.case, self.runner.real
        begin, end = view.tiles[:-1], view.tiles[1:]
        ranges = np.stack([begin, end - begin, view.first[begin], view.first[end]], axis=1)
        arrays = case.arrays(view.edges)
        arrays |= {f"packed{k}": self.packed(k) for k in range(case.signature.arity)}
        return arrays | {
            "first": view.first,
            "tile_ranges": ranges,
            "status": np.zeros(8, np.uint32),
            "dest_scalar": case.offsets[view.slot][view.destinations],
            "y": np.full(case.dim, 1.0, real),
        }

    def form(self, view, sources):
        """The product of a view as the generator takes it, and the buffers of this form."""
        product = recomputed_product(self.case.signature, view.slot, sources, self.runner.arithmetic)
        return product, {}

    def moved(self, sources):
        """(n, residual_dim) J x of some slots."""
        terms = (
            np.einsum("nij,nj->ni", self.jacobians[t], self.vectors[t][self.case.rows[:, t]]) for t in sources
        )
        return sum(terms)

    def expected(self, view, sources):
        """(num_destinations, tangent_dim) dense products, and the size of their terms."""
        slot = view.slot
        each = np.einsum("nia,nij,nj->na", self.jacobians[slot], self.omega, self.moved(sources))
        rows = self.case.rows[:, slot]
        return np.stack([each[rows == d].sum(axis=0) for d in view.destinations]), np.abs(each).max()

    def params(self, view, accumulate=0):
        """Push constants by name."""
        return {
            "num_tiles": view.num_tiles,
            "first_tile": 0,
            "ping_pong": 0,
            "accumulate": accumulate,
            "num_destinations": len(view.destinations),
            "first_destination": 0,
        }

    def check(self, actual, expected, scale):
        """Errors relative to the largest term."""
        error = np.abs(actual - expected).max() / scale
        assert error < self.tolerance[self.runner.arithmetic], error

    def check_rows_and_tiles(self, slot, sources):
        """Both shapes, assigned and added to what is there."""
        view = self.case.view(slot, False)
        product, more = self.form(view, sources)
        arrays = self.arrays(view) | more
        dim = self.case.type.vertices[slot].tangent_dim
        places = self.case.offsets[slot][view.destinations].astype(np.int64)[:, None] + np.arange(dim)
        expected, scale = self.expected(view, sources)
        shapes = (tiles_kernel, view.num_tiles), (rows_kernel, len(view.destinations))
        for make, groups in shapes:
            for accumulate in (0, 1):
                (y,) = self.runner.run(make(product), arrays, self.params(view, accumulate), groups, ["y"])
                self.check(y[places], expected + accumulate, scale)

    def check_solve(self, slot, sources):
        """x = -H^-1 y into the records of a slot, and nothing else."""
        view = self.case.view(slot, False)
        dim, first = self.case.type.vertices[slot].tangent_dim, self.start_of_x(slot)
        product, more = self.form(view, sources)
        expected, _ = self.expected(view, sources)
        root = np.random.default_rng(3).normal(size=(len(view.destinations), dim, dim))
        inverse = root @ root.transpose(0, 2, 1)
        size = dim * (dim + 1) // 2
        arrays = self.arrays(view) | more
        arrays |= {
            "inverse": np.concatenate([np.zeros(5), upper_triangles(inverse).ravel()]).astype(
                self.runner.real
            ),
            "dest_inverse": (5 + size * np.arange(len(view.destinations))).astype(np.uint32),
        }
        name, kernel = f"packed{slot}", tiles_kernel(product, True)
        (packed,) = self.runner.run(kernel, arrays, self.params(view), view.num_tiles, [name])
        packed = packed.reshape(len(self.case.estimates[slot]), -1)
        solved = -np.einsum("nij,nj->ni", inverse, expected)
        own = view.destinations, slice(first, first + dim)
        self.check(packed[own], solved, np.abs(solved).max())
        untouched = self.packed(slot)
        untouched[own] = packed[own]
        np.testing.assert_array_equal(packed, untouched)


class Stored(Products):
    """Read from what a kernel has stored per edge, for these sources or all; records may hold x alone."""

    tolerance: ClassVar = {"double": 1e-10, "mixed": 3e-5, "two_float": 3e-5}

    def __init__(self, case, runner, holds_estimate=(), *, stores_all=False):
        super().__init__(case, runner)
        self.stores_all = stores_all
        self.holds_estimate = holds_estimate or (False,) * case.signature.arity

    def start_of_x(self, k):
        """0 where records hold no estimate."""
        return super().start_of_x(k) if self.holds_estimate[k] else 0

    def stored(self, view, sources):
        """What the store kernel writes for a view."""
        count = stored_entries(self.case.signature, view.slot, sources).count
        kernel = store_kernel(self.case.signature, view.slot, sources, self.runner.arithmetic)
        num = -(-len(view.edges) // EDGE_BLOCK) * EDGE_BLOCK
        arrays = self.case.arrays(view.edges) | {"stored": np.zeros(num * count, self.runner.real)}
        groups = -(-len(view.edges) // kernel.workgroup_size)
        (stored,) = self.runner.run(kernel, arrays, {"num_edges": len(view.edges)}, groups, ["stored"])
        return stored

    def form(self, view, sources):
        """With what the view has stored."""
        own = self.case.signature
        stored = tuple(range(own.arity)) if self.stores_all else sources
        has_any = stored_entries(own, view.slot, stored).count
        arrays = {"stored": self.stored(view, stored)} if has_any else {}
        return (
            StoredProduct(own, view.slot, sources, stored, self.holds_estimate, self.runner.arithmetic),
            arrays,
        )


class Halves(Products):
    """t = w Omega J x by one kernel in the order of the first slot's view, and J' t by another."""

    def form(self, view, sources):
        """The second half, with what the first one has left, which is checked."""
        case, arithmetic = self.case, self.runner.arithmetic
        primary = case.view(0, True)
        kernel = moved_kernel(case.signature, sources, arithmetic)
        arrays = self.arrays(primary)
        num = len(primary.edges)
        arrays["moved"] = np.full(num * case.type.residual_dim, np.nan, self.runner.real)
        groups = -(-num // kernel.workgroup_size)
        (moved,) = self.runner.run(kernel, arrays, {"num_edges": num, "ping_pong": 0}, groups, ["moved"])
        expected = np.einsum("nij,nj->ni", self.omega, self.moved(sources))[primary.edges]
        self.check(moved.reshape(expected.shape), expected, np.abs(expected).max())
        place = np.empty(case.n, np.uint32)
        place[primary.edges] = np.arange(case.n)
        product = transposed_product(case.signature, view.slot, sources, view.slot == 0, arithmetic)
        return product, {"moved": moved, "edge_place": place[view.edges]}
