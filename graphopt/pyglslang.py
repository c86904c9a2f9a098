"""GLSL compute shaders to SPIR-V, in process.

    spirv = pyglslang.compile_file("shaders/row_product.comp", include=["shaders/include"], defines={"A":
    "1"})

Binds glslang, linked statically into `graphopt._glslang`; where the package was built without it,
`glslangValidator` on the PATH does the same in a subprocess. Target: Vulkan 1.2, SPIR-V 1.5.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphopt.errors import DeviceError


class ShaderError(DeviceError, ValueError):
    """A shader does not compile. The message holds one `file:line: error` per line."""


_LOG_LINE = re.compile(r"^(ERROR|WARNING): (.*?):(\d+): (.*)$")


def compile_file(
    path: str | Path, *, include: Sequence[str | Path] = (), defines: Mapping[str, str] | None = None
) -> bytes:
    """SPIR-V of the compute shader in a file; `ShaderError` with `file:line: message` if it is wrong."""
    path = Path(path)
    return compile_source(path.read_text(), name=str(path), include=include, defines=defines)


def compile_source(
    source: str,
    *,
    name: str = "shader",
    include: Sequence[str | Path] = (),
    defines: Mapping[str, str] | None = None,
) -> bytes:
    """SPIR-V of a compute shader given as text; `name` stands for it in messages."""
    folders = [str(folder) for folder in include]
    macros = {key: str(value) for key, value in (defines or {}).items()}
    native = _native()
    if native is not None:
        spirv, log = native.compile(source, name, folders, macros)
    else:
        spirv, log = _compile_in_subprocess(source, name, folders, macros)
    if not spirv:
        raise ShaderError(_readable(log, name))
    return spirv


def is_available() -> bool:
    """Whether this machine can compile shaders at all."""
    return _native() is not None or _validator() is not None


@functools.cache
def compiler_version() -> str:
    """Name and version of the compiler; part of every cache key."""
    native = _native()
    if native is not None:
        return f"glslang {native.version()}"
    validator = _validator()
    if validator is None:
        raise ShaderError(_NO_COMPILER)
    return subprocess.run([validator, "--version"], capture_output=True, text=True, check=True).stdout


_NO_COMPILER = (
    "No GLSL compiler: graphopt was built without glslang and glslangValidator is not on the PATH. "
    "On Debian and Ubuntu: apt-get install glslang-tools; or rebuild graphopt with glslang-dev installed."
)


@functools.cache
def _native():
    try:
        from graphopt import _glslang
    except ImportError:
        return None
    return _glslang


@functools.cache
def _validator() -> str | None:
    return shutil.which("glslangValidator")


def _compile_in_subprocess(
    source: str, name: str, folders: Sequence[str], defines: Mapping[str, str]
) -> tuple[bytes, str]:
    validator = _validator()
    if validator is None:
        raise ShaderError(_NO_COMPILER)
    with tempfile.TemporaryDirectory() as folder:
        copy, output = Path(folder, "source.comp"), Path(folder, "out.spv")
        copy.write_text(source)
        arguments = [validator, "--quiet", "--target-env", "vulkan1.2", "-o", str(output)]
        arguments += [f"-D{key}={value}" for key, value in defines.items()]
        beside = [str(Path(name).parent)] if "/" in name else []
        arguments += [f"-I{path}" for path in [*beside, *folders]]
        run = subprocess.run([*arguments, str(copy)], capture_output=True, text=True)
        log = run.stdout + run.stderr
        return (output.read_bytes() if run.returncode == 0 else b""), log.replace(str(copy), name)


def _readable(log: str, name: str) -> str:
    """`file:line: message` per error of a glslang log; the log itself where it has another form."""
    lines = []
    for line in log.splitlines():
        match = _LOG_LINE.match(line)
        if match is None or "compilation terminated" in line:
            continue
        kind, file, number, text = match.groups()
        lines.append(f"{file or name}:{number}: {kind.lower()}: {text.strip()}")
    return "\n".join(lines) if lines else f"{name}: {log.strip() or 'glslang gave no reason'}"
