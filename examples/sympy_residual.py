"""A residual derived with SymPy: calibration of a robot arm from where its hand was seen.

    hand = base T(joint 1) T(link 1) T(joint 2) T(link 2) ...      products of SymPy matrices, in the plane

SymPy multiplies the matrices; `graphopt.from_sympy` makes the edge's function of the result. The
vertex holds what is calibrated: the place of the base, and length and zero of each joint.

Run: python examples/sympy_residual.py [--data ANGLES_XY.csv] [--device auto|cpu|vulkan] [-o CALIBRATION.csv]
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import command
import numpy as np

import graphopt

NUM_JOINTS = 3
TRUTH = np.array([0.1, -0.2, 0.5, 0.4, 0.25, 0.05, -0.08, 0.12])  # base x, y [m]; lengths [m]; zeros [rad]
NOMINAL = np.array([0.0, 0.0, 0.48, 0.42, 0.24, 0.0, 0.0, 0.0])
NOISE = 0.001  # of the seen position [m]


def symbolic_residual():
    """Function (calibration, reading) -> (2,), and nothing of it is written by hand but the chain."""
    import sympy

    base = sympy.symbols("x y")
    lengths, zeros, angles = (sympy.symbols(f"{name}:{NUM_JOINTS}") for name in ("length", "zero", "angle"))
    seen = sympy.Matrix(sympy.symbols("seen_x seen_y"))
    chain = sympy.eye(3)
    for length, zero, angle in zip(lengths, zeros, angles, strict=True):
        turn = sympy.rot_ccw_axis3(angle + zero)
        move = sympy.Matrix([[1, 0, length], [0, 1, 0], [0, 0, 1]])
        chain = chain * turn * move
    hand = sympy.Matrix(base) + chain[:2, 2]
    arguments = {"calibration": [*base, *lengths, *zeros], "reading": [*angles, *seen]}
    return graphopt.from_sympy(hand - seen, arguments)


@cache
def define_edge() -> graphopt.types.EdgeType:
    """Register the vertex and the edge type."""
    calibration = graphopt.group_type("Arm", len(TRUTH))
    edge = graphopt.edge_type(vertices=(calibration,), measurement_dim=NUM_JOINTS + 2, name="EdgeHand")
    return edge(symbolic_residual())


def generated(num_readings: int = 60, seed: int = 0) -> np.ndarray:
    """Readings (n, 5): joint angles [rad] and where the hand was seen [m], with noise."""
    rng = np.random.default_rng(seed)
    angles = rng.uniform(-1.5, 1.5, (num_readings, NUM_JOINTS))
    heading = np.cumsum(angles + TRUTH[5:], axis=1)
    steps = TRUTH[2:5, None] * np.stack([np.cos(heading), np.sin(heading)], axis=2)
    seen = TRUTH[:2] + steps.sum(axis=1) + rng.normal(0.0, NOISE, (num_readings, 2))
    return np.hstack([angles, seen])


def read(path: Path) -> np.ndarray:
    """Rows angle 1, angle 2, angle 3, x, y of a .csv file."""
    try:
        readings = np.loadtxt(path, delimiter=",", ndmin=2)
    except ValueError as error:
        raise command.ExampleError(f"{path}: {error}") from error
    if readings.shape[1] != NUM_JOINTS + 2:
        raise command.ExampleError(f"{path} has {readings.shape[1]} columns, expected {NUM_JOINTS + 2}.")
    return readings


def calibrate(readings: np.ndarray, **options) -> tuple[np.ndarray, graphopt.Summary]:
    """Calibration that explains the readings best."""
    edge = define_edge()
    graph = graphopt.Graph()
    calibration = graph.add_array(edge.vertices[0], [NOMINAL])
    graph.add_edges(edge, graphopt.unique(calibration), readings, np.eye(2) / NOISE**2)
    summary = graphopt.optimize(graph, **options)
    return calibration.estimate[0].copy(), summary


def main(argv: list[str] | None = None) -> np.ndarray:
    """Calibrate; base x, y, lengths, zeros."""
    parser = command.parser(__doc__, data="rows of angles and x, y; default: generated", output="table, .csv")
    args = parser.parse_args(argv)
    readings = read(command.existing(args.data, 1, "one .csv file")[0]) if args.data else generated()
    estimate, summary = calibrate(readings, device=args.device)
    print(summary.brief_report())
    names = (
        "x",
        "y",
        *(f"length {i + 1}" for i in range(NUM_JOINTS)),
        *(f"zero {i + 1}" for i in range(NUM_JOINTS)),
    )
    for name, before, after in zip(names, NOMINAL, estimate, strict=True):
        print(f"{name:9} {before:8.4f} -> {after:8.4f}")
    if args.output:
        command.write_table(
            args.output, ("number", "value"), list(zip(names, estimate.tolist(), strict=True))
        )
    return estimate


if __name__ == "__main__":
    command.run(main)
