"""The C library of this checkout: built and installed without Python, loaded by ctypes."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_int64, c_void_p
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "cpp"
METHODS = ("lm", "gn", "dogleg")


def run(*command: object, **options) -> str:
    """Output of a command that has to succeed."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=900, **options
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def install(folder: Path, *settings: str) -> Path:
    """Folder with the installed library and the examples; processes that share `folder` build it once.

    `settings` (-DNAME=VALUE) are CMake's, for both.
    """
    ready = os.environ.get("GRAPHOPT_C_LIBRARY")  # a folder that was built before, to save time by hand
    prefix = Path(ready) if ready else folder / "c_library"
    with open(folder / "c_library.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (prefix / "built").exists():
            launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
            launcher += settings
            if not ready:
                work = prefix / "work"
                run("cmake", "-S", ROOT / "native", "-B", work, "-DGRAPHOPT_WERROR=ON", *launcher)
                run("cmake", "--build", work, "--parallel", "2")
                run("cmake", "--install", work, "--prefix", prefix)
            built = prefix / "examples"
            run("cmake", "-S", EXAMPLES, "-B", built, f"-DCMAKE_PREFIX_PATH={prefix}", *launcher)
            run("cmake", "--build", built)
            if not ready:
                (prefix / "built").touch()
    return prefix


class Iteration(Structure):
    """graphopt_iteration."""

    _fields_ = [
        ("number", c_int), ("num_trials", c_int), ("chi2", c_double), ("lambda_", c_double),
        ("seconds", c_double),
    ]  # fmt: skip


Callback = ctypes.CFUNCTYPE(c_int, POINTER(Iteration), c_void_p)


class Options(Structure):
    """graphopt_options."""

    _fields_ = [
        ("method", c_int), ("max_num_iterations", c_int), ("function_tolerance", c_double),
        ("gradient_tolerance", c_double), ("step_tolerance", c_double), ("initial_lambda", c_double),
        ("time_limit", c_double), ("linear_solver", c_int), ("schur", c_int), ("fix", c_int),
        ("level", c_int), ("device", c_char_p), ("validation", c_int), ("callback", Callback),
        ("callback_data", c_void_p),
    ]  # fmt: skip


class Summary(Structure):
    """graphopt_summary."""

    _fields_ = [
        ("termination", c_int), ("num_iterations", c_int), ("initial_chi2", c_double),
        ("final_chi2", c_double), ("seconds", c_double), ("seconds_evaluating", c_double),
        ("seconds_solving", c_double), ("linear_solver", c_int),
        ("schur", c_int), ("num_held_vertices", c_int), ("device", ctypes.c_char * 256),
        ("held_vertex", c_int64),
    ]  # fmt: skip


def load(prefix: Path) -> ctypes.CDLL:
    """The installed library."""
    (path,) = prefix.glob("lib*/**/libgraphopt.so")
    library = ctypes.CDLL(str(path))
    library.graphopt_last_error.restype = c_char_p
    library.graphopt_version.restype = c_char_p
    return library


class Handle:
    """A graph of the library."""

    def __init__(self, library: ctypes.CDLL, types: Path | None = None):
        self.library, self.pointer = library, c_void_p()
        name = None if types is None else str(types).encode()
        self.status = library.graphopt_graph_new(name, byref(self.pointer))

    def call(self, name: str, *arguments) -> int:
        """Status of graphopt_<name>(graph, ...): int is int, float is double."""
        converted = [_converted(argument) for argument in arguments]
        return getattr(self.library, f"graphopt_{name}")(self.pointer, *converted)

    def done(self, name: str, *arguments) -> None:
        """Call what has to succeed."""
        assert self.call(name, *arguments) == 0, f"{name}: {self.error()}"

    def chi2(self, level: int = 0) -> float:
        """Of a level."""
        value = c_double()
        self.done("chi2", level, byref(value))
        return value.value

    def optimize(self, method: str = "lm", **options) -> tuple[Summary, list[float]]:
        """Summary, and chi2 after each iteration. Options as graphopt_options; without tolerances."""
        chosen, summary, chi2 = self.options(method=METHODS.index(method), **options), Summary(), []
        if "callback" not in options:
            chosen.callback = Callback(lambda done, data: chi2.append(done[0].chi2) or 0)
        self.done("optimize", byref(chosen), byref(summary))
        return summary, chi2

    def fails_to_optimize(self, **options) -> int:
        """The status."""
        return self.call("optimize", byref(self.options(**options)), None)

    def options(self, **options) -> Options:
        """Defaults without tolerances, and what is given."""
        chosen = Options()
        self.library.graphopt_default_options(byref(chosen))
        chosen.function_tolerance = chosen.step_tolerance = 0.0
        for name, value in options.items():
            setattr(chosen, name, value)
        return chosen

    def error(self) -> str:
        """The last sentence."""
        return self.library.graphopt_last_error().decode()

    def __del__(self):
        self.library.graphopt_graph_free(self.pointer)


def _converted(argument):
    if isinstance(argument, np.ndarray):
        return argument.ctypes.data_as(c_void_p)
    if isinstance(argument, float):
        return c_double(argument)
    return str(argument).encode() if isinstance(argument, str | Path) else argument
