"""Kernels against their floors: what a call of `optimize` launches on a GPU, each launch timed by itself.

    python benchmarks/gpu_kernels.py venice-1778 [--precision mixed] [--most 10]

Two calls are made on a synthetic problem of published size; of the second
one all launches are counted. Then each kind of launch runs alone between two timestamps, on the arrays that
the call has left, with the conjugate gradients' state set to running. Counted:

    bytes       every array that a launch reads or writes, once, whatever is read again
    operations  of the generated kernels, as their generator counts them; a multiply-add is 2
    records     of an edge's other vertices, each fetched from anywhere in its array
    floor       the longest of bytes / bandwidth, operations / rate, and an empty dispatch, as measured by
                `graphopt.device.figures`
    gathers     records / the rate at which this device fetches records of that size, each lane another one,
                from a table of that size (`records_per_second`): what neighbouring edges share costs less

The printed shares are floor over time, and the longer of floor and gathers over time, which may exceed 1. Ten
kernels with the most time of the call are printed; before them the rates for records of 24 to 160 bytes.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest import mock

from harness import graph_of

import graphopt
from graphopt.codegen.gpu import GpuKernel
from graphopt.device import open_device
from graphopt.device.figures import device_figures, records_per_second
from graphopt.device.protocol import Precision
from graphopt.vulkan.program import Command, Context, Launch, Program, built

WIDEST = 9
"""Numbers per row of a block that a vector kernel reads, at most."""
_SUMS = ("values", "b", "y")
_SORTED = re.compile(r"\.(?:linearize|packed_rows|packed_tiles|packed_solve|schur)(\d+)")
RECORDS = (2, 3, 4, 9, 10)
"""Words of 16 bytes."""
TABLES = (1 << 18, 1 << 24, 1 << 29)
"""Bytes: what one multiprocessor's cache may hold, what all of a GPU's does, and what none does."""
_PAIRS, _REPEATS = 20, 5  # launches in a program, and programs


@dataclass(frozen=True)
class Kind:
    """What a launch is, as its maker says."""

    name: str
    buffers: dict[str, Any]
    params: dict[str, int]
    kernel: GpuKernel | None
    """None: a shader of `shaders/`."""


class Calls:
    """Launches of the programs that are run meanwhile."""

    def __init__(self) -> None:
        self.kinds: dict[Launch, Kind] = {}
        self.count: Counter[Launch] = Counter()
        self._launches: dict[Program, Counter[Launch]] = {}

    def kind(self, launch: Launch) -> Kind | None:
        """Also of one that is repeated with the buffers of other versions."""
        if launch not in self.kinds:
            for made in self.kinds:
                if replace(made, buffers=launch.buffers) == launch:
                    self.kinds[launch] = self.kinds[made]
                    break
        return self.kinds.get(launch)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what is made and run."""
        generated, launch, recorded = Context.generated, Context.launch, Program._recorded

        def note_generated(
            own: Context, kernel: GpuKernel, buffers: Any, params: Any, *rest: Any, **named: Any
        ) -> Launch:
            made = generated(own, kernel, buffers, params, *rest, **named)
            taken = dict(zip(kernel.buffers, made.buffers, strict=True))
            self.kinds[made] = Kind(kernel.name, taken, dict(params), kernel)
            return made

        def note_launch(
            own: Context, name: str, buffers: Any, params: Any, *rest: Any, **named: Any
        ) -> Launch:
            made = launch(own, name, buffers, params, *rest, **named)
            slots, places = map(str, range(len(buffers))), map(str, range(len(params)))
            self.kinds[made] = Kind(
                name, dict(zip(slots, buffers, strict=True)), dict(zip(places, params, strict=True)), None
            )
            return made

        def note_recorded(own: Program) -> Any:
            if own not in self._launches:
                self._launches[own] = _launches(own.commands)
            self.count.update(self._launches[own])
            return recorded(own)

        with (
            mock.patch.object(Context, "generated", note_generated),
            mock.patch.object(Context, "launch", note_launch),
            mock.patch.object(Program, "_recorded", note_recorded),
        ):
            yield


def _launches(commands: Iterable[Command]) -> Counter[Launch]:
    """How often each is launched."""
    found: Counter[Launch] = Counter()
    for name, argument in commands:
        if name == "launch":
            found[argument] += 1
        elif name == "repeat":
            repeated, times = argument
            for launch, count in _launches(repeated).items():
                found[launch] += count * times
    return found


def bytes_of(kind: Kind, real: int) -> float:
    """Counted bytes of a launch."""
    if kind.kernel is None:
        rows = next(iter(kind.params.values()), 0)
        most = WIDEST * max(rows, 1) * real
        is_vector = rows > 1
        return float(
            sum(min(buffer.size, most) if is_vector else buffer.size for buffer in kind.buffers.values())
        )
    if "dest_scalar" not in kind.buffers and "dest_block" not in kind.buffers:
        return float(sum(buffer.size for buffer in kind.buffers.values()))
    read = sum(buffer.size for name, buffer in kind.buffers.items() if name not in _SUMS)
    return read + (kind.buffers["first"].size / 4 - 1) * kind.kernel.num_outputs * real


def items_of(kind: Kind, num_edges: int) -> int:
    """Edges, or vertices, of a launch."""
    return num_edges if "rows" in kind.buffers else kind.params.get("num_rows", num_edges)


def gathers_of(kind: Kind, rows: dict[int, int]) -> list[tuple[int, int]]:
    """Words of 16 bytes, and bytes of the array, of the records that an edge of a launch gathers.

    rows: vertices by slot.
    """
    if kind.kernel is None or "rows" not in kind.buffers:
        return []
    own = _SORTED.search(kind.name)
    skipped = int(own[1]) if own else -1
    found = []
    for name, buffer in kind.buffers.items():
        record = re.fullmatch(r"(?:estimate|packed|narrow)(\d)", name)
        if record and int(record[1]) != skipped:
            found.append((buffer.size // rows[int(record[1])] // 16, buffer.size))
    return found


@cache
def seconds_per_record(device: Any, num_words: int, table_bytes: int) -> float:
    """Of a scattered one."""
    return 1.0 / records_per_second(device, num_words, table_bytes)


def print_records(device: Any) -> None:
    """Rates for records of some sizes from tables that caches hold, and from one that they do not."""
    for table_bytes in TABLES:
        rates = {16 * words: 1.0 / seconds_per_record(device, words, table_bytes) for words in RECORDS}
        listed = ", ".join(f"{size} bytes {1e-9 * rate:.3g}" for size, rate in rates.items())
        print(f"10^9 records per second from {table_bytes / 2**20:.2f} MiB: {listed}", flush=True)


def milliseconds(device: Any, launch: Launch, status: Any) -> float:
    """Median of a launch alone, after a barrier, the conjugate gradients running."""
    recorder = device.record()
    for _ in range(_PAIRS):
        if status is not None:
            recorder.fill(status)
        recorder.barrier().timestamp()
        recorder.dispatch(built(launch.kernel), launch.buffers, launch.params, launch.groups)
        recorder.barrier().timestamp()
    program = recorder.finish()
    times = []
    for _ in range(_REPEATS):
        device.submit(program).wait()
        stamps = program.timestamps()
        times += [end - begin for begin, end in zip(stamps[::2], stamps[1::2], strict=True)]
    return 1e-6 * statistics.median(times)


@dataclass
class Row:
    """A kernel of the table."""

    kind: Kind
    count: int
    ms: float


def table(device: Any, calls: Calls) -> list[Row]:
    """Kernels by time of the call, launches of the same arrays' sizes together."""
    status = next((k.buffers["status"] for k in calls.kinds.values() if "status" in k.buffers), None)
    found: dict[tuple, Row] = {}
    for launch, count in calls.count.items():
        kind = calls.kind(launch)
        if kind is None:
            continue
        key = kind.name, launch.groups, tuple(buffer.size for buffer in launch.buffers)
        if key not in found:
            found[key] = Row(kind, 0, milliseconds(device, launch, status))
        found[key].count += count
    return sorted(found.values(), key=lambda row: -row.count * row.ms)


def report(
    rows: list[Row], device: Any, precision: Precision, num_edges: int, slots: dict[int, int], total: float
) -> None:
    """Print the table. slots: vertices by slot. total: milliseconds of all kernels."""
    figures = device_figures(device)
    print(
        "| kernel | launches | ms each | of all time | MB | M operations | floor ms | share | gathers ms | "
        "share with gathers |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        kind, kernel = row.kind, row.kind.kernel
        used: Any = precision if kernel is None else kernel.precision
        nbytes = bytes_of(kind, 8 if used == "double" else 4)
        flops = 0.0 if kernel is None else float(kernel.flops * items_of(kind, num_edges))
        computing = flops / figures.flops(used) if flops else 0.0
        floor = 1e3 * max(nbytes / figures.bytes_per_second, computing, figures.dispatch_seconds)
        gathers = sum(seconds_per_record(device, *gather) for gather in gathers_of(kind, slots))
        gathering = 1e3 * num_edges * gathers
        print(
            f"| {kind.name} | {row.count} | {row.ms:.4f} | {row.count * row.ms / total:.0%} | "
            f"{1e-6 * nbytes:.1f} | {1e-6 * flops:.0f} | {floor:.4f} | {floor / row.ms:.0%} | "
            f"{gathering:.4f} | {max(floor, gathering) / row.ms:.0%} |",
            flush=True,
        )


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="?", default="venice-1778")
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--precision", default="double", choices=("double", "mixed"))
    parser.add_argument("--most", type=int, default=10)
    arguments = parser.parse_args()
    graph = graph_of(arguments.name)
    start = [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
    calls = Calls()
    with calls.watching():
        for _ in range(2):
            for vertex_set, values in zip(graph.vertex_sets, start, strict=True):
                vertex_set.estimate[...] = values
            calls.count.clear()
            summary = graphopt.optimize(graph, device=arguments.device, precision=arguments.precision)
    device = open_device(arguments.device)
    rows = table(device, calls)
    figures = device_figures(device)
    name, precision = arguments.name, arguments.precision
    in_kernels = sum(row.count * row.ms for row in rows)
    print(
        f"{name}, {precision}, {device.name}: {1e3 * summary.seconds['total']:.0f} ms, in kernels "
        f"{in_kernels:.0f}; {1e-12 * figures.bytes_per_second:.2f} TB/s, "
        f"{1e-12 * figures.flops(precision):.1f} T operations/s, "
        f"{1e-9 * figures.gathers_per_second:.0f} G words/s, {1e6 * figures.dispatch_seconds:.1f} us each"
    )
    sizes = dict(enumerate(len(vertex_set) for vertex_set in graph.vertex_sets))
    print_records(device)
    report(rows[: arguments.most], device, precision, len(graph.edge_sets[0]), sizes, in_kernels)


if __name__ == "__main__":
    main()
