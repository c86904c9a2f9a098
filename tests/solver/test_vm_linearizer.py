"""The native Linearizer against a dense numpy assembly from the reference interpreter's Jacobians."""

from __future__ import annotations

import numpy as np
import pytest
import vm_example_types as examples

from graphopt import codegen
from graphopt.cpu_kernels import kernels
from graphopt.types.robust_kernels import huber


class DenseProblem:
    """Random graph of one edge type, with block pattern, reference H, b and chi2."""

    def __init__(self, edge, num_vertices, num_edges, variant="full", robust=None, seed=0, fixed=1):
        self.rng = np.random.default_rng(seed)
        self.edge, self.variant, self.robust = edge, variant, robust
        self.sets = list(dict.fromkeys(edge.vertices))
        self.estimates = [examples.random_storage(v, num_vertices, self.rng) for v in self.sets]
        self.slots = [self.sets.index(v) for v in edge.vertices]
        self.rows = np.stack([self.drawn(num_vertices, num_edges, k) for k in range(len(self.slots))], axis=1)
        self.measurement = examples.random_measurement(edge, num_edges, self.rng)
        self.information = examples.random_information(edge, num_edges, self.rng, variant)
        self.width = self.rng.uniform(0.5, 3.0, size=num_edges)
        self.parameters = [examples.random_storage(p, 3, self.rng) for p in edge.parameters]
        self.parameter_rows = self.rng.integers(0, 3, size=(num_edges, len(edge.parameters))).astype(np.int32)
        self.number_blocks(num_vertices, fixed)

    def drawn(self, num_vertices, num_edges, slot):
        """Rows of the vertices of a slot."""
        # slots of the same set take rows of different residues, so that no edge has a vertex twice
        same = [k for k, s in enumerate(self.slots) if s == self.slots[slot]]
        stride, start = len(same), same.index(slot)
        return (self.rng.integers(0, num_vertices // stride, size=num_edges) * stride + start).astype(
            np.int32
        )

    def number_blocks(self, num_vertices, fixed):
        """Number the free vertices."""
        self.offsets, self.block_of, dims = [], [], []
        for v in self.sets:
            order = self.rng.permutation(num_vertices)  # so that some pairs are stored transposed
            block = np.full(num_vertices, -1)
            block[order[fixed:]] = len(dims) + np.arange(num_vertices - fixed)
            self.block_of.append(block)
            dims += [v.tangent_dim] * (num_vertices - fixed)
        starts = np.concatenate([[0], np.cumsum(dims)]).astype(np.int64)
        self.dims, self.starts, self.dim = dims, starts, int(starts[-1])
        self.offsets = [np.where(b >= 0, starts[b], -1) for b in self.block_of]
        self.values_offset, size = {}, 0
        pairs = {(b, b) for b in range(len(dims))}
        for row in self.rows:
            blocks = [self.block_of[s][r] for s, r in zip(self.slots, row, strict=True)]
            pairs |= {(min(i, j), max(i, j)) for i in blocks for j in blocks if i >= 0 and j >= 0}
        for i, j in sorted(pairs, key=lambda p: (p[1], p[0])):
            self.values_offset[i, j] = size
            size += dims[i] * dims[j]
        self.values_size = size

    def linearizer(self):
        """Return the native linearizer of this problem, prepared."""
        k = codegen.compile_edge(self.edge, self.variant, self.robust)
        lin = kernels.Linearizer()
        for v, estimate, offset in zip(self.sets, self.estimates, self.offsets, strict=True):
            lin.add_vertex_set(estimate, codegen.compile_vertex(v).native, offset)
        parameter_sets = [lin.add_parameter_set(p) for p in self.parameters]
        arity = len(self.slots)
        num_pairs = arity * (arity + 1) // 2
        offsets, transposed = [], []
        for row in self.rows:
            blocks = [self.block_of[s][r] for s, r in zip(self.slots, row, strict=True)]
            pairs = [(blocks[a], blocks[b]) for a in range(arity) for b in range(a, arity)]
            offsets.append(
                [-1 if i < 0 or j < 0 else self.values_offset[min(i, j), max(i, j)] for i, j in pairs]
            )
            transposed.append([i > j for i, j in pairs])
        lin.add_edge_group(
            k.chi2.native,
            k.linearize.native,
            k.kernel.native if k.kernel is not None else None,
            self.slots,
            self.rows,
            parameter_sets,
            self.parameter_rows,
            self.measurement,
            codegen.pack_information(self.information, self.variant),
            self.width,
            np.array(offsets, dtype=np.int64).reshape(-1, num_pairs),
            np.array(transposed, dtype=bool).reshape(-1, num_pairs),
        )
        lin.prepare(self.values_size, self.dim)
        return lin

    def inputs(self):
        """(m, num_inputs) vertices, parameters, measurement of every edge."""
        columns = [self.estimates[s][self.rows[:, k]] for k, s in enumerate(self.slots)]
        columns += [p[self.parameter_rows[:, k]] for k, p in enumerate(self.parameters)]
        return np.concatenate([*columns, self.measurement], axis=1)

    def reference(self):
        """chi2, dense H, b by numpy from the reference interpreter's residuals and Jacobians."""
        k = codegen.compile_edge(self.edge, "identity")
        errors, flat = k.errors.interpret(self.inputs()), k.jacobians.interpret(self.inputs())
        hessian, b, total = np.zeros((self.dim, self.dim)), np.zeros(self.dim), 0.0
        ends = np.cumsum([self.edge.residual_dim * v.tangent_dim for v in self.edge.vertices])[:-1]
        for e, row, jacobians, omega, width in zip(
            errors, self.rows, flat, self.information, self.width, strict=True
        ):
            chi2 = e @ omega @ e
            rho, weight = self.robust(chi2, width) if self.robust else (chi2, 1.0)
            total += rho
            j = np.zeros((len(e), self.dim))
            for slot, block in enumerate(np.split(jacobians, ends)):
                start = self.offsets[self.slots[slot]][row[slot]]
                dim = self.edge.vertices[slot].tangent_dim
                if start >= 0:
                    j[:, start : start + dim] += block.reshape(len(e), dim)
            hessian += weight * j.T @ omega @ j
            b -= weight * j.T @ omega @ e
        return total, hessian, b

    def dense(self, values):
        """Dense symmetric matrix from the block array."""
        hessian = np.zeros((self.dim, self.dim))
        for (i, j), offset in self.values_offset.items():
            block = (
                values[offset : offset + self.dims[i] * self.dims[j]].reshape(self.dims[j], self.dims[i]).T
            )
            rows = slice(self.starts[i], self.starts[i + 1])
            columns = slice(self.starts[j], self.starts[j + 1])
            hessian[rows, columns] = block
            hessian[columns, rows] = block.T if i != j else block
        return hessian


@pytest.mark.parametrize("robust", [None, huber], ids=["plain", "huber"])
@pytest.mark.parametrize("variant", codegen.INFORMATION_VARIANTS)
@pytest.mark.parametrize("edge", examples.EDGES, ids=lambda e: e.name)
def test_linearize_equals_the_dense_assembly(edge, variant, robust):
    """chi2, H (both triangles of diagonal blocks) and b are the dense sums, with fixed vertices too."""
    problem = DenseProblem(edge, 14, 75, variant, robust)
    lin = problem.linearizer()
    chi2, hessian, b = problem.reference()
    values, own_b = np.full(problem.values_size, np.nan), np.full(problem.dim, np.nan)
    assert lin.linearize(values, own_b) == pytest.approx(chi2, rel=1e-12)
    scale = np.abs(hessian).max()
    np.testing.assert_allclose(problem.dense(values), hessian, rtol=1e-10, atol=1e-13 * scale)
    np.testing.assert_allclose(own_b, b, rtol=1e-10, atol=1e-12 * np.abs(b).max())
    assert lin.chi2() == pytest.approx(chi2, rel=1e-12)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("edge", examples.EDGES, ids=lambda e: e.name)
def test_many_edges_of_each_vertex_equal_the_dense_assembly(edge, count):
    """Vertices that follow each other in the order of the edges are summed before they are added."""
    kernels.set_num_threads(count)
    problem = DenseProblem(edge, 8, 900 if count == 1 else 3000)
    lin = problem.linearizer()
    chi2, hessian, b = problem.reference()
    values, own_b = np.full(problem.values_size, np.nan), np.full(problem.dim, np.nan)
    for _ in range(2):  # sums start from zero each time
        assert lin.linearize(values, own_b) == pytest.approx(chi2, rel=1e-12)
    scale = np.abs(hessian).max()
    np.testing.assert_allclose(problem.dense(values), hessian, rtol=1e-10, atol=1e-12 * scale)
    np.testing.assert_allclose(own_b, b, rtol=1e-9, atol=1e-11 * np.abs(b).max())


@pytest.mark.parametrize(
    "edge", [examples.EDGE_SE3, examples.EDGE_THREE, examples.EDGE_SNAVELY], ids=lambda e: e.name
)
def test_threads_change_rounding_only_and_repeat_bitwise(edge):
    """Any number of threads gives the same sums up to rounding; the same number gives the same bits."""
    results = {}
    for count in (1, 2, 3):
        kernels.set_num_threads(count)
        problem = DenseProblem(edge, 40, 3000)
        lin = problem.linearizer()
        runs = []
        for _ in range(2):
            values, b = np.empty(problem.values_size), np.empty(problem.dim)
            runs.append((lin.linearize(values, b), values, b))
        assert runs[0][0] == runs[1][0]
        np.testing.assert_array_equal(runs[0][1], runs[1][1])
        np.testing.assert_array_equal(runs[0][2], runs[1][2])
        results[count] = runs[0]
    for count in (2, 3):
        np.testing.assert_allclose(
            results[count][1], results[1][1], rtol=1e-9, atol=1e-9 * np.abs(results[1][1]).max()
        )
        np.testing.assert_allclose(
            results[count][2], results[1][2], rtol=1e-9, atol=1e-9 * np.abs(results[1][2]).max()
        )


def test_edges_report_in_the_order_they_were_given():
    """edge_chi2 is in the caller's order, although edges are sorted inside."""
    problem = DenseProblem(examples.EDGE_SE2, 14, 75)
    lin = problem.linearizer()
    errors = codegen.compile_edge(examples.EDGE_SE2).errors.interpret(problem.inputs())
    chi2 = np.einsum("mi,mij,mj->m", errors, problem.information, errors)
    np.testing.assert_allclose(lin.edge_chi2(0), chi2, rtol=1e-12)


def test_oplus_moves_optimized_vertices_only():
    """Oplus writes into the caller's array; a vertex without offset stays as it is, bitwise."""
    problem = DenseProblem(examples.EDGE_SE3, 100, 75, fixed=3)
    before = problem.estimates[0].copy()
    lin = problem.linearizer()
    dx = problem.rng.normal(size=problem.dim) * 0.1
    lin.oplus(dx)
    for row, start in enumerate(problem.offsets[0]):
        if start < 0:
            np.testing.assert_array_equal(problem.estimates[0][row], before[row])
        else:
            expected = examples.VERTEX_SE3.oplus(before[row], dx[start : start + 6])
            np.testing.assert_allclose(problem.estimates[0][row], expected, rtol=1e-13, atol=1e-14)


def test_push_pop_and_discard_restore_estimates():
    """Pop restores bitwise; discard_top keeps what is there; both without push are an error."""
    problem = DenseProblem(examples.EDGE_SE2, 14, 20)
    lin = problem.linearizer()
    before = problem.estimates[0].copy()
    lin.push()
    lin.oplus(np.ones(problem.dim))
    lin.pop()
    np.testing.assert_array_equal(problem.estimates[0], before)
    lin.push()
    lin.oplus(np.ones(problem.dim))
    after = problem.estimates[0].copy()
    lin.discard_top()
    np.testing.assert_array_equal(problem.estimates[0], after)
    with pytest.raises(RuntimeError, match="nothing was pushed"):
        lin.pop()
    with pytest.raises(RuntimeError, match="nothing was pushed"):
        lin.discard_top()


def test_first_non_finite_names_the_edge():
    """The first edge in the caller's order with a NaN is found; None where all is finite."""
    problem = DenseProblem(examples.EDGE_SE2, 14, 75)
    lin = problem.linearizer()
    assert lin.first_non_finite() is None
    problem.measurement[[60, 41], 1] = np.nan
    lin.set_edge_data(
        0, problem.measurement, codegen.pack_information(problem.information, "full"), problem.width
    )
    assert lin.first_non_finite() == (0, 41)
    assert np.isnan(lin.chi2())


def test_set_edge_data_replaces_measurements():
    """After set_edge_data the linearizer answers for the new data."""
    problem = DenseProblem(examples.EDGE_SE2, 14, 75)
    lin = problem.linearizer()
    problem.measurement += 0.3
    lin.set_edge_data(
        0, problem.measurement, codegen.pack_information(problem.information, "full"), problem.width
    )
    assert lin.chi2() == pytest.approx(problem.reference()[0], rel=1e-12)


def test_a_group_without_edges_contributes_nothing():
    """Zero edges: chi2 is 0, H and b are 0."""
    problem = DenseProblem(examples.EDGE_SE2, 6, 0)
    lin = problem.linearizer()
    values, b = np.full(problem.values_size, np.nan), np.full(problem.dim, np.nan)
    assert lin.linearize(values, b) == 0.0 == lin.chi2()
    assert not values.any() and not b.any()
    assert lin.edge_chi2(0).shape == (0,)


def test_wrong_arguments_are_refused_with_a_reason():
    """Shapes, dtypes, ranges and call order are checked before anything runs."""
    problem = DenseProblem(examples.EDGE_SE2, 6, 10)
    lin = problem.linearizer()
    with pytest.raises(ValueError, match="lengths"):
        lin.linearize(np.zeros(3), np.zeros(problem.dim))
    with pytest.raises(ValueError, match="float64"):
        lin.linearize(np.zeros(problem.values_size, dtype=np.float32), np.zeros(problem.dim))
    with pytest.raises(ValueError, match="no edge group 4"):
        lin.edge_chi2(4)
    with pytest.raises(ValueError, match="length 2"):
        lin.oplus(np.zeros(2))
    problem.rows[3, 1] = problem.rows[3, 0]
    with pytest.raises(ValueError, match="of a vertex set twice"):
        problem.linearizer()
    problem.rows[3, 1] = -1
    with pytest.raises(ValueError, match="edge 3 names row -1"):
        problem.linearizer()
    fresh = kernels.Linearizer()
    with pytest.raises(RuntimeError, match="prepare"):
        fresh.chi2()
    with pytest.raises(ValueError, match="read-only"):
        frozen = np.zeros((2, 3))
        frozen.flags.writeable = False
        fresh.add_vertex_set(frozen, codegen.compile_vertex(examples.VERTEX_SE2).native, np.array([0, 3]))
