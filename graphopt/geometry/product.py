"""Vectors as a group, and products of groups: a camera is a pose and a calibration.

    Camera = product_group("Camera", cam_T_world=SE3, calibration=3)
    camera.cam_T_world * point_world,    f, k1, k2 = camera.calibration

Storage and tangent are those of the parts one after the other; every operation works on each part by itself.
A part given as a number n is R^n with addition, and is seen as an array (..., n).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from graphopt.errors import OptionError, ShapeError
from graphopt.geometry.arrays import Array, components, concatenate, matrix
from graphopt.geometry.group import LieGroup


class VectorGroup(LieGroup):
    """R^n with addition; exp and log change nothing. `vector_group(n)` makes the class."""

    __slots__ = ()

    def compose(self, other: VectorGroup) -> VectorGroup:
        """Sum."""
        return type(self)(self.storage + other.storage)

    def inverse(self) -> VectorGroup:
        """Opposite vector."""
        return type(self)(-self.storage)

    def act(self, point: Array) -> Array:
        """Translate points (..., n)."""
        return point + self.storage

    @classmethod
    def exp(cls, tangent: Array) -> VectorGroup:
        """The vector itself."""
        return cls(tangent)

    def log(self) -> Array:
        """The vector itself."""
        return self.storage

    def adjoint(self) -> Array:
        """Identity (..., n, n): the group is commutative."""
        zero = 0.0 * components(self.storage)[0]
        n = self.storage_dim
        return matrix([[zero + (1.0 if i == j else 0.0) for j in range(n)] for i in range(n)])

    def normalize(self) -> VectorGroup:
        """Nothing to do."""
        return self


@cache
def vector_group(dim: int) -> type[VectorGroup]:
    """The group R^dim."""
    if dim < 1:
        raise OptionError(f"a vector has {dim} numbers, expected 1 or more.")
    members = {
        "__slots__": (),
        "__doc__": f"Vector, storage (..., {dim}).",
        "storage_dim": dim,
        "tangent_dim": dim,
        "identity_storage": (0.0,) * dim,
    }
    return type(f"Vector{dim}", (VectorGroup,), members)


class ProductGroup(LieGroup):
    """Elements of several groups side by side. `product_group` makes the class."""

    __slots__ = ()
    parts: ClassVar[Mapping[str, type]]
    """Name -> group."""

    @classmethod
    def from_parts(cls, **parts: Any) -> Any:
        """Element of its parts, given as group elements or arrays."""
        if set(parts) != set(cls.parts):
            raise ShapeError(f"{cls.__name__} has the parts {', '.join(cls.parts)}, got {', '.join(parts)}.")
        storages = [getattr(parts[name], "storage", parts[name]) for name in cls.parts]
        return cls(concatenate(*storages))

    def _split(self) -> list[Any]:
        """The parts as group elements."""
        elements, first = [], 0
        for group in self.parts.values():
            elements.append(group(self.storage[..., first : first + group.storage_dim]))
            first += group.storage_dim
        return elements

    @classmethod
    def _join(cls, elements: list[Any]) -> Any:
        return cls(concatenate(*(element.storage for element in elements)))

    def compose(self, other: Any) -> Any:
        """Compose part by part."""
        return self._join([a.compose(b) for a, b in zip(self._split(), other._split(), strict=True)])

    def inverse(self) -> Any:
        """Invert each part."""
        return self._join([part.inverse() for part in self._split()])

    def between(self, other: Any) -> Any:
        """`inverse() * other` part by part."""
        return self._join([a.between(b) for a, b in zip(self._split(), other._split(), strict=True)])

    def act(self, point: Array) -> Array:
        """A product acts on nothing: its parts do."""
        raise ShapeError(
            f"{type(self).__name__} does not act on points; its parts do: {', '.join(self.parts)}."
        )

    @classmethod
    def exp(cls, tangent: Array) -> Any:
        """Exponential of each part of a tangent (..., tangent_dim)."""
        elements, first = [], 0
        for group in cls.parts.values():
            elements.append(group.exp(tangent[..., first : first + group.tangent_dim]))
            first += group.tangent_dim
        return cls._join(elements)

    def log(self) -> Array:
        """Tangent (..., tangent_dim) whose exponential this is."""
        return concatenate(*(part.log() for part in self._split()))

    def adjoint(self) -> Array:
        """Block diagonal of the parts' adjoints (..., tangent_dim, tangent_dim)."""
        zero = 0.0 * components(self.storage)[0]
        rows, first = [], 0
        for part in self._split():
            block, n = part.adjoint(), part.tangent_dim
            for i in range(n):
                after = self.tangent_dim - first - n
                rows.append([*[zero] * first, *components(block[..., i, :]), *[zero] * after])
            first += n
        return matrix(rows)

    def normalize(self) -> Any:
        """Normalize each part."""
        return self._join([part.normalize() for part in self._split()])


def product_group(name: str, **parts: type[LieGroup] | int) -> type[ProductGroup]:
    """Class of the product of these parts: groups, or numbers n for R^n.

    An element has an attribute per part: a group element, or an array (..., n) of a vector.
    """
    groups = {key: vector_group(part) if isinstance(part, int) else part for key, part in parts.items()}
    if not groups:
        raise OptionError(f"{name}: a product needs parts, for instance cam_T_world=SE3, calibration=3.")
    for key, group in groups.items():
        if not (isinstance(group, type) and issubclass(group, LieGroup)):
            raise OptionError(f"{name}: part {key} is {group!r}, expected a group (SE3, ...) or a number.")
        if hasattr(ProductGroup, key):
            raise OptionError(f"{name}: a part cannot be called {key!r}, groups have that already.")
    members: dict[str, Any] = {
        "__slots__": (),
        "__doc__": f"Product of {', '.join(f'{key} ({group.__name__})' for key, group in groups.items())}.",
        "parts": groups,
        "storage_dim": sum(group.storage_dim for group in groups.values()),
        "tangent_dim": sum(group.tangent_dim for group in groups.values()),
        "identity_storage": tuple(x for group in groups.values() for x in group.identity_storage),
        "quaternions": (),
    }
    first = 0
    for key, group in groups.items():
        members[key] = _part(group, first)
        members["quaternions"] += tuple(first + column for column in group.quaternions)
        first += group.storage_dim
    return type(name, (ProductGroup,), members)


def _part(group: type[LieGroup], first: int) -> property:
    last = first + group.storage_dim

    def part(self: ProductGroup) -> Any:
        numbers = self.storage[..., first:last]
        return numbers if issubclass(group, VectorGroup) else group(numbers)

    return property(part, doc=f"{group.__name__}, storage numbers {first} to {last - 1}.")
