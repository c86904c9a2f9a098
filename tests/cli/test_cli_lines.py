"""Command lines that nobody wrote: what the parser makes of any words."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.cli import parsers

NUMBERS = st.one_of(st.integers(-3, 10**6).map(str), st.floats(allow_nan=True).map(str))
TEXTS = st.one_of(
    NUMBERS, st.text(max_size=12), st.sampled_from(["auto", "none", "cpu", "vulkan:1", "-", "a.g2o"])
)


def leaves(parser, words=()):
    """(words, parser) of each command without further kinds."""
    for action in parser.actions:
        if isinstance(action.choices, dict):
            for name, inner in action.choices.items():
                yield from leaves(inner, (*words, name))
            return
    yield words, parser


ALL = [
    leaf
    for name in parsers.COMMANDS
    for leaf in leaves(parsers.build_parser("0", name))
    if leaf[0][0] == name
]


@st.composite
def lines(draw):
    """A command with some of its options, each with a value that it lists or any other."""
    words, parser = draw(st.sampled_from(ALL))
    line = list(words)
    options = [
        action
        for action in parser.actions
        if action.option_strings and action.dest not in ("help", "version")
    ]
    for action in draw(st.lists(st.sampled_from(options), max_size=6)) if options else ():
        line.append(draw(st.sampled_from(action.option_strings)))
        if action.nargs != 0:
            listed = [str(choice) for choice in action.choices or ()]
            line.append(draw(st.one_of(TEXTS, st.sampled_from(listed)) if listed else TEXTS))
    return line + draw(st.lists(TEXTS, max_size=3))


@settings(max_examples=300, deadline=None)
@given(lines())
def test_any_line_is_parsed_or_refused_with_a_sentence(line):
    """No other exception, whatever stands behind an option."""
    try:
        assert parsers.parse(line, "0").command == line[0]
    except parsers.UsageError as error:
        assert str(error) and error.usage.startswith("Try: graphopt")


@pytest.mark.parametrize(("words", "parser"), ALL, ids=[" ".join(words) for words, _ in ALL])
def test_every_option_says_what_it_is(words, parser):
    """`--help` has a text, or a default, for each option of each command."""
    bare = [action.option_strings for action in parser.actions if action.option_strings and not action.help]
    assert not bare
