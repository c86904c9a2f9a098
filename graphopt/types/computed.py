"""Computed values: numbers that follow from unknowns, for many edges to share.

    c_j = sum over the terms t of j   f(x_t1, ..., x_tk, parameters_t, data_t)
    e   = e(x, c, ...),     de/dx = (direct) + de/dc dc/dx

A computed value is a vertex that no step moves: its type is a `ComputedVertexType`, edges name it in their
slots as any other vertex. Its terms are edges of the type's `definition`, whose slot 0 is the value itself
and whose function returns the term instead of an error. One term per value is a plain expression (a pixel's
normal, a frame's transform), several are a sum over as many unknowns as there are terms.

`inlined_edge_type` puts the functions of the terms into the function of an edge: the same residual without
computed values, for block solvers that know none. (Opt's computed arrays; Thallo's intermediates and sums.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import graphopt.types.registry as registry
from graphopt.errors import GraphError, ShapeError
from graphopt.types.base import (
    WITHOUT_GEOMETRY,
    EdgeType,
    ParameterType,
    VertexType,
    derived_type,
    unwrapped,
)
from graphopt.types.cache import per_type_cache
from graphopt.types.decorators import default_tag, edge_type
from graphopt.types.files import EdgeFile, VertexFile
from graphopt.types.identity import home_of, home_of_caller

Array = Any


@dataclass(frozen=True, eq=False)
class ComputedVertexType(VertexType):
    """Type of computed values; they have as many numbers as their function returns."""

    definition: EdgeType | None = None
    """Type of the terms, slot 0 is the value; None: values are sums that the graph holds
    (`Graph.add_convolution`)."""

    def __repr__(self) -> str:
        return f"<ComputedVertexType {self.name} {self.tag}>"


def computed_type(
    *,
    vertices: Sequence[str | VertexType],
    measurement_dim: int = 0,
    parameters: Sequence[str | ParameterType] = (),
    tag: str | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., Array]], ComputedVertexType]:
    """Define a type of computed values from the function of one term.

    The function takes vertices, parameters and data as that of an edge type (`measurement_dim` numbers of
    data) and returns the value: a number or an array (dim,). Edges that name values of this type get a
    number where dim is 1, else the array. Raises `ShapeError` as `edge_type` does.
    """

    def define(function: Callable[..., Array]) -> ComputedVertexType:
        label = name or function.__name__
        kinds = tuple(registry.vertex_type(vertex) for vertex in vertices)
        terms = edge_type(
            vertices=kinds,
            parameters=parameters,
            measurement_dim=measurement_dim,
            tag=f"{tag or default_tag(label, 'COMPUTED')}_TERM",
            name=f"{label}Term",
        )(function)
        registry.unregister(terms)
        value = _value_type(
            label, tag, terms.residual_dim, home_of(function), (function.__doc__ or "").strip()
        )
        definition = replace(
            terms,
            vertices=(value, *terms.vertices),
            residual=_without_value(terms.residual),
            file=EdgeFile(terms.file.num_tokens, _refuse(value.tag), _refuse(value.tag)),
            defines=True,
            made_by=(_definition_of, (value,)),
        )
        object.__setattr__(value, "definition", definition)  # each of the two names the other
        registry.register(value)
        return value

    return define


def sum_type(name: str, dim: int = 1, *, tag: str | None = None) -> ComputedVertexType:
    """Type of values (dim,) that are weighted sums over a grid: `Graph.add_convolution`."""
    if dim < 1:
        raise ShapeError(f"{name}: dim is {dim}, expected 1 or more.")
    value = _value_type(name, tag, dim, home_of_caller(name), "Weighted sum over a grid.")
    registry.register(value)
    return value


def _value_type(name: str, tag: str | None, dim: int, home: str, doc: str) -> ComputedVertexType:
    label = tag or default_tag(name, "COMPUTED")
    return ComputedVertexType(
        name,
        label,
        dim,
        dim,
        lambda value, delta: value + delta,
        _scalar if dim == 1 else unwrapped,
        (0.0,) * dim,
        VertexFile(dim, _refuse(label), _refuse(label)),
        home=home,
        doc=doc,
    )


def _scalar(storage: Array) -> Array:
    return storage[..., 0]


def _definition_of(kind: ComputedVertexType) -> EdgeType:
    """For pickles."""
    assert kind.definition is not None
    return kind.definition


def _without_value(function: Callable[..., Array]) -> Callable[..., Array]:
    def term(value: Any, *arguments: Any) -> Array:
        return function(*arguments)

    return term


@per_type_cache
def chained_type(definition: EdgeType) -> EdgeType:
    """Edges whose residual is value + term: the blocks of their J'J between slot 0 and others are dc/dx.

    So whatever multiplies by such blocks multiplies by the chain rule, without another kernel.
    """

    def residual(value: Any, *arguments: Any) -> Array:
        return value + definition.residual(None, *arguments)

    return replace(
        definition, name=f"{definition.name}Chain", residual=residual, made_by=(chained_type, (definition,))
    )


def _refuse(tag: str) -> Callable[..., Any]:
    def refuse(*numbers: Array) -> Any:
        raise GraphError(
            f"{tag} is a computed value, which has no line in a .g2o file. Write the estimates that it "
            "follows from, or pickle the graph."
        )

    return refuse


# ---------------------------------------------------------------- inlining


@per_type_cache
def inlined_edge_type(kind: EdgeType, terms: tuple[tuple[EdgeType, ...] | None, ...]) -> EdgeType:
    """The type in which the vertices of a slot's terms stand where the slot was.

    terms: per slot the definitions of its value's terms, None for a slot that stays. Parameters and data of
    the terms follow those of the edge, in the same order.
    """
    definitions = [definition for slot in terms if slot is not None for definition in slot]
    vertices: list[VertexType] = []
    for vertex, slot in zip(kind.vertices, terms, strict=True):
        vertices += [vertex] if slot is None else [v for definition in slot for v in definition.vertices[1:]]
    label = ";".join(
        "" if slot is None else ",".join(definition.name for definition in slot) for slot in terms
    )
    return derived_type(
        kind,
        name=f"{kind.name}({label})",
        vertices=tuple(vertices),
        parameters=(
            *kind.parameters,
            *(p for each_definition in definitions for p in each_definition.parameters),
        ),
        measurement_dim=kind.measurement_dim
        + sum(each_definition.measurement_dim for each_definition in definitions),
        residual=_inlined(kind, terms),
        jacobian=None,
        working_jacobian=None,
        wrap_measurement=unwrapped,
        file=EdgeFile(0, _refuse(kind.tag), _refuse(kind.tag)),
        is_batched=kind.is_batched and all(each_definition.is_batched for each_definition in definitions),
        made_by=(inlined_edge_type, (kind, terms)),
        **WITHOUT_GEOMETRY,
    )


def _inlined(kind: EdgeType, terms: tuple[tuple[EdgeType, ...] | None, ...]) -> Callable[..., Array]:
    definitions = [definition for slot in terms if slot is not None for definition in slot]
    num_vertices = sum(
        1 if slot is None else sum(len(definition.vertices) - 1 for definition in slot) for slot in terms
    )

    def residual(*arguments: Any) -> Array:
        given = iter(arguments[:num_vertices])
        constants = list(arguments[num_vertices:-1])
        own, data = constants[: len(kind.parameters)], arguments[-1]
        others, at = iter(constants[len(kind.parameters) :]), kind.measurement_dim
        values: list[Any] = []
        for vertex, slot in zip(kind.vertices, terms, strict=True):
            if slot is None:
                values.append(next(given))
                continue
            total: Any = None
            for definition in slot:
                inputs = [next(given) for _ in definition.vertices[1:]]
                inputs += [next(others) for _ in definition.parameters]
                numbers = definition.wrap_measurement(data[..., at : at + definition.measurement_dim])
                at += definition.measurement_dim
                term = definition.residual(None, *inputs, numbers)
                total = term if total is None else total + term
            values.append(vertex.wrap(total))
        return kind.residual(*values, *own, kind.wrap_measurement(data[..., : kind.measurement_dim]))

    assert definitions
    return residual


def is_vector_space(kind: VertexType) -> bool:
    """Whether oplus is x + d, at random numbers."""
    if kind.storage_dim != kind.tangent_dim:
        return False
    x, delta = np.random.default_rng(0).normal(size=(2, kind.storage_dim))
    return bool(np.allclose(kind.oplus(x, delta), x + delta, rtol=1e-14, atol=0.0))


__all__ = [
    "ComputedVertexType",
    "chained_type",
    "computed_type",
    "inlined_edge_type",
    "is_vector_space",
    "sum_type",
]
