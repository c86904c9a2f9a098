"""What cannot be compiled: the error shows the line and says what to write instead."""

import math
import random

import numpy as np
import pytest

from graphopt import codegen
from graphopt.errors import ShapeError, SymbolicError
from graphopt.types import edge_type, registry, vertex_type
from graphopt.types.base import EdgeType
from graphopt.types.files import measurement_then_information, plain

TABLE = [1.0, 2.0, 4.0]
GENERATOR = np.random.default_rng(0)


def branch(x, z):
    if x[0] > 0:
        return x - z
    return x


def loop_while(x, z):
    while x[0] > 1:
        x = 0.5 * x
    return x


def chained(x, z):
    return np.where(0 < x[0] < 1, x, z)


def word_and(x, z):
    return np.where(x[0] > 0 and x[1] > 0, x, z)


def word_or(x, z):
    return np.where(x[0] > 0 or x[1] > 0, x, z)


def word_not(x, z):
    return np.where(not x[0] > 0, x, z)


def python_max(x, z):
    return np.stack([max(x[0], z[0]), x[1]])


def membership(x, z):
    return x if z[0] in (1.0, 2.0) else z


def math_function(x, z):
    return np.stack([math.sin(x[0]), x[1]])


def to_float(x, z):
    return float(x[0]) * z


def to_int(x, z):
    return int(x[0]) * z


def rounding(x, z):
    return round(x[0]) * z


def loop_over_number(x, z):
    return sum(a for a in x[0]) * z


def loop_over_range(x, z):
    for _ in range(z[0]):
        x = x * 2.0
    return x


def fill_zeros(x, z):
    y = np.zeros(2)
    y[0] = x[0]
    return y


def change_argument(x, z):
    x[0] = x[0] - z[0]
    return x


def change_argument_inplace(x, z):
    x -= z
    return x


def index_list(x, z):
    return TABLE[x[0]] * z


def index_array(x, z):
    return np.array(TABLE)[x[0]] * z


def unknown_function(x, z):
    return np.sort(x)


def no_suggestion(x, z):
    return np.spacing(x)


def similar_name(x, z):
    return np.nanmax(x) * z


def compare_plain_array(x, z):
    return np.where(np.array([x[0], x[1]]) > 0.0, x, z)


def random_number(x, z):
    return x - z + random.random()


def random_array(x, z):
    return x - z + GENERATOR.normal(size=2)


def wrong_length(x, z):
    return np.stack([x[0], x[1], z[0]])


def wrong_rank(x, z):
    return np.outer(x, z)


def no_return(x, z):
    x - z


def ragged(x, z):
    return [x, z[0]]


def text(x, z):
    return ["a", "b"]


def attribute(x, z):
    return x.translation - z


def shape_mismatch(x, z):
    return x + np.stack([z[0], z[1], z[0]])


def formatted(x, z):
    return f"{x[0]:.3f}"


def power_of_nan(x, z):
    return x * float("nan")


CASES = {
    branch: ("np.where(condition, x, y)", "if x[0] > 0:"),
    loop_while: ("while", "while x[0] > 1:"),
    chained: ("(a < x) & (x < b)", "0 < x[0] < 1"),
    word_and: ("np.where", "x[0] > 0 and x[1] > 0"),
    word_or: ("np.logical_or", "x[0] > 0 or x[1] > 0"),
    word_not: ("not", "not x[0] > 0"),
    python_max: ("np.maximum", "max(x[0], z[0])"),
    membership: ("in", "z[0] in (1.0, 2.0)"),
    math_function: ("np.sin, not math.sin", "math.sin(x[0])"),
    to_float: ("float", "float(x[0])"),
    to_int: ("int", "int(x[0])"),
    rounding: ("np.rint", "round(x[0])"),
    loop_over_number: ("components of an array", "for a in x[0]"),
    loop_over_range: ("index", "range(z[0])"),
    fill_zeros: ("np.stack", "y[0] = x[0]"),
    change_argument: ("x = x.copy()", "x[0] = x[0] - z[0]"),
    change_argument_inplace: ("x = x.copy()", "x -= z"),
    index_list: ("index", "TABLE[x[0]]"),
    index_array: ("graphopt.Image", "np.array(TABLE)[x[0]]"),
    unknown_function: ("np.minimum", "np.sort(x)"),
    no_suggestion: ("docs/types.md", "np.spacing(x)"),
    similar_name: ("np.max", "np.nanmax(x)"),
    compare_plain_array: ("np.stack", "np.array([x[0], x[1]]) > 0.0"),
    random_number: ("measurements or parameters", "def random_number(x, z):"),
    random_array: ("measurements or parameters", "def random_array(x, z):"),
    wrong_length: ("shape (3,), expected (2,)", "def wrong_length(x, z):"),
    wrong_rank: ("shape (2, 2), expected (2,)", "def wrong_rank(x, z):"),
    no_return: ("shape ()", "def no_return(x, z):"),
    ragged: ("np.concatenate", "def ragged(x, z):"),
    text: ("no number (str)", "def text(x, z):"),
    attribute: ("numpy functions", "x.translation"),
    shape_mismatch: ("print(x.shape)", "x + np.stack([z[0], z[1], z[0]])"),
    formatted: ("without a format", 'f"{x[0]:.3f}"'),
    power_of_nan: ("NaN", 'float("nan")'),
}


def edge_of(function):
    """An edge type that was never called with floats: the compiler alone must explain."""
    point = registry.vertex_type("VERTEX_XY")
    layout = measurement_then_information(plain(2), 2)
    return EdgeType("Mistake", "MISTAKE", (point,), (), 2, 2, function, None, lambda z: z, layout)


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_the_error_shows_the_line_and_the_way_out(function):
    """Compiling names this file, the text of the line, and what to write instead."""
    hint, line = CASES[function]
    with pytest.raises(SymbolicError) as caught:
        codegen.compile_edge(edge_of(function))
    message = str(caught.value)
    assert "Mistake: the residual function" in message
    assert f"{__file__}:" in message and line in message, message
    assert hint in message, message


def test_a_good_function_compiles():
    """The same frame without a mistake."""
    assert codegen.compile_edge(edge_of(lambda x, z: x - z)).chi2.num_outputs == 4


def test_arguments_stay_what_they_are_when_a_type_is_defined():
    """A residual of floats that changes its argument is refused at its definition."""
    with pytest.raises(ShapeError, match=r"(?s)read-only.*copy"):
        edge_type(tag="CHANGES", vertices=("VERTEX_XY",), measurement_dim=2)(change_argument)
    with pytest.raises(ShapeError, match=r"(?s)read-only.*copy"):

        @vertex_type(tag="VERTEX_CHANGES", tangent_dim=2)
        def changes(x, d):
            x += d
            return x

    assert registry.find("CHANGES") is None and registry.find("VERTEX_CHANGES") is None


def test_geometry_is_not_where_the_mistake_is():
    """Inside of a group's function the user's own line is shown."""

    def compose(x, z):
        from graphopt.geometry import SO3

        return SO3.exp(x)

    with pytest.raises(SymbolicError) as caught:
        codegen.compile_edge(edge_of(compose))
    assert "SO3.exp(x)" in str(caught.value)
