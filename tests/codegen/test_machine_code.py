"""Programs that are compiled into the CPU modules are found there and give the interpreter's digits."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from simulation import disturb, simulated_map

import slam_bridge as sb
from graphopt.codegen.bytecode import INSTRUCTIONS
from graphopt.codegen.machine_code import fingerprint, function, lines_of, programs_of
from graphopt.codegen.program import Program
from graphopt.cpu_kernels import kernels
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver import cpu
from slam_bridge.selection import select

LINES = lines_of(Path(__file__).parents[2] / "native" / "machine_code.txt")


def interpreted(program):
    """The same program with a register more: none that was compiled."""
    return kernels.Program(
        program.code,
        program.constants,
        program.input_registers,
        program.output_registers,
        program.num_registers + 1,
    )


@pytest.mark.parametrize("line", LINES)
def test_every_program_has_the_interpreters_digits(line):
    """For one lane, a vector, some vectors and more than a chunk; also for numbers that are none."""
    rng = np.random.default_rng(0)
    for program in programs_of(line):
        assert program.native.is_machine_code, f"{program.name}: build the native modules again"
        assert not interpreted(program).is_machine_code
        if "robust" in program.name:
            continue  # below
        for count in (1, 8, 21, 70):
            inputs = rng.uniform(0.1, 1.5, (count, program.num_inputs)) * rng.choice([-1.0, 1.0], (count, 1))
            inputs[::5, ::3] = rng.choice([0.0, np.inf, np.nan, -1e300, 1e-300])
            np.testing.assert_array_equal(program.run(inputs), interpreted(program).run(inputs))


@pytest.mark.parametrize("line", [line for line in LINES if "robust" not in line])
def test_the_text_computes_what_the_program_does(line):
    """C++ as it is written, read as Python, on one lane."""
    rules = [
        (r"const Vec (\w+) = ", r"\1 = "),
        (r"Vec \w+, \w+;\n", "\n"),
        (r"(op_SINCOS)\((.*), (\w+), (\w+)\);", r"\3, \4 = \1(\2)"),
        (r"load\(f \+ (\d+) \* Stride\)", r"frame[\1]"),
        (r"store\(f \+ (\d+) \* Stride, (\w+)\)", r"frame[\1] = \2"),
        (r"Vec\{\}", "0.0"),
        (r"broadcast\((.*?)\)", r"float.fromhex('\1')"),
    ]
    names = {f"op_{kind.name}": kind.evaluate for kind in INSTRUCTIONS if kind.evaluate is not None}
    names.update(fma=lambda a, b, c: a * b + c, fnma=lambda a, b, c: c - a * b)
    for program in programs_of(line):
        text = function(program, "f").split("frame + at;\n")[1].split("\n  }\n")[0]
        for pattern, meant in rules:
            text = re.sub(pattern, meant, text)
        inputs = np.random.default_rng(0).uniform(0.1, 1.5, (1, program.num_inputs))
        frame = dict(enumerate(program.constants.tolist()))
        frame.update(zip(program.input_registers.tolist(), inputs[0], strict=True))
        exec("\n".join(row.strip() for row in text.split("\n")), {**names, "frame": frame})
        found = [frame[register] for register in program.output_registers.tolist()]
        np.testing.assert_allclose(found, interpreted(program).run(inputs)[0], rtol=1e-12, atol=1e-12)


def test_programs_differ():
    """No two have one fingerprint."""
    every = [program for line in LINES for program in programs_of(line)]
    assert len({fingerprint(kernel) for kernel in every}) == len({kernel.code.tobytes() for kernel in every})


@pytest.mark.parametrize("sigma", [1.0, 0.7], ids=["identity", "diagonal"])
def test_a_window_with_kernels_has_the_interpreters_digits(sigma, monkeypatch):
    """chi2, H and b of a visual-inertial window with robust kernels, bit by bit."""
    world, _ = simulated_map(np.random.default_rng(3), 0.25 * np.arange(5), 80, pixels=2.0)
    disturb(world, np.random.default_rng(4))
    world.observations["sigma"][:] = sigma
    ids = world.keyframes.ids
    graph = sb.Window().load(select(world, ids[1:], ids[:1], inertial=ids), sb.SolveOptions())

    def linearized():
        solver = cpu.CpuBlockSolver(graph, Structure(graph.select()), SolverOptions(device="cpu"))
        return solver.linearize(), solver.chi2(), solver.values.copy(), solver.b.copy()

    monkeypatch.setattr(cpu, "compiled_edge", cpu.compiled_edge.__wrapped__)  # each time anew
    with monkeypatch.context() as patch:
        patch.setattr(Program, "native", property(interpreted))
        expected = linearized()
    found = linearized()
    for value, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("line", ["EdgeSE3", "EdgeSE3 full soft", "VertexSE3 full plain", "EdgeSE3 oplus"])
def test_wrong_lines_are_refused(line):
    """A line of the list that names no programs stops the build."""
    with pytest.raises(ValueError, match=f"'{line}': expected an edge type"):
        programs_of(line)
