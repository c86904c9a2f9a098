"""The block solver of a graph whose computed values are kept in arrays.

    values c and their derivatives L are computed once per linearization, the values once per trial;
    a block solver of any device linearises the edges as functions of what they name: H_in, b_in;
    H = E' H_in E,  b = E' b_in,   E: the chain rule (`chain`)

This is Gauss-Newton's H of the residuals with the values put in, term by term. It is either formed, by
products of sparse matrices, and factorized, or conjugate gradients multiply by E, H_in and E' in turn: then
an edge costs what it names, however many unknowns its values are sums of.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse

from graphopt.computed.chain import Chain
from graphopt.computed.device_solver import DeviceValuesSolver, device_values_solver
from graphopt.computed.structure import outer_selection
from graphopt.device import is_driven, open_device
from graphopt.errors import GraphError, OptionError
from graphopt.graph import Graph, Selection
from graphopt.linear import BlockPattern
from graphopt.linear.conjugate_gradients import conjugate_gradients
from graphopt.linear.options import SolverOptions
from graphopt.linear.pcg import PCG_TOLERANCE
from graphopt.linear.table import LINEAR_SOLVERS, DirectSolver, factorizes, iterates
from graphopt.linear.vectors import dot
from graphopt.problem.inline import refuse_missing_values
from graphopt.problem.structure import Structure
from graphopt.problem.working import WorkingEstimates
from graphopt.solver.capabilities import capabilities_of
from graphopt.solver.cpu import make_linearizer
from graphopt.solver.create import create_block_solver
from graphopt.solver.trial import Damping, HostVectors, Trial

MOST_FORMED = 40_000_000
"""Multiplications of one product E' H_in E up to which H is formed and factorized."""


def check_values(graph: Graph, selection: Selection, options: SolverOptions) -> None:
    """Raise where values cannot be kept in arrays."""
    refuse_missing_values(graph, selection)
    if options.schur not in ("auto", "off"):
        raise OptionError(
            f"schur is '{options.schur}': nothing is eliminated where values are kept in arrays. "
            "Use computed='inline' or schur='off'."
        )
    for vertex_set in selection.vertex_sets:
        if vertex_set.holds_components:
            raise GraphError(
                f"{vertex_set.type.tag} has vertices that hold components, which needs computed='inline'."
            )


class MaterializedSolver(HostVectors):
    """Implements `BlockSolver`; see the module's header."""

    def __init__(self, graph: Graph, selection: Selection, options: SolverOptions):
        check_values(graph, selection, options)
        self.structure = outer = Structure(outer_selection(graph, selection))
        self.dim = outer.dim
        inner_structure = Structure(selection)
        inside = replace(options, linear_solver="pcg", schur="off", pcg_tolerance=None, pcg_iterations=None)
        if is_driven(options.device) and options.precision == "auto":
            has_double = open_device(options.device).has_float64  # the chain rule is in double as well
            inside = replace(inside, precision="double" if has_double else "auto")
        self.inner: Any = create_block_solver(graph, inner_structure, inside)
        self._inner_structure = inner_structure
        self._estimates = [WorkingEstimates(vertex_set) for vertex_set in selection.vertex_sets]
        self._mover, _ = make_linearizer(graph.parameter_sets, outer, self._estimates, [])
        self._chain = Chain(graph, outer, inner_structure, self._estimates)
        self._tolerance = options.pcg_tolerance or PCG_TOLERANCE
        self._most = options.pcg_iterations or self.dim
        self._direct = self._choose_direct(options)
        self._b, self._dx, self._diagonal = np.zeros((3, self.dim))
        self.num_products = 0
        """H times a vector, since the solver was made."""
        self._was_coarse = False
        self._compute()

    def _choose_direct(self, options: SolverOptions) -> Any:
        if iterates(options.linear_solver):
            return None
        is_asked = factorizes(options.linear_solver)
        matrix = self._chain.matrix()
        if matrix is None:
            if is_asked:
                raise OptionError(
                    f"linear_solver '{options.linear_solver}' needs H, which sums over a grid fill. "
                    "Use linear_solver='pcg'."
                )
            return None
        if not is_asked and not capabilities_of(self.inner).snapshot:
            return None
        counts = np.diff(matrix.indptr).astype(float)
        if not is_asked and dot(counts, counts) >= MOST_FORMED:
            return None
        return FormedSystem(self._inner_structure.pattern, options.linear_solver if is_asked else "cholesky")

    # ---------------------------------------------------------------- evaluation

    @property
    def precision(self) -> str:
        """Of the edges' H; the chain rule is in double."""
        return self.inner.precision

    @property
    def diagonal(self) -> np.ndarray:
        """(dim,) diagonal of H; with conjugate gradients without what different values of an edge share."""
        return self._diagonal

    def chi2(self) -> float:
        """Robustified chi2 at the estimates."""
        return self.inner.chi2()

    def linearize(self) -> float:
        """H, b and the robustified chi2."""
        chi2 = self.inner.linearize()
        self._chain.linearize()
        self._b[:] = self._chain.contract(self.inner.b)
        if self._direct is None:
            self._diagonal[:] = self._chain.contract_squared(self.inner.diagonal)
        else:
            matrix = self._chain.matrix()
            assert matrix is not None
            self._diagonal[:] = self._direct.form(matrix, self.inner.values)
        return chi2

    def multiply(self, vector: np.ndarray) -> np.ndarray:
        """H times a vector."""
        self.num_products += 1
        return self._chain.contract(self.inner.multiply(self._chain.expand(vector)))

    # ---------------------------------------------------------------- steps

    def solve(self, damping: float | np.ndarray) -> bool:
        """(H + D) dx = b."""
        return self._solve(damping, self._tolerance)

    def trial(self, damping: Damping) -> Trial:
        """Solve as closely as the damping asks, push, update and chi2."""
        own = self._tolerance
        if damping.accuracy is not None:
            self._tolerance = max(own, damping.accuracy**2)
        try:
            self._was_coarse = False
            found = super().trial(damping)
        finally:
            self._tolerance = own
        return replace(found, is_coarse=self._was_coarse)

    def _solve(self, damping: float | np.ndarray, tolerance: float) -> bool:
        if self._direct is not None:
            return self._direct.solve(damping, self._b, self._dx)
        shifted = self._diagonal + damping
        if not (shifted > 0.0).all():
            return False
        found = conjugate_gradients(
            lambda d: self.multiply(d) + damping * d, lambda r: r / shifted, self._b, tolerance, self._most
        )
        if not found.is_definite:
            return False
        self._was_coarse = tolerance > PCG_TOLERANCE
        self._dx[:] = found.x
        return True

    def update(self) -> None:
        """Estimates <- estimates oplus dx, and the values there."""
        self._mover.oplus(self._dx)
        self._compute()

    def push(self) -> None:
        """Remember the estimates."""
        self._mover.push()

    def pop(self) -> None:
        """Return to the last push."""
        self._mover.pop()
        self._compute()

    def discard_top(self) -> None:
        """Forget the last push."""
        self._mover.discard_top()

    def _compute(self) -> None:
        """The values, and the present estimates for who evaluates the edges."""
        self._chain.compute()
        self.finish()
        if capabilities_of(self.inner).snapshot:
            self.inner.take_all_estimates()
        else:
            self.inner.refresh()

    # ---------------------------------------------------------------- the graph

    def refresh(self) -> None:
        """Take what has changed in the graph."""
        for estimate in self._estimates:
            estimate.read()
        self._compute()
        self.inner.refresh()

    def finish(self) -> None:
        """Bring the estimates into the graph."""
        for estimate in self._estimates:
            estimate.write()

    def external(self, places: Any) -> Any:
        """Not here: edges that Python evaluates name no computed values."""
        raise GraphError("Edges that are evaluated elsewhere and computed values do not go together.")

    def first_non_finite(self) -> str | None:
        """Name the first edge whose error or Jacobian is not finite."""
        return self.inner.first_non_finite()

    def describe(self) -> dict[str, object]:
        """What solves what, where."""
        own = sum(estimate.nbytes for estimate in self._estimates) + 8 * 6 * self.dim
        found = dict(self.inner.describe())
        memory = int(found.get("memory_bytes", 0)) + own + self._chain.nbytes  # type: ignore[arg-type]
        name = "pcg" if self._direct is None else self._direct.linear_solver
        factorized_on = "" if self._direct is None else "cpu"
        return {
            **found,
            "linear_solver": name,
            "factorized_on": factorized_on,
            "schur": "off",
            "memory_bytes": memory,
        }


def materialized_solver(
    graph: Graph, selection: Selection, options: SolverOptions, seconds: dict[str, float]
) -> MaterializedSolver | DeviceValuesSolver:
    """A new solver, on the device where that can be; adds to `seconds["prepare"]`."""
    start = time.perf_counter()
    check_values(graph, selection, options)
    solver = device_values_solver(graph, selection, options)
    if solver is None:
        solver = MaterializedSolver(graph, selection, options)
    seconds["prepare"] += time.perf_counter() - start
    return solver


class FormedSystem:
    """H = E' H_in E as a sparse matrix of scalars, and its factor."""

    def __init__(self, pattern: BlockPattern, linear_solver: str):
        self.linear_solver = linear_solver
        blocks, dims = pattern, pattern.dims.astype(np.int64)
        row, col = blocks.row_idx.astype(np.int64), np.repeat(np.arange(len(dims)), np.diff(blocks.col_ptr))
        sizes = dims[row] * dims[col]
        owner = np.repeat(np.arange(len(row)), sizes)
        within = np.arange(len(owner)) - np.repeat(blocks.value_offsets[:-1], sizes)
        self._rows = pattern.offsets[row][owner] + within % dims[row][owner]
        self._columns = pattern.offsets[col][owner] + within // dims[row][owner]
        self._is_below = self._rows > self._columns  # of diagonal blocks, which are stored in full
        self._dim = pattern.dim
        self._solver: DirectSolver | None = None
        self._matrix: Any = None

    def form(self, chain: scipy.sparse.csr_matrix, values: np.ndarray) -> np.ndarray:
        """Take H_in's numbers; returns the diagonal of H."""
        kept = ~self._is_below
        shape = (self._dim, self._dim)
        upper = scipy.sparse.csr_matrix((values[kept], (self._rows[kept], self._columns[kept])), shape=shape)
        whole = upper + scipy.sparse.triu(upper, 1).T
        product: Any = scipy.sparse.triu(chain.T @ (whole @ chain), format="coo")
        every = np.arange(product.shape[0])  # a sum of sparse matrices would leave out what is zero
        entries = np.append(product.data, np.zeros(len(every)))
        places = np.append(product.row, every), np.append(product.col, every)
        found: Any = scipy.sparse.coo_matrix((entries, places), product.shape).tocsc()
        found.sort_indices()
        last = self._matrix
        if (
            last is None
            or not np.array_equal(found.indptr, last.indptr)
            or not np.array_equal(found.indices, last.indices)
        ):
            pattern = BlockPattern(np.ones(found.shape[0], np.int32), found.indptr, found.indices)
            self._solver = LINEAR_SOLVERS.row(self.linear_solver).make_direct(pattern)
        self._matrix = found
        return np.asarray(found.diagonal())

    def solve(self, damping: float | np.ndarray, b: np.ndarray, dx: np.ndarray) -> bool:
        """(H + D) dx = b; False: not positive definite."""
        assert self._solver is not None
        shift = np.ascontiguousarray(np.broadcast_to(damping, b.shape), np.float64)
        if not self._solver.factorize(self._matrix.data, shift):
            return False
        self._solver.solve(b, out=dx)
        return True
