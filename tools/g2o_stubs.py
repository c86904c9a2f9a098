"""Write the type stubs of graphopt.g2o from its classes; the build installs them beside the package.

    python tools/g2o_stubs.py OUTPUT [FOLDER]    FOLDER: where the native modules are, if not in the package

Most vertex and edge classes are made at run time from the type registry; the stubs spell them out, with the
types of their estimates and measurements.
"""

from __future__ import annotations

import inspect
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

import graphopt

graphopt.__path__[:0] = sys.argv[2:3]  # modules that are built, but not installed yet

import graphopt.g2o as g2o  # noqa: E402
from graphopt.cpu_kernels import kernels  # noqa: E402
from graphopt.g2o.elements.edges import OptimizableGraph_Edge  # noqa: E402
from graphopt.g2o.elements.vertices import OptimizableGraph_Vertex  # noqa: E402

HEADER = '''# ruff: noqa
# fmt: off
"""Type stubs of graphopt.g2o, written by tools/g2o_stubs.py."""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, ClassVar

import numpy as np

from graphopt.g2o import contrib as contrib
from graphopt.graph import Graph

'''
VALUES = {
    "VertexSE2": "SE2",
    "VertexSE3": "Isometry3d",
    "VertexSE3Expmap": "SE3Quat",
    "VertexSim3Expmap": "Sim3",
    "VertexCam": "SBACam",
    "VertexSCam": "Isometry3d",
    "VertexIntrinsics": "VertexIntrinsicsEstimate",
}
"""Vertex class -> class of its estimate; arrays otherwise."""
NATIVE_BASES = (
    kernels.Row,
    kernels.VertexRow,
    kernels.EdgeRow,
    kernels.Chunk,
    kernels.GraphBase,
    kernels.KernelWidth,
)
SPECIAL = ("__init__", "__mul__", "__imul__", "__getitem__", "__len__", "__call__")
NUMBERS = ("EdgeSE2PointXYBearing", "EdgeSBAScale")


def stubs() -> str:
    """The whole file."""
    classes: dict[str, type] = {}
    aliases: list[str] = []
    rest: list[str] = []
    for name in g2o.__all__:
        value = getattr(g2o, name)
        if inspect.isclass(value):
            for base in reversed(value.__mro__[1:-1]):
                if base.__module__.startswith("graphopt.g2o") and base not in classes.values():
                    classes[base.__name__] = base
            if value.__name__ != name:
                aliases.append(f"{name} = {value.__name__}")
            if value not in classes.values():
                classes[value.__name__] = value
        elif inspect.isfunction(value):
            rest.append(f"def {name}{_signature(value)}: ...")
        else:
            rest.append(f"{name}: {type(value).__name__}")
    for extra in _nested(classes):
        classes.setdefault(extra.__name__, extra)
    parts = [_class(name, cls) for name, cls in _ordered(classes)]
    return HEADER + "\n".join([*parts, *sorted(aliases), "", *rest]) + "\n"


def _nested(classes: dict[str, type]) -> list[type]:
    """Classes that are attributes of others."""
    nested = []
    for class_ in list(classes.values()):
        for value in vars(class_).values():
            if inspect.isclass(value) and value.__module__.startswith("graphopt.g2o"):
                nested += [
                    base
                    for base in reversed(value.__mro__[:-1])
                    if base.__module__.startswith("graphopt.g2o")
                ]
    return nested


def _ordered(classes: dict[str, type]) -> list[tuple[str, type]]:
    """Bases first, then by name."""
    return sorted(classes.items(), key=lambda item: (len(_without_native(item[1].__mro__)), item[0]))


def _without_native(bases: tuple[type, ...]) -> list[type]:
    """Leave out the base classes from the CPU module, whose members are all private."""
    return [base for base in bases if base not in NATIVE_BASES]


def _class(name: str, cls: type) -> str:
    bases = [base.__name__ for base in _without_native(cls.__bases__) if base is not object]
    if issubclass(cls, Enum):
        lines = [f"    {member.name} = {member.value!r}" for member in cls]
        return "\n".join([f"class {name}(Enum):", *lines, ""])
    bases = ["np.ndarray" if base == "ndarray" else base for base in bases]
    # a class of the same name in between, such as the generated part of VertexSim3Expmap
    if bases == [name]:
        bases = [base.__name__ for base in cls.__mro__[2].__mro__[:1]]
    lines = [f"class {name}({', '.join(bases)}):" if bases else f"class {name}:"]
    if cls.__doc__:
        lines.append(
            f'    """{inspect.cleandoc(cls.__doc__)}"""'.replace("\n", "\n    ").replace("    \n", "\n")
        )
    for member, value in sorted(vars(cls).items()):
        if not member.startswith("_") or member in SPECIAL:
            lines += _member(member, value)
    lines += _typed(name, cls)
    if len(lines) == 1:
        lines.append("    ...")
    return "\n".join([*lines, ""])


def _typed(name: str, cls: type) -> list[str]:
    """Estimate and measurement with their own types."""
    if issubclass(cls, OptimizableGraph_Vertex) and "_type" in vars(cls) and name != "VectorXVertex":
        value = VALUES.get(name, "np.ndarray")
        return [
            f"    def estimate(self) -> {value}: ...",
            f"    def set_estimate(self, et: {value}) -> None: ...",
        ]
    if issubclass(cls, OptimizableGraph_Edge) and "_pool" in vars(cls) and "set_measurement" not in vars(cls):
        value = getattr(cls, "_value", None)
        kind = value.__name__ if value is not None else "float" if name in NUMBERS else "np.ndarray"
        return [
            f"    def measurement(self) -> {kind}: ...",
            f"    def set_measurement(self, m: {kind}) -> None: ...",
        ]
    return []


def _member(name: str, value: Any) -> list[str]:
    if isinstance(value, property):
        lines = ["    @property", f"    def {name}(self) -> {_returns(value.fget)}: ..."]
        if value.fset is not None:
            lines += [f"    @{name}.setter", f"    def {name}(self, value: Any) -> None: ..."]
        return lines
    if isinstance(value, staticmethod):
        return ["    @staticmethod", f"    def {name}{_signature(value.__func__)}: ..."]
    if isinstance(value, classmethod):
        return ["    @classmethod", f"    def {name}{_signature(value.__func__)}: ..."]
    if inspect.isfunction(value):
        return [f"    def {name}{_signature(value)}: ..."]
    if name == "__init__":  # of kernels.VertexRow, EdgeRow or KernelWidth
        argument = "delta: float" if value.__objclass__ is kernels.KernelWidth else "id: int"
        return [f"    def __init__(self, {argument} = ...) -> None: ..."]
    if inspect.isclass(value):
        return [f"    {name}: ClassVar[type[{value.__name__}]]"]
    if isinstance(value, Enum):
        return [f"    {name}: ClassVar[{type(value).__name__}]"]
    if isinstance(value, np.ndarray):
        return [f"    {name}: np.ndarray"]
    if inspect.ismemberdescriptor(value):
        return [f"    {name}: Any"]
    return []


def _returns(function: Any) -> str:
    return str(function.__annotations__.get("return", "Any")) if function is not None else "Any"


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    parameters = []
    for parameter in signature.parameters.values():
        if parameter.default is not inspect.Parameter.empty:
            parameter = parameter.replace(default=...)
        parameters.append(parameter)
    text = str(signature.replace(parameters=parameters)).replace("Ellipsis", "...").replace("'", "")
    return text if "->" in text else f"{text} -> Any"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(stubs())
