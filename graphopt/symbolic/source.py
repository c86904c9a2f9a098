"""Where in the user's code an expression is being used, for error messages."""

from __future__ import annotations

import linecache
import os
import sys

import numpy as np

_SKIPPED = (os.path.dirname(os.path.abspath(__file__)) + os.sep, os.path.dirname(np.__file__) + os.sep)


def user_line() -> str:
    """`file:line: text` of the innermost frame outside numpy and this package's symbolic layer."""
    frame = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(_SKIPPED) and not filename.startswith("<frozen"):
            text = linecache.getline(filename, frame.f_lineno).strip()
            where = f"{filename}:{frame.f_lineno}"
            return f"{where}: {text}" if text else where
        frame = frame.f_back
    return "unknown location"
