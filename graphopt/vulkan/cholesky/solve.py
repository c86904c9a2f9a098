"""Triangular solves on a device: L z = P b from the leaves up, L' (P x) = S z from the roots down.

A front of up to 2,048 rows is one workgroup's, from what its children carry up to what it carries on: it
reads the factor more slowly than the whole device would, but nothing waits between its blocks of 32 columns.
Larger ones are shared, block by block, by workgroups of 128 rows (forward) or columns (backward), each of
which solves with the 32 x 32 triangle for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphopt.vulkan.cholesky.work import Level, Run

_VECTOR = 128


class Solves:
    """The vectors of solves with a number of right-hand sides, and their commands."""

    def __init__(self, owner: Any, num_rhs: int):
        self._owner, self._num = owner, num_rhs
        self._y = owner.reals(owner.analysis.dim * num_rhs)
        self._z = owner.reals(owner.analysis.dim * num_rhs)
        self._carry = owner.reals(owner.analysis.num_carried * num_rhs)
        self._most_lanes = owner.device.info["max_workgroup_invocations"]

    def record(self, recorder: Any, rhs: Any, x: Any) -> None:
        """Record everything, with barriers before and after."""
        recorder.barrier()
        self._permute(recorder, rhs, self._y, back=False)
        for level in self._owner.work.levels:
            self._forward(recorder, level)
        for level in reversed(self._owner.work.levels):
            self._backward(recorder, level)
        self._permute(recorder, self._y, x, back=True)

    def _permute(self, recorder: Any, source: Any, target: Any, *, back: bool) -> None:
        own, total = self._owner, self._owner.analysis.dim * self._num
        kernel = own.shader("permute", 3, 2, {0: _VECTOR, 1: int(back)})
        buffers = (own.source, source, target)
        recorder.dispatch(kernel, buffers, (own.analysis.dim, total), -(-total // _VECTOR))
        recorder.barrier()

    def _dispatch(
        self, recorder: Any, kernel: Any, run: Run, buffers: tuple[Any, ...], params: tuple[int, ...]
    ) -> None:
        """All sides of a list: `num` of the kernel is its length, sides follow each other."""
        recorder.dispatch(kernel, buffers, (run.first, run.num, self._num, *params), run.num * self._num)

    def _forward(self, recorder: Any, level: Level) -> None:
        own, dim, carried = self._owner, self._owner.analysis.dim, self._owner.analysis.num_carried
        front = (own.words, own.fronts)
        tree = (*front, own.children, own.parent_row)
        for capacity, lanes, run in level.solve_small:
            kernel = own.shader("forward", 8, 5, {0: min(lanes, self._most_lanes), 1: capacity})
            buffers = (*tree, own.factor, self._y, self._z, self._carry)
            self._dispatch(recorder, kernel, run, buffers, (dim, carried))
        if level.collect is not None:
            kernel = own.shader("forward_collect", 6, 5, {0: 256})
            self._dispatch(recorder, kernel, level.collect, (*tree, self._y, self._carry), (dim, carried))
        recorder.barrier()
        for column, run in level.forward:
            kernel = own.shader("forward_step", 6, 6, {0: 128})
            buffers = (*front, own.factor, self._y, self._z, self._carry)
            self._dispatch(recorder, kernel, run, buffers, (column, dim, carried))
            recorder.barrier()

    def _backward(self, recorder: Any, level: Level) -> None:
        own, dim = self._owner, self._owner.analysis.dim
        front = (own.words, own.fronts)
        for capacity, lanes, run in level.solve_small:
            kernel = own.shader("backward", 7, 4, {0: min(lanes, self._most_lanes), 1: capacity})
            buffers = (*front, own.rows, own.factor, own.signs, self._z, self._y)
            self._dispatch(recorder, kernel, run, buffers, (dim,))
        if level.start is not None:
            kernel = own.shader("backward_start", 7, 4, {0: 128})
            buffers = (*front, own.rows, own.factor, own.signs, self._z, self._y)
            self._dispatch(recorder, kernel, level.start, buffers, (dim,))
        recorder.barrier()
        for column, run in level.backward:
            kernel = own.shader("backward_step", 5, 5, {0: 128})
            buffers = (*front, own.factor, self._z, self._y)
            self._dispatch(recorder, kernel, run, buffers, (column, dim))
            recorder.barrier()
