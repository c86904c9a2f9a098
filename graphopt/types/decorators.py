"""Decorators with which users define types: they register the type and return it.

    @graphopt.vertex_type(tag="VERTEX_XY", tangent_dim=2)
    def VertexXY(point, delta):
        return point + delta

    @graphopt.edge_type(tag="EDGE_RANGE", vertices=("VERTEX_SE2", "VERTEX_XY"), measurement_dim=1)
    def EdgeRange(pose, point, distance):
        return norm(point - pose.translation) - distance

The function's name is the class name, its docstring the type's description. A residual of one number may
return a scalar, and a measurement of one number is handed over as a scalar. The function is called once with
random floats when it is defined, to check its dimensions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

import graphopt.types.registry as registry
from graphopt.errors import GraphOptError, ShapeError
from graphopt.geometry.arrays import stack
from graphopt.suggestions import knowing_options
from graphopt.symbolic.source import defining_line, raising_line
from graphopt.types.base import EdgeType, ParameterType, VertexType, unwrapped
from graphopt.types.batches import works_on_batches
from graphopt.types.define import scalar
from graphopt.types.files import EdgeFile, VertexFile, measurement_then_information, plain
from graphopt.types.gradients import refuse_wrong_jacobian
from graphopt.types.identity import home_of
from graphopt.types.poses import PoseFields, of_user

if TYPE_CHECKING:
    from typing_extensions import Unpack

Array = Any


@knowing_options(PoseFields.__annotations__)
def vertex_type(
    *,
    tag: str | None = None,
    tangent_dim: int,
    storage_dim: int | None = None,
    wrap: Callable[[Array], Any] = unwrapped,
    identity: Sequence[float] | None = None,
    file: VertexFile | None = None,
    aliases: Sequence[str] = (),
    name: str | None = None,
    **meaning: Unpack[PoseFields],
) -> Callable[[Callable[[Array, Array], Array]], VertexType]:
    """Define a vertex type from its oplus: (storage (..., storage_dim), delta (..., tangent_dim)) -> storage.

    storage_dim defaults to tangent_dim, identity to zeros, the file layout to the stored numbers in order.

    `pose` says where a vertex is, for pictures, trajectories, the gauge and start values: a function storage
    -> world_T_body (SE2, SE3 or Sim3; with `place`, its inverse, start values can be set), or for a type
    whose `wrap` is such a group "world_T_body" or "body_T_world". `role`: see `types.poses.ROLES`.
    """
    length = tangent_dim if storage_dim is None else storage_dim
    start = (0.0,) * length if identity is None else tuple(float(value) for value in identity)

    def define(oplus: Callable[[Array, Array], Array]) -> VertexType:
        label = name or oplus.__name__
        _expect(
            len(start) == length,
            f"vertex type {label}: identity has {len(start)} numbers, expected {length}.",
        )
        arguments = _frozen(np.array(start)), _frozen(np.zeros(tangent_dim))
        result = _call(f"oplus of vertex type {label}", oplus, *arguments)
        _expect(
            np.shape(result) == (length,),
            f"oplus of vertex type {label} returned shape {np.shape(result)}, "
            f"expected (storage_dim,) = ({length},). "
            "Pass storage_dim if an estimate has more numbers than an update.",
        )
        layout = file or plain(length)
        kind = VertexType(
            label,
            tag or default_tag(label, "VERTEX"),
            length,
            tangent_dim,
            oplus,
            wrap,
            start,
            layout,
            tuple(aliases),
            doc=_doc(oplus),
            home=home_of(oplus),
            **of_user(wrap, **meaning),
        )
        return registry.register(kind)

    return define


def parameter_type(
    *,
    tag: str | None = None,
    storage_dim: int,
    identity: Sequence[float] | None = None,
    file: VertexFile | None = None,
    aliases: Sequence[str] = (),
    name: str | None = None,
) -> Callable[[Callable[[Array], Any]], ParameterType]:
    """Define a parameter type from its wrap: storage (..., storage_dim) -> what a residual sees."""
    start = (0.0,) * storage_dim if identity is None else tuple(float(value) for value in identity)

    def define(wrap: Callable[[Array], Any]) -> ParameterType:
        label = name or wrap.__name__
        _expect(
            len(start) == storage_dim,
            f"parameter type {label}: identity has {len(start)} numbers, expected {storage_dim}.",
        )
        layout = file or plain(storage_dim)
        kind = ParameterType(
            label,
            tag or default_tag(label, "PARAMS"),
            storage_dim,
            wrap,
            start,
            layout,
            tuple(aliases),
            doc=_doc(wrap),
            home=home_of(wrap),
        )
        return registry.register(kind)

    return define


class EdgeFields(TypedDict, total=False):
    """Further keywords of `edge_type`, fields of `EdgeType`."""

    wrap_measurement: Callable[[Array], Any] | None
    file: EdgeFile | None
    aliases: Sequence[str]
    relative_pose: Callable[..., Any] | None
    predict: Mapping[int, Callable[..., Array]] | None
    measure: Callable[..., Any] | None
    inequality: bool


@knowing_options(EdgeFields.__annotations__)
def edge_type(
    *,
    tag: str | None = None,
    vertices: Sequence[str | VertexType],
    measurement_dim: int = 0,
    residual_dim: int | None = None,
    parameters: Sequence[str | ParameterType] = (),
    jacobian: Callable[..., tuple[Array, ...]] | None = None,
    name: str | None = None,
    check: bool = True,
    sees: Callable[..., Array] | None = None,
    **fields: Unpack[EdgeFields],
) -> Callable[[Callable[..., Array]], EdgeType]:
    """Define an edge type from its residual: (*vertices, *parameters, measurement) -> (residual_dim,).

    With measurement_dim = 0 the function takes no measurement. residual_dim is found by calling the function
    when it is not given. The tag defaults to the function's name, `EdgeRange` -> `EDGE_RANGE`; the file
    layout to the measurement, then the upper triangle of the information.

    A `jacobian` of one's own is compared with the derivative at some random edges; check=False leaves that
    out, for one that is meant to be something else. Raises `ShapeError` that names the first wrong column.

    `sees`, with the residual's arguments -> bool, says of an image of a point whether its camera sees there:
    `lambda pose, point, pixel: pose.inverse_act(point)[..., 2] > 0.0`. The summary counts points elsewhere.

    `relative_pose`, (*parameters, measurement) -> i_T_j, and `predict`, {slot: (*other vertices, *parameters,
    measurement) -> estimate}, give start values (`EdgeType`).

    With `inequality` the function is no residual: an optimization keeps each of its numbers >= 0 at its end
    (`optimizer.interior_point`). Such edges count in no chi2, have neither information nor robust kernel.
    """
    given = dict(locals())
    given |= given.pop("fields")
    return lambda function: registry.register(made_edge_type(function, **given))


def made_edge_type(
    function: Callable[..., Array],
    *,
    vertices: Sequence[str | VertexType],
    measurement_dim: int = 0,
    residual_dim: int | None = None,
    parameters: Sequence[str | ParameterType] = (),
    tag: str | None = None,
    name: str | None = None,
    check: bool = True,
    sees: Callable[..., Array] | None = None,
    **fields: Any,
) -> EdgeType:
    """The type that `edge_type` registers; fields: further ones of `EdgeType`, None for its default."""
    vertex_kinds = tuple(registry.vertex_type(vertex) for vertex in vertices)
    parameter_kinds = tuple(registry.parameter_type(parameter) for parameter in parameters)
    given = {key: value for key, value in fields.items() if value is not None}
    wrap = given.setdefault("wrap_measurement", scalar if measurement_dim == 1 else unwrapped)

    label = name or function.__name__
    taken = function if measurement_dim else _without_measurement(function)
    samples = _samples(vertex_kinds, parameter_kinds, measurement_dim)
    shape = _residual_shape(label, taken, vertex_kinds, parameter_kinds, wrap, samples)
    residual, dim = (taken, shape[0]) if shape else (_scalar_to_vector(taken), 1)
    _expect(
        residual_dim in (None, dim),
        f"residual of edge type {label} has {dim} numbers, expected residual_dim = {residual_dim}.",
    )
    given.setdefault("file", measurement_then_information(plain(measurement_dim), dim))
    given.setdefault("jacobian", None)
    kind = EdgeType(
        label,
        tag or default_tag(label, "EDGE"),
        vertex_kinds,
        parameter_kinds,
        measurement_dim,
        dim,
        residual,
        doc=_doc(function),
        home=home_of(function),
        **given | {"aliases": tuple(given.get("aliases", ())), "predict": dict(given.get("predict", {}))},
    )
    if check and kind.jacobian is not None:
        refuse_wrong_jacobian(kind, samples)
    seen = sees if sees is None or measurement_dim else _without_measurement(sees)
    is_batched, batch_error = works_on_batches(kind, samples)
    kind = replace(kind, is_batched=is_batched, batch_error=batch_error, sees=seen)
    _expect_truth(kind, samples)
    return kind


def default_tag(name: str, prefix: str) -> str:
    """`EdgeRange` -> `EDGE_RANGE`; `range` -> `EDGE_RANGE`."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z0-9]+", name)
    tag = "_".join(words).upper()
    return tag if tag.startswith(f"{prefix}_") else f"{prefix}_{tag}"


def _samples(
    vertices: tuple[VertexType, ...], parameters: tuple[ParameterType, ...], measurement_dim: int
) -> list[np.ndarray]:
    """Three random edges: (3, dim) for each vertex and parameter, and for the measurement."""
    generator = np.random.default_rng(0)
    states = [
        np.stack(
            [
                kind.oplus(np.array(kind.identity), generator.uniform(0.1, 0.3, kind.tangent_dim))
                for _ in range(3)
            ]
        )
        for kind in vertices
    ]
    constants = [np.tile(np.array(kind.identity), (3, 1)) for kind in parameters]
    samples = [*states, *constants, generator.uniform(0.1, 0.3, (3, measurement_dim))]
    return [_frozen(sample) for sample in samples]


def _frozen(array: np.ndarray) -> np.ndarray:
    """The array, which the user's function must not change."""
    array.flags.writeable = False
    return array


def _residual_shape(
    label: str,
    function: Callable[..., Array],
    vertices: tuple[VertexType, ...],
    parameters: tuple[ParameterType, ...],
    wrap: Callable[[Array], Any],
    samples: list[np.ndarray],
) -> tuple[int, ...]:
    """Call the residual with random floats and return the shape of what it returns."""
    wraps = [*(kind.wrap for kind in (*vertices, *parameters)), wrap]
    arguments = [each_wrap(sample[0]) for each_wrap, sample in zip(wraps, samples, strict=True)]
    shape = np.shape(_call(f"residual of edge type {label}", function, *arguments))
    if len(shape) > 1:
        raise ShapeError(
            f"residual of edge type {label} returned shape {shape}, expected (residual_dim,).\n"
            f"  {defining_line(function)}\nJoin components with np.stack([...], axis=-1)."
        )
    return shape


def _without_measurement(function: Callable[..., Array]) -> Callable[..., Array]:
    """Leave out the measurement of no numbers."""

    @wraps(function)
    def residual(*arguments: Any) -> Array:
        return function(*arguments[:-1])

    return residual


def _expect_truth(kind: EdgeType, samples: list[np.ndarray]) -> None:
    """`sees` says yes or no of each edge."""
    if kind.sees is None:
        return
    shape = np.shape(_call(f"sees of edge type {kind.name}", kind.seen, *samples))
    _expect(
        shape == (len(samples[-1]),),
        f"sees of edge type {kind.name} returned shape {shape} for {len(samples[-1])} edges, expected one "
        "truth each; take components with [..., i].",
    )


def _scalar_to_vector(function: Callable[..., Array]) -> Callable[..., Array]:
    """Give the scalar that a residual returns an axis of length 1."""

    @wraps(function)
    def residual(*arguments: Any) -> Array:
        return stack(function(*arguments))

    return residual


def _call(what: str, function: Callable[..., Array], *arguments: Any) -> Array:
    try:
        with np.errstate(all="ignore"):
            return function(*arguments)
    except GraphOptError:
        raise
    except Exception as error:
        if "read-only" in str(error):
            raise ShapeError(
                f"{what} changes its argument in place ({error}).\n  {raising_line(error)}\n"
                "Take a copy first, x = x.copy(), or build a new array with np.stack([...], axis=-1)."
            ) from error
        shapes = ", ".join(_shape_of(argument) for argument in arguments)
        raise ShapeError(
            f"{what} cannot be called with arguments ({shapes}): {type(error).__name__}: {error}."
            f"{_has(error)}\n"
            f"  {raising_line(error)}\n"
            "An edge's function takes its vertices, then its parameters, then the measurement."
        ) from error


def _has(error: Exception) -> str:
    """What there is in place of an attribute that there is not."""
    owner = getattr(error, "obj", None) if isinstance(error, AttributeError) else None
    names = [name for name in dir(owner) if not name.startswith("_")] if hasattr(owner, "storage") else []
    return f" It has {', '.join(names)}." if names else ""


def _shape_of(argument: Any) -> str:
    storage = getattr(argument, "storage", None)
    if storage is not None:
        return f"{type(argument).__name__}{np.shape(storage)}"
    return f"array{np.shape(argument)}" if np.ndim(argument) > 0 else "scalar"


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise ShapeError(message)


def _doc(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").strip()
