"""Compile all built-in types: `python -m graphopt.codegen.prebuild FILE`, run when the package is built.

Needs numpy, no native module. Compiled are oplus of every vertex type, chi2 and linearize of every edge type
with each variant of the information matrix, with and without robust kernel, errors and Jacobians of every
edge type, and the robust kernels. Edges of any number of vertices are compiled on first use.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from graphopt.codegen.builtin import encode_programs
from graphopt.codegen.edge import (
    INFORMATION_VARIANTS,
    compile_edge,
    compile_robust_kernel,
    compile_vertex,
)
from graphopt.codegen.program import Program
from graphopt.types import BUILTIN_TYPES, EdgeType, VertexType
from graphopt.types.robust_kernels import KERNELS


def builtin_programs() -> Iterator[Program]:
    """Every program of a built-in type that the package carries."""
    for kind in BUILTIN_TYPES:
        if isinstance(kind, VertexType):
            yield compile_vertex(kind)
        elif isinstance(kind, EdgeType):
            for variant in INFORMATION_VARIANTS:
                for robust in (None, KERNELS[1].function):
                    compiled = compile_edge(kind, variant, robust)
                    yield from (compiled.chi2, compiled.linearize)
            yield from (compiled.errors, compiled.jacobians)
    for function in dict.fromkeys(kernel.function for kernel in KERNELS):
        yield compile_robust_kernel(function)


def write_programs(path: Path) -> int:
    """Write all programs to a file, return their number."""
    programs: dict[str, Program] = {}
    for program in builtin_programs():
        if program.name in programs:
            raise ValueError(f"Two built-in types have a program called {program.name}.")
        programs[program.name] = program
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(encode_programs(programs))
    os.replace(temporary, path)
    return len(programs)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m graphopt.codegen.prebuild", description="Compile all built-in types."
    )
    parser.add_argument("file", type=Path, help="where the programs go")
    path = parser.parse_args().file
    os.environ["GRAPHOPT_CACHE"] = "off"  # a build leaves nothing in the user's folder
    print(f"{write_programs(path)} programs of built-in types, {path.stat().st_size} bytes: {path}")


if __name__ == "__main__":
    main()
