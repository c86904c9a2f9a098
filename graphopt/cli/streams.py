"""Standard streams that take whatever a command prints, and `-` for them on the command line."""

from __future__ import annotations

import codecs
import os
import sys

INPUT, OUTPUT = "/dev/stdin", "/dev/stdout"
_PLAIN = {"─": "-", "━": "-", "│": "|", "\u202f": " ", "\u00a0": " ", "µ": "u", "×": "x", "…": "..."}
"""What is written for characters that an encoding lacks; for others a question mark."""


def prepare() -> None:
    """Let closed streams swallow what is written, and open ones write every text somehow."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
        elif stream is getattr(sys, f"__{name}__") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="graphopt")


def _written_somehow(error: UnicodeError) -> tuple[bytes, int]:
    """Plain characters; bytes of a file's name that are no text as they are."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return b"".join(map(_bytes_of, error.object[error.start : error.end])), error.end


def _bytes_of(letter: str) -> bytes:
    if "\udc80" <= letter <= "\udcff":
        return bytes([ord(letter) - 0xDC00])
    return _PLAIN.get(letter, "?").encode()


codecs.register_error("graphopt", _written_somehow)


def input_file(text: str) -> str:
    """Name of a file to read; `-` is standard input."""
    return INPUT if text == "-" else text


def output_file(text: str) -> str:
    """Name of a file to write; `-` is standard output."""
    return OUTPUT if text == "-" else text
