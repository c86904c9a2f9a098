"""Programs of an edge type's second derivatives, for derivatives of an optimum.

With f = rho(s) / 2, s = e' Omega e, weight w = rho'(s), Jacobians J_a per vertex:

    gradient    g_a  = w J_a' Omega e
    curvature   K_ab = w J_a' Omega J_b + w sum_k (Omega e)_k d2 e_k + 2 w' (J_a' Omega e) (J_b' Omega e)'
    adjoint     d phi / d input,   phi = sum_a lambda_a' g_a

J is the derivative of the residual here, also where a type has a Jacobian of its own. Second derivatives are
taken along the directions of oplus at 0; where the gradient vanishes their sum does not depend on the choice.

`curvature` has the outputs of `edge`'s linearize (K instead of J' w Omega J, b = -g) and stands in its place;
the kernel's width is a number behind the measurement, as the kernel is part of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from graphopt.codegen.cache import Definition, cached
from graphopt.codegen.edge import Information, RobustKernel, dot
from graphopt.codegen.program import Program
from graphopt.codegen.trace import MovedVertex, TracedEdge, call_with_symbols, trace_edge, trace_oplus
from graphopt.codegen.workspace import workspace
from graphopt.symbolic import Expr, as_exprs, const, jacobian, lift, make, substitute, var, variables
from graphopt.types.base import EdgeType, VertexType, working_edge_type
from graphopt.types.cache import per_type_cache
from graphopt.types.robust_kernels import robust_kernel

ADJOINT_INPUTS = ("estimate", "values", "measurement", "kernel_width", "information")
"""What an edge's objective depends on: storage of its vertices and of its parameters, and its own data."""


@dataclass(frozen=True, eq=False)
class CurvatureKernels:
    """Programs that stand where those of `edge.EdgeKernels` do."""

    chi2: Program
    """-> rho, e' Omega e, e"""
    linearize: Program
    """-> rho, upper triangle of the Hessian of f by pairs, minus its gradient"""


@per_type_cache
def compile_curvature(edge_type: EdgeType, information: str, kernel: int) -> CurvatureKernels:
    """Curvature of an edge type between working forms.

    information: variant as in `edge`; kernel: number of the robust kernel.
    """
    with workspace():
        objective = Objective(edge_type, information, robust_kernel(kernel).function)
        name = f"{edge_type.name}.{{}}.{information}.{kernel}"
        definition = Definition(objective.definition())
        programs = [
            cached(name.format(kind), objective.inputs(), definition, outputs)
            for kind, outputs in (("objective", objective.chi2), ("curvature", objective.curvature))
        ]
        return CurvatureKernels(*programs)


@per_type_cache
def compile_constraint(edge_type: EdgeType) -> Program:
    """Curvature of an edge's numbers c, between working forms, weighted by multipliers y.

    Inputs: those of the edge, then y (residual_dim). Outputs: c, per vertex the Jacobian row by row, and the
    upper triangle of sum_k y_k d2 c_k by pairs, as `curvature` has it; of c(x oplus delta) at delta = 0.
    """
    with workspace():
        edge = trace_edge(replace(edge_type, jacobian=None, made_by=None))
        multipliers = as_exprs(variables("multiplier", len(edge.residual)))

        def outputs() -> list[Expr]:
            slopes = [x for block in edge.jacobians() for x in block.ravel()]
            return [*edge.residual, *slopes, *_bent(edge, multipliers)]

        inputs = [*edge.inputs, *multipliers]
        return cached(f"{edge_type.name}.constraint", inputs, Definition(edge.definition()), outputs)


def _bent(edge: TracedEdge, multipliers: list[Expr]) -> list[Expr]:
    """sum_k y_k d2 c_k by pairs, along what oplus does."""
    moved: dict[Expr, Expr] = {}
    deltas = []
    for number, vertex in enumerate(edge.moved):
        delta = as_exprs(variables(f"delta{number}_", len(vertex.delta)))
        there = substitute(vertex.moved, dict(zip(as_exprs(vertex.delta), delta, strict=True)))
        moved.update(zip(as_exprs(vertex.storage), there, strict=True))
        deltas.append(delta)
    weighted = dot(multipliers, substitute(edge.residual, moved))
    seeds = [{x: const(1.0)} for delta in deltas for x in delta]
    columns = [row[0] for row in zip(*jacobian([weighted], seeds), strict=True)]
    bent = jacobian(columns, seeds)
    zero = {x: const(0.0) for delta in deltas for x in delta}
    return substitute([bent[i][j] for i, j in _pairs([len(delta) for delta in deltas])], zero)


@per_type_cache
def compile_adjoint(
    edge_type: EdgeType, kernel: int, requested: tuple[str, ...], information: str = "full"
) -> Program:
    """Derivatives of phi by the `requested` of `ADJOINT_INPUTS`, one after the other, of one edge.

    edge_type: between the forms in which the vertices are given, see `stored_edge_type`. information: variant
    as in `edge`.
    Inputs: per vertex its numbers and lambda, then storage of the parameters, measurement, the kernel's
    width, information (full: upper triangle, row by row; so are its derivatives, in which an entry off the
    diagonal counts for both of its places).
    """
    with workspace():
        objective = Objective(edge_type, information, robust_kernel(kernel).function)
        name = f"{edge_type.name}.adjoint.{kernel}.{information}.{'+'.join(requested)}"
        definition = Definition(objective.definition())
        return cached(name, objective.adjoint_inputs(), definition, lambda: objective.adjoint(requested))


@per_type_cache
def compile_pullback(vertex_type: VertexType) -> Program:
    """Storage, then a cotangent of it (storage_dim) -> cotangent of oplus's delta at 0 (tangent_dim)."""
    with workspace():
        vertex = trace_oplus(vertex_type)
        cotangent = as_exprs(variables("cotangent", vertex_type.storage_dim))
        storage = as_exprs(vertex.storage)

        def outputs() -> list[Expr]:
            return [dot([seed[x] for x in storage], cotangent) for seed in vertex.seeds(vertex_type.name)]

        name = f"{vertex_type.name}.pullback"
        return cached(name, storage + cotangent, Definition(vertex.moved), outputs)


@per_type_cache
def compile_encoding(vertex_type: VertexType) -> Program:
    """Storage -> the working form."""
    form = vertex_type.working
    assert form is not None
    return _of_form(f"{vertex_type.name}.encoding", form.encode, "storage", vertex_type.storage_dim)


@per_type_cache
def compile_decoding(vertex_type: VertexType) -> Program:
    """The working form -> storage."""
    form = vertex_type.working
    assert form is not None
    return _of_form(f"{vertex_type.name}.decoding", form.decode, "numbers", form.dim)


def _of_form(name: str, function: Callable[..., Any], given: str, dim: int) -> Program:
    """A function of a working form, of `dim` numbers that are called `given`."""
    with workspace():
        arguments = variables(given, dim)
        found = as_exprs(call_with_symbols(name, function, [arguments]))
        return cached(name, as_exprs(arguments), Definition(found), lambda: found)


@per_type_cache
def compile_oplus_jacobian(vertex_type: VertexType) -> Program:
    """Storage -> derivative of oplus by delta at 0, (storage_dim, tangent_dim) row by row."""
    with workspace():
        vertex = trace_oplus(vertex_type)
        storage = as_exprs(vertex.storage)
        name, definition = f"{vertex_type.name}.oplus_jacobian", Definition(vertex.moved)
        return cached(name, storage, definition, lambda: _of_storage(vertex, vertex_type))


@per_type_cache
def oplus_jacobian(vertex_type: VertexType) -> tuple[list[Expr], list[Expr]]:
    """Variables for the storage, and what `compile_oplus_jacobian` computes of them."""
    with workspace():
        vertex = trace_oplus(vertex_type)
        return as_exprs(vertex.storage), _of_storage(vertex, vertex_type)


def _of_storage(vertex: MovedVertex, vertex_type: VertexType) -> list[Expr]:
    seeds = vertex.seeds(vertex_type.name)
    return [seed[x] for x in as_exprs(vertex.storage) for seed in seeds]


@per_type_cache
def stored_edge_type(kind: EdgeType) -> EdgeType:
    """The edge type on stored numbers that computes what it computes in working forms."""
    working = working_edge_type(kind)
    vertices = tuple(map(_stored_vertex_type, kind.vertices))
    return replace(working, vertices=vertices, jacobian=None, working_jacobian=None, made_by=None)


def _stored_vertex_type(kind: VertexType) -> VertexType:
    form = kind.working
    if form is None:
        return kind
    return replace(kind, working=None, wrap=lambda storage: form.wrap(form.encode(storage)))


class Objective:
    """f of one edge as expressions."""

    def __init__(self, edge_type: EdgeType, variant: str, kernel: RobustKernel):
        self._edge: TracedEdge = trace_edge(replace(edge_type, jacobian=None, made_by=None))
        self._information = Information(variant, len(self._edge.residual))
        self._seeds = [
            vertex.seeds(name) for vertex, name in zip(self._edge.moved, self._edge.vertex_names, strict=True)
        ]
        self._omega_e = [dot(row, self._edge.residual) for row in self._information.matrix]
        self._squared = dot(self._edge.residual, self._omega_e)
        self.width = var("kernel_width")
        chi2 = var("chi2")
        found = call_with_symbols(f"{edge_type.name}: the robust kernel", kernel, [chi2, self.width])
        rho, weight = (lift(x) for x in found)
        slope = jacobian([weight], [{chi2: const(1.0)}])[0][0]
        self.rho, self.weight, self.slope = substitute([rho, weight, slope], {chi2: self._squared})

    def definition(self) -> list[Expr]:
        """Everything that determines the programs."""
        return [*self._edge.definition(), self.rho, self.weight]

    def inputs(self) -> list[Expr]:
        """Of the programs of curvature."""
        return [*self._edge.inputs, self.width, *self._information.inputs]

    def kernel_inputs(self, has_kernel: bool) -> list[Expr]:
        """Of the programs of a device's kernels."""
        return [*self._edge.inputs, *self._information.inputs, *([self.width] if has_kernel else [])]

    def guides(self, slots: Sequence[int]) -> list[Expr]:
        """See `gpu.programs`."""
        rows = zip(*self._columns, strict=True)
        jacobians = [list(row) for row in rows]
        found = [*self._edge.residual, self.weight]
        for slot in slots:
            own = slice(self._first[slot], self._first[slot] + len(self._seeds[slot]))
            found += [x for row in jacobians for x in row[own]]
        return found

    def chi2(self) -> list[Expr]:
        """-> rho, s, e."""
        return [self.rho, self._squared, *self._edge.residual]

    def curvature(self) -> list[Expr]:
        """-> rho, K by pairs, -g."""
        slots = range(len(self._seeds))
        pairs = [x for a in slots for b in slots[a:] for x in self.hessian(a, b)]
        return [self.rho, *pairs, *(x for a in slots for x in self.descent(a))]

    def hessian(self, a: int, b: int) -> list[Expr]:
        """K_ab by columns, of a = b the upper triangle."""
        columns, products, gradient = self._columns, self._products, self._gradient
        first, dims = self._first, list(map(len, self._seeds))
        outputs = []
        for j in range(first[b], first[b] + dims[b]):
            for i in range(first[a], j + 1 if a == b else first[a] + dims[a]):
                along = make("mul", make("mul", self._twice_slope, gradient[i]), gradient[j])
                bent = make("add", dot(columns[i], products[j]), self._bent[i][j])
                outputs.append(make("add", bent, along))
        return outputs

    def descent(self, a: int) -> list[Expr]:
        """-g_a."""
        own = self._gradient[self._first[a] : self._first[a] + len(self._seeds[a])]
        return [make("neg", make("mul", self.weight, x)) for x in own]

    @property
    def _first(self) -> list[int]:
        """By vertex, its first scalar among those of all."""
        return [sum(map(len, self._seeds[:k])) for k in range(len(self._seeds))]

    @cached_property
    def _columns(self) -> list[list[Expr]]:
        """J by columns."""
        return _columns(jacobian(self._edge.residual, self._flat))

    @property
    def _flat(self) -> list[Any]:
        return [seed for of_vertex in self._seeds for seed in of_vertex]

    @cached_property
    def _bent(self) -> list[list[Expr]]:
        """w sum_k (Omega e)_k d2 e_k."""
        pull = as_exprs(variables("pull", len(self._edge.residual)))
        bent = jacobian([dot(pull, column) for column in self._columns], self._flat)
        weighted = dict(zip(pull, [make("mul", self.weight, x) for x in self._omega_e], strict=True))
        return [substitute(row, weighted) for row in bent]

    @cached_property
    def _gradient(self) -> list[Expr]:
        """J' Omega e."""
        return [dot(column, self._omega_e) for column in self._columns]

    @cached_property
    def _twice_slope(self) -> Expr:
        return make("mul", const(2.0), self.slope)

    @cached_property
    def _products(self) -> list[list[Expr]]:
        """w Omega J by columns."""
        matrix = [[make("mul", self.weight, x) for x in row] for row in self._information.matrix]
        return [[dot(row, column) for row in matrix] for column in self._columns]

    def adjoint_inputs(self) -> list[Expr]:
        """See `compile_adjoint`."""
        storages = [as_exprs(vertex.storage) for vertex in self._edge.moved]
        others = self._edge.inputs[sum(map(len, storages)) :]
        vertices = [x for pair in zip(storages, self._lambdas(), strict=True) for part in pair for x in part]
        return [*vertices, *others, self.width, *self._information.inputs]

    def _lambdas(self) -> list[list[Expr]]:
        return [as_exprs(variables(f"lambda{k}", len(seeds))) for k, seeds in enumerate(self._seeds)]

    def adjoint(self, requested: Sequence[str]) -> list[Expr]:
        """See `compile_adjoint`."""
        direction: dict[Expr, Expr] = {}
        for seeds, factors, vertex in zip(self._seeds, self._lambdas(), self._edge.moved, strict=True):
            for x in as_exprs(vertex.storage):
                direction[x] = dot(factors, [seed[x] for seed in seeds])
        rates = [row[0] for row in jacobian(self._edge.residual, [direction])]
        phi = make("mul", self.weight, dot(rates, self._omega_e))
        inputs = [x for kind in requested for x in self._inputs_of(kind)]
        return jacobian([phi], [{x: const(1.0)} for x in inputs])[0]

    def _inputs_of(self, kind: str) -> list[Expr]:
        edge = self._edge
        names = {"values": "parameter", "measurement": "measurement"}
        if kind == "estimate":
            return [x for vertex in edge.moved for x in as_exprs(vertex.storage)]
        if kind == "kernel_width":
            return [self.width]
        if kind == "information":
            return self._information.inputs
        return [x for x in edge.inputs if str(x.value).startswith(names[kind])]


def _pairs(dims: list[int]) -> list[tuple[int, int]]:
    """(row, column) of the Hessian in the order of linearize's outputs; dims: of the vertices."""
    first = [sum(dims[:k]) for k in range(len(dims) + 1)]
    return [
        (first[a] + i, first[b] + j)
        for a in range(len(dims))
        for b in range(a, len(dims))
        for j in range(dims[b])
        for i in range(j + 1 if a == b else dims[a])
    ]


def _columns(rows: list[list[Expr]]) -> list[list[Expr]]:
    return [list(column) for column in zip(*rows, strict=True)]


__all__: list[Any] = [
    "ADJOINT_INPUTS",
    "CurvatureKernels",
    "Objective",
    "compile_adjoint",
    "compile_constraint",
    "compile_curvature",
    "compile_encoding",
    "compile_pullback",
    "stored_edge_type",
]
