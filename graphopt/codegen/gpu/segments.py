"""Text of the sums over tiles: contributions of edges added up per destination, in a fixed order.

Each invocation adds up its own edges (of a tile of whole destinations it has one), a few outputs at a time
go through shared memory, and there `parts` invocations add up what goes to one number of one destination.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphopt.codegen.gpu.layout import TILE

COLUMNS = 8
"""Outputs that go through shared memory at once."""
COLUMN = TILE + 1
"""Numbers from one column to the next there: odd, so that what neighbours add up lies in other banks."""


@dataclass(frozen=True)
class Total:
    """One number that is summed over edges."""

    output: str
    """Name of the program's output."""
    compensated: bool
    """Whether an invocation's sum over its own edges is an `accumulator`, not a `real`."""

    @property
    def start(self) -> str:
        """Declaration of the invocation's sum."""
        if self.compensated:
            return f"accumulator sum_{self.output} = sum_zero();"
        return f"real sum_{self.output} = ZERO;"

    def add(self, expression: str) -> str:
        """Statement that adds an edge's contribution."""
        name = f"sum_{self.output}"
        return f"{name} = add({name}, {expression});" if self.compensated else f"{name} += {expression};"

    @property
    def value(self) -> str:
        """The invocation's sum as a real."""
        return f"value(sum_{self.output})" if self.compensated else f"sum_{self.output}"


TILE_OF_VIEW = "uint first_destination, num_here, begin, end;  // of the tile: destinations and edges"
OVER_EDGES_OF_VIEW = """\
const uint last = min(first.at[d + 1] - begin, TILE);
for (uint i = first.at[d] - begin + part; i < last; i += parts) mine = add(mine, scratch[c * COLUMN + i]);\
""".splitlines()


def tile_declarations(
    num_outputs: int,
    store: Sequence[str],
    parts: bool = False,
    tile: str = TILE_OF_VIEW,
    over: Sequence[str] = (),
) -> list[str]:
    """Shared memory, the tile, and the function that adds up what is in shared memory.

    `store` are the lines that write `real total`, the sum of output `o` for destination `d`; parts: `total`
    is an accumulator, since it is a part of a longer sum. `tile` declares what tells the tile; `over` are the
    lines that add column `c` of the destination's edges to `mine`, every parts-th from the part-th on.
    """
    kind, total = ("accumulator", "mine") if parts else ("real", "value(mine)")
    text = f"""\
const uint COLUMNS = {min(COLUMNS, num_outputs)}, TILE = {TILE}, COLUMN = {COLUMN};
shared real scratch[COLUMNS * COLUMN];
shared accumulator parts_scratch[WORKGROUP_SIZE];
{tile}

void store(uint d, uint o, {kind} total) {{
@
}}

// Adds up the columns in `scratch`, outputs first_output and following, per destination of the tile.
void sum_columns(uint first_output, uint num_columns) {{
  barrier();
  const uint num_sums = num_here * num_columns;
  const uint free = WORKGROUP_SIZE / max(num_sums, 1);
  const uint parts = free > 1 ? 1u << findMSB(free) : 1;  // invocations for one sum, a power of two
  for (uint k = 0; k < num_sums; k += WORKGROUP_SIZE) {{  // a single time where parts > 1
    const uint s = k + LANE / parts, part = LANE % parts;
    const uint d = first_destination + s / num_columns, c = s % num_columns;
    accumulator mine = sum_zero();
    if (s < num_sums) {{
%
    }}
    for (uint step = parts >> 1; step > 0; step >>= 1) {{
      parts_scratch[LANE] = mine;
      barrier();
      if (part < step) mine = merge(mine, parts_scratch[LANE + step]);
      barrier();
    }}
    if (s < num_sums && part == 0) store(d, first_output + c, {total});
  }}
  barrier();
}}""".splitlines()
    at, loop = text.index("@"), text.index("%")
    adding = [f"      {line}" for line in over or OVER_EDGES_OF_VIEW]
    return [*text[:at], *(f"  {line}" for line in store), *text[at + 1 : loop], *adding, *text[loop + 1 :]]


TILE_START = """\
const uint tile = push.first_tile + WORKGROUP;
if (tile >= push.num_tiles) return;
first_destination = tiles.at[tile];
num_here = tiles.at[tile + 1] - first_destination;
begin = first.at[first_destination];
end = first.at[first_destination + num_here];""".splitlines()


def tile_sums(totals: Sequence[Total]) -> list[str]:
    """Add up the invocations' sums per destination and store them."""
    parts = [totals[first : first + COLUMNS] for first in range(0, len(totals), COLUMNS)]
    writes = [
        [f"scratch[{c} * COLUMN + LANE] = {value.value};" for c, value in enumerate(part)] for part in parts
    ]
    if len(parts) == 1:
        return [*writes[0], f"sum_columns(0, {len(totals)});"]
    return in_turn(writes, f"sum_columns(k * COLUMNS, min(COLUMNS, {len(totals)} - k * COLUMNS));")


def in_turn(parts: Sequence[Sequence[str]], then: str) -> list[str]:
    """Statements of part k, then `then`, for all k: a loop, so that compilers see `then` once."""
    lines = [f"for (uint k = 0; k < {len(parts)}; ++k) {{", "  switch (k) {"]
    for k, part in enumerate(parts):
        lines += [f"    case {k}:", *(f"      {line}" for line in part), "      break;"]
    return [*lines, "  }", f"  {then}", "}"]
