"""Programs as bytes: a header in JSON, the arrays, a checksum."""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np

from graphopt.codegen.program import Program

_MAGIC = b"graphopt program\n"
_ARRAYS = {
    "code": np.uint16,
    "constants": np.float64,
    "input_registers": np.int32,
    "output_registers": np.int32,
}


def serialize(program: Program) -> bytes:
    """Program as bytes."""
    arrays = {key: getattr(program, key) for key in _ARRAYS}
    header = json.dumps(
        {
            "name": program.name,
            "num_registers": program.num_registers,
            **{k: len(v) for k, v in arrays.items()},
        }
    ).encode()
    body = b"".join(np.ascontiguousarray(arrays[k], dtype=t).tobytes() for k, t in _ARRAYS.items())
    payload = struct.pack("<I", len(header)) + header + body
    return _MAGIC + struct.pack("<I", zlib.crc32(payload)) + payload


def deserialize(data: bytes) -> Program:
    """Inverse of `serialize`. Raises ValueError on anything else."""
    start = len(_MAGIC)
    if not data.startswith(_MAGIC) or len(data) < start + 8:
        raise ValueError("not a program")
    checksum, header_size = struct.unpack_from("<II", data, start)
    if zlib.crc32(data[start + 4 :]) != checksum:
        raise ValueError("the checksum does not match")
    at = start + 8 + header_size
    header = json.loads(data[start + 8 : at])
    arrays = {}
    for key, dtype in _ARRAYS.items():
        arrays[key] = np.frombuffer(data, dtype, header[key], at).copy()
        at += arrays[key].nbytes
    return Program(header["name"], num_registers=header["num_registers"], **arrays)
