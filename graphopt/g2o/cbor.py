"""The part of CBOR (RFC 8949) that g2o's binary files use: integers, doubles, strings, lists, maps.

head    three bits of major type, five bits of length; 24, 25, 26, 27: the length follows in 1, 2, 4, 8 bytes
"""

from __future__ import annotations

import struct
from typing import Any

from graphopt.errors import FormatError

_WIDTHS = {24: ">B", 25: ">H", 26: ">I", 27: ">Q"}
_FLOATS = {25: ">e", 26: ">f", 27: ">d"}


def dumps(value: Any) -> bytes:
    """Encode dictionaries, lists, strings, integers, floats and booleans."""
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _head(major: int, length: int) -> bytes:
    if length < 24:
        return bytes([major << 5 | length])
    for code, width in _WIDTHS.items():
        if length < 1 << 8 * struct.calcsize(width):
            return bytes([major << 5 | code]) + struct.pack(width, length)
    raise FormatError(f"{length} is too large for CBOR.")


def _write(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, bool):
        parts.append(b"\xf5" if value else b"\xf4")
    elif isinstance(value, int):
        parts.append(_head(0, value) if value >= 0 else _head(1, -1 - value))
    elif isinstance(value, float):
        parts.append(b"\xfb" + struct.pack(">d", value))
    elif isinstance(value, str):
        text = value.encode()
        parts.extend((_head(3, len(text)), text))
    elif isinstance(value, list):
        parts.append(_head(4, len(value)))
        for item in value:
            _write(item, parts)
    elif isinstance(value, dict):
        parts.append(_head(5, len(value)))
        for key, item in value.items():
            _write(key, parts)
            _write(item, parts)
    else:
        raise FormatError(f"CBOR: cannot write a {type(value).__name__}.")


def loads(data: bytes) -> Any:
    """Decode one value; `FormatError` if the bytes are not one."""
    try:
        value, end = _read(data, 0)
    except (IndexError, struct.error):
        raise FormatError(f"CBOR: the data ends in the middle of a value, at byte {len(data)}.") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"CBOR: a string is no UTF-8 ({error}).") from None
    except RecursionError:
        raise FormatError("CBOR: lists and maps are nested too deeply to be a graph.") from None
    if end != len(data):
        raise FormatError(f"CBOR: {len(data) - end} bytes follow the value.")
    return value


def _read(data: bytes, at: int) -> tuple[Any, int]:
    major, code = data[at] >> 5, data[at] & 31
    at += 1
    if major == 7:
        return _simple(data, at, code)
    if code < 24:
        length = code
    elif code in _WIDTHS:
        length, at = _unpack(_WIDTHS[code], data, at)
    else:
        raise FormatError(f"CBOR: length code {code} at byte {at - 1} is not supported.")
    if major == 0:
        return length, at
    if major == 1:
        return -1 - length, at
    if major == 3:
        if at + length > len(data):
            raise FormatError(f"CBOR: a string of {length} bytes at byte {at} goes past the end.")
        return data[at : at + length].decode(), at + length
    if major == 4:
        items = []
        for _ in range(length):
            item, at = _read(data, at)
            items.append(item)
        return items, at
    if major == 5:
        pairs = {}
        for _ in range(length):
            start = at
            key, at = _read(data, at)
            if not isinstance(key, str):
                raise FormatError(
                    f"CBOR: the key at byte {start} is a {type(key).__name__}, expected a string."
                )
            pairs[key], at = _read(data, at)
        return pairs, at
    raise FormatError(f"CBOR: major type {major} at byte {at - 1} is not supported.")


def _unpack(layout: str, data: bytes, at: int) -> tuple[Any, int]:
    size = struct.calcsize(layout)
    return struct.unpack_from(layout, data, at)[0], at + size


def _simple(data: bytes, at: int, code: int) -> tuple[Any, int]:
    if code in _FLOATS:
        return _unpack(_FLOATS[code], data, at)
    if code in (20, 21, 22):
        return (False, True, None)[code - 20], at
    raise FormatError(f"CBOR: simple value {code} at byte {at - 1} is not supported.")
