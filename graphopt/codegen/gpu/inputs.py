"""Where a kernel reads the inputs of an edge's program, and what its header says about them.

Estimates and parameters are records that start at multiples of 16 bytes. They are read 16 bytes at a time:
edges of a tile read records all over the buffer, and what counts then is the number of reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graphopt.codegen.edge import information_dim
from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.interface import Interface
from graphopt.codegen.gpu.layout import (
    EdgeSignature,
    argument_names,
    float32_record_dim,
    numbered,
    record_dim,
)
from graphopt.types.robust_kernels import robust_kernel


@dataclass(frozen=True)
class Load:
    """An input of a function: where its value is read."""

    name: str
    kind: str
    """"wide" or "real"."""
    expression: str
    needs: str = ""
    """Statement that must come before it: the read of a whole vector."""


def record_loads(
    prefix: str, entries: Sequence[str], buffer: str, row: str, arithmetic: Arithmetic, in_float32: bool
) -> list[Load]:
    """Entries of the record `row` of a buffer, two wide or four float32 numbers at a time."""
    if in_float32:
        kind, vector, width, parts = "real", "real4", 4, ("x", "y", "z", "w")
        stride = float32_record_dim(len(entries)) // width
    else:
        kind, vector, width = "wide", "wide2", 2
        parts = ("xy", "zw") if arithmetic == "two_float" else ("x", "y")
        stride = record_dim(len(entries)) // width
    loads = []
    for i, entry in enumerate(entries):
        whole = f"{prefix}_v{i // width}"
        place = f"AT({buffer}, {row} * {stride}, {i // width})"
        loads.append(Load(entry, kind, f"{whole}.{parts[i % width]}", f"const {vector} {whole} = {place};"))
    return loads


def edge_loads(
    signature: EdgeSignature, in_float32: bool, arithmetic: Arithmetic = "double"
) -> list[list[Load]]:
    """Inputs of an edge's program in its order: one list per vertex, parameter, and for the data.

    in_float32: read the float32 copies.
    """
    kind = signature.edge_type
    names = argument_names(kind)
    groups: list[list[Load]] = []
    for k, (name, slot_type) in enumerate(zip(names, [*kind.vertices, *kind.parameters], strict=False)):
        entries = numbered(name, slot_type.storage_dim)
        buffer = record_buffer(signature, k, in_float32)
        groups.append(record_loads(name, entries, buffer, f"{name}_row", arithmetic, in_float32))
    data = [
        *numbered(names[-1], kind.measurement_dim),
        *numbered("omega", information_dim(kind.residual_dim, signature.information)),
        *(["width"] if signature.kernel else []),
    ]
    number_kind, buffer = ("real", "data_float32") if in_float32 else ("wide", "data")
    edge, needs = "e", ""
    if signature.shares_data:
        buffer, edge = f"shared_{buffer}", "shared_edge"
        needs = "const uint shared_edge = AT(data_place, e, 0);"
    expression = f"BLOCKED({buffer}, {edge}, %, {signature.num_data})"
    groups.append([Load(x, number_kind, expression.replace("%", str(i)), needs) for i, x in enumerate(data)])
    return groups


def record_buffer(signature: EdgeSignature, k: int, in_float32: bool) -> str:
    """Buffer of vertex or parameter slot k, counted together; slots of one type share the first one's."""
    if k < signature.arity:
        return f"{'float32_estimate' if in_float32 else 'estimate'}{signature.set_of_slot(k)}"
    number = signature.set_of_parameter(k - signature.arity)
    return f"{'float32_parameter' if in_float32 else 'parameter'}{number}"


def declare_inputs(interface: Interface, signature: EdgeSignature) -> None:
    """Buffers that `edge_loads` reads, of wide numbers."""
    for k in range(signature.num_rows):
        name = record_buffer(signature, k, False)
        interface.add(name, f"FAR_RECORDS(%, wide2, {name})")
    interface.add("rows", ROWS)
    declare_data(interface, signature, "data")


def declare_data(interface: Interface, signature: EdgeSignature, name: str) -> None:
    """Measurements, information and widths, wide as `data` or as `data_float32`."""
    if signature.shares_data:
        interface.add(f"shared_{name}", numbers_of_edges(name).replace(name, f"shared_{name}"))
        interface.add("data_place", "FAR_INPUT(%, uint, 2, data_place)")
    else:
        interface.add(name, numbers_of_edges(name))


ROWS = "FAR_INPUT(%, uint, 2, rows)"
"""Declaration of the rows of edges."""


def numbers_of_edges(name: str) -> str:
    """Declaration of `data`, or of its float32 copy `data_float32`."""
    return "FAR_INPUT(%, wide, 3, data)" if name == "data" else f"LARGE_INPUT(%, {name})"


def load_lines(
    signature: EdgeSignature, groups: Sequence[Sequence[Load]], used: set[str], keep_rows: Iterable[str] = ()
) -> list[str]:
    """Text that reads the used inputs of edge `e`; `keep_rows`: names whose row is read in any case."""
    lines = []
    names = argument_names(signature.edge_type)
    rows = set(keep_rows)
    for k, group in enumerate(groups):
        requested = [load for load in group if load.name in used]
        if k < signature.num_rows and (requested or names[k] in rows):
            lines.append(f"const uint {names[k]}_row = {row_of('e', k, signature)};")
        lines += dict.fromkeys(load.needs for load in requested if load.needs)
        lines += [f"const {load.kind} {load.name} = {load.expression};" for load in requested]
    return lines


_ROW = re.compile(r"const uint (\w+) = ((?:BLOCKED\(rows|AT\(data_place), )e(, .*);")


def prefetched_rows(reads: Sequence[str]) -> tuple[list[str], list[str]]:
    """Text before a loop over edges `e`, and the reads inside, so that rows come one edge ahead.

    The records that they say where to find are then asked for at once.
    """
    before, first, inside, following = list[str](), list[str](), list[str](), list[str]()
    for line in reads:
        found = _ROW.fullmatch(line)
        if found is None:
            inside.append(line)
            continue
        name, read, rest = found.groups()
        before.append(f"uint {name}_next = 0;")
        first.append(f"  {name}_next = {read}begin + LANE{rest};")
        inside.append(f"const uint {name} = {name}_next;")
        following.append(f"  {name}_next = {read}e + WORKGROUP_SIZE{rest};")
    if not before:
        return [], inside
    rows = [line for line in inside if line.endswith("_next;")]
    others = [line for line in inside if not line.endswith("_next;")]
    return (
        [*before, "if (begin + LANE < end) {", *first, "}"],
        [*rows, "if (e + WORKGROUP_SIZE < end) {", *following, "}", *others],
    )


def row_of(edge: str, k: int, signature: EdgeSignature) -> str:
    """Text of the row of slot k, vertices and parameters counted together, of an edge."""
    return f"BLOCKED(rows, {edge}, {k}, {signature.num_rows})"


def describe_type(signature: EdgeSignature) -> list[str]:
    """Header lines about the edge type."""
    kind = signature.edge_type
    names = argument_names(kind)
    vertices = [
        f"{name}: {v.name}, {v.storage_dim} numbers, {v.tangent_dim} tangent"
        for name, v in zip(names, kind.vertices, strict=False)
    ]
    parameters = [
        f"{name}: {p.name}, {p.storage_dim} numbers"
        for name, p in zip(names[signature.arity :], kind.parameters, strict=False)
    ]
    tag, kernel = getattr(kind, "tag", ""), robust_kernel(signature.kernel).name
    return [
        f"{kind.name}{f' ({tag})' if tag else ''}: residual e of {kind.residual_dim}",
        *(f"  {line}" for line in (*vertices, *parameters)),
        f"  {names[-1]}: measurement, {kind.measurement_dim} numbers",
        f"  omega: information, {signature.information}; robust kernel: {kernel}",
    ]
