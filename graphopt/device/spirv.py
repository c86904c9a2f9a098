"""SPIR-V of the shaders in `shaders/` and of generated kernels, per access variant and precision.

In a checkout (a `shaders` folder beside the package) they are compiled when needed and kept in the cache
folder, keyed by the hash of source, includes, macros and compiler version. An installed package carries them
ready- made in `graphopt/device/spirv`; so does a checkout on a machine without any GLSL compiler.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from graphopt import disk_cache, pyglslang
from graphopt.device.errors import ShaderError

_PACKAGE = Path(__file__).resolve().parents[1]
SHADERS = _PACKAGE.parent / "shaders"
SHIPPED = _PACKAGE / "device" / "spirv"
INCLUDE = _PACKAGE / "device" / "include"


@functools.cache
def load(name: str, access: str, precision: str) -> bytes:
    """SPIR-V of `shaders/<name>.comp`; access is "address" or "storage", precision "double" or "mixed"."""
    source = SHADERS / f"{name}.comp"
    if source.is_file() and pyglslang.is_available():
        return _compile_cached(source, access, precision)
    shipped = SHIPPED / f"{name}.{access}.{precision}.spv"
    if shipped.is_file():
        return shipped.read_bytes()
    raise ShaderError(
        f"Shader '{name}' ({access}, {precision}) is neither at {shipped} nor compilable from {source}. "
        "Reinstall graphopt on a machine with glslangValidator (Debian: apt-get install glslang-tools)."
    )


def compile_generated(name: str, source: str, access: str, precision: str) -> bytes:
    """SPIR-V of a kernel given as text, which includes files of `shaders/include`."""
    if not pyglslang.is_available():
        raise ShaderError(
            f"Kernel '{name}' is generated and needs a GLSL compiler, which graphopt was built without. "
            "Install glslangValidator (Debian: apt-get install glslang-tools), or use device='cpu'."
        )
    include, headers = _headers()
    return _cached(
        name,
        source.encode() + headers,
        _defines(access, precision),
        lambda defines: pyglslang.compile_source(source, name=name, include=[include], defines=defines),
    )


def _compile_cached(source: Path, access: str, precision: str) -> bytes:
    include, headers = _headers()
    return _cached(
        source.stem,
        source.read_bytes() + headers,
        _defines(access, precision),
        lambda defines: pyglslang.compile_file(source, include=[include], defines=defines),
    )


def _defines(access: str, precision: str) -> dict[str, str]:
    return {f"GRAPHOPT_{access.upper()}": "1", f"GRAPHOPT_{precision.upper()}": "1"}


def _cached(
    name: str, text: bytes, defines: dict[str, str], compile_with: Callable[[dict[str, str]], bytes]
) -> bytes:
    """SPIR-V from the cache, or compiled and put there; `text` is everything that it is made of."""
    digest = hashlib.sha256(repr((pyglslang.compiler_version(), sorted(defines))).encode())
    digest.update(text)
    stem = re.sub(r"[^A-Za-z0-9_.]", "_", name)[:80]
    entry = f"spirv/{stem}-{digest.hexdigest()[:32]}.spv"
    spirv = disk_cache.load(entry)
    if spirv is None:
        spirv = compile_with(defines)
        disk_cache.store(entry, spirv)
    return spirv


def _headers() -> tuple[Path, bytes]:
    """Folder of the included files, in a checkout or installed, and all of their text."""
    include = next((path for path in (SHADERS / "include", INCLUDE) if path.is_dir()), None)
    if include is None:
        raise ShaderError(f"The shader headers are neither at {SHADERS / 'include'} nor at {INCLUDE}.")
    with os.scandir(include) as entries:
        states = [(entry.path, entry.stat()) for entry in entries if entry.name.endswith(".glsl")]
    found = sorted((path, state.st_mtime_ns, state.st_size) for path, state in states)
    return include, _text_of(tuple(found))


@functools.lru_cache(8)
def _text_of(files: tuple[tuple[str, int, int], ...]) -> bytes:
    """Contents of files, (path, time of change, size): asked for with every kernel, read when they change."""
    return b"".join(Path(path).read_bytes() for path, _, _ in files)
