"""Generated kernels on a device against dense numpy; products are in test_products.py.

A dozen edge types here, every kernel of theirs; GRAPHOPT_TEST_ALL_KERNELS=1 takes all types in all variants
(four minutes). tests/codegen/test_glsl.py evaluates the text of all types without a device.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from edge_products import Products
from gpu_kernel_cases import Case, runner_for

import graphopt
from graphopt.codegen.gpu import (
    chi2_kernel,
    linearize_kernel,
    oplus_kernel,
    pair_kernel,
)
from graphopt.codegen.gpu.packed_products import recomputed_product
from graphopt.codegen.gpu.product_shapes import tiles_kernel
from graphopt.errors import OptionError
from graphopt.types import BUILTIN_TYPES, registry
from graphopt.types.base import EdgeType, VariadicEdgeType

ALL = [kind for kind in BUILTIN_TYPES if isinstance(kind, (EdgeType, VariadicEdgeType))]
CHOSEN = (
    ("EdgeSE2", "full", 0),
    ("EdgeSE2PointXYBearing", "identity", 1),
    ("EdgeSE2OdomDifferentialCalib", "diagonal", 0),
    ("EdgeSE2LotsOfXY", "diagonal", 3),
    ("EdgeSE3", "full", 1),
    ("EdgeSE3PointXYZDisparity", "diagonal", 0),
    ("EdgeXYZPrior", "full", 7),
    ("EdgeObservationBAL", "identity", 0),
    ("EdgeProjectXYZ2UV", "identity", 1),
    ("EdgeProjectPSI2UV", "full", 0),
    ("EdgeSim3ProjectXYZ", "full", 9),
    ("EdgeInertial", "full", 0),
)
ARITHMETICS = ("double", "mixed", "two_float")
VARIANTS = [(access, arithmetic) for arithmetic in ARITHMETICS for access in ("address", "storage")]
EVERYTHING = os.environ.get("GRAPHOPT_TEST_ALL_KERNELS", "0") not in ("", "0")
if EVERYTHING:
    PARAMETERS = [
        (kind.name, v, k, a) for kind in ALL for v, k in (("full", 1), ("identity", 0)) for a in VARIANTS
    ]
else:  # the variants in turn
    PARAMETERS = [(*parameters, VARIANTS[(k + k // 4) % 4]) for k, parameters in enumerate(CHOSEN)]
    # drivers take seconds to compile two-float functions
    PARAMETERS += [("EdgeSE2PointXYBearing", "full", 1, v) for v in VARIANTS[4:]]

TOLERANCE = {"double": 1e-11, "mixed": 1e-5, "two_float": 1e-5}
CHI2_TOLERANCE = {"double": 1e-12, "mixed": 1e-12, "two_float": 1e-11}
PRODUCT_TOLERANCE = {"double": 1e-11, "mixed": 2e-4, "two_float": 2e-4}
"""float32 from the start; some points lie beside the camera."""
UNTOUCHED = 7.0


@pytest.fixture(params=PARAMETERS, ids=lambda p: f"{p[0]}-{p[1]}-{p[2]}-{'-'.join(p[3])}")
def problem(request):
    """Edges of a type and the kernels' runner; the validation layer has nothing to say."""
    name, information, kernel, (access, arithmetic) = request.param
    runner = runner_for(access, arithmetic)
    yield Case(registry.edge_type(name), 300, information, kernel), runner
    assert runner.device.messages == []


def assert_close(actual, expected, tolerance, scale=None):
    """Largest error, relative to the largest entry or to `scale`."""
    scale = np.abs(expected).max() if scale is None else scale
    error = np.abs(actual - expected).max() / scale
    assert error < tolerance, error


def view_arrays(case, view, real):
    """Buffers of the kernels that sum over destinations."""
    dim = case.type.vertices[view.slot].tangent_dim
    count = len(view.destinations)
    return {
        **case.arrays(view.edges),
        "first": view.first,
        "tiles": view.tiles,
        "dest_block": (3 + dim * dim * np.arange(count)).astype(np.uint32),
        "dest_scalar": case.offsets[view.slot][view.destinations],
        "values": np.full(3 + dim * dim * count, UNTOUCHED, real),
        "b": np.full(case.dim, UNTOUCHED, real),
        "y": np.full(case.dim, UNTOUCHED, real),
        "partial": np.full(5 + view.num_tiles + view.num_fixed_tiles, UNTOUCHED),
    }


def view_params(view, accumulate=0):
    """Push constants of the same."""
    return {
        "num_tiles": view.num_tiles,
        "first_tile": 0,
        "accumulate": accumulate,
        "num_destinations": len(view.destinations),
        "num_edges": len(view.edges),
        "first_partial": 5,
        "ping_pong": 0,
    }


def scattered(case, view, per_edge):
    """Sum of (n, dim) vectors of edges into a vector like b; untouched where the view has no destination."""
    dim = per_edge.shape[1]
    result = np.full(case.dim, UNTOUCHED)
    for vertex in view.destinations:
        at = case.offsets[view.slot][vertex]
        result[at : at + dim] = per_edge[case.rows[:, view.slot] == vertex].sum(axis=0)
    return result


def test_chi2(problem):
    """Partial sums of rho."""
    case, runner = problem
    _, _, rho, _ = case.evaluate()
    kernel = chi2_kernel(case.signature, runner.arithmetic)
    groups = -(-case.n // kernel.workgroup_size)
    arrays = {**case.arrays(np.arange(case.n)), "partial": np.zeros(2 + groups)}
    params = {"num_edges": case.n, "first_partial": 2}
    [partial] = runner.run(kernel, arrays, params, groups, ["partial"])
    size = kernel.workgroup_size
    sums = [rho[k * size : (k + 1) * size].sum() for k in range(groups)]
    assert_close(partial[2:], np.array(sums), CHI2_TOLERANCE[runner.arithmetic])


@pytest.mark.parametrize("primary", [True, False], ids=["primary", "other"])
def test_linearize(problem, primary):
    """Diagonal blocks and b of every slot; assigned, then added twice."""
    case, runner = problem
    error, jacobians, _, weight = case.evaluate()
    omega = weight[:, None, None] * case.information
    last = case.signature.arity - 1
    slots = range(last + 1) if EVERYTHING else (0 if primary else last,)
    for slot in slots:
        view, jacobian = case.view(slot, primary), jacobians[slot]
        blocks = np.einsum("nia,nij,njb->nab", jacobian, omega, jacobian)
        gradient = -np.einsum("nia,nij,nj->na", jacobian, omega, error)
        size = np.einsum("nia,nij,nj->na", *map(np.abs, (jacobian, omega, error)))
        expected = np.stack([blocks[case.rows[:, slot] == v].sum(axis=0) for v in view.destinations])
        expected_b = scattered(case, view, gradient)
        kernel = linearize_kernel(case.signature, slot, runner.arithmetic)
        arrays = view_arrays(case, view, runner.real)
        names, groups = ["values", "b"], view.num_tiles
        tolerance = TOLERANCE[runner.arithmetic]
        values, b = runner.run(kernel, arrays, view_params(view), groups, names)
        assert_close(values[3:], expected.ravel(), tolerance)
        assert_close(b, expected_b, tolerance, scattered(case, view, size).max())
        if primary:
            values, b = runner.run(kernel, arrays, view_params(view, 1), groups, names, repeat=2)
            assert_close(values[3:], UNTOUCHED + 2.0 * expected.ravel(), tolerance)
            touched = expected_b != UNTOUCHED
            twice = np.where(touched, UNTOUCHED + 2.0 * expected_b, UNTOUCHED)
            assert_close(b, twice, tolerance, scattered(case, view, size).max())


def pair_list(case, a, b):
    """(first, edges with bit 31, blocks, rows and columns of each block) of the optimized pairs."""
    rows, cols = case.rows[:, a], case.rows[:, b]
    same_set = case.signature.set_of_slot(a) == case.signature.set_of_slot(b)
    entries: dict[tuple[int, int], list[int]] = {}
    for e, (i, j) in enumerate(zip(rows.tolist(), cols.tolist(), strict=True)):
        if not (case.free[a][i] and case.free[b][j]):
            continue
        if same_set and i > j:
            entries.setdefault((j, i), []).append(e | 1 << 31)
        else:  # of two sets every other block is stored transposed
            flip = (i + j) % 2 << 31 if not same_set else 0
            entries.setdefault((i, j), []).append(e | flip)
            if same_set and i == j:
                entries[i, j].append(e | 1 << 31)
    first = np.concatenate([[0], np.cumsum([len(edges) for edges in entries.values()])]).astype(np.uint32)
    return first, np.array([e for edges in entries.values() for e in edges], np.uint32)


def test_pairs(problem):
    """Off-diagonal blocks, transposed ones, and edges that name a vertex twice."""
    case, runner = problem
    _, jacobians, _, weight = case.evaluate()
    omega = weight[:, None, None] * case.information
    arity = case.signature.arity
    for a, b in [(0, arity - 1), (arity - 1, 0)][: 2 if arity > 1 else 0]:
        first, edges = pair_list(case, a, b)
        blocks = np.einsum("nia,nij,njb->nab", jacobians[a], omega, jacobians[b])
        size = blocks[0].size
        expected = []
        for k in range(len(first) - 1):
            total = 0.0
            for code in edges[first[k] : first[k + 1]].tolist():
                block = blocks[code & 0x7FFFFFFF]
                total = total + (block.T if code >> 31 else block)
            expected.append(np.ravel(total, order="F"))
        num_blocks = len(expected)
        arrays = {
            **case.arrays(np.arange(case.n)),
            "pair_first": first,
            "pair_edge": edges,
            "pair_block": (size * np.arange(num_blocks)).astype(np.uint32),
            "values": np.full(size * num_blocks, UNTOUCHED, runner.real),
        }
        kernel = pair_kernel(case.signature, a, b, runner.arithmetic)
        params, groups = {"num_blocks": num_blocks, "accumulate": 0}, -(-num_blocks // kernel.workgroup_size)
        [values] = runner.run(kernel, arrays, params, groups, ["values"])
        tolerance = TOLERANCE[runner.arithmetic]
        assert_close(values, np.concatenate(expected), tolerance)
        [values] = runner.run(kernel, arrays, {**params, "accumulate": 1}, groups, ["values"])
        assert_close(values, UNTOUCHED + np.concatenate(expected), tolerance)


def product_arrays(case, view, runner):
    """Buffers of products by name."""
    return Products(case, runner).arrays(view) | {"y": np.full(case.dim, UNTOUCHED, runner.real)}


def test_oplus(problem):
    """Free rows move, fixed ones are copied; in place as well."""
    case, runner = problem
    slots = range(case.signature.arity) if EVERYTHING else (case.signature.arity - 1,)
    for slot in slots:
        vertex, states = case.type.vertices[slot], case.estimates[slot]
        step = 0.3 * case.x
        index = case.offsets[slot].astype(np.int64)[:, None] + np.arange(vertex.tangent_dim)
        moved = vertex.oplus(states, step[np.minimum(index, case.dim - 1)])
        expected = np.where(case.free[slot][:, None], moved, states)
        arrays = case.arrays(np.arange(case.n))
        name = case.signature.set_of_slot(slot)
        buffers = {
            "estimate_in": arrays[f"estimate{name}"],
            "estimate_out": np.zeros_like(arrays[f"estimate{name}"]),
            "float32_out": np.zeros_like(arrays[f"float32_estimate{name}"]),
            "dx": step.astype(runner.real),
            "offset": case.offsets[slot],
        }
        kernel = oplus_kernel(vertex, runner.arithmetic)
        narrow = ["float32_out"] if "float32_out" in kernel.buffers else []
        params = {"num_rows": len(states)}
        out, *copies = runner.run(kernel, buffers, params, 1, ["estimate_out", *narrow])
        tolerance = {"double": 1e-14, "mixed": 1e-6, "two_float": 1e-6}[runner.arithmetic]  # dx is a real
        assert_close(out.reshape(len(states), -1)[:, : vertex.storage_dim], expected, tolerance)
        fixed = ~case.free[slot]
        inside = out.reshape(len(states), -1)[fixed, : vertex.storage_dim]
        rounding = 2e-15 if runner.arithmetic == "two_float" else 0.0
        np.testing.assert_allclose(inside, states[fixed], rtol=rounding)
        for copy in copies:
            table = copy.reshape(len(states), -1)[:, : vertex.storage_dim]
            assert_close(table, expected, 1e-6)


@pytest.fixture
def user_edge(own_types):
    """An edge of a user: odd sizes, every operation, a parameter, names that the generator also uses."""

    @graphopt.vertex_type(tag="VERTEX_TEST_GPU_CURVE", tangent_dim=5, identity=(1.0, 0.5, -0.4, 0.3, 2.0))
    def VertexTestCurve(curve, delta):
        return curve + delta

    @graphopt.vertex_type(tag="VERTEX_TEST_GPU_SCALE", tangent_dim=1, identity=(0.7,))
    def VertexTestScale(scale, delta):
        return scale * np.exp(delta)

    @graphopt.parameter_type(tag="PARAMS_TEST_GPU", storage_dim=3, identity=(0.3, 1.0, 2.0))
    def ParameterTest(storage):
        return storage

    @graphopt.edge_type(
        tag="EDGE_TEST_GPU",
        vertices=("VERTEX_TEST_GPU_CURVE", "VERTEX_TEST_GPU_SCALE", "VERTEX_TEST_GPU_CURVE"),
        parameters=("PARAMS_TEST_GPU",),
        measurement_dim=2,
        residual_dim=3,
    )
    def EdgeTestAll(e, rows, sum, x, width):
        t, y = width[..., 0], width[..., 1]
        base = 1.5 + np.sin(e[..., 0] * t) ** 2 + x[..., 0]
        first = np.power(base, e[..., 1]) * np.log(base) + rows[..., 0] * np.arctan(sum[..., 2] * t)
        second = np.arctan2(sum[..., 0], 2.0 + np.abs(e[..., 2])) + np.maximum(e[..., 3], sum[..., 3] - t)
        third = np.where(e[..., 4] > t, np.tan(0.2 * e[..., 4]), np.minimum(y, sum[..., 4]))
        fourth = np.arcsin(0.3 * np.cos(sum[..., 1])) + np.arccos(0.2 * np.sin(e[..., 2]))
        second = second * np.sqrt(base) + np.sign(t)
        return np.stack([first - y, second, third * fourth + np.floor(y)], axis=-1)

    return EdgeTestAll


@pytest.mark.parametrize("arithmetic", ["double", "mixed"])
def test_user_types(user_edge, arithmetic):
    """All kernels of a user's edge."""
    pair = Case(user_edge, 200, "full", 2), runner_for("address", arithmetic)
    assert "const wide in_e_0 = in_e_v0.x" in chi2_kernel(pair[0].signature, "mixed").source
    test_chi2(pair)
    test_linearize(pair, True)
    test_linearize(pair, False)
    test_pairs(pair)
    test_oplus(pair)
    assert pair[1].device.messages == []


@pytest.mark.parametrize("access", ["address", "storage"])
def test_long_problems_in_pieces(access):
    """Many tiles, dispatched in two pieces, and twice: the same bits."""
    case = Case(registry.edge_type("EdgeObservationBAL"), 3000, "full", 1, num_vertices=90)
    runner = runner_for(access, "double")
    view = case.view(1, False)
    kernel = tiles_kernel(recomputed_product(case.signature, 1, (0,), "double"))
    arrays = product_arrays(case, view, runner)
    assert view.num_tiles > 9
    [whole] = runner.run(kernel, arrays, view_params(view), view.num_tiles, ["y"])
    [again] = runner.run(kernel, arrays, view_params(view), view.num_tiles, ["y"])
    np.testing.assert_array_equal(whole, again)
    [start] = runner.run(kernel, arrays, view_params(view), 4, ["y"])
    rest = {**arrays, "y": start}
    params = {**view_params(view), "first_tile": 4}
    [pieces] = runner.run(kernel, rest, params, view.num_tiles, ["y"])  # 4 workgroups too many
    np.testing.assert_array_equal(whole, pieces)
    assert runner.device.messages == []


def test_wrong_slots_are_refused():
    """Slots that an edge does not have, and a pair of one slot."""
    signature = Case(registry.edge_type("EdgeSE2"), 2).signature
    with pytest.raises(OptionError, match="slot 2 does not exist, there are 2"):
        linearize_kernel(signature, 2)
    with pytest.raises(OptionError, match="slots 1 and 1 are one"):
        pair_kernel(signature, 1, 1)
