"""Products with values that are computed once per vertex: the same sums, fewer functions per edge."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from gpu_kernel_cases import Case, runner_for
from test_gpu_kernels import TOLERANCE, assert_close, product_arrays, view_params

from graphopt.codegen.gpu import EdgeSignature
from graphopt.codegen.gpu.layout import TILE
from graphopt.codegen.gpu.packed_products import packed_rows_kernel, packed_tiles_kernel
from graphopt.codegen.gpu.product_shapes import rows_kernel, tiles_kernel
from graphopt.codegen.gpu.staged_products import UNIT_BYTES, Staged, product_in_workgroups
from graphopt.codegen.gpu.vertex_values import MOST_VALUES, vertex_values_kernel, words_of
from graphopt.types import BUILTIN_TYPES, registry
from graphopt.types.base import EdgeType

FUNCTIONS = {"SQRT", "SINCOS", "SIN", "COS", "RECIP", "DIV", "ATAN2"}
WITH_VALUES = [("EdgeObservationBAL", 1, 0), ("EdgeSE2PointXYBearing", 1, 0), ("EdgeSE2", 1, 0)]
VARIANTS = [("address", "double"), ("storage", "double"), ("address", "mixed"), ("storage", "mixed")]


def product_of(name, slot, source, arithmetic, shared_bytes=32768):
    """The product of an edge type's slot from another one, whose values may be stored."""
    signature = EdgeSignature(registry.edge_type(name), "identity", 0)
    return product_in_workgroups(signature, slot, (source,), arithmetic, (source,), shared_bytes)


def test_the_rotation_of_a_camera_is_four_values():
    """Neither root nor sine is left of it in what each edge of a landmark computes."""
    product = product_of("EdgeObservationBAL", 1, 0, "double")
    assert set(product.values) == {0} and len(product.values[0]) == 4
    left = [one.operation for one in product.assignment.statements]
    before = [one.operation for one in product.whole.statements]
    assert not {"SQRT", "SINCOS"} & set(left)
    assert left.count("RECIP") == before.count("RECIP") - 1
    assert len(left) < 0.75 * len(before)


def test_polynomials_of_a_vertex_are_not_stored():
    """Matrices of unit quaternions take multiplications only."""
    signature = EdgeSignature(registry.edge_type("EdgeSE3PointXYZ"), "full", 0)
    assert product_in_workgroups(signature, 1, (0,), "double", (0,), 0).values == {}


@pytest.mark.parametrize(
    "kind", [one for one in BUILTIN_TYPES if isinstance(one, EdgeType)], ids=lambda one: one.name
)
def test_of_all_types_the_rest_reads_what_is_stored(kind):
    """Stored values are read, are few, and are not computed again; truth values never are stored."""
    signature = EdgeSignature(kind, "full", 0)
    for slot in range(signature.arity):
        others = tuple(k for k in range(signature.arity) if k != slot)
        if not others:
            continue
        product = product_in_workgroups(signature, slot, others, "double", others, 0)
        truths = {
            target
            for one in product.whole.statements
            if one.operation in ("LT", "LE", "EQ", "AND", "OR", "NOT")
            for target in one.targets
        }
        for k, stored in product.values.items():
            assert 0 < len(stored) <= MOST_VALUES and k != slot
            assert set(stored) <= product.assignment.inputs()
            assert truths.isdisjoint(stored)


@pytest.mark.parametrize(("name", "slot", "source"), WITH_VALUES)
@pytest.mark.parametrize(("access", "arithmetic"), VARIANTS)
def test_products_are_those_without(name, slot, source, access, arithmetic):
    """In both shapes, read by each invocation and staged; to the last bit in double."""
    runner = runner_for(access, arithmetic)
    case = Case(registry.edge_type(name), 300, "identity", 0)
    product = product_of(name, slot, source, arithmetic)
    alone = product_of(name, slot, source, arithmetic, shared_bytes=0)
    assert set(product.values) == {source} and isinstance(product.staged, Staged) and alone.staged is None
    kernel = vertex_values_kernel(product, source)
    view = case.view(slot, False)
    arrays = product_arrays(case, view, runner)
    num_rows = len(case.estimates[source])
    size = 4 * words_of(len(product.values[source])) * num_rows
    given = {**case.arrays(np.arange(case.n)), "values": np.zeros(size, runner.real)}
    groups = -(-num_rows // kernel.workgroup_size)
    [values] = runner.run(kernel, given, {"num_rows": num_rows}, groups, ["values"])
    arrays[f"values{source}"] = values
    sources, params = (source,), view_params(view)
    tiles = packed_tiles_kernel(case.signature, slot, sources, arithmetic)
    rows = packed_rows_kernel(case.signature, slot, sources, arithmetic)
    in_rows = {**params, "first_destination": 0, "num_destinations": len(view.destinations)}
    for with_values, without, asked, count in (
        (tiles_kernel(product), tiles, params, view.num_tiles),
        (tiles_kernel(alone), tiles, params, view.num_tiles),
        (rows_kernel(product), rows, in_rows, len(view.destinations)),
        (rows_kernel(alone), rows, in_rows, len(view.destinations)),
    ):
        found, expected = (runner.run(one, arrays, asked, count, ["y"])[0] for one in (with_values, without))
        if arithmetic == "double":
            np.testing.assert_array_equal(found, expected)
        assert_close(found, expected, 20 * TOLERANCE[arithmetic])
    assert runner.device.messages == []


@pytest.mark.parametrize(
    "kind", [one for one in BUILTIN_TYPES if isinstance(one, EdgeType)], ids=lambda one: one.name
)
def test_what_is_staged_fits(kind):
    """Shared memory is not exceeded, strides are odd, and all that edges read of a staged record is there."""
    signature = EdgeSignature(kind, "full", 0)
    for slot, arithmetic, shared_bytes in itertools.product(
        range(signature.arity), ("double", "mixed"), (16384, 49152)
    ):
        others = tuple(k for k in range(signature.arity) if k != slot)
        if not others:
            continue
        staged = product_in_workgroups(signature, slot, others, arithmetic, others, shared_bytes).staged
        if staged is None:
            continue
        assert isinstance(staged, Staged) and slot not in staged.runs
        size = 8 * TILE * len(staged.sums)
        for k, runs in staged.runs.items():
            pad = staged.pad(runs)
            size += TILE * (UNIT_BYTES * pad + 4)
            assert pad % 2 == 1 and pad >= sum(one.count for one in runs)
            per_unit = 2 if arithmetic == "double" else 4
            used = [p for name, p in staged.places(k).items() if name in staged.assignment.inputs()]
            record = runs[0]
            assert record.first <= min(used) // per_unit
            assert max(used) // per_unit < record.first + record.count <= record.stride
        assert size <= min(shared_bytes, 32768)
