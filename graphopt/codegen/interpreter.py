"""Packs programs for the interpreter on the device (`shaders/interpret.comp`).

The instructions are those of `bytecode`, laid out so that a GPU decodes them with one load:

    16 bytes per instruction = 8 half words: opcode, destinations, sources
    SUM:   opcode, d, np, nn, xp, xn, 0, 0        BLOCK: opcode, m, n, np, nn, 0, 0, 0

and behind SUM and BLOCK their remaining operands in the bytecode's order, two per 32-bit word, filled up to
16 bytes. Registers 0 .. num_constants - 1 are the constants; register num_constants + r is *row* r of the
scratch buffer. What differs from the bytecode:

- the robust kernel's program stands where the ROBUST instruction was, with registers of its own, and its
  width is one more input;
- COPY, d, s, which the bytecode does not have, moves values there and makes rows of outputs that are
  constants, so that every output is a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphopt.codegen.bytecode import OPCODE, WORD_LIMIT, Instruction
from graphopt.codegen.program import Program
from graphopt.errors import SymbolicError

COPY = 65535
"""Opcode of COPY, d, s."""
HEAD = 8
"""Half words of an instruction."""


@dataclass(frozen=True, eq=False)
class DeviceProgram:
    """A program as the device's interpreter reads it."""

    name: str
    words: np.ndarray
    """(n, 4) uint32."""
    constants: np.ndarray
    """(num_constants,) float64: the first registers."""
    input_rows: np.ndarray
    """(num_inputs,) int32: scratch row of each input, -1: not read."""
    width_row: int
    """Scratch row of the robust kernel's width, -1: not read."""
    output_rows: np.ndarray
    """(num_outputs,) int32: scratch row of each output."""
    num_rows: int
    """Rows of the scratch buffer."""

    @property
    def nbytes(self) -> int:
        """Size on the device, without the scratch buffer."""
        return self.words.nbytes + self.constants.nbytes


def pack_program(program: Program, kernel: Program | None = None) -> DeviceProgram:
    """Pack a program; `kernel` (chi2, width -> rho, weight) runs where it has a ROBUST instruction.

    Raises `SymbolicError` where it needs more registers than a half word can number.
    """
    builder = _Builder(program, kernel)
    words = np.array(builder.run(), np.uint16).view(np.uint32).reshape(-1, 4)
    return DeviceProgram(
        program.name,
        words,
        builder.constants,
        builder.rows(builder.inputs),
        builder.width - builder.num_constants if builder.width >= 0 else -1,
        builder.rows(builder.outputs),
        builder.num_registers - builder.num_constants,
    )


class _Builder:
    """Registers: constants of the program, of the kernel, 1; then the program's, the kernel's, the width."""

    def __init__(self, program: Program, kernel: Program | None):
        self.program, self.kernel = program, kernel
        is_robust = any(i.name == "ROBUST" for i in program.instructions)
        inner = kernel.constants if kernel is not None and is_robust else np.zeros(0)
        one = np.ones(1 if is_robust and kernel is None else 0)
        self.constants = np.concatenate([program.constants, inner, one])
        self.num_constants = len(self.constants)
        num_own = len(program.constants)
        shift = self.num_constants - num_own
        self.num_registers = program.num_registers + shift
        self.own = [*range(num_own), *range(self.num_constants, self.num_registers)]
        """Where the program's registers went."""
        self.inner: list[int] = []
        """Where those of the kernel went."""
        self.width = -1
        if kernel is not None and is_robust:
            first = self.num_registers
            self.num_registers += kernel.num_registers - len(kernel.constants)
            constants_at = range(num_own, num_own + len(kernel.constants))
            self.inner = [*constants_at, *range(first, self.num_registers)]
            if kernel.input_registers[1] >= 0:
                self.width = self.new_register()
        self.inputs = [self.own[r] if r >= 0 else -1 for r in program.input_registers.tolist()]
        self.outputs = [self.own[r] for r in program.output_registers.tolist()]

    def new_register(self) -> int:
        self.num_registers += 1
        return self.num_registers - 1

    def rows(self, registers: Sequence[int]) -> np.ndarray:
        return np.array([r - self.num_constants if r >= 0 else -1 for r in registers], np.int32)

    def run(self) -> list[int]:
        """All half words; gives outputs that are constants a row."""
        halves: list[int] = []
        for instruction in self.program.instructions:
            if instruction.name == "ROBUST":
                halves += self._robust(instruction)
            else:
                halves += _pack(instruction, self.own)
        for k, register in enumerate(self.outputs):
            if register < self.num_constants:
                self.outputs[k] = self.new_register()
                halves += _copy(self.outputs[k], register)
        if self.num_registers > WORD_LIMIT + 1:
            raise SymbolicError(
                f"{self.program.name} needs {self.num_registers} registers on the device, there are "
                f"{WORD_LIMIT + 1}. Split the edge type."
            )
        return halves + _padded([OPCODE["END"]])

    def _robust(self, instruction: Instruction) -> list[int]:
        rho, weight = [self.own[r] for r in instruction.destinations]
        chi2 = self.own[instruction.sources[0]]
        if self.kernel is None:
            return [*_copy(rho, chi2), *_copy(weight, self.num_constants - 1)]
        halves: list[int] = []
        for register, value in zip(self.kernel.input_registers.tolist(), (chi2, self.width), strict=True):
            if register >= 0:
                halves += _copy(self.inner[register], value)
        for inner in self.kernel.instructions:
            halves += _pack(inner, self.inner)
        for register, result in zip((rho, weight), self.kernel.output_registers.tolist(), strict=True):
            halves += _copy(register, self.inner[result])
        return halves


def _pack(instruction: Instruction, places: Sequence[int]) -> list[int]:
    """Half words of an instruction whose register r went to places[r]."""
    name, destinations, sources, counts = instruction
    operands = [places[r] for r in (*destinations, *sources)]
    if name == "SUM":
        return _padded([OPCODE[name], operands[0], *(counts or ())]) + _padded(operands[1:])
    if name == "BLOCK":
        return _padded([OPCODE[name], *(counts or ())]) + _padded(operands)
    return _padded([OPCODE[name], *operands])


def _copy(destination: int, source: int) -> list[int]:
    return _padded([COPY, destination, source])


def _padded(halves: list[int]) -> list[int]:
    return halves + [0] * (-len(halves) % HEAD)
