"""What device "auto" stands for: the CPU, but a GPU for what only a GPU does and for large graphs.

With landmarks to eliminate, an iteration is linear in the edges and a discrete GPU does it 20 to 100 times
faster than a few cores. Large pose graphs are factorized there, up to ten times faster than on 16 cores
where they fill space or a plane, and about as fast along a random walk. But
opening the device, kernels and uploads take some tenths of a second. So a first call is the GPU's for large
graphs only. A further call of the same structure (`device_for_more`) is, where the process has a GPU open,
what an iteration costs the cores:

    factorization   operations / (CORE_FLOPS cores) > GPU_FACTORED
    elimination     edges EDGE_SECONDS / cores      > GPU_ELIMINATED
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from graphopt.cpu_kernels import kernels
from graphopt.errors import DeviceError
from graphopt.linear.table import factorizes
from graphopt.problem.small_blocks import LARGEST_BLOCK
from graphopt.problem.structure import Structure
from graphopt.pyglslang import ShaderError
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.devices import device_row

if TYPE_CHECKING:
    from graphopt.linear.options import SolverOptions

LARGE = 200_000
"""Edges from which on a GPU pays in a first call."""


CORE_FLOPS = 1e10
"""Of a core that factorizes a pose graph with others, all told."""
USEFUL_CORES = 8
"""Of problems that are small: more wait for each other."""
EDGE_SECONDS = 8e-7
"""Of a core, per image and iteration: linearise, eliminate, update."""
MANY_PROBLEMS = 256
"""Of a batch, a workgroup each: fewer leave most of a GPU idle."""
BATCH_EDGE_SECONDS = 3e-7
"""Of a core, per edge of a small problem, all iterations."""
GPU_BATCH, GPU_OPENED = 5e-3, 1.0
"""From how long a batch takes the CPU a GPU that is open pays; one that is to be opened first [s]."""
GPU_FACTORED, GPU_ELIMINATED = 4e-3, 5e-4
"""What an iteration of a small problem takes on a GPU, by launches and round trips alone [s]."""


def choose_device(structure: Structure, options: SolverOptions) -> str:
    """The device of a first call: "cpu", "vulkan" where the options need a GPU, "vulkan:N" for much work."""
    if needs_gpu(options):
        return "vulkan"
    if structure.num_edges < LARGE or not _may_move(structure, options):
        return "cpu"
    index = discrete_gpu()
    return "cpu" if index is None else f"vulkan:{index}"


def needs_gpu(options: SolverOptions) -> bool:
    """Something was asked for that only a GPU does."""
    return options.schedule not in ("auto", "host") or options.precision == "mixed"


def has_small_blocks(options: SolverOptions) -> bool:
    """The solver holds blocks of `LARGEST_BLOCK` rows at most: larger vertices are to be split for it.

    "auto" takes the CPU for them where it has the choice.
    """
    kind = options.device.partition(":")[0]
    return needs_gpu(options) if kind == "auto" else device_row(kind).has_small_blocks


def device_for_more(structure: Structure, options: SolverOptions, factor_flops: float) -> str:
    """The device of further calls on a structure that "auto" has given to the CPU: "cpu" or "vulkan:N".

    factor_flops: operations of one factorization.
    """
    cores = min(kernels.num_threads(), USEFUL_CORES)
    if structure.has_schur:
        pays = structure.num_edges * EDGE_SECONDS / cores > GPU_ELIMINATED
    else:
        pays = factor_flops / (CORE_FLOPS * cores) > GPU_FACTORED
    if not pays or options.schedule != "auto" or structure.external or not _may_move(structure, options):
        return "cpu"
    index = _open_gpu()
    return "cpu" if index is None else f"vulkan:{index}"


def device_for_batch(options: SolverOptions, num_problems: int, num_edges: int) -> str:
    """The device of many small problems with so many edges each: "cpu" or "vulkan:N"."""
    if num_problems < MANY_PROBLEMS or factorizes(options.linear_solver) or options.schedule == "host":
        return "cpu"
    seconds = num_problems * num_edges * BATCH_EDGE_SECONDS / kernels.num_threads()
    if seconds < GPU_BATCH:
        return "cpu"
    index = _open_gpu() if seconds < GPU_OPENED else discrete_gpu()
    return "cpu" if index is None else f"vulkan:{index}"


def _may_move(structure: Structure, options: SolverOptions) -> bool:
    """What was asked for is nothing that the CPU does better, and kernels can hold the blocks."""
    if factorizes(options.linear_solver) or (structure.has_schur and options.schur == "off"):
        return False
    return int(structure.dims.max()) <= LARGEST_BLOCK


FAILURES = (DeviceError, ShaderError)
"""How a GPU says no: no memory, no kernel, no device any more, more than kernels count."""


def may_stay(options: SolverOptions) -> bool:
    """Nobody asked for a GPU, so that the CPU may go on where one fails."""
    return options.device == "auto" and not needs_gpu(options)


def say_why(error: Exception) -> None:
    """Warn that a GPU has failed."""
    warnings.warn(f"{error} Solving on the CPU instead.", RuntimeWarning, stacklevel=3)


def create_or_stay(create: Callable[[str], BlockSolver], device: str) -> BlockSolver:
    """`create(device)`; where a GPU that nobody asked for fails, a warning that says why, and the CPU.

    Much of a solver is set up beside its first steps: `optimize` goes on likewise where it fails later.
    """
    if not device.startswith("vulkan:"):
        return create(device)
    try:
        return create(device)
    except FAILURES as error:
        say_why(error)
        return create("cpu")


def open_early(device: str) -> None:
    """Let the driver of a GPU that was asked for start while the host prepares the problem."""
    kind, _, which = device.partition(":")
    if kind == "vulkan":
        from graphopt.device import shared

        shared.open_early(which or None)


def _open_gpu() -> int | None:
    """Index of a discrete GPU that computes in float64 and is open in this process."""
    shared = sys.modules.get("graphopt.device.shared")  # it opens them, and loads slowly
    return None if shared is None else shared.open_discrete()


@cache
def discrete_gpu() -> int | None:
    """Index of the first discrete GPU that computes in float64; looked for once per process."""
    from graphopt.device import list_devices

    try:
        devices = list_devices()
    except DeviceError:
        return None
    return next(
        (device.index for device in devices if device.kind == "discrete" and device.features["float64"]), None
    )
