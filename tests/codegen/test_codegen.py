"""From edge types to programs: interpreters agree, Jacobians are right, mistakes are explained."""

from __future__ import annotations

import gc
import os
import stat
from dataclasses import replace

import numpy as np
import pytest
import vm_example_types as examples
from processes import python

from graphopt import codegen, symbolic
from graphopt.codegen import bytecode, cache
from graphopt.codegen import edge as edge_module
from graphopt.codegen.bytecode import INSTRUCTIONS, OPCODE, Instruction
from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError, ShapeError, SymbolicError
from graphopt.types.robust_kernels import huber


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Compile into an empty cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "graphopt"


def edge_inputs(edge, count=50, seed=0):
    """Per vertex storage, and measurement, of random edges; parameters after the vertices."""
    rng = np.random.default_rng(seed)
    types = (*edge.vertices, *edge.parameters)
    return [examples.random_storage(t, count, rng) for t in types], examples.random_measurement(
        edge, count, rng
    )


@pytest.mark.parametrize("variant", codegen.INFORMATION_VARIANTS)
@pytest.mark.parametrize("edge", examples.EDGES, ids=lambda e: e.name)
def test_native_and_reference_interpreter_agree_on_every_program(edge, variant):
    """The native interpreter and the numpy definition of the bytecode compute the same, to rounding."""
    k = codegen.compile_edge(edge, variant)
    rng = np.random.default_rng(1)
    values, measurement = edge_inputs(edge, 70)
    information = codegen.pack_information(examples.random_information(edge, 70, rng, variant), variant)
    inputs = np.concatenate([*values, measurement, information], axis=1)
    for program in (k.chi2, k.linearize):
        actual, expected = program.run(inputs), program.interpret(inputs)
        scale = np.abs(expected).max(axis=1, keepdims=True) + 1.0
        np.testing.assert_allclose(actual / scale, expected / scale, atol=1e-13)


def test_every_opcode_means_what_its_table_says():
    """Each instruction, run by the native interpreter on awkward numbers, equals its numpy definition."""
    awkward = [0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.7, 1e-300, 1e5, 123456.789, -1e8, np.inf, -np.inf, np.nan]
    a, b, c = (x.ravel() for x in np.meshgrid(awkward, awkward, [0.0, 1.0, -2.5, np.nan]))
    inputs = np.stack([a, b, c], axis=-1)
    for kind in bytecode.INSTRUCTIONS:
        if kind.name in ("END", "ROBUST", "SUM", "BLOCK"):
            continue
        destinations = tuple(range(3, 3 + kind.num_destinations))
        code = bytecode.encode(
            [bytecode.Instruction(kind.name, destinations, tuple(k % 3 for k in range(kind.num_sources)))]
        )
        program = codegen.Program(
            kind.name, code, np.zeros(0), np.arange(3, dtype=np.int32), np.array(destinations, np.int32), 6
        )
        actual, expected = program.run(inputs), program.interpret(inputs)
        # the largest fused product is 1e16: its rounding differs in the last digit
        np.testing.assert_allclose(actual, expected, rtol=1e-14, atol=1e-15, err_msg=kind.name)


def test_sums_of_every_shape():
    """SUM with any numbers of added and subtracted products and terms equals its definition."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(40, 8))
    for counts in np.ndindex(3, 3, 4, 3):
        if sum(counts) == 0:
            continue
        num_sources = 2 * (counts[0] + counts[1]) + counts[2] + counts[3]
        sources = tuple(int(s) for s in rng.integers(0, 8, size=num_sources))
        code = bytecode.encode([bytecode.Instruction("SUM", (8,), sources, counts)])
        program = codegen.Program(
            "sum", code, np.zeros(0), np.arange(8, dtype=np.int32), np.array([8], np.int32), 9
        )
        np.testing.assert_allclose(program.run(inputs), program.interpret(inputs), rtol=1e-12, atol=1e-13)


def test_sine_and_cosine_are_accurate_to_one_ulp():
    """Against extended precision: near zero, near multiples of pi/2, beyond the vectorised range."""
    x = symbolic.var("x")
    program = codegen.build_program("sincos", [x], [np.sin(x), np.cos(x)])
    rng = np.random.default_rng(0)
    at = np.concatenate(
        [
            rng.normal(size=20000),
            rng.uniform(-2e5, 2e5, 20000),
            np.arange(-3000, 3000) * np.pi / 2,
            [0.0, 1e300],
        ]
    )
    wide = at.astype(np.longdouble)
    for actual, expected in zip(program.run(at[:, None]).T, (np.sin(wide), np.cos(wide)), strict=True):
        ulp = np.abs(actual - expected) / np.spacing(np.abs(expected).astype(float))
        assert ulp[:-1].max() < 1.0
        assert (
            actual[-1] == pytest.approx(float(expected[-1]), abs=1e-15) or np.finfo(np.longdouble).nmant < 63
        )


def test_blocks_of_every_shape():
    """BLOCK of any size, also with destinations on its sources, equals its definition."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(70, 12))
    for rows, columns, num_pos, num_neg in np.ndindex(4, 4, 4, 3):
        if rows == 0 or columns == 0 or num_pos + num_neg == 0:
            continue
        num_sources = (rows + columns) * (num_pos + num_neg)
        sources = tuple(int(s) for s in rng.integers(0, 12, size=num_sources))
        destinations = tuple(range(8, 8 + rows * columns))
        counts = (rows, columns, num_pos, num_neg)
        code = bytecode.encode([bytecode.Instruction("BLOCK", destinations, sources, counts)])
        (decoded,) = bytecode.decode(code)
        assert decoded == bytecode.Instruction("BLOCK", destinations, sources, counts)
        program = codegen.Program(
            "block", code, np.zeros(0), np.arange(12, dtype=np.int32), np.array(destinations, np.int32), 17
        )
        np.testing.assert_allclose(program.run(inputs), program.interpret(inputs), rtol=1e-12, atol=1e-13)


def test_a_matrix_product_becomes_blocks():
    """(6, 5) times (5, 6), some terms subtracted: four blocks of 3 x 3, each factor is loaded twice."""
    a, b = symbolic.variables("a", 30).reshape(6, 5), symbolic.variables("b", 30).reshape(5, 6)
    signs = np.array([1.0, 1.0, -1.0, 1.0, -1.0])
    inputs = [*a.ravel(), *b.ravel()]
    program = codegen.build_program("product", inputs, list(((a * signs) @ b).ravel()))
    assert program.operation_counts() == {"BLOCK": 4}
    values = np.random.default_rng(0).normal(size=(20, 60))
    left, right = values[:, :30].reshape(-1, 6, 5), values[:, 30:].reshape(-1, 5, 6)
    expected = ((left * signs) @ right).reshape(20, 36)
    np.testing.assert_allclose(program.run(values), expected, rtol=1e-12, atol=1e-13)


def test_blocks_change_no_value_and_no_operation():
    """linearize with and without blocks, on all example edges."""
    for edge in examples.EDGES:
        program = codegen.compile_edge(edge).linearize
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GRAPHOPT_CACHE", "off")
            patch.setattr("graphopt.codegen.program.form_blocks", list)
            plain = codegen.compile_edge(edge).linearize
        assert program.num_flops == plain.num_flops
        inputs = np.random.default_rng(0).uniform(0.2, 1.0, size=(10, plain.num_inputs))
        expected = plain.run(inputs)
        scale = np.abs(expected).max(axis=1, keepdims=True)
        np.testing.assert_allclose(program.run(inputs) / scale, expected / scale, atol=1e-13)


def test_a_symmetric_product_is_computed_once():
    """A' A, whose sums (i, j) and (j, i) are the same."""
    a = symbolic.variables("a", 30).reshape(5, 6)
    program = codegen.build_program("gram", list(a.ravel()), list((a.T @ a).ravel()))
    assert program.num_flops == 21 * 9
    values = np.random.default_rng(0).normal(size=(20, 30))
    matrices = values.reshape(-1, 5, 6)
    expected = (matrices.transpose(0, 2, 1) @ matrices).reshape(20, 36)
    np.testing.assert_allclose(program.run(values), expected, rtol=1e-12, atol=1e-13)


def test_sums_that_need_each_other_are_not_put_together():
    """d1 = a . b, d2 = (a with d1 in it) . b: both share b, but one needs the other."""
    a0, a1, b0, b1 = (symbolic.var(n) for n in ("a0", "a1", "b0", "b1"))
    first = a0 * b0 + a1 * b1
    second = first * b0 + a1 * b1
    third = second * b0 + first * b1
    program = codegen.build_program("chain", [a0, a1, b0, b1], [first, second, third])
    values = np.random.default_rng(0).normal(size=(5, 4))
    x = values.T
    one = x[0] * x[2] + x[1] * x[3]
    two = one * x[2] + x[1] * x[3]
    expected = np.stack([one, two, two * x[2] + one * x[3]], axis=-1)
    np.testing.assert_allclose(program.run(values), expected, rtol=1e-13, atol=1e-13)


WIDE = np.finfo(np.longdouble).nmant >= 63


@pytest.mark.skipif(not WIDE, reason="this processor has no extended precision to compare with")
@pytest.mark.parametrize("name", ["exp", "log", "arctan", "arctan2"])
def test_transcendental_functions_are_accurate_to_two_ulp(name):
    """Against extended precision, in every range that the reductions distinguish."""
    rng = np.random.default_rng(0)
    spread = np.exp(rng.uniform(-300, 300, 20000))
    near = 1.0 + rng.normal(size=20000) * np.exp(rng.uniform(-30, -1, 20000))
    arguments = {
        "exp": [np.concatenate([rng.uniform(-745, 709.7, 40000), rng.normal(size=40000), near - 1.0])],
        "log": [np.concatenate([spread, np.abs(near), rng.uniform(0.4, 3.0, 40000), [5e-324, 1e-310]])],
        "arctan": [np.concatenate([spread, -spread, rng.normal(size=40000), rng.uniform(0.4, 0.6, 40000)])],
        "arctan2": [
            np.concatenate([rng.normal(size=40000), spread[:20000], [0.0, 1.0, -1.0, 3.0, 1e-300, 1e200]]),
            np.concatenate([rng.normal(size=40000), -near, [1.0, 0.0, 0.0, -3.0, 1e-305, -1e200]]),
        ],
    }[name]
    symbols = [symbolic.var(f"x{k}") for k in range(len(arguments))]
    function = getattr(np, name)
    program = codegen.build_program(name, symbols, [function(*symbols)])
    (actual,) = program.run(np.stack(arguments, axis=-1)).T
    expected = function(*(a.astype(np.longdouble) for a in arguments))
    ulp = np.abs(actual - expected) / np.spacing(np.abs(expected).astype(float))
    assert ulp.max() < 2.0, [float(a[ulp.argmax()]) for a in arguments]


def test_transcendental_functions_at_the_edges():
    """Zeros with their sign, infinities, NaN, overflow and underflow, alone and beside ordinary lanes."""
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 710.0, -746.0, 5e-324, 1e308])
    y, x = (a.ravel() for a in np.meshgrid(special, special))
    symbols = symbolic.var("y"), symbolic.var("x")
    functions = [np.arctan2(*symbols), np.arctan(symbols[0]), np.exp(symbols[0]), np.log(symbols[0])]
    program = codegen.build_program("edges", symbols, functions)
    with np.errstate(all="ignore"):
        expected = np.stack([np.arctan2(y, x), np.arctan(y), np.exp(y), np.log(y)], axis=-1)
    for padding in (0, 5):
        inputs = np.concatenate([np.stack([y, x], axis=-1), np.full((padding, 2), 0.5)])
        actual = program.run(inputs)[: len(y)]
        np.testing.assert_allclose(actual, expected, rtol=5e-16)
        np.testing.assert_array_equal(np.signbit(actual[:, :2]), np.signbit(expected[:, :2]))
        alone = np.concatenate([program.run(row[None]) for row in inputs[: len(y)]])
        np.testing.assert_array_equal(alone[:, 2], actual[:, 2])


def test_native_opcodes_are_those_of_the_table():
    """Names, operand counts and order are the same in Python and in C++."""
    expected = [(k.name, k.num_destinations, k.num_sources) for k in bytecode.INSTRUCTIONS]
    assert kernels.vm_opcodes() == expected


def test_malformed_programs_are_refused():
    """A native program is checked once, so that running it cannot leave its registers."""
    good = dict(constants=[], input_registers=[0], output_registers=[1], num_registers=2)
    neg = bytecode.OPCODE["NEG"]
    kernels.Program(code=[neg, 1, 0, 0], **good)
    for code, words in (
        ([neg, 1, 0], "without END"),
        ([neg, 2, 0, 0], "register 2 is outside"),
        ([999], "unknown opcode"),
        ([], "without END"),
        ([bytecode.OPCODE["BLOCK"], 4, 1, 1, 0], "a block of 4 x 1 sums"),
        ([bytecode.OPCODE["BLOCK"], 1, 1, 1, 0, 1, 0, 5, 0], "register 5 is outside"),
    ):
        with pytest.raises(ValueError, match=words):
            kernels.Program(code=code, **good)
    with pytest.raises(ValueError, match="register 7"):
        kernels.Program([0], [], [0], [7], 2)


def test_structure_is_used():
    """Unary prior with a constant Jacobian and identity information: H needs no arithmetic at all."""
    program = codegen.compile_edge(
        examples.own_edge("EdgePriorXYZ", (examples.VERTEX_XYZ,), 3, lambda x, z: x - z), "identity"
    ).linearize
    assert program.operation_counts() == {"SUB": 6, "DOT3": 1}


def test_cancellation_is_kept():
    """(a - b) + (c - d) is not reordered: differences of large neighbours stay exact."""
    a, b, c, d = (symbolic.var(n) for n in "abcd")
    program = codegen.build_program("differences", [a, b, c, d], [(a - b) + (c - d)])
    x = np.array([[1e16 + 4, 1e16, 1.5e16 + 2, 1.5e16]])
    assert program.run(x)[0, 0] == 6.0


def test_own_jacobian_is_used_instead_of_the_derivative():
    """A type with a jacobian function gets exactly that one."""
    edge = examples.own_edge(
        "EdgeOwn",
        (examples.VERTEX_XYZ,),
        3,
        lambda x, z: x - z,
        jacobian=lambda x, z: (np.stack([x * 2.0, z, np.zeros_like(x)], axis=0),),
    )
    x, z = np.array([[1.0, 2.0, 3.0]]), np.array([[4.0, 5.0, 6.0]])
    jacobian = codegen.compile_edge(edge).jacobians.run(np.concatenate([x, z], axis=1)).reshape(3, 3)
    np.testing.assert_array_equal(jacobian, [[2, 4, 6], [4, 5, 6], [0, 0, 0]])


def test_robust_kernel_compiles_to_rho_and_weight():
    """Huber as a program equals Huber in numpy; width is an input."""
    program = codegen.compile_robust_kernel(huber)
    inputs = np.stack([np.linspace(0, 9, 40), np.linspace(0.5, 2, 40)], axis=1)
    np.testing.assert_allclose(program.run(inputs).T, huber(*inputs.T), rtol=1e-14)


MISTAKES = {
    "length": (lambda x, z: x[..., :2], r"shape \(2,\), expected \(3,\)"),
    "no symbol": (lambda x, z: ["a", "b", "c"], "no number"),
    "None": (lambda x, z: None, r"shape \(\), expected \(3,\)"),
    "nan": (
        lambda x, z: np.stack([x[0] - z[0], 0.0 * x[1] + np.sqrt(z[0] * 0 - 1), x[2]]),
        "NaN in component 1",
    ),
    "if": (lambda x, z: x if x[0] > 0 else z, "np.where"),
    "fill": (lambda x, z: _fill(x, z), "np.stack"),
    "ufunc": (lambda x, z: np.spacing(x), "docs/types.md"),
}


def _fill(x, z):
    result = np.zeros(3)
    result[0] = x[0] - z[0]
    return result


@pytest.mark.parametrize("name", MISTAKES)
def test_a_bad_residual_is_explained(name):
    """The error names the edge type, what is wrong, and the way out."""
    residual, words = MISTAKES[name]
    edge = examples.own_edge("EdgeBad", (examples.VERTEX_XYZ,), 3, residual)
    with pytest.raises(SymbolicError, match=words) as caught:
        codegen.compile_edge(edge)
    assert str(caught.value).startswith("EdgeBad: ")


def test_bad_options_and_shapes_are_explained():
    """Unknown information variants, wrong inputs and bad kernels say what was expected."""
    with pytest.raises(OptionError, match="full, diagonal, identity"):
        codegen.compile_edge(examples.EDGE_SE2, "dense")
    with pytest.raises(ShapeError, match=r"expected \(n, 9\)"):
        codegen.compile_edge(examples.EDGE_SE2).errors.run(np.zeros((4, 8)))
    with pytest.raises(ShapeError, match=r"\(num_edges, d, d\)"):
        codegen.pack_information(np.zeros((4, 3)), "full")
    with pytest.raises(SymbolicError, match=r"\(rho, weight\)"):
        codegen.compile_robust_kernel(lambda chi2, width: chi2)
    with pytest.raises(SymbolicError, match="one per vertex, 1"):
        two = lambda x, z: (x, x)  # noqa: E731
        codegen.compile_edge(examples.own_edge("E", (examples.VERTEX_XYZ,), 3, lambda x, z: x - z, two))


def test_bytecode_survives_encoding():
    """Decoding gives back the instructions that were encoded; the printer shows them."""
    program = codegen.compile_edge(examples.EDGE_SE2).linearize
    again = bytecode.encode(list(bytecode.decode(program.code)))
    np.testing.assert_array_equal(again, program.code)
    lines = program.disassemble().splitlines()
    assert len(lines) == sum(program.operation_counts().values())
    assert any(" = SINCOS " in line for line in lines) and "flops" in program.explain()


def test_programs_are_kept_on_disk(own_cache, monkeypatch):
    """The second compilation reads the file, and gives the same program, without building anything."""
    edge = examples.own_edge("EdgeOwn", (examples.VERTEX_XYZ,), 3, lambda x, z: np.sin(x) - z)
    first = codegen.compile_edge(edge)
    assert len(list(own_cache.glob("*.program"))) == 2
    monkeypatch.setattr(cache, "build_program", lambda *_: pytest.fail("compiled again"))
    second = codegen.compile_edge(edge)
    np.testing.assert_array_equal(first.linearize.code, second.linearize.code)
    np.testing.assert_array_equal(first.linearize.constants, second.linearize.constants)
    assert first.linearize.num_registers == second.linearize.num_registers


def test_a_changed_residual_is_compiled_anew(own_cache):
    """The key is the traced definition: the same name with another formula is another program."""
    for scale in (1.0, 2.0):
        edge = examples.own_edge("EdgeSame", (examples.VERTEX_XYZ,), 3, lambda x, z, s=scale: s * (x - z))
        program = codegen.compile_edge(edge, "identity").errors
        assert program.run(np.array([[1.0, 1, 1, 0, 0, 0]]))[0, 0] == scale


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into read-only folders")
def test_a_read_only_home_works(own_cache):
    """Without a place to write, programs are compiled and not remembered."""
    own_cache.mkdir(parents=True)
    own_cache.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert codegen.compile_vertex(examples.VERTEX_SE2).num_outputs == 3
    assert not list(own_cache.iterdir())


def test_a_cache_folder_that_cannot_exist_works(tmp_path, monkeypatch):
    """Where the cache folder's place is taken by a file, programs are compiled and not remembered."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert codegen.compile_vertex(examples.VERTEX_SE2).num_outputs == 3


def test_the_cache_can_be_switched_off(own_cache, monkeypatch):
    """GRAPHOPT_CACHE=off writes nothing."""
    monkeypatch.setenv("GRAPHOPT_CACHE", "off")
    codegen.compile_vertex(replace(examples.VERTEX_XYZ, name="VertexOwn", oplus=lambda x, d: x + 2.0 * d))
    assert not own_cache.exists()


def test_compiling_leaves_no_expressions_behind():
    """As many expressions are alive after compiling as before."""

    def alive() -> int:
        gc.collect()
        return sum(issubclass(type(each), symbolic.Expr) for each in gc.get_objects())

    before = alive()
    codegen.compile_edge(examples.own_edge("EdgeOwn", (examples.VERTEX_XYZ,), 3, lambda x, z: np.sin(x) - z))
    assert alive() == before


def test_debug_output_shows_the_kernels():
    """GRAPHOPT_DEBUG=kernels prints every program that is compiled."""
    code = """
from dataclasses import replace
from graphopt import codegen, types
kind = types.slam2d.VertexSE2
codegen.compile_vertex(replace(kind, name="VertexOwn", oplus=lambda x, d: kind.oplus(x, 2.0 * d)))
"""
    output = python("-c", code, environment={"GRAPHOPT_DEBUG": "kernels,verify", "GRAPHOPT_CACHE": "off"})
    assert "VertexOwn.oplus: 6 inputs, 3 outputs" in output.stdout and " = FLOOR " in output.stdout


def test_outputs_of_linearize_are_in_the_documented_order():
    """rho, upper triangles and off-diagonal blocks by columns, b per vertex, for a linear edge."""
    a, b = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.array([[7.0, 8.0, 9.0], [1.0, 0.0, 2.0]])
    edge = examples.own_edge(
        "EdgeLinear", (examples.VERTEX_XYZ, examples.VERTEX_XYZ), 2, lambda x, y, z: a @ x + b @ y - z
    )
    out = codegen.compile_edge(edge, "identity").linearize.run(np.array([[0.0] * 6 + [1.0, -1.0]]))[0]
    e = np.array([-1.0, 1.0])
    upper = [(i, j) for j in range(3) for i in range(j + 1)]
    expected = [
        e @ e,
        *((a.T @ a)[i, j] for i, j in upper),
        *(a.T @ b).ravel(order="F"),
        *((b.T @ b)[i, j] for i, j in upper),
        *(-a.T @ e),
        *(-b.T @ e),
    ]
    np.testing.assert_array_equal(out, expected)
    assert edge_module.information_dim(2, "full") == 3


def test_an_oplus_without_derivative_is_explained():
    """An oplus whose derivative at zero is NaN names the vertex type and the double-where idiom."""
    oplus = lambda x, d: x + np.sqrt(d * d * d) / np.sqrt(d)  # noqa: E731
    vertex = replace(examples.VERTEX_XYZ, name="VertexBad", storage_dim=1, tangent_dim=1, oplus=oplus)
    edge = examples.own_edge("EdgeBad", (vertex,), 1, lambda x, z: x - z)
    with pytest.raises(SymbolicError, match=r"VertexBad: the derivative of oplus.*NaN"):
        codegen.compile_edge(edge)


class Counted:
    """A number that counts what is done with it."""

    def __init__(self, count):
        self.count = count

    def _counted(self, other):
        self.count.append(1)
        return self

    __add__ = __sub__ = __mul__ = _counted


@pytest.mark.parametrize("counts", [(1, 0, 0, 0), (2, 1, 0, 0), (0, 0, 3, 1), (2, 0, 1, 2), (1, 2, 2, 0)])
def test_instructions_count_their_operations(counts):
    """As many as numbers that count see; of sums and blocks, by their products and terms."""
    for name in ("FMA", "FMS", "FNMA", "DOT2", "DOT3"):
        kind, count = INSTRUCTIONS[OPCODE[name]], []
        kind.evaluate(*[Counted(count) for _ in range(kind.num_sources)])
        assert Instruction(name, (), ()).num_flops == len(count)
    products, terms, positive = sum(counts[:2]), sum(counts[2:]), counts[2] > 0
    total = Instruction("SUM", (), (), counts)
    assert total.num_flops == products + (products + terms - 1)
    assert total.num_operations == products + terms - positive  # the first term is moved
    block = Instruction("BLOCK", (), (), (2, 3, products, 1))
    assert block.num_flops == 6 * (products + 1 + products) and block.num_operations == 6 * (products + 1)
