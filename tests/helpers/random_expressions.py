"""Random expressions as texts, and their values in numpy."""

from __future__ import annotations

import numpy as np

NUMPY = {
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "floor": np.floor,
    "sign": np.sign,
    "min": np.minimum,
    "max": np.maximum,
    "tanh": np.tanh,
    "cosh": np.cosh,
    "where": lambda c, a, b: np.where(c != 0, a, b),
}
BINARY = (
    "{} + {}",
    "{} - {}",
    "{} * {}",
    "{} / {}",
    "abs({}) ** {}",
    "min({}, {})",
    "max({}, {})",
    "atan2({}, {})",
)
UNARY = (
    "sqrt(abs({}))",
    "exp(-abs({}))",
    "log({})",
    "abs({})",
    "sin({})",
    "cos({})",
    "atan({})",
    "-{}",
    "1 / {}",
)


def random_text(
    rng: np.random.Generator, depth: int, num_variables: int, num_parameters: int, binary=BINARY, unary=UNARY
) -> str:
    """A text of up to `depth` nested operations."""
    if depth == 0 or rng.uniform() < 0.1:
        leaves = [f"x{k + 1}" for k in range(num_variables)] + [f"p{k + 1}" for k in range(num_parameters)]
        return str(rng.choice([*leaves, f"{rng.uniform(0.5, 3):.3f}", "2"]))
    below = [
        "(" + random_text(rng, depth - 1, num_variables, num_parameters, binary, unary) + ")"
        for _ in range(2)
    ]
    if rng.uniform() < 0.7:
        return str(rng.choice(binary)).format(*below)
    return str(rng.choice(unary)).format(below[0])


def numpy_value(text: str, data: np.ndarray, parameters: np.ndarray) -> np.ndarray:
    """(num_points,) values of a text at `data` (num_points, num_variables)."""
    names = {f"x{k + 1}": data[:, k] for k in range(data.shape[1])}
    names |= {f"p{k + 1}": np.float64(p) for k, p in enumerate(parameters)}
    with np.errstate(all="ignore"):
        value = eval(text.replace("^", "**"), {"__builtins__": {}, "pi": np.pi, **NUMPY}, names)
    return np.broadcast_to(np.asarray(value, dtype=float), len(data))
