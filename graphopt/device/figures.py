"""What a device can do per second: measured, kept in the cache folder, read by the cost model.

    bytes        of a copy by words of 16 bytes, reading and writing counted
    flops        of multiply-adds (two operations each), float32 and float64
    gathers      of 16-byte words from scattered places of a table of 1 MiB
    dispatch     one small dispatch with its barrier
    submission   an empty submission and the wait for it

`records_per_second` measures another one when it is asked: whole records, each invocation others.

Each is the best of a few repetitions in several rounds. Before, the device computes until it gets no faster:
clocks rise under load, by four times on an H200 that was idle.

A device that other work shares looks slower than it is. So figures are kept with their date and the load of
the host, and are measured again in a later process until two measurements that lie apart agree, at most four
times; the best of each counts. Confirmed figures are measured anew after a month, implausible ones are not
kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from graphopt import disk_cache
from graphopt.device.protocol import Precision

_WORKGROUP = 128
_VERSION = 5  # of what is measured: raise it when that changes
_LONG_ENOUGH = 4e-4  # [s] of one measurement, beside which a dispatch is short
_LARGEST_COUNT = 1 << 24
_STEADY = 0.5  # [s] without getting faster by _FASTER
_FASTER = 0.98
_MOST_WARM_UP = 4.0  # [s]
_NUM_DISPATCHES = 200
_REPETITIONS = 3
_ROUNDS = 3
_TRUSTED = {False: 3600.0, True: 30 * 86400.0}  # [s] of figures, by whether they are confirmed
_ENOUGH = 4  # measurements of which the best is trusted; two that agree are as good
_AGREEMENT = 1.25  # largest ratio of two measurements that confirm each other
_LEAST_RATES = {"discrete": 1e10, "integrated": 1e9}
"""Bytes, operations per second that any GPU of today reaches; else `_LEAST_RATE`."""
_LEAST_RATE, _LARGEST_RATE = 1e6, 1e18
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


known_figures: dict[tuple, DeviceFigures] = {}


def device_figures(device: Any) -> DeviceFigures:
    """The figures of an open device: measured at the first call, later read from the cache folder."""
    key = _identity(device)
    if key not in known_figures:
        known_figures[key] = _kept_or_measured(device)
    return known_figures[key]


def _kept_or_measured(device: Any) -> DeviceFigures:
    entry = _entry(device)
    kept, count, age = _kept(device, entry)
    if kept is not None and age < _TRUSTED[count >= _ENOUGH]:
        return kept
    figures = measure(device)
    if not is_plausible(figures, device.info["kind"]):
        return figures
    if kept is not None and count < _ENOUGH:
        count = _ENOUGH if _agree(kept, figures) else count + 1
        figures = _best(kept, figures)
    else:  # the first one, or a month later
        count = 1
    record = {
        "figures": asdict(figures),
        "measurements": count,
        "host_load": os.getloadavg()[0],
        "host_cores": os.cpu_count(),
    }
    disk_cache.store_dated(entry, record)
    return figures


def _kept(device: Any, entry: str) -> tuple[DeviceFigures | None, int, float]:
    """Plausible figures of the cache folder, how many measurements they are of, their age [s]."""
    stored = disk_cache.load_dated(entry)
    if stored is not None:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            record, age = stored
            figures = DeviceFigures(**record["figures"])
            if is_plausible(figures, device.info["kind"]):
                return figures, int(record["measurements"]), age
    return None, 0, math.inf


def is_plausible(figures: DeviceFigures, kind: str) -> bool:
    """Whether a device of this kind ("discrete", "integrated", "cpu", ...) can have such figures."""
    rates = [figures.bytes_per_second, figures.float32_flops, figures.gathers_per_second]
    if figures.float64_flops != 0.0:
        rates.append(figures.float64_flops)
    least = _LEAST_RATES.get(kind, _LEAST_RATE)
    latencies = (figures.dispatch_seconds, figures.submission_seconds)
    return all(least <= rate <= _LARGEST_RATE for rate in rates) and all(
        0.0 < seconds < 1.0 for seconds in latencies
    )


def _gains(first: DeviceFigures, second: DeviceFigures) -> dict[str, float]:
    """By how much each figure of the second is better."""
    ratios = {}
    for name, value in asdict(second).items():
        if isinstance(value, float) and value > 0.0:
            before = getattr(first, name)
            ratios[name] = before / value if name.endswith("_seconds") else value / before
    return ratios


def _agree(first: DeviceFigures, second: DeviceFigures) -> bool:
    return all(max(ratio, 1.0 / ratio) <= _AGREEMENT for ratio in _gains(first, second).values())


def _best(first: DeviceFigures, second: DeviceFigures) -> DeviceFigures:
    better = [name for name, ratio in _gains(first, second).items() if ratio > 1.0]
    return replace(first, **{name: getattr(second, name) for name in better})


def _entry(device: Any) -> str:
    return f"devices/{hashlib.sha256(repr(_identity(device)).encode()).hexdigest()[:16]}.json"


def _identity(device: Any) -> tuple:
    return _VERSION, device.name, str(device.info.get("driver_info", "")), device.access, device.has_float64


def measure(device: Any) -> DeviceFigures:
    """Measure a device now: one to four seconds on a GPU."""
    _warm_up(device)
    figures = _measure_once(device)
    for _ in range(_ROUNDS - 1):
        figures = _best(figures, _measure_once(device))
    return figures


def _measure_once(device: Any) -> DeviceFigures:
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
