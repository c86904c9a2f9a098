"""Programs as bytes: a header in JSON, then the arrays."""

from __future__ import annotations

import json
import struct

import numpy as np

from graphopt.codegen.program import Program

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
    return struct.pack("<I", len(header)) + header + body


def deserialize(data: bytes) -> Program:
    """Inverse of `serialize`; who keeps the bytes checks that they are whole."""
    at = 4 + struct.unpack_from("<I", data)[0]
    header = json.loads(data[4:at])
    arrays = {}
    for key, dtype in _ARRAYS.items():
        arrays[key] = np.frombuffer(data, dtype, header[key], at).copy()
        at += arrays[key].nbytes
    return Program(header["name"], num_registers=header["num_registers"], **arrays)
