"""Rates of the primitives and of transfers against what the device's memory allows.

    python -m benchmarks.device_primitives [--count N ...] [--device vulkan] [--keep-busy SECONDS]

Per primitive: the median of the device's own times, the bytes that it must read and write at least, the
rate, and its share of the copy rate that graphopt measured on this device. Per transfer: wall time of `write`
and `read`, with the submission and the wait, for many small arrays and for large ones; and what taking memory
costs when it was held before. Results are checked against numpy where N is at most 2^22.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import print_table
from graphopt.device import open_device
from graphopt.device.figures import device_figures
from graphopt.device.primitives import (
    Fingerprint,
    RadixSort,
    Scan,
    bits_of,
    record_first,
    record_gather,
    record_histogram,
)

REPEATS = 9
CHECKED = 1 << 22


@dataclass(frozen=True)
class Case:
    """One primitive: what to record, the bytes it moves at least, how to check it."""

    name: str
    record: Callable[[Any], None]
    nbytes: float
    check: Callable[[], bool]


def cases(device: Any, count: int) -> list[Case]:
    """All primitives on `count` keys of `count / 6` vertices, as in bundle adjustment."""
    rng = np.random.default_rng(0)
    num = max(2, count // 6)
    keys = rng.integers(0, num, count, np.uint32)
    few = (keys % np.uint32(1000)).astype(np.uint32)
    buffers = {"keys": device.upload(keys), "few": device.upload(few)}
    result = device.allocate(4 * (count + 1))
    sort, sort_few = RadixSort(device, count, bits_of(num)), RadixSort(device, count, bits_of(1000))
    order = np.argsort(keys, kind="stable") if count <= CHECKED else None
    scan, fingerprint = Scan(device, count), Fingerprint(device, 4 * count)

    def holds(buffer: Any, expected: Callable[[], np.ndarray]) -> Callable[[], bool]:
        def check() -> bool:
            if order is None:
                return True
            wanted = expected()
            return bool(np.array_equal(device.download(buffer, np.uint32, len(wanted)), wanted))

        return check

    passes, few_passes = -(-bits_of(num) // 8), -(-bits_of(1000) // 8)
    sorted_keys = device.upload(np.sort(keys))
    made = [
        Case(
            "exclusive scan",
            lambda r: scan.record(r, buffers["keys"], result),
            12.0 * count,
            holds(result, lambda: (np.cumsum(keys, dtype=np.uint64) - keys).astype(np.uint32)),
        ),
        Case(
            f"sort pairs, {bits_of(num)} bits",
            lambda r: sort.record(r, buffers["keys"]),
            (20.0 * passes - 4) * count,
            holds(sort.values, lambda: order.astype(np.uint32)),
        ),
        Case(
            "sort pairs, 10 bits",
            lambda r: sort_few.record(r, buffers["few"]),
            (20.0 * few_passes - 4) * count,
            holds(sort_few.values, lambda: np.argsort(few, kind="stable").astype(np.uint32)),
        ),
        Case(
            "first places",
            lambda r: record_first(r, device, sorted_keys, count, result, num),
            4.0 * (count + num),
            holds(result, lambda: np.searchsorted(np.sort(keys), np.arange(num + 1)).astype(np.uint32)),
        ),
        Case(
            "histogram, 1,000 bins",
            lambda r: record_histogram(r, device, buffers["few"], count, result, 1000),
            4.0 * count,
            holds(result, lambda: np.bincount(few, minlength=1000).astype(np.uint32)),
        ),
        Case(
            "histogram, one per 6 keys",
            lambda r: record_histogram(r, device, buffers["keys"], count, result, num),
            8.0 * count,
            holds(result, lambda: np.bincount(keys, minlength=num).astype(np.uint32)),
        ),
        Case("fingerprint", lambda r: fingerprint.record(r, buffers["keys"]), 4.0 * count, lambda: True),
    ]
    return made + [
        gather_case(device, count, width, sort) for width in (8, 16, 20, 6) if 16 * count < 1 << 33
    ]


def gather_case(device: Any, count: int, width: int, sort: RadixSort) -> Case:
    """Rows of a width, in the order of the sort (which has run before)."""
    source, target = device.allocate(width * count), device.allocate(width * count + 4)
    return Case(
        f"gather rows of {width} bytes",
        lambda r: record_gather(r, device, source, sort.values, count, width, target),
        (2.0 * width + 4) * count,
        lambda: True,
    )


def device_seconds(device: Any, record: Callable[[Any], None]) -> float:
    """Median of the device's own times."""
    recorder = device.record("primitive").timestamp()
    record(recorder)
    program = recorder.timestamp().finish()
    times = []
    for _ in range(REPEATS):
        device.submit(program).wait()
        times.append(1e-9 * program.timestamps()[-1])
    return float(np.median(times))


def keep_busy(device: Any, seconds: float) -> None:
    """Clocks rise under load."""
    scan = Scan(device, 1 << 20)
    buffer, recorder = device.allocate(4 << 20), device.record("warm up")
    for _ in range(100):
        scan.record(recorder, buffer)
    program, end = recorder.finish(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        device.submit(program).wait()


def print_primitives(device: Any, count: int) -> None:
    """One table per size."""
    rate = device_figures(device).bytes_per_second
    rows = []
    for case in cases(device, count):
        seconds = device_seconds(device, case.record)
        speed = case.nbytes / max(seconds, 1e-9)
        rows.append(
            [
                case.name,
                f"{1e6 * seconds:.1f}",
                f"{count / max(seconds, 1e-9) / 1e9:.2f}",
                f"{case.nbytes / max(count, 1):.1f}",
                f"{speed / 1e9:.0f}",
                f"{100 * speed / rate:.0f} %",
                "right" if case.check() else "WRONG",
            ]
        )
    header = ["primitive", "us", "10^9 items/s", "bytes/item", "GB/s", "of the copy rate", "result"]
    print_table(f"{device.name}: {count:,} items", header, rows)


def wall_seconds(action: Callable[[], Any]) -> list[float]:
    """Of four calls in a row."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return times


def print_transfers(device: Any, largest: int) -> None:
    """Uploads, downloads and allocations, four in a row."""
    rows = []
    empty = device.record().finish()
    for number, nbytes in ((50, 4096), (1, 1 << 20), (1, 1 << 26), (1, largest)):
        arrays = [np.ones(nbytes, np.uint8) for _ in range(number)]
        buffers = [device.allocate(nbytes) for _ in arrays]
        targets = [np.ones_like(array) for array in arrays]

        def send(buffers: list = buffers, arrays: list = arrays) -> None:
            for buffer, array in zip(buffers, arrays, strict=True):
                device.write(buffer, array)
            device.submit(empty).wait()

        def receive(buffers: list = buffers, targets: list = targets) -> None:
            device.read([(b, 0, t) for b, t in zip(buffers, targets, strict=True)])

        for name, action in (("write", send), ("read", receive)):
            times = wall_seconds(action)
            rate = number * nbytes / min(times) / 2**30
            rows.append(
                [f"{name} {number} x {nbytes:,} bytes", *(f"{1e3 * t:.3f}" for t in times), f"{rate:.1f}"]
            )
    for usage in ("upload", "readback", "device"):
        times = wall_seconds(lambda usage=usage: device.allocate(largest, usage))
        rows.append([f"allocate {largest:,} '{usage}'", *(f"{1e3 * t:.3f}" for t in times), ""])
    times = wall_seconds(lambda: device.submit(empty).wait())
    rows.append(["empty submission and wait", *(f"{1e3 * t:.3f}" for t in times), ""])
    print_table(f"{device.name}: transfers", ["what", "1st ms", "2nd", "3rd", "4th", "GiB/s"], rows)
    print({key: f"{value / 2**20:.0f} MiB" for key, value in device.memory_statistics().items()})


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--count", type=int, nargs="*", default=[31_843, 1_692_975, 28_987_644])
    parser.add_argument("--largest", type=int, default=1 << 28, help="bytes of the largest array")
    parser.add_argument("--keep-busy", type=float, default=1.0)
    asked = parser.parse_args()
    device = open_device(asked.device)
    keep_busy(device, asked.keep_busy)
    for count in asked.count:
        print_primitives(device, count)
    print_transfers(device, asked.largest)


if __name__ == "__main__":
    main()
