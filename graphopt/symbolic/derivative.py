"""Derivatives by elimination on the linearised expression graph.

Every operation y = f(x_1, x_2, ...) becomes edges x_i -> y labelled with the partial derivative; the seeds
are edges from the directions to the variables. Removing an inner vertex k joins each of its sources i to each
of its targets j:

    label(i, j) += label(k, j) label(i, k)

until only edges from directions to outputs are left: these are the Jacobian. Removing the vertices in the
order of the outputs is reverse mode, in the order of the inputs forward mode. Cheapest first (Markowitz:
sources times targets) needs fewer products than either. A. Griewank, A. Walther, Evaluating Derivatives, SIAM
2008, chapter 9.

The partial derivative of select(c, x, y) towards x is select(c, 1, 0); the rule `x select(c, y, 0) ->
select(c, x y, 0)` carries it to the outside of every product, so that the answer is select(c, dx, dy), and an
infinite dy is never multiplied by zero.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import is_

from graphopt.errors import SymbolicError
from graphopt.symbolic.expr import Expr, const, div, is_const, make, topological


def _sqrt(x: Expr, y: Expr) -> tuple:
    return (make("mul", const(0.5), make("recip", y)),)


def _inverse_sine(x: Expr) -> Expr:
    return make("recip", make("sqrt", make("sub", const(1.0), make("mul", x, x))))


def _atan2(y: Expr, x: Expr, angle: Expr) -> tuple:
    inverse = make("recip", make("add", make("mul", x, x), make("mul", y, y)))
    return make("mul", x, inverse), make("neg", make("mul", y, inverse))


def _pow(x: Expr, y: Expr, z: Expr) -> tuple:
    if y.op == "const":
        return make("mul", y, make("pow", x, const(y.value - 1.0))), const(0.0)
    return make("mul", z, div(y, x)), make("mul", z, make("log", x))


def _choice(condition: Expr) -> tuple:
    return make("select", condition, const(1.0), const(0.0)), make(
        "select", condition, const(0.0), const(1.0)
    )


def _no_second_derivative(*args: Expr) -> tuple:
    raise SymbolicError(
        "The derivative of an image's gradient is asked for, which is not defined. "
        "Store the gradient as channels of an image of its own and sample that: "
        "graphopt.Image(np.stack([picture, picture_by_u, picture_by_v], axis=-1))."
    )


PARTIALS: dict[str, Callable[..., tuple]] = {
    "add": lambda x, y, z: (const(1.0), const(1.0)),
    "sub": lambda x, y, z: (const(1.0), const(-1.0)),
    "mul": lambda x, y, z: (y, x),
    "neg": lambda x, y: (const(-1.0),),
    "recip": lambda x, y: (make("neg", make("mul", y, y)),),
    "sqrt": _sqrt,
    "sin": lambda x, y: (make("cos", x),),
    "cos": lambda x, y: (make("neg", make("sin", x)),),
    "tan": lambda x, y: (make("add", const(1.0), make("mul", y, y)),),
    "asin": lambda x, y: (_inverse_sine(x),),
    "acos": lambda x, y: (make("neg", _inverse_sine(x)),),
    "atan": lambda x, y: (make("recip", make("add", const(1.0), make("mul", x, x))),),
    "atan2": _atan2,
    "exp": lambda x, y: (y,),
    "log": lambda x, y: (make("recip", x),),
    "pow": _pow,
    "abs": lambda x, y: (make("sign", x),),
    "min": lambda x, y, z: _choice(make("le", x, y)),
    "max": lambda x, y, z: _choice(make("le", y, x)),
    "select": lambda c, x, y, z: (const(0.0), *_choice(c)),
    **{op: lambda *args: (const(0.0),) * (len(args) - 1) for op in ("sign", "floor", "lt", "le", "eq")},
    **{op: lambda *args: (const(0.0),) * (len(args) - 1) for op in ("and", "or", "not")},
    "sample": lambda p, u, v, y: (const(0.0), make("sample_du", p, u, v), make("sample_dv", p, u, v)),
    "sample_cubic": lambda p, u, v, y: (
        const(0.0),
        make("sample_cubic_du", p, u, v),
        make("sample_cubic_dv", p, u, v),
    ),
    **{f"{op}_d{x}": _no_second_derivative for op in ("sample", "sample_cubic") for x in "uv"},
}
"""Operation -> function of its arguments and its value: one partial derivative per argument."""


def jacobian(outputs: Sequence[Expr], seeds: Sequence[dict[Expr, Expr]]) -> list[list[Expr]]:
    """Return the derivative of each output along each direction.

    `seeds[j]` maps the variables that direction j moves to their derivative along it. Returns rows of
    len(seeds) expressions, one row per output.
    """
    graph = _LinearGraph(outputs, seeds)
    graph.eliminate()
    return graph.rows(outputs, len(seeds))


class _LinearGraph:
    """Labelled edges of the linearised graph. Vertices are ids; direction j is vertex -1 - j."""

    def __init__(self, outputs: Sequence[Expr], seeds: Sequence[dict[Expr, Expr]]):
        self.sources: dict[int, dict[int, Expr]] = {}
        self.targets: dict[int, dict[int, Expr]] = {}
        # per vertex the prices of its labels from sources, and to targets
        self.price_in: defaultdict[int, int] = defaultdict(int)
        self.price_out: defaultdict[int, int] = defaultdict(int)
        # an output may also be an inner vertex: its edges end in a vertex of its own
        self.sinks = {~(len(seeds) + i): e for i, e in enumerate(outputs)}
        for j, seed in enumerate(seeds):
            for variable, rate in seed.items():
                self.add(~j, variable.id, rate)
        for e in topological(outputs):
            for a in e.args:
                if a.id in self.sources:
                    self._linearise(e)
                    break
        for sink, e in self.sinks.items():
            if e.id in self.sources:
                self.add(e.id, sink, const(1.0))
        self._drop_dead_ends()

    def _linearise(self, e: Expr) -> None:
        if e.op not in PARTIALS:
            raise SymbolicError(f"No derivative of operation '{e.op}'; add one to PARTIALS in {__name__}.")
        for a, partial in zip(e.args, PARTIALS[e.op](*e.args, e), strict=True):
            if a.id in self.sources:
                self.add(a.id, e.id, partial)

    def add(self, source: int, target: int, label: Expr) -> None:
        """Add a label to the edge source -> target."""
        if is_const(label, 0.0):
            return
        into = self.sources.setdefault(target, {})
        before = into.get(source)
        change = 0
        if before is not None:
            label, change = make("add", before, label), -_price(before)
        change += _price(label)
        into[source] = label
        self.targets.setdefault(source, {})[target] = label
        self.price_in[target] += change
        self.price_out[source] += change

    def _drop_dead_ends(self) -> None:
        for k in sorted(self.sources, reverse=True):
            if k >= 0 and not self.targets.get(k):
                self._remove(k)

    def _remove(self, k: int) -> tuple[dict[int, Expr], dict[int, Expr]]:
        """Remove a vertex, return its labels by source and by target."""
        ins, outs = self.sources.pop(k, {}), self.targets.pop(k, {})
        for i, label in ins.items():
            del self.targets[i][k]
            self.price_out[i] -= _price(label)
        for j, label in outs.items():
            del self.sources[j][k]
            self.price_in[j] -= _price(label)
        return ins, outs

    def eliminate(self) -> None:
        """Remove all inner vertices, cheapest first; of equals the one nearest to the outputs."""
        costs = {k: self.price_in[k] * self.price_out[k] for k in self.sources if k >= 0}
        queue = [(cost, -k) for k, cost in costs.items()]
        heapq.heapify(queue)
        while queue:
            cost, k = heapq.heappop(queue)
            k = -k
            if costs.get(k) != cost:  # is gone, or has another price by now
                continue
            del costs[k]
            ins, outs = self._remove(k)
            for j, onward in outs.items():
                for i, label in ins.items():
                    self.add(i, j, make("mul", onward, label))
            for neighbour in (*ins, *outs):
                if neighbour in costs:
                    cost = self.price_in[neighbour] * self.price_out[neighbour]
                    if cost != costs[neighbour]:
                        costs[neighbour] = cost
                        heapq.heappush(queue, (cost, -neighbour))

    def rows(self, outputs: Sequence[Expr], num_directions: int) -> list[list[Expr]]:
        """Read the Jacobian off the remaining edges."""
        result = []
        for i in range(len(outputs)):
            edges = self.sources.get(~(num_directions + i), {})
            result.append([edges.get(~j, const(0.0)) for j in range(num_directions)])
        return result


def _price(label: Expr) -> int:
    """Of multiplying with a label: constants 1 and -1 are nearly free."""
    return 1 if label.op == "const" and abs(label.value) == 1.0 else 4


def substitute(roots: Sequence[Expr], values: dict[Expr, Expr]) -> list[Expr]:
    """`roots` with variables replaced and everything simplified again."""
    new: dict[int, Expr] = {e.id: value for e, value in values.items()}
    for e in topological(roots):
        if e.id not in new:
            args = [new[a.id] for a in e.args]
            new[e.id] = e if all(map(is_, args, e.args)) else make(e.op, *args)
    return [new[e.id] for e in roots]
