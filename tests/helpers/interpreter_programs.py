"""Runs packed programs on a device, for tests of the interpreter."""

from __future__ import annotations

import numpy as np

from graphopt.codegen.interpreter import pack_program
from graphopt.codegen.program import Program
from graphopt.vulkan.data.array import pack_wide, unpack_wide
from graphopt.vulkan.program import Program as program_of
from graphopt.vulkan.schedules.interpreted import _IN_ORDER, Interpreter


def run_on_device(
    interpreter: Interpreter, program: Program, inputs: np.ndarray, kernel: Program | None = None, width=None
) -> np.ndarray:
    """Outputs (n, num_outputs) at inputs (n, num_inputs); width (n,) of the robust kernel."""
    packed = pack_program(program, kernel)
    device = interpreter.context.device
    columns = [inputs] if width is None else [inputs, width[:, None]]
    source = device.upload(pack_wide(np.concatenate(columns, axis=1), device.has_float64))
    on_device = interpreter.program(packed, len(inputs))
    targets = on_device.targets(0, program.num_inputs, with_width=width is not None)
    num_components = program.num_inputs + (width is not None)
    results = []
    for chunk in range(on_device.num_chunks):
        dims = (num_components, num_components, 0)
        buffers = (source, interpreter.dummy, interpreter.dummy, targets)
        recorded = program_of(interpreter.context)
        recorded.step([on_device.load(_IN_ORDER, buffers, chunk, dims)]).step([on_device.run(chunk)]).run()
        rows = device.download(on_device.scratch, np.float64, packed.num_rows * on_device.chunk)
        rows = rows.reshape(packed.num_rows, on_device.chunk)[packed.output_rows]
        wanted = np.ascontiguousarray(rows[:, : on_device.items_of(chunk)[1]].T)
        results.append(unpack_wide(wanted.ravel(), device.has_float64).reshape(wanted.shape))
    return np.concatenate(results)
