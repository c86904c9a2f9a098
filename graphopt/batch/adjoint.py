"""Derivatives of the optima of a batch on a device, a workgroup each (`codegen.gpu.problem_kernel`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphopt.batch.arrays import BatchArrays
from graphopt.batch.on_device import PART_BYTES, BatchBuffers, open_for_batch, part_of, plan_for
from graphopt.batch.resident import Sharing
from graphopt.codegen.gpu.problem_kernel import result_name
from graphopt.device import DeviceError
from graphopt.linear.options import SolverOptions

_STATE = 8
_GROWTH = 5
_EVALUATIONS = 3
"""Of an edge, about: its part of the Hessian and its derivatives."""


class DeviceAdjoint:
    """lambda of K lambda = v of each problem, and derivatives of -lambda' g by what its edges have."""

    def __init__(
        self, arrays: BatchArrays, spec: str, options: SolverOptions, requested: Sequence[Sequence[str]]
    ):
        """Raise `DeviceError` for devices without float64.

        requested: by group, of "values", "measurement", "kernel_width" and "information", whose groups have
            full matrices.
        """
        device = open_for_batch(spec, options)
        if not device.has_float64:
            raise DeviceError(f"{device.name} has no float64, which derivatives of an optimum need.")
        self._arrays = arrays
        wanted = tuple(map(tuple, requested))
        self._plan = plan_for(device, arrays.structure, ("adjoint", "double"), wanted)
        self._requested = wanted
        self._device = device

    def run(
        self,
        stored: Mapping[int, Any],
        cotangents: Mapping[int, Any],
        options: np.ndarray,
        results: Mapping[tuple[int, str], tuple[int, ...]],
        sharing: Sharing | None = None,
    ) -> tuple[np.ndarray, dict[tuple[int, str], Any]]:
        """(B,) growth, see `on_device.Refined`, infinite where the Hessian is not positive definite; results.

        stored: by vertex set that is optimized (B, n, storage_dim) estimates, and cotangents of these, arrays
            or `Resident`. options: of problem_newton.glsl. results: by group and column (B, m, ...).
        sharing: results become arrays of CUDA's, unless the batch goes in parts.
        """
        arrays = self._arrays
        count, plan = arrays.problems.count, self._plan
        data = BatchBuffers(self._device, arrays, True, moves=False)
        growth = np.empty(count)
        shapes = *results.values(), *(array.shape for array in stored.values())
        most = max((8 * math.prod(shape[1:]) for shape in shapes), default=8)
        step = max(1, min(count, PART_BYTES // max(most, data.bytes_per_problem(plan))))
        sharing = sharing if step == count else None
        found: dict[tuple[int, str], Any] = {}
        if sharing is None:
            found = {key: np.empty(shape) for key, shape in results.items()}
        for begin in range(0, count, step):
            part = slice(begin, min(begin + step, count))
            buffers = self._buffers(data, part, stored, cotangents, options)
            places: list[tuple[Any, int, np.ndarray]] = []
            memory: dict[tuple[int, str], Any] = {}
            for (number, column), shape in results.items():
                if sharing is not None:
                    memory[number, column] = sharing.take(8 * math.prod(shape))
                    buffer = memory[number, column].buffer
                else:
                    array = found[number, column][part]
                    buffer = self._device.allocate(max(array.nbytes, 16), "device")
                    places.append((buffer, 0, array))
                buffers[result_name(column, number)] = buffer
            chosen = np.arange(part.stop - part.start, dtype=np.uint32)
            data.dispatch(plan, data.kernel(plan), buffers, chosen, 1, (0, 0), _EVALUATIONS)
            state = np.empty((len(chosen), _STATE))
            self._device.read([(buffers["state"], 0, state), *places])
            growth[part] = state[:, _GROWTH]
            if sharing is not None:
                found = {key: sharing.lend(one, results[key]) for key, one in memory.items()}
        return growth, found

    def _buffers(
        self,
        data: BatchBuffers,
        part: slice,
        stored: Mapping[int, Any],
        cotangents: Mapping[int, Any],
        options: np.ndarray,
    ) -> dict[str, Any]:
        count = part.stop - part.start
        buffers = data.of(self._plan, part)
        for name, given in (("stored", stored), ("cotangent", cotangents)):
            for number, array in given.items():
                buffers[f"{name}{number}"] = data.upload(part_of(array, part), "wide")
        nothing = data.upload(np.zeros((1, 1), np.uint32), "uint")
        state = self._device.allocate(8 * _STATE * count, "device")
        more = {"options": data.upload(options, "wide"), "state": state}
        return {**buffers, **more, "unobserved": nothing, "counts": nothing}
