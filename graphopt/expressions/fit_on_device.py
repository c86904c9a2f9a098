"""Fits of batches on a device: shaders/include/batch_fit.glsl, one workgroup per fit and iteration.

An iteration of all fits is a dispatch per class of kernels (parameters, registers, scalars). Parameters,
normal equations and damping stay on the device; after some iterations the host asks which fits go on, and
dispatches only these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.device import DeviceError, open_device
from graphopt.expressions.arguments import ParameterSets, Points
from graphopt.expressions.batch import ExpressionBatch
from graphopt.expressions.on_device import refuse_large

_WORKGROUP = 128
_ITERATIONS = 4
"""Between two looks at who goes on."""
_VALUES_PER_SUBMISSION = {"discrete": 2e9, "integrated": 2e8, "cpu": 2e7}
"""Points times fits, about: a submission has to end before watchdogs look (2 s)."""
_SMALLEST_CLASS = 8
_BUFFERS = 10


def fit_on_device(
    spec: str,
    batch: ExpressionBatch,
    points: Points,
    sets: ParameterSets,
    most: int,
    tolerances: tuple[float, float, float],
    results: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """Fill results: parameters (flat, as `sets.values`), sums, status and iterations of all sets.

    most: iterations. tolerances: of function, parameters and gradient. float64 data needs a device with
    float64. Raises DeviceError where an array needs 4 GiB or more.
    """
    device: Any = open_device(spec)
    if points.data.dtype == np.float64 and not device.has_float64:
        raise DeviceError(f"{device.name} has no float64. Pass data in float32, or use device='cpu'.")
    if sets.total:
        _Fits(device, batch, points, sets).run(most, tolerances, results)


class _Fits:
    """All fits of a call, on one device."""

    def __init__(self, device: Any, batch: ExpressionBatch, points: Points, sets: ParameterSets):
        self._device, self._points = device, points
        code, table, numbers, words, sizes = batch.native.pack_fit(points.data)
        sizes = sizes.reshape(-1, 3)  # registers, scalars, parameters
        owner = np.repeat(np.arange(len(batch)), sets.num_sets)
        self._count = sizes[owner, 2].astype(np.int64)
        ends = np.cumsum(4 * self._count + self._count * (self._count + 1) // 2 + 4)
        self._first = np.append(0, ends[:-1])
        """Of each fit among the numbers of the state."""
        self._place = _starts_of(sets)
        self._real = np.dtype(np.float64 if device.has_float64 else np.float32)
        state = np.zeros(int(ends[-1]), self._real)
        for n, fits in _by(self._count):
            steps = np.arange(n)
            start = sets.values[self._place[fits][:, None] + steps]
            state[(self._first[fits] + n)[:, None] + steps] = start
        of_fit = np.stack([owner, self._first], axis=1).astype(np.uint32)
        refuse_large(state, code, of_fit, points.data)
        self._target = points.data[:1] if points.target is None else points.target
        up = [code, table, points.data, self._target, numbers, words, of_fit, state]
        code, table, data, target, numbers, words, of_fit, state = [self._upload(array) for array in up]
        self._state, self._outcome = state, device.upload(np.zeros((sets.total, 2), np.uint32))
        self._before = (code, table)
        self._after = (data, target, numbers, words, of_fit, state, self._outcome)
        rounded = 2 ** np.ceil(np.log2(np.maximum(sizes[:, :2], _SMALLEST_CLASS))).astype(np.int64)
        classes = np.concatenate([rounded, sizes[:, 2:]], axis=1)
        self._classes, which = np.unique(classes, axis=0, return_inverse=True)
        self._class = which.reshape(-1)[owner]

    def _upload(self, array: np.ndarray) -> Any:
        return self._device.upload(array if array.size else np.zeros(16, np.uint32))

    def run(
        self,
        most: int,
        tolerances: tuple[float, float, float],
        results: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    ) -> None:
        """All iterations; the results."""
        points, device = self._points, self._device
        bits = np.array(tolerances, np.float32).view(np.uint32).tolist()
        params = (points.num_points, points.data.shape[1], len(points.data), points.target is not None)
        options = (*map(int, params), most, *bits)
        active = np.argsort(self._class, kind="stable")
        per_submission = _VALUES_PER_SUBMISSION.get(device.info["kind"], 2e8) / points.num_points
        outcome = np.zeros((len(active), 2), np.uint32)
        while len(active):
            repeats = _ITERATIONS if len(active) * _ITERATIONS <= per_submission else 1
            pieces = np.array_split(active, max(1, int(np.ceil(len(active) * repeats / per_submission))))
            for piece in pieces:
                self._submit(piece, repeats, options)
            device.read([(self._outcome, 0, outcome)])
            active = active[outcome[active, 0] == 0]
        self._collect(outcome, results)

    def _submit(self, fits: np.ndarray, repeats: int, options: tuple[int, ...]) -> None:
        """Some iterations of fits that are sorted by class."""
        device = self._device
        recorder, buffers = device.record("fits"), (*self._before, self._upload(fits.astype(np.uint32)))
        name = "batch_fit" if device.has_float64 else "batch_fit_two_float"
        precision = "double" if self._points.data.dtype == np.float64 else "mixed"
        bounds = np.searchsorted(self._class[fits], np.arange(len(self._classes) + 1)).tolist()
        for _ in range(repeats):
            for (registers, scalars, count), begin, end in zip(
                self._classes.tolist(), bounds[:-1], bounds[1:], strict=True
            ):
                if begin < end:
                    constants = {0: _WORKGROUP, 1: registers, 2: count, 3: scalars}
                    kernel = device.shader(name, precision, _BUFFERS, 1 + len(options), constants)
                    recorder.dispatch(kernel, (*buffers, *self._after), (begin, *options), end - begin)
            recorder.barrier()
        device.submit(recorder.finish()).wait()

    def _collect(
        self, outcome: np.ndarray, results: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    ) -> None:
        found, sums, status, iterations = results
        size = int(self._first[-1] + 4 * self._count[-1] + self._count[-1] * (self._count[-1] + 1) // 2 + 4)
        state = self._device.download(self._state, self._real, size)
        for n, fits in _by(self._count):
            steps = np.arange(n)
            found[self._place[fits][:, None] + steps] = state[self._first[fits][:, None] + steps]
        sums[:] = state[self._first + 4 * self._count + self._count * (self._count + 1) // 2]
        status[:] = outcome[:, 0].astype(np.int64) - 1
        iterations[:] = outcome[:, 1].astype(np.int64) - 1


def _starts_of(sets: ParameterSets) -> np.ndarray:
    """(all sets,) int64: where each set begins in the flat values."""
    sizes = sets.num_sets * sets.strides
    begin = np.cumsum(sizes) - sizes
    first = np.cumsum(sets.num_sets) - sets.num_sets
    number = np.arange(sets.total) - np.repeat(first, sets.num_sets)
    return np.repeat(begin, sets.num_sets) + number * np.repeat(sets.strides, sets.num_sets)


def _by(counts: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """(count, fits that have it)."""
    return [(int(n), np.flatnonzero(counts == n)) for n in np.unique(counts)]
