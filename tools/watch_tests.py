"""Run tests with native code that sanitizers watch.

    python tools/watch_tests.py address [ROOM ...]   AddressSanitizer, UndefinedBehaviorSanitizer, assertions
                                                     of the C++ library and of Eigen
    python tools/watch_tests.py thread [ROOM ...]    ThreadSanitizer

The modules, for addresses the C library too, are built for this processor into build/watch-KIND; a copy of
the package there takes them. Each room of the kind's table runs in a process of its own. The status is 1
where a test fails or anything is found: the reports are printed at the end. tools/thread_sanitizer.txt names
what is not ours.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from workshop import ROOT, Workshop, configuration, native_isa


@dataclass(frozen=True)
class Kind:
    """How tests are watched."""

    flags: str
    """Of the compiler. Without -DNDEBUG, so that assertions hold."""
    modules: tuple[str, ...]
    """Those that are watched, beside the one of this processor."""
    preloaded: tuple[str, ...]
    """Libraries that a process needs from its start, which Python was not linked with."""
    environment: dict[str, str]
    """`{reports}` is the beginning of the names of files that reports go to."""
    rooms: tuple[str, ...]
    has_c_library: bool = False
    """Rooms test the C library as well."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Tests that cannot run so, and why."""


_NO_LIMIT = "a sanitizer reserves terabytes of addresses, which the limit that the test sets does not allow"
_LIMITED = {
    "tests/native/test_waits.py::test_threads_that_the_system_refuses": _NO_LIMIT,
    "tests/native/test_waits.py::test_memory_that_the_system_refuses": _NO_LIMIT,
}
_KEPT = {
    "tests/graph/test_foreign_arrays.py::test_round_trips_leave_memory_constant": "a sanitizer keeps what is "
    "freed for a while, and the test measures memory"
}
KINDS = {
    "address": Kind(
        "-D_GLIBCXX_ASSERTIONS -fsanitize=address,undefined -fno-sanitize-recover=all",
        ("_native", "_vulkan"),
        ("libasan.so", "libubsan.so", "libstdc++.so"),
        {
            # Python keeps memory until it ends; tests/faults counts what graphopt leaves behind
            "ASAN_OPTIONS": "detect_leaks=0:log_path={reports}",
            "UBSAN_OPTIONS": "print_stacktrace=1:log_path={reports}",
            "PYTHONMALLOC": "malloc",
        },
        (
            "tests/native", "tests/linear", "tests/online", "tests/batch", "tests/expressions", "tests/io",
            "tests/graph", "tests/optimizer",
        ),
        has_c_library=True,
        left_out={**_LIMITED, **_KEPT},
    ),
    "thread": Kind(
        "-fsanitize=thread",
        (),
        ("libtsan.so", "libstdc++.so"),
        {
            "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:exitcode=0:log_path={reports}"
            f":suppressions={ROOT}/tools/thread_sanitizer.txt",
            "OPENBLAS_NUM_THREADS": "1",
        },
        (
            "tests/native/test_thread_pool.py", "tests/native/test_waits.py", "tests/linear/test_threads.py",
            "tests/linear/test_teams.py", "tests/linear/test_linear_schur.py", "tests/batch", "tests/online",
        ),
        left_out=_LIMITED,
    ),
}  # fmt: skip
HARMLESS = "ASan doesn't fully support makecontext/swapcontext functions"  # printed once, where fibers run


def build(kind: Kind, folder: Path) -> Workshop:
    """Bring the watched modules and C library up to date, and the copy that takes them."""
    settings = {
        "CMAKE_BUILD_TYPE": "Watched",
        "CMAKE_CXX_FLAGS": f"-g1 -fno-omit-frame-pointer {kind.flags}",
        "GRAPHOPT_OPTIMIZATION": "-O1",
    }
    native, modules = folder / "native", [*kind.modules, f"_cpu_{native_isa()}"]
    subprocess.run(configuration(ROOT, native, settings), check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", native, "--target", *modules], check=True)
    workshop = Workshop(folder / "copy")
    for module in modules:
        (path,) = native.glob(f"{module}.*so")
        shutil.copyfile(path, workshop.folder / "graphopt" / path.name)
    if not kind.has_c_library:
        return workshop
    library = folder / "c_library"
    (library / "built").unlink(missing_ok=True)  # it brings itself up to date
    script = "import c_library, pathlib, sys; c_library.install(pathlib.Path(sys.argv[1]), *sys.argv[2:])"
    subprocess.run(
        [sys.executable, "-c", script, folder, *(f"-D{name}={value}" for name, value in settings.items())],
        env={**workshop.environment, "PYTHONPATH": str(ROOT / "tests/helpers")}, check=True,
    )  # fmt: skip
    workshop.environment["GRAPHOPT_C_LIBRARY"] = str(library)
    return workshop


def run_rooms(kind: Kind, workshop: Workshop, rooms: list[str], reports: Path) -> bool:
    """Run rooms one after the other; whether nothing failed and nothing was found."""
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    compiler = os.environ.get("CXX", "c++")
    libraries = [
        subprocess.check_output([compiler, f"-print-file-name={library}"], text=True).strip()
        for library in kind.preloaded
    ]
    watching = {name: value.format(reports=reports / "report") for name, value in kind.environment.items()}
    environment = {**workshop.environment, **watching, "LD_PRELOAD": " ".join(libraries)}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not nightly"]
    words.append("--capture=sys")  # what ends the process is printed
    words += [f"--deselect={test}" for test in kind.left_out]
    failed = []
    for room in rooms:
        done = subprocess.run([*words, room], cwd=workshop.folder, env=environment)
        failed += [room] * (done.returncode != 0)
    found = {path.name: path.read_text(errors="replace") for path in sorted(reports.iterdir())}
    found = {name: text for name, text in found.items() if HARMLESS not in text or len(text.splitlines()) > 1}
    for name, text in found.items():
        print(f"\n{name}:\n{text}")
    print(f"{len(found)} reports; rooms that failed: {', '.join(failed) or 'none'}")
    return not found and not failed


def main() -> int:
    """Run; the status is 1 where anything is found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("rooms", nargs="*", help="files or folders of tests (default: those of the kind)")
    arguments = parser.parse_args()
    kind, folder = KINDS[arguments.kind], ROOT / "build" / f"watch-{arguments.kind}"
    workshop = build(kind, folder)
    return 0 if run_rooms(kind, workshop, arguments.rooms or list(kind.rooms), folder / "reports") else 1


if __name__ == "__main__":
    sys.exit(main())
