"""NIST's reference problems of nonlinear regression (StRD): each certified to 11 digits, from two starts.

One vertex holds the coefficients b, one edge per observation holds (x, y); the residual is model(b, x) - y.
Problems and certified values: https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml

Run: python examples/nist.py [--data FOLDER_OR_FILE.dat ...] [--device auto|cpu|vulkan] [-o TABLE.csv]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from pathlib import Path

import command
import numpy as np

import graphopt
from graphopt.geometry import components


@dataclass(frozen=True)
class Problem:
    """One .dat file."""

    name: str
    predictors: np.ndarray  # (num_observations, num_predictors)
    response: np.ndarray  # (num_observations,)
    starts: np.ndarray  # (num_starts, num_coefficients)
    certified: np.ndarray  # (num_coefficients,)
    residual_sum: float  # of squares, certified


# ------------------------------------------------------------------ models


def decay(b, x):
    """BoxBOD, Misra1a."""
    return b[0] * (1.0 - np.exp(-b[1] * x))


def chwirut(b, x):
    """Chwirut1, Chwirut2."""
    return np.exp(-b[0] * x) / (b[1] + b[2] * x)


def gauss(b, x):
    """Gauss1, Gauss2, Gauss3: two peaks on a decaying baseline."""
    first = b[2] * np.exp(-(((x - b[3]) / b[4]) ** 2))
    second = b[5] * np.exp(-(((x - b[6]) / b[7]) ** 2))
    return b[0] * np.exp(-b[1] * x) + first + second


def lanczos(b, x):
    """Lanczos1, Lanczos2, Lanczos3."""
    return b[0] * np.exp(-b[1] * x) + b[2] * np.exp(-b[3] * x) + b[4] * np.exp(-b[5] * x)


def cubic_over_cubic(b, x):
    """Hahn1, Thurber."""
    above = b[0] + x * (b[1] + x * (b[2] + x * b[3]))
    return above / (1.0 + x * (b[4] + x * (b[5] + x * b[6])))


def enso(b, x):
    """Monthly pressure differences: a yearly cycle and two of unknown period."""

    def cycle(period, cosine, sine):
        angle = 2.0 * np.pi * x / period
        return cosine * np.cos(angle) + sine * np.sin(angle)

    return b[0] + cycle(12.0, b[1], b[2]) + cycle(b[3], b[4], b[5]) + cycle(b[6], b[7], b[8])


MODELS = {
    "Bennett5": lambda b, x: b[0] * (b[1] + x) ** (-1.0 / b[2]),
    "BoxBOD": decay,
    "Chwirut1": chwirut,
    "Chwirut2": chwirut,
    "DanWood": lambda b, x: b[0] * x ** b[1],
    "Eckerle4": lambda b, x: b[0] / b[1] * np.exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "ENSO": enso,
    "Gauss1": gauss,
    "Gauss2": gauss,
    "Gauss3": gauss,
    "Hahn1": cubic_over_cubic,
    "Kirby2": lambda b, x: (b[0] + x * (b[1] + x * b[2])) / (1.0 + x * (b[3] + x * b[4])),
    "Lanczos1": lanczos,
    "Lanczos2": lanczos,
    "Lanczos3": lanczos,
    "MGH09": lambda b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda b, x: b[0] * np.exp(b[1] / (x + b[2])),
    "MGH17": lambda b, x: b[0] + b[1] * np.exp(-x * b[3]) + b[2] * np.exp(-x * b[4]),
    "Misra1a": decay,
    "Misra1b": lambda b, x: b[0] * (1.0 - (1.0 + b[1] * x / 2.0) ** -2),
    "Misra1c": lambda b, x: b[0] * (1.0 - (1.0 + 2.0 * b[1] * x) ** -0.5),
    "Misra1d": lambda b, x: b[0] * b[1] * x / (1.0 + b[1] * x),
    "Nelson": lambda b, x1, x2: b[0] - b[1] * x1 * np.exp(-b[2] * x2),
    "Rat42": lambda b, x: b[0] / (1.0 + np.exp(b[1] - b[2] * x)),
    "Rat43": lambda b, x: b[0] / (1.0 + np.exp(b[1] - b[2] * x)) ** (1.0 / b[3]),
    "Roszman1": lambda b, x: b[0] - b[1] * x - np.arctan(b[2] / (x - b[3])) / np.pi,
    "Thurber": cubic_over_cubic,
}
"""Data set -> model (b, x ...) -> response."""

TRANSFORMS = {"Nelson": np.log}
"""What the model describes, where it is not the response itself."""

MISPRINTS = {"1.20196866396E-0": "2.0196866396E-01"}
"""Roszman1's b1 in a widespread copy of the files, and NIST's own; the first misses the certified sum."""


# ------------------------------------------------------------------ files


def read_nist(path: Path) -> Problem:
    """Read a StRD file: name, rows `b1 = start ... certified deviation`, and the data under `Data: y x`."""
    text = path.read_text(encoding="latin-1")
    for wrong, right in MISPRINTS.items():
        text = text.replace(wrong, right)
    name = re.search(r"^Dataset Name:\s+(\S+)", text, re.MULTILINE)
    rows = re.findall(r"^\s*b\d+\s*=\s*(.+)$", text, re.MULTILINE)
    total = re.search(r"^Residual Sum of Squares:\s+(\S+)", text, re.MULTILINE)
    count = re.search(r"^Number of Observations:\s+(\d+)", text, re.MULTILINE)
    head = list(re.finditer(r"^Data:\s+y\s+x.*$", text, re.MULTILINE))
    if not (name and rows and total and count and head):
        raise command.ExampleError(
            f"{path} is no StRD file: expected a name, coefficients, a residual sum and data."
        )
    values, data = _numbers(rows), _numbers(text[head[-1].end() :].split("\n"))
    if len(data) != int(count[1]):
        raise command.ExampleError(f"{path} has {len(data)} rows of data, its header says {count[1]}.")
    return Problem(name[1], data[:, 1:], data[:, 0], values[:, :-2].T, values[:, -2], float(total[1]))


def _numbers(lines: list[str]) -> np.ndarray:
    return np.array([[float(word) for word in line.split()] for line in lines if line.strip()])


# ------------------------------------------------------------------ fit


@cache
def edge_type(name: str, num_coefficients: int, num_predictors: int) -> graphopt.types.EdgeType:
    """Model `name` as an edge: one vertex with the coefficients, a measurement (x ..., y)."""
    if name not in MODELS:
        raise command.ExampleError(f"no model for {name}; there are {', '.join(MODELS)}.")
    coefficients = graphopt.group_type(f"Nist{name}", num_coefficients)

    def residual(b, observation):
        *x, y = components(observation)
        return MODELS[name](components(b), *x) - y

    edge = graphopt.edge_type(
        vertices=(coefficients,), measurement_dim=num_predictors + 1, name=f"EdgeNist{name}"
    )
    return edge(residual)


def fit(problem: Problem, start: np.ndarray, **options) -> tuple[np.ndarray, graphopt.Summary]:
    """Coefficients that minimise the sum of squares, from this start."""
    response = TRANSFORMS.get(problem.name, np.positive)(problem.response)
    edge = edge_type(problem.name, len(start), problem.predictors.shape[1])
    graph = graphopt.Graph()
    coefficients = graph.add_array(edge.vertices[0], [start])
    observations = np.column_stack([problem.predictors, response])
    graph.add_edges(edge, graphopt.unique(coefficients), observations)
    summary = graphopt.optimize(graph, **options)
    return coefficients.estimate[0].copy(), summary


EXCHANGEABLE = {
    "MGH17": ((1, 3), (2, 4)),
    "Lanczos1": ((0, 1), (2, 3), (4, 5)),
    "Lanczos2": ((0, 1), (2, 3), (4, 5)),
    "Lanczos3": ((0, 1), (2, 3), (4, 5)),
    "Gauss1": ((2, 3, 4), (5, 6, 7)),
    "Gauss2": ((2, 3, 4), (5, 6, 7)),
    "Gauss3": ((2, 3, 4), (5, 6, 7)),
    "ENSO": ((3, 4, 5), (6, 7, 8)),
}
"""Terms of a sum, each by its coefficients: in another order they are the same model."""


def digits(value: np.ndarray, certified: np.ndarray, name: str = "") -> float:
    """Correct digits: the log relative error of the worst entry, 11 at most (NIST certifies no more).

    name: of the data set; terms that may be exchanged are taken in the order that fits best.
    """
    terms = EXCHANGEABLE.get(name, ())
    return max(_digits(_reordered(value, terms, order), certified) for order in permutations(terms))


def _reordered(value: np.ndarray, terms: tuple, order: tuple) -> np.ndarray:
    result = np.array(value, float)
    for target, source in zip(terms, order, strict=True):
        result[list(target)] = value[list(source)]
    return result


def _digits(value: np.ndarray, certified: np.ndarray) -> float:
    error = np.max(np.abs(value - certified) / np.abs(certified))
    return float(min(-np.log10(error), 11.0)) if error > 0.0 else 11.0


def generated() -> list[Problem]:
    """Problems of our own, without noise: their exact minimum is what the responses were made with."""
    x = np.linspace(0.1, 5.0, 25)[:, None]
    truths = {
        "Misra1a": ([238.9, 0.55], [[500.0, 0.1], [250.0, 0.5]]),
        "MGH17": ([0.375, 1.9, -1.5, 1.3, 2.2], [[0.5, 1.5, -1.0, 1.0, 2.0], [0.4, 1.8, -1.4, 1.2, 2.4]]),
        "Rat42": ([72.5, 2.6, 1.7], [[100.0, 1.0, 1.0], [75.0, 2.5, 1.5]]),
    }
    return [
        Problem(name, x, MODELS[name](np.array(truth), x[:, 0]), np.array(starts), np.array(truth), 0.0)
        for name, (truth, starts) in truths.items()
    ]


# ------------------------------------------------------------------ command line

METHODS = {
    "auto": graphopt.AutoOptions(1000, function_tolerance=1e-15, gradient_tolerance=0.0, step_tolerance=0.0),
    "lm": graphopt.LevenbergMarquardtOptions(20_000, function_tolerance=1e-15),
    "dogleg": graphopt.DoglegOptions(20_000, function_tolerance=1e-15),
}
"""To the last digit: they end where chi2 falls by no more than rounding."""


def main(argv: list[str] | None = None) -> list[tuple]:
    """Fit every problem from each start; rows (name, start, digits, sum of squares, iterations)."""
    parser = command.parser(
        __doc__, data="StRD files (.dat) or folders of them; default: three generated", output="table, .csv"
    )
    parser.add_argument("--method", default="lm", choices=METHODS, help="default: lm")
    args = parser.parse_args(argv)
    problems = [read_nist(path) for path in _files(args.data)] if args.data else generated()
    columns = ("problem", "start", "digits", "sum of squares", "iterations")
    print("{:10} {:>5} {:>6} {:>17} {:>10}".format(*columns))
    rows = []
    for problem in problems:
        for number, start in enumerate(problem.starts, 1):
            options = METHODS[args.method]
            parameters, summary = fit(problem, start, method=args.method, options=options, device=args.device)
            row = (
                problem.name,
                number,
                digits(parameters, problem.certified, problem.name),
                summary.final_chi2,
                len(summary.iterations),
            )
            print("{:10} {:5d} {:6.1f} {:17.10e} {:10d}".format(*row))
            rows.append(row)
    print(f"at least {min(row[2] for row in rows):.1f} digits in {len(rows)} fits")
    if args.output:
        command.write_table(args.output, columns, rows)
    return rows


def _files(paths: list[Path]) -> list[Path]:
    files = [
        file
        for path in command.existing(paths)
        for file in (sorted(path.glob("*.dat")) if path.is_dir() else [path])
    ]
    if not files:
        raise command.ExampleError(f"no .dat file in {', '.join(map(str, paths))}.")
    return files


if __name__ == "__main__":
    command.run(main)
