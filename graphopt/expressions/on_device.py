"""Evaluation of batches on a device: the interpreter of shaders/batch.comp, one submission for all.

Values of parameters alone are computed on the host (they are few) and uploaded with the instructions.
Expressions are dispatched in classes by the registers that they need: a kernel's private memory decides how
many of its workgroups run at the same time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from graphopt.device import DeviceError, open_device
from graphopt.expressions.arguments import ParameterSets, Points
from graphopt.expressions.batch import ExpressionBatch

_WORKGROUP = 128
_LARGEST = 1 << 32
"""Bytes of a buffer that kernels count in 32 bits."""
_MOST_GROUPS = 1 << 22
"""Workgroups of a dispatch."""


class _Buffers(NamedTuple):
    code: Any
    table: Any
    items: Any
    data: Any
    target: Any
    scalars: Any
    result: Any


def evaluate_on_device(
    spec: str, batch: ExpressionBatch, points: Points, sets: ParameterSets, rows: np.ndarray
) -> None:
    """Fill `rows`: values (all sets, num_points), or with a target sums (all sets,).

    float64 data needs a device with float64. Raises DeviceError where a result needs 4 GiB or more.
    """
    device: Any = open_device(spec)
    double = points.data.dtype == np.float64
    if double and not device.has_float64:
        raise DeviceError(f"{device.name} has no float64. Pass data in float32, or use device='cpu'.")
    if rows.size == 0:
        return
    num_blocks = -(-points.num_points // _WORKGROUP)
    per_set = points.num_points if points.target is None else num_blocks
    result_bytes = sets.total * per_set * points.data.itemsize
    code, table, scalars, registers = batch.native.pack(points.data, sets.values, sets.num_sets, sets.strides)
    refuse_large(code, scalars, points.data, nbytes=result_bytes)
    classes = _register_classes(registers)
    items = np.concatenate([class_ for _, class_ in classes]).astype(np.uint32)
    target = points.data[:1] if points.target is None else points.target

    def up(array: np.ndarray) -> Any:
        return device.upload(array if array.size else np.zeros(16, np.uint32))

    buffers = _Buffers(
        up(code),
        up(table),
        up(items),
        up(points.data),
        up(target),
        up(scalars),
        device.allocate(result_bytes),
    )
    recorder = device.record("batch of expressions")
    _record(device, recorder, buffers, points, classes, num_blocks)
    result = buffers.result
    if points.target is not None:
        recorder.barrier()
        result = device.allocate(sets.total * points.data.itemsize)
        kernel = device.shader("batch_fold", _precision(points), 2, 2, {0: _WORKGROUP})
        recorder.dispatch(
            kernel, (buffers.result, result), (sets.total, num_blocks), -(-sets.total // _WORKGROUP)
        )
    device.submit(recorder.barrier().finish())
    if rows.dtype == points.data.dtype:
        device.read([(result, 0, rows)])
    else:
        rows[:] = device.download(result, points.data.dtype, rows.size)


def refuse_large(*arrays: np.ndarray, nbytes: int = 0) -> None:
    """DeviceError where an array, or a result of `nbytes`, is larger than kernels can count."""
    largest = max(nbytes, *(array.nbytes for array in arrays))
    if largest >= _LARGEST:
        raise DeviceError(
            f"The batch needs a buffer of {largest} bytes on the device, expected less than {_LARGEST}. "
            "Take fewer expressions or sets at a time, or pass a target where values are evaluated."
        )


def _precision(points: Points) -> Any:
    return "double" if points.data.dtype == np.float64 else "mixed"


def _register_classes(registers: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """(registers of the kernel, expressions), by powers of two."""
    sizes = 2 ** np.ceil(np.log2(np.maximum(registers, 8))).astype(int)
    return [(int(size), np.flatnonzero(sizes == size)) for size in np.unique(sizes)]


def _record(
    device: Any,
    recorder: Any,
    buffers: _Buffers,
    points: Points,
    classes: list[tuple[int, np.ndarray]],
    num_blocks: int,
) -> None:
    first = 0
    stride = points.data.shape[1]
    most = max(1, _MOST_GROUPS // num_blocks)  # expressions of a dispatch
    for num_registers, members in classes:
        constants = {0: _WORKGROUP, 1: num_registers, 2: int(points.target is not None)}
        kernel = device.shader("batch", _precision(points), len(buffers), 5, constants)
        for begin in range(0, len(members), most):
            count = min(most, len(members) - begin)
            params = (first + begin, points.num_points, stride, len(points.data), num_blocks)
            recorder.dispatch(kernel, tuple(buffers), params, count * num_blocks)
        first += len(members)
