"""Straight-line functions as GLSL statements.

Values have one of three types: `wide` (estimates, residuals, chi2), `real` (Jacobians, H, b) and `bool`. In
the arithmetic "double" both numbers are float64; in "mixed" wide is float64 and real float32; in "two_float",
for devices without float64, wide is a float32 pair (shaders/include/two_float.glsl) and operations on it are
function calls. The functions math_* are in shaders/include/generated_math.glsl, sample_* in sampling.glsl;
robust(chi2, width, rho, weight) is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from graphopt.codegen.assignment import Assignment, Source, Statement

Arithmetic = Literal["double", "mixed", "two_float"]
ARITHMETICS: tuple[Arithmetic, ...] = ("double", "mixed", "two_float")
WRAP_AT = 114
"""Characters per line, before it is indented."""

_INFIX = {
    "ADD": "{0} + {1}",
    "SUB": "{0} - {1}",
    "MUL": "{0} * {1}",
    "NEG": "-{0}",
    "FMA": "{0} * {1} + {2}",
    "FMS": "{0} * {1} - {2}",
    "FNMA": "{2} - {0} * {1}",
    "DOT2": "{0} * {1} + {2} * {3}",
    "DOT3": "{0} * {1} + {2} * {3} + {4} * {5}",
    "SQRT": "sqrt({0})",
    "ABS": "abs({0})",
    "FLOOR": "floor({0})",
}
_FUNCTIONS = {
    **{name: f"math_{name.lower()}" for name in ("SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN", "ATAN2")},
    **{name: f"math_{name.lower()}" for name in ("EXP", "LOG", "POW", "SIGN", "MIN", "MAX")},
}
_SAMPLES = {"SAMPLE": "sample_bilinear", "SAMPLE_CUBIC": "sample_bicubic"}
_COMPARISONS = {"LT": "<", "LE": "<=", "EQ": "=="}
_LOGIC = {"AND": "{0} && {1}", "OR": "{0} || {1}", "NOT": "!{0}"}
_SMALLEST_FLOAT = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Text:
    """GLSL of an assignment."""

    lines: list[str]
    outputs: dict[str, str]
    """Output -> expression of its value, converted to the asked type."""


def write(
    assignment: Assignment,
    inputs: Mapping[str, str],
    arithmetic: Arithmetic,
    wide: Iterable[str] = (),
    output_types: Mapping[str, str] | None = None,
) -> Text:
    """Write the statements of an assignment.

    inputs: name -> type, "wide" or "real", of the variables that hold the inputs. wide: values to be computed
    in `wide`, all others are `real`. output_types: output -> "wide" or "real" (the default).
    """
    writer = _Writer(inputs, arithmetic, set(wide))
    for statement in assignment.statements:
        writer.statement(statement)
    types = output_types or {}
    outputs = {k: writer.source(v, types.get(k, "real")) for k, v in assignment.outputs.items()}
    return Text(writer.lines, outputs)


class _Writer:
    def __init__(self, inputs: Mapping[str, str], arithmetic: Arithmetic, wide: set[str]):
        self.types = dict(inputs)
        self.arithmetic = arithmetic
        self.wide = wide
        self.lines: list[str] = []
        self.converted: set[str] = set()

    # ---------------------------------------------------------------- values

    def source(self, source: Source, requested: str) -> str:
        """Return an expression of this type; a wide value is rounded once, under a name of its own."""
        if not isinstance(source, str):
            return self._constant(source, requested)
        kind = self.types[source]
        if kind == requested or (self.arithmetic == "double" and "bool" not in (kind, requested)):
            return source
        if requested == "bool":
            return self._nonzero(source)
        if kind == "bool":
            return f"({source} ? {self._constant(1.0, requested)} : {self._constant(0.0, requested)})"
        if requested == "wide":
            return f"to_wide({source})"
        if source not in self.converted:
            self.converted.add(source)
            self.lines.append(f"const real {source}_n = to_real({source});")
        return f"{source}_n"

    def _nonzero(self, source: str) -> str:
        zero = self._constant(0.0, self.types[source])
        if self.types[source] == "wide" and self.arithmetic == "two_float":
            return f"(!wide_eq({source}, {zero}))"
        return f"({source} != {zero})"

    def _constant(self, value: float, requested: str) -> str:
        if requested == "bool":
            return "true" if value != 0.0 else "false"
        if requested == "wide" and self.arithmetic == "two_float":
            high = np.float32(value)
            low = np.float32(value - float(high)) if np.isfinite(high) else np.float32(0.0)
            return f"wide({_float(float(high))}, {_float(float(low))})"
        if requested == "wide" or self.arithmetic == "double":
            return _double(value)
        return _float(value)

    # ---------------------------------------------------------------- statements

    def statement(self, statement: Statement) -> None:
        """Append the text of a statement."""
        name = statement.operation
        if name in _COMPARISONS or name in _LOGIC:
            self._truth(statement)
            return
        target = statement.targets[0]
        kind = "wide" if not self.wide.isdisjoint(statement.targets) else "real"
        for t in statement.targets:
            self.types[t] = kind
        if name == "SINCOS" or name == "ROBUST":
            function = "math_sincos" if name == "SINCOS" else "robust"
            arguments = [self.source(s, kind) for s in statement.sources]
            self.lines.append(f"{kind} {', '.join(statement.targets)};")
            self.lines.append(f"{function}({', '.join([*arguments, *statement.targets])});")
            return
        if name in _SAMPLES:
            arguments = [self.source(s, kind) for s in statement.sources]
            self.lines += _wrapped(f"{kind} {', '.join(statement.targets)};")
            self.lines += _wrapped(f"{_SAMPLES[name]}({', '.join([*arguments, *statement.targets])});")
            return
        self._define(kind, target, self._expression(statement, kind))

    def _truth(self, statement: Statement) -> None:
        name, target = statement.operation, statement.targets[0]
        self.types[target] = "bool"
        if name in _LOGIC:
            text = _LOGIC[name].format(*(self.source(s, "bool") for s in statement.sources))
        else:
            kinds = {self.types[s] for s in statement.names()}
            kind = "wide" if "wide" in kinds or target in self.wide else "real"
            x, y = (self.source(s, kind) for s in statement.sources)
            if kind == "wide" and self.arithmetic == "two_float":
                text = f"wide_{name.lower()}({x}, {y})"
            else:
                text = f"{x} {_COMPARISONS[name]} {y}"
        self._define("bool", target, text)

    def _expression(self, statement: Statement, kind: str) -> str:
        name = statement.operation
        if name == "SELECT":
            condition = self.source(statement.sources[0], "bool")
            x, y = (self.source(s, kind) for s in statement.sources[1:])
            return f"{condition} ? {x} : {y}"
        sources = [self.source(s, kind) for s in statement.sources]
        if name in _FUNCTIONS:
            return f"{_FUNCTIONS[name]}({', '.join(sources)})"
        if kind == "wide" and self.arithmetic == "two_float":
            return _pair_expression(statement, sources)
        if name == "RECIP":
            return f"{self._constant(1.0, kind)} / {sources[0]}"
        if name == "SUM":
            return _sum(statement, sources)
        return _INFIX[name].format(*sources)

    def _define(self, kind: str, target: str, text: str) -> None:
        self.lines += _wrapped(f"const {kind} {target} = {text};")


def _wrapped(line: str) -> list[str]:
    """Lines of a long line, broken at spaces; all but the first are indented."""
    lines = []
    while len(line) > WRAP_AT:
        space = line.rfind(" ", 5, WRAP_AT + 1)
        if space < 0:  # a word of more than a line
            space = line.find(" ", WRAP_AT)
        if space < 0:
            break
        lines.append(line[:space])
        line = f"    {line[space + 1 :]}"
    return [*lines, line]


def _split_sum(
    statement: Statement, sources: list[str]
) -> tuple[list[tuple[int, str, str]], list[tuple[int, str]]]:
    """Signed products and signed terms of a SUM."""
    assert statement.counts is not None
    num_pos, num_neg, num_plus, num_minus = statement.counts
    signs = [1] * num_pos + [-1] * num_neg
    count = 2 * len(signs)
    products = list(zip(signs, sources[0:count:2], sources[1:count:2], strict=True))
    terms = list(zip([1] * num_plus + [-1] * num_minus, sources[count:], strict=True))
    return products, terms


def _sum(statement: Statement, sources: list[str]) -> str:
    """Products in order, then terms; the first of the added terms starts the sum."""
    products, terms = _split_sum(statement, sources)
    parts = [(sign, f"{a} * {b}") for sign, a, b in products]
    parts = [*terms[:1], *parts, *terms[1:]] if terms and terms[0][0] > 0 else [*parts, *terms]
    first_sign, text = parts[0]
    text = text if first_sign > 0 else f"-{text}"
    return text + "".join(f" {'+' if sign > 0 else '-'} {part}" for sign, part in parts[1:])


_PAIR_FUNCTIONS: dict[str, Callable[..., str]] = {
    "ADD": lambda a, b: f"wide_add({a}, {b})",
    "SUB": lambda a, b: f"wide_sub({a}, {b})",
    "NEG": lambda a: f"-{a}",
    "FMA": lambda a, b, c: _pair_sum([(1, a, b)], [(1, c)]),
    "FMS": lambda a, b, c: _pair_sum([(1, a, b)], [(-1, c)]),
    "FNMA": lambda a, b, c: _pair_sum([(-1, a, b)], [(1, c)]),
    "DOT2": lambda a, b, c, d: _pair_sum([(1, a, b), (1, c, d)], []),
    "DOT3": lambda a, b, c, d, e, f: _pair_sum([(1, a, b), (1, c, d), (1, e, f)], []),
    "RECIP": lambda a: f"wide_recip({a})",
    "SQRT": lambda a: f"wide_sqrt({a})",
    "ABS": lambda a: f"wide_abs({a})",
    "FLOOR": lambda a: f"wide_floor({a})",
}


def _pair_expression(statement: Statement, sources: list[str]) -> str:
    if statement.operation == "MUL":
        for source, text in zip(reversed(statement.sources), sources, strict=True):
            if not isinstance(source, str) and abs(np.frexp(source)[0]) == 0.5:  # a power of two: exact
                return f"{text} * {_float(source)}"
        return f"wide_mul({', '.join(sources)})"
    if statement.operation != "SUM":
        return _PAIR_FUNCTIONS[statement.operation](*sources)
    return _pair_sum(*_split_sum(statement, sources))


def _pair_sum(products: list[tuple[int, str, str]], terms: list[tuple[int, str]]) -> str:
    """The terms in order, then the products, whose sum is brought into form once."""
    signed = [text if sign > 0 else f"-{text}" for sign, text in terms]
    text = signed[0] if signed else ""
    for term in signed[1:]:
        text = f"wide_add({text}, {term})"
    for sign, a, b in products:
        factors = f"{a if sign > 0 else f'-{a}'}, {b}"
        text = f"wide_plus_product({text}, {factors})" if text else f"wide_product({factors})"
    return f"wide_total({text})" if products else text


def constant(value: float, arithmetic: Arithmetic) -> str:
    """Literal of a `real`."""
    return _double(value) if arithmetic == "double" else _float(value)


def _double(value: float) -> str:
    if not np.isfinite(value):
        return _special(value, "DOUBLE")
    text = repr(float(value)) + "lf"
    text = text if "." in text or "e" in text else text.replace("lf", ".0lf")
    return text if value >= 0.0 else f"({text})"


def _float(value: float) -> str:
    """Write a float32 literal; a number below its range becomes the smallest one, not zero.

    Guards such as `x < 1e-60` then still catch zero.
    """
    with np.errstate(over="ignore"):
        rounded = np.float32(value)
    if not np.isfinite(rounded):
        return _special(float(rounded), "FLOAT")
    if value != 0.0 and abs(float(rounded)) < _SMALLEST_FLOAT:
        rounded = np.float32(np.copysign(_SMALLEST_FLOAT, value))
    text = str(rounded)
    text = text if "." in text or "e" in text else f"{text}.0"
    return text if rounded >= 0.0 else f"({text})"


def _special(value: float, kind: str) -> str:
    if np.isnan(value):
        return f"{kind}_NAN"
    return f"{kind}_INFINITY" if value > 0.0 else f"(-{kind}_INFINITY)"
