"""Cholesky factorisation of a sparse symmetric block matrix on a device.

    P (H + D) P' = L S L'        S = I ("llt"), or diag(+-1) ("ldlt": D of LDL' is S times squares)

Multifrontal, level by level from the leaves of the assembly tree (`analysis`). Within a level the small
fronts (up to 64 rows) are one dispatch: a workgroup takes a front from its children's updates to its own in
shared memory. The large ones share the device:

    assemble    += updates of the children, tile by tile
    panel       32 columns: brought up to date, factored, rows below solved for
    beside      columns after these -= L S L' of the 32 before, where the device takes all of it at once
    trailing    else after 256 columns all later ones -= L S L', tiles of 64 x 64
    complement  update -= L21 S L21'

A dense system is one front without rows below. Nothing is added atomically, every sum has a fixed order:
equal input gives equal bits. References: Duff and Reid, The multifrontal solution of indefinite sparse
symmetric linear equations, ACM TOMS 1983; Liu, The multifrontal method, SIAM Review 1992.
"""

from __future__ import annotations

from typing import Any, Literal
from weakref import proxy

import numpy as np

from graphopt.errors import OptionError, ShapeError, SolverError
from graphopt.linear import BlockPattern
from graphopt.linear.refined import SignedSystem
from graphopt.vulkan.cholesky.analysis import Analysis, analyse
from graphopt.vulkan.cholesky.inverse import SelectedInverse
from graphopt.vulkan.cholesky.memory import check_memory, predict_memory
from graphopt.vulkan.cholesky.solve import Solves
from graphopt.vulkan.cholesky.work import (
    BLOCK,
    PANEL_FLOPS,
    UPDATE_FLOPS,
    Level,
    Run,
    Update,
    Work,
    tile_bounds,
)
from graphopt.vulkan.kernels.damping import HEADER, given
from graphopt.vulkan.program import Launch, Program

Method = Literal["llt", "ldlt"]
STATUS_WORDS = 2
"""0, or rows minus the first bad pivot in the order of elimination; number of negative pivots ("ldlt")."""
MAX_GROUPS = 1 << 15
"""Workgroups of one dispatch of a work list: they are counted in one dimension."""
_LARGE, _SIGNED, _NARROW = 15, 14, 13  # specialization constants
_LARGE_BYTES = 1 << 32
_VECTOR = 128
_BYTES_PER_FLOP = 0.25  # that take as long, on a slow device


class DeviceCholesky:
    """Factors and solves on a device; the structure is analysed once, numbers change as often as one likes.

    device: an opened device. pattern: block pattern of H (upper triangle by columns). precision: "double", or
    "mixed" for float32. Raises `DeviceMemoryError` before anything is taken if the device is too small.
    """

    def __init__(
        self,
        device: Any,
        pattern: BlockPattern,
        precision: Literal["double", "mixed"] = "double",
        method: Method = "llt",
        *,
        ordering: str = "auto",
        analysis: Analysis | None = None,
        narrow_numbers: bool = False,
    ):
        """narrow_numbers: matrix, damping, right-hand sides and solutions are float32 in any precision."""
        if method not in ("llt", "ldlt"):
            raise OptionError(f"method is {method!r}, expected 'llt' or 'ldlt'.")
        self.device, self.pattern, self.method = device, pattern, method
        self.precision: Literal["double", "mixed"] = precision
        self.real = np.dtype(np.float64 if precision == "double" else np.float32)
        self.number = np.dtype(np.float32) if narrow_numbers else self.real
        """Of matrices and vectors that are handed in."""
        self.analysis = analysis or analyse(pattern, ordering)
        check_memory(device, self.analysis, self.real.itemsize)
        self.memory_bytes = sum(predict_memory(self.analysis, self.real.itemsize).values())
        """Device memory, predicted."""
        self.work = Work.of(self.analysis)
        self._upload_structure()
        self._reserve()
        self._solves: dict[int, Solves] = {}
        self._host: Any = None
        self._inverse: SelectedInverse | None = None

    # ---------------------------------------------------------------- structure and memory

    def _upload_structure(self) -> None:
        own, symbolic = self.analysis, self.analysis.symbolic
        first, bounds = tile_bounds(own)
        fronts = np.zeros((max(1, len(own.level)), 12), np.uint32)
        begin = symbolic.children_begin
        columns = (symbolic.first_pivot, own.num_pivots, own.num_below, own.factor_offset[:-1])
        columns += (own.update_offset, symbolic.rows_begin, begin[:-1], begin[1:], first)
        for k, column in enumerate(columns):
            fronts[: len(own.level), k] = column
        self.fronts = self._indices(fronts)
        self.children = self._indices(symbolic.children)
        self.parent_row = self._indices(symbolic.parent_row)
        self.rows = self._indices(symbolic.rows)
        self.words = self._indices(self.work.words)
        self._bounds = self._indices(bounds)
        self._num_values, self._places = len(own.places), self._indices(own.places)
        self._diagonal = self._indices(own.diagonal_places())
        self.source = self._indices(symbolic.scalar_source)

    def _indices(self, array: np.ndarray) -> Any:
        return self.device.upload(np.ascontiguousarray(array, np.uint32).ravel())

    def reals(self, count: int) -> Any:
        """A device buffer of `count` reals."""
        return self.device.allocate(max(count, 1) * self.real.itemsize)

    def numbers(self, count: int) -> Any:
        """A device buffer of `count` numbers as they are handed in."""
        return self.device.allocate(max(count, 1) * self.number.itemsize)

    def _reserve(self) -> None:
        own = self.analysis
        self.factor = self.reals(own.factor_size)
        self._arenas = [self.reals(size) for size in own.arena_size]
        self._diagonals = self.reals(32 * self.work.num_diagonals)
        self._thresholds = self.reals(own.dim)
        self.signs = self.reals(own.dim if self.method == "ldlt" else 1)
        self.status = self.device.allocate(4 * 8)
        """First word 0: every pivot was good. See `failed_block`."""
        self._is_large = False
        self.note_sizes(own.factor_size, *own.arena_size, self.pattern.values_size)

    def note_sizes(self, *sizes: int) -> None:
        """Arrays of so many reals are in use: kernels reach them with 64 bits where one takes 4 GiB."""
        self._is_large |= max(sizes) * self.real.itemsize >= _LARGE_BYTES

    def shader(self, name: str, num_buffers: int, num_params: int, constants: dict[int, int]) -> Any:
        """Kernel chol_<name> for this method and size."""
        constants = {**constants, _SIGNED: int(self.method == "ldlt")}
        if self.number != self.real:
            constants[_NARROW] = 1
        if self._is_large:
            constants[_LARGE] = 1
        return self.device.shader(f"chol_{name}", self.precision, num_buffers, num_params, constants)

    # ---------------------------------------------------------------- recording

    def record_clear(self, recorder: Any) -> None:
        """Record that the factor and the status are zeros; a barrier has to follow."""
        recorder.fill(self.factor)
        recorder.fill(self.status)

    def record_factorize(
        self, recorder: Any, values: Any, damping: Any = None, *, is_clear: bool = False
    ) -> None:
        """Record the factorisation of H + D; barriers before and after are part of it.

        values: buffer of `pattern.values_size` reals. damping: buffer of `kernels.damping`, or None: D = 0.
        is_clear: `record_clear` was recorded, and barriers after it and before this.
        """
        own = self.analysis
        if not is_clear:
            recorder.barrier()
            self.record_clear(recorder)
            recorder.barrier()
        if own.dim == 0:
            return
        self.record_scatter(recorder, values, damping)
        for number, level in enumerate(self.work.levels):
            self._record_level(recorder, level, self._arenas[1 - number % 2], self._arenas[number % 2])

    def record_scatter(self, recorder: Any, values: Any, damping: Any) -> None:
        """Record H's numbers to their places in the factor, D, and what pivots must exceed."""
        self._scatter(recorder, self._places, values, self._num_values)
        recorder.barrier()
        self._damp(recorder, self._diagonal, self.factor, damping, self.analysis.dim)
        recorder.barrier()

    def _damp(self, recorder: Any, places: Any, matrix: Any, damping: Any, rows: int) -> None:
        """places: of the diagonal in a matrix; rows: the first ones that are damped."""
        damp = self.shader("damp", 5, 1, {0: _VECTOR, 1: int(damping is not None)})
        buffers = (places, self.source, damping or matrix, matrix, self._thresholds)
        recorder.dispatch(damp, buffers, (rows,), -(-rows // _VECTOR))

    def _scatter(self, recorder: Any, places: Any, values: Any, size: int) -> None:
        scatter = self.shader("scatter", 3, 2, {0: _VECTOR})
        buffers = (places, values, self.factor)
        for first in range(0, size, MAX_GROUPS * _VECTOR):
            groups = min(MAX_GROUPS, -(-(size - first) // _VECTOR))
            recorder.dispatch(scatter, buffers, (first, size), groups)

    def record_list(
        self,
        recorder: Any,
        kernel: Any,
        run: Run,
        words: int,
        buffers: tuple[Any, ...],
        params: tuple = (),
        flops: float = 0.0,
    ) -> None:
        """Dispatch a work list, in pieces where it is long; flops: operations of a workgroup, where many.

        A `Program` ends a submission where these are too many for one.
        """
        for start in range(0, run.num, MAX_GROUPS):
            groups = min(MAX_GROUPS, run.num - start)
            first = (run.first + words * start, *params)
            if isinstance(recorder, Program):
                nbytes = _BYTES_PER_FLOP * flops * groups
                recorder.launch(Launch(kernel, buffers, first, groups, nbytes))
            else:
                recorder.dispatch(kernel, buffers, first, groups)

    def _record_level(self, recorder: Any, level: Level, below: Any, updates: Any) -> None:
        dim = self.analysis.dim
        for rows, run in level.small:
            kernel = self.shader(f"small{rows}", 10, 2, {0: max(32, rows)})
            buffers = (self.words, self.fronts, self.children, self.parent_row, below, self.factor, updates)
            buffers += (self._thresholds, self.signs, self.status)
            self.record_list(recorder, kernel, run, 1, buffers, (dim,))
        if level.assemble is not None:
            kernel = self.shader("assemble", 8, 1, {0: 128})
            buffers = (self.words, self.fronts, self.children, self.parent_row, self._bounds, below)
            self.record_list(recorder, kernel, level.assemble, 2, (*buffers, self.factor, updates))
        recorder.barrier()
        self._record_panels(recorder, level, updates)

    def _record_panels(self, recorder: Any, level: Level, updates: Any) -> None:
        panel = self.shader("panel", 7, 4, {0: 128})
        widest = BLOCK * len(level.steps)
        buffers = (self.words, self.fronts, self.factor, self._diagonals, self._thresholds, self.signs)
        for step in level.steps:
            params = (step.column, step.panel, self.analysis.dim)
            flops = PANEL_FLOPS * (step.column - step.panel + BLOCK)
            self.record_list(recorder, panel, step.run, 3, (*buffers, self.status), params, flops)
            if step.beside is not None:
                self._record_update(recorder, step.beside.run, updates, step.beside)
            recorder.barrier()
            if step.after is not None:
                self._record_update(recorder, step.after.run, updates, step.after)
                recorder.barrier()
        if level.diagonals is not None:
            kernel = self.shader("diagonal", 4, 1, {0: 128})
            diagonals = (self.words, self.fronts, self._diagonals, self.factor)
            self.record_list(recorder, kernel, level.diagonals, 3, diagonals)
        if level.complement is not None:
            self._record_update(recorder, level.complement, updates, None, widest)
        if level.steps:
            recorder.barrier()

    def _record_update(
        self, recorder: Any, run: Run, updates: Any, span: Update | None, depth: int = 0
    ) -> None:
        """span: of pivot columns; None: the Schur complement by all, which are `depth` at most."""
        kernel = self.shader("update", 5, 5, {0: 128, 1: int(span is None)})
        buffers = (self.words, self.fronts, self.factor, updates, self.signs)
        params = (0, 0, 0, 0) if span is None else (span.begin, span.end, span.start, span.last)
        flops = UPDATE_FLOPS * (params[1] - params[0] if span else depth)
        self.record_list(recorder, kernel, run, 2, buffers, params, flops)

    def record_solve(self, recorder: Any, rhs: Any, x: Any, num_rhs: int = 1) -> None:
        """Record x = (H + D)^-1 rhs with the last factorisation; x may be rhs.

        rhs, x: buffers of (num_rhs, dim) reals, one side after the other.
        """
        if self.analysis.dim == 0 or num_rhs == 0:
            return
        if num_rhs > self.max_sides:
            raise SolverError(
                f"{num_rhs} right-hand sides of {self.analysis.dim} rows need a vector of 4 GiB or more, "
                f"which kernels do not reach. Solve for at most {self.max_sides} at once."
            )
        if num_rhs not in self._solves:
            self._solves[num_rhs] = Solves(proxy(self), num_rhs)  # no cycle: memory goes at once
        self._solves[num_rhs].record(recorder, rhs, x)

    @property
    def max_sides(self) -> int:
        """Right-hand sides at once: vectors of all of them stay below 4 GiB."""
        rows = max(1, self.analysis.dim, self.analysis.num_carried)
        return max(1, (_LARGE_BYTES - 1) // (8 * rows))

    # ---------------------------------------------------------------- outcome

    def failed_block(self, status: np.ndarray) -> int | None:
        """Block of the first bad pivot, from the words of `status` on the host; None: all were good."""
        if status[0] == 0:
            return None
        scalar = self.analysis.symbolic.scalar_source[self.analysis.dim - int(status[0])]
        return int(np.searchsorted(self.pattern.offsets, scalar, side="right")) - 1

    # ---------------------------------------------------------------- from the host

    def factorize(self, values: np.ndarray, damping: np.ndarray | None = None) -> bool:
        """Factorize numbers of the host, as the CPU's solvers do; False: see `failed`."""
        if self._host is None:
            self._host = _HostSide(proxy(self))
        return self._host.factorize(values, damping)

    def note_factorized(self) -> None:
        """The recorded factorization has run and was good: `solve` and `marginals` go on with it ("llt")."""
        self._host = self._host or _HostSide(proxy(self))
        self._host.is_factorized = True

    def solve(self, b: np.ndarray) -> np.ndarray:
        """x (dim,) or (dim, k) from b of the same shape. Raises SolverError without a factorisation.

        With "ldlt" solutions are refined on the host, in float64; SolverError also where a residual stays
        above the square root of the machine epsilon (`residual`). Recorded ones are not refined.
        """
        if self._host is None or not self._host.is_factorized:
            raise SolverError(
                "solve: there is no factorisation; call factorize() and check that it returns True."
            )
        return self._host.solve(np.asarray(b))

    def marginals(self, block_pairs: np.ndarray) -> list[np.ndarray]:
        """Blocks (row, col) of (H + D)^-1 of the last `factorize`, one array per pair; see `inverse`."""
        if self._host is None or not self._host.is_factorized:
            raise SolverError(
                "marginals: there is no factorisation; call factorize() and check that it returns True."
            )
        if self._inverse is None:
            self._inverse = SelectedInverse(proxy(self))
        return self._inverse.blocks(block_pairs)

    @property
    def failed(self) -> int | None:
        """Block of the first bad pivot of the last `factorize`."""
        return None if self._host is None else self.failed_block(self._host.words)

    @property
    def residual(self) -> float | None:
        """|b - (H + D) x| over |H + D| |x| + |b| of the last `solve` with "ldlt", the largest."""
        return None if self._host is None or self._host.system is None else self._host.system.residual

    @property
    def num_negative(self) -> int:
        """Negative pivots of the last `factorize` ("ldlt")."""
        return 0 if self._host is None else int(self._host.words[1])


def _check_shape(array: np.ndarray, size: int, name: str) -> None:
    if np.shape(array) != (size,):
        raise ShapeError(f"{name}: expected an array of shape ({size},), got {np.shape(array)}.")


class _HostSide:
    """Moves numbers of the host to a factorisation and back."""

    def __init__(self, owner: DeviceCholesky):
        self._owner = owner
        self._buffers: dict[str, Any] = {}
        self._programs: dict[bool, Any] = {}
        self.words = np.zeros(STATUS_WORDS, np.uint32)
        self.is_factorized = False
        self.system = None
        if owner.method == "ldlt":
            self.system = SignedSystem(owner.pattern, float(np.finfo(owner.real).eps))

    def _numbers(self, array: np.ndarray, size: int, name: str) -> Any:
        """The buffer of what is moved again and again, with new numbers in it."""
        if name not in self._buffers:
            self._buffers[name] = self._owner.numbers(size)
        self._move(array, self._buffers[name], size, name)
        return self._buffers[name]

    def _move(self, array: np.ndarray, buffer: Any, size: int, name: str) -> None:
        _check_shape(array, size, name)
        device, real = self._owner.device, self._owner.number
        staging = device.allocate(max(1, size) * real.itemsize, "upload")
        staging.array(real, 0, size)[:] = array
        device.submit(device.record().copy(staging, buffer, max(1, size) * real.itemsize).finish()).wait()

    def factorize(self, values: np.ndarray, damping: np.ndarray | None) -> bool:
        owner, is_damped, added = self._owner, damping is not None, None
        self.is_factorized = False
        matrix = self._numbers(values, owner.pattern.values_size, "values")
        if damping is not None:
            _check_shape(damping, owner.pattern.dim, "damping")
            added = self._numbers(given(damping), HEADER + owner.pattern.dim, "damping")
        if is_damped not in self._programs:
            recorder = owner.device.record()
            owner.record_factorize(recorder, matrix, added)
            self._programs[is_damped] = recorder.finish()
        owner.device.submit(self._programs[is_damped]).wait()
        self.words = owner.device.download(owner.status, np.uint32, STATUS_WORDS)
        self.is_factorized = self.words[0] == 0
        if self.system is not None and self.is_factorized:
            self.system.take(values, damping)
        return bool(self.is_factorized)

    def solve(self, b: np.ndarray) -> np.ndarray:
        if self.system is None:
            return self.substitute(b)
        self._check(b)
        return self.system.solve(self.substitute, np.asarray(b, np.float64))

    def _check(self, b: np.ndarray) -> None:
        dim = self._owner.pattern.dim
        if not 1 <= b.ndim <= 2 or b.shape[0] != dim:
            raise ShapeError(f"b: expected shape ({dim},) or ({dim}, k), got {b.shape}.")

    def substitute(self, b: np.ndarray) -> np.ndarray:
        """What the factor gives."""
        owner = self._owner
        self._check(b)
        dim, sides = owner.pattern.dim, 1 if b.ndim == 1 else b.shape[1]
        if sides > owner.max_sides:
            cuts = range(0, sides, owner.max_sides)
            return np.concatenate([self.substitute(b[:, k : k + owner.max_sides]) for k in cuts], axis=1)
        rhs = owner.numbers(dim * sides)
        self._move(np.ascontiguousarray(b.T).ravel(), rhs, dim * sides, "b")
        recorder = owner.device.record()
        owner.record_solve(recorder, rhs, rhs, sides)
        owner.device.submit(recorder.finish()).wait()
        x = owner.device.download(rhs, owner.number, dim * sides).astype(np.float64)
        return x if b.ndim == 1 else np.ascontiguousarray(x.reshape(sides, dim).T)
