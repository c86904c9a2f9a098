"""What every benchmark shares: problems, metrics, medians, the record of the machine, and the report.

Problems are real graphs of the data folder, `../shared/data` beside the checkout or `$GRAPHOPT_SHARED/data`,
unpacked once, and generated ones of published sizes.

Rules that hold for every number here:

* chi2 of an answer is recomputed from the estimates, in g2o's convention;
* a time is the median of `repeats` runs, each from the file's start values in fresh objects;
* reading files, converting between libraries and recomputing chi2 stand outside the clock;
* the record names machine, cores, load, versions and commit; a busy machine is said to be one.
"""

from __future__ import annotations

import gc
import json
import lzma
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

import graphopt
from graphopt.evaluate import datasets
from graphopt.graph import Graph

BUSY_LOAD = 0.5
"""Load per core before the run above which the record says that the machine was busy."""


@dataclass(frozen=True)
class Metric:
    """One measured number."""

    key: str
    """Dotted name, such as `pose_graph.sphere2500.graphopt.to_target`."""
    value: float
    unit: str
    direction: Literal["lower", "higher"] = "lower"
    """Which way is better."""
    note: str = ""


@dataclass
class Report:
    """Metrics of one run of the benchmarks, with the machine they were measured on."""

    machine: dict[str, Any] = field(default_factory=lambda: machine_record())
    metrics: list[Metric] = field(default_factory=list)

    def add(self, key: str, value: float, unit: str, direction: Any = "lower", note: str = "") -> None:
        """Append one metric."""
        self.metrics.append(Metric(key, value, unit, direction, note))

    def value(self, key: str) -> float:
        """Return the value of the metric with this key."""
        return next(metric.value for metric in self.metrics if metric.key == key)

    def save(self, path: Path) -> None:
        """Write machine and metrics as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"machine": self.machine, "metrics": [asdict(metric) for metric in self.metrics]}
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def compare(report: Report, baseline: Path, tolerance: float) -> int:
    """Print metrics that are worse than an earlier record's by more than `tolerance`; 1 if there are any.

    Raises `ValueError` where the record is of another processor: its times say nothing here.
    """
    document = json.loads(baseline.read_text(encoding="utf-8"))
    if document["machine"]["processor"] != report.machine["processor"]:
        raise ValueError(f"{baseline} is of {document['machine']['processor']}, not of this machine.")
    before = {metric["key"]: metric["value"] for metric in document["metrics"]}
    worse = []
    for metric in report.metrics:
        if metric.key not in before or metric.unit == "":
            continue
        ratio = metric.value / before[metric.key] if before[metric.key] else 1.0
        if (ratio if metric.direction == "lower" else 1.0 / ratio) > 1.0 + tolerance:
            worse.append([metric.key, f"{before[metric.key]:.6g}", f"{metric.value:.6g}", f"{ratio:.2f}"])
    if worse:
        print_table(f"worse than {baseline}", ["metric", "before", "now", "ratio"], worse)
    return int(bool(worse))


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median time of `work` over `repeats` calls, the garbage collector held off meanwhile [s]."""
    times = []
    for _ in range(repeats):
        gc.collect()
        gc.disable()
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
        gc.enable()
    return statistics.median(times)


DEVICE_PARTS = {
    "upload": ("write", "write_pieces", "write_rows"),
    "wait": ("finishes",),
    "read": ("read", "download"),
}
"""Part of a call -> methods of a device: "wait" is for kernels, "read" what downloads take beside it."""


@contextmanager
def seconds_at_device() -> Iterator[dict[str, float]]:
    """Seconds by part of what is done at a device within; the rest is the host's."""
    from graphopt.device import VulkanDevice

    spent = dict.fromkeys(DEVICE_PARTS, 0.0)
    within: list[float] = []

    @contextmanager
    def measured(part: str) -> Iterator[None]:
        within.append(0.0)
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            spent[part] += seconds - within.pop()
            if within:
                within[-1] += seconds

    def wrapped(part: str, method: Callable) -> Callable:
        def run(*arguments: Any, **named: Any) -> Any:
            with measured(part):
                return method(*arguments, **named)

        return run

    patches = {
        name: wrapped(part, getattr(VulkanDevice, name))
        for part, names in DEVICE_PARTS.items()
        for name in names
    }
    with patch.multiple(VulkanDevice, **patches):
        yield spent


def machine_record() -> dict[str, Any]:
    """Describe processor, cores, load, versions and commit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0]
    return {
        "processor": _processor(),
        "cores": cores,
        "load": round(load, 2),
        "busy": load / cores > BUSY_LOAD,
        "python": platform.python_version(),
        "system": platform.platform(),
        "commit": _commit(),
        "versions": _versions(("graphopt", "numpy", "g2opy", "gtsam")),
    }


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table; the first column is text, the others are numbers."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=140).print(table)


def milliseconds(value: float | None) -> str:
    """Write seconds as milliseconds, or a dash for what was not reached."""
    return "-" if value is None else f"{value * 1e3:.1f} ms"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        return next(
            line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _commit() -> str:
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def data_folder() -> Path:
    """Return the folder of real data sets; raises `FileNotFoundError` where there is none."""
    root = Path(os.environ.get("GRAPHOPT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (root / "data").is_dir():
        raise FileNotFoundError(
            f"{root / 'data'}: the benchmarks need the real data sets; set GRAPHOPT_SHARED."
        )
    return root / "data"


def graph_of(name: str) -> Graph:
    """A graph file, a file of the data folder, or a synthetic problem of a published size."""
    if Path(name).exists():
        return graphopt.read(name)
    if "/" in name and (data_folder() / name).exists():
        return graphopt.read(data_folder() / name)
    return datasets.published(name)


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="graphopt-bench-")


@cache
def unpacked(name: str) -> Path:
    """Return the path of a data file, unpacked into a scratch folder if it is compressed."""
    source = data_folder() / name
    if source.suffix != ".xz":
        return source
    target = Path(_scratch().name) / source.stem
    target.write_bytes(lzma.decompress(source.read_bytes()))
    return target
