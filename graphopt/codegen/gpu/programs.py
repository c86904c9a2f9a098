"""The functions that GPU kernels evaluate per edge, each with the outputs of one kernel only.

With residual e, information Omega, Jacobians J_a, weight w = rho' of the robust kernel at s = e' Omega e:

    chi2                rho(s)
    linearize a         upper triangle of J_a' w Omega J_a by columns, -J_a' w Omega e, rho(s)
    pair a b            J_a' w Omega J_b by columns
    product a, B        J_a' (w Omega (sum over t in B of J_t x_t))

Inputs: storage of vertices and parameters, measurement, information, width of the robust kernel, then for
products x_t per slot of B. After these outputs each program has its *guides*: residual, weight, and the
Jacobians that linearize and pair are made of. What they depend on is computed in float64 by the mixed
arithmetic; kernels leave out what only guides need.

The robust kernel's function is called with the symbol of s, so its operations are shared and simplified with
the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphopt.codegen.cache import cached
from graphopt.codegen.edge import LOCK, Information, dot
from graphopt.codegen.gpu.layout import EdgeSignature, numbered
from graphopt.codegen.program import Program
from graphopt.codegen.trace import TracedEdge, trace_edge
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
from graphopt.types.robust_kernels import robust_kernel


class SymbolicEdge:
    """An edge with its information matrix and robust kernel, as symbols."""

    def __init__(self, signature: EdgeSignature):
        self.traced: TracedEdge = trace_edge(signature.edge_type)
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

    def guides(self, slots: Sequence[int]) -> list[Expr]:
        """Values that are computed in wide numbers: residual, weight and the Jacobians of these slots."""
        blocks = self.traced.jacobians() if slots else []
        return [*self.residual, self.weight, *(x for slot in slots for x in blocks[slot].ravel())]

    def definition(self) -> list[Expr]:
        """Everything that, with its name, determines a program."""
        return [*self.traced.definition(), self.rho, self.weight]

    def information_times(self, vector: Sequence[Expr]) -> list[Expr]:
        """W Omega times a vector."""
        return [make("mul", self.weight, dot(row, vector)) for row in self.information.matrix]

    def columns(self, slot: int) -> list[list[Expr]]:
        """Jacobian of a slot by columns."""
        return [list(column) for column in self.traced.jacobians()[slot].T]

    def products(self, columns: list[list[Expr]]) -> list[list[Expr]]:
        """Return w Omega times each column."""
        matrix = [[make("mul", self.weight, x) for x in row] for row in self.information.matrix]
        return [[dot(row, column) for row in matrix] for column in columns]


def chi2_program(signature: EdgeSignature) -> Program:
    """-> rho, guides."""
    return _compile(signature, "chi2", lambda edge: [edge.rho])


def linearize_program(signature: EdgeSignature, slot: int) -> Program:
    """-> upper triangle of H_aa by columns, b_a, rho, guides."""

    def outputs(edge: SymbolicEdge) -> list[Expr]:
        left = edge.columns(slot)
        right = edge.products(left)
        hessian = [dot(left[i], right[j]) for j in range(len(left)) for i in range(j + 1)]
        gradient = [make("neg", dot(column, edge.weighted)) for column in left]
        return [*hessian, *gradient, edge.rho]

    return _compile(signature, f"linearize{slot}", outputs, guided=(slot,))


def pair_program(signature: EdgeSignature, a: int, b: int) -> Program:
    """-> H_ab by columns, guides."""

    def outputs(edge: SymbolicEdge) -> list[Expr]:
        blocks = edge.traced.jacobians()
        left = [list(column) for column in blocks[a].T]
        right = edge.products([list(column) for column in blocks[b].T])
        return [dot(column, product) for product in right for column in left]

    return _compile(signature, f"pair{a}_{b}", outputs, guided=(a, b))


def product_program(signature: EdgeSignature, slot: int, sources: tuple[int, ...]) -> Program:
    """-> J_a' w Omega sum_t J_t x_t, guides. Inputs end with x_t for each t of `sources`."""
    names = vector_names(signature, sources)

    def outputs(edge: SymbolicEdge) -> list[Expr]:
        vectors = [[var(name) for name in vector] for vector in names]
        moved = _directional(edge, sources, vectors)
        return _transposed(edge, slot, edge.information_times(moved))

    name = f"product{slot}.{'_'.join(map(str, sources))}"
    return _compile(signature, name, outputs, [name for vector in names for name in vector])


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


def _compile(
    signature: EdgeSignature,
    kind: str,
    outputs: Callable[[SymbolicEdge], list[Expr]],
    more_inputs: Sequence[str] = (),
    guided: Sequence[int] = (),
) -> Program:
    kernel = f".{robust_kernel(signature.kernel).name}" if signature.kernel else ""
    name = f"{signature.edge_type.name}.gpu.{kind}.{signature.information}{kernel}"
    with LOCK, fresh_table():
        edge = SymbolicEdge(signature)
        inputs = [*edge.inputs, *map(var, more_inputs)]
        return cached(name, inputs, edge.definition(), lambda: [*outputs(edge), *edge.guides(guided)])


def _cheaper(candidates: Sequence[list[Expr]]) -> list[Expr]:
    """The list of expressions with fewest operations; the first of equals."""
    return min(candidates, key=lambda expressions: sum(count_operations(expressions).values()))


def _directional(edge: SymbolicEdge, sources: Sequence[int], vectors: Sequence[Sequence[Expr]]) -> list[Expr]:
    """Sum of J_t x_t: products with the Jacobian, or the derivative along one direction (forward mode)."""
    blocks = edge.traced.jacobians()
    explicit = [
        _sum([dot(list(blocks[t][i]), x) for t, x in zip(sources, vectors, strict=True)])
        for i in range(len(edge.residual))
    ]
    if edge.traced.own_jacobian is not None:
        return explicit
    seed: dict[Expr, Expr] = {}
    for t, x in zip(sources, vectors, strict=True):
        rates = edge.traced.moved[t].seeds(edge.traced.vertex_names[t])
        for variable in rates[0]:
            seed[variable] = dot([rate[variable] for rate in rates], x)
    return _cheaper([explicit, [row[0] for row in jacobian(edge.residual, [seed])]])


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
