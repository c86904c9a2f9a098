"""Rewrites of the compiler: each keeps the value and makes the program smaller, and says by how much."""

import numpy as np
import pytest

from graphopt import codegen
from graphopt.codegen.blocks import form_blocks
from graphopt.codegen.bytecode import Instruction, encode
from graphopt.codegen.lower import lower
from graphopt.codegen.order import depth_first
from graphopt.codegen.rewrites import EXPRESSION_REWRITES
from graphopt.codegen.trace import trace_edge
from graphopt.errors import OptionError
from graphopt.symbolic import const, evaluate, fresh_table, jacobian, make, topological, var
from graphopt.symbolic.context import CONTEXT_RULES
from graphopt.symbolic.expr import without_rules
from graphopt.types import BUILTIN_TYPES
from graphopt.types.base import EdgeType, working_edge_type

X, Y, Z, W = (var(name) for name in "xyzw")
RULES = {rule.name: rule for rule in CONTEXT_RULES}
PRICES = {"POW": 20, "SIN": 8, "COS": 8, "SINCOS": 9, "TAN": 20, "RECIP": 4, "SQRT": 4}
"""Rough costs: a function is more than a division, a division more than a product."""


def price(outputs):
    """What the instructions of a program cost."""
    return sum(PRICES.get(i.name, i.num_operations) for i in lower(list(outputs)))


def values(outputs, seed=0):
    """Values at random positive places."""
    rng = np.random.default_rng(seed)
    found = evaluate(list(outputs), {n: rng.uniform(0.1, 1.4, 50) for n in "xyzw"})
    return np.array([np.broadcast_to(values, 50) for values in found])


def power_and_rate(x, exponent):
    """x^c and its derivative, as they stand after differentiation."""
    value = make("pow", x, const(exponent))
    return [value, *jacobian([value], [{X: const(1.0)}])[0]]


CASES = {
    "powers": [
        power_and_rate(X, 3.3),
        power_and_rate(X * Y, 2.5),
        [make("pow", X, const(4.0)) + make("pow", X, const(-1.5)), make("pow", X, const(0.5))],
        [make("pow", X, const(0.2)), make("pow", X, const(1.2)), make("pow", X, const(3.2)) * Y],
    ],
    "tangents": [[np.tan(X), np.sin(X)], [np.tan(X * Y) * np.cos(X * Y), np.cos(X * Y)]],
    "half angles": [
        [np.sin(X), np.sin(0.5 * X)],
        [np.cos(2.0 * X) + Y, np.sin(X), np.cos(X)],
        [np.sin(4.0 * X), np.cos(2.0 * X), np.sin(X) * np.cos(X)],
    ],
    "reciprocals": [
        [1.0 / np.sqrt(X), Y / X],
        [1.0 / X, 1.0 / Y, Z / (X * Y)],
        [Y / np.sqrt(X * Y + Z), W / (X * Y + Z), np.sqrt(X * Y + Z)],
        [1.0 / X, Z / (X * X)],
    ],
}


@pytest.mark.parametrize(
    "name, number", [(name, number) for name, cases in CASES.items() for number in range(len(cases))]
)
def test_a_rule_keeps_values_and_saves(name, number):
    """One rule at a time, where its context is there."""
    outputs = CASES[name][number]
    result = RULES[name].apply(outputs)
    np.testing.assert_allclose(values(result), values(outputs), rtol=1e-12, atol=1e-13)
    assert price(result) < price(outputs)


@pytest.mark.parametrize("name", CASES)
def test_a_rule_needs_its_context(name):
    """Alone, an operation stays as it is: the very same expressions come back."""
    alone = [make("pow", X, const(3.3)), np.tan(X), np.sin(2.0 * X), 1.0 / (X * Y), np.sqrt(Z), Y / W]
    result = RULES[name].apply(alone)
    assert all(a is b for a, b in zip(result, alone, strict=True))


@pytest.mark.parametrize(
    "exponents, left",
    [
        ((0.3, 8.3), 1), ((0.3, 9.3), 2), ((0.3, 0.3 + 1e-9), 2), ((-0.3, 0.7), 2), ((0.0 + 1e-3, 1.001), 1),
        ((16.0,), 0), ((-16.0,), 0), ((15.5,), 0), ((16.5,), 1), ((17.0,), 1), ((2.25,), 1),
    ],
)  # fmt: skip
def test_which_powers_stay(exponents, left):
    """Up to x^16, whole and half, none; x^(c + k) up to k = 8 beside x^c, c >= 0."""
    outputs = [make("pow", X, const(exponent)) for exponent in exponents]
    result = RULES["powers"].apply(outputs)
    assert sum(e.op == "pow" for e in topological(result)) == left
    np.testing.assert_allclose(values(result), values(outputs), rtol=1e-12)


def test_a_power_at_zero_stays_finite():
    """x^c = x^(c - 1) x only for c - 1 >= 0: 0^0.7 is 0 and not infinity times 0."""
    outputs = power_and_rate(X, 0.7)
    (value, _) = (evaluate(RULES["powers"].apply(outputs)[:1], {"x": np.zeros(1)})[0], None)
    assert value == 0.0
    half = RULES["powers"].apply(power_and_rate(X, 1.5))
    assert [float(v[0]) for v in evaluate(half, {"x": np.zeros(1)})] == [0.0, 0.0]


def test_what_a_replacement_needs_is_replaced_too():
    """Nested contexts: the square root's argument changes as well."""
    inner = 1.0 / X * (1.0 / Y) + Z / (X * Y)
    outputs = [1.0 / X, 1.0 / Y, 1.0 / np.sqrt(inner), W / inner]
    result = RULES["reciprocals"].apply(outputs)
    np.testing.assert_allclose(values(result), values(outputs), rtol=1e-12)
    assert sum(e.op == "recip" for e in topological(result)) == 3


# --- instructions -------------------------------------------------------------------------------------------
def count(instructions):
    """Operations that a processor issues."""
    return sum(i.num_operations for i in instructions)


def run(instructions, outputs, inputs):
    """Values of a list of instructions on value ids."""
    names = {e.id: values for e, values in inputs.items()}
    registers, places = [], {}
    for e in topological(list(outputs)):
        if not e.args:
            places[e.id] = len(registers)
            registers.append(np.full(50, e.value) if e.op == "const" else names[e.id])
    renamed = []
    for i in instructions:
        for d in i.destinations:
            places.setdefault(d, len(places))
        pick = tuple(places[s] for s in i.sources), tuple(places[d] for d in i.destinations)
        renamed.append(Instruction(i.name, pick[1], pick[0], i.counts))
    registers += [np.zeros(50)] * (len(places) - len(registers))
    codegen.bytecode.interpret(encode(renamed), registers)
    return np.array([registers[places[e.id]] for e in outputs])


def random_inputs():
    rng = np.random.default_rng(1)
    return {e: rng.uniform(0.1, 1.4, 50) for e in (X, Y, Z, W)}


def test_multiply_adds_keep_values_and_save():
    """x y + z w - x is a product and two contributions instead of four operations; x z - w is one."""
    outputs = [X * Y + Z * W - X, X * Z - W]
    plain, fused = lower(outputs, fuses=False), lower(outputs)
    assert (count(plain), count(fused)) == (6, 4)
    inputs = random_inputs()
    np.testing.assert_allclose(run(fused, outputs, inputs), run(plain, outputs, inputs), rtol=1e-14)


def test_sine_and_cosine_are_computed_together():
    """One instruction where both are needed, and only there."""
    outputs = [np.sin(X), np.cos(X), np.sin(Y)]
    plain, joined = lower(outputs, joins=False), lower(outputs)
    assert ([i.name for i in joined], count(plain), count(joined)) == (["SINCOS", "SIN"], 3, 2)
    inputs = random_inputs()
    np.testing.assert_allclose(run(joined, outputs, inputs), run(plain, outputs, inputs), rtol=1e-14)


def test_blocks_read_less():
    """A matrix product as one block reads 4 x 2 values instead of 8 x 2, with the same operations."""
    rows, columns = ([var(f"a{i}{k}") for k in range(2)] for i in range(2)), "uv"
    sides = [[var(f"{c}{k}") for k in range(2)] for c in columns]
    outputs = [a[0] * b[0] + a[1] * b[1] for a in rows for b in sides]
    plain = lower(outputs)
    blocked = form_blocks(plain)
    assert count(blocked) == count(plain) and [i.name for i in blocked] == ["BLOCK"]
    assert sum(len(i.sources) for i in blocked) == 8 and sum(len(i.sources) for i in plain) == 16


EDGES = [k for k in BUILTIN_TYPES if isinstance(k, EdgeType)]


@pytest.mark.parametrize("kind", EDGES, ids=lambda kind: kind.name)
def test_rewrites_keep_the_values_of_edges(kind):
    """Residual and Jacobian of every built-in type: all rewrites against none."""
    kind = working_edge_type(kind)
    with fresh_table():
        edge = trace_edge(kind)
        outputs = [e for block in edge.jacobians() for e in block.ravel()] + edge.residual
        rewritten = list(outputs)
        for _, rewrite in EXPRESSION_REWRITES:
            rewritten = rewrite(rewritten)
        assert price(rewritten) <= price(outputs)
        rng = np.random.default_rng(0)
        at = {e.value: rng.uniform(0.2, 1.0, 20) for e in edge.inputs}
        expected = np.array([np.broadcast_to(v, 20) for v in evaluate(outputs, at)])
        actual = np.array([np.broadcast_to(v, 20) for v in evaluate(rewritten, at)])
    scale = 1.0 + np.abs(expected).max()
    np.testing.assert_allclose(actual / scale, expected / scale, atol=1e-13)


@pytest.mark.parametrize("kind", EDGES[::5], ids=lambda kind: kind.name)
def test_explain_rewrites(kind):
    """Steps in the order of the compiler; operations never rise."""
    steps = codegen.explain_rewrites(kind, robust=True)
    assert [s.rule for s in steps[:2]] == ["as written", "simplification"]
    assert [s.rule for s in steps[-4:]] == ["multiply-adds", "sine and cosine", "blocks", "order"]
    operations = [s.operations for s in steps]
    assert operations == sorted(operations, reverse=True) and operations[-1] < 0.8 * operations[0]
    assert steps[-1].live_registers <= steps[-2].live_registers
    rule, _, live = steps[0]
    assert rule == "as written" and live > 0


def test_explain_knows_its_kinds():
    """chi2, linearize, errors, jacobians."""
    chi2 = codegen.explain_rewrites(EDGES[0], "identity", kind="chi2")
    linearize = codegen.explain_rewrites(EDGES[0], "identity")
    assert chi2[-1].operations < linearize[-1].operations
    with pytest.raises(OptionError, match="linearize"):
        codegen.explain_rewrites(EDGES[0], kind="hessian")


def test_without_rules_nothing_is_simplified():
    """Only inside; and what is made there is forgotten."""
    with without_rules():
        assert (X + 0.0).op == "add" and (X * Y).op == "mul"
    assert X + 0.0 is X
    assert depth_first([], []) == []
