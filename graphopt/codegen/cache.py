"""Compiled programs on disk, so that the second start does not compile.

A program is found by the hash of the traced definition (the expression graph of the residual and of oplus,
which is cheap to make), of its name, which holds the options, and of the compiler's own source. `disk_cache`
says where the folder is; a folder that cannot be written is not used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path

from graphopt import disk_cache
from graphopt.codegen.program import Program, build_program
from graphopt.codegen.serialize import deserialize, serialize
from graphopt.symbolic.expr import Expr, Roots


class Definition:
    """Expressions that, with its name and its inputs, determine a program."""

    def __init__(self, expressions: Sequence[Expr]):
        self._roots = Roots(expressions)

    @cached_property
    def text(self) -> str:
        """Every operation, arguments by their place in the text."""
        position = {e.id: k for k, e in enumerate(self._roots.nodes)}
        lines = [
            f"{e.op} {[position[a.id] for a in e.args] if e.args else repr(e.value)}"
            for e in self._roots.nodes
        ]
        return "\n".join([*lines, str([position[e.id] for e in self._roots])])


def cached(
    name: str, inputs: Sequence[Expr], definition: Definition, outputs: Callable[[], Sequence[Expr]]
) -> Program:
    """Program from the cache, or compiled from `outputs()` and put there."""
    if disk_cache.cache_directory() is None:  # its name would take the definition's text
        return build_program(name, inputs, outputs())
    entry = f"{_key(name, inputs, definition)}.program"
    if (stored := disk_cache.load(entry)) is not None:
        return deserialize(stored)
    program = build_program(name, inputs, outputs())
    disk_cache.store(entry, serialize(program))
    return program


def _key(name: str, inputs: Sequence[Expr], definition: Definition) -> str:
    digest = hashlib.sha256(compiler_hash())
    digest.update("\n".join([name, ",".join([e.value for e in inputs]), definition.text]).encode())
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
