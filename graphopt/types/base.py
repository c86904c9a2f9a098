"""What a type is: vertices, parameters and edges as data.

    vertex      estimate x in storage numbers, update delta in tangent numbers:   x <- oplus(x, delta)
    edge        residual e(x_1, ..., x_k, p_1, ..., p_l, z),   chi2 = e' Omega e
    parameter   numbers p that many edges share

A type holds functions and sizes, no values. The functions work on float arrays of any batch shape and on
arrays of symbolic scalars (see `graphopt.geometry.arrays`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from graphopt.errors import GraphError
from graphopt.types.batches import row_by_row
from graphopt.types.cache import per_type_cache
from graphopt.types.files import EdgeFile, VertexFile
from graphopt.types.identity import KnownByTag
from graphopt.types.outside_functions import Outside

Array = Any


def unwrapped(storage: Array) -> Array:
    """Hand the storage array to the residual as it is."""
    return storage


@dataclass(frozen=True, eq=False)
class WorkingForm:
    """Other numbers for the estimates of a vertex type while it is optimized.

    For a type whose group in g2o holds more than its storage says: `VertexSE3` is a matrix there, which a
    quaternion of few digits leaves not quite orthogonal. Everything outside the block solver has the storage.
    """

    dim: int
    """Length of one estimate in this form."""
    oplus: Callable[[Array, Array], Array]
    """(numbers (..., dim), delta (..., tangent_dim)) -> numbers."""
    wrap: Callable[[Array], Any]
    """numbers -> what a residual sees; it can do all that `VertexType.wrap` of the storage can."""
    encode: Callable[[Array], Array]
    """storage (n, storage_dim) -> numbers (n, dim)."""
    decode: Callable[[Array], Array]
    """numbers (n, dim) -> storage (n, storage_dim)."""
    tidy: Callable[[Array], Array]
    """storage (n, storage_dim) -> the nearest one that `decode` could have given: unit quaternions."""
    wraps: Mapping[Callable[[Array], Any], Callable[[Array], Any]] = field(default_factory=dict)
    """Instead of these wraps of parameters and measurements, others of the same storage."""


@dataclass(frozen=True, eq=False, repr=False)
class VertexType(KnownByTag):
    """A kind of vertex."""

    name: str
    """g2o's class name, `VertexSE3`."""
    tag: str
    """g2o's file tag, `VERTEX_SE3:QUAT`."""
    storage_dim: int
    """Length of one estimate."""
    tangent_dim: int
    """Length of one update; the size of the vertex's block of the Hessian."""
    oplus: Callable[[Array, Array], Array]
    """(storage (..., storage_dim), delta (..., tangent_dim)) -> storage."""
    wrap: Callable[[Array], Any]
    """storage -> what a residual sees, for instance `geometry.SE3`."""
    identity: tuple[float, ...]
    """Estimate of a vertex that is given none."""
    file: VertexFile
    """Tokens after the id."""
    aliases: tuple[str, ...] = ()
    """Other tags of the same layout."""
    alias_files: Mapping[str, VertexFile] = field(default_factory=dict)
    """Other tags with their own layout."""
    doc: str = ""
    working: WorkingForm | None = None
    """Form of the estimates while they are optimized, None: the storage."""
    home: str = ""
    """Of a user's type "module:qualified name" of its definition: a definition from there replaces it."""
    pose: Callable[[Array], Any] | None = None
    """storage (..., storage_dim) -> world_T_body as SE2, SE3 or Sim3; None: it has no pose
    (`types.poses`)."""
    place: Callable[[Any, Array], Array] | None = None
    """(world_T_body, storage) -> storage with this pose."""
    role: str = ""
    """What it stands for, one of `types.poses.ROLES`."""

    def file_for(self, tag: str) -> VertexFile:
        """Layout of a line with this tag."""
        return self.alias_files.get(tag, self.file)

    def describe(self) -> dict[str, Any]:
        """Facts about the type, for tables and JSON."""
        return self._facts(
            "vertex",
            storage_dim=self.storage_dim,
            tangent_dim=self.tangent_dim,
            role=self.role,
            has_pose=self.pose is not None,
            tokens=list(self.file.token_counts),
        )

    def _sizes(self) -> tuple[int, ...]:
        return (self.storage_dim, self.tangent_dim)


@dataclass(frozen=True)
class ImageFormat:
    """What the images of a parameter type have in common."""

    channels: int
    interpolation: str
    """"bilinear" or "bicubic": how residuals sample; an image's own setting is for images outside graphs."""


@dataclass(frozen=True, eq=False, repr=False)
class ParameterType(KnownByTag):
    """A kind of parameter: constants that edges share, addressed by id (`PARAMS_*`)."""

    name: str
    tag: str
    storage_dim: int
    wrap: Callable[[Array], Any]
    """storage -> what a residual sees."""
    identity: tuple[float, ...]
    """Values of a parameter that is given none."""
    file: VertexFile
    """Tokens after the id."""
    aliases: tuple[str, ...] = ()
    alias_files: Mapping[str, VertexFile] = field(default_factory=dict)
    doc: str = ""
    image: ImageFormat | None = None
    """Set where the values are images, whose handles are the stored numbers (`types.images`)."""
    home: str = ""
    """As `VertexType.home`."""

    def file_for(self, tag: str) -> VertexFile:
        """Layout of a line with this tag."""
        return self.alias_files.get(tag, self.file)

    def describe(self) -> dict[str, Any]:
        """Facts about the type, for tables and JSON."""
        tokens = list(self.file.token_counts)
        return self._facts("parameter", storage_dim=self.storage_dim, tokens=tokens)

    def _sizes(self) -> tuple[int, ...]:
        return (self.storage_dim,)


@dataclass(frozen=True, eq=False, repr=False)
class EdgeType(KnownByTag):
    """A kind of edge with a fixed number of vertices."""

    name: str
    """g2o's class name, `EdgeSE3`."""
    tag: str
    """g2o's file tag, `EDGE_SE3:QUAT`."""
    vertices: tuple[VertexType, ...]
    parameters: tuple[ParameterType, ...]
    measurement_dim: int
    """Length of one stored measurement."""
    residual_dim: int
    """Length of the residual; the size of the information matrix."""
    residual: Callable[..., Array]
    """(*vertices, *parameters, measurement) -> (..., residual_dim); all arguments wrapped."""
    jacobian: Callable[..., tuple[Array, ...]] | None
    """Same arguments -> one (..., residual_dim, tangent_dim) array per vertex. For a type whose derivative is
    shorter by hand, or whose Jacobian in g2o is not the derivative of its error. None: the compiler
    differentiates the residual through oplus."""
    wrap_measurement: Callable[[Array], Any]
    """stored measurement -> what the residual sees."""
    file: EdgeFile
    """Tokens after the ids of vertices and parameters."""
    aliases: tuple[str, ...] = ()
    alias_files: Mapping[str, EdgeFile] = field(default_factory=dict)
    doc: str = ""
    working_jacobian: Callable[..., tuple[Array, ...]] | None = None
    """`jacobian` for the working forms of the vertices, where it is another one; None: the same."""
    is_batched: bool = True
    """`residual` takes arrays of any batch shape; False: one edge at a time (see `types.batches`)."""
    batch_error: str = ""
    """What `residual` raised when it was called with arrays of edges, and where; "" if it raised nothing."""
    sees: Callable[..., Array] | None = None
    """(*vertices, *parameters, measurement), wrapped -> (...,) bool: the point is where its camera sees; a
    pinhole camera sees what is in front of it. The residual is computed behind it as well, and chi2 counts
    it. None: the edge is no image."""
    is_external: bool = False
    """Somebody else computes its errors: block solvers only make room for it in H (`solver.external`)."""
    outside: Outside | None = None
    """Functions of arrays that evaluate an external type (`types.outside`), unless its program does."""
    defines: bool = False
    """No error: what the function returns is a term of the computed value in slot 0 (`types.computed`)."""
    home: str = ""
    """As `VertexType.home`."""
    relative_pose: Callable[..., Any] | None = None
    """(*parameters, measurement), wrapped -> the measured i_T_j of two poses world_T_i, world_T_j."""
    predict: Mapping[int, Callable[..., Array]] = field(default_factory=dict)
    """Slot -> function (*other vertices, *parameters, measurement), wrapped, that returns the storage (or
    wrapped value) of that slot's vertex for which the error vanishes. Of two poses it follows from
    `relative_pose`."""
    measure: Callable[..., Any] | None = None
    """(*vertices, *parameters), wrapped -> measurement, stored or wrapped, at which the error vanishes."""
    inequality: bool = False
    """No error: what the function returns is to be >= 0, number by number (`optimizer.interior_point`)."""
    made_by: tuple[Callable[..., EdgeType], tuple[Any, ...]] | None = None
    """Function and arguments that made this type of another one, where it is not registered itself."""

    def file_for(self, tag: str) -> EdgeFile:
        """Layout of a line with this tag."""
        return self.alias_files.get(tag, self.file)

    def error(self, estimates: tuple[Array, ...], parameters: tuple[Array, ...], measurement: Array) -> Array:
        """Evaluate the residual on stored numbers: (..., storage_dim) each -> (..., residual_dim)."""
        if self.outside is not None:
            return self.outside.residual_of(self, (*estimates, *parameters, measurement))
        if not self.is_batched:
            return row_by_row(self, (*estimates, *parameters, measurement))
        wrapped = [kind.wrap(x) for kind, x in zip(self.vertices, estimates, strict=True)]
        constants = [kind.wrap(x) for kind, x in zip(self.parameters, parameters, strict=True)]
        return self.residual(*wrapped, *constants, self.wrap_measurement(measurement))

    def seen(self, *values: Array) -> Array:
        """(n,) bool of stored numbers (n, dim), in the order of `sees`: the camera sees the point there.

        True for edges that are no images.
        """
        if self.sees is None:
            return np.ones(len(values[-1]), bool)
        kinds = (*self.vertices, *self.parameters)
        wraps = [*(kind.wrap for kind in kinds), self.wrap_measurement]
        with np.errstate(all="ignore"):
            if self.is_batched:
                return np.asarray(self.sees(*(wrap(x) for wrap, x in zip(wraps, values, strict=True))), bool)
            rows = [
                [wrap(x) for wrap, x in zip(wraps, row, strict=True)] for row in zip(*values, strict=True)
            ]
            return np.array([bool(self.sees(*row)) for row in rows], bool)

    def can_predict(self, slot: int) -> bool:
        """`predicted` gives an estimate of this slot's vertex."""
        pair = len(self.vertices) == 2 and self.relative_pose is not None
        return slot in self.predict or (
            pair and self.vertices[1 - slot].pose is not None and self.vertices[slot].place is not None
        )

    def predicted(
        self, slot: int, estimates: tuple[Array, ...], parameters: tuple[Array, ...], measurement: Array
    ) -> Array:
        """Storage (..., storage_dim) of the vertex of a slot that the others and the measurement say.

        `estimates` of all slots; of the slot's own vertex only what the edge says nothing about is kept.
        """
        constants = [kind.wrap(x) for kind, x in zip(self.parameters, parameters, strict=True)]
        constants.append(self.wrap_measurement(measurement))
        if slot in self.predict:
            others = [kind.wrap(x) for kind, x in zip(self.vertices, estimates, strict=True)]
            found = self.predict[slot](*others[:slot], *others[slot + 1 :], *constants)
            return getattr(found, "storage", found)
        if not self.can_predict(slot):
            raise GraphError(f"{self.tag} says nothing about the estimate of its vertex {slot}.")
        assert self.relative_pose is not None
        known, requested = self.vertices[1 - slot], self.vertices[slot]
        assert known.pose is not None and requested.place is not None
        step = self.relative_pose(*constants)
        pose = known.pose(estimates[1 - slot]) * (step if slot == 1 else step.inverse())
        return requested.place(pose, estimates[slot])

    def measured(self, estimates: tuple[Array, ...], parameters: tuple[Array, ...]) -> Array:
        """Measurement (..., measurement_dim) at which the error of these stored numbers vanishes."""
        if self.measure is None:
            raise GraphError(f"{self.tag} does not say which measurement its vertices would give.")
        wrapped = [kind.wrap(x) for kind, x in zip(self.vertices, estimates, strict=True)]
        constants = [kind.wrap(x) for kind, x in zip(self.parameters, parameters, strict=True)]
        found = self.measure(*wrapped, *constants)
        return np.asarray(getattr(found, "storage", found), np.float64)

    def describe(self) -> dict[str, Any]:
        """Facts about the type, for tables and JSON."""
        return self._facts(
            "edge",
            vertices=[vertex.tag for vertex in self.vertices],
            parameters=[parameter.tag for parameter in self.parameters],
            measurement_dim=self.measurement_dim,
            residual_dim=self.residual_dim,
            own_jacobian=self.jacobian is not None,
            inequality=self.inequality,
            tokens=list(self.file.token_counts),
        )

    def _sizes(self) -> tuple[int, ...]:
        return (len(self.vertices), len(self.parameters), self.measurement_dim, self.residual_dim)

    def _derivation(self) -> tuple[Any, ...] | None:
        return self.made_by


_Kind = TypeVar("_Kind", VertexType, EdgeType)
WITHOUT_GEOMETRY: Mapping[str, Any] = {"sees": None, "relative_pose": None, "predict": {}}
"""Of an edge type whose arguments are no longer those that these functions take."""


def derived_type(kind: _Kind, **changes: Any) -> _Kind:
    """A type made from another one: it has no other tags, is not registered and in no module."""
    return replace(kind, aliases=(), alias_files={}, home="", **changes)


@per_type_cache
def working_vertex_type(kind: VertexType) -> VertexType:
    """The type whose storage is the working form; `kind` itself where it has none."""
    form = kind.working
    if form is None:
        return kind
    return replace(
        kind, storage_dim=form.dim, oplus=form.oplus, wrap=form.wrap, working=None, pose=None, place=None
    )


@per_type_cache
def working_edge_type(kind: EdgeType) -> EdgeType:
    """The edge type between the working forms of its vertices; `kind` itself where they have none."""
    forms = [vertex.working for vertex in kind.vertices if vertex.working is not None]
    if not forms:
        return kind
    wraps = {old: new for form in forms for old, new in form.wraps.items()}
    return replace(
        kind,
        vertices=tuple(map(working_vertex_type, kind.vertices)),
        parameters=tuple(
            replace(parameter, wrap=wraps.get(parameter.wrap, parameter.wrap))
            for parameter in kind.parameters
        ),
        wrap_measurement=wraps.get(kind.wrap_measurement, kind.wrap_measurement),
        jacobian=kind.working_jacobian or kind.jacobian,
        made_by=None,
    )


@dataclass(frozen=True, eq=False, repr=False)
class VariadicEdgeType(KnownByTag):
    """A kind of edge from one vertex to any number of vertices of another type (`EDGE_SE2_LOTSOFXY`)."""

    name: str
    tag: str
    first: VertexType
    """Type of vertex 0."""
    rest: VertexType
    """Type of all other vertices."""
    residual_dim_per_vertex: int
    """The residual and the measurement have this many numbers for each vertex but the first."""
    make: Callable[[VariadicEdgeType, int], EdgeType]
    """(this type, number of vertices) -> its edge type."""
    aliases: tuple[str, ...] = ()
    doc: str = ""
    home: str = ""
    """As `VertexType.home`."""

    def instantiate(self, num_vertices: int) -> EdgeType:
        """Edge type for a number of vertices; the same object for the same number."""
        if num_vertices < 2:
            raise GraphError(
                f"{self.name} ({self.tag}) with {num_vertices} vertices: needs at least 2, "
                f"one {self.first.tag} and one {self.rest.tag}."
            )
        return _instantiate(self, num_vertices)

    def describe(self) -> dict[str, Any]:
        """Facts about the type, for tables and JSON."""
        return self._facts(
            "variadic edge",
            vertices=[self.first.tag, f"{self.rest.tag}..."],
            parameters=[],
            residual_dim_per_vertex=self.residual_dim_per_vertex,
        )

    def _sizes(self) -> tuple[int, ...]:
        return (self.residual_dim_per_vertex,)


@per_type_cache
def _instantiate(variadic: VariadicEdgeType, num_vertices: int) -> EdgeType:
    return replace(variadic.make(variadic, num_vertices), made_by=(_instantiate, (variadic, num_vertices)))


AnyEdgeType = EdgeType | VariadicEdgeType
"""What the registry returns for an edge's tag."""
