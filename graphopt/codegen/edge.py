"""Programs of an edge type: chi2, the linearised normal equations, errors, Jacobians.

With residual e, information Omega, Jacobians J_a per vertex, and the robust kernel's rho and weight w = rho'
at s = e' Omega e:

    chi2        rho(s)
    linearize   rho(s), H_ab = J_a' w Omega J_b, b_a = -J_a' w Omega e

Outputs of `linearize`: rho, then the pairs (0,0), (0,1), ..., (1,1), ...; each block by columns, of the
diagonal pairs the upper triangle only; then b per vertex. Outputs of `chi2`: rho, s, e.
Inputs: storage of the vertices, storage of the parameters, measurement, information. Information comes in
three variants: "full" (upper triangle, row by row), "diagonal", "identity" (nothing).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from graphopt.codegen.builtin import builtin_program
from graphopt.codegen.cache import Definition, cached
from graphopt.codegen.program import Program, build_program
from graphopt.codegen.rewrites import RewriteStep, rewrite_steps
from graphopt.codegen.trace import TracedEdge, call_with_symbols, remember, trace_edge, trace_oplus
from graphopt.codegen.workspace import workspace
from graphopt.errors import OptionError, ShapeError, SymbolicError
from graphopt.symbolic import Expr, as_exprs, const, lift, make, var, variables
from graphopt.symbolic.expr import without_rules

INFORMATION_VARIANTS = ("full", "diagonal", "identity")
RobustKernel = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True, eq=False)
class EdgeKernels:
    """Compiled functions of one edge type with one information variant, with or without a robust kernel."""

    edge_type: Any
    information: str
    chi2: Program
    """-> rho, e' Omega e, e"""
    linearize: Program
    """-> rho, upper triangle of H by pairs, b"""
    kernel: Program | None
    """(chi2, width) -> (rho, weight); run where the other two have their ROBUST instruction."""

    @cached_property
    def errors(self) -> Program:
        """-> e; takes no information."""
        return compile_errors(self.edge_type)

    @cached_property
    def jacobians(self) -> Program:
        """-> per vertex the Jacobian, row by row; takes no information."""
        return _compile(self.edge_type, ("jacobians",), "identity", False)[0]

    def explain(self) -> str:
        """Sizes and operation counts of all programs, and what the rewrites of expressions changed."""
        robust = self.kernel is not None
        lines = []
        for kind, program in (("chi2", self.chi2), ("linearize", self.linearize)):
            before = _compile_unshared(self.edge_type, kind, self.information, robust)
            lines += [
                program.explain(),
                f"  rewrites of expressions: {before.num_flops} -> {program.num_flops} flops, "
                f"{before.num_registers} -> {program.num_registers} registers",
            ]
        if self.kernel is not None:
            lines.append(self.kernel.explain())
        return "\n".join(lines)


def compile_edge(
    edge_type: Any, information: str = "full", robust: RobustKernel | None = None
) -> EdgeKernels:
    """Compile an edge type; `robust(chi2, width) -> (rho, weight)` is the robust kernel in numpy."""
    if information not in INFORMATION_VARIANTS:
        raise OptionError(
            f"information is '{information}', expected one of {', '.join(INFORMATION_VARIANTS)}."
        )
    kernel = compile_robust_kernel(robust) if robust is not None else None
    chi2, linearize = _compile(edge_type, ("chi2", "linearize"), information, robust is not None)
    return EdgeKernels(edge_type, information, chi2, linearize, kernel)


def compile_errors(edge_type: Any) -> Program:
    """Compile the errors of an edge type alone; takes no information."""
    return _compile(edge_type, ("errors",), "identity", False)[0]


def explain_rewrites(
    edge_type: Any, information: str = "full", robust: bool = False, kind: str = "linearize"
) -> list[RewriteStep]:
    """Operations and live registers of a program after each rewrite, (rule, operations, live_registers).

    `kind` is "linearize", "chi2", "errors" or "jacobians". The first step is the program as it was written.
    """
    if kind not in _OUTPUTS:
        raise OptionError(f"kind is '{kind}', expected one of {', '.join(_OUTPUTS)}.")

    def outputs() -> list[Expr]:
        edge = trace_edge(edge_type)
        return _OUTPUTS[kind](edge, Information(information, len(edge.residual)), robust)

    with workspace():
        return rewrite_steps(outputs, without_rules)


def compile_vertex(vertex_type: Any) -> Program:
    """Compile oplus: storage then tangent -> storage."""
    name = f"{vertex_type.name}.oplus"
    ready = builtin_program(vertex_type, name)
    if ready is not None:
        return ready
    with workspace():
        vertex = trace_oplus(vertex_type)
        inputs = as_exprs(vertex.storage) + as_exprs(vertex.delta)
        return cached(name, inputs, Definition(vertex.moved), lambda: vertex.moved)


def compile_robust_kernel(function: RobustKernel) -> Program:
    """Compile a robust kernel: chi2, width -> rho, weight."""
    name = f"{_name(function)}.kernel"
    ready = builtin_program(function, name)
    if ready is not None:
        return ready
    with workspace():
        inputs = [var("chi2"), var("width")]
        result = call_with_symbols(f"{_name(function)}: the robust kernel", function, inputs)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise SymbolicError(f"{_name(function)}: a robust kernel returns (rho, weight), got {result!r}.")
        outputs = [lift(x) for x in result]
        return cached(name, inputs, Definition(outputs), lambda: outputs)


def information_dim(residual_dim: int, variant: str) -> int:
    """Numbers per edge that `pack_information` makes."""
    return {"full": residual_dim * (residual_dim + 1) // 2, "diagonal": residual_dim, "identity": 0}[variant]


def pack_information(information: np.ndarray, variant: str) -> np.ndarray:
    """(m, d, d) information matrices -> (m, information_dim) inputs; the upper triangle is read."""
    if information.ndim != 3 or information.shape[1] != information.shape[2]:
        raise ShapeError(f"information has shape {information.shape}, expected (num_edges, d, d).")
    count, dim = information.shape[:2]
    columns = _information_places(dim, variant)
    return np.take(information.reshape(count, dim * dim), columns, axis=1).astype(np.float64, copy=False)


@cache
def _information_places(dim: int, variant: str) -> np.ndarray:
    return np.array(information_columns(dim, variant), np.int64)


def information_columns(dim: int, variant: str) -> list[int]:
    """Which entries of a flattened (d, d) information matrix are inputs."""
    if variant == "full":
        rows, columns = np.triu_indices(dim)
        return (rows * dim + columns).tolist()
    return list(range(0, dim * dim, dim + 1)) if variant == "diagonal" else []


def _name(function: Callable) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _compile(edge_type: Any, kinds: Sequence[str], variant: str, robust: bool) -> list[Program]:
    names = [f"{edge_type.name}.{kind}.{variant}{'.robust' if robust else ''}" for kind in kinds]
    ready = [builtin_program(edge_type, name) for name in names]
    programs = [program for program in ready if program is not None]
    if len(programs) == len(kinds):
        return programs
    with workspace():
        edge = trace_edge(edge_type)
        remember(edge_type, edge)
        information = Information(variant, len(edge.residual))
        inputs = edge.inputs + information.inputs
        definition = Definition(edge.definition())
        return [
            cached(name, inputs, definition, lambda f=_OUTPUTS[kind]: f(edge, information, robust))
            for kind, name in zip(kinds, names, strict=True)
        ]


def _compile_unshared(edge_type: Any, kind: str, variant: str, robust: bool) -> Program:
    with workspace():
        edge = trace_edge(edge_type)
        information = Information(variant, len(edge.residual))
        outputs = _OUTPUTS[kind](edge, information, robust)
        return build_program("unshared", edge.inputs + information.inputs, outputs, share=False)


class Information:
    """The information matrix Omega as expressions, with its structure."""

    def __init__(self, variant: str, dim: int):
        self.dim = dim
        self.inputs = as_exprs(variables("information", information_dim(dim, variant)))
        zero, one = const(0.0), const(1.0)
        diagonal = self.inputs if variant == "diagonal" else [one] * dim
        self.matrix = [[diagonal[i] if i == j else zero for j in range(dim)] for i in range(dim)]
        if variant == "full":
            for (i, j), x in zip(zip(*np.triu_indices(dim), strict=True), self.inputs, strict=True):
                self.matrix[i][j] = self.matrix[j][i] = x


def dot(xs: Sequence[Expr], ys: Sequence[Expr]) -> Expr:
    """Sum of products."""
    total = const(0.0)
    for x, y in zip(xs, ys, strict=True):
        total = make("add", total, make("mul", x, y))
    return total


def _errors_outputs(edge: TracedEdge, information: Information, robust: bool) -> list[Expr]:
    return edge.residual


def _jacobians_outputs(edge: TracedEdge, information: Information, robust: bool) -> list[Expr]:
    return [e for block in edge.jacobians() for e in block.ravel()]


def _chi2_outputs(edge: TracedEdge, information: Information, robust: bool) -> list[Expr]:
    weighted = [dot(row, edge.residual) for row in information.matrix]
    chi2 = dot(edge.residual, weighted)
    return [make("robust_rho", chi2) if robust else chi2, chi2, *edge.residual]


def _linearize_outputs(edge: TracedEdge, information: Information, robust: bool) -> list[Expr]:
    weighted = [dot(row, edge.residual) for row in information.matrix]
    chi2 = dot(edge.residual, weighted)
    matrix, rho = information.matrix, chi2
    if robust:
        weight, rho = make("robust_weight", chi2), make("robust_rho", chi2)
        matrix = [[make("mul", weight, x) for x in row] for row in matrix]
        weighted = [make("mul", weight, x) for x in weighted]
    blocks = edge.jacobians()
    columns = [[list(column) for column in block.T] for block in blocks]
    # Omega J, column by column
    products = [[[dot(row, column) for row in matrix] for column in block] for block in columns]
    outputs = [rho]
    for a, left in enumerate(columns):
        for b in range(a, len(columns)):
            for j, product in enumerate(products[b]):
                rows = left[: j + 1] if a == b else left
                outputs.extend(dot(column, product) for column in rows)
    for block in columns:
        outputs.extend(make("neg", dot(column, weighted)) for column in block)
    return outputs


_OUTPUTS: dict[str, Callable[[TracedEdge, Information, bool], list[Expr]]] = {
    "errors": _errors_outputs,
    "jacobians": _jacobians_outputs,
    "chi2": _chi2_outputs,
    "linearize": _linearize_outputs,
}
