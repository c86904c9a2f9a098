"""The kernel that optimizes small problems of one structure, a workgroup each.

What is generated is what depends on the types: H and b of the edges, their chi2, and oplus; the programs are
those of the CPU. The loop of iterations is shaders/include/problem_loop.glsl. `table` says by words what the
problems have in common (`Words`), so that one kernel serves any number of vertices and edges. Methods
"newton" and "adjoint" (shaders/include/problem_newton.glsl) take second derivatives instead (`second_order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from graphopt.codegen.assignment import Assignment, assign
from graphopt.codegen.edge import EdgeKernels, compile_vertex, information_dim
from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.inputs import Load
from graphopt.codegen.gpu.interface import Interface
from graphopt.codegen.gpu.kernel import Body, GpuKernel, compose, edge_body, indent
from graphopt.codegen.gpu.layout import argument_names, numbered
from graphopt.codegen.second_order import (
    compile_adjoint,
    compile_decoding,
    compile_encoding,
    compile_pullback,
)
from graphopt.errors import DeviceError
from graphopt.types.base import working_vertex_type
from graphopt.types.cache import per_type_cache

PARAMS = ("first", "num_steps", "max_iterations", "max_trials")
"""Push constants: the first of `chosen`, iterations of this submission, and in all, and trials of each."""
METHODS = {
    "gn": "GAUSS_NEWTON",
    "lm": "LEVENBERG",
    "dogleg": "DOGLEG",
    "newton": "NEWTON",
    "adjoint": "ADJOINT",
}
"""Name -> how problem_loop.glsl calls it."""
NUM_SHARED_WORDS = 10
GROUP_WORDS = ("num_edges", "rows", "chunk", "measurement", "information", "width", "mask")
"""Of a group: edges, where its rows are, its first chunk; numbers per problem of its arrays, 0: shared."""
SET_WORDS = ("moves", "num_moves", "estimate", "num_rows")
"""Of a vertex set: where its optimized vertices are told, how many, numbers per problem, and vertices."""
FIRST_ROWS_CONSTANT = 16
"""Specialization constant of the first group: edges whose contributions are in shared memory at a time."""
MOST_PANEL = 6
"""Columns of a panel: its triangle is in registers."""
FIXED = 1 << 31
"""Bit of a row in `table`: the vertex is fixed, its numbers are in its set's buffer."""


@dataclass(frozen=True)
class ProblemGroup:
    """Edges of one type, information and robust kernel."""

    kernels: EdgeKernels
    """Of the working form of the type."""
    kernel: int
    """Number of the robust kernel, 0: none."""
    vertex_sets: tuple[int, ...]
    parameter_sets: tuple[int, ...]
    slots: tuple[str, ...]
    """Per slot whether its vertices are "free", "fixed" or "mixed"."""
    is_summed: bool
    """All edges have the same optimized vertices: invocations sum over their edges before they write."""
    is_exact: bool = False
    """The programs are those of `second_order`: the kernel's width is an input of them."""
    requested: tuple[str, ...] = ()
    """Of `second_order.ADJOINT_INPUTS`: by what "adjoint" differentiates."""

    @property
    def edge_type(self) -> Any:
        """The working form of the type."""
        return self.kernels.edge_type

    @property
    def signature(self) -> tuple[Any, ...]:
        """The types that it is made of, for `per_type_cache`."""
        return (self.edge_type,)

    def outputs(self) -> list[tuple[str, int, int, int, int]]:
        """(name, slot a, slot b, i, j) of what an edge adds: H_ab (i, j), and with b = -1 b_a (i)."""
        dims = [vertex.tangent_dim for vertex in self.edge_type.vertices]
        free = [a for a, kind in enumerate(self.slots) if kind != "fixed"]
        found = []
        for n, a in enumerate(free):
            found += [(f"H{a}_{a}_{i}_{j}", a, a, i, j) for j in range(dims[a]) for i in range(j + 1)]
            for b in free[n + 1 :]:
                found += [(f"H{a}_{b}_{i}_{j}", a, b, i, j) for j in range(dims[b]) for i in range(dims[a])]
        return found + [(f"b{a}_{i}", a, -1, i, 0) for a in free for i in range(dims[a])]


_MAIN = """\
problem = chosen.at[push.first + WORKGROUP];
origin = problem * NUM_ENTRIES;
read_estimates();
run_problem();
write_estimates();""".splitlines()


@dataclass(frozen=True)
class Words:
    """Where what is in the header of `table`."""

    num_groups: int
    num_sets: int
    num_parameters: int

    @property
    def _groups(self) -> int:
        return NUM_SHARED_WORDS + self.num_sets * len(SET_WORDS)

    @property
    def _parameters(self) -> int:
        return self._groups + self.num_groups * len(GROUP_WORDS)

    @property
    def count(self) -> int:
        """Of all words."""
        return self._parameters + self.num_parameters

    def of_set(self, number: int, name: str) -> int:
        """One of `SET_WORDS`."""
        return NUM_SHARED_WORDS + number * len(SET_WORDS) + SET_WORDS.index(name)

    def of_group(self, number: int, name: str) -> int:
        """One of `GROUP_WORDS`."""
        return self._groups + number * len(GROUP_WORDS) + GROUP_WORDS.index(name)

    def of_parameter(self, number: int) -> int:
        """Numbers per problem of a parameter set."""
        return self._parameters + number


@per_type_cache
def problem_kernel(
    groups: tuple[ProblemGroup, ...],
    vertex_types: tuple[Any, ...],
    free_sets: tuple[bool, ...],
    num_parameter_sets: int,
    method: str,
    arithmetic: Arithmetic = "double",
) -> GpuKernel:
    """One workgroup optimizes problem chosen[first + workgroup].

    vertex_types: of each vertex set; free_sets: it has optimized vertices. method: one of `METHODS`.
    "newton" writes estimates of optimized vertices as they are stored, "adjoint" takes them and cotangents
    so. Edges that sample images are refused with `DeviceError`.
    """
    working = tuple(map(working_vertex_type, vertex_types))
    words = Words(len(groups), len(vertex_types), num_parameter_sets)
    interface = _interface(groups, len(vertex_types), free_sets, num_parameter_sets, method)
    texts: list[str] = []
    flops = registers = 0
    for number, group in enumerate(groups):
        writer = _GroupWriter(group, number, words, arithmetic, method == "newton")
        texts += writer.text()
        if method != "adjoint":
            texts += writer.text_of_chi2()
        flops += writer.system.flops
        registers = max(registers, writer.system.registers)
    texts += _sum_of_systems(len(groups))
    main = list(_MAIN)
    if method == "adjoint":
        main.remove("write_estimates();")
        calls = [f"adjoint_{number}();" for number, group in enumerate(groups) if group.requested]
        texts += ["void adjoint() {", *indent(calls), "}"]
        texts += _reads_of_cotangents(vertex_types, free_sets, words, arithmetic)
    else:
        texts += _sum_of_chi2(len(groups))
        texts += _moves(working, free_sets, words, arithmetic)
        write = _writes_of_stored if method == "newton" else _writes
        texts += write(vertex_types, free_sets, words, arithmetic)
    header = ["optimizes whole problems, one per workgroup: shaders/include/problem_loop.glsl"]
    header += [f"{group.edge_type.name}, vertices {', '.join(group.slots)}" for group in groups]
    body = Body([], {}, flops, registers, set())
    return compose(
        "problems." + ".".join(group.edge_type.name for group in groups),
        interface,
        header,
        main,
        arithmetic,
        body,
        64,
        sum(len(group.outputs()) for group in groups),
        ['#include "problem_memory.glsl"', *texts, '#include "problem_loop.glsl"'],
        [f"#define METHOD {METHODS[method]}", f"#define PANEL {panel_width(vertex_types, free_sets)}"],
    )


def _interface(
    groups: Sequence[ProblemGroup],
    num_sets: int,
    free_sets: Sequence[bool],
    num_parameter_sets: int,
    method: str,
) -> Interface:
    """Buffers of a kernel: what all problems share, estimates, parameters, data and results of each group."""
    interface = Interface(PARAMS)
    for name, kind in (("table", "uint"), ("chosen", "uint"), ("options", "wide"), ("unobserved", "uint")):
        interface.add(name, f"INPUT(%, {kind}, {name})")
    for name, kind in (("state", "wide"), ("counts", "uint"), ("system", "wide")):
        interface.add(name, f"INOUT(%, {kind}, {name})")
    for number in range(num_sets):
        interface.add(f"estimate{number}", f"INOUT(%, wide, estimate{number})")
        if method == "newton" and free_sets[number]:
            interface.add(f"stored{number}", f"OUTPUT(%, wide, stored{number})")
        if method == "adjoint" and free_sets[number]:
            for name in (f"stored{number}", f"cotangent{number}"):
                interface.add(name, f"INPUT(%, wide, {name})")
    for number in range(num_parameter_sets):
        interface.add(f"parameter{number}", f"INPUT(%, wide, parameter{number})")
    for number, group in enumerate(groups):
        for name, kind in _data_buffers(group, number):
            interface.add(name, f"INPUT(%, {kind}, {name})")
        results = [result_name(column, number) for column in group.requested]
        if method == "newton" and group.kernel:
            results.append(result_name("squared", number))
        for name in results:
            interface.add(name, f"OUTPUT(%, wide, {name})")
    return interface


def panel_width(vertex_types: Sequence[Any], free_sets: Sequence[bool]) -> int:
    """Columns of H that are eliminated together, at most: those of an optimized vertex, if they are few."""
    dims = [kind.tangent_dim for kind, free in zip(vertex_types, free_sets, strict=True) if free]
    return min(max(dims, default=1), MOST_PANEL)


def result_name(column: str, number: int) -> str:
    """Buffer (B, m, numbers) of a group's edges: derivatives by a column, or "squared", e' Omega e."""
    return f"of_{column}{number}"


def result_sizes(group: ProblemGroup) -> dict[str, int]:
    """Numbers per edge of the derivatives by what is requested: whole matrices of information."""
    kind = group.edge_type
    sizes = {
        "values": sum(parameter.storage_dim for parameter in kind.parameters),
        "measurement": kind.measurement_dim,
        "kernel_width": 1,
        "information": kind.residual_dim**2,
    }
    return {column: sizes[column] for column in group.requested}


def _data_buffers(group: ProblemGroup, number: int) -> list[tuple[str, str]]:
    """Arrays of a group's edges, and the type of their numbers."""
    kind = group.edge_type
    found = [(f"measurement{number}", "wide")] if kind.measurement_dim else []
    if information_dim(kind.residual_dim, group.kernels.information):
        found.append((f"information{number}", "wide"))
    if group.kernel:
        found.append((f"width{number}", "wide"))
    return [*found, (f"mask{number}", "uint")]


class _GroupWriter:
    """Text of one group's functions."""

    def __init__(
        self, group: ProblemGroup, number: int, words: Words, arithmetic: Arithmetic, keeps_squared: bool
    ):
        self._group, self._number, self._words = group, number, words
        self._keeps_squared = keeps_squared and group.kernel != 0
        self._loads = self._all_loads()
        inputs = [load.name for loads in self._loads for load in loads if load.name != "width"]
        if group.is_exact:  # the width stands before the information
            inputs.insert(len(inputs) - self._information_dim, "width")
        self._inputs = inputs
        self._names = [name for name, *_ in group.outputs()]
        self._arithmetic: Arithmetic = arithmetic

    @cached_property
    def system(self) -> Body:
        """Statements of an edge's part of H and b, which "newton" and "adjoint" have in common."""
        return _system(replace(self._group, requested=()), self._number, self._words, self._arithmetic)

    def made_system(self) -> Body:
        """See `system`."""
        kernels = self._group.kernels
        outputs = ["rho", *self._all_outputs()]
        system = assign(kernels.linearize, self._inputs, outputs, kernels.kernel)
        loads = [load for part in self._loads for load in part]
        return _body(system, ["rho", *self._names], loads, self._arithmetic)

    def _chi2(self) -> Body:
        """Statements of an edge's chi2."""
        kernels = self._group.kernels
        rest = [f"e_{i}" for i in range(self._group.edge_type.residual_dim)]
        chi2 = assign(kernels.chi2, self._inputs, ["rho", "s", *rest], kernels.kernel)
        loads = [load for part in self._loads for load in part]
        return _body(chi2, ["rho", *(["s"] if self._keeps_squared else [])], loads, self._arithmetic)

    @property
    def _information_dim(self) -> int:
        return information_dim(self._group.edge_type.residual_dim, self._group.kernels.information)

    @property
    def _num_rows(self) -> int:
        """Vertices and parameters of an edge."""
        return len(self._loads) - 1

    @property
    def _row_words(self) -> int:
        """Of `table`, per edge."""
        return self._num_rows + (len(self._group.slots) if self._group.requested else 0)

    def _all_outputs(self) -> list[str]:
        """Names of H and b in the order of the program, fixed slots included."""
        dims = [vertex.tangent_dim for vertex in self._group.edge_type.vertices]
        names = []
        for a in range(len(dims)):
            for b in range(a, len(dims)):
                names += [
                    f"H{a}_{b}_{i}_{j}" for j in range(dims[b]) for i in range(j + 1 if a == b else dims[a])
                ]
        return names + [f"b{a}_{i}" for a in range(len(dims)) for i in range(dims[a])]

    def _all_loads(self) -> list[list[Load]]:
        """Inputs of the programs in their order: one list per vertex and parameter, and for the data."""
        group, kind = self._group, self._group.edge_type
        names = argument_names(kind)
        found = []
        for name, vertex, number, slot in zip(
            names, kind.vertices, group.vertex_sets, group.slots, strict=False
        ):
            fixed = f"estimate{number}.at[first_estimate{number} + (AT & 0x7fffffffu) + %]"
            text = {
                "free": "place[version * MOST_FREE + AT + %]",
                "fixed": fixed,
                "mixed": f"AT < 0x80000000u ? place[version * MOST_FREE + AT + %] : {fixed}",
            }[slot].replace("AT", f"{name}_at")
            found.append(_numbers(numbered(name, vertex.storage_dim), text))
        for name, parameter, number in zip(
            names[len(kind.vertices) :], kind.parameters, group.parameter_sets, strict=False
        ):
            first = f"problem * table.at[{self._words.of_parameter(number)}]"
            text = f"parameter{number}.at[{first} + {name}_at + %]"
            found.append(_numbers(numbered(name, parameter.storage_dim), text))
        data = []
        for buffer, entries in (
            ("measurement", numbered(names[-1], kind.measurement_dim)),
            ("information", numbered("omega", self._information_dim)),
            ("width", ["width"] if group.kernel else []),
        ):
            first = f"problem * {self._word(buffer)} + e * {len(entries)} + %"
            data += _numbers(entries, f"{buffer}{self._number}.at[{first}]")
        return [*found, data]

    def _word(self, name: str) -> str:
        return f"table.at[{self._words.of_group(self._number, name)}]"

    def _reads(self, body: Body) -> list[str]:
        """Text that reads what a body uses of edge `e`."""
        names = argument_names(self._group.edge_type)
        lines = []
        for k, loads in enumerate(self._loads):
            used = [load for load in loads if load.name in body.used]
            if used and k < self._num_rows:
                lines.append(f"const uint {names[k]}_at = {self._row_word(k)};")
            lines += [f"const wide {load.name} = {load.expression};" for load in used]
        return lines

    def _row_word(self, k: int) -> str:
        return f"table.at[{self._word('rows')} + e * {self._row_words} + {k}]"

    def _adjoint(self) -> list[str]:
        """The function of an edge's derivatives, see `second_order.compile_adjoint`."""
        group, kind = self._group, self._group.edge_type
        if not group.requested:
            return []
        lambdas = []
        for k, vertex in enumerate(kind.vertices):
            first = f"lambda{k}_at"
            text = {
                "free": f"dx[{first} + %]",
                "fixed": "WIDE_ZERO",
                "mixed": f"{first} < 0x80000000u ? dx[{first} + %] : WIDE_ZERO",
            }[group.slots[k]]
            lambdas.append(_numbers(numbered(f"lambda{k}", vertex.tangent_dim), text))
        of_vertices = [
            load for pair in zip(self._loads, lambdas, strict=False) for part in pair for load in part
        ]
        others = [load for part in self._loads[len(lambdas) :] for load in part]
        inputs = [load.name for load in (*of_vertices, *others) if load.name != "width"]
        inputs.insert(len(inputs) - self._information_dim, "width")
        program = compile_adjoint(kind, group.kernel, group.requested, group.kernels.information)
        stores = self._stores()
        assignment = assign(program, inputs, list(stores))
        body = _body(assignment, list(stores), [*of_vertices, *others], self._arithmetic)
        reads = [
            f"const uint lambda{k}_at = {self._row_word(self._num_rows + k)};"
            for k in range(len(lambdas))
            if group.slots[k] != "fixed"
        ]
        reads += self._reads(body)
        reads += [f"const wide {x.name} = {x.expression};" for y in lambdas for x in y if x.name in body.used]
        half = "wide_mul(to_wide(real(0.5)), -{})"
        written = []
        for name, places in stores.items():
            value = half.format(body.outputs[name]) if len(places) > 1 else f"-{body.outputs[name]}"
            written += [f"{place} = {value};" for place in places]
        return [
            f"void adjoint_{self._number}() {{",
            "  const uint version = 0;",
            *indent(self._first_estimates()),
            f"  for (uint e = LANE; e < {self._word('num_edges')}; e += WORKGROUP_SIZE) {{",
            f"    const uint row = problem * {self._word('num_edges')} + e;",
            *indent([*reads, *body.lines, *written], 2),
            "  }",
            "}",
        ]

    def _stores(self) -> dict[str, list[str]]:
        """Output of the adjoint -> places that it goes to, two of an entry off information's diagonal."""
        found: dict[str, list[str]] = {}
        dim = self._group.edge_type.residual_dim
        for column, size in result_sizes(self._group).items():
            place = f"{result_name(column, self._number)}.at[row * {size} + %]"
            if column == "information":
                for i in range(dim):
                    for j in range(i, dim):
                        places = dict.fromkeys([i * dim + j, j * dim + i])
                        found[f"D_{column}_{i}_{j}"] = [place.replace("%", str(k)) for k in places]
            else:
                found |= {f"D_{column}_{i}": [place.replace("%", str(i))] for i in range(size)}
        return found

    def text_of_chi2(self) -> list[str]:
        """The function of an edge's chi2 after a step."""
        chi2, squared = self._chi2(), list[str]()
        if self._keeps_squared:
            place = f"{result_name('squared', self._number)}.at[problem * {self._word('num_edges')} + e]"
            squared = [f"{place} = {chi2.outputs['s']};"]
        return [
            f"wide chi2_{self._number}(uint e) {{",
            "  const uint version = 1;",
            *indent([*self._first_estimates(), *self._reads(chi2), *chi2.lines, *squared]),
            f"  return {chi2.outputs['rho']};",
            "}",
        ]

    def text(self) -> list[str]:
        """Functions: whether an edge takes part, and H and b of all; its derivatives."""
        n = self._number
        mask = f"mask{n}.at[problem * {self._word('mask')} + (e >> 5)]"
        return [
            f"layout(constant_id = {FIRST_ROWS_CONSTANT + n}) const uint ROWS_{n} = 32;",
            f"uint num_edges_{n}() {{ return {self._word('num_edges')}; }}",
            f"bool takes_part_{n}(uint e) {{",
            f"  return e < {self._word('num_edges')} && (MASKED == 0 || (({mask} >> (e & 31u)) & 1u) != 0);",
            "}",
            f"wide linearize_{n}() {{",
            *indent(self._summed() if self._group.is_summed else self._by_chunks()),
            "}",
            *self._adjoint(),
        ]

    def _first_estimates(self) -> list[str]:
        sets = {
            number
            for number, slot in zip(self._group.vertex_sets, self._group.slots, strict=True)
            if slot != "free"
        }
        return [
            f"const uint first_estimate{k} = problem * table.at[{self._words.of_set(k, 'estimate')}];"
            for k in sorted(sets)
        ]

    def _summed(self) -> list[str]:
        """Sums of each invocation's edges, then of the invocations."""
        n = self._number
        store = [f"pool[{o} * (ROWS_{n} | 1u) + LANE] = sum_{name};" for o, name in enumerate(self._names)]
        return [
            "const uint version = 0;",
            *self._first_estimates(),
            "wide chi2 = WIDE_ZERO;",
            *(f"wide sum_{name} = WIDE_ZERO;" for name in self._names),
            f"if (LANE < ROWS_{n})",
            f"  for (uint e = LANE; e < {self._word('num_edges')}; e += ROWS_{n}) {{",
            f"    if (!takes_part_{n}(e)) continue;",
            *indent([*self._reads(self.system), *self.system.lines], 2),
            f"    chi2 = wide_add(chi2, {self.system.outputs['rho']});",
            *(f"    sum_{name} = wide_add(sum_{name}, {self.system.outputs[name]});" for name in self._names),
            "  }",
            "barrier();",
            f"if (LANE < ROWS_{n}) {{",
            *indent(store),
            "}",
            f"gather({self._word('chunk')});",
            "return chi2;",
        ]

    def _by_chunks(self) -> list[str]:
        n = self._number
        place = f"pool[% * (ROWS_{n} | 1u) + LANE]"
        places = [place.replace("%", str(o)) for o in range(len(self._names))]
        return [
            "const uint version = 0;",
            *self._first_estimates(),
            "wide chi2 = WIDE_ZERO;",
            f"const uint num_chunks = ({self._word('num_edges')} + ROWS_{n} - 1) / ROWS_{n};",
            "for (uint chunk = 0; chunk < num_chunks; ++chunk) {",
            f"  const uint e = chunk * ROWS_{n} + LANE;",
            "  barrier();",
            f"  if (LANE < ROWS_{n} && takes_part_{n}(e)) {{",
            *indent([*self._reads(self.system), *self.system.lines], 2),
            f"    chi2 = wide_add(chi2, {self.system.outputs['rho']});",
            *(
                f"    {at} = {self.system.outputs[name]};"
                for at, name in zip(places, self._names, strict=True)
            ),
            f"  }} else if (LANE < ROWS_{n}) {{",
            f"    for (uint o = 0; o < {len(self._names)}; ++o) {place.replace('%', 'o')} = WIDE_ZERO;",
            "  }",
            f"  gather({self._word('chunk')} + chunk);",
            "}",
            "return chi2;",
        ]


def _numbers(entries: Sequence[str], text: str) -> list[Load]:
    return [Load(name, "wide", text.replace("%", str(i))) for i, name in enumerate(entries)]


def _body(
    assignment: Assignment, requested: list[str], loads: Sequence[Load], arithmetic: Arithmetic
) -> Body:
    """Statements for the requested outputs, all of them in wide numbers."""
    return edge_body(assignment, assignment.needed_by(requested), requested, loads, arithmetic, requested)


@per_type_cache
def _system(group: ProblemGroup, number: int, words: Words, arithmetic: Arithmetic) -> Body:
    """See `_GroupWriter.system`."""
    made = _GroupWriter(group, number, words, arithmetic, False).made_system()
    if made.samples_images:
        raise DeviceError(
            f"edges {group.edge_type.name} sample images, which batches do on the CPU only. Use device='cpu'."
        )
    return made


def _sum_of_systems(num_groups: int) -> list[str]:
    """The function of H, b and chi2 of all groups, which `_sum_of_chi2` adds up in the same order."""
    return [
        "wide linearize() {",
        "  wide chi2 = WIDE_ZERO;",
        *(f"  chi2 = wide_add(chi2, linearize_{n}());" for n in range(num_groups)),
        "  finish_system();",
        "  return workgroup_sum(chi2);",
        "}",
    ]


def _sum_of_chi2(num_groups: int) -> list[str]:
    """The function of chi2 after a step."""
    return [
        "wide moved_chi2() {",
        "  wide chi2 = WIDE_ZERO;",
        *(
            f"  for (uint e = LANE; LANE < ROWS_{n} && e < num_edges_{n}(); e += ROWS_{n})\n"
            f"    if (takes_part_{n}(e)) chi2 = wide_add(chi2, chi2_{n}(e));"
            for n in range(num_groups)
        ),
        "  return workgroup_sum(chi2);",
        "}",
    ]


def _moves(
    vertex_types: Sequence[Any], free_sets: Sequence[bool], words: Words, arithmetic: Arithmetic
) -> list[str]:
    """Functions: read the estimates that steps change, and move them by dx."""
    read, move = list[str](), list[str]()
    for number, (kind, is_free) in enumerate(zip(vertex_types, free_sets, strict=True)):
        if not is_free:
            continue
        loop, each = _over_moves(number, words), _working_numbers(number, kind, words)
        each[-1] += f" place[at + i] = estimate{number}.at[first + i];"
        read += [*loop, *each, "}"]
        move += [*loop, "  const uint tangent = table.at[entry + 1];", *indent(_oplus(kind, arithmetic)), "}"]
    return [
        *("void read_estimates() {", *indent(read), "  barrier();", "}"),
        *("void move() {", "  barrier();", *indent(move), "  barrier();", "}"),
    ]


def _over_moves(number: int, words: Words) -> list[str]:
    """The begin of a loop over the optimized vertices of a set."""
    return [
        f"for (uint v = LANE; v < table.at[{words.of_set(number, 'num_moves')}]; v += WORKGROUP_SIZE) {{",
        f"  const uint entry = table.at[{words.of_set(number, 'moves')}] + 3 * v, at = table.at[entry];",
    ]


def _working_numbers(number: int, kind: Any, words: Words) -> list[str]:
    """Within that loop, one over the numbers of a working type."""
    own = f"problem * table.at[{words.of_set(number, 'estimate')}]"
    return [
        f"  const uint first = {own} + table.at[entry + 2];",
        f"  for (uint i = 0; i < {kind.storage_dim}; ++i)",
    ]


def _stored_numbers(number: int, kind: Any, words: Words) -> list[str]:
    """Within that loop, where a vertex' numbers as they are stored are."""
    dim = working_vertex_type(kind).storage_dim
    rows = f"problem * table.at[{words.of_set(number, 'num_rows')}]"
    return [f"  const uint first = ({rows} + table.at[entry + 2] / {dim}) * {kind.storage_dim};"]


def _writes(
    vertex_types: Sequence[Any], free_sets: Sequence[bool], words: Words, arithmetic: Arithmetic
) -> list[str]:
    """The function that writes the estimates that steps have changed."""
    lines = list[str]()
    for number, (kind, is_free) in enumerate(zip(vertex_types, free_sets, strict=True)):
        if is_free:
            each = _working_numbers(number, working_vertex_type(kind), words)
            each[-1] += f" estimate{number}.at[first + i] = place[at + i];"
            lines += [*_over_moves(number, words), *each, "}"]
    return ["void write_estimates() {", "  barrier();", *indent(lines), "}"]


def _writes_of_stored(
    vertex_types: Sequence[Any], free_sets: Sequence[bool], words: Words, arithmetic: Arithmetic
) -> list[str]:
    """As `_writes`, in the form that is stored."""
    lines = list[str]()
    for number, (kind, is_free) in enumerate(zip(vertex_types, free_sets, strict=True)):
        if not is_free:
            continue
        names = numbered("x", kind.storage_dim)
        loads = _numbers(numbered("w", working_vertex_type(kind).storage_dim), "place[at + %]")
        statements, values = (
            list[str](),
            {name: load.expression for name, load in zip(names, loads, strict=False)},
        )
        if kind.working is not None:
            decoding = assign(compile_decoding(kind), [load.name for load in loads], names)
            body = _body(decoding, list(names), loads, arithmetic)
            reads = [
                f"const wide {load.name} = {load.expression};" for load in loads if load.name in body.used
            ]
            statements, values = [*reads, *body.lines], body.outputs
        stores = [f"stored{number}.at[first + {i}] = {values[name]};" for i, name in enumerate(names)]
        lines += [*_over_moves(number, words), *_stored_numbers(number, kind, words)]
        lines += [*indent([*statements, *stores]), "}"]
    return ["void write_estimates() {", "  barrier();", *indent(lines), "}"]


def _reads_of_cotangents(
    vertex_types: Sequence[Any], free_sets: Sequence[bool], words: Words, arithmetic: Arithmetic
) -> list[str]:
    """The function that reads estimates as they are stored and pulls their cotangents back into `newton`."""
    lines = list[str]()
    for number, (kind, is_free) in enumerate(zip(vertex_types, free_sets, strict=True)):
        if not is_free:
            continue
        dim, working = kind.storage_dim, working_vertex_type(kind)
        stored = _numbers(numbered("x", dim), f"stored{number}.at[first + %]")
        cotangent = _numbers(numbered("c", dim), f"cotangent{number}.at[first + %]")
        loads, names = [*stored, *cotangent], [load.name for load in stored]
        pulled = numbered("pulled", kind.tangent_dim)
        pullback = assign(compile_pullback(kind), [load.name for load in loads], pulled)
        body = _body(pullback, list(pulled), loads, arithmetic)
        numbers = numbered("w", working.storage_dim)
        encoded = list[str]()
        values = dict(zip(numbers, names, strict=False))
        if kind.working is not None:
            text = _body(assign(compile_encoding(kind), names, numbers), list(numbers), stored, arithmetic)
            encoded, values = text.lines, text.outputs
        lines += [
            *_over_moves(number, words),
            "  const uint tangent = table.at[entry + 1];",
            *_stored_numbers(number, kind, words),
            *(f"  const wide {load.name} = {load.expression};" for load in loads),
            "  {",
            *indent(encoded, 2),
            *(f"    place[at + {i}] = {values[name]};" for i, name in enumerate(numbers)),
            "  }",
            *indent(body.lines),
            *(f"  newton[tangent + {i}] = {body.outputs[name]};" for i, name in enumerate(pulled)),
            "}",
        ]
    return ["void read_estimates() {", *indent(lines), "  barrier();", "}"]


def _oplus(kind: Any, arithmetic: Arithmetic) -> list[str]:
    """Text that moves the vertex at `at` by dx from `tangent` on."""
    dim = kind.storage_dim
    estimate, step, moved = numbered("x", dim), numbered("step", kind.tangent_dim), numbered("moved", dim)
    loads = [*_numbers(estimate, "place[at + %]"), *_numbers(step, "dx[tangent + %]")]
    assignment = assign(compile_vertex(kind), [load.name for load in loads], moved)
    body = _body(assignment, list(moved), loads, arithmetic)
    return [
        *(f"const wide {load.name} = {load.expression};" for load in loads if load.name in body.used),
        *body.lines,
        *(f"place[MOST_FREE + at + {i}] = {body.outputs[name]};" for i, name in enumerate(moved)),
    ]
