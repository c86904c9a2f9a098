"""A batch of expressions, read once and used as often as requested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError, ShapeError, SymbolicError
from graphopt.expressions.traced import trace_nodes

_MOST_SHOWN = 5
_ASK_PERIOD = 0.05
"""Seconds between two looks for Ctrl-C."""

Expression = str | Callable[..., Any]


class ExpressionProblem(NamedTuple):
    """What is wrong with one expression."""

    expression: int
    """Its index in the batch."""
    position: int
    """Of the first character that does not fit, from 0."""
    reason: str
    """What was expected there, and what is there."""


class ExpressionError(SymbolicError):
    """Some expressions of a batch cannot be read; `problems` lists all of them."""

    def __init__(self, problems: Sequence[ExpressionProblem], texts: Sequence[str]):
        self.problems = tuple(problems)
        shown = [_shown(problem, texts[problem.expression]) for problem in self.problems[:_MOST_SHOWN]]
        more = len(self.problems) - len(shown)
        tail = [f"... and {more} more (see .problems)."] if more else []
        super().__init__("\n".join([*shown, *tail]))


def _shown(problem: ExpressionProblem, text: str) -> str:
    line = text.replace("\n", " ").replace("\t", " ")
    return f"Expression {problem.expression}: {problem.reason}.\n  {line}\n  {' ' * problem.position}^"


class ExpressionBatch:
    """Expressions of the columns of one matrix and of parameters of their own.

    Texts: numbers, pi, the data's names (x1, x2, ... unless `variables` names them), parameters p1, p2, ...,
    + - * / ^ (or **, right to left), comparisons (1 or 0), and abs sign floor sqrt exp log log2 log10 sin cos
    tan asin acos atan atan2 sinh cosh tanh pow min max square cube inv where(condition, yes, no).
    Functions: function(x, p) with x (num_variables,) and p (num_parameters,), made of numpy operations, are
    traced once.
    """

    def __init__(
        self,
        expressions: Sequence[Expression],
        num_variables: int | None = None,
        variables: Sequence[str] | None = None,
        num_parameters: int | Sequence[int] = 0,
    ):
        """num_variables: columns of the matrix; `variables` are their names.

        num_parameters: length of p of the functions, one number or one per expression; texts need none.
        Raises ExpressionError with every text that cannot be read, SymbolicError for a function.
        """
        names = _checked_names(variables)
        if num_variables is None:
            num_variables = len(names)
        if names and len(names) != num_variables:
            raise OptionError(f"variables has {len(names)} names, the data has {num_variables} columns.")
        if isinstance(expressions, str) or callable(expressions):
            raise OptionError("expressions is one expression, expected a list: [expression].")
        self.num_variables = num_variables
        self.native = kernels.ExpressionSet(num_variables, list(names))
        lengths = np.broadcast_to(np.asarray(num_parameters, dtype=int), (len(expressions),))
        self._add(list(expressions), lengths)
        self.num_parameters: np.ndarray = self.native.num_parameters()
        """(num_expressions,) int32: the largest number of a parameter in each."""

    def __len__(self) -> int:
        return len(self.native)

    def _add(self, expressions: list[Any], lengths: np.ndarray) -> None:
        if all(isinstance(e, str) for e in expressions):
            self._add_texts(expressions)
            return
        for k, expression in enumerate(expressions):
            if isinstance(expression, str):
                self._add_texts([expression], k)
            elif callable(expression):
                which = f"Expression {k} ({getattr(expression, '__name__', 'a function')})"
                self.native.add_nodes(*trace_nodes(expression, self.num_variables, int(lengths[k]), which))
            else:
                raise OptionError(
                    f"Expression {k} is a {type(expression).__name__}, expected a text or a function(x, p)."
                )

    def _add_texts(self, texts: list[str], first: int = 0) -> None:
        found = self.native.add_texts(texts)
        if found:
            problems = [ExpressionProblem(first + k, at, reason) for k, at, reason in found]
            raise ExpressionError(problems, [""] * first + texts)


def _checked_names(variables: Sequence[str] | None) -> Sequence[str]:
    names = () if variables is None else tuple(variables)
    wrong = [name for name in names if not (name.isascii() and name.isidentifier())]
    if wrong or len(set(names)) != len(names):
        what = f"{wrong[0]!r} is no name" if wrong else "a name is there twice"
        raise OptionError(f"variables: {what}; expected different names of letters, digits and _.")
    return names


def batch_of(
    expressions: Sequence[Expression] | ExpressionBatch,
    num_variables: int,
    variables: Sequence[str] | None,
    num_parameters: int | Sequence[int],
) -> ExpressionBatch:
    """`expressions` as a batch of a matrix with so many columns."""
    if not isinstance(expressions, ExpressionBatch):
        return ExpressionBatch(expressions, num_variables, variables, num_parameters)
    if variables is not None:
        raise OptionError("variables: an ExpressionBatch has its names already; leave them out.")
    if expressions.num_variables != num_variables:
        raise ShapeError(
            f"data has {num_variables} columns, the expressions were made for {expressions.num_variables}."
        )
    return expressions


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends native calls inside."""
    watch = kernels.Watch(lambda: False, _ASK_PERIOD)  # the question itself lets Python handle signals
    watch.begin()
    try:
        yield
    finally:
        watch.end()
