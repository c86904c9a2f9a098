"""What three ways to write kernels gain on this GPU: each by itself, in a process of its own.

    python benchmarks/kernel_variants.py [--scale S]

    rsqrt      1 / sqrt(x) as inversesqrt(x)
    branches   of a choice only the side that is taken is computed, where it costs `LEAST_MOVED` operations
    affinity   of the instructions that free as many registers, the one whose operands are freshest

Printed: microseconds of a linearisation and of a matrix-free product in double and mixed precision, once
both have run until they get no faster: an idle device runs on low clocks. "As is" is what the package does.
What gains belongs into `graphopt.codegen`, what does not is told in docs/seeds.md.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import heapq
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [
    str(Path(__file__).resolve().parents[1] / "examples"),
    str(Path(__file__).resolve().parents[1]),
]

import graphopt
from graphopt import datasets
from graphopt.codegen import glsl
from graphopt.codegen import order as ordering
from graphopt.codegen.gpu import kernel
from graphopt.solver.computed.inline import inlined
from graphopt.solver.registry import SolverOptions, create_block_solver
from graphopt.solver.structure import Structure

VARIANTS = ("as is", "rsqrt", "branches", "affinity")
PROBLEMS = ("bundle", "bundle, Huber", "poses", "shading")
WARM_UP_SECONDS = 0.5
"""Of linearisations and products that are not counted, and again while they get faster."""
FASTER = 0.95
MOST_WARM_UPS = 6
LEAST_MOVED = 12
"""Operations; a root, a division and a function count 8 each."""
_PHASES = ("linearize", "linear_solver")
SLOW = set("SQRT DIV RECIP SIN COS SINCOS TAN ASIN ACOS ATAN ATAN2 EXP LOG POW".split())


def problem(name: str, scale: float) -> Any:
    """A graph."""
    if name == "poses":
        return datasets.sphere(int(40 * scale), int(250 * scale))
    if name == "shading":
        import shape_from_shading

        graph, _ = shape_from_shading.build(shape_from_shading.generated(int(384 * scale)))
        return inlined(graph, graph.select())[0]
    graph = datasets.ba(cameras=int(100 * scale), points=int(20000 * scale), camera="bal")
    if "Huber" in name:
        graph.set_robust_kernel("Huber", width=1.0)
    return graph


# ---------------------------------------------------------------- variants


class _Roots(glsl._Writer):
    """1 / sqrt(x) as one function."""

    def statement(self, statement: Any) -> None:
        if statement.operation == "SQRT":
            self.__dict__.setdefault("roots", {})[statement.targets[0]] = statement.sources[0]
        super().statement(statement)

    def _expression(self, statement: Any, kind: str) -> str:
        root = self.__dict__.get("roots", {}).get(statement.sources[0])
        if statement.operation == "RECIP" and root is not None and self.arithmetic != "two_float":
            return f"inversesqrt({self.source(root, kind)})"
        return super()._expression(statement, kind)


def branching_write(
    assignment: Any, inputs: Any, arithmetic: Any, wide: Any = (), output_types: Any = None
) -> glsl.Text:
    """As `glsl.write`; statements that only one side of a choice needs stand in its branch."""
    statements = assignment.statements
    producer = {target: k for k, each_statement in enumerate(statements) for target in each_statement.targets}
    users: dict[int, set[int]] = {k: set() for k in range(len(statements))}
    for k, statement in enumerate(statements):
        for name in statement.names():
            if name in producer:
                users[producer[name]].add(k)
    for value in assignment.outputs.values():
        if value in producer:
            users[producer[value]].add(-1)
    moved: dict[tuple[int, int], list[int]] = {}
    owner: dict[int, int] = {}
    for k, statement in enumerate(statements):
        for side in (1, 2) if statement.operation == "SELECT" else ():
            inside = _only_for(k, statement.sources[side], statements, producer, users)
            cost = sum(statements[j].num_flops + 7 * (statements[j].operation in SLOW) for j in inside)
            if cost >= LEAST_MOVED:
                moved[k, side] = sorted(inside)
                owner.update(dict.fromkeys(inside, k))  # of nested choices the outer one, which comes last
    writer = glsl._Writer(inputs, arithmetic, set(wide))

    def emit(k: int, within: int | None) -> None:
        if owner.get(k) != within:
            return
        statement = statements[k]
        if (k, 1) not in moved and (k, 2) not in moved:
            writer.statement(statement)
            return
        (target,) = statement.targets
        kind = "wide" if target in writer.wide else "real"
        writer.types[target] = kind
        condition = writer.source(statement.sources[0], "bool")
        writer.lines += [f"{kind} {target};", f"if ({condition}) {{"]
        for side, end in ((1, "} else {"), (2, "}")):
            lines, converted = writer.lines, set(writer.converted)
            writer.lines = []
            for j in moved.get((k, side), ()):
                emit(j, k)
            value = writer.source(statement.sources[side], kind)
            own, writer.lines, writer.converted = writer.lines, lines, converted
            writer.lines += [*(f"  {line}" for line in own), f"  {target} = {value};", end]

    for k in range(len(statements)):
        emit(k, None)
    types = output_types or {}
    outputs = {k: writer.source(v, types.get(k, "real")) for k, v in assignment.outputs.items()}
    return glsl.Text(writer.lines, outputs)


def _only_for(k: int, source: Any, statements: Any, producer: Any, users: Any) -> set[int]:
    """Statements that nobody but this side of choice k needs."""
    inside: set[int] = set()
    if source not in producer or statements[k].sources.count(source) > 1:
        return inside
    first = producer[source]
    waiting = [first]
    while waiting:
        top = max(waiting)
        waiting.remove(top)
        own = {k} if top == first else set()
        if top not in inside and users[top] <= inside | own:
            inside.add(top)
            waiting += [producer[name] for name in statements[top].names() if name in producer]
    return inside


def fresh_greedy(instructions: list[Any], outputs: Any, constants: set[int]) -> list[Any]:
    """As `order._greedy`, with freshness as the second key."""
    reads = [set(i.sources) - constants for i in instructions]
    readers: dict[int, list[int]] = {}
    for k, values in enumerate(reads):
        for s in values:
            readers.setdefault(s, []).append(k)
    left = Counter({s: len(those) for s, those in readers.items()})
    left.update(set(outputs))
    defined = {d for i in instructions for d in i.destinations}
    missing = [len(values & defined) for values in reads]
    made: dict[int, int] = {}

    def key(k: int) -> tuple[int, int, int]:
        growth = len(instructions[k].destinations) - sum(left[s] == 1 for s in reads[k])
        return growth, -max((made.get(s, -1) for s in reads[k]), default=-1), k

    queue = [key(k) for k, n in enumerate(missing) if n == 0]
    heapq.heapify(queue)
    placed, result = [False] * len(instructions), []
    while queue:
        entry = heapq.heappop(queue)
        k = entry[2]
        if placed[k]:
            continue
        if key(k) < entry:
            heapq.heappush(queue, key(k))
            continue
        placed[k] = True
        result.append(instructions[k])
        for s in reads[k]:
            left[s] -= 1
            for reader in readers.get(s, ()) if left[s] == 1 else ():
                if missing[reader] == 0 and not placed[reader]:
                    heapq.heappush(queue, key(reader))
        for d in instructions[k].destinations:
            made[d] = len(result)
            for reader in readers.get(d, ()):
                missing[reader] -= 1
                if missing[reader] == 0:
                    heapq.heappush(queue, key(reader))
    return result


def apply(variant: str) -> None:
    """Let kernels be made this way from here on."""
    if variant == "rsqrt":
        glsl._Writer = _Roots  # type: ignore[misc]
    elif variant == "branches":
        kernel.write = branching_write  # type: ignore[assignment]
    elif variant == "affinity":
        ordering._greedy = fresh_greedy


def measure(name: str, scale: float) -> str:
    """Microseconds of a linearisation and of a product, in both precisions."""
    found = []
    for precision in ("double", "mixed"):
        graph = problem(name, scale)
        options = SolverOptions("vulkan", "pcg", "off", precision, "matrix-free")
        solver: Any = create_block_solver(graph, Structure(graph.select()), options)
        vector = np.random.default_rng(0).normal(size=solver.dim)
        warm_up(solver, vector)
        times = np.median([round_times(solver, vector) for _ in range(12)], axis=0)
        found.append(" / ".join(f"{time:8.1f}" for time in times))
    return "   ".join(found)


def round_times(solver: Any, vector: np.ndarray) -> list[float]:
    """Microseconds of a linearisation and of a product on the device."""
    before = dict(solver.system.device_seconds)
    solver.linearize()
    solver.largest_gradient()
    solver.multiply(vector)
    return [1e6 * (solver.system.device_seconds[phase] - before[phase]) for phase in _PHASES]


def warm_up(solver: Any, vector: np.ndarray) -> None:
    """Until nothing gets faster."""
    last = np.inf
    for _ in range(MOST_WARM_UPS):
        until, times = time.perf_counter() + WARM_UP_SECONDS, []
        while not times or time.perf_counter() < until:
            times.append(sum(round_times(solver, vector)))
        if np.median(times) > FASTER * last:
            return
        last = float(np.median(times))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="default: 1")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.variant is not None:
        apply(arguments.variant)
        for name in PROBLEMS:
            print(f"{arguments.variant:10} {name:14} {measure(name, arguments.scale)}", flush=True)
        return
    print(f"graphopt {graphopt.__version__}; us of linearisation / product, in double, in mixed")
    for variant in VARIANTS:
        with tempfile.TemporaryDirectory() as cache:  # kernels of a variant must not be found later
            command = [sys.executable, __file__, "--variant", variant, "--scale", str(arguments.scale)]
            subprocess.run(command, check=True, env={**os.environ, "GRAPHOPT_CACHE_DIR": cache})


if __name__ == "__main__":
    main()
