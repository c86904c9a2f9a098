"""Vertex, parameter and edge types and robust kernels as text, for the C library (native/embed).

    graphopt types 2
    kernel NAME                       weight
    parameter TAG storage_dim         names, layouts
    vertex TAG storage_dim tangent_dim is_pose identity
                                      names, layouts, working_dim (0, or encode and decode), oplus
    edge TAG measurement_dim residual_dim  n vertex tags  n parameter tags
                                      names, layouts, chi2, linearize, spirv (0, or 2 files of `export_spirv`)

A file is words; `native/embed/src/types.cpp` reads it. A program is its name, number of registers, lengths of
its arrays, constants (bits of a double in hexadecimal), input registers, output registers, words of code.
Vertices with a working form (`types.base.WorkingForm`) have the programs between it and the storage, and
oplus and edges compute in it, as the CPU block solver does. Edges have programs with a robust kernel; the
kernel None leaves chi2 as it is.

A layout is how a line of a .g2o file holds the numbers: the tag, dialect, number of tokens, and two programs,
tokens -> stored numbers and back (of edges the measurement, then the upper triangle of the information). The
functions of `types.files` are traced for them like residuals. An edge of any arity is exported for some
arities, as TAG/arity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

import graphopt.io.extra_types as extra_types
from graphopt import codegen
from graphopt.codegen.cache import Definition, cached
from graphopt.codegen.workspace import workspace
from graphopt.errors import GraphError
from graphopt.io.dialects import DIALECTS, SAME_TOKENS
from graphopt.io.export_spirv import file_name
from graphopt.symbolic import Expr, as_exprs, variables
from graphopt.types import BUILTIN_TYPES, EdgeType, ParameterType, VariadicEdgeType, VertexType, registry
from graphopt.types.base import working_edge_type, working_vertex_type
from graphopt.types.files import triangle_to_matrix
from graphopt.types.poses import POSE_ROLES
from graphopt.types.robust_kernels import KERNELS, RobustKernel

BUILTIN_ARITIES = range(2, 7)
"""Of edges of any arity in `builtin_types_text`."""
Kind = VertexType | ParameterType | EdgeType


def builtin_types_text() -> str:
    """Content of native/embed/builtin_types.txt: every type that is built in, which .g2o files hold."""
    return types_text(builtin_kinds(), KERNELS)


def builtin_kinds() -> list[Any]:
    """Every type that is built in, which .g2o files hold; edges of any arity with 2 to 6 vertices."""
    return [instance for kind in (*BUILTIN_TYPES, *extra_types.ALL) for instance in _instances(kind)]


def types_text(kinds: Iterable[Any], kernels: Sequence[RobustKernel], has_spirv: bool = False) -> str:
    """Types as text, with the vertices and parameters of the edges among them.

    has_spirv: name the files of `export_spirv`, which stand in the same folder.
    """
    kinds = list(kinds)
    edges = [kind for kind in kinds if isinstance(kind, EdgeType)]
    ends = [slot_type for edge in edges for slot_type in (*edge.vertices, *edge.parameters)]
    every = dict.fromkeys([*kinds, *ends])
    lines = ["graphopt types 2"]
    for kernel in kernels:
        lines += [
            f"kernel {kernel.name}",
            program_text("weight", codegen.compile_robust_kernel(kernel.function)),
        ]
    for kind, write in (
        (VertexType, _vertex_lines),
        (ParameterType, _parameter_lines),
        (EdgeType, _edge_lines),
    ):
        for element in every:
            if isinstance(element, kind):
                lines += write(element)  # type: ignore[operator]
                if isinstance(element, EdgeType):
                    lines.append(_spirv_line(element, has_spirv))
    return "\n".join(lines) + "\n"


def _spirv_line(edge: EdgeType, has_spirv: bool) -> str:
    tag = exported_tag(edge)
    return f"spirv 2 {file_name(tag, 'chi2')} {file_name(tag, 'linearize')}" if has_spirv else "spirv 0"


def exported_tag(kind: Any) -> str:
    """Name of a type in the library: its tag, with the arity where there are several."""
    if not kind.tag or any(c.isspace() or c == "/" for c in kind.tag):
        raise GraphError(
            f"The tag {kind.tag!r} is no word; types of the library have tags without blanks and /."
        )
    is_one_of_many = isinstance(kind, EdgeType) and isinstance(registry.find(kind.tag), VariadicEdgeType)
    return f"{kind.tag}/{len(kind.vertices)}" if is_one_of_many else kind.tag


def program_text(name: str, program: codegen.Program) -> str:
    """A program as words."""
    arrays = program.constants, program.input_registers, program.output_registers, program.code
    counts = " ".join(str(len(array)) for array in arrays)
    words = [
        *(bits(x) for x in program.constants),
        *(str(x) for array in arrays[1:] for x in array.tolist()),
    ]
    return f"{name} {program.num_registers} {counts}\n{' '.join(words)}"


def bits(x: float) -> str:
    """Bits of a double in hexadecimal."""
    return f"{int(np.float64(x).view(np.uint64)):016x}"


def _instances(kind: Any) -> list[Any]:
    if isinstance(kind, VariadicEdgeType):
        return [kind.instantiate(arity) for arity in BUILTIN_ARITIES]
    return [kind]


def _vertex_lines(vertex: VertexType) -> list[str]:
    identity = " ".join(map(bits, vertex.identity))
    sizes = f"{vertex.storage_dim} {vertex.tangent_dim} {int(vertex.role in POSE_ROLES)}"
    working = working_vertex_type(vertex)
    form = vertex.working
    lines = [f"vertex {exported_tag(vertex)} {sizes} {identity}", *_layout_lines(vertex)]
    lines.append("working 0" if form is None else f"working {form.dim}")
    if form is not None:
        lines.append(_traced("encode", f"{vertex.name}.encode", vertex.storage_dim, form.encode))
        lines.append(_traced("decode", f"{vertex.name}.decode", form.dim, form.decode))
    return [*lines, program_text("oplus", codegen.compile_vertex(working))]


def _parameter_lines(parameter: ParameterType) -> list[str]:
    if parameter.image is not None:
        raise GraphError(f"{parameter.tag} has images as values, which the C library does not have.")
    return [f"parameter {exported_tag(parameter)} {parameter.storage_dim}", *_layout_lines(parameter)]


def _edge_lines(edge: EdgeType) -> list[str]:
    if edge.is_external:
        raise GraphError(f"{edge.tag} is evaluated by somebody else, so it has no program to export.")
    compiled = codegen.compile_edge(working_edge_type(edge), "full", KERNELS[0].function)
    ends = [str(len(edge.vertices)), *map(exported_tag, edge.vertices)]
    ends += [str(len(edge.parameters)), *map(exported_tag, edge.parameters)]
    return [
        f"edge {exported_tag(edge)} {edge.measurement_dim} {edge.residual_dim} {' '.join(ends)}",
        *_layout_lines(edge),
        program_text("chi2", compiled.chi2),
        program_text("linearize", compiled.linearize),
    ]


# -------------------------------------------------------------------- layouts


class _Line(NamedTuple):
    """How one dialect writes lines of one length."""

    num_tokens: int
    is_written: bool
    programs: str


def _layout_lines(kind: Kind) -> list[str]:
    """Names under which a type stands in files, and its layouts, the preferred ones first."""
    lines = []
    names = [kind.tag, *kind.aliases]
    for tag in (kind.tag, *kind.alias_files):
        python, cpp = (_lines_of(kind, tag, dialect) for dialect in ("g2opy", "g2o"))
        for dialect, layouts in (("any", python),) if python == cpp else (("g2opy", python), ("g2o", cpp)):
            lines += [
                f"layout {tag} {dialect} {layout.num_tokens} {int(layout.is_written and tag == kind.tag)}\n"
                f"{layout.programs}"
                for layout in layouts
            ]
    head = f"names {len(names)} {' '.join(names)} {int(kind.tag in SAME_TOKENS)} layouts {len(lines)}"
    return [head, *lines]


def _lines_of(kind: Kind, tag: str, dialect: str) -> list[_Line]:
    chosen, standard = DIALECTS[dialect].layout(kind, tag), kind.file_for(tag)
    by_length: dict[int, Any] = {}
    for layout in (chosen, *chosen.alternatives, standard, *standard.alternatives):
        by_length.setdefault(layout.num_tokens, layout)
    return [_line(kind, tag, dialect, layout) for layout in by_length.values()]


def _line(kind: Kind, tag: str, dialect: str, layout: Any) -> _Line:
    normalizes = kind.tag in DIALECTS[dialect].normalizes and tag not in kind.alias_files
    is_edge = isinstance(kind, EdgeType)

    def decode(tokens: Any) -> Any:
        tokens = _normalized(tokens) if normalizes else tokens
        if not isinstance(kind, EdgeType):
            return layout.decode(tokens)
        measurement, information = layout.decode(tokens)
        rows, columns = np.triu_indices(kind.residual_dim)
        return np.concatenate([measurement, information[:, rows, columns]], axis=1)

    def encode(numbers: Any) -> Any:
        if not isinstance(kind, EdgeType):
            return layout.encode(numbers)
        m = kind.measurement_dim
        return layout.encode(numbers[:, :m], triangle_to_matrix(numbers[:, m:], kind.residual_dim))

    is_written = not getattr(layout, "loses", "")
    name = f"{kind.name}.{tag}.{dialect}.{layout.num_tokens}"
    stored = (
        kind.measurement_dim + kind.residual_dim * (kind.residual_dim + 1) // 2
        if is_edge
        else kind.storage_dim
    )
    programs = [_traced("decode", f"{name}.decode", layout.num_tokens, decode)]
    if is_written:
        programs.append(_traced("encode", f"{name}.encode", stored, encode))
    return _Line(layout.num_tokens, is_written, "\n".join(programs))


def _normalized(tokens: Any) -> Any:
    """As `Dialect.normalized`, of symbols."""
    length = np.linalg.norm(tokens[:, 3:7], axis=-1, keepdims=True)
    scaled = tokens[:, 3:7] / np.where(length > 0.0, length, 1.0)
    return np.concatenate([tokens[:, :3], scaled, tokens[:, 7:]], axis=-1)


def _traced(kind: str, name: str, num_inputs: int, function: Callable[[Any], Any]) -> str:
    """Program of a function of arrays (1, num_inputs)."""
    with workspace():
        inputs = variables("token", num_inputs)
        outputs: list[Expr] = as_exprs(function(inputs[None])[0])
        return program_text(kind, cached(name, as_exprs(inputs), Definition(outputs), lambda: outputs))
