"""Caches of what is made of types: programs, kernels, other types.

A type may be defined anew any number of times, in a notebook for instance. What was made of the old one goes
with it: results are kept in the type itself, so that they may refer to it and are collected together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any, ParamSpec, TypeVar

from graphopt.types.identity import KnownByTag

P = ParamSpec("P")
R = TypeVar("R")
_ATTRIBUTE = "_made_of_it"


def per_type_cache(function: Callable[P, R]) -> Callable[P, R]:
    """As `functools.cache`, for a function of types: results live as long as the type of the arguments.

    It is the one defined last in the first argument that is a type, or a tuple or dataclass with types, or
    has a `signature` with types. All arguments are hashable. Threads that call at the same time get the same
    result.
    """

    @functools.wraps(function)
    def cached(*arguments: P.args, **options: P.kwargs) -> R:
        first = arguments[0]
        results = vars(first if isinstance(first, KnownByTag) else _latest_type(arguments)).setdefault(
            _ATTRIBUTE, {}
        )
        key = (function, arguments, *options.items())
        try:
            return results[key]
        except KeyError:
            return results.setdefault(key, function(*arguments, **options))

    return cached


def _latest_type(arguments: tuple[Any, ...]) -> KnownByTag:
    for argument in arguments:
        latest = max(_types_in(argument), key=lambda kind: kind.definition, default=None)
        if latest is not None:
            return latest
    raise TypeError(f"No type in {arguments!r}.")


def _types_in(value: Any) -> Iterator[KnownByTag]:
    if isinstance(value, KnownByTag):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _types_in(item)
    elif hasattr(value, "signature"):  # products of edges
        yield from _types_in(value.signature)
    elif is_dataclass(value) and not isinstance(value, type):
        for item in vars(value).values():
            yield from _types_in(item)
