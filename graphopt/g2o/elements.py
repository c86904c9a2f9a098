"""`HyperGraphElement` and the enums of g2o's hyper graph."""

from __future__ import annotations

from enum import Enum


class HyperGraphElementType(Enum):
    """What an element is."""

    HGET_VERTEX = 0
    HGET_EDGE = 1
    HGET_PARAMETER = 2
    HGET_CACHE = 3
    HGET_DATA = 4
    HGET_NUM_ELEMS = 5


class HyperGraphDefaultIds(Enum):
    """Ids of elements that were given none."""

    UnassignedId = -1
    InvalidId = -2


class ActionType(Enum):
    """When an action runs."""

    AT_PREITERATION = 0
    AT_POSTITERATION = 1
    AT_NUM_ELEMENTS = 2


UNASSIGNED_ID = -1
INVALID_ID = -2


class HyperGraphElement:
    """Vertices, edges, parameters and data."""

    __slots__ = ("__weakref__",)


class Data(HyperGraphElement):
    """User data that a vertex or edge carries."""

    __slots__ = ()

    def element_type(self) -> HyperGraphElementType:
        """HGET_DATA."""
        return HyperGraphElementType.HGET_DATA
