"""Plant faults in the sources, one at a time, and see whether the tests of that room notice.

    python tools/mutate.py symbolic --count 30 --seed 1
    python tools/mutate.py linear shaders --count 20 --folder /tmp/copy --output mutants.json
    python tools/mutate.py linear --folder /tmp/copy --survivors mutants.json --tests tests/linear
    python tools/mutate.py --list

Kinds of faults: `sign` (+ and -, a minus that goes), `index` (a number in brackets, off by one), `bound` (<
and <=, > and >=; beside a floating-point constant, which nothing equals, < and >), `constant` (a number that
is another one), `logic` (and, or; == and !=). Comments, texts and declarations of types stay as they are.
Sources are changed in a copy (`--folder` keeps it for the next
run). Of native code that is one object and a link per fault, and the tests of the room; Python is changed in
forks of one process, which run the tests that execute the line; of a shader it is the tests that ask for a
kernel made of that file (plant_in_forks.py finds both out).

The report has each fault with its line, what became of it, and by which test:

    caught      a test failed, or did not end
    refused     it does not compile or import: nobody can ship it
    survived    all tests of the room passed
    looked at   it survived and `tools/mutants.txt` says why nobody can tell (equal results, speed alone)

The share that is printed is caught / (caught + survived).
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import io
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from plant_in_forks import FORKS, PYTEST, SECONDS, SHADERS
from workshop import ROOT, Workshop, configuration

LOOKED_AT = ROOT / "tools" / "mutants.txt"
PLUGIN = ["--no-header", "--tb=line", "-m", "not slow and not nightly", "-p", "plant_in_forks"]


@dataclass(frozen=True)
class Room:
    """Sources and the tests that answer for them, quickest first."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    kind: str = "python"
    """Or "native": something has to be built after a change; "shader": compiled when a test asks for it."""


ROOMS = {
    "symbolic": Room(
        tuple(
            f"graphopt/symbolic/{name}.py"
            for name in ("rules", "derivative", "context", "share", "functions")
        ),
        ("tests/symbolic", "tests/language", "tests/codegen/test_codegen.py"),
    ),
    "geometry": Room(
        ("graphopt/geometry/*.py",),
        (
            "tests/geometry",
            "tests/types/test_pose_forms.py",
            "tests/language/test_language_functions.py",
            "tests/slam_bridge/test_cameras.py",
            "tests/types/test_digits.py",
        ),
    ),
    "types": Room(
        tuple(
            f"graphopt/types/{name}.py"
            for name in (
                "slam2d",
                "slam3d",
                "sba",
                "sba_jacobians",
                "sim3",
                "g2o_maps",
                "bal",
                "inertial",
                "toro",
            )
        ),
        ("tests/types", "tests/oracle", "tests/graph", "tests/derivatives/test_every_edge.py"),
    ),
    "optimizer": Room(
        ("graphopt/optimizer/*.py",),
        ("tests/optimizer", "tests/solver", "tests/vulkan/test_mixed_precision.py"),
    ),
    "problem": Room(("graphopt/problem/*.py",), ("tests/solver", "tests/optimizer")),
    "solver": Room(
        ("graphopt/solver/*.py",),
        (
            "tests/graph/test_selection_again.py",
            "tests/g2o/test_switched_off_edges.py",
            "tests/vulkan/test_lent_solvers.py",
            "tests/solver",
            "tests/optimizer",
            "tests/vulkan/test_speculative_calls.py",
            "tests/linear/test_marginals.py",
        ),
    ),
    "graph": Room(("graphopt/graph/*.py",), ("tests/graph", "tests/language", "tests/expressions")),
    "codegen": Room(
        ("graphopt/codegen/*.py", "graphopt/codegen/gpu/*.py"),
        (
            "tests/codegen",
            "tests/vulkan/test_collect.py",
            "tests/batch",
            "tests/optimizer/test_inequalities.py",
            "tests/vulkan/test_gradients_after_device.py",
        ),
    ),
    "expressions": Room(("graphopt/expressions/*.py",), ("tests/expressions",)),
    "systems": Room(("graphopt/linear/*.py",), ("tests/linear", "tests/solver/test_configurations.py")),
    "linear": Room(("native/src/linear/*.cpp", "native/src/linear/*.h"), ("tests/linear",), "native"),
    "vm": Room(
        ("native/src/vm/*.cpp", "native/src/vm/*.h"),
        (
            "tests/solver",
            "tests/codegen/test_codegen.py",
            "tests/language/test_language_images.py",
            "tests/slam_bridge/test_frames.py",
        ),
        "native",
    ),
    "edges": Room(
        ("native/src/edges/*.cpp",),
        (
            "tests/solver",
            "tests/vulkan/test_edge_order.py",
            "tests/vulkan/test_resident_views.py",
            "tests/distributed/test_edge_partition.py",
            "tests/distributed/test_partition.py",
            "tests/optimizer/test_points_behind.py",
            "tests/colmap/test_files.py",
            "tests/colmap/test_memory.py",
        ),
        "native",
    ),
    "shaders": Room(
        ("shaders/*.comp", "shaders/include/*.glsl"),
        (
            "tests/vulkan/test_*.py",
            "tests/linear/test_device_cholesky.py",
            "tests/linear/test_device_trials.py",
            "tests/codegen/test_gpu_kernels.py",
            "tests/codegen/test_gpu_images.py",
            "tests/codegen/test_merged_kernels.py",
            "tests/batch/test_problems_on_device.py",
            "tests/expressions/test_batches_on_device.py",
            "tests/expressions/test_batch_fits_on_device.py",
            "tests/expressions/test_device_functions.py",
            "tests/derivatives/test_on_device.py",
            "tests/device/test_device_figures.py",
            "tests/distributed/test_resident.py",
            "tests/distributed/test_devices.py",
        ),
        "shader",
    ),
}


@dataclass(frozen=True)
class Fault:
    """A piece of a source and what stands there instead."""

    file: str
    line: int
    begin: int
    """First character in the file; `end`: one past the last."""
    end: int
    kind: str
    before: str
    after: str
    text: str
    """The line as it was, without the spaces at its ends."""

    nth: int = 0
    """How many equal changes of equal lines come before it in the file."""

    @property
    def key(self) -> str:
        """How `tools/mutants.txt` names it: does not depend on line numbers."""
        return f"{self.file} | {self.text} | {self.before} -> {self.after}"


# ------------------------------------------------------------------ where faults may go

_SWAPS = {
    "+": ("sign", "-"),
    "-": ("sign", "+"),
    "<": ("bound", "<="),
    "<=": ("bound", "<"),
    ">": ("bound", ">="),
    ">=": ("bound", ">"),
    "==": ("logic", "!="),
    "!=": ("logic", "=="),
    "+=": ("sign", "-="),
    "-=": ("sign", "+="),
    "and": ("logic", "or"),
    "or": ("logic", "and"),
    "&&": ("logic", "||"),
    "||": ("logic", "&&"),
}


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FLOAT = re.compile(r"-?(\d+\.\d*(e[+-]?\d+)?|\d*\.\d+(e[+-]?\d+)?|\d+e[+-]?\d+)f?")
_ASSIGNED = re.compile(r"^\s*(?:\w+ )*?([\w, ]+?)(?:: float)? = ([^#/\n]*)", re.M)


def _turned(fault: Fault, source: str) -> Fault:
    """A bound beside a floating-point number, or beside the name of one: the other way round."""
    if fault.kind != "bound":
        return fault
    floats = {
        name.strip()
        for names, values in _ASSIGNED.findall(source)
        for name, value in zip(names.split(","), values.split(","), strict=False)
        if _FLOAT.fullmatch(value.strip(" ;"))
    }
    sides = re.search(r"[\w.]*\s*$", source[: fault.begin]), re.match(r"\s*[-\w.]*", source[fault.end :])
    texts = [side[0].strip() for side in sides if side]
    is_float = any(_FLOAT.fullmatch(text) or text in floats for text in texts)
    return replace(fault, after=_TURNED[fault.before]) if is_float else fault


def _another_number(text: str, in_brackets: bool) -> tuple[str, str] | None:
    """Kind and text of the number that stands there instead."""
    if re.fullmatch(r"\d+[uUlL]*", text):
        digits = re.match(r"\d+", text)
        assert digits is not None
        return "index" if in_brackets else "constant", str(int(digits[0]) + 1) + text[digits.end() :]
    if re.fullmatch(r"\d*\.\d*(e[+-]?\d+)?[fF]?", text) and float(text.rstrip("fF")) != 0.0:
        return "constant", f"(1.5 * {text})"
    return None


def faults_of_python(file: str, source: str) -> Iterator[Fault]:
    """Of the functions of a module; default values, annotations, module constants too."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    skipped = _lines_without_effect(ast.parse(source))
    brackets: list[str] = []
    previous = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.OP and token.string in "([{":
            indexed = token.string == "[" and re.fullmatch(r"\w+|\)|\]", previous) is not None
            brackets.append("index" if indexed else token.string)
        elif token.type == tokenize.OP and token.string in ")]}":
            brackets.pop()
        change = None
        if token.type == tokenize.NUMBER:
            change = _another_number(token.string, bool(brackets) and brackets[-1] == "index")
        elif token.string in _SWAPS and (token.type == tokenize.OP or token.string in ("and", "or")):
            change = _SWAPS[token.string]
            if token.string == "-" and not re.fullmatch(r"[\w.]+|\)|\]", previous):
                change = "sign", " "
            elif token.string == "-" and previous in ("return", "in", "else", "if", "and", "or"):
                change = "sign", " "
        row, column = token.start
        if change is not None and row not in skipped:
            begin = starts[row - 1] + column
            text = source.splitlines()[row - 1].strip()
            end = begin + len(token.string)
            yield Fault(file, row, begin, end, change[0], token.string, change[1], text)
        if token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT):
            previous = token.string


def _lines_without_effect(tree: ast.AST) -> set[int]:
    """Lines of imports, of texts, and of what is raised: nobody computes with these."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        plain = isinstance(node, ast.Import | ast.ImportFrom | ast.Raise)
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if plain or text:
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
    return lines


_C_TOKEN = re.compile(
    r"(?P<skip>//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|^[ \t]*#[^\n]*(?:\\\n[^\n]*)*)"
    r"|(?P<number>\b(?:\d+\.\d*|\.\d+|\d+)(?:e[+-]?\d+)?[fFuUlL]*\b|\d+\.(?!\w))"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<op>\+\+|--|->|<<=?|>>=?|<=|>=|==|!=|&&|\|\||\+=|-=|\S)|(?P<space>\s+)",
    re.S | re.M,
)
_DECLARES = re.compile(
    r"\b(template|static_cast|vector|array|span|unique_ptr|shared_ptr|layout|using|throw|assert)\b"
)


def faults_of_c(file: str, source: str) -> Iterator[Fault]:
    """Of C++ and GLSL: lines with types in angle brackets keep their bounds."""
    lines = source.splitlines()
    brackets: list[str] = []
    previous = ""
    for match in _C_TOKEN.finditer(source):
        kind, text = match.lastgroup, match[0]
        if kind in ("skip", "space"):
            continue
        row = source.count("\n", 0, match.start())
        if text in ("[", "(", "{"):
            brackets.append(text)
        elif text in ("]", ")", "}") and brackets:
            brackets.pop()
        declares = _DECLARES.search(lines[row]) is not None
        change = None
        if kind == "number" and not re.search(r"\b(layout|binding|constant_id|case|version)\b", lines[row]):
            change = _another_number(text, bool(brackets) and brackets[-1] == "[")
        elif kind == "op" and text in _SWAPS and not ("<" in text + ">" and text in "<>" and declares):
            change = _SWAPS[text]
            if text == "-" and not re.fullmatch(r"[\w.]+|\)|\]", previous):
                change = "sign", " "
            elif text == "-" and previous in ("return", "case"):
                change = "sign", " "
            if text in "<>" and (
                declares or not re.search(r"\b(for|if|while|return|\?)|\?|&&|\|\|", lines[row])
            ):
                change = None
        if change is not None:
            yield Fault(
                file, row + 1, match.start(), match.end(), change[0], text, change[1], lines[row].strip()
            )
        previous = text


def all_faults(room: Room, root: Path) -> list[Fault]:
    """Every fault that the room's sources have room for."""
    found: list[Fault] = []
    for pattern in room.sources:
        for path in sorted(root.glob(pattern)):
            source, file = path.read_text(), str(path.relative_to(root))
            seen: Counter[str] = Counter()
            for fault in (faults_of_python if path.suffix == ".py" else faults_of_c)(file, source):
                fault = _turned(fault, source)
                found.append(replace(fault, nth=seen[fault.key]))
                seen[fault.key] += 1
    return found


# ------------------------------------------------------------------ what becomes of them


@dataclass
class Outcome:
    """What happened to a fault."""

    outcome: str
    test: str
    seconds: float


class Planter(Workshop):
    """A copy of the sources in which faults are planted."""

    def __init__(self, folder: Path, timeout: float, most: float):
        super().__init__(folder)
        self.timeout, self.most = timeout, most
        self.environment["PYTHONPATH"] += f":{folder / 'tools'}"

    def build(self, configure: bool = False) -> bool:
        """Bring the built modules and shaders up to date; False if the sources do not compile."""
        settings = {"CMAKE_INSTALL_PREFIX": str(self.folder)}
        steps = [configuration(Path("."), Path("build/dev"), settings)] if configure else []
        steps += [["cmake", "--build", "build/dev"], ["cmake", "--install", "build/dev"]]
        return all(self.run(words, 3600.0)[0] == 0 for words in steps)

    def test(self, tests: tuple[str, ...]) -> tuple[str, str]:
        """("passed", "caught", "refused"), and the test."""
        rooms = hashlib.sha256(" ".join(tests).encode()).hexdigest()[:16]
        self.environment[SECONDS] = str(self.folder / f"seconds-{rooms}.json")
        for kept in ("cache", ".hypothesis"):  # programs of other faults, and examples that these failed
            shutil.rmtree(self.folder / kept, ignore_errors=True)
        limits = ["--timeout", "240", "--timeout-method", "thread"]
        status, printed = self.run([*PYTEST, *PLUGIN, *limits, "-x", *tests], self.timeout)
        if status is None:
            return "caught", "it did not end"
        if status == 0:
            return "passed", ""
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", printed, re.M)
        refused = status > 1 or (failed is not None and "::" not in failed[1])  # below 0: it crashed
        return ("refused" if refused else "caught"), failed[1] if failed else printed.strip()[-200:]

    def plant(self, room: Room, faults: list[Fault]) -> Iterator[Outcome]:
        """Outcome of each fault: planted, tested, mended."""
        if room.kind != "native":
            plant = self._plant_in_forks if room.kind == "python" else self._plant_in_shaders
            yield from plant(room, faults)
            return
        if not self.build(configure=True):
            sys.exit("The sources do not compile without any fault.")
        outcome, test = self.test(room.tests)
        if outcome != "passed":
            sys.exit(f"The tests fail without any fault: {test}")
        for fault in faults:
            start = time.perf_counter()
            path = self.folder / fault.file
            source = path.read_text()
            path.write_text(source[: fault.begin] + fault.after + source[fault.end :])
            try:
                outcome, test = self.test(room.tests) if self.build() else ("refused", "")
            finally:
                path.write_text(source)
            outcome = "survived" if outcome == "passed" else outcome
            yield Outcome(outcome, test, time.perf_counter() - start)
        self.build()

    def _plant_in_shaders(self, room: Room, faults: list[Fault]) -> Iterator[Outcome]:
        """Each fault before the tests that ask for a kernel of its file; SPIR-V is kept by its text."""
        seconds, tests_of = self._tests_of_shaders(room)
        for fault in faults:
            start = time.perf_counter()
            tests, total = [], 0.0
            for test in sorted(tests_of[fault.file.removeprefix("shaders/")], key=seconds.__getitem__):
                total += seconds[test]
                tests += [test] * (not tests or total < self.most)
            path = self.folder / fault.file
            source = path.read_text()
            path.write_text(source[: fault.begin] + fault.after + source[fault.end :])
            try:
                words = [*PYTEST, *PLUGIN, "-x", *tests]
                status, printed = self.run(words, 60.0 + 5.0 * min(total, self.most)) if tests else (0, "")
            finally:
                path.write_text(source)
            failed = re.search(r"^(?:FAILED|ERROR) (\S+)", printed, re.M)
            if "ShaderError" in printed:
                outcome = "refused"
            else:
                outcome = "survived" if status == 0 else "caught"
            ending = "it did not end" if status is None else f"{len(tests)} tests"
            yield Outcome(outcome, failed[1] if failed else ending, time.perf_counter() - start)

    def _tests_of_shaders(self, room: Room) -> tuple[dict[str, float], dict[str, list[str]]]:
        """Seconds of each test, and the tests by shader; file by file, kept for the next run."""
        seconds: dict[str, float] = {}
        tests_of: dict[str, list[str]] = defaultdict(list)
        for path in (path for name in room.tests for path in sorted(self.folder.glob(name))):
            report = self.folder / f"shaders-{path.parent.name}-{path.stem}.json"
            if not report.exists() or report.stat().st_mtime < path.stat().st_mtime:
                self.environment[SHADERS] = str(report)
                words = [*PYTEST, *PLUGIN, str(path.relative_to(self.folder))]
                status, printed = self.run(words, 3600.0)
                del self.environment[SHADERS]
                if status is None or not report.exists():
                    sys.exit(f"{path} did not end without any fault: {printed[-2000:]}")
            known = json.loads(report.read_text())
            seconds |= known["seconds"]
            for file, tests in known["tests"].items():
                tests_of[file] += tests
        return seconds, tests_of

    def _plant_in_forks(self, room: Room, faults: list[Fault]) -> Iterator[Outcome]:
        results = self.folder / "outcomes.jsonl"
        settings = {
            "folder": str(self.folder),
            "faults": [*map(asdict, faults)],
            "results": str(results),
            "most": self.most,
        }
        given = self.folder / "faults.json"
        given.write_text(json.dumps(settings))
        results.write_text("")
        words = [*PYTEST, *PLUGIN, *room.tests]
        environment = {**self.environment, FORKS: str(given), "OPENBLAS_NUM_THREADS": "1"}
        with (
            open(self.folder / "forks.log", "w") as log,
            subprocess.Popen(words, cwd=self.folder, env=environment, stdout=log, stderr=log) as process,
        ):
            told = 0
            while told < len(faults):
                has_ended = process.poll() is not None
                for line in results.read_text().split("\n")[told:-1]:
                    yield Outcome(*json.loads(line))
                    told += 1
                if has_ended and told < len(faults):
                    printed = (self.folder / "forks.log").read_text()[-2000:]
                    sys.exit(f"{printed}\npytest ended before all faults were planted.")
                time.sleep(0.2)


def looked_at() -> dict[str, str]:
    """Key of a fault -> why nobody can tell; lines `key # reason`. `*` in a key stands for any text."""
    found = {}
    for line in LOOKED_AT.read_text().splitlines() if LOOKED_AT.exists() else []:
        key, _, reason = line.rpartition(" # ")
        if key:
            found[key] = reason
    return found


def run_room(name: str, arguments: argparse.Namespace, folder: Path) -> list[dict]:
    """Plant faults in one room and print what becomes of each."""
    room, known = ROOMS[name], looked_at()
    if arguments.tests:
        room = replace(room, tests=tuple(arguments.tests))
    workshop = Planter(folder, arguments.timeout, arguments.seconds)
    faults = all_faults(room, folder)
    if arguments.survivors:
        told = json.loads(arguments.survivors.read_text())
        keys = {(row["key"], row["nth"]) for row in told if row["outcome"] == "survived"}
        chosen = [fault for fault in faults if (fault.key, fault.nth) in keys]
    else:
        chosen = random.Random(arguments.seed).sample(faults, min(arguments.count, len(faults)))
    print(f"{name}: {len(chosen)} of {len(faults)} faults", flush=True)
    rows = []
    patterns = [re.compile(re.escape(key).replace(r"\*", ".*")) for key in known]
    for fault in [each for each in chosen if any(pattern.fullmatch(each.key) for pattern in patterns)]:
        chosen.remove(fault)
        rows.append(
            {"room": name, "key": fault.key, **asdict(fault), **asdict(Outcome("looked at", "", 0.0))}
        )
    for fault, found in zip(chosen, workshop.plant(room, chosen), strict=True):
        rows.append({"room": name, "key": fault.key, **asdict(fault), **asdict(found)})
        print(
            f"{found.outcome:9} {found.seconds:5.0f} s  {fault.file}:{fault.line}  {fault.kind}: "
            f"{fault.before} -> {fault.after}  in  {fault.text}  {found.test}",
            flush=True,
        )
    counts = Counter(row["outcome"] for row in rows)
    told = counts["caught"] + counts["survived"]
    share = f"{100.0 * counts['caught'] / told:.0f} % caught" if told else "none can be told"
    print(
        f"{name}: {share}; " + ", ".join(f"{number} {what}" for what, number in sorted(counts.items())),
        flush=True,
    )
    return rows


def main() -> int:
    """Run; the status is 1 where fewer than `--least` percent of a room's faults are caught."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("rooms", nargs="*", choices=[[], *ROOMS], help="default: all")
    parser.add_argument("--count", type=int, default=20, help="faults per room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--timeout", type=float, default=600.0, help="seconds that the tests of a room may take"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="that tests of one fault in Python may take"
    )
    parser.add_argument("--least", type=float, default=90.0, help="percent that are to be caught")
    parser.add_argument("--tests", nargs="+", help="in place of the room's")
    parser.add_argument("--survivors", type=Path, help="plant again what survived in this report")
    parser.add_argument("--folder", type=Path, help="copy of the sources, kept for the next run")
    parser.add_argument("--output", type=Path, help="report as JSON")
    parser.add_argument("--list", action="store_true", help="print how many faults each room has room for")
    arguments = parser.parse_args()
    rooms = arguments.rooms or list(ROOMS)
    if arguments.list:
        for name in rooms:
            kinds = Counter(fault.kind for fault in all_faults(ROOMS[name], ROOT))
            print(
                f"{name:10} {sum(kinds.values()):6}  " + ", ".join(f"{kind} {n}" for kind, n in kinds.items())
            )
        return 0
    rows: list[dict] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary) / "copy"
        for name in rooms:
            rows += run_room(name, arguments, folder.resolve())
            if arguments.output:
                arguments.output.write_text(json.dumps(rows, indent=1) + "\n")
    for name in rooms:
        told = [
            row["outcome"] for row in rows if row["room"] == name and row["outcome"] in ("caught", "survived")
        ]
        if told and 100.0 * told.count("caught") < arguments.least * len(told):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
