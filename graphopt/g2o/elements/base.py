"""`HyperGraphElement` and the enums of g2o's hyper graph."""

from __future__ import annotations

from enum import Enum
from typing import Any


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


def native(element: Any) -> Any:
    """The class of this package that an object is of.

    Code here calls methods through it, because a program's subclass may override them with other arguments
    or hide them by attributes, which g2o's own code never sees.
    """
    return next(cls for cls in type(element).__mro__ if cls.__module__.startswith("graphopt.g2o."))


class HyperGraphElement:
    """Vertices, edges, parameters and data."""

    __slots__ = ("__weakref__",)


class Data(HyperGraphElement):
    """User data that a vertex or edge carries."""

    __slots__ = ()

    def element_type(self) -> HyperGraphElementType:
        """HGET_DATA."""
        return HyperGraphElementType.HGET_DATA


class DataContainer(HyperGraphElement):
    """What carries user data: vertices and edges. Classes that derive from it have the attribute `_data`."""

    __slots__ = ()
    _data: list[Data] | None

    def user_data(self) -> list[Data]:
        """User data, in the order in which it was added."""
        return list(self._data or ())

    def add_user_data(self, obs: Data) -> None:
        """Attach user data."""
        self._data = [*(self._data or ()), obs]

    def set_user_data(self, obs: Data) -> None:
        """Replace all user data."""
        self._data = [obs]
