"""Running the units of an evaluation: one after the other or in processes, resumed, failures kept apart."""

from __future__ import annotations

import importlib
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from graphopt.errors import GraphOptError, OptionError
from graphopt.evaluate import machine
from graphopt.evaluate.results import FILE, Results, load


@dataclass(frozen=True)
class Unit:
    """One measurement: a function of a module, called in this process or in another."""

    key: str
    """Name in `results.json`."""
    function: str
    """ "package.module:function"; it returns the entry as a dictionary."""
    arguments: dict[str, Any] = field(default_factory=dict)
    measures_process: bool = False
    """The entry has figures of the whole process, such as its peak memory: it gets one of its own."""

    def run(self) -> dict[str, Any]:
        """The entry; of a unit that failed, the sentence of its error."""
        module, _, name = self.function.partition(":")
        started = time.perf_counter()
        try:
            entry = getattr(importlib.import_module(module), name)(**self.arguments)
        except (GraphOptError, OSError, MemoryError, ImportError) as error:
            entry = {"error": f"{type(error).__name__}: {error}"}
        except Exception as error:  # an entry of its own, so that the other units go on
            entry = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        return {**entry, "wall_seconds": time.perf_counter() - started, "files": self.files()}

    def files(self) -> dict[str, list[int]]:
        """Size [bytes] and time of the last change [ns] of the files among the arguments."""
        paths = {path for path in map(str, _texts(self.arguments)) if Path(path).is_file()}
        stats = {path: Path(path).stat() for path in sorted(paths)}
        return {path: [stat.st_size, stat.st_mtime_ns] for path, stat in stats.items()}


class Watcher(Protocol):
    """Shows progress."""

    def begin(self, key: str) -> None:
        """A unit starts."""

    def end(self, key: str, entry: dict[str, Any]) -> None:
        """A unit has ended."""


def run(
    results: Results,
    units: Sequence[Unit],
    folder: Path,
    *,
    jobs: int = 1,
    fresh: bool = False,
    watcher: Watcher,
) -> Results:
    """Run the units that `folder` has no good entry for yet; returns all entries, in the units' order.

    fresh: begin anew where the folder has results of other options; without it that is an `OptionError`.
    """
    keys = [unit.key for unit in units]
    if len(set(keys)) != len(keys):
        raise OptionError(f"Named twice: {', '.join(sorted({key for key in keys if keys.count(key) > 1}))}.")
    results = _resumed(results, folder, fresh)
    results.command = results.command or shlex.join(["graphopt", *sys.argv[1:]])
    results.started = results.started or time.strftime("%Y-%m-%dT%H:%M:%S%z")
    results.machine = machine.describe()
    left = [unit for unit in units if not _is_measured(unit, results.entries.get(unit.key))]
    results.save(folder)
    for key, entry in _entries(left, jobs, watcher):
        results.entries[key] = entry
        results.entries = {key: results.entries[key] for key in _ordered(keys, results.entries)}
        results.save(folder)
        watcher.end(key, entry)
    return results


def _is_measured(unit: Unit, entry: dict[str, Any] | None) -> bool:
    """Whether there is a good entry of the files as they are now."""
    return entry is not None and "error" not in entry and entry.get("files") == unit.files()


def _texts(value: Any) -> Iterator[str | Path]:
    """Strings and paths in an argument."""
    if isinstance(value, (str, Path)):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))


def _resumed(results: Results, folder: Path, fresh: bool) -> Results:
    if fresh or not (folder / FILE).exists():
        return results
    before = load(folder)
    if (before.kind, before.options) != (results.kind, results.options):
        raise OptionError(
            f"{folder} has results of another evaluation ({before.command or before.kind}). "
            "Write to another folder, or begin anew with --fresh."
        )
    return before


def _ordered(keys: list[str], entries: Iterable[str]) -> list[str]:
    """Entries in the order of the units; those of earlier calls behind."""
    present = list(entries)
    return [key for key in keys if key in present] + [key for key in present if key not in keys]


def _entries(units: Sequence[Unit], jobs: int, watcher: Watcher) -> Iterator[tuple[str, dict[str, Any]]]:
    if jobs == 1:
        for unit in units:
            watcher.begin(unit.key)
            is_alone = unit.measures_process and len(units) > 1
            yield unit.key, in_a_process(unit) if is_alone else unit.run()
        return
    with ThreadPoolExecutor(jobs) as pool:
        running: dict[Future, str] = {}
        for unit in units:
            watcher.begin(unit.key)
            running[pool.submit(in_a_process, unit)] = unit.key
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in running):  # a process may just be starting
                for process in active_children():
                    process.terminate()
                time.sleep(0.02)
            raise


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes that this thread starts get no SIGINT: this one says what there is, and ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # the first call starts a process and unblocks SIGINT behind it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def in_a_process(unit: Unit, limit: float | None = None) -> dict[str, Any]:
    """The entry of a unit, from a process that runs nothing else; Ctrl-C ends it.

    limit: seconds after which the process is ended; the entry is an error then.
    """
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_ignore_interrupts)
    others = active_children()
    try:
        with _interrupts_blocked():
            future = pool.submit(unit.run)
        return future.result(limit)
    except FutureTimeout:
        _end(others)
        return {"error": f"ended after {limit:g} s, which --limit allows"}
    except Exception as error:  # the process died
        return {"error": f"{type(error).__name__}: {error or 'the process ended before its result'}"}
    except BaseException:
        _end(others)
        raise
    finally:
        pool.shutdown()


def _end(others: list[BaseProcess]) -> None:
    """End the processes that were started since there were these."""
    for process in active_children():
        if process not in others:
            process.terminate()


def _ignore_interrupts() -> None:
    """The caller gets them, and ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
