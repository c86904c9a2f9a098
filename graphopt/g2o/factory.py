"""`Factory`: classes by file tag."""

from __future__ import annotations

from typing import Any

from graphopt.g2o.elements.base import HyperGraphElementType
from graphopt.g2o.elements.edge_types import edge_class
from graphopt.g2o.elements.parameters import parameter_class
from graphopt.g2o.elements.vertex_types import vertex_class
from graphopt.types import EdgeType, ParameterType, VertexType, registry


class FactoryTypeInfo:
    """Sizes of a type; -1 where it has none or no fixed one."""

    def __init__(self, kind: Any) -> None:
        self.element_type_bit = -1
        self.dimension = self.minimal_dimension = self.error_dimension = -1
        self.number_vertices = self.number_parameters = -1
        if isinstance(kind, VertexType):
            self.element_type_bit = HyperGraphElementType.HGET_VERTEX.value
            vertex = vertex_class(kind)()
            self.dimension, self.minimal_dimension = vertex.estimate_dimension(), kind.tangent_dim
        elif isinstance(kind, ParameterType):
            self.element_type_bit = HyperGraphElementType.HGET_PARAMETER.value
        else:
            self.element_type_bit = HyperGraphElementType.HGET_EDGE.value
            if isinstance(kind, EdgeType):
                self.dimension = edge_class(kind)().measurement_dimension()
                self.error_dimension = self.minimal_dimension = kind.residual_dim
                self.number_vertices, self.number_parameters = len(kind.vertices), len(kind.parameters)
        self.dimension_at_compile_time = self.dimension
        self.error_dimension_at_compile_time = self.error_dimension
        self.number_vertices_at_compile_time = self.number_vertices


class Factory:
    """All types that files may hold."""

    @staticmethod
    def instance() -> Factory:
        """The factory."""
        return Factory()

    def known_types(self) -> list[str]:
        """Tags, sorted."""
        return sorted(type_.tag for type_ in registry.all_types())

    def knows_tag(self, tag: str) -> tuple[bool, HyperGraphElementType | None]:
        """(the tag is known, what it is)."""
        kind = registry.find(tag)
        if kind is None:
            return False, None
        return True, HyperGraphElementType(FactoryTypeInfo(kind).element_type_bit)

    def construct(self, tag: str) -> Any:
        """A new object of the class of a tag, None if it is unknown."""
        kind: Any = registry.find(tag)
        if kind is None:
            return None
        if isinstance(kind, VertexType):
            return vertex_class(kind)()
        if isinstance(kind, ParameterType):
            return parameter_class(kind)()
        return edge_class(kind)()

    def type_info(self, tag: str) -> FactoryTypeInfo:
        """Sizes of a tag's type; `TypeRegistryError` names the known ones."""
        kind = registry.find(tag)
        return FactoryTypeInfo(registry.edge_type(tag) if kind is None else kind)

    def tag(self, element: Any) -> str:
        """Tag of an object."""
        return element._type.tag
