"""Batches on a device: a workgroup per problem, some iterations of all per submission.

State and estimates stay on the device from one submission to the next; the host reads which problems have
ended, and goes on with the others. Problems that need more memory than a part may take go in parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.batch.arrays import BatchArrays
from graphopt.batch.plan import Plan, make_plan
from graphopt.batch.workers import does_not_factorize
from graphopt.cpu_kernels import kernels
from graphopt.device import DeviceError, open_device
from graphopt.linear.options import SolverOptions
from graphopt.linear.table import factorizes
from graphopt.optimizer.signals import StopSignals
from graphopt.vulkan.data.array import WIDE, pack_wide, unpack_wide

_RUNNING = 9
"""`ending` of a problem that goes on, as in problem_loop.glsl."""
_NOT_BEGUN = 2 | 4 | _RUNNING << 3
"""Flags of a problem: its first iteration, no indefinite H yet, no run that has settled."""
_STATE = 8
"""Wide numbers of a problem's state."""
_EVALUATIONS = {"discrete": 4e8, "integrated": 4e7, "cpu": 2e6}
"""Of edges per submission, about: it has to end before watchdogs look (2 s)."""
_FIRST_ITERATIONS = 8
"""Of all problems before the host looks who goes on."""
_TRIALS = 3
"""Evaluations of an edge per iteration, about: H and b, and chi2 of the trials."""
_PART_BYTES = 1 << 29
"""Of the largest array of a part."""


class DeviceWorkers:
    """The problems of a batch on a device that runs Vulkan kernels."""

    linear_solver = "dense"

    def __init__(self, arrays: BatchArrays, method: str, options: SolverOptions, spec: str):
        if options.linear_solver != "auto" and not factorizes(options.linear_solver):
            raise does_not_factorize(options.linear_solver)
        device: Any = open_device(spec)
        if options.precision == "double" and not device.has_float64:
            raise DeviceError(f"{device.name} has no float64. Use precision='auto', or device='cpu'.")
        self._device, self._arrays = device, arrays
        self.device = device.spec
        self.precision = "double" if device.has_float64 and options.precision != "mixed" else "mixed"
        self._has_float64 = self.precision == "double"
        arithmetic = "double" if self._has_float64 else "two_float"
        shared = device.info["max_shared_memory"]
        self._plan = make_plan(arrays.structure, (method, arithmetic), shared, device.name)

    def run(self, native: Any, rules: Any, outcome: tuple, signals: StopSignals) -> None:
        """Optimize; the arrays have the results.

        native: the method's first state. outcome: as of `kernels.run_batch`, without covariances.
        """
        count = self._arrays.problems.count
        call = _Call(self._device, self._arrays, self._plan, self._has_float64)
        call.prepare(native, rules)
        step = max(1, min(count, _PART_BYTES // call.bytes_per_problem))
        for begin in range(0, count, step):
            if signals.should_stop():
                return
            call.run(slice(begin, min(begin + step, count)), outcome, signals)


@dataclass
class _Buffer:
    """An array of all problems for a buffer of the kernel."""

    array: np.ndarray
    """(B, ...), or (1, ...) where all problems have the same."""
    word: int
    """Of the table's header, for the numbers per problem; -1: none."""
    kind: str
    """"wide" or "uint"."""

    @property
    def stride(self) -> int:
        """Numbers from one problem to the next."""
        return 0 if len(self.array) == 1 else int(self.array[0].size)

    def of(self, part: slice) -> np.ndarray:
        return self.array if len(self.array) == 1 else self.array[part]


class _Call:
    """What one call gives to the kernel."""

    def __init__(self, device: Any, arrays: BatchArrays, plan: Plan, has_float64: bool):
        self._device, self._arrays, self._plan = device, arrays, plan
        self._has_float64 = has_float64
        self._masks = arrays.masks()
        self._buffers = self._all_buffers(self._masks)
        table = plan.table.copy()
        for buffer in self._buffers.values():
            table[buffer.word] = buffer.stride
        self._table = device.upload(table)
        strides = [buffer.stride for buffer in self._buffers.values()]
        self.bytes_per_problem = 8 * max(*strides, plan.envelope.num_entries, _STATE)

    def prepare(self, native: Any, rules: Any) -> None:
        """Take the method: its options, its first state and the kernel for it."""
        masks, order = self._masks, self._plan.block_order
        is_damped = isinstance(native, kernels.Levenberg)  # so is what has no edges
        unobserved = None if masks is None or is_damped else self._arrays.unobserved(masks)
        words = np.zeros((1, 1), np.uint32)
        if unobserved is not None:
            words = np.ascontiguousarray(unobserved[:, order]).astype(np.uint32)
        self._buffers["unobserved"] = _Buffer(words, -1, "uint")
        of_call = {4: int(masks is not None), 5: int(unobserved is not None)}
        self._kernel = self._device.generated(self._plan.kernel, {**self._plan.constants, **of_call})
        self._max_iterations = max(rules.max_iterations, 0)
        self._max_trials = max(int(getattr(rules, "max_trials", 1)), 1)
        self._options, self._start = _options(native, rules)

    def _all_buffers(self, masks: list[np.ndarray] | None) -> dict[str, _Buffer]:
        words, arrays = self._plan.words, self._arrays
        found: dict[str, _Buffer] = {}
        for number, array in enumerate(arrays.working):
            found[f"estimate{number}"] = _Buffer(array, words.of_set(number, "estimate"), "wide")
        given = arrays.problems.parameters
        for number, rows in enumerate(arrays.structure.selection.parameter_sets):
            values = given.get(number, rows.look("values")[None])
            found[f"parameter{number}"] = _Buffer(values, words.of_parameter(number), "wide")
        for number, *data, mask in arrays.data(masks, of_all=True):
            for name, array in zip(("measurement", "information", "width"), data, strict=True):
                found[f"{name}{number}"] = _Buffer(array, words.of_group(number, name), "wide")
            bits = np.zeros((1, 1), np.uint32) if mask is None else _bits(mask)
            found[f"mask{number}"] = _Buffer(bits, words.of_group(number, "mask"), "uint")
        return {name: found[name] for name in self._plan.kernel.buffers if name in found}

    def run(self, part: slice, outcome: tuple, signals: StopSignals) -> None:
        """Optimize some of the problems."""
        count = part.stop - part.start
        device, plan = self._device, self._plan
        buffers = {name: self._upload(buffer.of(part), buffer.kind) for name, buffer in self._buffers.items()}
        buffers |= {
            "table": self._table,
            "options": self._upload(self._options, "wide"),
            "state": self._upload(np.repeat(self._start[None], count, axis=0), "wide"),
            "counts": device.upload(np.tile(np.array([0, 0, _RUNNING, _NOT_BEGUN], np.uint32), (count, 1))),
            "system": device.allocate(max(8 * count * plan.envelope.num_entries, 16), "device"),
        }
        counts = np.empty((count, 4), np.uint32)
        active = np.arange(count, dtype=np.uint32)
        while len(active) and not signals.should_stop():
            self._submit(buffers, active)
            device.read([(buffers["counts"], 0, counts)])
            active = np.flatnonzero(counts[:, 2] == _RUNNING).astype(np.uint32)
        self._collect(part, buffers, counts, outcome)

    def _submit(self, buffers: dict[str, Any], active: np.ndarray) -> None:
        """Some iterations of these problems."""
        device = self._device
        edges = _TRIALS * max(sum(len(group.rows) for group in self._arrays.structure.groups), 1)
        most = _EVALUATIONS.get(device.info["kind"], 4e7) / edges
        steps = int(np.clip(most / len(active), 1, _FIRST_ITERATIONS if len(active) > 1 else 64))
        at_once = int(np.clip(most / steps, 1, len(active)))
        bound = {**buffers, "chosen": device.upload(active)}
        ordered = [bound[name] for name in self._plan.kernel.buffers]
        for first in range(0, len(active), at_once):
            params = (first, steps, self._max_iterations, self._max_trials)
            recorder = device.record("problems of a batch").barrier()
            recorder.dispatch(self._kernel, ordered, params, min(at_once, len(active) - first))
            device.submit(recorder.barrier().finish())

    def _collect(self, part: slice, buffers: dict[str, Any], counts: np.ndarray, outcome: tuple) -> None:
        initial, chi2, lambdas, iterations, trials, ending = outcome
        count = part.stop - part.start
        state = np.empty((count, _STATE), WIDE)
        wanted: list[tuple[Any, int, np.ndarray]] = [(buffers["state"], 0, state)]
        moved = [k for k in range(len(self._arrays.working)) if self._arrays.is_free(k)]
        found = {k: self._place_for(k, part) for k in moved}
        wanted += [(buffers[f"estimate{k}"], 0, found[k]) for k in moved]
        self._device.read(wanted)
        for k in moved:
            target = self._arrays.working[k][part]
            if found[k] is not target:
                target[...] = self._unpacked(found[k]).reshape(target.shape)
        begun = (counts[:, 3] & 1) != 0
        numbers = self._unpacked(state).reshape(count, _STATE)
        for target, column in ((initial, 0), (chi2, 1), (lambdas, 2)):
            target[part] = np.where(begun, numbers[:, column], np.nan)
        iterations[part], trials[part] = counts[:, 0], counts[:, 1]
        ending[part] = np.where(counts[:, 2] == _RUNNING, 5, counts[:, 2])

    def _place_for(self, number: int, part: slice) -> np.ndarray:
        """Where downloaded estimates go: the array itself, if the device has its numbers."""
        target = self._arrays.working[number][part]
        if self._has_float64 and target.flags.c_contiguous and target.flags.writeable:
            return target
        return np.empty(target.size, WIDE)

    def _unpacked(self, words: np.ndarray) -> np.ndarray:
        return unpack_wide(words.reshape(-1), self._has_float64)

    def _upload(self, array: np.ndarray, kind: str) -> Any:
        if array.size == 0:
            return self._device.upload(np.zeros(4, np.uint32))
        return self._device.upload(pack_wide(array, self._has_float64) if kind == "wide" else array)


def _bits(mask: np.ndarray) -> np.ndarray:
    """(B, m) bool -> (B, words) uint32, bit e of the words for edge e."""
    packed = np.packbits(mask, axis=1, bitorder="little")
    words = np.zeros((len(mask), -(-packed.shape[1] // 4) * 4), np.uint8)
    words[:, : packed.shape[1]] = packed
    return words.view(np.uint32)


def _options(native: Any, rules: Any) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of `options`, and the state of a problem that has not begun."""
    tolerances = rules.function_tolerance, rules.gradient_tolerance, rules.step_tolerance
    names = ("tau", "good_step_lower_scale", "good_step_upper_scale", "lambda_factor")
    own = [float(getattr(rules, name, 0.0)) for name in names]
    delta = float(getattr(native, "delta", 0.0))
    of_loop = kernels.LoopConstants
    lambdas = of_loop.LEAST_LAMBDA, of_loop.GAIN_OFFSET, of_loop.MIN_LAMBDA, of_loop.MAX_LAMBDA
    more = *lambdas, of_loop.LEAST_LINEAR_GAIN, *of_loop.PROBES
    start = np.array([np.nan, np.nan, 0.0, 2.0, 0.0, delta, np.inf, np.nan])
    start[2] = float(getattr(native, "damping", 0.0))
    start[4] = float(getattr(rules, "initial_lambda", 0.0))
    return np.array([*tolerances, *own, delta, *more]), start
