"""Products whose workgroups bring records of other vertices into shared memory before their edges read them.

Edges that lie side by side have other ends all over the memory: where each invocation reads a record of its
own, each of its loads asks for as many cache lines as there are invocations, and that is what limits such a
product on a GPU, even where all records are in the nearest cache. Here consecutive invocations read
consecutive 16 bytes of a record, which takes a line or two for eight of them, and each finds its record in
shared memory, at an odd stride, for the banks' sake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.inputs import row_of
from graphopt.codegen.gpu.kernel import Interface, indent
from graphopt.codegen.gpu.layout import TILE, EdgeSignature
from graphopt.codegen.gpu.packed_products import COMPONENTS
from graphopt.codegen.gpu.vertex_values import WithVertexValues, words_of

UNIT_BYTES = 16
MOST_BYTES = 32768
"""Of a workgroup at most: with more, few workgroups run at a time."""
_REAL_BYTES = 8


@cache
def product_in_workgroups(
    signature: EdgeSignature,
    slot: int,
    sources: tuple[int, ...],
    arithmetic: Arithmetic,
    sharing: tuple[int, ...],
    shared_bytes: int,
) -> WithVertexValues:
    """The product of one view, the same object for the same arguments.

    sharing: as `WithVertexValues`. shared_bytes: of a workgroup of the device.
    """
    product = WithVertexValues(signature, slot, sources, arithmetic, sharing)
    staged = Staged(product, shared_bytes)
    product.staged = staged if staged.runs else None
    return product


@dataclass(frozen=True)
class Run:
    """Consecutive units of the records of a buffer that edges read."""

    buffer: str
    stride: int
    """Units per record."""
    first: int
    count: int
    place: int
    """Of the first one among those of an edge in shared memory."""


class Staged(WithVertexValues):
    """An `EdgeProduct` for workgroups that go over edges together."""

    name = "staged"

    def __init__(self, product: WithVertexValues, shared_bytes: int):
        """shared_bytes: what a workgroup may have in all."""
        super().__init__(
            product.signature, product.slot, product.sources, product.arithmetic, product.sharing
        )
        self._free = min(shared_bytes, MOST_BYTES) - _REAL_BYTES * TILE * len(self.sums)

    @cached_property
    def runs(self) -> dict[int, tuple[Run, ...]]:
        """By slot, as far as there is room."""
        found, free = {}, self._free
        for k in range(self.signature.arity):
            runs = self._runs_of(k) if k != self.slot else ()
            size = TILE * (UNIT_BYTES * self.pad(runs) + 4)
            if runs and size <= free:
                found[k] = runs
                free -= size
        return found

    def _runs_of(self, k: int) -> tuple[Run, ...]:
        per_unit, used = self._per_unit, self.assignment.inputs()
        units = sorted({place // per_unit for name, place in self.places(k).items() if name in used})
        if not units:
            return ()
        runs = [Run(f"packed{k}", self.stride(k) * 4 // per_unit, units[0], units[-1] - units[0] + 1, 0)]
        if k in self.values:
            stride = 4 * words_of(len(self.values[k])) // per_unit
            count = -(-len(self.values[k]) // per_unit)
            runs.append(Run(f"values{k}", stride, 0, count, runs[0].count))
        return tuple(runs)

    @property
    def _per_unit(self) -> int:
        return 2 if self.arithmetic == "double" else 4

    @staticmethod
    def pad(runs: Sequence[Run]) -> int:
        """Units per edge in shared memory, an odd number."""
        return sum(one.count for one in runs) | 1

    @property
    def macros(self) -> list[str]:
        """The type of 16 bytes of a record."""
        return [f"#define packed_unit {'dvec2' if self.arithmetic == 'double' else 'vec4'}"]

    @property
    def shared(self) -> list[str]:
        """Declarations of shared memory."""
        lines = []
        for k, runs in self.runs.items():
            lines += [
                f"shared packed_unit staged{k}[{self.pad(runs)} * WORKGROUP_SIZE];",
                f"shared uint staged{k}_row[WORKGROUP_SIZE];",
            ]
        return lines

    @property
    def gather(self) -> list[str]:
        """What the whole workgroup does before it adds up the edges start .. start + WORKGROUP_SIZE."""
        rows = [f"staged{k}_row[LANE] = {row_of('e', k, self.signature)};" for k in self.runs]
        lines = [
            "if (e < end) {",
            *indent(rows),
            "}",
            "barrier();",
            "const uint last_lane = min(end - start, WORKGROUP_SIZE) - 1;",
        ]
        for k, runs in self.runs.items():
            for one in runs:
                lines += _gather_run(one, f"staged{k}", self.pad(runs))
        return [*lines, "barrier();"]

    def declare(self, interface: Interface, written: int | None) -> None:
        """Staged buffers in units of 16 bytes."""
        super().declare(interface, written)
        for runs in self.runs.values():
            for one in runs:
                interface.add(one.buffer, f"GRAPHOPT_FAR(readonly, %, packed_unit, 4, 16, {one.buffer})")

    def _record_lines(self, k: int, used: set[str]) -> list[str]:
        if k not in self.runs:
            return super()._record_lines(k, used)
        record, *values = self.runs[k]
        wanted = {
            name: place - record.first * self._per_unit
            for name, place in self.places(k).items()
            if name in used
        }
        for one in values:
            wanted |= {
                name: one.place * self._per_unit + place
                for place, name in enumerate(self.values[k])
                if name in used
            }
        pad, name, per_unit = self.pad(self.runs[k]), self.names[k], self._per_unit
        units = sorted({place // per_unit for place in wanted.values()})
        return [
            *(f"const packed_unit {name}_w{unit} = staged{k}[LANE * {pad} + {unit}];" for unit in units),
            *(
                f"const real {value} = {name}_w{place // per_unit}.{COMPONENTS[place % per_unit]};"
                for value, place in wanted.items()
            ),
        ]


def _gather_run(run: Run, staged: str, pad: int) -> list[str]:
    """All loads before the first store: they wait together."""
    held, count = f"{run.buffer}_held", run.count
    return [
        f"packed_unit {held}[{count}];",
        f"[[unroll]] for (uint n = 0; n < {count}; ++n) {{",
        "  const uint i = LANE + n * WORKGROUP_SIZE;",
        f"  const uint row = {staged}_row[min(i / {count}, last_lane)];",
        f"  {held}[n] = AT({run.buffer}, row * {run.stride}, {run.first} + i % {count});",
        "}",
        f"[[unroll]] for (uint n = 0; n < {count}; ++n) {{",
        "  const uint i = LANE + n * WORKGROUP_SIZE;",
        f"  {staged}[i / {count} * {pad} + {run.place} + i % {count}] = {held}[n];",
        "}",
    ]
