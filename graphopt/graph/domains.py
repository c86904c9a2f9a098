"""Adding vertices on grids, edges by stencils, and images: part of `Graph`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import graphopt.graph.validate as validate
from graphopt.errors import GraphError, ShapeError, UnknownIdError
from graphopt.graph.access import Access
from graphopt.graph.arguments import (
    checked_levels,
    checked_parameter_ids,
    kernel_numbers,
    kernel_widths,
    neutral_measurement,
    resolved_edge_type,
    resolved_vertex_type,
    set_of,
)
from graphopt.graph.grids import Grid, as_places, checked_shape
from graphopt.graph.sets import EdgeSet
from graphopt.graph.stencils import Part, Stencil
from graphopt.graph.store import GraphStore
from graphopt.suggestions import knowing_options, knows_its_options
from graphopt.symbolic.images import Image
from graphopt.types.base import EdgeType, ParameterType, VariadicEdgeType
from graphopt.types.images import image_handles

if TYPE_CHECKING:
    from graphopt.types.base import VertexType
    from graphopt.types.registry import AnyEdgeType


NewImages = Mapping[int, tuple[ParameterType, Image]]
"""Parameters to be added: id -> type and image."""


@dataclass(frozen=True, eq=False)
class GridEdges:
    """Edges that one `add_stencil` made. Those removed from the graph since then are left out."""

    shape: tuple[int, ...]
    parts: tuple[tuple[EdgeSet, int, np.ndarray], ...]
    """Edge set, `sequence` of the first edge in it, and the flat place (m,) in the grid of each edge."""

    def __len__(self) -> int:
        return sum(len(places) for _, _, places in self._present())

    def set_measurements(self, values: Any) -> None:
        """Replace the measurements: (*shape, measurement_dim), or one that all edges share."""
        arrays = [
            _checked_measurements(
                as_places(values, self.shape, (kind.measurement_dim,), f"{kind.tag} measurements"),
                kind,
            )
            for kind in (edge_set.type for edge_set, _, _ in self.parts)
        ]
        for (edge_set, rows, places), array in zip(self._present(), arrays, strict=True):
            edge_set.measurement[rows] = array if array.ndim == 1 else array[places]

    def set_information(self, values: Any) -> None:
        """Replace the information: one matrix or weight, or one per place as `add_stencil` takes it."""
        arrays = [_checked_information(values, self.shape, edge_set.type) for edge_set, _, _ in self.parts]
        for (edge_set, rows, places), array in zip(self._present(), arrays, strict=True):
            edge_set.information[rows] = array if array.ndim == 2 else array[places]

    def _present(self) -> Iterator[tuple[EdgeSet, slice, np.ndarray]]:
        """Per part: edge set, rows in it at the moment, and the flat place of each."""
        for edge_set, first, places in self.parts:
            start, stop = np.searchsorted(edge_set.sequence, (first, first + len(places))).tolist()
            rows = slice(start, stop)
            yield edge_set, rows, places[edge_set.sequence[rows] - first]


@dataclass(frozen=True)
class StencilColumns:
    """What all edges of a stencil have."""

    information: Any = None
    """A number or (d, d) that all share, weights in the grid's shape, or (*shape, d, d)."""
    kernel: Any = None
    kernel_width: Any = 1.0
    level: int = 0
    parameters: Any = None
    """Ids or images, one per slot."""


class GraphDomains(GraphStore):
    """Grids, stencils and images of a graph."""

    @knows_its_options
    def add_grid(
        self, vertex_type: VertexType | str, shape: Any, estimates: Any = None, *, fixed: Any = False
    ) -> Grid:
        """Add a vertex at every place of a grid and return the grid.

        `shape` (height, width), or any other number of axes; `estimates` (*shape, storage_dim), one that all
        share, or None for the type's identity; `fixed` bool, one or in the grid's shape.
        """
        resolved = resolved_vertex_type(vertex_type)
        lengths = checked_shape(shape, f"The grid of {resolved.tag}")
        first = self.max_vertex_id() + 1
        if estimates is not None:
            estimates = as_places(estimates, lengths, (resolved.storage_dim,), f"{resolved.tag} estimates")
        flags = np.asarray(fixed)
        if flags.shape not in ((), lengths):
            raise ShapeError(f"fixed has shape {flags.shape}, expected one bool or {lengths}.")
        ids = np.arange(first, first + math.prod(lengths), dtype=np.int64)
        self.add_vertices(resolved, ids, estimates, fixed=flags if flags.ndim == 0 else flags.ravel())
        return Grid(self, resolved, lengths, first)

    @knows_its_options
    def add_array(
        self,
        vertex_type: VertexType | str,
        estimates: Any,
        *,
        fixed: Any = False,
        marginalized: Any = False,
    ) -> Grid:
        """Add one vertex per row of `estimates` (n, storage_dim), return them as a grid of shape (n,).

        `fixed` and `marginalized`: one bool or (n,).
        """
        resolved = resolved_vertex_type(vertex_type)
        array = np.asarray(estimates, np.float64)
        if resolved.storage_dim == 1 and array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2 or array.shape[1] != resolved.storage_dim or not len(array):
            raise ShapeError(
                f"{resolved.tag} estimates have shape {array.shape}, expected (n, {resolved.storage_dim})."
            )
        first = self.max_vertex_id() + 1
        ids = np.arange(first, first + len(array), dtype=np.int64)
        self.add_vertices(resolved, ids, array, fixed=fixed, marginalized=marginalized)
        return Grid(self, resolved, (len(array),), first)

    @knowing_options(StencilColumns.__annotations__)
    def add_stencil(
        self,
        edge_type: AnyEdgeType | str,
        grids: Grid | Sequence[Grid | Access],
        offsets: Sequence[Any],
        measurements: Any = None,
        *,
        boundary: str = "skip",
        mask: Any = None,
        **columns: Any,
    ) -> GridEdges:
        """Add an edge at every place of a grid; slot s joins the vertex at place + offsets[s].

        `grids`: one grid, or one per slot, all of one shape (`unique(grid)` for a vertex that all edges
        share; its offset is None). `offsets`: steps per axis, (rows down, columns to the right).
        `boundary`: "skip", "clamp", "wrap" or "mirror", see `stencils`. `mask`: bool in the grid's shape,
        places that have an edge. `measurements`: (*shape, measurement_dim), one that all share, or None for
        zeros. `columns`: fields of `StencilColumns`.
        """
        resolved, given = resolved_edge_type(edge_type), StencilColumns(**columns)
        if isinstance(resolved, VariadicEdgeType):
            resolved = resolved.instantiate(len(offsets))
        stencil = Stencil(resolved, grids, offsets, boundary)
        for slot in stencil.slots:
            if (slot.grid if isinstance(slot, Access) else slot).graph is not self:
                raise GraphError(f"{resolved.tag}: the grid belongs to another graph.")
        chosen = None if mask is None else np.asarray(mask)
        if chosen is not None and (chosen.dtype != bool or chosen.shape != stencil.shape):
            raise ShapeError(
                f"mask has shape {chosen.shape} of {chosen.dtype}, expected {stencil.shape} bool."
            )
        dim, shape, tag = resolved.measurement_dim, stencil.shape, resolved.tag
        values = as_places(
            neutral_measurement(resolved) if measurements is None else measurements,
            shape,
            (dim,),
            f"{tag} measurements",
        )
        weights = _checked_information(given.information, shape, resolved)
        values = _checked_measurements(values, resolved)
        ids, images = self.parameter_ids(given.parameters, resolved)
        constants = {
            "kernel": kernel_numbers(given.kernel, 1),
            "kernel_width": kernel_widths(given.kernel_width, 1),
            "level": checked_levels(given.level, 1),
            "parameters": checked_parameter_ids(ids, 1, resolved)[0],
        }
        self.check_parameters(constants["parameters"][None], resolved, images)
        self._add_images(images)
        parts = [
            self._add_part(stencil, part, values, weights, constants)
            for part in stencil.parts(chosen)
            if len(part.places)
        ]
        return GridEdges(shape, tuple(parts))

    def _add_part(
        self, stencil: Stencil, part: Part, values: np.ndarray, weights: np.ndarray, constants: dict[str, Any]
    ) -> tuple[EdgeSet, int, np.ndarray]:
        """Append the edges of a part; its ids are right by construction, nothing is looked up."""
        number, edge_set = set_of(self.edge_sets, part.type, EdgeSet)
        columns = {
            "sequence": self._orders(None, len(part.places), edge_set),
            "vertices": part.vertices,
            "measurement": values if values.ndim == 1 else values[part.places],
            "information": weights if weights.ndim == 2 else weights[part.places],
            **constants,
        }
        self._append(self.edge_sets, number, edge_set, columns, None)
        return edge_set, int(columns["sequence"][0]), part.places

    # ---------------------------------------------------------------- images

    def parameter_ids(self, parameters: Any, edge_type: EdgeType) -> tuple[Any, NewImages]:
        """`parameters` of an `add_...` call with ids instead of images, and the new parameters to add."""
        if isinstance(parameters, Image):
            parameters = (parameters,)
        if not isinstance(parameters, (list, tuple)) or not any(isinstance(p, Image) for p in parameters):
            return parameters, {}
        if len(parameters) != len(edge_type.parameters):
            raise ShapeError(
                f"{edge_type.tag} takes {len(edge_type.parameters)} parameters, got {len(parameters)}."
            )
        known = (int(rows.ids.max()) for rows in self.parameter_sets if len(rows))
        first = max(known, default=-1) + 1
        ids: list[int] = []
        images: dict[int, tuple[ParameterType, Image]] = {}
        for kind, value in zip(edge_type.parameters, parameters, strict=True):
            if isinstance(value, Image):
                if kind.image is None:
                    raise GraphError(f"{edge_type.tag} takes the id of a {kind.tag}, got {value!r}.")
                image_handles(kind, value)  # refuses the wrong number of channels
                value = first + len(images)
                images[value] = kind, parameters[len(ids)]
            ids.append(int(value))
        return ids, images

    def _add_images(self, images: NewImages) -> None:
        for parameter_id, (kind, image) in images.items():
            self.add_parameters(kind, [parameter_id], image)

    def set_image(self, parameter_id: int, image: Image) -> None:
        """Let the parameter with this id be another image; edges that use it see that from now on."""
        number, row = self.find_parameters(np.array([parameter_id]))
        if number[0] < 0:
            raise UnknownIdError(f"There is no parameter {parameter_id} in this graph.")
        found = self.parameter_sets[int(number[0])]
        if found.type.image is None:
            raise GraphError(f"Parameter {parameter_id} is a {found.type.tag}, not an image.")
        handles, images = image_handles(found.type, image)
        found.values[int(row[0])] = handles[0]
        found.keep_images(images)


def _checked_measurements(values: np.ndarray, edge_type: EdgeType) -> np.ndarray:
    what = f"{edge_type.tag} measurement"
    validate.check_finite(values, 1, what)
    return validate.with_unit_quaternions(values, edge_type.wrap_measurement, what)


def _checked_information(values: Any, shape: tuple[int, ...], edge_type: EdgeType) -> np.ndarray:
    """(d, d), or (number of places, d, d)."""
    dim, what = edge_type.residual_dim, f"{edge_type.tag} information"
    array = np.asarray(1.0 if values is None else values, np.float64)
    if array.shape in ((), shape) and not (array.shape == shape == (dim, dim)):
        array = array[..., None, None] * np.eye(dim)
    array = as_places(array, shape, (dim, dim), what)
    validate.check_finite(array, 2, what)
    validate.check_symmetric(array, what)
    return array
