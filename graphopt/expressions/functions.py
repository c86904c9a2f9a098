"""Functions of arrays as kernels.

    @graphopt.device_function(pose=("indexed", 7), point=("sequential", 3))
    def transformed(pose, point):
        return SE3(pose).act(point)

    transformed(pose=(poses, rows), point=points)                      # numpy, on the CPU
    transformed(pose=(poses, rows), point=points, device="vulkan")     # numpy, on a GPU
    transformed(pose=(on_device, rows), point=points)                  # DeviceArray: the result stays there

The function sees one row of each argument, as a residual does: it is called once with symbols and compiled to
a program, which the CPU interprets on vectors of rows, and to one kernel per device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphopt.codegen.program import Program, build_program
from graphopt.codegen.trace import call_with_symbols
from graphopt.codegen.workspace import workspace
from graphopt.device import DeviceError, open_device
from graphopt.errors import OptionError, ShapeError
from graphopt.expressions.device_arrays import DeviceArray, upload
from graphopt.expressions.function_kernels import ROW, WORKGROUP, function_kernel
from graphopt.symbolic import as_exprs, variables

RESULTS = ("rows", "sum", "indexed sum")
_LARGEST = 1 << 32


def device_function(
    *, returns: str = "rows", **arguments: tuple[str, int]
) -> Callable[[Callable[..., Any]], DeviceFunction]:
    """Make a function of single rows one of arrays, on the CPU or a device.

    arguments: name -> (access, numbers per row). Access "sequential": row i of the array; "indexed": row
    index[i], the argument is a pair (array, index); "unique": the same row for all. returns: "rows" (n, m);
    "sum" over all rows (m,); "indexed sum" (count, m), where the call says target=(index, count) and row i is
    added to row index[i]. Sums have a fixed order: the same bits in every run.

    Raises OptionError for an unknown access, SymbolicError where the function cannot be compiled.
    """
    if returns not in RESULTS:
        raise OptionError(f"returns is {returns!r}, expected one of {', '.join(RESULTS)}.")
    for name, (access, dim) in arguments.items():
        if access not in ROW or dim < 1 or name in ("device", "target"):
            raise OptionError(
                f"{name}: expected a name other than device and target, one of {', '.join(ROW)}, and a "
                f"number > 0; got ({access!r}, {dim})."
            )
    if not any(access != "unique" for access, _ in arguments.values()):
        raise OptionError("No argument is sequential or indexed: nothing says how many rows there are.")
    return lambda function: DeviceFunction(function, arguments, returns)


class DeviceFunction:
    """What `device_function` makes; call it with the arguments by name."""

    def __init__(self, function: Callable[..., Any], arguments: Mapping[str, tuple[str, int]], returns: str):
        self.__doc__, self.__name__ = function.__doc__, getattr(function, "__name__", "function")
        self.function, self.returns = function, returns
        self.arguments = [(name, access, dim) for name, (access, dim) in arguments.items()]
        self.program = _compiled(self.__name__, function, self.arguments)

    def __call__(
        self, *, device: str | None = None, target: tuple[Any, int] | None = None, **values: Any
    ) -> np.ndarray | DeviceArray:
        """Evaluate all rows.

        device: "cpu", "vulkan", ...; None: where the first DeviceArray is, else the CPU. With a DeviceArray
        among the arguments the result is one. Arrays (rows, dim) or (rows,) where dim is 1; float32 if all
        are, else float64. target: (index (n,), count) of indexed sums.

        Raises ShapeError, OptionError, DeviceError.
        """
        names = [name for name, _, _ in self.arguments]
        if set(values) != set(names):
            raise OptionError(f"{self.__name__} got {sorted(values)}, expected {names}.")
        rows = _Rows(self.__name__, self.arguments, values)
        sums = _checked_target(self.__name__, self.returns, target, rows.count)
        stays = [array for array in rows.arrays.values() if isinstance(array, DeviceArray)]
        if not stays and device in (None, "cpu"):
            return self._on_cpu(rows, sums)
        if device == "cpu":
            raise OptionError(
                f"{self.__name__}: device is 'cpu', but an argument is on {stays[0].device.name}."
            )
        opened = stays[0].device if device is None else open_device(device)
        if any(array.device is not opened for array in stays):
            raise DeviceError(f"{self.__name__}: the arguments are on different devices.")
        result = _run(self, opened, rows, sums)
        return result if stays else result.numpy()

    def _on_cpu(self, rows: _Rows, sums: tuple[np.ndarray, int] | None) -> np.ndarray:
        inputs = np.concatenate([rows.taken(name) for name, _, _ in self.arguments], axis=1)
        found = self.program.run(np.ascontiguousarray(inputs, np.float64))
        if self.returns == "sum":
            found = found.sum(axis=0)
        elif sums is not None:
            index, count = sums
            found_sum = np.zeros((count, found.shape[1]))
            np.add.at(found_sum, index, found)
            found = found_sum
        return found.astype(rows.dtype)


def _compiled(name: str, function: Callable[..., Any], arguments: list[tuple[str, str, int]]) -> Program:
    with workspace():
        symbols = {argument: variables(argument, dim) for argument, _, dim in arguments}
        result = call_with_symbols(name, lambda: function(**symbols), ())
        outputs = as_exprs(getattr(result, "storage", result))
        inputs = [e for symbol in symbols.values() for e in as_exprs(symbol)]
        return build_program(name, inputs, outputs)


class _Rows:
    """The arguments of a call, checked."""

    def __init__(self, name: str, arguments: list[tuple[str, str, int]], values: Mapping[str, Any]):
        self.arrays: dict[str, Any] = {}
        self.index: dict[str, np.ndarray] = {}
        counts: dict[str, int] = {}
        for argument, access, dim in arguments:
            value = values[argument]
            if access == "indexed":
                if not isinstance(value, tuple) or len(value) != 2:
                    raise ShapeError(f"{name}: {argument} is indexed, expected a pair (array, index).")
                value, index = value
                self.index[argument] = np.asarray(index)
            array = _shaped(f"{name}: {argument}", value, 1 if access == "unique" else None, dim)
            self.arrays[argument] = array
            if access == "indexed":
                _check_index(f"{name}: the index of {argument}", self.index[argument], len(array))
                counts[argument] = len(self.index[argument])
            elif access == "sequential":
                counts[argument] = len(array)
        if len(set(counts.values())) != 1:
            raise ShapeError(f"{name}: the arguments have different numbers of rows: {counts}.")
        self.count = next(iter(counts.values()))
        kinds = {array.dtype for array in self.arrays.values()}
        self.dtype = np.dtype(np.float32) if kinds == {np.dtype(np.float32)} else np.dtype(np.float64)

    def taken(self, argument: str) -> np.ndarray:
        """(count, dim) rows of a host array."""
        array = self.arrays[argument]
        if argument in self.index:
            return array[self.index[argument]]
        return array if len(array) == self.count else np.broadcast_to(array, (self.count, array.shape[1]))


def _shaped(what: str, value: Any, rows: int | None, dim: int) -> Any:
    if isinstance(value, DeviceArray):
        array, shape = value, value.shape
    else:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise ShapeError(f"{what} is an array of {array.dtype}, expected real numbers.")
        array = array.astype(np.float32 if array.dtype == np.float32 else np.float64, copy=False)
        if array.ndim == 1 and (rows == 1 or dim == 1):
            array = array.reshape(-1, dim) if array.size % dim == 0 else array
        shape = array.shape
    if len(shape) != 2 or shape[1] != dim or (rows is not None and shape[0] != rows):
        raise ShapeError(f"{what} has shape {shape}, expected ({rows or 'rows'}, {dim}).")
    return array


def _check_index(what: str, index: np.ndarray, limit: int) -> None:
    if index.ndim != 1 or index.dtype.kind not in "iu":
        raise ShapeError(f"{what} is {index.dtype} of shape {index.shape}, expected integers (n,).")
    if len(index) and (index.min() < 0 or index.max() >= limit):
        raise ShapeError(f"{what} has {index.min()} to {index.max()}, expected 0 to {limit - 1}.")


def _checked_target(name: str, returns: str, target: Any, count: int) -> tuple[np.ndarray, int] | None:
    if (target is not None) != (returns == "indexed sum"):
        requested = "target=(index, count)" if target is None else "no target"
        raise OptionError(f"{name} returns {returns!r}: expected {requested}.")
    if target is None:
        return None
    index, size = np.asarray(target[0]), int(target[1])
    _check_index(f"{name}: the index of target", index, size)
    if len(index) != count:
        raise ShapeError(f"{name}: the index of target has {len(index)} rows, the arguments have {count}.")
    return index, size


def _run(
    function: DeviceFunction, device: Any, rows: _Rows, sums: tuple[np.ndarray, int] | None
) -> DeviceArray:
    double = rows.dtype == np.float64
    kernel = function_kernel(function.program, function.arguments, function.returns, double)
    buffers: list[Any] = []
    for name, access, _ in function.arguments:
        buffers.append(_buffer(device, rows.arrays[name], rows.dtype))
        if access == "indexed":
            buffers.append(_integers(device, rows.index[name]))
    count, num_outputs = rows.count, function.program.num_outputs
    shape: tuple[int, ...] = (count, num_outputs)
    if sums is not None:
        index, count = sums
        first = np.searchsorted(np.sort(index), np.arange(count + 1))
        buffers += [_integers(device, first), _integers(device, np.argsort(index, kind="stable"))]
        shape = (count, num_outputs)
    groups = -(-count // WORKGROUP)
    reduces = function.returns == "sum"
    size = groups * num_outputs if reduces else count * num_outputs
    if max(size * rows.dtype.itemsize, *(b.size for b in buffers)) >= _LARGEST:
        raise DeviceError(f"{function.__name__}: an array takes 4 GiB or more. Call it on parts of the rows.")
    result = device.allocate(max(16, size * rows.dtype.itemsize))
    recorder = device.record(function.__name__)
    if groups:
        recorder.dispatch(device.generated(kernel), (*buffers, result), (count, groups), groups)
    if reduces:
        shape, partial = (num_outputs,), result
        result = device.allocate(max(16, num_outputs * rows.dtype.itemsize))
        fold = device.shader("batch_fold", "double" if double else "mixed", 2, 2, {0: WORKGROUP})
        folded = -(-num_outputs // WORKGROUP)
        recorder.barrier().dispatch(fold, (partial, result), (num_outputs, groups), folded)
    device.submit(recorder.barrier().finish())
    return DeviceArray(device, result, shape, rows.dtype)


def _buffer(device: Any, array: Any, dtype: np.dtype) -> Any:
    if isinstance(array, DeviceArray):
        if array.dtype != dtype:
            raise ShapeError(f"{array} is with float64 arrays; make all of one type.")
        return array.buffer
    return upload(device, array.astype(dtype, copy=False)).buffer


def _integers(device: Any, values: np.ndarray) -> Any:
    return device.upload(values.astype(np.uint32)) if len(values) else device.allocate(16)
