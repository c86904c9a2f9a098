"""Interpreted linearisation and oplus on a device, against three other ways to compute the same."""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import pytest
from gpu_kernel_cases import NOTHING, Case, Runner, packed
from test_types_compiled import NOT_THE_DERIVATIVE
from vulkan_devices import VARIANTS, shared_device

from graphopt.codegen import compile_edge, compile_vertex
from graphopt.codegen.gpu import linearize_kernel, narrow_record_dim, pair_kernel, record_dim
from graphopt.codegen.interpreter import pack_program
from graphopt.types import BUILTIN_TYPES
from graphopt.types.base import EdgeType, VariadicEdgeType, VertexType
from graphopt.types.robust_kernels import KERNELS
from graphopt.vulkan.program import Context, Program
from graphopt.vulkan.schedules.gather import OutputLayout, gather_lists
from graphopt.vulkan.schedules.interpreted import (
    EdgeArrays,
    InterpretedEdges,
    InterpretedLinearization,
    InterpretedOplus,
    Interpreter,
    Records,
)

EDGES = [kind for kind in BUILTIN_TYPES if isinstance(kind, (EdgeType, VariadicEdgeType))]
EVERYTHING = os.environ.get("GRAPHOPT_TEST_ALL_KERNELS", "0") not in ("", "0")
MAX_OUTPUTS = 28
VERTICES = [kind for kind in BUILTIN_TYPES if isinstance(kind, VertexType)]


@cache
def interpreter(access: str, precision: str) -> Interpreter:
    """One per variant: its kernels are built once. The small scratch buffer makes several chunks."""
    return Interpreter(Context(shared_device(access), precision), scratch_bytes=128 * 8 * 250)


def run_steps(context, steps):
    """Record and run."""
    program = Program(context)
    for step in steps:
        program.step(step)
    program.run()


class Equations:
    """Where H of a case is stored: diagonal blocks, then off-diagonal ones, every second one transposed."""

    def __init__(self, case: Case):
        self.case = case
        dims = [v.tangent_dim for v in case.type.vertices]
        self.layout = OutputLayout(tuple(dims))
        self.scalar = np.stack(
            [case.offsets[k][case.rows[:, k]].astype(np.int64) for k in range(len(dims))], axis=1
        )
        self.scalar[self.scalar == NOTHING] = -1
        pairs = self.layout.pairs()
        self.offset = np.full((case.n, len(pairs)), -1)
        self.transposed = np.zeros((case.n, len(pairs)), bool)
        self.places: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.size = 0
        for p, (a, b) in enumerate(pairs):
            for e in range(case.n):
                i, j = self.scalar[e, a], self.scalar[e, b]
                if i < 0 or j < 0 or (a != b and i == j):  # graphs have no edge with a vertex twice
                    continue
                if (i, j) not in self.places:
                    flip = a != b and len(self.places) % 2 == 1
                    self.places[i, j] = (self.size, *((dims[b], dims[a]) if flip else (dims[a], dims[b])))
                    self.places[i, j] = (*self.places[i, j], flip)
                    self.size += dims[a] * dims[b]
                self.offset[e, p], self.transposed[e, p] = self.places[i, j][0], self.places[i, j][3]

    def dense(self, values: np.ndarray) -> np.ndarray:
        """(dim, dim) H; blocks of pairs of slots stand above or below the diagonal only once."""
        h = np.zeros((self.case.dim, self.case.dim))
        for (i, j), (at, rows, columns, flip) in self.places.items():
            block = values[at : at + rows * columns].reshape(columns, rows).T
            block = block.T if flip else block
            h[i : i + block.shape[0], j : j + block.shape[1]] = block
        return h


def interpreted(case: Case, precision: str, access: str = "address"):
    """chi2, dense H, b by the interpreter on the device; chi2 of the chi2 program as well."""
    own = interpreter(access, precision)
    context, device = own.context, own.context.device
    equations = Equations(case)
    signature = case.signature
    robust = KERNELS[signature.kernel].function if signature.kernel else None
    compiled = compile_edge(case.type, signature.information, robust)
    arrays = {k: device.upload(v) for k, v in case.arrays(np.arange(case.n)).items()}
    kinds = [*case.type.vertices, *case.type.parameters]
    names = [f"estimate{k}" for k in range(signature.arity)]
    names += [f"parameter{k}" for k in range(len(case.type.parameters))]
    sources = [Records(record_dim(kind.storage_dim), kind.storage_dim) for kind in kinds]
    buffers = [arrays[name] for name in names]
    edges = EdgeArrays(case.n, arrays["rows"], arrays["data"], signature.num_data, sources)
    packed_program = pack_program(compiled.linearize, compiled.kernel)
    chunk = own.chunk(packed_program.num_rows, case.n)
    nothing = np.zeros_like(equations.transposed)
    lists = gather_lists(
        equations.layout.dims, equations.scalar, equations.offset, equations.transposed, nothing, chunk
    )
    linearization = InterpretedLinearization(own, packed_program, edges, lists)
    chi2 = InterpretedEdges(own, pack_program(compiled.chi2, compiled.kernel), edges)
    values = device.upload(np.zeros(equations.size, context.real))
    b = device.upload(np.zeros(case.dim, context.real))
    count = linearization.edges.program.num_partials
    partials = [device.upload(np.zeros(count)) for _ in range(2)]
    run_steps(context, linearization.steps(buffers, values, b, partials[0]) + chi2.chi2(buffers, partials[1]))
    totals = [device.download(partial, np.float64, count).sum() for partial in partials]
    h = equations.dense(context.download(values, equations.size))
    assert device.messages == []
    return totals, h, context.download(b, case.dim)


def assemble(case: Case, blocks, segments):
    """Dense H and b from per edge (n, dim, dim) blocks by pair and (n, dim) segments by slot."""
    equations = Equations(case)
    h, b = np.zeros((case.dim, case.dim)), np.zeros(case.dim)
    for p, (a, c) in enumerate(equations.layout.pairs()):
        for e in np.flatnonzero(equations.offset[:, p] >= 0):
            i, j = equations.scalar[e, a], equations.scalar[e, c]
            rows, columns = blocks[p].shape[1:]
            h[i : i + rows, j : j + columns] += blocks[p][e]
    for a, segment in enumerate(segments):
        for e in np.flatnonzero(equations.scalar[:, a] >= 0):
            i = equations.scalar[e, a]
            b[i : i + segment.shape[1]] += segment[e]
    return h, b


def from_jacobians(case: Case, jacobians):
    """chi2, H and b from the residual's definition."""
    error, _, rho, weight = case.evaluate()
    omega = weight[:, None, None] * case.information
    pairs = OutputLayout(tuple(v.tangent_dim for v in case.type.vertices)).pairs()
    blocks = [np.einsum("nia,nij,njb->nab", jacobians[a], omega, jacobians[b]) for a, b in pairs]
    segments = [-np.einsum("nia,nij,nj->na", j, omega, error) for j in jacobians]
    return float(np.sum(rho)), *assemble(case, blocks, segments)


def finite_difference_jacobians(case: Case, step=1e-6):
    """Central differences of the residual's program through oplus, per slot (n, d, dim)."""
    errors = compile_edge(case.type).errors
    states = [x[case.rows[:, k]] for k, x in enumerate(case.estimates)]
    rest = [p[case.parameter_rows[:, k]] for k, p in enumerate(case.parameters)] + [case.measurement]
    result = []
    for slot, vertex in enumerate(case.type.vertices):
        columns = []
        for direction in np.eye(vertex.tangent_dim):
            ends = []
            for sign in (1.0, -1.0):
                delta = np.broadcast_to(sign * step * direction, (case.n, len(direction)))
                moved = np.asarray(vertex.oplus(states[slot], delta), float)
                inputs = [*states[:slot], moved, *states[slot + 1 :], *rest]
                ends.append(errors.interpret(np.concatenate(inputs, axis=1)))
            columns.append((ends[0] - ends[1]) / (2.0 * step))
        result.append(np.stack(columns, axis=-1))
    return result


def from_bytecode(case: Case):
    """chi2, H and b from the CPU interpreter's Jacobians and errors (native code)."""
    kernels = compile_edge(case.type)
    states = [x[case.rows[:, k]] for k, x in enumerate(case.estimates)]
    rest = [p[case.parameter_rows[:, k]] for k, p in enumerate(case.parameters)] + [case.measurement]
    flat = kernels.jacobians.run(np.concatenate([*states, *rest], axis=1))
    d = case.type.residual_dim
    sizes = np.cumsum([d * v.tangent_dim for v in case.type.vertices])[:-1]
    return from_jacobians(case, [part.reshape(case.n, d, -1) for part in np.split(flat, sizes, axis=1)])


def from_compiled_kernels(case: Case):
    """H and b from the generated kernels."""
    runner = Runner(shared_device("address"), "double")
    equations, signature = Equations(case), case.signature
    b = np.zeros(case.dim)
    h = np.zeros((case.dim, case.dim))
    for slot in range(signature.arity):
        view = case.view(slot, primary=slot == 0)
        k, count = case.type.vertices[slot].tangent_dim, len(view.destinations)
        scalars = case.offsets[slot][view.destinations]
        arrays = case.arrays(view.edges)
        arrays |= {"first": view.first, "tiles": view.tiles, "dest_scalar": scalars}
        arrays |= {"dest_block": (k * k * np.arange(count)).astype(np.uint32)}
        arrays |= {"values": np.zeros(k * k * count), "b": np.zeros(case.dim)}
        groups = view.num_tiles + (view.num_fixed_tiles if slot == 0 else 0)
        arrays |= {"partial": np.zeros(groups)}
        params = {"num_tiles": view.num_tiles, "first_tile": 0, "accumulate": 0, "first_partial": 0}
        params |= {"num_destinations": count, "num_edges": len(view.edges)}
        kernel = linearize_kernel(signature, slot, slot == 0)
        values, part = runner.run(kernel, arrays, params, groups, ["values", "b"])
        b += part
        for i, block in zip(scalars.tolist(), values.reshape(count, k, k), strict=True):
            h[i : i + k, i : i + k] += block
    arrays = case.arrays(np.arange(case.n))
    for p, (a, c) in enumerate(equations.layout.pairs()):
        if a == c:
            continue
        rows, columns = equations.layout.dims[a], equations.layout.dims[c]
        used = np.flatnonzero(equations.offset[:, p] >= 0)
        count = len(used)
        arrays |= {"pair_first": np.arange(count + 1, dtype=np.uint32), "pair_edge": used.astype(np.uint32)}
        arrays |= {"pair_block": (rows * columns * np.arange(count)).astype(np.uint32)}
        arrays |= {"values": np.zeros(rows * columns * count)}
        kernel = pair_kernel(signature, a, c)
        groups = -(-count // kernel.workgroup_size)
        params = {"num_blocks": count, "accumulate": 0}
        (values,) = runner.run(kernel, arrays, params, groups, ["values"])
        for e, block in zip(used, values.reshape(count, columns, rows), strict=True):
            i, j = equations.scalar[e, a], equations.scalar[e, c]
            h[i : i + rows, j : j + columns] += block.T
    return h, b


def assert_near(actual, expected, tolerance, what):
    """Relative to the largest entry."""
    error = np.abs(actual - expected).max() / max(np.abs(expected).max(), 1e-300)
    assert error < tolerance, f"{what}: {error}"


@pytest.mark.parametrize("kind", EDGES, ids=lambda kind: kind.tag)
def test_four_executions_agree(kind):
    """Interpreter, compiled kernels, CPU bytecode and finite differences give the same H, b and chi2.

    Software drivers compile large kernels for a minute, so without GRAPHOPT_TEST_ALL_KERNELS=1 only those of
    small types are compiled here.
    """
    case = Case(kind, n=70, kernel=1)
    (chi2, chi2_only), h, b = interpreted(case, "double")
    expected_chi2, expected_h, expected_b = from_bytecode(case)
    assert chi2 == pytest.approx(expected_chi2, rel=1e-11)
    assert chi2_only == pytest.approx(expected_chi2, rel=1e-11)
    assert_near(h, expected_h, 1e-11, "H against CPU bytecode")
    assert_near(b, expected_b, 1e-9, "b against CPU bytecode")
    if EVERYTHING or compile_edge(case.type).linearize.num_outputs <= MAX_OUTPUTS:
        compiled_h, compiled_b = from_compiled_kernels(case)
        assert_near(h, compiled_h, 1e-11, "H against compiled kernels")
        assert_near(b, compiled_b, 1e-9, "b against compiled kernels")
    if kind.tag not in NOT_THE_DERIVATIVE:
        _, difference_h, _ = from_jacobians(case, finite_difference_jacobians(case))
        assert_near(h, difference_h, 1e-5, "H against finite differences")


@pytest.mark.parametrize("variant", VARIANTS, ids="-".join)
@pytest.mark.parametrize("information", ["full", "diagonal", "identity"])
def test_linearize_in_all_variants(variant, information):
    """Several chunks, destinations of few and of many edges, fixed vertices, parameters, no robust kernel."""
    access, precision = variant
    for tag in ("EDGE_SE3_TRACKXYZ", "EDGE_OBSERVATION_BAL", "EDGE_SE2_TWOPOINTSXY"):
        kind = next(edge for edge in EDGES if edge.tag == tag)
        case = Case(kind, n=900, information=information, num_vertices=40, seed=3)
        (chi2, chi2_only), h, b = interpreted(case, precision, access)
        expected_chi2, expected_h, expected_b = from_bytecode(case)
        tolerance = 1e-12 if precision == "double" else 2e-6
        assert chi2 == pytest.approx(expected_chi2, rel=1e-12)  # of two programs: rounded differently
        assert chi2_only == pytest.approx(expected_chi2, rel=1e-12)
        assert_near(h, expected_h, tolerance, tag)
        assert_near(b, expected_b, tolerance, tag)


def test_same_bits_every_time():
    """No sum depends on which workgroup comes first."""
    kind = next(edge for edge in EDGES if edge.tag == "EDGE_OBSERVATION_BAL")
    case = Case(kind, n=700, num_vertices=20)
    first, second = (interpreted(case, "mixed") for _ in range(2))
    assert first[0] == second[0]
    assert np.array_equal(first[1], second[1]) and np.array_equal(first[2], second[2])


@pytest.mark.parametrize("variant", VARIANTS, ids="-".join)
def test_oplus(variant):
    """Optimized vertices move, the others are copied bit by bit; float32 copies follow."""
    own = interpreter(*variant)
    context, device = own.context, own.context.device
    rng = np.random.default_rng(4)
    for kind in VERTICES:
        dim, tangent, count = kind.storage_dim, kind.tangent_dim, 150
        identity = np.tile(np.array(kind.identity), (count, 1))
        estimate = np.asarray(kind.oplus(identity, 0.4 * rng.normal(size=(count, tangent))))
        moves = rng.random(count) < 0.7
        offset = np.full(count, NOTHING, np.uint32)
        offset[moves] = tangent * np.arange(np.count_nonzero(moves))
        dx = 0.3 * rng.normal(size=tangent * count).astype(context.real)
        record, narrow_record = record_dim(dim), narrow_record_dim(dim)
        oplus = InterpretedOplus(own, pack_program(compile_vertex(kind)), count, dim, record)
        before = device.upload(packed(estimate, record, np.float64))
        after, narrow = device.allocate(8 * record * count), device.allocate(4 * narrow_record * count)
        steps = oplus.steps(before, after, device.upload(dx), device.upload(offset), narrow, narrow_record)
        run_steps(context, steps)
        result = device.download(after, np.float64, record * count).reshape(count, record)[:, :dim]
        copy = device.download(narrow, np.float32, narrow_record * count).reshape(count, -1)[:, :dim]
        delta = np.zeros((count, tangent))
        delta[moves] = dx.reshape(-1, tangent)[: np.count_nonzero(moves)]
        expected = np.asarray(kind.oplus(estimate, delta))
        np.testing.assert_allclose(result[moves], expected[moves], atol=1e-13, err_msg=kind.name)
        assert np.array_equal(result[~moves], estimate[~moves])
        assert np.array_equal(copy, result.astype(np.float32))
    assert device.messages == []
