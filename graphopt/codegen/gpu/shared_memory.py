"""Text of what workgroups do together: the sum of chi2, and writes of whole blocks."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.codegen.gpu.segments import in_turn

STAGED = 27
"""Entries of a block that go through shared memory at once: 9 x 3 in one go."""


def staging(size: int) -> list[str]:
    """Shared memory for parts of a workgroup's blocks, and the function that writes them."""
    return f"""\
const uint STAGE = {min(size, STAGED) | 1};  // entries of a block at a time; odd, for the banks' sake
shared real staged[STAGE * WORKGROUP_SIZE];

// Writes entries begin .. begin + count of the workgroup's blocks; consecutive ones mostly lie side by side.
void write_staged(uint first_block, uint begin, uint count) {{
  barrier();
  for (uint k = LANE; k < WORKGROUP_SIZE * count; k += WORKGROUP_SIZE) {{
    const uint lane = k / count, entry = k % count;
    if (first_block + lane < push.num_blocks) {{
      const uint place = pair_block.at[first_block + lane];
      const real total = staged[lane * STAGE + entry];
      const real before = push.accumulate != 0 ? AT(values, place, begin + entry) : ZERO;
      AT(values, place, begin + entry) = before + total;
    }}
  }}
  barrier();
}}""".splitlines()


def staged_writes(values: Sequence[str]) -> list[str]:
    """Write the blocks through shared memory, so that neighbours in memory are written together."""
    parts = [values[begin : begin + STAGED] for begin in range(0, len(values), STAGED)]
    writes = [[f"staged[LANE * STAGE + {k}] = {value};" for k, value in enumerate(part)] for part in parts]
    if len(parts) == 1:
        return [*writes[0], f"write_staged(first_block, 0, {len(values)});"]
    count = f"min({STAGED}, {len(values)} - k * {STAGED})"
    return in_turn(writes, f"write_staged(first_block, k * {STAGED}, {count});")


CHI2_SUM = """\
shared wide chi2_scratch[WORKGROUP_SIZE];
wide workgroup_chi2(wide mine) {  // a binary tree; the result is in every invocation
  chi2_scratch[LANE] = mine;
  barrier();
  for (uint s = WORKGROUP_SIZE / 2; s > 0; s >>= 1) {
    if (LANE < s) chi2_scratch[LANE] = wide_sum(chi2_scratch[LANE], chi2_scratch[LANE + s]);
    barrier();
  }
  return chi2_scratch[0];
}"""
