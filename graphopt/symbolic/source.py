"""Where in the user's code an expression is being used, for error messages."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from typing import Any

import numpy as np

_HERE = os.path.dirname(os.path.abspath(__file__))
_SKIPPED = (
    _HERE + os.sep,
    os.path.join(os.path.dirname(_HERE), "geometry") + os.sep,
    os.path.dirname(np.__file__) + os.sep,
    "<frozen",
)


def user_line() -> str:
    """`file:line: text` of the innermost frame outside numpy, the symbolic layer and the groups."""
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_SKIPPED):
            return _line(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return "unknown location"


def raising_line(error: BaseException) -> str:
    """The same for the place where an error was raised."""
    found = "unknown location"
    step = error.__traceback__
    while step is not None:
        if not step.tb_frame.f_code.co_filename.startswith(_SKIPPED):
            found = _line(step.tb_frame.f_code.co_filename, step.tb_lineno)
        step = step.tb_next
    return found


def defining_line(function: Any) -> str:
    """`file:line: text` of a function's definition."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return _line(code.co_filename, code.co_firstlineno) if code is not None else repr(function)


def _line(filename: str, number: int) -> str:
    text = linecache.getline(filename, number).strip()
    return f"{filename}:{number}: {text}" if text else f"{filename}:{number}"
