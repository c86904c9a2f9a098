"""`Edge`: an edge of a hyper graph, which has an id and vertices and no numbers."""

from __future__ import annotations

from typing import Any, ClassVar

from graphopt.cpu_kernels import kernels
from graphopt.g2o.elements.base import INVALID_ID, Data, DataContainer, HyperGraphElementType
from graphopt.g2o.elements.vertices import Vertex
from graphopt.g2o.engine.storage import fast_method


class Edge(DataContainer, kernels.EdgeRow):
    """An edge of a hyper graph: an id and vertices."""

    __slots__ = ()
    _is_plain: ClassVar[bool] = False
    """All edges of the class have one type, and it takes no parameters: native short ways serve them."""

    def __init__(self, id: int = INVALID_ID) -> None:
        self._id = id
        self._graph: Any = None  # the graph that has it
        self._data: list[Data] | None = None
        self._vertices = []

    def id(self) -> int:
        """Id, -2 until one is set; nothing depends on it."""
        return self._id

    def set_id(self, id: int) -> None:
        """Set the id."""
        self._id = int(id)

    def element_type(self) -> HyperGraphElementType:
        """HGET_EDGE."""
        return HyperGraphElementType.HGET_EDGE

    def resize(self, size: int) -> None:
        """Change the number of vertices."""
        self._vertices = [*self._vertices[:size], *([None] * (size - len(self._vertices)))]
        if self._graph is not None:
            self._graph._topology_changed()

    @fast_method
    def set_vertex(self, i: int, v: Vertex | None) -> None:
        """Set vertex number i."""
        vertices = list(self._vertices)
        try:
            vertices[i] = v
        except IndexError:
            raise IndexError(
                f"{type(self).__name__}.set_vertex({i}): it has {len(vertices)} vertices; see resize()."
            ) from None
        self._vertices = vertices
        if self._graph is not None:
            self._graph._topology_changed()

    def vertex(self, i: int) -> Any:
        """Vertex number i, None until it is set."""
        return self._vertices[i]

    def vertices(self) -> list[Any]:
        """All vertices (a new list)."""
        return list(self._vertices)

    def num_undefined_vertices(self) -> int:
        """Vertices not set yet."""
        return self._vertices.count(None)

    def __repr__(self) -> str:
        ids = ", ".join(
            "-" if each_vertex is None else str(each_vertex.id()) for each_vertex in self._vertices
        )
        return f"<{type(self).__name__} between {ids}>"
