"""How estimates, measurements and edges lie in device memory; what a signature is."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphopt.codegen.edge import information_dim

EDGE_BLOCK = 64
"""Edges per block of the blocked arrays `rows` and `data`."""
TILE = 128
"""Most edges of a tile of whole destinations; the workgroup size of the kernels that sum over tiles."""


def record_dim(storage_dim: int) -> int:
    """8-byte numbers per estimate or parameter: records start at multiples of 16 bytes."""
    return storage_dim + storage_dim % 2


def float32_record_dim(storage_dim: int) -> int:
    """float32 numbers per estimate or parameter: records start at multiples of 16 bytes."""
    return -(-storage_dim // 4) * 4


@dataclass(frozen=True)
class EdgeSignature:
    """What determines the kernels of an edge group."""

    edge_type: Any
    """The working form: `types.base.working_edge_type(kind)`."""
    information: str
    """"full", "diagonal" or "identity"."""
    kernel: int = 0
    """Number of the robust kernel, 0: none."""
    shares_data: bool = False
    """`data` is another view's; `data_place` has where an edge is in that."""
    is_exact: bool = False
    """H is the Hessian of chi2 / 2 (`second_order`) instead of J' w Omega J."""

    @property
    def arity(self) -> int:
        """Vertices of an edge."""
        return len(self.edge_type.vertices)

    def set_of_slot(self, slot: int) -> int:
        """First slot with the same vertex type: a graph has one vertex set per type."""
        return self.edge_type.vertices.index(self.edge_type.vertices[slot])

    def set_of_parameter(self, slot: int) -> int:
        """First parameter slot with the same type."""
        names = [(parameter.name, getattr(parameter, "tag", "")) for parameter in self.edge_type.parameters]
        return names.index(names[slot])

    @property
    def num_rows(self) -> int:
        """Entries per edge of `rows`: vertices, then parameters."""
        return self.arity + len(self.edge_type.parameters)

    @property
    def num_data(self) -> int:
        """Entries per edge of `data`: measurement, packed information, width of the robust kernel."""
        dim = information_dim(self.edge_type.residual_dim, self.information)
        return self.edge_type.measurement_dim + dim + (self.kernel != 0)


_KEYWORDS = {
    "b",
    "e",
    "y",
    "t",
    "x",
    "H",
    "rho",
    "chi",
    "weight",
    "width",
    "information",
    "row",
    "datum",
    "moved",
    "entry",
    "shared_edge",
}


def argument_names(edge_type: Any) -> list[str]:
    """Names of vertices, parameters and measurement in generated code: those of the residual's arguments."""
    count = len(edge_type.vertices) + len(edge_type.parameters) + 1
    plain = [f"vertex{k}" for k in range(len(edge_type.vertices))]
    plain += [f"parameter{k}" for k in range(len(edge_type.parameters))] + ["measurement"]
    try:
        arguments = list(inspect.signature(edge_type.residual).parameters.values())
    except (TypeError, ValueError):
        return plain
    if len(arguments) != count or any(a.kind is not a.POSITIONAL_OR_KEYWORD for a in arguments):
        return plain
    names = [_identifier(a.name) for a in arguments]
    return names if len(set(names)) == count and all(names) else plain


def _identifier(name: str) -> str:
    """Name that GLSL allows and that no generated name can equal; empty where there is none."""
    name = re.sub("__+", "_", name).strip("_")
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) or name.startswith(("gl_", "math_", "wide_")):
        return ""
    return f"in_{name}" if name in _KEYWORDS or re.fullmatch(r"[tx]\d+", name) else name


def numbered(name: str, count: int) -> Sequence[str]:
    """name_0, name_1, ..."""
    return [f"{name}_{k}" for k in range(count)]
