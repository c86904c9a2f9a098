"""Linear-scan register allocation.

Registers are numbered: constants, then inputs that are read, then others. A register is free again after the
last read of its value, inputs included; outputs keep theirs to the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphopt.codegen.bytecode import Instruction
from graphopt.symbolic.expr import Expr


@dataclass(frozen=True)
class Allocation:
    """Instructions on registers, and where constants, inputs and outputs are."""

    instructions: list[Instruction]
    constants: np.ndarray
    """(num_constants,) float64: values of the first registers."""
    input_registers: np.ndarray
    """(num_inputs,) int32; -1: the input is not used."""
    output_registers: np.ndarray
    """(num_outputs,) int32."""
    num_registers: int


def allocate(
    instructions: list[Instruction],
    inputs: Sequence[Expr],
    outputs: Sequence[Expr],
    constants: dict[int, float],
) -> Allocation:
    """Give every value a register. `constants` maps value ids to numbers."""
    last_use = {s: k for k, i in enumerate(instructions) for s in i.sources}
    end = len(instructions)
    last_use.update({e.id: end for e in outputs})
    register = {v: r for r, v in enumerate(constants)}
    for e in inputs:
        if e.id in last_use:
            register[e.id] = len(register)
    last_use.update(dict.fromkeys(constants, end))
    input_registers = np.array([register.get(e.id, -1) for e in inputs], dtype=np.int32)
    num_registers = len(register)
    free: list[int] = []
    result = []
    for k, (name, values, sources, counts) in enumerate(instructions):
        places = tuple([register[s] for s in sources])
        free += dict.fromkeys([register[s] for s in sources if last_use[s] == k])
        for d in values:
            if not free:
                free.append(num_registers)
                num_registers += 1
            register[d] = free.pop()
        result.append(Instruction(name, tuple([register[d] for d in values]), places, counts))
        free += [register[d] for d in values if d not in last_use]
    return Allocation(
        result,
        np.array(list(constants.values()), dtype=np.float64),
        input_registers,
        np.array([register[e.id] for e in outputs], dtype=np.int32),
        num_registers,
    )
