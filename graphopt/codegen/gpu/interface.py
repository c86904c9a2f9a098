"""Buffers and push constants of a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field

FAR = ("LARGE_", "FAR_", "WORDS(", "GRAPHOPT_FAR(", "GRAPHOPT_LARGE(", "INPUT_OUTPUT_LARGE(")
"""How declarations of buffers begin that `AT` of common.glsl reaches with 64 bits."""
FIRST_OF_PLACES = 8
"""Specialization constant of a kernel's first buffer of places."""


@dataclass
class Interface:
    """Buffers and push constants while a kernel is written."""

    params: tuple[str, ...]
    buffers: dict[str, str] = field(default_factory=dict)
    """Name -> declaration macro with its type, without the slot."""
    places: dict[str, int] = field(default_factory=dict)
    """As `GpuKernel.places`."""

    def add(self, name: str, declaration: str) -> None:
        """Declare a buffer: `INPUT(%, uint, rows)`, where % stands for the slot."""
        self.buffers[name] = declaration

    def add_places(self, name: str) -> None:
        """Declare a buffer of places, entry i of which is `{name}_of(i)`.

        Regular ones, first + i * step, are the two numbers first and step, which the host says by a constant.
        """
        self.add(name, f"INPUT(%, uint, {name})")
        self.places[name] = FIRST_OF_PLACES + len(self.places)

    @property
    def far(self) -> frozenset[str]:
        """Names of the buffers that `AT` reaches."""
        return frozenset(name for name, buffer in self.buffers.items() if buffer.startswith(FAR))

    def text(self) -> str:
        """Declarations, in order."""
        lines = [f"PARAMETERS({' '.join(f'uint {name};' for name in self.params)})"]
        lines += [line.replace("%", str(slot)) for slot, line in enumerate(self.buffers.values())]
        for name, constant in self.places.items():
            entry = f"IS_REGULAR_{constant} != 0 ? {name}.at[0] + {name}.at[1] * i : {name}.at[i]"
            lines.append(f"layout(constant_id = {constant}) const uint IS_REGULAR_{constant} = 0;")
            lines.append(f"uint {name}_of(uint i) {{ return {entry}; }}")
        return "\n".join(lines)
