"""Programs of the built-in types, compiled when the package was built.

`python -m graphopt.codegen.prebuild FILE` writes them, the package carries them beside this module, and
`builtin_program` finds them by the identity of the type and the name of the program, without tracing. The
file starts with the hash of the sources that determine a program (geometry, symbolic, types, codegen). Where
they were edited afterwards, and in a source tree without the file, built-in types are compiled on first use
like a user's own.

    magic, 4-byte length of the index, index in JSON, programs one after the other (each compressed)

The index holds `sources`, the hash in hexadecimal, and `programs`: name -> [first byte, number of bytes],
counted from the end of the index.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from graphopt.codegen.program import Program
from graphopt.codegen.serialize import deserialize, serialize

BUILTIN_FILE = Path(__file__).resolve().with_name("builtin_programs.bin")
_MAGIC = b"graphopt built-in programs 1\n"
_FOLDERS = ("geometry", "symbolic", "types", "codegen")


def builtin_program(origin: Any, name: str) -> Program | None:
    """Program called `name` of a type or robust kernel function; None: it has to be compiled."""
    if id(origin) not in _origins():
        return None
    place = _programs().get(name)
    if place is None:
        return None
    data, begin, size = place
    return deserialize(zlib.decompress(data[begin : begin + size]))


@cache
def sources_hash() -> str:
    """Hash of everything that determines the programs of built-in types."""
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((package / folder).glob("*.py")):
            source = path.read_bytes()
            digest.update(f"{folder}/{path.name} {len(source)}\n".encode())
            digest.update(source)
    return digest.hexdigest()


def encode_programs(programs: Mapping[str, Program]) -> bytes:
    """Return the file's content for programs by name."""
    places, body = {}, bytearray()
    for name, program in programs.items():
        packed = zlib.compress(serialize(program), 9)
        places[name] = [len(body), len(packed)]
        body += packed
    index = json.dumps({"sources": sources_hash(), "programs": places}).encode()
    return _MAGIC + struct.pack("<I", len(index)) + index + bytes(body)


def read_programs(path: Path) -> dict[str, tuple[bytes, int, int]]:
    """Name -> (file content, first byte, number of bytes); empty where the file is not of these sources."""
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    start = len(_MAGIC) + 4
    if not data.startswith(_MAGIC) or len(data) < start:
        return {}
    (size,) = struct.unpack_from("<I", data, len(_MAGIC))
    try:
        index = json.loads(data[start : start + size])
    except ValueError:
        return {}
    if index["sources"] != sources_hash():
        return {}
    return {name: (data, start + size + begin, n) for name, (begin, n) in index["programs"].items()}


@cache
def _programs() -> dict[str, tuple[bytes, int, int]]:
    return read_programs(BUILTIN_FILE)


@cache
def _origins() -> dict[int, Any]:
    """Types and kernel functions of this package by `id`: a user's type may have the same name."""
    from graphopt.types import BUILTIN_TYPES
    from graphopt.types.robust_kernels import KERNELS

    return {id(x): x for x in (*BUILTIN_TYPES, *(kernel.function for kernel in KERNELS))}
