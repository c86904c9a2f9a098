"""A factor for covariances: of H, or of the Schur complement of its landmarks, from edges on the device.

The block solver of an optimization forms and factors it in one trial; nothing but the diagonal of H comes to
the host. What the device cannot do is left to the host: there H is formed for any edge and kind of vertex.
"""

from __future__ import annotations

import numpy as np

from graphopt.device.errors import DeviceMemoryError
from graphopt.device.shared import shared_device
from graphopt.errors import DeviceLimitError
from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.problem.small_blocks import LARGEST_BLOCK
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.vulkan.cholesky import DeviceCholesky
from graphopt.vulkan.kernels.factorize import DeviceFactor
from graphopt.vulkan.solver import ResidentBlockSolver, create


def factor_of_edges(
    graph: Graph,
    structure: Structure,
    device: str,
    damping: float,
    *,
    eliminates: bool,
    on: np.ndarray | None = None,
) -> tuple[DeviceCholesky, np.ndarray] | None:
    """A factorization of H + damping diag(H), or of its Schur complement, and H's diagonal (dim,).

    on: scalars that are damped, None: all.

    None: the host is to form H, because the device cannot hold or evaluate it, or because it is not positive
    definite or not finite, of which the host finds out more.
    """
    opened = shared_device(device.partition(":")[2] or None)
    structure.is_evaluated_once = True
    if structure.external or not opened.has_float64 or structure.dims.max(initial=0) > LARGEST_BLOCK:
        return None
    schur = "explicit" if eliminates else "off"
    options = SolverOptions(device=device, linear_solver="cholesky", schur=schur, precision="double")
    try:
        solver = create(graph, structure, options, device=opened)
        if not isinstance(solver, ResidentBlockSolver):
            return None
        solver.linearize()
        solver.wait_linearized()
        diagonal = solver.diagonal
        if not solver.system.solve(_damping(damping, diagonal, on)):
            return None
        method = solver.system.method
        if not isinstance(method, DeviceFactor) or not np.isfinite(diagonal).all():
            return None
        return method.whole_factor(), diagonal
    except (DeviceMemoryError, DeviceLimitError):
        return None


def _damping(share: float, diagonal: np.ndarray, on: np.ndarray | None) -> Damping | np.ndarray:
    if on is None:
        return Damping(share, scaled=share > 0.0)
    damping = np.zeros(len(diagonal))
    damping[on] = share * diagonal[on]
    return damping
