"""The device's interpreter against the reference interpreter: all built-in types and random programs."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from interpreter_programs import run_on_device
from test_types_compiled import N, random_case
from vulkan_devices import VARIANTS, shared_device

import graphopt
from graphopt import codegen
from graphopt.codegen.bytecode import INSTRUCTIONS, OPCODE, Instruction, decode, encode
from graphopt.codegen.interpreter import COPY, pack_program
from graphopt.codegen.program import Program
from graphopt.device import VulkanDevice
from graphopt.errors import SymbolicError
from graphopt.types import BUILTIN_TYPES
from graphopt.types.base import (
    EdgeType,
    VariadicEdgeType,
    VertexType,
    working_edge_type,
    working_vertex_type,
)
from graphopt.types.robust_kernels import KERNELS, robust_kernel
from graphopt.vulkan.program import Context
from graphopt.vulkan.schedules.interpreted import Interpreter

EDGES = [
    builtin_type.instantiate(3) if isinstance(builtin_type, VariadicEdgeType) else builtin_type
    for builtin_type in BUILTIN_TYPES
    if isinstance(builtin_type, EdgeType | VariadicEdgeType)
]
VERTICES = [builtin_type for builtin_type in BUILTIN_TYPES if isinstance(builtin_type, VertexType)]
INCLUDE = Path(__file__).resolve().parents[2] / "shaders" / "include"


@cache
def interpreter(access: str, precision: str) -> Interpreter:
    """One per variant: its kernels are built once."""
    return Interpreter(Context(shared_device(access), precision), scratch_bytes=1 << 20)


@pytest.fixture(params=VARIANTS, ids="-".join)
def variant(request) -> Interpreter:
    return interpreter(*request.param)


def assert_close(actual: np.ndarray, expected: np.ndarray, what: str, tolerance: float = 1e-12):
    """Equal up to rounding on the scale of each row's largest output; the same NaN and infinities."""
    finite = np.isfinite(expected)
    assert np.array_equal(finite, np.isfinite(actual)), what
    with np.errstate(invalid="ignore"):
        scale = 1.0 + np.nanmax(np.where(finite, np.abs(expected), 0.0), axis=1, keepdims=True)
    error = np.where(finite, np.abs(actual - np.where(finite, expected, 0.0)), 0.0) / scale
    assert error.max() < tolerance, f"{what}: {error.max()}"
    np.testing.assert_array_equal(actual[~finite], expected[~finite], what)


def edge_inputs(kind, seed: int = 0) -> np.ndarray:
    """(N, num_inputs) of an edge's working form with full information."""
    estimates, parameters, measurement = random_case(kind, seed)
    working = [
        estimate if vertex.working is None else vertex.working.encode(estimate)
        for vertex, estimate in zip(kind.vertices, estimates, strict=True)
    ]
    root = np.random.default_rng(seed).normal(size=(N, kind.residual_dim, kind.residual_dim))
    information = codegen.pack_information(root @ root.transpose(0, 2, 1), "full")
    return np.concatenate([*working, *parameters, measurement, information], axis=-1)


@pytest.mark.parametrize("kind", EDGES, ids=lambda kind: kind.tag)
def test_edge_programs(kind):
    """chi2 and linearize of every built-in edge type, with a robust kernel."""
    number = 1 + EDGES.index(kind) % (len(KERNELS) - 1)
    compiled = codegen.compile_edge(working_edge_type(kind), "full", robust_kernel(number).function)
    inputs = edge_inputs(kind)
    width = np.random.default_rng(1).uniform(0.5, 3.0, N)
    kernel = compiled.kernel
    assert kernel is not None

    def robust(chi2):
        return kernel.interpret(np.stack([chi2, width], axis=-1)).T

    for program in (compiled.chi2, compiled.linearize):
        expected = program.interpret(inputs, robust)
        actual = run_on_device(interpreter("address", "double"), program, inputs, kernel, width)
        assert_close(actual, expected, program.name)
    assert shared_device("address").messages == []


def test_oplus_programs():
    """oplus of every built-in vertex type."""
    rng = np.random.default_rng(2)
    for kind in VERTICES:
        working = working_vertex_type(kind)
        identity = np.tile(np.array(kind.identity), (N, 1))
        x = kind.oplus(identity, 0.4 * rng.normal(size=(N, kind.tangent_dim)))
        x = x if kind.working is None else kind.working.encode(x)
        inputs = np.concatenate([x, 0.7 * rng.normal(size=(N, kind.tangent_dim))], axis=-1)
        program = codegen.compile_vertex(working)
        actual = run_on_device(interpreter("address", "double"), program, inputs)
        assert_close(actual, program.interpret(inputs), program.name)


def test_edge_programs_in_all_variants(variant):
    """Four edge types on both kinds of buffers and in both precisions: programs run in float64 in either."""
    for tag in ("EDGE_SE2", "EDGE_SE3:QUAT", "EDGE_OBSERVATION_BAL", "EDGE_SIM3:EXPMAP"):
        kind = next(edge for edge in EDGES if edge.tag == tag)
        compiled = codegen.compile_edge(working_edge_type(kind))
        inputs = edge_inputs(kind)
        actual = run_on_device(variant, compiled.linearize, inputs)
        assert_close(actual, compiled.linearize.interpret(inputs), tag)
    assert variant.context.device.messages == []


# ---------------------------------------------------------------------------------------- random programs
NUM_CONSTANTS, NUM_INPUTS, NUM_REGISTERS = 5, 7, 40
EXACT = "ADD SUB MUL NEG FMA FMS FNMA DOT2 DOT3 SUM BLOCK ABS SIGN FLOOR MIN MAX".split()
EXACT += "LT LE EQ AND OR NOT SELECT".split()


def random_instruction(rng, name: str) -> Instruction:
    """An instruction on random registers; destinations may be sources."""
    kind = INSTRUCTIONS[OPCODE[name]]
    counts, num_destinations, num_sources = None, kind.num_destinations, kind.num_sources
    if name == "SUM":
        counts = tuple(int(n) for n in rng.integers(0, 7, 4))
        counts = counts if any(counts) else (1, 0, 0, 0)
        num_sources = 2 * (counts[0] + counts[1]) + counts[2] + counts[3]
    elif name == "BLOCK":
        rows, columns = (int(n) for n in rng.integers(1, 4, 2))
        counts = (rows, columns, int(rng.integers(1, 5)), int(rng.integers(0, 4)))
        num_destinations = rows * columns
        num_sources = (rows + columns) * (counts[2] + counts[3])
    destinations = rng.choice(np.arange(NUM_CONSTANTS, NUM_REGISTERS), num_destinations, replace=False)
    sources = rng.integers(0, NUM_REGISTERS, num_sources)
    return Instruction(name, tuple(destinations.tolist()), tuple(sources.tolist()), counts)


def random_program(rng, names: list[str]) -> Program:
    """A program of these instructions; all registers are outputs, constants too."""
    inputs = np.arange(NUM_CONSTANTS, NUM_CONSTANTS + NUM_INPUTS, dtype=np.int32)
    inputs[-1] = -1
    first = NUM_CONSTANTS + NUM_INPUTS - 1  # no input is there
    start = [
        Instruction("FMA", (r,), tuple(rng.integers(0, first, 3).tolist()))
        for r in range(first, NUM_REGISTERS)
    ]
    body = [random_instruction(rng, name) for name in names]
    # values stay of moderate size, so that rounding does
    squash = [Instruction("MIN", (r,), (r, 0)) for r in range(NUM_CONSTANTS, NUM_REGISTERS)]
    squash += [Instruction("MAX", (r,), (r, 1)) for r in range(NUM_CONSTANTS, NUM_REGISTERS)]
    constants = np.concatenate([[1.5, -1.5], rng.normal(size=NUM_CONSTANTS - 2)])
    instructions = [*start]
    for instruction in body:
        instructions += [instruction, *squash]
    outputs = np.arange(NUM_REGISTERS, dtype=np.int32)
    return Program("random", encode(instructions), constants, inputs, outputs, NUM_REGISTERS)


def test_random_programs(variant):
    """Programs of all exact operations, in any order and on any registers, in several chunks."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        program = random_program(rng, rng.permutation(EXACT * 2).tolist())
        inputs = rng.uniform(-1.0, 1.0, (200, NUM_INPUTS))
        small = Interpreter(variant.context, scratch_bytes=128 * 8 * 40) if seed == 0 else variant
        actual = run_on_device(small, program, inputs)
        assert_close(actual, program.interpret(inputs), f"seed {seed}", 1e-10)
    assert variant.context.device.messages == []


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, np.inf, -np.inf, np.nan, 1e-310, 1e300, -1e-300]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_plain_operation(variant):
    """Each opcode of a fixed number of operands on ordinary and special values, to a few last places."""
    others = ("END", "ROBUST", "SAMPLE", "SAMPLE_CUBIC")  # samples: test_samples_of_images
    names = [k.name for k in INSTRUCTIONS if k.num_sources >= 0 and k.name not in others]
    rng = np.random.default_rng(5)
    special = np.array(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1).T
    inputs = np.concatenate(
        [
            np.concatenate(
                [special, rng.permutation(special)[:, :1], rng.normal(size=(len(special), 3))], axis=1
            ),
            rng.normal(size=(400, 6)) * np.exp(rng.uniform(-8, 8, (400, 1))),
            rng.uniform(-1, 1, (200, 6)),
        ]
    )
    instructions, at = [], 6
    for name in names:
        kind = INSTRUCTIONS[OPCODE[name]]
        targets = tuple(range(at, at + kind.num_destinations))
        instructions.append(Instruction(name, targets, tuple(range(kind.num_sources))))
        at += kind.num_destinations
    outputs = np.arange(6, at, dtype=np.int32)
    program = Program("plain", encode(instructions), np.zeros(0), np.arange(6, dtype=np.int32), outputs, at)
    expected = program.interpret(inputs)
    actual = run_on_device(variant, program, inputs)
    labels = [i.name for i in instructions for _ in i.destinations]
    for column, name in enumerate(labels):
        # the reference multiplies and adds apart, so it may overflow or cancel where the device does not
        fused = name in ("FMA", "FMS", "FNMA", "DOT2", "DOT3")
        rows = np.arange(len(inputs)) >= (len(special) if fused else 0)
        if name in ("SIN", "COS", "SINCOS", "TAN"):  # the reduction is for |x| up to 1e6
            rows = ~np.isfinite(inputs[:, 0]) | (np.abs(inputs[:, 0]) < 1e6)
        if name == "POW":  # negative zero counts as zero
            rows = inputs[:, 0] != 0.0
        a, b = actual[rows, column], expected[rows, column]
        scale = np.abs(inputs[rows]).max(axis=1) ** 2 if fused else np.abs(b)
        error = np.abs(a - b) > 8 * np.finfo(float).eps * scale + 1e-307
        wrong = np.where(np.isfinite(b), error | ~np.isfinite(a), ~((a == b) | (np.isnan(a) & np.isnan(b))))
        assert not wrong.any(), (
            f"{name} at {inputs[rows][wrong][:3]}: {a[wrong][:3]}, expected {b[wrong][:3]}"
        )
    assert variant.context.device.messages == []


def test_samples_of_images(variant, two_float):
    """Bilinear and bicubic samples with derivatives, inside, outside and on the border; NaN for no plane."""
    rng = np.random.default_rng(6)
    images = [graphopt.Image(rng.normal(size=shape).astype(np.float32)) for shape in ((7, 9), (1, 5), (4, 1))]
    handles = [image.planes[0] for image in images]
    code = encode(
        [
            Instruction("SAMPLE", (3, 4, 5), (0, 1, 2)),
            Instruction("SAMPLE_CUBIC", (6, 7, 8), (0, 1, 2)),
            Instruction("SAMPLE", (2, 1, 0), (0, 1, 2)),  # onto its own sources
        ]
    )
    program = Program(
        "sample", code, np.zeros(0), np.arange(3, dtype=np.int32), np.arange(9, dtype=np.int32), 9
    )
    place = np.concatenate([rng.uniform(-2, 10, (300, 2)), rng.integers(-1, 9, (100, 2))])
    place[:3] = [[np.nan, 1], [1, np.nan], [np.inf, -np.inf]]
    number = rng.choice([*handles, 0, max(handles) + 1, 0.5, -1.0, 1e9], len(place))
    inputs = np.column_stack([number, place])
    for own, tolerance in ((variant, 1e-14), (two_float, 1e-12)):
        own.planes.update(handles)
        assert_close_samples(run_on_device(own, program, inputs), program.interpret(inputs), tolerance)
        images[0].pixels[...] *= 2.0
        assert own.planes.update(handles) == (True, False)
        assert_close_samples(run_on_device(own, program, inputs), program.interpret(inputs), tolerance)
        assert own.planes.update(handles) == (False, False)


def assert_close_samples(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Three samples; the derivatives of one that is NaN are NaN or zero: GPUs may take 0 times NaN for 0."""
    for columns in ([2, 1, 0], [3, 4, 5], [6, 7, 8]):
        value, *rates = (actual[:, column] for column in columns)
        nowhere = np.isnan(expected[:, columns[0]])
        assert np.array_equal(np.isnan(value), nowhere)
        assert all((np.isnan(rate) | (rate == 0.0))[nowhere].all() for rate in rates)
        assert_close(actual[~nowhere], expected[~nowhere], "samples", tolerance)


@pytest.fixture
def two_float() -> Interpreter:
    """On a device without float64."""
    return _two_float()


@cache
def _two_float() -> Interpreter:
    return Interpreter(Context(VulkanDevice(validation=True, masked_features=["float64"]), "mixed"), 1 << 20)


def test_programs_without_float64(two_float):
    """Pairs of float32 give about 45 bits."""
    for tag in ("EDGE_SE2", "EDGE_SE3:QUAT", "EDGE_OBSERVATION_BAL", "EDGE_SIM3:EXPMAP"):
        kind = next(edge for edge in EDGES if edge.tag == tag)
        compiled = codegen.compile_edge(working_edge_type(kind), "full", robust_kernel(3).function)
        inputs, width = edge_inputs(kind), np.full(N, 1.5)
        kernel = compiled.kernel
        assert kernel is not None
        expected = compiled.linearize.interpret(
            inputs,
            lambda chi2: kernel.interpret(np.stack([chi2, width], axis=-1)).T,  # noqa: B023
        )
        actual = run_on_device(two_float, compiled.linearize, inputs, kernel, width)
        assert_close(actual, expected, tag, 1e-11)
    assert two_float.context.device.messages == []


# ---------------------------------------------------------------------------------------- packing
def test_opcodes_of_the_shader_are_those_of_the_table():
    """interpret_opcodes.glsl numbers every instruction as INSTRUCTIONS does."""
    text = (INCLUDE / "interpret_opcodes.glsl").read_text()
    found = {name: int(number) for name, number in re.findall(r"([A-Z_]+[0-9]?) = (\d+)", text)}
    assert found == {**OPCODE, "COPY": COPY}
    handled = set(re.findall(r"case ([A-Z0-9_]+):", (INCLUDE / "interpret.glsl").read_text()))
    assert handled == set(found) - {"END", "SUM", "BLOCK", "ROBUST"}


def test_robust_kernel_is_put_inside():
    """A packed program has no ROBUST, outputs that are constants have a row, unused inputs have none."""
    kind = next(edge for edge in EDGES if edge.tag == "EDGE_SE2")
    compiled = codegen.compile_edge(kind, "identity", robust_kernel(1).function)
    plain = pack_program(compiled.chi2)
    packed = pack_program(compiled.chi2, compiled.kernel)
    assert plain.width_row == -1 and packed.width_row >= 0
    assert len(packed.words) > len(plain.words)
    heads = packed.words[:, 0] & 0xFFFF
    assert OPCODE["ROBUST"] in [OPCODE[i.name] for i in decode(compiled.chi2.code)]
    assert heads[-1] == OPCODE["END"]
    assert (packed.output_rows >= 0).all() and packed.output_rows.max() < packed.num_rows


def test_too_many_registers_are_refused():
    """The half words of an instruction number 65536 registers."""
    code = encode([Instruction("ADD", (65535,), (0, 1))])
    inputs = np.arange(2, dtype=np.int32)
    program = Program("wide", code, np.zeros(0), inputs, np.array([65535], np.int32), 65536)
    assert pack_program(program).num_rows == 65536
    constant = Program("wide", code, np.ones(1), inputs, np.array([65535, 0], np.int32), 65536)
    with pytest.raises(SymbolicError, match="Split the edge type"):
        pack_program(constant)
