"""Batches on a device: a workgroup per problem, some iterations of all per submission.

State and estimates stay on the device from one submission to the next; the host reads which problems have
ended, and goes on with the others. Problems that need more memory than a part may take go in parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.batch.arrays import BatchArrays
from graphopt.batch.plan import KernelKind, Plan, Requested, make_plan
from graphopt.batch.resident import Resident, Sharing, on_host
from graphopt.batch.workers import does_not_factorize
from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.problem_kernel import Words, result_name
from graphopt.cpu_kernels import kernels
from graphopt.device import DeviceError, open_device
from graphopt.linear.options import SolverOptions
from graphopt.linear.table import factorizes
from graphopt.optimizer.signals import StopSignals
from graphopt.problem.structure import Structure
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
PART_BYTES = 1 << 29
"""Of the largest array of a part."""


class DeviceWorkers:
    """The problems of a batch on a device that runs Vulkan kernels."""

    linear_solver = "dense"

    def __init__(
        self,
        arrays: BatchArrays,
        method: str,
        options: SolverOptions,
        spec: str,
        newton: tuple[np.ndarray, int] | None = None,
        sharing: Sharing | None = None,
    ):
        """newton: take Newton's steps at the end, with these `options` of problem_newton.glsl, so many.

        sharing: estimates after these steps become arrays of CUDA's, unless the batch goes in parts.
        """
        if options.linear_solver != "auto" and not factorizes(options.linear_solver):
            raise does_not_factorize(options.linear_solver)
        device = open_for_batch(spec, options)
        self._device, self._arrays = device, arrays
        self.device = device.spec
        self.precision = "double" if device.has_float64 and options.precision != "mixed" else "mixed"
        self._has_float64 = self.precision == "double"
        arithmetic: Arithmetic = "double" if self._has_float64 else "two_float"
        self._plan = plan_for(device, arrays.structure, (method, arithmetic))
        self._newton: tuple[Plan, np.ndarray, int] | None = None
        if newton is not None:
            self._newton = plan_for(device, arrays.structure, ("newton", arithmetic)), *newton
        self.refined = Refined.empty(arrays, self._newton is not None)
        """What Newton's steps have found."""
        self._sharing = sharing
        count = arrays.problems.count
        if newton is not None:
            free = [k for k in range(len(arrays.starts)) if arrays.is_free(k)]
            arrays.decoded = {k: np.empty((count, *arrays.stored_start(k).shape[1:])) for k in free}
        else:
            arrays.working = [
                np.empty((count, *start.shape[1:])) if arrays.is_free(k) else start
                for k, start in enumerate(arrays.starts)
            ]

    def run(self, native: Any, rules: Any, outcome: tuple, signals: StopSignals) -> None:
        """Optimize; the arrays have the results.

        native: the method's first state. outcome: as of `kernels.run_batch`, without covariances.
        """
        arrays, count = self._arrays, self._arrays.problems.count
        masks = arrays.masks()
        data = BatchBuffers(self._device, arrays, self._has_float64, masks)
        call = _Call(data, self._plan, masks, native, rules)
        step = max(1, min(count, PART_BYTES // data.bytes_per_problem(self._plan)))
        sharing = self._sharing if step == count else None
        for begin in range(0, count, step):
            part = slice(begin, min(begin + step, count))
            if signals.should_stop():
                for k, target in self._results().items():
                    start = arrays.stored_start(k) if k in arrays.decoded else arrays.starts[k]
                    target[begin:] = start if len(start) == 1 else start[begin:]
                return
            buffers = call.run(part, signals)
            name, memory = "estimate", dict[int, Any]()
            if self._newton is not None:
                memory = self._refine(data, buffers, part, sharing)
                name = "stored"
            wanted = {result_name("squared", number): array for number, array in self.refined.squared.items()}
            if sharing is None:
                wanted |= {f"{name}{k}": target for k, target in self._results().items()}
            places = [(buffers[key], target[part]) for key, target in wanted.items()]
            numbers = call.collect(part, buffers, places, outcome)
            if self._newton is not None:
                self.refined.left[part], self.refined.growth[part] = numbers[:, 4], numbers[:, 5]
            if sharing is not None:
                arrays.decoded = {k: sharing.lend(one, arrays.decoded[k].shape) for k, one in memory.items()}

    def _results(self) -> dict[int, np.ndarray]:
        """By optimized vertex set what it becomes: as stored after Newton's steps, else to be decoded."""
        arrays = self._arrays
        return arrays.decoded or {k: one for k, one in enumerate(arrays.working) if arrays.is_free(k)}

    def _refine(
        self, data: BatchBuffers, buffers: dict[str, Any], part: slice, sharing: Sharing | None
    ) -> dict[int, Any]:
        """Start Newton's steps of some problems, whose arrays are on the device; memory for CUDA.

        Adds the buffers that they write.
        """
        assert self._newton is not None
        (plan, options, steps), count = self._newton, part.stop - part.start
        buffers |= {"table": data.table(plan), "options": data.upload(options, "wide")}
        for number, array in self.refined.squared.items():
            nbytes = max(8 * array[part].size, 16)
            buffers[result_name("squared", number)] = self._device.allocate(nbytes, "device")
        memory = {}
        for k, target in self._arrays.decoded.items():
            if sharing is not None:
                memory[k] = sharing.take(target.nbytes)
            buffers[f"stored{k}"] = data.stored(k, part, memory[k].buffer if k in memory else None)
        chosen = np.arange(count, dtype=np.uint32)
        data.dispatch(plan, data.kernel(plan), buffers, chosen, steps, (0, 0), _TRIALS * steps)
        return memory


def open_for_batch(spec: str, options: SolverOptions) -> Any:
    """The device, which has float64 if that was asked for."""
    device: Any = open_device(spec)
    if options.precision == "double" and not device.has_float64:
        raise DeviceError(f"{device.name} has no float64. Use precision='auto', or device='cpu'.")
    return device


def plan_for(device: Any, structure: Structure, kind: KernelKind, requested: Requested = ()) -> Plan:
    """See `make_plan`."""
    return make_plan(structure, kind, device.info["max_shared_memory"], device.name, requested)


@dataclass
class Refined:
    """What Newton's steps at the end of an optimization have found."""

    left: np.ndarray
    """(B,) share of chi2 that the last step promised; infinite: there is no step."""
    growth: np.ndarray
    """(B,) largest quotient of a diagonal entry of the Hessian and its pivot, at the first step."""
    squared: dict[int, np.ndarray]
    """By group with a robust kernel (B, m) e' Omega e at the end of the steps, not where there was none."""

    @classmethod
    def empty(cls, arrays: BatchArrays, is_wanted: bool) -> Refined:
        """Before the steps."""
        count = arrays.problems.count
        groups = enumerate(arrays.structure.groups) if is_wanted else ()
        squared = {number: np.zeros((count, len(group.rows))) for number, group in groups if group.kernel}
        return cls(np.full(count, np.inf), np.full(count, np.inf), squared)


@dataclass
class _Buffer:
    """An array of all problems for a buffer of the kernel."""

    array: Any
    """(B, ...) numbers, or `Resident`; (1, ...) where all problems have the same."""
    word: int
    """Of the table's header, for the numbers per problem; -1: none."""
    kind: str
    """"wide" or "uint"."""
    count: int = 1
    """Problems that get rows of their own, although the array may have one."""

    @property
    def stride(self) -> int:
        """Numbers from one problem to the next."""
        return 0 if max(len(self.array), self.count) == 1 else math.prod(self.array.shape[1:])

    def of(self, part: slice) -> Any:
        return self.array if len(self.array) == 1 else part_of(self.array, part)


class BatchBuffers:
    """Arrays of a batch as the buffers of kernels, which `Words` name."""

    def __init__(
        self,
        device: Any,
        arrays: BatchArrays,
        has_float64: bool,
        masks: list[np.ndarray] | None = None,
        *,
        moves: bool = True,
    ):
        """moves: each problem gets estimates of its own, which kernels write."""
        self.device, self.arrays = device, arrays
        self._has_float64 = has_float64
        structure = arrays.structure
        sets, parameters = structure.selection.vertex_sets, structure.selection.parameter_sets
        self._words = Words(len(structure.groups), len(sets), len(parameters))
        self._buffers = self._all(masks, moves)

    def _all(self, masks: list[np.ndarray] | None, moves: bool) -> dict[str, _Buffer]:
        words, arrays = self._words, self.arrays
        found: dict[str, _Buffer] = {}
        for number, array in enumerate(arrays.starts):
            own = arrays.problems.count if moves and arrays.is_free(number) else 1
            found[f"estimate{number}"] = _Buffer(array, words.of_set(number, "estimate"), "wide", own)
        given = arrays.problems.parameters
        for number, rows in enumerate(arrays.structure.selection.parameter_sets):
            values = given.get(number, rows.look("values")[None])
            found[f"parameter{number}"] = _Buffer(values, words.of_parameter(number), "wide")
        for number, *data, mask in arrays.data(masks, of_all=True):
            for name, array in zip(("measurement", "information", "width"), data, strict=True):
                found[f"{name}{number}"] = _Buffer(array, words.of_group(number, name), "wide")
            bits = np.zeros((1, 1), np.uint32) if mask is None else _bits(mask)
            found[f"mask{number}"] = _Buffer(bits, words.of_group(number, "mask"), "uint")
        return found

    def bytes_per_problem(self, plan: Plan) -> int:
        """Of the largest array."""
        strides = [buffer.stride for name, buffer in self._buffers.items() if name in plan.kernel.buffers]
        return 8 * max(*strides, plan.num_entries, _STATE)

    def stored(self, number: int, part: slice, whole: Any = None) -> Any:
        """Memory for the results of a vertex set as they are stored; vertices that stay have theirs.

        whole: this memory; None: new.
        """
        start, count = self.arrays.stored_start(number), part.stop - part.start
        if self.arrays.structure.num_free[number] == start.shape[1]:
            return whole or self.device.allocate(8 * count * start[0].size, "device")
        return self._own(_Buffer(start, -1, "wide", self.arrays.problems.count), part, whole)

    def table(self, plan: Plan) -> Any:
        """The plan's table with the numbers per problem."""
        table = plan.table.copy()
        for buffer in self._buffers.values():
            if buffer.word >= 0:
                table[buffer.word] = buffer.stride
        return self.device.upload(table)

    def kernel(self, plan: Plan, of_call: dict[int, int] | None = None) -> Any:
        """The plan's kernel; of_call: specialization constants."""
        return self.device.generated(plan.kernel, {**plan.constants, 4: 0, 5: 0, **(of_call or {})})

    def of(self, plan: Plan, part: slice) -> dict[str, Any]:
        """Buffers with what some of the problems have, and memory for their systems."""
        count = part.stop - part.start
        found = {
            name: self._own(buffer, part) if buffer.count > 1 else self.upload(buffer.of(part), buffer.kind)
            for name, buffer in self._buffers.items()
            if name in plan.kernel.buffers
        }
        system = self.device.allocate(max(8 * count * plan.num_entries, 16), "device")
        return {**found, "table": self.table(plan), "system": system}

    def _own(self, buffer: _Buffer, part: slice, whole: Any = None) -> Any:
        """A buffer that kernels write, `whole` or new: what all problems share is uploaded once."""
        rows, count = buffer.of(part), part.stop - part.start
        if len(rows) == count and whole is None:
            return self.upload(rows, buffer.kind)
        if whole is None:
            whole = self.device.allocate(max(8 * rows.size * count, 16), "device")
        if len(rows) == count:
            self.device.write(whole, rows)
            return whole
        first, size = self.upload(rows, buffer.kind), 8 * rows.size
        recorder = self.device.record("starts of a batch").copy(first, whole, size)
        filled = 1
        while filled < count:
            more = min(filled, count - filled)
            recorder.barrier().copy(whole, whole, more * size, 0, filled * size)
            filled += more
        self.device.submit(recorder.barrier().finish())
        return whole

    def dispatch(
        self,
        plan: Plan,
        kernel: Any,
        buffers: dict[str, Any],
        chosen: np.ndarray,
        steps: int,
        limits: tuple[int, int],
        evaluations: float,
    ) -> None:
        """Run the kernel for the chosen problems, for so many at a time as watchdogs allow.

        evaluations: of each edge.
        """
        edges = max(sum(len(group.rows) for group in self.arrays.structure.groups), 1)
        most = self.most_evaluations / edges
        at_once = int(np.clip(most / evaluations, 1, len(chosen)))
        bound = {**buffers, "chosen": self.device.upload(chosen)}
        ordered = [bound[name] for name in plan.kernel.buffers]
        for first in range(0, len(chosen), at_once):
            recorder = self.device.record("problems of a batch").barrier()
            groups = min(at_once, len(chosen) - first)
            recorder.dispatch(kernel, ordered, (first, steps, *limits), groups)
            self.device.submit(recorder.barrier().finish())

    @property
    def most_evaluations(self) -> float:
        """Of edges per submission, about."""
        return _EVALUATIONS.get(self.device.info["kind"], 4e7)

    def upload(self, array: Any, kind: str) -> Any:
        """A buffer with an array of "wide" or "uint" numbers."""
        if isinstance(array, Resident):
            return array.buffer
        if array.size == 0:
            return self.device.upload(np.zeros(4, np.uint32))
        return self.device.upload(pack_wide(array, self._has_float64) if kind == "wide" else array)

    def unpacked(self, words: np.ndarray) -> np.ndarray:
        """Wide numbers from the device as float64, of the same shape."""
        return unpack_wide(words.reshape(-1), self._has_float64).reshape(words.shape)

    def place_for(self, target: np.ndarray) -> np.ndarray:
        """Where a download of numbers for an array goes: the array itself, if the device has float64."""
        if self._has_float64 and target.flags.c_contiguous and target.flags.writeable:
            return target
        return np.empty(target.shape, WIDE)


class _Call:
    """One call of the loop."""

    def __init__(
        self, data: BatchBuffers, plan: Plan, masks: list[np.ndarray] | None, native: Any, rules: Any
    ):
        """Take the method: its options, its first state and the kernel for it."""
        self._data, self._plan, self._arrays = data, plan, data.arrays
        is_damped = isinstance(native, kernels.Levenberg)  # so is what has no edges
        unobserved = None if masks is None or is_damped else self._arrays.unobserved(masks)
        self._unobserved = np.zeros((1, 1), np.uint32)
        if unobserved is not None:
            self._unobserved = np.ascontiguousarray(unobserved[:, plan.block_order]).astype(np.uint32)
        of_call = {4: int(masks is not None), 5: int(unobserved is not None)}
        self._kernel = data.kernel(plan, of_call)
        trials = max(int(getattr(rules, "max_trials", 1)), 1)
        self._limits = max(rules.max_iterations, 0), trials
        self._options, self._start = _options(native, rules)

    def run(self, part: slice, signals: StopSignals) -> dict[str, Any]:
        """Optimize some of the problems; what is on the device, once what was submitted is done."""
        count, data = part.stop - part.start, self._data
        device = data.device
        unobserved = self._unobserved if len(self._unobserved) == 1 else self._unobserved[part]
        buffers = {
            **data.of(self._plan, part),
            "options": data.upload(self._options, "wide"),
            "unobserved": data.upload(unobserved, "uint"),
            "state": data.upload(np.repeat(self._start[None], count, axis=0), "wide"),
            "counts": device.upload(np.tile(np.array([0, 0, _RUNNING, _NOT_BEGUN], np.uint32), (count, 1))),
        }
        active = np.arange(count, dtype=np.uint32)
        while len(active) and not signals.should_stop():
            if self._submit(buffers, active) >= max(self._limits[0], 1):
                break  # each step is an iteration, or ends a problem
            counts = np.empty((count, 4), np.uint32)
            device.read([(buffers["counts"], 0, counts)])
            active = np.flatnonzero(counts[:, 2] == _RUNNING).astype(np.uint32)
        return buffers

    def _submit(self, buffers: dict[str, Any], active: np.ndarray) -> int:
        """Some iterations of these problems; how many."""
        edges = _TRIALS * max(sum(len(group.rows) for group in self._arrays.structure.groups), 1)
        most = self._data.most_evaluations / edges / len(active)
        steps = int(np.clip(most, 1, _FIRST_ITERATIONS if len(active) > 1 else 64))
        self._data.dispatch(self._plan, self._kernel, buffers, active, steps, self._limits, _TRIALS * steps)
        return steps

    def collect(
        self,
        part: slice,
        buffers: dict[str, Any],
        places: list[tuple[Any, np.ndarray]],
        outcome: tuple,
    ) -> np.ndarray:
        """Results of some of the problems, whose states (b, 8) it returns."""
        initial, chi2, lambdas, iterations, trials, ending = outcome
        data, count = self._data, part.stop - part.start
        state, counts = np.empty((count, _STATE), WIDE), np.empty((count, 4), np.uint32)
        found = [data.place_for(target) for _, target in places]
        wanted = [(buffer, 0, array) for (buffer, _), array in zip(places, found, strict=True)]
        data.device.read([(buffers["state"], 0, state), (buffers["counts"], 0, counts), *wanted])
        for (_, target), array in zip(places, found, strict=True):
            if array is not target:
                target[...] = data.unpacked(array)
        begun = (counts[:, 3] & 1) != 0
        numbers = data.unpacked(state)
        for target, column in ((initial, 0), (chi2, 1), (lambdas, 2)):
            target[part] = np.where(begun, numbers[:, column], np.nan)
        iterations[part], trials[part] = counts[:, 0], counts[:, 1]
        ending[part] = np.where(counts[:, 2] == _RUNNING, 5, counts[:, 2])
        return numbers


def part_of(array: Any, part: slice) -> Any:
    """Some problems' rows of an array; of all it is the array itself."""
    if isinstance(array, Resident) and part == slice(0, len(array)):
        return array
    return on_host(array)[part]


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
