"""A compiled function: bytecode, its constants, and the registers of its inputs and outputs.

expressions -> rewrite in context, share partial sub-expressions -> lower -> form blocks -> order -> allocate
-> encode
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphopt.codegen.allocate import allocate
from graphopt.codegen.blocks import form_blocks
from graphopt.codegen.bytecode import Instruction, decode, disassemble, encode, interpret
from graphopt.codegen.lower import lower
from graphopt.codegen.order import order
from graphopt.codegen.rewrites import rewrite_expressions
from graphopt.errors import ShapeError
from graphopt.symbolic.expr import Expr, Roots, topological
from graphopt.symbolic.verify import verify


@dataclass(frozen=True, eq=False)
class Program:
    """Bytecode of one function of float64 scalars."""

    name: str
    code: np.ndarray
    """(num_words,) uint16, see `bytecode`."""
    constants: np.ndarray
    """(num_constants,) float64: the first registers."""
    input_registers: np.ndarray
    """(num_inputs,) int32; -1: not used."""
    output_registers: np.ndarray
    """(num_outputs,) int32."""
    num_registers: int

    @property
    def num_inputs(self) -> int:
        """Number of scalars that the function takes."""
        return len(self.input_registers)

    @property
    def num_outputs(self) -> int:
        """Number of scalars that the function returns."""
        return len(self.output_registers)

    @cached_property
    def instructions(self) -> list[Instruction]:
        """The decoded instructions."""
        return list(decode(self.code))

    @cached_property
    def native(self) -> Any:
        """The program in the CPU module of this processor."""
        from graphopt.cpu_kernels import kernels

        return kernels.Program(
            self.code, self.constants, self.input_registers, self.output_registers, self.num_registers
        )

    def run(self, inputs: np.ndarray) -> np.ndarray:
        """Values (n, num_outputs) at `inputs` (n, num_inputs), computed by the CPU interpreter."""
        inputs = np.ascontiguousarray(inputs, dtype=np.float64)
        if inputs.ndim != 2 or inputs.shape[1] != self.num_inputs:
            raise ShapeError(
                f"{self.name}: inputs have shape {inputs.shape}, expected (n, {self.num_inputs})."
            )
        return self.native.run(inputs)

    def interpret(self, inputs: np.ndarray, robust: Callable | None = None) -> np.ndarray:
        """Do the same in numpy: slow, the definition of the bytecode."""
        inputs = np.asarray(inputs, dtype=float)
        registers: list[np.ndarray] = [np.zeros(len(inputs))] * self.num_registers
        for r, value in enumerate(self.constants):
            registers[r] = np.full(len(inputs), value)
        for i, r in enumerate(self.input_registers):
            if r >= 0:
                registers[r] = inputs[:, i]
        interpret(self.code, registers, robust)
        columns = [np.broadcast_to(registers[r], len(inputs)) for r in self.output_registers]
        return np.stack(columns, axis=-1) if columns else np.zeros((len(inputs), 0))

    @property
    def num_flops(self) -> int:
        """Arithmetic operations per evaluation; a multiply-add counts 2, a transcendental function 1."""
        return sum(i.num_flops for i in self.instructions)

    def operation_counts(self) -> Counter[str]:
        """Instructions by name."""
        return Counter(i.name for i in self.instructions)

    def explain(self) -> str:
        """Size, registers and operations in a few lines."""
        counts = ", ".join(f"{n} {name}" for name, n in self.operation_counts().most_common())
        return (
            f"{self.name}: {self.num_inputs} inputs, {self.num_outputs} outputs, "
            f"{self.num_registers} registers ({len(self.constants)} constants), {self.num_flops} flops, "
            f"{len(self.code)} words\n  {counts}"
        )

    def disassemble(self) -> str:
        """Return the instructions as text."""
        return disassemble(self.code)


def build_program(
    name: str,
    inputs: Sequence[Expr],
    outputs: Sequence[Expr],
    share: bool = True,
) -> Program:
    """Compile `outputs` as functions of the variables `inputs`; `share`: rewrite expressions first."""
    check = "verify" in os.environ.get("GRAPHOPT_DEBUG", "")
    if check:
        verify(outputs, f"simplification of {name}")
    outputs = Roots.of(outputs)
    if share:
        outputs = rewrite_expressions(outputs)
        if check:
            verify(outputs, f"rewriting of {name}")
    instructions = form_blocks(lower(outputs))
    needed = {s for i in instructions for s in i.sources} | {e.id for e in outputs}
    constants = {e.id: e.value for e in topological(outputs) if e.op == "const" and e.id in needed}
    instructions = order(instructions, [e.id for e in outputs], set(constants))
    allocation = allocate(instructions, inputs, outputs, constants)
    program = Program(
        name,
        encode(allocation.instructions),
        allocation.constants,
        allocation.input_registers,
        allocation.output_registers,
        allocation.num_registers,
    )
    if "kernels" in os.environ.get("GRAPHOPT_DEBUG", ""):
        print(program.explain(), program.disassemble(), sep="\n")
    return program


def sampled_runs(program: Program) -> int:
    """Runs of neighbouring pixels that an evaluation reads: 2 per bilinear sample, 4 per bicubic one."""
    counts = program.operation_counts()
    return 2 * counts["SAMPLE"] + 4 * counts["SAMPLE_CUBIC"]


def sampled_planes(program: Program) -> set[int]:
    """Handles of the planes that a program names by constants: of images its function captured.

    Handles that come with parameters are not among them.
    """
    handles: set[int] = set()
    for instruction in program.instructions:
        if instruction.name in ("SAMPLE", "SAMPLE_CUBIC"):
            register = instruction.sources[0]
            if register < len(program.constants):
                handles.add(int(program.constants[register]))
    return handles
