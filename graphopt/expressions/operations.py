"""Numbers of the operations in `native/src/batch/expression.h` (a test compares them)."""

from __future__ import annotations

OPERATIONS = (
    "CONST",
    "DATA",
    "PARAMETER",
    "ADD",
    "SUB",
    "MUL",
    "DIV",
    "POW",
    "ATAN2",
    "MIN",
    "MAX",
    "LT",
    "LE",
    "EQ",
    "AND",
    "OR",
    "NEG",
    "ABS",
    "SIGN",
    "FLOOR",
    "NOT",
    "SQRT",
    "EXP",
    "LOG",
    "SIN",
    "COS",
    "TAN",
    "ASIN",
    "ACOS",
    "ATAN",
    "SELECT",
)

NUMBER = {name: number for number, name in enumerate(OPERATIONS)}
