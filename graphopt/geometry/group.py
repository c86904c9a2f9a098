"""Base of the group classes: a thin value over a storage array.

Composition is `a * b`. An element acts on points with `a * point` or `a.act(point)`. With frames in the
names, `a_T_c = a_T_b * b_T_c` and `point_a = a_T_b * point_b`.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import numpy as np

from graphopt.geometry.arrays import Array

Group = TypeVar("Group", bound="LieGroup")


class LieGroup:
    """An element, or a batch of elements, of a matrix Lie group."""

    __slots__ = ("storage",)
    # numpy must not take `array * element` apart element by element
    __array_ufunc__ = None

    storage_dim: ClassVar[int]
    tangent_dim: ClassVar[int]
    identity_storage: ClassVar[tuple[float, ...]]
    quaternions: ClassVar[tuple[int, ...]] = ()
    """First of the four storage numbers of each unit quaternion."""

    def __init__(self, storage: Array) -> None:
        if isinstance(storage, (list, tuple)):
            storage = np.asarray(storage)
        if storage.shape[-1] != self.storage_dim:
            from graphopt.errors import ShapeError

            raise ShapeError(
                f"{type(self).__name__}: storage has shape {storage.shape}, "
                f"expected (..., {self.storage_dim}). "
                f"See {type(self).__name__}.__doc__ for the order of the numbers."
            )
        self.storage = storage

    @classmethod
    def identity(cls: type[Group], shape: tuple[int, ...] = ()) -> Group:
        """Neutral element, repeated to a batch shape."""
        return cls(np.broadcast_to(np.array(cls.identity_storage), (*shape, cls.storage_dim)).copy())

    def compose(self: Group, other: Group) -> Group:
        """Group product, self applied after other."""
        raise NotImplementedError

    def inverse(self: Group) -> Group:
        """Inverse element."""
        raise NotImplementedError

    def act(self, point: Array) -> Array:
        """Transform points."""
        raise NotImplementedError

    def between(self: Group, other: Group) -> Group:
        """`inverse() * other`, with fewer operations where the group allows."""
        return self.inverse().compose(other)

    def inverse_act(self, point: Array) -> Array:
        """`inverse() * point`, with fewer operations where the group allows."""
        return self.inverse().act(point)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, type(self)):
            return self.compose(other)
        return self.act(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.storage!r})"
