"""Programs as C++ functions: `python -m graphopt.codegen.machine_code LIST FOLDER`, run by the build.

LIST has a line per edge type, variant of its information, and whether it has a robust kernel, lines of a
vertex type and "oplus", and "robust kernels"; FOLDER gets a file of programs for each, and `table.cpp`.
Values stay in processor registers where the interpreter keeps them in memory; instructions, their order
and so all digits are the same. At run time a program finds its function by the fingerprint of its
bytecode (native/src/vm/machine_code.h), so a type that was edited since is interpreted.

Needs numpy, no native module.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from graphopt.codegen.bytecode import Instruction
from graphopt.codegen.edge import compile_edge, compile_robust_kernel, compile_vertex
from graphopt.codegen.program import Program
from graphopt.types import BUILTIN_TYPES, EdgeType, VertexType
from graphopt.types.base import working_edge_type, working_vertex_type
from graphopt.types.robust_kernels import KERNELS

_HEAD = """// Written by graphopt.codegen.machine_code.
#include "vm/operations.h"

namespace graphopt::vm {
"""
_TAIL = "}  // namespace graphopt::vm\n"
_MASK = (1 << 64) - 1


def fingerprint(program: Program) -> int:
    """FNV-1a over the words of code, constants and registers, as native/src/vm/machine_code.cpp takes it."""
    words: list[int] = []
    for values in (program.code, program.constants, program.input_registers, program.output_registers):
        words.append(len(values))
        if values.dtype == np.float64:
            words += np.ascontiguousarray(values).view(np.uint64).tolist()
        else:
            words += values.tolist()
    words.append(program.num_registers)
    result = 0xCBF29CE484222325
    for word in words:
        result = ((result ^ (word & _MASK)) * 0x100000001B3) & _MASK
    return result


def function(program: Program, name: str) -> str:
    """C++ functions that run the program: on all lanes of a frame, and on a frame of a single vector."""
    values = _Values(program)
    lines = [line for instruction in program.instructions for line in values.statements(instruction)]
    body = "".join(f"    {line}\n" for line in [*lines, *values.stores()])
    context = "[[maybe_unused]] const RobustContext& robust"
    return (
        f"// {program.name}\n"
        f"template <int Stride>\nstatic void body_{name}(double* frame, {context}, int num_lanes) {{\n"
        "  for (int at = 0; at < num_lanes; at += kVectorLanes) {\n"
        "    [[maybe_unused]] double* const f = frame + at;\n"
        f"{body}"
        "  }\n"
        "}\n"
        f"void {name}(double* frame, const RobustContext& robust, int num_lanes) {{\n"
        f"  body_{name}<kLanes>(frame, robust, num_lanes);\n"
        "}\n"
        f"void narrow_{name}(double* frame, const RobustContext& robust, int) {{\n"
        f"  body_{name}<kVectorLanes>(frame, robust, kVectorLanes);\n"
        "}\n"
    )


class _Values:
    """Which C++ variable has what a register holds now."""

    def __init__(self, program: Program):
        self._program = program
        self._inputs = {register for register in program.input_registers.tolist() if register >= 0}
        self._names: dict[int, str] = {}
        self._loads: list[str] = []
        self._count = 0

    def statements(self, instruction: Instruction) -> Iterator[str]:
        """Statements of an instruction, loads of inputs first."""
        sources = [self._source(register) for register in instruction.sources]
        loads, self._loads = self._loads, []
        yield from loads
        if instruction.name in ("BLOCK", "SUM"):
            sums = (
                _block(instruction, sources) if instruction.name == "BLOCK" else [_sum(instruction, sources)]
            )
            for register, value in zip(instruction.destinations, sums, strict=True):
                yield f"const Vec v{self._count} = {value};"
                self._names[register] = f"v{self._count}"
                self._count += 1
            return
        results = [f"v{self._count + k}" for k in range(len(instruction.destinations))]
        self._count += len(results)
        if len(results) == 1:
            yield f"const Vec {results[0]} = op_{instruction.name}({', '.join(sources)});"
        else:
            context = ["robust", "at"] if instruction.name == "ROBUST" else []
            yield f"Vec {', '.join(results)};"
            yield f"op_{instruction.name}({', '.join([*context, *sources, *results])});"
        self._names.update(zip(instruction.destinations, results, strict=True))

    def stores(self) -> Iterator[str]:
        """Statements that store the outputs."""
        for register in dict.fromkeys(self._program.output_registers.tolist()):
            if register in self._names and self._names[register][0] == "v":
                yield f"store(f + {register} * Stride, {self._names[register]});"

    def _source(self, register: int) -> str:
        if register < len(self._program.constants):
            return f"broadcast({_literal(float(self._program.constants[register]))})"
        if register not in self._names:
            assert register in self._inputs, "a register is read before it is written"
            self._names[register] = f"in{register}"
            self._loads.append(f"const Vec in{register} = load(f + {register} * Stride);")
        return self._names[register]


def _sum(instruction: Instruction, sources: list[str]) -> str:
    assert instruction.counts is not None
    num_pos, num_neg, num_plus, _ = instruction.counts
    pairs = [(sources[2 * k], sources[2 * k + 1]) for k in range(num_pos + num_neg)]
    terms = sources[2 * (num_pos + num_neg) :]
    total = terms[0] if num_plus else "Vec{}"
    for k, (a, b) in enumerate(pairs):
        total = f"{'fma' if k < num_pos else 'fnma'}({a}, {b}, {total})"
    for k, term in enumerate(terms[1 if num_plus else 0 :], 1 if num_plus else 0):
        total = f"({total} {'+' if k < num_plus else '-'} {term})"
    return total


def _block(instruction: Instruction, sources: list[str]) -> Iterator[str]:
    assert instruction.counts is not None
    rows, columns, num_pos, num_neg = instruction.counts
    length = num_pos + num_neg
    sides = [sources[k * length : (k + 1) * length] for k in range(rows + columns)]
    for row in sides[:rows]:
        for column in sides[rows:]:
            total = "Vec{}"
            for k, (a, b) in enumerate(zip(row, column, strict=True)):
                total = f"{'fma' if k < num_pos else 'fnma'}({a}, {b}, {total})"
            yield total


def _literal(value: float) -> str:
    if not np.isfinite(value):
        return '__builtin_nan("")' if np.isnan(value) else f"{'-' if value < 0 else ''}__builtin_inf()"
    return value.hex()


def programs_of(line: str) -> list[Program]:
    """chi2 and linearize of a line of the list, oplus of a vertex type, or all robust kernels."""
    if line == "robust kernels":
        functions = dict.fromkeys(kernel.function for kernel in KERNELS)
        return [compile_robust_kernel(function) for function in functions]
    name, *rest = line.split()
    found = [builtin_type for builtin_type in BUILTIN_TYPES if builtin_type.name == name]
    if rest == ["oplus"] and len(found) == 1 and isinstance(found[0], VertexType):
        return [compile_vertex(working_vertex_type(found[0]))]
    if len(found) != 1 or not isinstance(found[0], EdgeType) or rest[1:] not in (["robust"], ["plain"]):
        raise ValueError(
            f"{line!r}: expected an edge type, its information, and 'robust' or 'plain'; or a vertex type "
            "and 'oplus'."
        )
    information, kernel = rest
    robust = KERNELS[1].function if kernel == "robust" else None
    compiled = compile_edge(working_edge_type(found[0]), information=information, robust=robust)
    return [compiled.chi2, compiled.linearize]


def lines_of(path: Path) -> list[str]:
    """Lines of the list, without comments."""
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def write_functions(lines: list[str], folder: Path) -> None:
    """Write one file per line and the table; files that would not change are left alone."""
    table: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        functions = []
        for k, program in enumerate(programs_of(line)):
            name = f"run_{number}_{k}"
            functions.append(f"{_declared(name)}\n{function(program, name)}")
            table.append((fingerprint(program), name))
        _write(folder / f"program_{number}.cpp", f"{_HEAD}\n" + "\n".join(functions) + f"\n{_TAIL}")
    declared = "".join(_declared(name) for _, name in table)
    rows = "".join(f"    {{{value:#x}, &{name}, &narrow_{name}}},\n" for value, name in table)
    rows += "    {0, nullptr, nullptr},\n"
    text = (
        '// Written by graphopt.codegen.machine_code.\n#include "vm/machine_code.h"\n\n'
        f"namespace graphopt::vm {{\n\n{declared}\n"
        f"const MachineCode kMachineCode[] = {{\n{rows}}};\n"
        f"const int kNumMachineCode = {len(table)};\n\n{_TAIL}"
    )
    _write(folder / "table.cpp", text)


def _declared(name: str) -> str:
    arguments = "(double*, const RobustContext&, int);\n"
    return f"void {name}{arguments}void narrow_{name}{arguments}"


def _write(path: Path, text: str) -> None:
    if path.exists() and path.read_text() == text:
        return
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m graphopt.codegen.machine_code", description="Programs as C++ functions."
    )
    parser.add_argument("list", type=Path, help="which programs")
    parser.add_argument("folder", type=Path, help="where the files go")
    arguments = parser.parse_args()
    os.environ["GRAPHOPT_CACHE"] = "off"  # a build leaves nothing in the user's folder
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write_functions(lines_of(arguments.list), arguments.folder)


if __name__ == "__main__":
    main()
