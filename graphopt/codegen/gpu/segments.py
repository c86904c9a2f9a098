"""Text of the sums over tiles: contributions of edges added up per destination, in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence

COLUMNS = 8
"""Outputs that go through shared memory at once."""


def tile_declarations(num_outputs: int) -> list[str]:
    """Shared memory and constants of `tile_sums`."""
    columns = min(COLUMNS, num_outputs)
    return [
        f"const uint OUTPUTS = {num_outputs}, COLUMNS = {columns}, TILE = 128;",
        "shared real scratch[COLUMNS * TILE];",
        "shared accumulator parts_scratch[WORKGROUP_SIZE];",
    ]


TILE_START = """\
const uint tile = push.first_tile + WORKGROUP;
if (tile >= push.num_tiles) return;
const uint first_destination = tiles.at[tile], num_here = tiles.at[tile + 1] - first_destination;
const uint begin = first.at[first_destination], end = first.at[first_destination + num_here];""".splitlines()

TILE_START_PRIMARY = """\
// After the last destination come tiles of edges whose vertex in this slot is fixed: they have only a chi2.
const uint tile = push.first_tile + WORKGROUP;
const bool is_fixed = tile >= push.num_tiles;
const uint first_destination = is_fixed ? push.num_destinations : tiles.at[tile];
const uint num_here = is_fixed ? 0 : tiles.at[tile + 1] - first_destination;
uint begin = first.at[first_destination], end = first.at[first_destination + num_here];
if (is_fixed) {
  begin += (tile - push.num_tiles) * TILE;
  end = min(begin + TILE, push.num_edges);
}""".splitlines()


def tile_sums(store: Sequence[str]) -> list[str]:
    """Add up `sum` of all lanes per destination and store the totals.

    `store` are the lines that write `real total`, the sum of output `o` for destination `d`.
    """
    text = """\
// Sums of COLUMNS outputs at a time: `parts` lanes for each (destination, output), then their sums.
[[unroll]] for (uint first_output = 0; first_output < OUTPUTS; first_output += COLUMNS) {
  barrier();
  [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
    if (first_output + c < OUTPUTS) scratch[c * TILE + LANE] = value(sum[first_output + c]);
  }
  barrier();
  const uint num_columns = min(COLUMNS, OUTPUTS - first_output), num_sums = num_here * num_columns;
  const uint parts = max(WORKGROUP_SIZE / max(num_sums, 1), 1);
  for (uint k = 0; k < num_sums; k += WORKGROUP_SIZE) {  // a single time where parts > 1
    const uint s = k + LANE / parts, part = LANE % parts;
    const uint d = first_destination + s / num_columns, c = s % num_columns, o = first_output + c;
    accumulator mine = sum_zero();
    if (s < num_sums) {
      const uint last = min(first.at[d + 1] - begin, TILE);
      for (uint i = first.at[d] - begin + part; i < last; i += parts) mine = add(mine, scratch[c * TILE + i]);
    }
    if (parts > 1) {
      parts_scratch[LANE] = mine;
      barrier();
      if (part == 0 && s < num_sums) {
        for (uint i = 1; i < parts; ++i) mine = merge(mine, parts_scratch[LANE + i]);
      }
    }
    if (s < num_sums && part == 0) {
      const real total = value(mine);
@
    }
  }
}""".splitlines()
    at = text.index("@")
    return [*text[:at], *(f"      {line}" for line in store), *text[at + 1 :]]
