"""What a device can do per second: measured once, kept in the cache folder, read by the cost model.

    bytes        of a copy by words of 16 bytes, reading and writing counted
    flops        of multiply-adds (two operations each), float32 and float64
    gathers      of 16-byte words from scattered places of a table of 1 MiB
    dispatch     one small dispatch with its barrier
    submission   an empty submission and the wait for it

`records_per_second` measures another one when it is asked: whole records, each invocation others.

Each is the best of a few repetitions. Before, the device computes until it gets no faster: clocks rise under
load, by four times on an H200 that was idle.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from graphopt.device.protocol import Precision
from graphopt.disk_cache import cache_directory, write_atomically

_WORKGROUP = 128
_VERSION = 4  # of what is measured: raise it when that changes
_LONG_ENOUGH = 4e-4  # [s] of one measurement, beside which a dispatch is short
_LARGEST_COUNT = 1 << 24
_STEADY = 0.5  # [s] without getting faster by _FASTER
_FASTER = 0.98
_MOST_WARM_UP = 4.0  # [s]
_NUM_DISPATCHES = 200
_REPETITIONS = 5
_WORD = 16  # bytes
_GATHER_TABLE = 1 << 16  # words


@dataclass(frozen=True)
class DeviceFigures:
    """Rates and latencies of one device; all per second or in seconds."""

    name: str
    bytes_per_second: float
    float32_flops: float
    float64_flops: float
    """0 where the device has no float64."""
    gathers_per_second: float
    dispatch_seconds: float
    submission_seconds: float
    runs_all_branches: bool = False
    """Invocations go through the text of branches that none of them takes, as on software drivers."""

    def flops(self, precision: Precision) -> float:
        """Multiply-add rate of a precision's `real`."""
        return self.float64_flops if precision == "double" else self.float32_flops


_known: dict[tuple, DeviceFigures] = {}


def device_figures(device: Any) -> DeviceFigures:
    """The figures of an open device: measured at the first call, later read from the cache folder."""
    key = _identity(device)
    if key not in _known:
        _known[key] = _kept_or_measured(device)
    return _known[key]


def _kept_or_measured(device: Any) -> DeviceFigures:
    path = _cache_path(device)
    if path is not None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return DeviceFigures(**json.loads(path.read_text()))
    figures = measure(device)
    if path is not None:
        with contextlib.suppress(OSError):
            write_atomically(path, json.dumps(asdict(figures), indent=1).encode())
    return figures


def _cache_path(device: Any) -> Any:
    folder = cache_directory()
    if folder is None:
        return None
    digest = hashlib.sha256(repr(_identity(device)).encode()).hexdigest()[:16]
    return folder / "devices" / f"{digest}.json"


def _identity(device: Any) -> tuple:
    return _VERSION, device.name, str(device.info.get("driver_info", "")), device.access, device.has_float64


def measure(device: Any) -> DeviceFigures:
    """Measure a device now: one to four seconds on a GPU."""
    _warm_up(device)
    return DeviceFigures(
        name=device.name,
        bytes_per_second=_rate(device, _copy_program, 1 << 14),
        float32_flops=_rate(device, _arithmetic_program("mixed"), 1 << 12),
        float64_flops=_rate(device, _arithmetic_program("double"), 1 << 12) if device.has_float64 else 0.0,
        gathers_per_second=_rate(device, _gather_program, 1 << 12),
        dispatch_seconds=_dispatch_seconds(device),
        submission_seconds=_submission_seconds(device),
        runs_all_branches=device.info["kind"] == "cpu",
    )


def _rate(device: Any, make: Callable[[Any, int], tuple[Any, float]], count: int) -> float:
    """Work per second of a program whose work grows with a count: until a run is long enough."""
    while True:
        program, work = make(device, count)
        seconds = min(_device_seconds(device, program) for _ in range(_REPETITIONS))
        if seconds >= _LONG_ENOUGH or count >= _LARGEST_COUNT:
            return work / max(seconds, 1e-9)
        count *= 4


def _copy_program(device: Any, count: int) -> tuple[Any, float]:
    kernel = device.shader("measure_copy", "mixed", 2, 1, {0: _WORKGROUP})
    x, y = device.allocate(_WORD * count), device.allocate(_WORD * count)
    recorder = device.record().fill(x).barrier().timestamp()
    recorder.dispatch(kernel, (x, y), (count,), count // _WORKGROUP).barrier()
    return recorder.timestamp().finish(), 2.0 * _WORD * count


def _arithmetic_program(precision: Precision) -> Callable[[Any, int], tuple[Any, float]]:
    steps = 128

    def make(device: Any, count: int) -> tuple[Any, float]:
        kernel = device.shader("measure_arithmetic", precision, 2, 1, {0: _WORKGROUP})
        dtype = np.float64 if precision == "double" else np.float32
        x = device.upload(np.full(8, 0.5, dtype))
        y = device.allocate(np.dtype(dtype).itemsize * count)
        recorder = device.record().timestamp()
        recorder.dispatch(kernel, (x, y), (steps,), count // _WORKGROUP).barrier()
        return recorder.timestamp().finish(), 16.0 * steps * count

    return make


def _gather_program(device: Any, count: int) -> tuple[Any, float]:
    kernel = device.shader("measure_gather", "mixed", 2, 1, {0: _WORKGROUP})
    table, y = device.allocate(_WORD * _GATHER_TABLE), device.allocate(4 * count)
    recorder = device.record().fill(table).barrier().timestamp()
    recorder.dispatch(kernel, (table, y), (_GATHER_TABLE - 1,), count // _WORKGROUP).barrier()
    return recorder.timestamp().finish(), 8.0 * count


def records_per_second(device: Any, num_words: int, table_bytes: int) -> float:
    """Records of so many words of 16 bytes that scattered invocations fetch from a table of this size.

    Measured anew each time, on the clocks that the device runs on now. It bounds kernels over edges, whose
    records of other vertices lie all over; what their lanes share or have next to each other costs less.
    """
    num_records = max(1, table_bytes // (_WORD * num_words))

    def make(device: Any, count: int) -> tuple[Any, float]:
        kernel = device.shader("measure_records", "mixed", 2, 1, {0: _WORKGROUP, 1: num_words})
        table, y = device.allocate(_WORD * num_words * num_records), device.allocate(4 * count)
        recorder = device.record().fill(table).barrier().timestamp()
        recorder.dispatch(kernel, (table, y), (num_records,), count // _WORKGROUP).barrier()
        return recorder.timestamp().finish(), 4.0 * count

    return _rate(device, make, 1 << 12)


def _dispatch_seconds(device: Any) -> float:
    kernel = device.shader("measure_copy", "mixed", 2, 1, {0: _WORKGROUP})
    x, y = device.allocate(_WORD * _WORKGROUP), device.allocate(_WORD * _WORKGROUP)
    recorder = device.record().fill(x).barrier().timestamp()
    for _ in range(_NUM_DISPATCHES):
        recorder.dispatch(kernel, (x, y), (_WORKGROUP,), 1).barrier()
    program = recorder.timestamp().finish()
    return min(_device_seconds(device, program) for _ in range(_REPETITIONS)) / _NUM_DISPATCHES


def _submission_seconds(device: Any) -> float:
    program = device.record().timestamp().finish()
    times = []
    for _ in range(4 * _REPETITIONS):
        start = time.perf_counter()
        device.submit(program).wait()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _device_seconds(device: Any, program: Any) -> float:
    device.submit(program).wait()
    stamps = program.timestamps()
    return 1e-9 * float(stamps[-1] - stamps[0])


def _warm_up(device: Any) -> None:
    """Compute until it gets no faster; a software driver has no clocks of its own."""
    if device.info["kind"] == "cpu":
        return
    program, _ = _arithmetic_program("mixed")(device, 1 << 20)
    start = since = time.perf_counter()
    best = np.inf
    while (now := time.perf_counter()) - since < _STEADY and now - start < _MOST_WARM_UP:
        seconds = _device_seconds(device, program)
        if seconds < _FASTER * best:
            best, since = seconds, now
