"""The functions that GPU kernels evaluate per edge, each with the outputs of one kernel only.

With residual e, information Omega, Jacobians J_a, weight w = rho' of the robust kernel at s = e' Omega e:

    chi2                rho(s)
    linearize a         upper triangle of J_a' w Omega J_a by columns, -J_a' w Omega e, rho(s)
    pair a b            J_a' w Omega J_b by columns
    product a, B        J_a' (w Omega (sum over t in B of J_t x_t))
    moved B             t = w Omega (sum over t in B of J_t x_t)
    transposed a        J_a' t
    factors a, B        w Omega J_a, then J_t for t in B, by rows
    blocks a, B         J_a' w Omega J_t for t in B, by rows

Of an exact signature, linearize and pair have second derivatives of rho / 2 instead (`second_order`).

Inputs: storage of vertices and parameters, measurement, information, width of the robust kernel, then for
products x_t per slot of B. After these outputs each program has its *guides*: residual, weight, and the
Jacobians that linearize and pair are made of. What they depend on is computed in float64 by the mixed
arithmetic; kernels leave out what only guides need.

The robust kernel's function is called with the symbol of s, so its operations are shared and simplified with
the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property, lru_cache

import numpy as np

from graphopt.codegen.cache import Definition, cached
from graphopt.codegen.edge import Information, dot
from graphopt.codegen.gpu.layout import EdgeSignature, numbered
from graphopt.codegen.program import Program
from graphopt.codegen.second_order import Objective
from graphopt.codegen.trace import TracedEdge, traced_before
from graphopt.codegen.workspace import workspace
from graphopt.symbolic import (
    Expr,
    const,
    count_operations,
    fresh_table,
    jacobian,
    lift,
    make,
    substitute,
    var,
)
from graphopt.symbolic.expr import Checkpoint
from graphopt.types.robust_kernels import robust_kernel


class SymbolicEdge:
    """An edge with its information matrix and robust kernel, as symbols.

    Made in a fresh table; the programs of a signature go on from there, each with a `copy`.
    """

    def __init__(self, signature: EdgeSignature):
        self.traced: TracedEdge = traced_before(signature.edge_type)
        self.residual = self.traced.residual
        self.information = Information(signature.information, len(self.residual))
        self.inputs: list[Expr] = [*self.traced.inputs, *self.information.inputs]
        omega_e = [dot(row, self.residual) for row in self.information.matrix]
        self.rho = dot(self.residual, omega_e)
        self.weight: Expr = const(1.0)
        if signature.kernel:
            width = var("width")
            self.inputs.append(width)
            self.rho, self.weight = map(lift, robust_kernel(signature.kernel).function(self.rho, width))
        self.weighted = [make("mul", self.weight, x) for x in omega_e]
        self.definition = Definition([*self.traced.definition(), self.rho, self.weight])
        """With its name and inputs, it determines a program."""

    @cached_property
    def jacobians(self) -> list[np.ndarray]:
        """Per vertex the (residual_dim, tangent_dim) derivative of the residual by the tangent."""
        return self.traced.jacobians()

    def guides(self, slots: Sequence[int]) -> list[Expr]:
        """Values that are computed in wide numbers: residual, weight and the Jacobians of these slots."""
        return [*self.residual, self.weight, *(x for slot in slots for x in self.jacobians[slot].ravel())]

    def information_times(self, vector: Sequence[Expr]) -> list[Expr]:
        """W Omega times a vector."""
        return [make("mul", self.weight, dot(row, vector)) for row in self.information.matrix]

    def columns(self, slot: int) -> list[list[Expr]]:
        """Jacobian of a slot by columns."""
        return [list(column) for column in self.jacobians[slot].T]

    def products(self, columns: list[list[Expr]]) -> list[list[Expr]]:
        """Return w Omega times each column."""
        matrix = [[make("mul", self.weight, x) for x in row] for row in self.information.matrix]
        return [[dot(row, column) for row in matrix] for column in columns]


def chi2_program(signature: EdgeSignature) -> Program:
    """-> rho, guides."""
    return compile_program(signature, "chi2", lambda edge: [edge.rho])


def linearize_program(signature: EdgeSignature, slot: int) -> Program:
    """-> upper triangle of H_aa by columns, b_a, rho, guides."""
    if signature.is_exact:
        return _exact_program(
            signature,
            f"linearize{slot}",
            (slot,),
            lambda f: [*f.hessian(slot, slot), *f.descent(slot), f.rho],
        )

    def outputs(edge: SymbolicEdge) -> list[Expr]:
        left = edge.columns(slot)
        return [*vertex_sums(left, edge.products(left), edge.weighted), edge.rho]

    return compile_program(signature, f"linearize{slot}", outputs, guided=(slot,))


def pair_program(signature: EdgeSignature, a: int, b: int) -> Program:
    """-> H_ab by columns, guides."""
    if signature.is_exact:
        return _exact_program(signature, f"pair{a}_{b}", (a, b), lambda f: f.hessian(a, b))

    def outputs(edge: SymbolicEdge) -> list[Expr]:
        return pair_sums(edge.columns(a), edge.products(edge.columns(b)))

    return compile_program(signature, f"pair{a}_{b}", outputs, guided=(a, b))


def _exact_program(
    signature: EdgeSignature, kind: str, slots: tuple[int, ...], outputs: Callable[[Objective], list[Expr]]
) -> Program:
    """The program of these outputs of f = rho / 2, then guides."""
    kernel = robust_kernel(signature.kernel)
    name = f"{signature.edge_type.name}.gpu.exact.{kind}.{signature.information}.{kernel.name}"
    with workspace():
        objective = Objective(signature.edge_type, signature.information, kernel.function)
        inputs = objective.kernel_inputs(signature.kernel != 0)
        definition = Definition(objective.definition())
        return cached(name, inputs, definition, lambda: [*outputs(objective), *objective.guides(slots)])


def vertex_sums(left: list[list[Expr]], right: list[list[Expr]], weighted: Sequence[Expr]) -> list[Expr]:
    """Upper triangle of J' (w Omega J) by columns, -J' (w Omega e)."""
    hessian = [dot(left[i], right[j]) for j in range(len(left)) for i in range(j + 1)]
    return hessian + [make("neg", dot(column, weighted)) for column in left]


def pair_sums(left: list[list[Expr]], right: list[list[Expr]]) -> list[Expr]:
    """J_a' (w Omega J_b) by columns."""
    return [dot(column, product) for product in right for column in left]


def product_program(signature: EdgeSignature, slot: int, sources: tuple[int, ...]) -> Program:
    """-> J_a' w Omega sum_t J_t x_t, guides. Inputs end with x_t for each t of `sources`."""
    names = vector_names(signature, sources)

    def outputs(edge: SymbolicEdge) -> list[Expr]:
        vectors = [[var(name) for name in vector] for vector in names]
        moved = _directional(edge, sources, vectors)
        return _transposed(edge, slot, edge.information_times(moved))

    name = f"product{slot}.{'_'.join(map(str, sources))}"
    return compile_program(signature, name, outputs, [name for vector in names for name in vector])


def moved_program(signature: EdgeSignature, sources: tuple[int, ...]) -> Program:
    """-> w Omega sum_t J_t x_t, guides. Inputs end with x_t for each t of `sources`."""
    names = vector_names(signature, sources)

    def outputs(edge: SymbolicEdge) -> list[Expr]:
        vectors = [[var(name) for name in vector] for vector in names]
        return edge.information_times(_directional(edge, sources, vectors))

    name = f"moved{'_'.join(map(str, sources))}"
    return compile_program(signature, name, outputs, [name for vector in names for name in vector])


def transposed_program(signature: EdgeSignature, slot: int) -> Program:
    """-> J_a' t, guides. Inputs end with t, `moved_names`."""
    names = moved_names(signature)
    return compile_program(
        signature, f"transposed{slot}", lambda edge: _transposed(edge, slot, [*map(var, names)]), names
    )


def moved_names(signature: EdgeSignature) -> Sequence[str]:
    """Names of the entries of t = w Omega J x."""
    return numbered("moved", signature.edge_type.residual_dim)


def factors_program(signature: EdgeSignature, slot: int, sources: tuple[int, ...]) -> Program:
    """-> w Omega J_a by rows, J_t by rows for each t of `sources`, guides."""

    def outputs(edge: SymbolicEdge) -> list[Expr]:
        blocks = edge.jacobians
        weighted = edge.products(edge.columns(slot))
        left = [column[i] for i in range(len(edge.residual)) for column in weighted]
        return [*left, *(x for t in sources for x in blocks[t].ravel())]

    name = f"factors{slot}.{'_'.join(map(str, sources))}"
    return compile_program(signature, name, outputs, guided=_distinct(slot, sources))


def blocks_program(signature: EdgeSignature, slot: int, sources: tuple[int, ...]) -> Program:
    """-> J_a' w Omega J_t by rows for each t of `sources`, guides."""

    def outputs(edge: SymbolicEdge) -> list[Expr]:
        left = edge.columns(slot)
        right = [edge.products(edge.columns(t)) for t in sources]
        return [dot(column, product) for products in right for column in left for product in products]

    name = f"blocks{slot}.{'_'.join(map(str, sources))}"
    return compile_program(signature, name, outputs, guided=_distinct(slot, sources))


def _distinct(slot: int, sources: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({slot, *sources}))


def guide_names(signature: EdgeSignature, slots: Sequence[int]) -> list[str]:
    """Names of the guides of a program with the Jacobians of these slots."""
    kind = signature.edge_type
    names = [*numbered("e", kind.residual_dim), "weight"]
    for slot in slots:
        dims = kind.residual_dim, kind.vertices[slot].tangent_dim
        names += [f"J{slot}_{i}_{j}" for i in range(dims[0]) for j in range(dims[1])]
    return names


def vector_names(signature: EdgeSignature, sources: Sequence[int]) -> list[list[str]]:
    """Names of the entries of x_t per source slot."""
    vertices = signature.edge_type.vertices
    return [[f"x{t}_{i}" for i in range(vertices[t].tangent_dim)] for t in sources]


def compile_program(
    signature: EdgeSignature,
    kind: str,
    outputs: Callable[[SymbolicEdge], list[Expr]],
    more_inputs: Sequence[str] = (),
    guided: Sequence[int] = (),
) -> Program:
    """The program of these outputs of an edge, then guides with the Jacobians of the slots `guided`."""
    kernel = f".{robust_kernel(signature.kernel).name}" if signature.kernel else ""
    name = f"{signature.edge_type.name}.gpu.{kind}.{signature.information}{kernel}"
    with workspace():
        start = _start(signature)
        edge = start.edge()
        inputs = [*edge.inputs, *map(var, more_inputs)]

        def all_outputs() -> list[Expr]:
            # what is made before the Jacobians changes their order in the program, and so its text
            differentiated = start.differentiated_edge() if guided and not more_inputs else edge
            return [*outputs(differentiated), *differentiated.guides(guided)]

        return cached(name, inputs, edge.definition, all_outputs)


class _Start:
    """Where the programs of one signature begin: its edge, and the same with its Jacobians."""

    def __init__(self, signature: EdgeSignature):
        with fresh_table():
            self._edge = SymbolicEdge(signature)
            self._known = Checkpoint()
        self._differentiated: tuple[SymbolicEdge, Checkpoint] | None = None

    def edge(self) -> SymbolicEdge:
        """The edge, when nothing else is known."""
        self._known.restore()
        return copy(self._edge)

    def differentiated_edge(self) -> SymbolicEdge:
        """The edge, when its Jacobians are known and nothing else."""
        if self._differentiated is None:
            edge = self.edge()
            _ = edge.jacobians
            self._differentiated = edge, Checkpoint()
        edge, known = self._differentiated
        known.restore()
        return edge


@lru_cache(maxsize=4)
def _start(signature: EdgeSignature) -> _Start:
    return _Start(signature)


def _cheaper(candidates: Sequence[list[Expr]]) -> list[Expr]:
    """The list of expressions with fewest operations; the first of equals."""
    return min(candidates, key=lambda expressions: sum(count_operations(expressions).values()))


def _directional(edge: SymbolicEdge, sources: Sequence[int], vectors: Sequence[Sequence[Expr]]) -> list[Expr]:
    """Sum of J_t x_t: products with the Jacobian, or the derivative along one direction (forward mode)."""
    explicit = _jacobians_times(edge, sources, vectors)
    if edge.traced.own_jacobian is not None:
        return explicit
    seed: dict[Expr, Expr] = {}
    for t, x in zip(sources, vectors, strict=True):
        rates = edge.traced.moved[t].seeds(edge.traced.vertex_names[t])
        for variable in rates[0]:
            seed[variable] = dot([rate[variable] for rate in rates], x)
    return _cheaper([explicit, [row[0] for row in jacobian(edge.residual, [seed])]])


def _jacobians_times(
    edge: SymbolicEdge, sources: Sequence[int], vectors: Sequence[Sequence[Expr]]
) -> list[Expr]:
    """Sum of J_t x_t."""
    blocks = edge.jacobians
    return [
        _sum([dot(list(blocks[t][i]), x) for t, x in zip(sources, vectors, strict=True)])
        for i in range(len(edge.residual))
    ]


def _transposed(edge: SymbolicEdge, slot: int, vector: Sequence[Expr]) -> list[Expr]:
    """J_a' v: products with the Jacobian, or the gradient of v'e with v held (reverse mode)."""
    explicit = [dot(column, vector) for column in edge.columns(slot)]
    if edge.traced.own_jacobian is not None:
        return explicit
    held = [var(f"held_{i}") for i in range(len(vector))]
    seeds = edge.traced.moved[slot].seeds(edge.traced.vertex_names[slot])
    [gradient] = jacobian([dot(held, edge.residual)], seeds)
    reverse = substitute(gradient, dict(zip(held, vector, strict=True)))
    return _cheaper([explicit, reverse])


def _sum(terms: Sequence[Expr]) -> Expr:
    total = const(0.0)
    for term in terms:
        total = make("add", total, term)
    return total
