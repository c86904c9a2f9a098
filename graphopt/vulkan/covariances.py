"""A factor for covariances: of H, or of the Schur complement of its landmarks, from edges on the device.

    H + D = sum J' w Omega J + D,   S = H_pp + D_p - H_pl inv(H_ll + D_l) H_pl'        once, at one estimate

The kernels are those of an optimization, without what a step needs: no right-hand side, no back-substitution.
One thread sorts the edges for H while another one makes the queue of S. Nothing but the diagonal of H comes
to the host. What the device cannot do is left to the host: there H is formed for any edge and kind of vertex.
"""

from __future__ import annotations

import numpy as np

from graphopt.device import Device
from graphopt.device.errors import DeviceMemoryError
from graphopt.device.shared import shared_device
from graphopt.errors import DeviceLimitError
from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.problem.small_blocks import LARGEST_BLOCK
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.vulkan.cholesky import DeviceCholesky
from graphopt.vulkan.cholesky.analysis import analyse_once
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.kernels.blocks import BlockInverse
from graphopt.vulkan.kernels.damping import HEADER, DeviceDamping
from graphopt.vulkan.kernels.linearize import DeviceLinearizer
from graphopt.vulkan.kernels.pcg import INDEFINITE
from graphopt.vulkan.kernels.schur import SchurBlocks, SchurLookup, explicit_schur
from graphopt.vulkan.kernels.sums import gather_diagonal
from graphopt.vulkan.operators.table import operators_of
from graphopt.vulkan.plan.choice import Plan, choose_plan, configuration_of
from graphopt.vulkan.plan.storage import Storage
from graphopt.vulkan.program import Context, InThread, Program

_STATUS_WORDS = 8


def factor_of_edges(
    graph: Graph,
    structure: Structure,
    device: str,
    damping: float,
    *,
    eliminates: bool,
    on: np.ndarray | None = None,
) -> tuple[DeviceCholesky, np.ndarray] | None:
    """A factorization of H + D, or of its Schur complement, and the diagonal of H or of H_pp.

    D is damping diag(H), or on: of these scalars alone, which are kept. None: the host is to form H, because
    the device cannot hold or evaluate it, or because it is not positive definite or not finite, of which the
    host finds out more.
    """
    opened = shared_device(device.partition(":")[2] or None)
    structure.is_evaluated_once = True
    if structure.external or not opened.has_float64 or structure.dims.max(initial=0) > LARGEST_BLOCK:
        return None
    schur = "explicit" if eliminates else "off"
    options = SolverOptions(device=device, linear_solver="cholesky", schur=schur, precision="double")
    try:
        plan = choose_plan("auto", opened, structure, configuration_of(options, "double"), "double")
        if plan.schedule == "host":
            return None
        return _System(opened, structure, plan, eliminates=eliminates).factorized(damping, on)
    except (DeviceMemoryError, DeviceLimitError):
        return None


class _System:
    """H from edges, and what is factored of it."""

    def __init__(self, device: Device, structure: Structure, plan: Plan, *, eliminates: bool):
        self._context = context = Context(device, "double")
        num_kept = structure.num_kept if eliminates else structure.num_blocks
        storage = Storage.of(structure, num_kept, plan.products, plan.evaluations)
        operators = operators_of(storage.products, storage.evaluations)
        self._linearizer = DeviceLinearizer(context, structure, storage, operators, plan.merged)
        views = InThread("graphopt-views", self._linearizer.prepare)
        layout = self._layout = storage.layout
        self._values, self._b = context.reals(layout.values_size), context.reals(layout.dim)
        self._damping = DeviceDamping(context, layout.dim)
        self._status = device.allocate(4 * _STATUS_WORDS)
        self._inverse: BlockInverse | None = None
        self._schur: SchurBlocks | SchurLookup | None = None
        reduced = layout
        if eliminates:
            dims, places = layout.dims[num_kept:], layout.diagonal_offset[num_kept:]
            self._inverse = BlockInverse(context, dims, places, layout.scalar[num_kept:-1])
            self._schur, reduced = explicit_schur(context, layout, self._inverse.offset)
        self._cholesky = DeviceCholesky(device, reduced.pattern, analysis=analyse_once(reduced.pattern))
        views.result()

    def factorized(self, damping: float, on: np.ndarray | None) -> tuple[DeviceCholesky, np.ndarray] | None:
        """As `factor_of_edges`."""
        context, is_scaled = self._context, on is None and damping > 0.0
        diagonal = DeviceArray(context, self._layout.kept_dim, is_mapped=False)
        program = Program(context)
        self._linearizer.record_linearize(program, self._linearizer.estimates.current, self._values, self._b)
        self._record_diagonal(program, diagonal, keeps_all=is_scaled)
        program.run()
        found = diagonal.downloaded.astype(np.float64)
        if not np.isfinite(found).all():
            return None
        if on is None:
            self._damping.set(Damping(damping, scaled=is_scaled))
        else:
            springs = np.zeros(len(found))
            springs[on] = damping * found[on]
            self._damping.set(springs)
        self._record_factor(program := Program(context))
        program.run()
        if not self._is_definite():
            return None
        self._cholesky.note_factorized()
        return self._cholesky, found

    def _record_diagonal(self, program: Program, target: DeviceArray, *, keeps_all: bool) -> None:
        """The diagonal of what is kept to the host; keeps_all: all of H's for D."""
        launches = [(self._layout.kept().diagonal_scalars, target.buffer, 0)]
        if keeps_all:
            launches.append((self._layout.diagonal_scalars, self._damping.buffer, HEADER))
        for scalars, buffer, first in launches:
            read = (self._context.indices(scalars), self._values, self._b)
            program.step([gather_diagonal(self._context, read, buffer, len(scalars), first)])
        target.record_download(program)

    def _record_factor(self, program: Program) -> None:
        """D, S where there are landmarks, and the factor."""
        values, damping, status = self._values, self._damping.buffer, self._status
        self._cholesky.record_clear(program.fill(status))
        self._damping.record(program)
        if self._inverse is None or self._schur is None:
            self._cholesky.record_factorize(program, values, damping, is_clear=True)
            return
        program.step(self._inverse.launches(values, damping, status))
        program.step(self._schur.pair_launches(values, self._inverse.buffer, damping))
        program.step(self._schur.combine_launches(values, damping))
        self._cholesky.record_factorize(program, self._schur.buffer, None, is_clear=True)

    def _is_definite(self) -> bool:
        """All pivots were good, of the factorization and of the elimination before it."""
        download, words = self._context.device.download, np.dtype(np.uint32)
        eliminated = download(self._status, words, _STATUS_WORDS)[INDEFINITE] == 0
        return bool(eliminated and download(self._cholesky.status, words, 1)[0] == 0)
