"""Pytest plugin of mutate.py: quickest tests first; faults of Python are planted in forks of one process.

After collection a first fork runs all tests and records which of them execute which lines. Then each fault
gets a fork in which the code of its function is exchanged, and the tests that execute its line run there,
until one fails. What modules and classes compute when they are imported is not in functions: for these faults
a new process imports the changed source.
"""

from __future__ import annotations

import ast
import faulthandler
import gc
import hashlib
import json
import os
import re
import select
import signal
import sys
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pytest
from _pytest.runner import runtestprotocol

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
FORKS = "MUTATE_FORKS"
"""Environment variable, a JSON file: `folder`, `faults` (as dictionaries), `most` seconds of
tests for one of them, and `results`, a file to write."""
NOT_PLANTED = "no function has this code"
SECONDS = "MUTATE_SECONDS"
"""Environment variable, a JSON file with the seconds of each test, written by the first run that passes."""


SHADERS = "MUTATE_SHADERS"
"""Environment variable, a JSON file to write: `seconds` of each test that passes, and `tests` by each shader
or included file that a kernel which they ask for is made of."""


def pytest_configure() -> None:
    """Examples that failed with one fault are not tried with the next."""
    from hypothesis import settings

    settings.register_profile("faults", database=None)
    settings.load_profile("faults")


_seconds: dict[str, float] = defaultdict(float)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quickest first."""
    path = Path(os.environ.get(SECONDS, ""))
    known = json.loads(path.read_text()) if path.is_file() else {}
    items.sort(key=lambda item: known.get(item.nodeid, 0.0))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what a test takes."""
    _seconds[report.nodeid] += report.duration


def pytest_sessionfinish(exitstatus: int) -> None:
    """Keep them for later runs."""
    path = Path(os.environ.get(SECONDS, ""))
    if path.name and not path.exists() and exitstatus == 0:
        path.write_text(json.dumps(_seconds))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """In place of running the tests once."""
    if SHADERS in os.environ:
        Path(os.environ[SHADERS]).write_text(_tests_of_shaders(session.items))
        return True
    if FORKS not in os.environ:
        return None
    if session.testsfailed:
        raise session.Interrupted(f"{session.testsfailed} errors during collection")
    given = json.loads(Path(os.environ.pop(FORKS)).read_text())
    planter = _Planter(
        session, Path(given["folder"]), sorted({fault["file"] for fault in given["faults"]}), given["most"]
    )
    with open(given["results"], "w") as results:
        for fault in given["faults"]:
            start = time.perf_counter()
            outcome, test = planter.plant(fault)
            results.write(json.dumps([outcome, test, time.perf_counter() - start]) + "\n")
            results.flush()
    return True


class _Planter:
    """The collected tests, and what they execute."""

    def __init__(self, session: pytest.Session, folder: Path, files: list[str], most: float):
        self.folder, self.most = folder, most
        self.items = {item.nodeid: item for item in session.items}
        sources = [*folder.glob("graphopt/**/*.py"), *folder.glob("tests/**/*.py")]
        digest = hashlib.sha256("\n".join([*self.items, *files]).encode())
        for path in sorted(sources):
            digest.update(path.read_bytes())
        report = folder / f"executed-{digest.hexdigest()[:16]}.json"
        if not report.exists():
            status, printed = _in_fork(lambda: _executed_lines(session.items, folder, files), 7200.0)
            if status:
                why = printed or f"did not end in two hours, or crashed (status {status})"
                raise session.Interrupted(f"the tests without a fault: {why}")
            report.write_text(printed)
        known = json.loads(report.read_text())
        self.seconds: dict[str, float] = known["seconds"]
        self.lines: dict[str, dict[str, list[str]]] = known["lines"]
        self.spawning: list[str] = known["spawning"]
        print(f"\n{len(self.seconds)} tests, {sum(self.seconds.values()):.0f} s", flush=True)
        for name in known["failed"]:
            print(f"without any fault this fails and is left out: {name}", flush=True)

    def plant(self, fault: dict) -> tuple[str, str]:
        """What became of it, and by which test."""
        path = self.folder / fault["file"]
        source = path.read_text()
        changed = source[: fault["begin"]] + fault["after"] + source[fault["end"] :]
        try:
            before, after = (compile(text, str(path), "exec") for text in (source, changed))
        except SyntaxError:
            return "refused", ""
        codes = dict(_changed_codes(before, after))
        lines = self.lines.get(fault["file"], {})
        at_import = before in codes or any(_is_class_body(code) for code in codes)
        tree = ast.parse(source)
        rows = _uses(tree, source, fault["line"]) if at_import else _statement(tree, fault["line"])
        rows = [str(row) for row in rows]
        nearest = {t for row in rows for t in lines.get(row, ())}
        # what is computed once and kept is computed anew in a fork: by any test of the module, or beside it
        others = {t for row in lines for t in lines[row]} - nearest
        files = {t.partition("::")[0] for t in nearest | others}
        beside = {t for t in self.seconds if t.partition("::")[0] in files} - nearest - others
        tests = [test for some in (nearest, others, beside) for test in self._quickest(some)]
        tests = tests or self._quickest(set(self.spawning))
        if not tests:
            return "survived", "no test executes anything of this file"
        total = np.cumsum([self.seconds[test] for test in tests])
        tests = tests[: max(1, np.searchsorted(total, self.most))]
        limit = 60.0 + 3.0 * sum(self.seconds[test] for test in tests)
        path.write_text(changed)  # subprocesses and hashes of sources see it, too
        try:
            if at_import:
                status, printed = _in_fork(lambda: _run_anew(tests), limit)
            else:
                items = [self.items[test] for test in tests]
                status, printed = _in_fork(lambda: _run_changed(items, codes, self.seconds), limit)
        finally:
            path.write_text(source)
        if status == 0 and printed == "passed":
            return "survived", f"{len(tests)} tests"
        if printed == NOT_PLANTED:
            return "refused", printed
        return "caught", printed or f"it did not end or crashed (status {status})"

    def _quickest(self, tests: set[str]) -> list[str]:
        return sorted(tests, key=lambda test: self.seconds[test])


def _changed_codes(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Of two versions of a module: the code objects that differ themselves, not only in what they define."""
    if before == after:
        return
    inner = [[c for c in code.co_consts if isinstance(c, CodeType)] for code in (before, after)]
    deeper = [pair for a, b in zip(*inner, strict=True) for pair in _changed_codes(a, b)]
    yield from deeper
    own = [tuple(c for c in code.co_consts if not isinstance(c, CodeType)) for code in (before, after)]
    is_module = before.co_name == "<module>" or _is_class_body(before)
    if not (deeper and is_module and own[0] == own[1] and before.co_code == after.co_code):
        yield before, after


def _is_class_body(code: CodeType) -> bool:
    return "__qualname__" in code.co_names and "__module__" in code.co_names and code.co_argcount == 0


def _statement(tree: ast.AST, line: int) -> range:
    """Lines of the smallest statement around a line, of compound ones their heads alone."""
    found = range(line, line + 1)
    smallest = sys.maxsize
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
            head = range(node.lineno, max(end, node.lineno) + 1)
            if line in head and len(head) < smallest:
                found, smallest = head, len(head)
    return found


def _uses(tree: ast.Module, source: str, line: int) -> list[int]:
    """Lines of a module that name what the statement in a line assigns."""
    rows = _statement(tree, line)
    names = [
        name.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno in rows
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    ]
    pattern = re.compile("|".join(rf"\b{name}\b" for name in names) or "$^")
    return [
        row for row, text in enumerate(source.splitlines(), 1) if row not in rows and pattern.search(text)
    ]


def _in_fork(work: Callable[[], str], limit: float) -> tuple[int, str]:
    """Exit status and result of a function that runs in a fork; all that it started ends with it."""
    sys.stdout.flush()
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.setsid()
            os.write(writer, b" ")
            printed = work().encode()
            while printed:
                printed = printed[os.write(writer, printed) :]
            status = 0
        except BaseException:
            os.write(writer, traceback.format_exc().strip().splitlines()[-1].encode())
        finally:
            os._exit(status)
    os.close(writer)
    end, received = time.monotonic() + limit, b""
    while (left := end - time.monotonic()) > 0.0 and select.select([reader], [], [], left)[0]:
        part = os.read(reader, 1 << 20)
        if not part:
            break
        received += part
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        pass
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.close(reader)
    return status, received.decode().strip()


def _tests_of_shaders(items: list[pytest.Item]) -> str:
    """JSON: seconds of tests that pass, and those by each file of the kernels that they ask for."""
    from graphopt.device import spirv
    from graphopt.device.vulkan import VulkanDevice

    asked: dict[str, str] = {}  # what is kept for the whole session is asked for by its first test
    shader, generated = VulkanDevice._shader, VulkanDevice._generated

    def ask_shader(self: VulkanDevice, name: str, *others: Any) -> Any:
        asked[f"{name}.comp"] = ""
        return shader(self, name, *others)

    def ask_generated(self: VulkanDevice, kernel: Any, *others: Any) -> Any:
        asked[kernel.name] = kernel.source
        return generated(self, kernel, *others)

    VulkanDevice._shader, VulkanDevice._generated = ask_shader, ask_generated  # type: ignore[method-assign]

    def included(text: str) -> Iterator[str]:
        for name in re.findall(r'#include "(.+?)"', text):
            yield f"include/{name}"
            yield from included((spirv.SHADERS / "include" / name).read_text())

    seconds: dict[str, float] = {}
    tests: dict[str, dict[str, None]] = defaultdict(dict)
    for item in items:
        asked.clear()
        start = time.perf_counter()
        if not _passes(item):
            print(f"without any fault this fails and is left out: {item.nodeid}", flush=True)
            continue
        seconds[item.nodeid] = time.perf_counter() - start
        for name, source in asked.items():
            for file in (name, *included(source or (spirv.SHADERS / name).read_text())):
                tests[file][item.nodeid] = None
    return json.dumps({"seconds": seconds, "tests": {file: [*some] for file, some in tests.items()}})


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    faulthandler.disable()
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _passes(item: pytest.Item) -> bool:
    return not any(report.failed for report in runtestprotocol(item, nextitem=None, log=False))


def _executed_lines(items: list[pytest.Item], folder: Path, files: list[str]) -> str:
    """JSON: seconds of tests that pass, those that fail or start processes, and the tests of each line."""
    import coverage

    _silence()
    measured = coverage.Coverage(data_file=None, include=[str(folder / file) for file in files])
    seconds, failed = {}, []
    measured.start()
    spawning: dict[str, None] = {}
    sys.addaudithook(lambda event, _: spawning.setdefault(name) if event == "subprocess.Popen" else None)
    for item in items:
        name = item.nodeid
        measured.switch_context(name)
        start = time.perf_counter()
        passed = _passes(item)
        if passed:
            seconds[name] = time.perf_counter() - start
        else:
            failed.append(name)
    measured.stop()
    lines: dict[str, dict[int, list[str]]] = defaultdict(dict)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no file of these was executed
        data = measured.get_data()
    for file in files:
        for line, tests in data.contexts_by_lineno(str(folder / file)).items():
            lines[file][line] = [test for test in tests if test in seconds]
    found = {"seconds": seconds, "failed": failed, "lines": lines}
    return json.dumps({**found, "spawning": [test for test in spawning if test in seconds]})


def _run_changed(items: list[pytest.Item], codes: dict[CodeType, CodeType], seconds: dict[str, float]) -> str:
    """The first test that fails with other code in functions, or "passed"."""
    _silence()
    exchanged = 0
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__ in codes:
            function.__code__ = codes[function.__code__]
            exchanged += 1
    for item in items:
        signal.alarm(int(5.0 * seconds[item.nodeid] + 20.0))
        if not _passes(item):
            return item.nodeid
    return "passed" if exchanged else NOT_PLANTED


def _run_anew(tests: list[str]) -> str:
    """As `_run_changed`, in a process that imports the changed source."""
    import subprocess

    words = [*PYTEST, "-x", *tests]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return "passed" if done.returncode == 0 else f"status {done.returncode} of a new process"
