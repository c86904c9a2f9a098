"""Runs the statements of a generated kernel in numpy: the text itself, without a GLSL compiler or device."""

from __future__ import annotations

import re

import numpy as np

_STATEMENT = re.compile(r"const (wide|real|bool) (\w+) = (.*)")
_ADD = re.compile(r"sum(?:_|\[)(\w+)\]? (?:\+= (.*)|= add\(sum_\w+, (.*)\))")
_CHOICE = re.compile(r"\((\w+) \? ([^:()]+) : ([^:()]+)\)")
_IS_READ = re.compile(r"\.at\[|_[vw]\d+\.[xyzw]+$|_read\[|push\.|value\(|AT\(|BLOCKED\(|^tile ")
"""Loads, and what a kernel does with tiles and sums."""

FUNCTIONS = {
    "sqrt": np.sqrt,
    "abs": np.abs,
    "floor": np.floor,
    "select": np.where,
    "DOUBLE_INFINITY": np.inf,
    "FLOAT_INFINITY": np.inf,
    **{f"math_{name}": getattr(np, name) for name in ("sin", "cos", "tan", "exp", "log", "sign")},
    "math_asin": np.arcsin,
    "math_acos": np.arccos,
    "math_atan": np.arctan,
    "math_atan2": np.arctan2,
    "math_pow": np.power,
    "math_min": np.minimum,
    "math_max": np.maximum,
    "to_real": lambda x: np.asarray(x, np.float32),
    "to_wide": lambda x: np.asarray(x, np.float64),
}


def _python(expression: str) -> str:
    """The same formula in Python."""
    expression = re.sub(r"(\d)lf\b", r"\1", expression)
    expression = _CHOICE.sub(r"select(\1, \2, \3)", expression)
    parts = re.split(r" \? | : ", expression)
    if len(parts) == 3:
        expression = f"select({', '.join(parts)})"
    expression = expression.replace("&&", "&").replace("||", "|")
    return re.sub(r"!(?!=)", "~", expression)


def statements(source: str) -> list[str]:
    """Statements of main without comments, each on one line."""
    body = source[source.index("void main() {") :]
    body = re.sub(r"//[^\n]*", "", body)
    return [" ".join(word.split()) for word in re.split(r"[;{}]", body)]


def evaluate(source: str, inputs: dict[str, np.ndarray], arithmetic: str) -> tuple[list, dict]:
    """Contributions of an edge in order of the sums, and all named values, from values of the loads."""
    types = {"wide": np.float64, "real": np.float64 if arithmetic == "double" else np.float32}
    values: dict = dict(inputs)
    sums: dict[str, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for statement in statements(source):
            if statement.startswith("math_sincos("):
                argument, sine, cosine = re.findall(r"\w+", statement)[1:]
                x = values[argument]
                values[sine], values[cosine] = np.sin(x), np.cos(x)
            elif match := _ADD.fullmatch(statement):
                # a sum may stand there twice (transposed blocks): the first is the plain one
                expression = match[2] or match[3]
                sums.setdefault(match[1], eval(_python(expression), {}, _Scope(values)))
            elif (match := _STATEMENT.fullmatch(statement)) and not _IS_READ.search(match[3]):
                kind, name, expression = match.groups()
                value = eval(_python(expression), {}, _Scope(values))
                values[name] = value if kind == "bool" else np.asarray(value, types[kind])
    if all(name.isdigit() for name in sums):  # statements come in any order
        return [sums[name] for name in sorted(sums, key=int)], values
    return list(sums.values()), values


class _Scope(dict):
    """Names of a statement."""

    def __init__(self, values: dict):
        super().__init__(FUNCTIONS)
        self.update(values)


def loaded_names(source: str) -> list[str]:
    """Names of the values that a kernel reads from its buffers."""
    found = []
    for statement in statements(source):
        match = _STATEMENT.fullmatch(statement)
        if match and re.search(r"\.at\[|_[vw]\d+\.|_read\[|BLOCKED\(", match[3]):
            found.append(match[2])
    return found
