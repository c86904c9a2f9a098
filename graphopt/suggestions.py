"""What was probably meant by a mistyped word or option."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import ParamSpec, TypeVar

from graphopt.errors import UnknownOptionError

P = ParamSpec("P")
R = TypeVar("R")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like `word`, or None if none comes close."""
    from difflib import get_close_matches  # for errors only

    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ' Did you mean ...?', with names that end in the word too; nothing if none comes close."""
    names = list(known)
    match = nearest(word, names)
    longer = [name for name in names if name.endswith(f"_{word}") and name != match] if match else []
    return f" Did you mean {' or '.join(repr(name) for name in [match, *longer])}?" if match else ""


def knows_its_options(function: Callable[P, R]) -> Callable[P, R]:
    """A function that raises `UnknownOptionError` with the nearest name for an option that it has not."""
    return knowing_options()(function)


def knowing_options(
    more: Iterable[str] = (), elsewhere: Mapping[str, str] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`knows_its_options` for a function that takes options by `**`.

    more: names of these. elsewhere: names of options that another function has -> the sentence that says so.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters.values()
        own_names = [each.name for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD]
        names = [name for name in (*own_names, *more) if name != "self"]
        known = frozenset(names)

        @functools.wraps(function)
        def checked(*arguments: P.args, **options: P.kwargs) -> R:
            for name in options:
                if name not in known:
                    what = function.__qualname__.removesuffix(".__init__")
                    hint = (elsewhere or {}).get(name) or did_you_mean(name, names).strip()
                    raise UnknownOptionError(
                        f"{what} has no option '{name}'. {hint}{' ' * bool(hint)}"
                        f"Its options are {', '.join(names)}."
                    )
            return function(*arguments, **options)

        return checked

    return decorated
