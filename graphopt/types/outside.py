"""Edge types whose residual something else than the compiler evaluates: a network, a renderer, a simulator.

    evaluate     arrays of all edges at once -> residuals (m, residual_dim)
    linearize    the same arrays -> residuals, per vertex their derivative by its stored numbers
                 (m, residual_dim, storage_dim)

The arrays are float64, C-contiguous, (m, dim) each: stored estimates per vertex, stored parameters, and the
measurement where the type has one. Both are called once per linearization or chi2, never per edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import graphopt.types.registry as registry
from graphopt.errors import ShapeError
from graphopt.types.base import EdgeType, ParameterType, VertexType, unwrapped
from graphopt.types.files import measurement_then_information, plain
from graphopt.types.outside_functions import Evaluate, Linearize, OnDevice, Outside


def outside_edge_type(
    evaluate: Evaluate,
    linearize: Linearize | None,
    *,
    tag: str,
    vertices: Sequence[str | VertexType],
    residual_dim: int,
    measurement_dim: int = 0,
    parameters: Sequence[str | ParameterType] = (),
    home: str = "",
    on_device: OnDevice | None = None,
) -> EdgeType:
    """Define and register an edge type that these functions evaluate; see the module's header.

    Its edges are added, weighted, made robust, fixed and mixed with compiled ones like all others. They have
    no second derivatives: `graphopt.torch.solve` refuses graphs that have such edges.
    """
    for name, dim in (("residual_dim", residual_dim), ("measurement_dim", measurement_dim)):
        if not isinstance(dim, int) or dim < (name == "residual_dim"):
            raise ShapeError(f"{tag}: {name} is {dim!r}, expected a whole number.")

    def residual(*values: Any) -> Any:
        raise ShapeError(
            f"{tag} is evaluated outside, on stored arrays: use EdgeType.error or edge_set.errors()."
        )

    return registry.register(
        EdgeType(
            tag,
            tag,
            tuple(map(registry.vertex_type, vertices)),
            tuple(map(registry.parameter_type, parameters)),
            measurement_dim,
            residual_dim,
            residual,
            None,
            unwrapped,
            measurement_then_information(plain(measurement_dim), residual_dim),
            is_external=True,
            outside=Outside(evaluate, linearize, on_device),
            home=home,
            doc=(evaluate.__doc__ or "").strip(),
        )
    )
