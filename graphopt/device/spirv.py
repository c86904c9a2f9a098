"""SPIR-V of the shaders in `shaders/`, per access variant and precision.

In a checkout (a `shaders` folder beside the package) they are compiled when needed and kept in the cache
folder, keyed by the hash of source, includes, macros and compiler version. An installed package carries them
ready- made in `graphopt/device/spirv`; so does a checkout on a machine without any GLSL compiler.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from graphopt import pyglslang
from graphopt.device.errors import ShaderError
from graphopt.disk_cache import cache_directory, write_atomically

_PACKAGE = Path(__file__).resolve().parents[1]
SHADERS = _PACKAGE.parent / "shaders"
SHIPPED = _PACKAGE / "device" / "spirv"


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


def _compile_cached(source: Path, access: str, precision: str) -> bytes:
    defines = {f"GRAPHOPT_{access.upper()}": "1", f"GRAPHOPT_{precision.upper()}": "1"}
    include = SHADERS / "include"
    digest = hashlib.sha256(repr((pyglslang.compiler_version(), sorted(defines))).encode())
    for path in [source, *sorted(include.glob("*.glsl"))]:
        digest.update(path.read_bytes())
    folder = cache_directory()
    cached = None if folder is None else folder / "spirv" / f"{source.stem}-{digest.hexdigest()[:32]}.spv"
    if cached is not None and cached.is_file():
        return cached.read_bytes()
    spirv = pyglslang.compile_file(source, include=[include], defines=defines)
    if cached is not None:
        write_atomically(cached, spirv)
    return spirv
