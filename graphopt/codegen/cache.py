"""Compiled programs on disk, so that the second start does not compile.

A program is found by the hash of the traced definition (the expression graph of the residual and of oplus,
which is cheap to make), of its name, which holds the options, and of the compiler's own source. A file that
cannot be read is compiled anew and overwritten; a folder that cannot be written is not used. `disk_cache`
says where the folder is.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from graphopt.codegen.program import Program, build_program
from graphopt.codegen.serialize import deserialize, serialize
from graphopt.disk_cache import cache_directory, write_atomically
from graphopt.symbolic.expr import Expr, topological


def cached(
    name: str, inputs: Sequence[Expr], definition: Sequence[Expr], outputs: Callable[[], Sequence[Expr]]
) -> Program:
    """Program from the cache, or compiled from `outputs()` and put there.

    `definition` are the expressions that, with `name`, determine `outputs`.
    """
    folder = cache_directory()
    if folder is None:
        return build_program(name, inputs, outputs())
    path = folder / f"{_key(name, inputs, definition)}.program"
    program = _read(path, name)
    if program is None:
        program = build_program(name, inputs, outputs())
        _write(path, program)
    return program


def _key(name: str, inputs: Sequence[Expr], definition: Sequence[Expr]) -> str:
    nodes = topological(list(definition))
    position = {e.id: k for k, e in enumerate(nodes)}
    lines = [name, ",".join([e.value for e in inputs])]
    lines += [f"{e.op} {[position[a.id] for a in e.args] if e.args else repr(e.value)}" for e in nodes]
    lines.append(str([position[e.id] for e in definition]))
    digest = hashlib.sha256(compiler_hash())
    digest.update("\n".join(lines).encode())
    return digest.hexdigest()[:40]


@cache
def compiler_hash() -> bytes:
    """Hash of the source of the symbolic layer and of the code generator."""
    here = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    for folder in (here, here.parent / "symbolic"):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.digest()


def _read(path: Path, name: str) -> Program | None:
    try:
        program = deserialize(path.read_bytes())
    except (OSError, ValueError, KeyError):
        return None
    return program if program.name == name else None


def _write(path: Path, program: Program) -> None:
    # a read-only or full home directory: the program is only not remembered
    with contextlib.suppress(OSError):
        write_atomically(path, serialize(program))
