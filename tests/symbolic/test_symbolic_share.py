"""Partial common sub-expressions: values stay, operations go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt import codegen, symbolic
from graphopt.symbolic import share
from graphopt.types import registry

NAMES = "abcdefgh"
A, B, C, D, E, F, G, H = (symbolic.var(n) for n in NAMES)


def operations(outputs):
    """Additions, subtractions and multiplications."""
    return share.num_arithmetic(symbolic.topological(list(outputs)))


def values(outputs, seed=0):
    """Values at random points."""
    rng = np.random.default_rng(seed)
    found = symbolic.evaluate(list(outputs), {n: rng.uniform(0.5, 2.0, 20) for n in NAMES})
    return np.array([np.broadcast_to(x, 20) for x in found])


@pytest.mark.parametrize(
    "outputs, before, after",
    [
        # a + c, then its sum with e, which is the third output itself: the example of Caspar's paper
        ([A + B + C + E, A + C + D + E, A + C + E], 7, 4),
        ([A * B * C, B * C * D, B * E * C], 6, 4),
        ([A - B + G, (C - B) + A + H], 5, 5),  # parentheses of a difference are kept
        ([A * B - C * D + E, F + A * B - C * D], 6, 5),
        ([C * D - A * B + E, F + A * B - C * D], 6, 5),  # with the other sign
        ([A + B, A + C], 2, 2),
    ],
)
def test_operations_that_are_saved(outputs, before, after):
    """Counted by hand; the values are the same."""
    shared = share.share_partial(outputs)
    assert (operations(outputs), operations(shared)) == (before, after)
    np.testing.assert_allclose(values(shared), values(outputs), rtol=1e-13, atol=1e-13)


def test_nothing_to_share_changes_nothing():
    """The very same expressions come back."""
    outputs = [A * B + C * D, np.sin(A) * E, F - G]
    assert all(x is y for x, y in zip(share.share_partial(outputs), outputs, strict=True))


expression = st.recursive(
    st.sampled_from((A, B, C, D, E)),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        inner.map(np.sin),
        inner.map(lambda x: -x),
        inner.map(lambda x: 3.0 * x),
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(expression, min_size=1, max_size=6))
def test_any_expressions_keep_their_values_and_never_grow(outputs):
    """Random sums, products and functions of five variables."""
    shared = share.share_partial(outputs)
    assert operations(shared) <= operations(outputs)
    inner = symbolic.topological([*outputs, *shared])
    scale = 1.0 + np.abs(values(inner)).max(axis=0)  # errors grow with what cancels, and with one factor
    assert np.all(np.abs(values(shared) - values(outputs)) <= 1e-14 * scale**2)


@pytest.mark.parametrize("name", ["EdgeSBACam", "EdgeSE2TwoPointsXY"])
def test_a_built_in_edge_saves_operations_and_computes_the_same(name, monkeypatch):
    """chi2, H and b with and without sharing, on edges where it is worth it."""
    monkeypatch.setenv("GRAPHOPT_CACHE", "off")
    edge = replace(registry.edge_type(name))  # a user's type of this name, which no program is carried for
    shared = codegen.compile_edge(edge, "identity").linearize
    monkeypatch.setattr("graphopt.codegen.program.rewrite_expressions", list)
    plain = codegen.compile_edge(edge, "identity").linearize
    assert shared.num_flops < 0.985 * plain.num_flops
    inputs = np.random.default_rng(0).uniform(0.2, 1.0, size=(30, plain.num_inputs))
    expected = plain.run(inputs)
    scale = np.abs(expected).max(axis=1, keepdims=True)
    np.testing.assert_allclose(shared.run(inputs) / scale, expected / scale, atol=1e-13)


def test_explain_tells_what_sharing_changed():
    """Operations and registers before and after, per program."""
    text = codegen.compile_edge(registry.edge_type("EdgeSE2TwoPointsXY"), "identity").explain()
    assert text.count("rewrites of expressions:") == 2
    assert "88 -> 84 flops" in text
