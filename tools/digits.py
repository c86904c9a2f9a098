"""Errors of the compiled edge types against 60 digits, in units in the last place.

    python tools/digits.py                      every built-in edge type, in every situation
    python tools/digits.py EDGE_SE2 --worst     one type, with the numbers that are worst

The reference is the type's residual function, called with numbers of 60 digits (mpmath); its Jacobian is the
central difference of that through oplus, with a step of 1e-20. chi2 and the step follow from these. None of
it shares derivatives, rewrites, bytecode or solver with what is measured: the programs that the CPU's block
solver runs, and its step.

A unit is what a rounding of the input changes: the number's own last place, and how far the exact value moves
when each stored number moves by half of its last place (the largest of some random choices). So an error of
1 is as good as 53 bits allow, however much cancels. Jacobians are scaled by the largest entry of their row
and kind of unknown; steps by the condition of H.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))

DIGITS = 60
_STEP = mpmath.mpf(10) ** -20
_EPS = 2.0**-52
_MOVES = 3  # random roundings of the input
_JUMP, _JUMPS = 1e6, 8  # units that mean a discontinuity; roundings that look at its other side


class Exact:
    """A number of 60 digits that numpy's functions take as an element of an object array."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value.value if isinstance(value, Exact) else mpmath.mpf(value)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return self.value != 0

    def __floor__(self) -> Exact:
        return Exact(mpmath.floor(self.value))

    def __neg__(self) -> Exact:
        return Exact(-self.value)

    def __pos__(self) -> Exact:
        return self

    def __abs__(self) -> Exact:
        return Exact(abs(self.value))

    def arctan2(self, other: Any) -> Exact:
        """As numpy's."""
        return Exact(mpmath.atan2(self.value, scalar(other)))

    __hash__ = None  # type: ignore[assignment]


def scalar(x: Any) -> Any:
    """An mpmath number."""
    return x.value if isinstance(x, Exact) else mpmath.mpf(float(x))


def _binary(function: Callable) -> tuple[Callable, Callable]:
    def forward(self: Exact, other: Any) -> Any:
        return NotImplemented if isinstance(other, np.ndarray) else Exact(function(self.value, scalar(other)))

    def backward(self: Exact, other: Any) -> Any:
        return NotImplemented if isinstance(other, np.ndarray) else Exact(function(scalar(other), self.value))

    return forward, backward


def _comparison(name: str) -> Callable:
    def compare(self: Exact, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            return NotImplemented
        return getattr(self.value, name)(scalar(other))

    return compare


for _name, _function in {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "truediv": lambda a, b: a / b if b else mpmath.mpf("nan") if a == 0 else mpmath.inf * mpmath.sign(a),
    "pow": lambda a, b: a**b,
}.items():
    for _prefix, _method in zip(("__", "__r"), _binary(_function), strict=True):
        setattr(Exact, f"{_prefix}{_name}__", _method)
for _name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
    setattr(Exact, _name, _comparison(_name))
for _name, _function in {
    **{name: getattr(mpmath, name) for name in ("sqrt", "sin", "cos", "tan", "exp", "log")},
    "arcsin": mpmath.asin,
    "arccos": mpmath.acos,
    "arctan": mpmath.atan,
}.items():
    setattr(Exact, _name, lambda self, function=_function: Exact(function(self.value)))


def exact(numbers: Any) -> np.ndarray:
    """Object array of `Exact`."""
    return np.frompyfunc(Exact, 1, 1)(np.asarray(numbers, dtype=object))


def plain(numbers: Any) -> np.ndarray:
    """Float array of such numbers."""
    return np.asarray(numbers, dtype=object).astype(float)


@dataclass
class Case:
    """One edge: stored numbers of its vertices (in their working form), parameters, measurement."""

    kind: Any
    vertices: list[np.ndarray]
    parameters: list[np.ndarray]
    measurement: np.ndarray
    information: np.ndarray

    @property
    def inputs(self) -> np.ndarray:
        """(1, n): what a program takes."""
        return np.concatenate([*self.vertices, *self.parameters, self.measurement])[None]

    def moved(self, rng: np.random.Generator, halves_of_unit: float = 1.0) -> Case:
        """Each number moved by half a unit in its last place, up or down, with 60 digits."""

        def move(x: np.ndarray) -> np.ndarray:
            halves = 0.5 * halves_of_unit * rng.choice([-1.0, 1.0], x.shape) * np.spacing(np.abs(x))
            return exact(x) + exact(np.where(x == 0.0, 0.0, halves))

        vertices, parameters = [move(x) for x in self.vertices], [move(x) for x in self.parameters]
        return Case(self.kind, vertices, parameters, move(self.measurement), self.information)

    def residual(self) -> np.ndarray:
        """With 60 digits, (residual_dim,) of `Exact`."""
        return _residual(self, [exact(x) for x in self.vertices])

    def jacobian(self) -> np.ndarray:
        """With 60 digits, (residual_dim, all tangents)."""
        states = [exact(x) for x in self.vertices]
        if self.kind.tag in NOT_THE_DERIVATIVE:
            wrapped = [vertex.wrap(x) for vertex, x in zip(self.kind.vertices, states, strict=True)]
            dims = [(self.kind.residual_dim, vertex.tangent_dim) for vertex in self.kind.vertices]
            blocks = self.kind.jacobian(*wrapped, *_constants(self))
            return np.concatenate([exact(b).reshape(d) for b, d in zip(blocks, dims, strict=True)], axis=1)
        columns = []
        for slot, vertex in enumerate(self.kind.vertices):
            for direction in np.eye(vertex.tangent_dim):
                ends = []
                for sign in (1, -1):
                    state = list(states)
                    state[slot] = vertex.oplus(states[slot], exact(direction) * Exact(sign * _STEP))
                    ends.append(_residual(self, state))
                columns.append((ends[0] - ends[1]) / Exact(2 * _STEP))
        return np.stack(columns, axis=-1)


NOT_THE_DERIVATIVE = {"EDGE_SE2_POINTXY_OFFSET"}
"""g2o's Jacobian of these is not the derivative of its error; it is evaluated with 60 digits instead."""


def _constants(case: Case) -> list[Any]:
    kinds, values = case.kind.parameters, case.parameters
    constants = [kind.wrap(exact(x)) for kind, x in zip(kinds, values, strict=True)]
    return [*constants, case.kind.wrap_measurement(exact(case.measurement))]


def _residual(case: Case, states: list[np.ndarray]) -> np.ndarray:
    wrapped = [vertex.wrap(x) for vertex, x in zip(case.kind.vertices, states, strict=True)]
    found = np.asarray(case.kind.residual(*wrapped, *_constants(case)), dtype=object)
    return np.broadcast_to(found, (case.kind.residual_dim,))


# ------------------------------------------------------------------ situations


@dataclass(frozen=True)
class Situation:
    """How vertices are chosen."""

    angle: float = 0.7
    """Angle of every pose [rad]."""
    length: float = 1.0
    """Of translations and points."""
    depth: float = 2.0
    """Distance of points before the camera, in lengths."""
    offset: float = 0.3
    """How far the measurement is from what the vertices say, on each tangent."""


SITUATIONS = {
    "ordinary": Situation(),
    "angle 1e-9": Situation(angle=1e-9, offset=1e-9),
    "angle 2e-4": Situation(angle=2e-4, offset=2e-4),
    "angle 3e-3": Situation(angle=3e-3, offset=3e-3),
    "angle pi": Situation(angle=np.pi),
    "nearly pi": Situation(angle=np.pi - 1e-7, offset=np.pi - 1e-7),
    "beyond pi": Situation(offset=np.pi + 1e-9),
    "near camera": Situation(depth=1e-5),
    "size 1e-8": Situation(length=1e-8),
    "size 1e8": Situation(length=1e8),
    "at minimum": Situation(offset=0.0),
}


def make_case(kind: Any, situation: Situation, seed: int) -> Case:
    """An edge of a type (not of its working form) in a situation."""
    from graphopt.types.base import working_edge_type

    rng = np.random.default_rng([seed, zlib.crc32(kind.tag.encode())])
    parameters = []
    for parameter in kind.parameters:
        storage = np.array(parameter.identity) + 0.05 * rng.standard_normal(parameter.storage_dim)
        parameters.append(_unit(storage, getattr(parameter.wrap, "__name__", ""), situation.length))
    estimates, pose = [], None
    for vertex in kind.vertices:
        storage = np.array(vertex.identity, float)
        if vertex.place is not None:
            found = vertex.pose(storage)
            pose = _random_pose(type(found), situation, rng)
            storage = np.asarray(vertex.place(pose, storage), float)
        elif vertex.role != "point":
            storage = storage + 0.05 * rng.standard_normal(vertex.storage_dim)
        estimates.append(storage)
    for slot, vertex in enumerate(kind.vertices):
        if vertex.role == "point":
            place = situation.length * situation.depth * rng.uniform(0.2, 0.4, vertex.storage_dim)
            if vertex.storage_dim == 3:
                place[2] = situation.length * situation.depth * (-1.0 if "BAL" in kind.tag else 1.0)
            if kind.tag == "EDGE_PSI2UV":  # x / z, y / z, 1 / z
                estimates[slot] = np.array([place[0], place[1], 1.0]) / place[2]
            else:
                estimates[slot] = place if pose is None else np.asarray(pose.act(place), float)
    measurement = _measurement(kind, estimates, parameters, situation, rng)
    encoded = [
        vertex.working.encode(x[None])[0] if vertex.working is not None else x
        for vertex, x in zip(kind.vertices, estimates, strict=True)
    ]
    half = rng.standard_normal((kind.residual_dim, kind.residual_dim))
    information = half @ half.T + np.eye(kind.residual_dim)
    return Case(
        working_edge_type(kind), encoded, parameters, measurement, 0.5 * (information + information.T)
    )


def _random_pose(group: Any, situation: Situation, rng: np.random.Generator) -> Any:
    from graphopt.geometry import SE2, SO3

    if group is SE2:
        return SE2(
            np.array([*(situation.length * rng.standard_normal(2)), rng.choice([-1, 1]) * situation.angle])
        )
    axis = rng.standard_normal(3)
    storage = np.array(group.identity_storage)
    storage[:3] = situation.length * rng.standard_normal(3)
    storage[3:7] = SO3.exp(situation.angle * axis / np.linalg.norm(axis)).storage
    storage[7:] = 1.3
    return group(storage)


def _unit(storage: np.ndarray, wrap: str, length: float) -> np.ndarray:
    if wrap in ("SE3", "Sim3"):
        storage[3:7] /= np.linalg.norm(storage[3:7])
        storage[:3] *= length
    elif wrap == "SE2":
        storage[:2] *= length
    return storage


def _measurement(kind: Any, estimates: list, parameters: list, situation: Situation, rng: Any) -> np.ndarray:
    """What the vertices say, moved by an offset."""
    group = kind.wrap_measurement
    name = getattr(group, "__name__", "")
    if kind.measure is not None:
        stored = kind.measured(tuple(estimates), tuple(parameters))
    else:
        stored = rng.uniform(0.5, 1.5, kind.measurement_dim)
        if name in ("SE2", "SE3", "Sim3"):
            stored = np.asarray(_random_pose(group, situation, rng).storage, float)
        stored = _nearer(kind, estimates, parameters, stored)
    if name in ("SE2", "SE3", "Sim3"):
        turn = _random_pose(group, Situation(situation.offset, situation.offset * situation.length), rng)
        if not situation.offset:
            turn = group.identity()
        return np.asarray((group(stored) * turn).storage, float)
    return stored + situation.offset * situation.length * rng.standard_normal(len(stored)) * 0.1


def _nearer(kind: Any, estimates: list, parameters: list, stored: np.ndarray) -> np.ndarray:
    """Subtract the error from the numbers that a residual subtracts, where it does."""
    if kind.residual_dim > len(stored):
        return stored
    best = stored
    with np.errstate(all="ignore"):
        error = np.asarray(kind.error(tuple(estimates), tuple(parameters), stored))
        for sign in (-1.0, 1.0):
            moved = stored.copy()
            moved[: kind.residual_dim] += sign * np.broadcast_to(error, (kind.residual_dim,))
            left = np.asarray(kind.error(tuple(estimates), tuple(parameters), moved))
            if np.linalg.norm(left) < 1e-3 * np.linalg.norm(error):
                best = moved
    return best


# ------------------------------------------------------------------ what is measured


@dataclass
class Units:
    """Largest errors of one edge, in units."""

    residual: float
    jacobian: float
    chi2: float
    step: float
    detail: str = ""


def measure(case: Case, seed: int = 0) -> Units:
    """Run the compiled programs and the block solver's step, compare with 60 digits."""
    from graphopt.codegen.edge import compile_edge, pack_information

    kernels = compile_edge(case.kind)
    rng = np.random.default_rng(seed)
    with mpmath.workdps(DIGITS):
        moved = [case.moved(rng) for _ in range(_MOVES)]
        e, j = case.residual(), case.jacobian()
        es, js = [m.residual() for m in moved], [m.jacobian() for m in moved]
        omega = exact(case.information)
        chi2 = e @ omega @ e
        chi2s = [v @ omega @ v for v in es]
        e_unit = _unit_of(e, es)
        j_unit = _unit_of(j, js) + 0.1 * _EPS * _row_scale(case.kind, plain(j))
        chi2_unit = _unit_of(np.array(chi2), [np.array(c) for c in chi2s])
        found_e = kernels.errors.interpret(case.inputs)[0]
        found_j = kernels.jacobians.interpret(case.inputs)[0]
        blocks, start = [], 0
        for vertex in case.kind.vertices:
            count = case.kind.residual_dim * vertex.tangent_dim
            blocks.append(found_j[start : start + count].reshape(case.kind.residual_dim, -1))
            start += count
        found_j = np.concatenate(blocks, axis=1)
        information = pack_information(case.information[None], "full")
        found_chi2 = kernels.chi2.interpret(np.concatenate([case.inputs, information], axis=1))[0, 0]
        if (_error(found_e, e) / e_unit).max() > _JUMP:  # at an angle of pi: e of a rounding further
            e, j = min(
                ((m.residual(), m.jacobian()) for m in (case.moved(rng, 16.0) for _ in range(_JUMPS))),
                key=lambda pair: _error(found_e, pair[0]).max(),
            )
            es, js, chi2 = [e], [j], e @ omega @ e
        e_error, j_error = _error(found_e, e) / e_unit, _error(found_j, j) / j_unit
        chi2_error = float(_error(found_chi2, np.array(chi2)) / chi2_unit)
        step = _step_units(case, e, j, es, js)
    where = np.unravel_index(np.nanargmax(j_error), j_error.shape) if j_error.size else (0, 0)
    detail = (
        f"J{tuple(int(k) for k in where)} = {found_j[where]!r}, exact {mpmath.nstr(j[where].value, 20)}, "
        f"e {found_e} exact {plain(e)}"
    )
    return Units(float(e_error.max()), float(j_error.max()), chi2_error, step, detail)


def _unit_of(value: np.ndarray, moved: list[np.ndarray]) -> np.ndarray:
    change = np.max([np.abs(plain(m - value)) for m in moved], axis=0)
    return np.maximum(_EPS * np.abs(plain(value)) + change, 5e-324)


def _error(found: np.ndarray, value: np.ndarray) -> np.ndarray:
    return np.abs(plain(exact(found) - value))


def _row_scale(kind: Any, j: np.ndarray) -> np.ndarray:
    """Largest entry of each row and vertex."""
    cuts = np.cumsum([vertex.tangent_dim for vertex in kind.vertices])[:-1]
    parts = np.split(np.abs(j), cuts, axis=1)
    return np.concatenate([np.broadcast_to(p.max(axis=1, keepdims=True), p.shape) for p in parts], axis=1)


def _step_units(case: Case, e: np.ndarray, j: np.ndarray, es: list, js: list) -> float:
    """The step of H + D for this edge alone, D a thousandth of H's largest diagonal entry."""
    from graphopt.codegen.edge import compile_edge, pack_information

    kernels = compile_edge(case.kind)
    information = pack_information(case.information[None], "full")
    values = kernels.linearize.interpret(np.concatenate([case.inputs, information], axis=1))[0]
    dims = [vertex.tangent_dim for vertex in case.kind.vertices]
    h, b = _assemble(values, dims)
    damping = 1e-3 * h.diagonal().max()
    dim = len(b)
    omega = exact(case.information)

    def step(e: np.ndarray, j: np.ndarray) -> np.ndarray:
        left = j.T @ omega
        full = mpmath.matrix([[x.value for x in row] for row in left @ j]) + mpmath.mpf(damping) * mpmath.eye(
            dim
        )
        right = mpmath.matrix([-x.value for x in left @ e])
        return np.array([Exact(x) for x in mpmath.lu_solve(full, right)], dtype=object)

    dx = step(e, j)
    scale = np.abs(plain(dx)).max()
    change = max(np.abs(plain(step(a, b) - dx)).max() for a, b in zip(es, js, strict=True))
    damped = h + damping * np.eye(dim)
    found = np.linalg.solve(damped, b)
    condition = np.linalg.cond(damped)
    return float(_error(found, dx).max() / max(change + _EPS * condition * scale, 5e-324))


def _assemble(values: np.ndarray, dims: list[int]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.concatenate([[0], np.cumsum(dims)])
    h, k = np.zeros((starts[-1], starts[-1])), 1
    for a, rows in enumerate(dims):
        for b, columns in enumerate(dims[a:], start=a):
            for column in range(columns):
                count = column + 1 if a == b else rows
                for row in range(count):
                    i, jj = starts[a] + row, starts[b] + column
                    h[i, jj] = h[jj, i] = values[k]
                    k += 1
    return h, values[k : k + starts[-1]]


def rows(
    kinds: list[Any], situations: dict[str, Situation], seed: int = 0
) -> Iterator[tuple[Any, str, Units]]:
    """Measure each type in each situation."""
    for kind in kinds:
        for name, situation in situations.items():
            yield kind, name, measure(make_case(kind, situation, seed), seed)


def main() -> None:
    """Print the table."""
    from builtin_edges import EDGES

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tags", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worst", action="store_true", help="with the numbers that are worst")
    parser.add_argument("--above", type=float, default=0.0, help="only rows with more units")
    arguments = parser.parse_args()
    kinds = [kind for kind in EDGES if not arguments.tags or kind.tag in arguments.tags]
    print(f"{'edge type':36} {'situation':14} {'residual':>9} {'Jacobian':>9} {'chi2':>9} {'step':>9}")
    for kind, name, units in rows(kinds, SITUATIONS, arguments.seed):
        numbers = (units.residual, units.jacobian, units.chi2, units.step)
        if max(numbers) >= arguments.above or not np.isfinite(numbers).all():
            print(f"{kind.tag:36} {name:14} " + " ".join(f"{number:9.3g}" for number in numbers), flush=True)
            if arguments.worst:
                print("   ", units.detail)


if __name__ == "__main__":
    main()
