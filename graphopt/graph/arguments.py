"""What the methods of `Graph` accept, turned into types and arrays of the right shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

import graphopt.graph.validate as validate
from graphopt.errors import GraphError, OptionError, ShapeError
from graphopt.foreign_arrays import host
from graphopt.types import registry
from graphopt.types.base import EdgeType, VariadicEdgeType
from graphopt.types.robust_kernels import RobustKernel, num_kernels, robust_kernel

if TYPE_CHECKING:
    from graphopt.types.base import ParameterType, VertexType
    from graphopt.types.registry import AnyEdgeType


def resolved_vertex_type(given: VertexType | str) -> VertexType:
    """The type that a name or tag names."""
    return registry.vertex_type(given)


def resolved_edge_type(given: AnyEdgeType | str) -> AnyEdgeType:
    """The type that a name or tag names."""
    return registry.edge_type(given)


def resolved_parameter_type(given: ParameterType | str) -> ParameterType:
    """The type that a name or tag names."""
    return registry.parameter_type(given)


def edge_type_and_vertices(edge_type: AnyEdgeType | str, vertices: Any) -> tuple[EdgeType, np.ndarray]:
    """The type (for this arity) and the ids (m, arity)."""
    resolved = resolved_edge_type(edge_type)
    ids = validate.as_ids(vertices, f"{resolved.tag} vertices")
    if isinstance(resolved, VariadicEdgeType):
        if ids.ndim != 2:
            raise ShapeError(f"{resolved.tag} vertices have shape {ids.shape}, expected (m, arity).")
        resolved = resolved.instantiate(ids.shape[1])
    arity = len(resolved.vertices)
    if ids.size == 0:
        ids = ids.reshape(0, arity)
    if arity == 1 and ids.ndim == 1:
        ids = ids[:, None]
    if ids.ndim != 2 or ids.shape[1] != arity:
        raise ShapeError(f"{resolved.tag} vertices have shape {ids.shape}, expected (m, {arity}).")
    return resolved, ids


def checked_parameter_ids(parameters: Any, count: int, edge_type: EdgeType) -> np.ndarray:
    """Parameter ids (m, num_parameters)."""
    num_parameters = len(edge_type.parameters)
    if parameters is None:
        if num_parameters:
            tags = ", ".join(parameter.tag for parameter in edge_type.parameters)
            raise GraphError(
                f"{edge_type.tag} needs parameters ({tags}); pass their ids, (m, {num_parameters})."
            )
        return np.empty((count, 0), np.int64)
    ids = validate.as_ids(parameters, f"{edge_type.tag} parameters")
    if num_parameters == 1 and ids.shape in ((), (count,)):
        ids = ids.reshape(-1, 1)
    if ids.shape not in ((count, num_parameters), (1, num_parameters), (num_parameters,)):
        raise ShapeError(
            f"{edge_type.tag} parameters have shape {ids.shape}, expected ({count}, {num_parameters}), or "
            f"({num_parameters},) for all edges."
        )
    return np.broadcast_to(ids, (count, num_parameters))


def neutral_measurement(edge_type: EdgeType) -> np.ndarray:
    """(measurement_dim,) of edges that are given none: zeros, or the neutral element of a group."""
    zeros = (0.0,) * edge_type.measurement_dim
    return np.array(getattr(edge_type.wrap_measurement, "identity_storage", zeros), np.float64)


def checked_ids(ids: Any, tag: str) -> np.ndarray:
    """Ids (n,) of what is added."""
    array = np.atleast_1d(validate.as_ids(ids, f"{tag} ids"))
    if array.ndim != 1:
        raise ShapeError(f"{tag} ids have shape {array.shape}, expected (n,).")
    return array


def checked_flags(values: Any, count: int, what: str) -> np.ndarray:
    """One bool or (n,) bool."""
    flags = np.asarray(host(values, what))
    if flags.dtype != bool or flags.shape not in ((), (count,)):
        raise ShapeError(
            f"{what} has shape {flags.shape} of {flags.dtype}, expected one bool or ({count},) bool."
        )
    return flags


def kernel_numbers(kernel: Any, count: int) -> np.ndarray:
    """Numbers of robust kernels: one, or (n,)."""
    if kernel is None or isinstance(kernel, (str, int, RobustKernel)):
        return np.asarray(robust_kernel(kernel).number)
    numbers = validate.as_ids(kernel, "kernels", (count,))
    if count and not 0 <= numbers.min() <= numbers.max() < num_kernels():
        raise OptionError(
            f"kernels hold {int(numbers.min())} to {int(numbers.max())}, expected 0 to {num_kernels() - 1}."
        )
    return numbers


def kernel_widths(width: Any, count: int) -> np.ndarray:
    """Positive widths: one, or (n,)."""
    try:
        widths = np.asarray(host(width, "kernel_width"), np.float64)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"kernel_width cannot be read as float64: {error}.") from None
    if widths.shape not in ((), (count,)):
        raise ShapeError(f"kernel_width has shape {widths.shape}, expected one number or ({count},).")
    if widths.size and not (np.isfinite(widths).all() and (widths > 0).all()):
        row = int(np.argmin(np.isfinite(widths) & (widths > 0)))
        where = f"row {row}" if widths.ndim else "it"
        raise GraphError(f"kernel_width must be finite and positive; {where} is {widths.flat[row]:g}.")
    return widths


def refuse_weights(edge_type: EdgeType, information: Any, kernel: Any) -> None:
    """`GraphError` for an inequality that is to be weighted: it holds, or it does not."""
    if not edge_type.inequality:
        return
    dim = edge_type.residual_dim
    if information is not None and not bool(
        (np.asarray(host(information, "information")) == np.eye(dim)).all()
    ):
        raise GraphError(f"{edge_type.tag} is an inequality, which has no information: leave it out.")
    if np.any(np.asarray(kernel_numbers(kernel, 1) if np.ndim(kernel) == 0 else kernel) != 0):
        raise GraphError(f"{edge_type.tag} is an inequality, which has no robust kernel: leave it out.")


def checked_levels(level: Any, count: int) -> np.ndarray:
    """Levels: one, or (n,)."""
    levels = validate.as_ids(level, "level")
    if levels.shape not in ((), (count,)):
        raise ShapeError(f"level has shape {levels.shape}, expected one number or ({count},).")
    limits = np.iinfo(np.int32)
    if levels.size and not limits.min <= levels.min() <= levels.max() <= limits.max:
        raise GraphError(
            f"level holds {int(levels.min())} to {int(levels.max())}, expected {limits.min} to {limits.max} "
            "(32 bits)."
        )
    return levels


def number_of(sets: list, wanted: object) -> int:
    """Number of the set of a type, -1 if there is none."""
    for number, one_set in enumerate(sets):
        if one_set.type is wanted:
            return number
    return -1


def set_of(sets: list, wanted: Any, new: Any) -> tuple[int, Any]:
    """The set of a type, or a new one that is not yet in the list."""
    number = number_of(sets, wanted)
    return (number, sets[number]) if number >= 0 else (len(sets), new(wanted))


def existing_set(sets: list, wanted: Any, what: str) -> Any:
    """The set of a type; `GraphError` if there is none."""
    number = number_of(sets, wanted)
    if number < 0:
        known = ", ".join(set_.type.tag for set_ in sets) or "none"
        again = defined_again(wanted, [set_.type for set_ in sets])
        raise GraphError(f"This graph has no {what} of type {wanted.tag}; it has {known}.{again}")
    return sets[number]


def defined_again(wanted: Any, there: Iterable[Any]) -> str:
    """A sentence for a message, where a type of the same tag is there that was defined earlier or later."""
    if all(kind.tag != wanted.tag for kind in there):
        return ""
    return (
        f" {wanted.tag} was defined a second time in between: define the edge types that use it anew too, "
        "and build the graph with them."
    )


def comma_separated(ids: np.ndarray) -> str:
    """Ids for a message."""
    return ", ".join(str(id_) for id_ in ids.tolist())
