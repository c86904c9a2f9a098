"""Programs as GLSL: the text evaluates to the program's values, for all edge types and all operations."""

from __future__ import annotations

import dataclasses
import textwrap

import glsl_golden
import numpy as np
import pytest
from glsl_text import evaluate, loaded_names
from gpu_kernel_cases import Case, runner_for

from graphopt.codegen import build_program, compile_robust_kernel
from graphopt.codegen.assignment import Statement, assign
from graphopt.codegen.edge import compile_vertex
from graphopt.codegen.glsl import WRAP_AT, _wrapped, _Writer, write
from graphopt.codegen.gpu import (
    EdgeSignature,
    chi2_kernel,
    linearize_kernel,
    oplus_kernel,
    pair_kernel,
)
from graphopt.codegen.gpu.inputs import edge_loads
from graphopt.codegen.gpu.kernel import GpuKernel, Interface
from graphopt.codegen.gpu.packed_products import recomputed_product
from graphopt.codegen.gpu.product_shapes import tiles_kernel
from graphopt.codegen.gpu.programs import linearize_program, pair_program, product_program
from graphopt.device import spirv
from graphopt.errors import ShapeError
from graphopt.symbolic import const, make, var
from graphopt.types import BUILTIN_TYPES
from graphopt.types.base import EdgeType, VariadicEdgeType, VertexType, working_vertex_type
from graphopt.types.robust_kernels import huber

EDGES = [kind for kind in BUILTIN_TYPES if isinstance(kind, (EdgeType, VariadicEdgeType))]
VERTICES = [kind for kind in BUILTIN_TYPES if isinstance(kind, VertexType)]


def edge_inputs(case, rng):
    """Names and values (n, num_inputs) of the inputs of an edge's programs, x of all slots last."""
    loads = [load.name for group in edge_loads(case.signature, False) for load in group]
    columns = [x[case.rows[:, k]] for k, x in enumerate(case.estimates)]
    columns += [p[case.parameter_rows[:, k]] for k, p in enumerate(case.parameters)]
    columns += [case.measurement, np.ones((case.n, case.signature.num_data - case.measurement.shape[1]))]
    return loads, np.concatenate(columns, axis=1)


@pytest.mark.parametrize("kind", EDGES, ids=lambda kind: kind.name)
def test_text_of_every_edge_type(kind):
    """Linearize, pair and product of every type: statements of the text against the bytecode's meaning."""
    case = Case(kind, 9, "diagonal", 1)
    signature, last = case.signature, case.signature.arity - 1
    rng = np.random.default_rng(5)
    loads, values = edge_inputs(case, rng)
    slots = tuple(range(signature.arity))
    checks = [(linearize_program(signature, last), linearize_kernel(signature, last))]
    checks.append(
        (
            product_program(signature, 0, slots),
            tiles_kernel(recomputed_product(signature, 0, slots, "double")),
        )
    )
    if last:
        checks.append((pair_program(signature, 0, last), pair_kernel(signature, 0, last)))
    for program, kernel in checks:
        extra = rng.normal(size=(case.n, program.num_inputs - values.shape[1]))
        names = [
            *loads,
            *(f"x{t}_{i}" for t in slots for i in range(signature.edge_type.vertices[t].tangent_dim)),
        ]
        inputs = np.concatenate([values, extra], axis=1)
        expected = program.interpret(inputs)
        named = dict(zip(names, inputs.T, strict=False))
        outputs, _ = evaluate(kernel.source, named, "double")
        assert set(loaded_names(kernel.source)) <= set(named)
        assert outputs
        for k, output in enumerate(outputs):
            size = 1.0 + np.abs(expected[:, : len(outputs)]).max()
            np.testing.assert_allclose(output / size, expected[:, k] / size, atol=1e-13, err_msg=kernel.name)


@pytest.mark.parametrize("kind", VERTICES, ids=lambda kind: kind.name)
def test_text_of_every_oplus(kind):
    """All numbers of the moved estimate."""
    kind = working_vertex_type(kind)
    program, kernel = compile_vertex(kind), oplus_kernel(kind)
    inputs = np.random.default_rng(0).normal(size=(5, program.num_inputs))
    names = [f"x_{i}" for i in range(kind.storage_dim)] + [f"delta_{i}" for i in range(kind.tangent_dim)]
    _, values = evaluate(kernel.source, dict(zip(names, inputs.T, strict=True)), "double")
    expected = program.interpret(inputs)
    for i in range(kind.storage_dim):
        written = f"out_{i} = "
        [expression] = [
            line.split(" = ")[1].rstrip(";") for line in kernel.source.splitlines() if written in line
        ][1:]
        value = (
            values[expression] if expression in values else float(expression.strip("()").removesuffix("lf"))
        )
        np.testing.assert_allclose(value, expected[:, i], atol=1e-13)


# ---------------------------------------------------------------- operations on the device


def map_kernel(program, arithmetic, wide):
    """A kernel that evaluates a program per row: `inputs` (n, k) -> `outputs` (n, m)."""
    names = [f"in_{i}" for i in range(program.num_inputs)]
    outputs = [f"out_{i}" for i in range(program.num_outputs)]
    assignment = assign(program, names, outputs, compile_robust_kernel(huber), "in_1")
    kind = "wide" if wide else "real"
    text = write(
        assignment,
        dict.fromkeys(names, kind),
        arithmetic,
        assignment.needed_by(outputs) if wide else (),
        dict.fromkeys(outputs, kind),
    )
    interface = Interface(("num_rows",))
    interface.add("inputs", f"INPUT(%, {kind}, inputs)")
    interface.add("outputs", f"OUTPUT(%, {kind}, outputs)")
    lines = [f"  const {kind} {name} = inputs.at[row * {len(names)} + {i}];" for i, name in enumerate(names)]
    lines += [f"  {line}" for line in text.lines]
    lines += [
        f"  outputs.at[row * {len(outputs)} + {i}] = {text.outputs[name]};" for i, name in enumerate(outputs)
    ]
    source = "\n".join(
        [
            "#version 450",
            "#extension GL_GOOGLE_include_directive : require",
            "#define NUM_BUFFERS 2",
            *(["#define GRAPHOPT_TWO_FLOAT"] if arithmetic == "two_float" else []),
            '#include "common.glsl"',
            '#include "generated.glsl"',
            '#include "generated_math.glsl"',
            interface.text(),
            "void main() {",
            "  const uint row = WORKGROUP * WORKGROUP_SIZE + LANE;",
            "  if (row >= push.num_rows) return;",
            *lines,
            "}",
        ]
    )
    return GpuKernel(
        program.name, source, arithmetic, ("inputs", "outputs"), ("num_rows",), {0: 64}, 0, 0, len(outputs)
    )


def run_program(program, inputs, arithmetic="double", wide=True, access="address"):
    """Values of a program at `inputs`, computed on the device."""
    runner = runner_for(access, arithmetic)
    dtype = np.float64 if wide else np.float32
    kernel = map_kernel(program, arithmetic, wide)
    arrays = {
        "inputs": inputs.ravel().astype(dtype),
        "outputs": np.zeros(len(inputs) * program.num_outputs, dtype),
    }
    groups = -(-len(inputs) // 64)
    [values] = runner.run(kernel, arrays, {"num_rows": len(inputs)}, groups, ["outputs"])
    assert runner.device.messages == []
    return values.reshape(len(inputs), -1)


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, np.inf, -np.inf, np.nan]


def arguments(*ranges, count=4000, seed=0):
    """Random numbers of both signs and many sizes between 10^low and 10^high."""
    rng = np.random.default_rng(seed)
    columns = [rng.choice([-1.0, 1.0], count) * 10.0 ** rng.uniform(low, high, count) for low, high in ranges]
    return np.stack(columns, axis=1)


FUNCTIONS = {
    "sin": arguments((-12, 6)),
    "cos": arguments((-12, 6)),
    "tan": arguments((-12, 6)),
    "asin": arguments((-12, 0)),
    "acos": arguments((-12, 0)),
    "atan": arguments((-12, 12)),
    "atan2": arguments((-8, 8), (-8, 8)),
    "exp": arguments((-12, 2.84)),
    "log": np.abs(arguments((-300, 300))),
    "pow": np.abs(arguments((-6, 6), (-2, 1.5))) * [1.0, -1.0],
    "sqrt": np.abs(arguments((-300, 300))),
    "recip": arguments((-300, 300)),
}


def scale_of_errors(operation, inputs, values):
    """What errors are relative to: |y|, or what rounding the argument does to y."""
    size = np.abs(values)
    if operation in ("sin", "cos"):
        return np.maximum(size, 0.1)
    if operation == "tan":
        return np.maximum(size, 0.1) * (1.0 + size)
    if operation == "pow":
        return size * (1.0 + np.abs(inputs[:, 1:] * np.log(inputs[:, :1])))
    if operation == "exp":
        return size * (1.0 + np.abs(inputs))
    return size


def rounded_to_pairs(x):
    """The nearest numbers that two floats hold."""
    high = x.astype(np.float32).astype(float)
    return high + (x - high).astype(np.float32)


@pytest.mark.parametrize("operation", FUNCTIONS)
def test_elementary_functions(operation):
    """float64 within 4 units in the last place; float32 within 1e-6 relative to max(|y|, |x| |y'|)."""
    inputs = FUNCTIONS[operation]
    variables = [var(f"v{i}") for i in range(inputs.shape[1])]
    program = build_program(operation, variables, [make(operation, *variables)])
    expected = program.interpret(inputs)
    with np.errstate(all="ignore"):
        actual = run_program(program, inputs)
    ulps = np.abs(actual - expected) / np.spacing(np.abs(expected))
    assert np.nanmax(ulps) <= 4.0
    np.testing.assert_array_equal(np.isfinite(actual), np.isfinite(expected))

    # two floats: 48 bits, exponents of float32
    usable = inputs[(np.abs(inputs) < 1e15).all(axis=1) & (np.abs(inputs) > 1e-12).all(axis=1)]
    usable = rounded_to_pairs(usable)
    with np.errstate(all="ignore"):
        expected = program.interpret(usable)
    inside = (np.abs(expected) < 1e18) & (np.abs(expected) > 1e-18)
    actual = run_program(program, usable, "two_float")
    allowed = scale_of_errors(operation, usable, expected)
    assert (np.abs(actual - expected) / allowed)[inside].max() < 1e-13

    small = inputs[(np.abs(inputs) < 1e3).all(axis=1) & (np.abs(inputs) > 1e-30).all(axis=1)]
    small = small.astype(np.float32).astype(float)
    with np.errstate(all="ignore"):
        expected = program.interpret(small)
    inside = (np.abs(expected) < 1e37) & (np.abs(expected) > 1e-30)
    actual = run_program(program, small, "mixed", wide=False)
    allowed = scale_of_errors(operation, small, expected)
    assert (np.abs(actual - expected) / allowed)[inside].max() < 1e-6


@pytest.mark.parametrize(
    "arithmetic,wide,largest,tolerance",
    [("double", True, 308.0, 6e-16), ("two_float", True, 38.0, 1e-13), ("mixed", False, 38.0, 3e-7)],
)
def test_angles_of_many_turns(arithmetic, wide, largest, tolerance):
    """Sine and cosine of any finite angle, such as a clock times a frequency."""
    rounded = {"double": np.asarray, "two_float": rounded_to_pairs, "mixed": np.float32}[arithmetic]
    angles = arguments((3.5, largest), count=2000)
    near = np.pi / 2 * np.round(10.0 ** np.linspace(3.5, 15, 50))  # where one of both is almost zero
    edges = np.float32([2.0**13, 2.0**20, np.nextafter(np.float32(2.0**20), np.float32(0.0)), 2.0**31])
    angles = np.concatenate([angles[:, 0], near, edges, -edges])
    angles = np.asarray(rounded(angles), float)[:, None]
    x = var("x")
    program = build_program("turns", [x], [make("sin", x), make("cos", x)])
    actual = run_program(program, angles, arithmetic, wide)
    np.testing.assert_allclose(actual, program.interpret(angles), rtol=0.0, atol=tolerance)
    assert np.isnan(run_program(program, np.array([[np.inf], [-np.inf], [np.nan]]), arithmetic, wide)).all()


@pytest.mark.parametrize(
    "arithmetic,wide", [("double", True), ("mixed", True), ("mixed", False), ("two_float", True)]
)
def test_every_operation_at_special_values(arithmetic, wide):
    """NaN, infinities and signs as the bytecode defines them."""
    x, y, z = var("x"), var("y"), var("z")
    outputs = [
        make(op, x, y)
        for op in ("add", "mul", "sub", "min", "max", "lt", "le", "eq", "and", "or", "atan2", "pow")
    ]
    outputs += [
        make(op, x) for op in ("neg", "abs", "sign", "floor", "not", "recip", "sqrt", "exp", "log", "atan")
    ]
    outputs += [make("select", x, y, z), make("select", make("lt", x, y), z, const(2.5))]
    outputs += [make("add", make("lt", x, y), z), make("min", const(np.inf), x)]
    grid = np.array(np.meshgrid(SPECIAL, SPECIAL, [4.0, np.nan])).reshape(3, -1).T
    program = build_program("special", [x, y, z], outputs)
    expected = program.interpret(grid)
    actual = run_program(program, grid, arithmetic, wide)
    tolerance = {"two_float": 1e-13}.get(arithmetic, 1e-15) if wide else 1e-6
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=0.0)


def test_sums_blocks_and_the_robust_kernel():
    """SUM with all kinds of terms, BLOCK, SINCOS and ROBUST."""
    v = [var(f"v{i}") for i in range(12)]
    total = make("mul", v[0], v[1])
    for i in range(2, 8, 2):
        total = make("sub" if i % 4 else "add", total, make("mul", v[i], v[i + 1]))
    total = make("sub", make("add", total, v[8]), v[9])
    matrix = [
        make("add", make("mul", v[i], v[6 + j]), make("mul", v[i + 3], v[9 + j]))
        for i in range(3)
        for j in range(3)
    ]
    trigonometry = [make("sin", v[2]), make("cos", v[2])]
    robust = [make("robust_rho", make("mul", v[3], v[3])), make("robust_weight", make("mul", v[3], v[3]))]
    program = build_program("sums", v, [total, *matrix, *trigonometry, *robust])
    assert {"SUM", "BLOCK", "SINCOS", "ROBUST"} <= set(program.operation_counts())
    inputs = np.random.default_rng(0).normal(size=(70, 12))
    expected = program.interpret(inputs, lambda chi2: huber(chi2, inputs[:, 1]))
    np.testing.assert_allclose(run_program(program, inputs), expected, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(run_program(program, inputs, "mixed", False), expected, rtol=1e-4, atol=1e-6)


def test_dead_statements_are_left_out():
    """Kernels have the statements of their outputs only; wide values are narrowed once."""
    x, y = var("x"), var("y")
    program = build_program("two", [x, y], [make("exp", x), make("log", make("add", x, y))])
    assignment = assign(program, ["x", "y"], ["a", "b"])
    assert [s.operation for s in assignment.keep(["a"]).statements] == ["EXP"]
    assert assignment.keep(["a"]).inputs() == {"x"}
    assert assignment.needed_by(["b"]) >= {"x", "y", "b"}
    text = write(assignment, {"x": "wide", "y": "wide"}, "mixed", assignment.needed_by(["a"]))
    assert "const wide a = math_exp(x);" in text.lines
    assert sum("= to_real(x);" in line for line in text.lines) == 1
    with pytest.raises(ShapeError, match="expected 2 and 2"):
        assign(program, ["x"], ["a", "b"])


def test_constants_of_every_size():
    """Literals keep float64's digits; tiny ones do not become zero in float32."""
    x = var("x")
    numbers = [0.1, 1e-300, 1e300, -2.0, 3.0, 1.0 / 3.0, 1e16, 123456789.0]
    program = build_program("numbers", [x], [make("mul", x, const(v)) for v in numbers])
    np.testing.assert_array_equal(run_program(program, np.ones((3, 1))), np.tile(numbers, (3, 1)))
    narrow = run_program(program, np.ones((3, 1)), "mixed", False)
    with np.errstate(over="ignore"):
        expected = np.array(numbers, np.float32)
    expected[1] = np.finfo(np.float32).tiny
    np.testing.assert_array_equal(narrow, np.tile(expected, (3, 1)))


def test_names_of_users_do_no_harm():
    """Any name of a type or argument: comments stay comments, files have plain names."""

    def residual(b, é, gl_x):
        return b + é - gl_x

    point = next(kind for kind in VERTICES if kind.tangent_dim == 2 and kind.storage_dim == 2)
    kind = dataclasses.replace(
        next(edge for edge in EDGES if edge.name == "EdgePointXY"),
        name="a/b ä\\",
        tag="X\\",
        vertices=(point, point),
        residual=residual,
    )
    kernel = chi2_kernel(EdgeSignature(kind, "identity"))
    assert spirv.compile_generated(kernel.name, kernel.source, "address", "double")
    assert "const wide vertex0_0" in kernel.source
    named = dataclasses.replace(kind, residual=lambda b, x1, z__: b + x1 - z__)
    assert "const wide in_b_0" in chi2_kernel(EdgeSignature(named, "identity")).source


def test_a_kernel_needs_a_compiler(monkeypatch):
    """The message says what to install."""
    from graphopt import pyglslang
    from graphopt.pyglslang import ShaderError

    monkeypatch.setattr(pyglslang, "is_available", lambda: False)
    with pytest.raises(ShaderError, match="needs a GLSL compiler"):
        spirv.compile_generated("kernel", "void main() {}", "address", "double")


# ---------------------------------------------------------------- golden files


def test_golden_texts():
    """Text by text; no file is left over."""
    kernels = list(glsl_golden.golden_kernels())
    for kernel in kernels:
        assert glsl_golden.text_path(kernel).read_text() == kernel.source, glsl_golden.UPDATE
    assert {path.name for path in glsl_golden.FOLDER.glob("*.glsl")} == {
        glsl_golden.text_path(kernel).name for kernel in kernels
    }


def test_long_lines_are_broken_at_spaces():
    """As textwrap does, also where a word is longer than a line."""
    for length in (1, 7, 60, 113, 114, 115, 200):
        words = ["const", "real", "x", "=", "a" * length, *["b" * 40] * 9, "c" * length, "d;"]
        expected = textwrap.wrap(" ".join(words), WRAP_AT, subsequent_indent="    ", break_long_words=False)
        assert _wrapped(" ".join(words)) == expected


@pytest.mark.parametrize(
    ("inputs", "wide", "expected"),
    [
        (("wide", "wide"), (), "wide_lt(x, y)"),
        (("wide", "real"), (), "wide_lt(x, to_wide(y))"),
        (("real", "real"), ("t",), "wide_lt(to_wide(x), to_wide(y))"),
        (("real", "real"), (), "x < y"),
    ],
)
def test_comparisons_are_as_wide_as_what_they_compare(inputs, wide, expected):
    """Of pairs of float32 by a function."""
    writer = _Writer(dict(zip("xy", inputs, strict=True)), "two_float", set(wide))
    writer.statement(Statement("LT", ("t",), ("x", "y")))
    assert expected in writer.lines[-1]
