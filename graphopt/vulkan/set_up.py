"""Who sets a solver up: a thread beside the first evaluation, or its caller while the device works.

    InThread  a thread: kernels are built, or sorting many edges takes long; both run without the GIL
    Deferred     the caller, at the latest when the result is asked for: kernels are there and edges are few

What is left in the second case are thousands of short steps of Python. Two threads that share them wait for
each other's GIL, up to 5 ms at a time, which takes longer than all steps in a row: a window of a SLAM
program with another keyframe than before has its kernels and lasts some milliseconds. What is computed is
the same either way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from graphopt.errors import Stopped
from graphopt.problem.structure import Structure
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.plan.storage import Storage
from graphopt.vulkan.program import Context, InThread

T = TypeVar("T")
FEW_EDGES = 1 << 16
"""Vertices of edges, up to which sorting them takes no longer than what else there is to set up."""
prepared_kinds: WeakKeyDictionary[Any, set[Hashable]] = WeakKeyDictionary()
"""By device: kinds of problems whose kernels a solver of this process has built."""


class Deferred(Generic[T]):
    """What a function returns, found out when somebody first asks; as `InThread`."""

    def __init__(self, function: Callable[..., T], *arguments: Any):
        self._call: tuple[Callable[..., T], tuple[Any, ...]] | None = (function, arguments)
        self._found: Future[T] = Future()
        self._asking = threading.Lock()

    def done(self) -> bool:
        """Nobody has to wait for `result`."""
        return self._found.done()

    def result(self) -> T:
        """What the function returns; raises what it raises, each time.

        Where its caller was stopped, the next one who asks calls it again.
        """
        with self._asking:
            if self._call is not None:
                function, arguments = self._call
                try:
                    self._found.set_result(function(*arguments))
                except Stopped:
                    raise
                except Exception as error:
                    self._found.set_exception(error)
                self._call = None
        return self._found.result()


def kind_of(
    context: Context, structure: Structure, storage: Storage, configuration: Configuration, *more: Hashable
) -> Hashable:
    """What determines the kernels of a solver; more: beside what is stored and how it is solved."""
    groups = tuple(
        (group.edge_set.type.definition, group.information, group.kernel) for group in structure.groups
    )
    chosen = storage.products, storage.evaluations, configuration
    sets = zip(structure.selection.vertex_sets, structure.num_free, strict=True)
    dims = {own.type.tangent_dim for own, num_free in sets if num_free}
    return groups, context.precision, context.arithmetic, chosen, frozenset(dims), *more


class SetUp:
    """Starts the parts of one solver's set-up, and notes for the next one of its kind that they were done."""

    def __init__(self, context: Context, structure: Structure, kind: Hashable):
        self._device, self._kind = context.device, kind
        places = sum(group.vertex_rows.size for group in structure.groups)
        self.has_kernels = kind in prepared_kinds.get(context.device, ())
        """They are built."""
        self.by_caller = places <= FEW_EDGES and self.has_kernels
        """The kernels are there, and little is left to do."""

    def start(self, name: str, function: Callable[..., T], *arguments: Any) -> InThread[T] | Deferred[T]:
        """Have a function called, by a thread of this name or by who asks for its result."""
        if self.by_caller:
            return Deferred(function, *arguments)
        return InThread(name, function, *arguments)

    def note_done(self) -> None:
        """All parts are done: another solver of this kind finds its kernels."""
        if not self.by_caller:
            prepared_kinds.setdefault(self._device, set()).add(self._kind)
