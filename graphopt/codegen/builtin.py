"""Programs of the built-in types, compiled when the package was built.

`python -m graphopt.codegen.prebuild FILE` writes them, the package carries them beside this module, and
`builtin_program` finds them by the identity of the type and the name of the program, without tracing. The
file starts with the hash of the sources that determine a program (geometry, symbolic, types, codegen). Where
they were edited afterwards, and in a source tree without the file, built-in types are compiled on first use
like a user's own.

    magic, 4-byte length of the index, index, programs one after the other (each compressed)

The index is text: the hash in hexadecimal, then a line `name first_byte number_of_bytes` per program, counted
from the end of the index. It is searched, not parsed: a process needs a few programs of hundreds.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from graphopt.codegen.program import Program
from graphopt.codegen.serialize import deserialize, serialize

BUILTIN_FILE = Path(__file__).resolve().with_name("builtin_programs.bin")
_MAGIC = b"graphopt built-in programs 2\n"
_FOLDERS = ("geometry", "symbolic", "types", "codegen")


def builtin_program(origin: Any, name: str) -> Program | None:
    """Program called `name` of a type or robust kernel function; None: it has to be compiled."""
    if id(origin) not in _origins():
        return None
    packed = carried_programs().find(name)
    return None if packed is None else deserialize(zlib.decompress(packed))


@cache
def sources_hash() -> str:
    """Hash of everything that determines the programs of built-in types."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # half the time that pathlib takes
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        path = os.path.join(package, folder)
        for name in sorted(file_name for file_name in os.listdir(path) if file_name.endswith(".py")):
            with open(os.path.join(path, name), "rb", buffering=0) as file:
                source = file.read()
            digest.update(f"{folder}/{name} {len(source)}\n".encode())
            digest.update(source)
    return digest.hexdigest()


def encode_programs(programs: Mapping[str, Program]) -> bytes:
    """Return the file's content for programs by name."""
    lines, body = [sources_hash()], bytearray()
    for name, program in programs.items():
        packed = zlib.compress(serialize(program), 9)
        lines.append(f"{name} {len(body)} {len(packed)}")
        body += packed
    index = "".join(f"{line}\n" for line in lines).encode()
    return _MAGIC + struct.pack("<I", len(index)) + index + bytes(body)


class CarriedPrograms:
    """The content of a file of programs; none where it is not one, or not of these sources."""

    def __init__(self, data: bytes):
        begin = len(_MAGIC) + 4
        self._data, self._index, self._body = data, begin, begin
        if not data.startswith(_MAGIC) or len(data) < begin:
            return
        (size,) = struct.unpack_from("<I", data, len(_MAGIC))
        if data.startswith(sources_hash().encode() + b"\n", begin):
            self._body = begin + size

    def names(self) -> list[str]:
        """Names of all programs."""
        lines = self._data[self._index : self._body].decode().splitlines()[1:]
        return [line.split()[0] for line in lines]

    def find(self, name: str) -> bytes | None:
        """The compressed program, None if there is none of this name."""
        at = self._data.find(f"\n{name} ".encode(), self._index, self._body)
        if at < 0:
            return None
        end = self._data.index(b"\n", at + 1)
        _, begin, size = self._data[at + 1 : end].split()
        first = self._body + int(begin)
        return self._data[first : first + int(size)]


@cache
def carried_programs() -> CarriedPrograms:
    """Those of the installed package, read once."""
    try:
        return CarriedPrograms(BUILTIN_FILE.read_bytes())
    except OSError:
        return CarriedPrograms(b"")


@cache
def _origins() -> dict[int, Any]:
    """Types and kernel functions of this package by `id`: a user's type may have the same name."""
    from graphopt.types import BUILTIN_TYPES
    from graphopt.types.robust_kernels import KERNELS

    return {id(x): x for x in (*BUILTIN_TYPES, *(kernel.function for kernel in KERNELS))}
