"""A slow block solver in plain numpy: the truth that the fast ones are tested against.

Jacobians are central differences of the residual functions (or the type's own Jacobian, where g2o's is not
the derivative), H is assembled edge by edge group in scipy's sparse format, and the system is solved densely
or by SuperLU.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from graphopt.solver.trial import DefaultTrial
from graphopt.types.robust_kernels import robust_kernel

STEP = 1e-6
"""Step of the central differences."""
_DENSE_DIM = 600  # systems up to this size are solved densely


class ReferenceSolver(DefaultTrial):
    """Implements `solver.BlockSolver` over a graph and a structure."""

    def __init__(self, graph, structure, step: float = STEP):
        self.vertex_sets = structure.selection.vertex_sets
        self.parameter_sets = tuple(graph.parameter_sets)
        self.structure = structure
        self.dim = structure.dim
        self.step = step
        self.b = np.zeros(self.dim)
        self.dx = np.zeros(self.dim)
        self.hessian = scipy.sparse.csc_matrix((self.dim, self.dim))
        self.stack = []

    @property
    def diagonal(self):
        """Diagonal of H."""
        return self.hessian.diagonal()

    def errors(self, group, replaced=None, value=None):
        """(m, residual_dim) errors of a group; the estimates of slot `replaced` may be given as `value`."""
        edge_type = group.edge_set.type
        values = self.estimates_of(group)
        if replaced is not None:
            values[replaced] = value
        arguments = [vertex.wrap(v) for vertex, v in zip(edge_type.vertices, values, strict=True)]
        arguments += self.constants_of(group)
        return np.broadcast_to(edge_type.residual(*arguments), (len(group.rows), edge_type.residual_dim))

    def jacobians(self, group):
        """One (m, residual_dim, tangent_dim) array per slot."""
        edge_type = group.edge_set.type
        values = self.estimates_of(group)
        if edge_type.jacobian is not None:
            arguments = [vertex.wrap(v) for vertex, v in zip(edge_type.vertices, values, strict=True)]
            found = edge_type.jacobian(*arguments, *self.constants_of(group))
            shapes = [
                (len(group.rows), edge_type.residual_dim, each_vertex.tangent_dim)
                for each_vertex in edge_type.vertices
            ]
            return [np.broadcast_to(j, shape) for j, shape in zip(found, shapes, strict=True)]
        result = []
        for slot, vertex in enumerate(edge_type.vertices):
            columns = []
            for direction in np.eye(vertex.tangent_dim):
                delta = np.broadcast_to(self.step * direction, (len(group.rows), vertex.tangent_dim))
                plus = self.errors(group, slot, vertex.oplus(values[slot], delta))
                minus = self.errors(group, slot, vertex.oplus(values[slot], -delta))
                columns.append((plus - minus) / (2.0 * self.step))
            result.append(np.stack(columns, axis=-1))
        return result

    def linearize(self):
        """H, b and chi2."""
        self.b = np.zeros(self.dim)
        rows, cols, data, chi2 = [], [], [], 0.0
        for group in self.structure.groups:
            error = self.errors(group)
            rho, weight = self.robust(group, error)
            chi2 += rho.sum()
            information = weight[:, None, None] * group.edge_set.information[group.rows]
            jacobians = self.jacobians(group)
            offsets = [
                self.structure.vertex_offsets[number][group.vertex_rows[:, slot]]
                for slot, number in enumerate(group.vertex_sets)
            ]
            for jacobian_i, offset_i in zip(jacobians, offsets, strict=True):
                left = np.einsum("kdi,kde->kie", jacobian_i, information)
                free = offset_i >= 0
                index_i = offset_i[:, None] + np.arange(jacobian_i.shape[2])
                np.add.at(self.b, index_i[free], -np.einsum("kie,ke->ki", left, error)[free])
                for jacobian_j, offset_j in zip(jacobians, offsets, strict=True):
                    both = free & (offset_j >= 0)
                    block = np.einsum("kie,kej->kij", left, jacobian_j)[both]
                    index_j = offset_j[both][:, None] + np.arange(jacobian_j.shape[2])
                    rows.append(np.broadcast_to(index_i[both][:, :, None], block.shape).ravel())
                    cols.append(np.broadcast_to(index_j[:, None, :], block.shape).ravel())
                    data.append(block.ravel())
        triplets = (np.concatenate(data), (np.concatenate(rows), np.concatenate(cols)))
        self.hessian = scipy.sparse.coo_matrix(triplets, shape=(self.dim, self.dim)).tocsc()
        return float(chi2)

    def chi2(self):
        """Robustified chi2."""
        return float(sum(self.robust(group, self.errors(group))[0].sum() for group in self.structure.groups))

    def solve(self, damping):
        """(H + D) dx = b."""
        matrix = self.hessian + scipy.sparse.diags(np.broadcast_to(damping, self.dim).astype(float))
        if self.dim <= _DENSE_DIM:
            try:
                factor = np.linalg.cholesky(matrix.toarray())
            except np.linalg.LinAlgError:
                return False
            self.dx = np.linalg.solve(factor.T, np.linalg.solve(factor, self.b))
            return True
        options = {"SymmetricMode": True}
        try:
            lu = scipy.sparse.linalg.splu(
                matrix.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options
            )
        except RuntimeError:
            return False
        self.dx = lu.solve(self.b)
        return bool((lu.U.diagonal() > 0.0).all())

    def multiply(self, vector):
        """H times a vector."""
        return self.hessian @ vector

    def update(self):
        """Take dx."""
        for vertex_set, offset in zip(self.vertex_sets, self.structure.vertex_offsets, strict=True):
            free = offset >= 0
            index = offset[free][:, None] + np.arange(vertex_set.type.tangent_dim)
            vertex_set.estimate[free] = vertex_set.type.oplus(vertex_set.estimate[free], self.dx[index])

    def push(self):
        """Remember the estimates."""
        self.stack.append([vertex_set.estimate.copy() for vertex_set in self.vertex_sets])

    def pop(self):
        """Return to the last push."""
        for vertex_set, estimate in zip(self.vertex_sets, self.stack.pop(), strict=True):
            vertex_set.estimate = estimate

    def discard_top(self):
        """Forget the last push."""
        self.stack.pop()

    def first_non_finite(self):
        """Not told."""
        return None

    def finish(self):
        """The estimates are the graph's own."""
        pass

    def describe(self):
        """Words for the summary."""
        return {
            "linear_solver": "reference",
            "schur": "off",
            "device": "numpy",
            "device_name": "numpy",
            "precision": "double",
            "memory_bytes": 0,
        }

    def estimates_of(self, group):
        """Of each vertex slot."""
        return [
            self.vertex_sets[number].estimate[group.vertex_rows[:, slot]]
            for slot, number in enumerate(group.vertex_sets)
        ]

    def constants_of(self, group):
        """Wrapped parameters and measurement."""
        edge_type = group.edge_set.type
        parameters = [
            parameter.wrap(self.parameter_sets[number].values[group.parameter_rows[:, slot]])
            for slot, (number, parameter) in enumerate(
                zip(group.parameter_sets, edge_type.parameters, strict=True)
            )
        ]
        return [*parameters, edge_type.wrap_measurement(group.edge_set.measurement[group.rows])]

    def robust(self, group, error):
        """rho and weight of each edge."""
        squared = np.einsum("ki,kij,kj->k", error, group.edge_set.information[group.rows], error)
        if not group.kernel:
            return squared, np.ones(len(squared))
        return robust_kernel(group.kernel).function(squared, group.edge_set.kernel_width[group.rows])
