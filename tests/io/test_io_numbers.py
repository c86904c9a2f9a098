"""Numbers in texts: parsed as Python does, refused where a reader must not guess, formatted without loss."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphopt import _native
from graphopt.errors import FormatError
from graphopt.io.numbers import NumberReader, RaggedRows
from graphopt.io.tagged import ALL_IDS, COUNTED_IDS, TagRule, read_tagged


def parse(token):
    """Return the one number of a text, or the message why it is none."""
    values, _, _, error = _native.read_ragged_rows(token.encode("utf-8", "surrogateescape"))
    return error[1] if error else values[0]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_survives_formatting(value):
    """Formatting and parsing give the same bits, whatever the double."""
    text = _native.format_ragged_rows(np.array([value]), np.array([0, 1]))
    back = _native.read_ragged_rows(text)[0][0]
    assert back == value and math.copysign(1, back) == math.copysign(1, value)
    assert float(text) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_digits_are_those_of_c(value):
    """With 17 significant digits a number is what C and its streams print."""
    assert _native.format_ragged_rows(np.array([value]), np.array([0, 1]), 17) == f"{value:.17g}\n".encode()


@given(st.from_regex(r"[+-]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?", fullmatch=True))
def test_decimal_numbers_are_rounded_as_python_rounds_them(token):
    """Any decimal number becomes the nearest double; beyond all doubles it is refused, below them 0."""
    expected = float(token)
    got = parse(token)
    if math.isinf(expected):
        assert "out of range" in got
    else:
        assert got == expected


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        *(("nan", "not finite"), ("-NaN", "not finite"), ("inf", "not finite"), ("+Infinity", "not finite")),
        *(
            ("1.#INF", "not finite"),
            ("0x1F", "hexadecimal"),
            ("1D+05", "D exponent"),
            ("1.5d3", "D exponent"),
        ),
        *(("abc", "not a number"), ("1e", "not a number"), ("1e+", "not a number"), (".", "not a number")),
        *(
            ("-", "not a number"),
            ("1.2.3", "not a number"),
            ("1,2,3", "not a number"),
            ("1,2.3", "not a number"),
        ),
        *(
            ("1e400", "out of range"),
            ("\x00", "not a number"),
            ("12\udcff", "not a number"),
            ("++1", "not a number"),
        ),
    ],
)
def test_refused_tokens(token, reason):
    """A token that is no finite decimal number is refused with the reason."""
    assert reason in parse(token)


def test_plus_signs_and_tiny_numbers():
    """A leading plus is read; numbers below the smallest double are 0; denormals are kept."""
    assert parse("+1.5") == 1.5
    assert parse("1e-400") == 0.0
    assert parse("4.9e-324") == 5e-324
    assert parse("0e99999999999999") == 0.0


def read(text, num_ids=1, counts=(2,), **rest):
    """Read a text with one tag T."""
    return read_tagged(
        text, "f.g2o", {"T": TagRule(num_ids, counts, rest.get("longer", False), "T, id, x y")}
    )


def test_lines_are_grouped_and_keep_their_numbers():
    """Comments, blank lines, CRLF, tabs, blanks, a byte order mark do not matter; unknown lines stay."""
    text = b"\xef\xbb\xbf# c\r\nT 1 2 3 \r\n\r\n\tT\t-2\t1e-3  1E+05\t\n"
    text += b"  OTHER x \xff y  \r\nT 3 4 5 # end\nT 4 0 0"
    out = read(text)
    (group,) = out.groups
    assert group.ids.ravel().tolist() == [1, -2, 3, 4]
    assert group.values.tolist() == [[2, 3], [1e-3, 1e5], [4, 5], [0, 0]]
    assert group.lines.tolist() == [2, 4, 6, 7]
    assert out.unknown == [(5, "  OTHER x \udcff y  ")]
    assert out.num_lines == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"T 1 2 3\nT 1 2\n", "f.g2o:2: T: got 3 tokens, expected 4 (T, id, x y)"),
        (b"T 1 2 3 4\n", "f.g2o:1: T: got 5 tokens, expected 4"),
        (b"T\n", "f.g2o:1: T: got 1 tokens, expected 4"),
        (b"T x 2 3\n", "f.g2o:1: T: id 'x' is not an integer"),
        (b"T 1.0 2 3\n", "f.g2o:1: T: id '1.0' is not an integer"),
        (b"T 9223372036854775808 2 3\n", "f.g2o:1: T: id '9223372036854775808' does not fit into 64 bits"),
        (b"T 1 2 nan\n", "f.g2o:1: T: 'nan' is not finite"),
        (
            b"T 1 2 3\nT 2 4",
            "f.g2o:2: T: got 3 tokens, expected 4 (T, id, x y). It is the last line and has no line end",
        ),
        (b"T 1 2 " + b"z" * 100, "'" + "z" * 40 + "...'"),
    ],
)
def test_errors_name_path_line_and_expectation(text, message):
    """The first wrong line is named, with what it has and what it should have."""
    with pytest.raises(FormatError) as error:
        read(text)
    assert message in str(error.value)


def test_extreme_ids():
    """All 64-bit integers are ids."""
    ids = read(b"T 9223372036854775807 0 0\nT -9223372036854775808 0 0\nT +5 0 0\n").groups[0].ids.ravel()
    assert ids.tolist() == [2**63 - 1, -(2**63), 5]


def test_decimal_commas_are_read_and_reported():
    """A number with one comma is read as if that were a point, and the first line is reported."""
    out = read(b"T 1 0 0\nT 2 57295,8 -0,5e1\n")
    assert out.groups[0].values[1].tolist() == [57295.8, -5.0]
    assert len(out.warnings) == 1 and "2 numbers" in out.warnings[0] and "line 2" in out.warnings[0]


def test_counted_ids():
    """Edges of any arity: ids after their count, or before a double bar; wrong counts are refused."""
    assert read(b"T 2 7 8 1.5\nT 7 8 || 1.5\n", COUNTED_IDS, ()).groups[0].ids.tolist() == [[7, 8], [7, 8]]
    for text in (b"T 3 7 8\n", b"T -1 7\n", b"T\n", b"T 99999999999 1 2\n", b"T 1 2 |x| 3\n"):
        with pytest.raises(FormatError):
            read(text, COUNTED_IDS, ())
    assert read(b"T 1 2 3\n", ALL_IDS, ()).groups[0].ids.tolist() == [[1, 2, 3]]


def test_huge_lines_take_linear_time():
    """A line of a million numbers and a million groups' worth of odd lines are read."""
    assert read(b"T 1 " + b"1 " * 1_000_000, 1, ()).groups[0].values.shape == (1, 1_000_000)
    ragged = b"".join(b"T 1 " + b"0 " * k + b"\n" for k in range(1000))
    assert len(read(ragged, 1, ()).groups) == 1000
    assert len(read(b"\x00" * 1_000_000 + b"\nT 1 2 3\n").unknown) == 1


def test_tables_refuse_impossible_sizes():
    """A header that claims more rows than the rest can hold is refused before memory is asked for."""
    for rows in (10**12, 2**61, -1):
        with pytest.raises(FormatError, match=r"f:1"):
            NumberReader(b"1 2 3\n4 5 6\n", "f").table("points", rows, 0, 3)


def test_tables():
    """Integers and numbers are read in turn; what follows the last table is noticed."""
    reader = NumberReader(b"2 1\n 5 0.5\n6 1.5\n\n9\n", "f")
    assert reader.integers("header", 2) == [2, 1]
    integers, values = reader.table("rows", 2, 1, 1)
    assert integers.ravel().tolist() == [5, 6] and values.ravel().tolist() == [0.5, 1.5]
    assert reader.line == 5
    with pytest.raises(FormatError, match="f:5: expected the end"):
        reader.expect_end()
    with pytest.raises(FormatError, match=r"f:1: rows: '0.5' is not an integer"):
        NumberReader(b"0.5", "f").table("rows", 1, 1, 0)
    with pytest.raises(FormatError, match="ends early"):
        NumberReader(b"1 2 ", "f").table("rows", 1, 0, 3)


def test_ragged_rows():
    """Rows of any length keep their lines; a matrix is refused at the first line of another length."""
    rows = RaggedRows(b"1 2\n# c\n\n3,4\n5", "f", separator=",")
    assert rows.values.tolist() == [1, 2, 3, 4, 5]
    assert rows.row_start.tolist() == [0, 2, 4, 5]
    assert rows.lines.tolist() == [1, 4, 5]
    with pytest.raises(FormatError, match=r"f:5: got 1 numbers, expected 2 \(x y\)"):
        rows.matrix(2, "x y")


def test_formatted_numbers_are_short():
    """Whole numbers have no exponent, others the fewest digits that read back."""
    text = _native.format_rows(
        "T", False, np.array([[7, -1]]), np.array([[0.1, 100000.0, 1e22, -0.0, 1 / 3, 2.5e-7]])
    )
    assert text == b"T 7 -1 0.1 100000 1e+22 -0 0.3333333333333333 2.5e-07\n"


def test_positive_definite():
    """Cholesky tells positive definite matrices from singular and indefinite ones."""
    singular = np.diag([1.0, 0.0, 1.0])
    indefinite = np.array([[1.0, 2, 0], [2, 1, 0], [0, 0, 1]])
    assert _native.positive_definite(np.array([np.eye(3), singular, indefinite])).tolist() == [
        True,
        False,
        False,
    ]
