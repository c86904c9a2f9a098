// Sums of contributions into the blocks of H or the segments of b, in the order of the lists. What wrote the
// contributions does not matter: row r of them holds one number of every edge of a chunk.
//
//   result[destination[d] + j] (+)= sum over k in [first[d], first[d + 1]) of contributions[maps[m][j]][e]
//   with e + m 2^20 = items[k]
//
// The includer says what `contribution` and `total` (the sum's type) are. A workgroup takes one element j of
// WORKGROUP_SIZE / LANES destinations; LANES invocations, a power of two, share a destination: each adds up every
// LANES-th item, then they are merged as a binary tree.
#extension GL_GOOGLE_include_directive : require
layout(constant_id = 1) const uint LANES = 1;
PARAMETERS(uint first_destination; uint num_destinations; uint num_elements; uint stride; uint accumulate;)
INPUT(0, contribution, contributions)   // (num_rows, stride)
INPUT(1, uint, first)                   // (n + 1,)
INPUT(2, uint, items)
INPUT(3, uint, destination)             // (n,)
INPUT(4, uint, maps)                    // (num_maps, num_elements): row of each element's contribution
GRAPHOPT_LARGE(restrict, 5, result)

const uint EDGE_BITS = 20;
shared total sums[WORKGROUP_SIZE];

contribution item(uint k, uint element) {
  const uint code = items.at[k];
  const uint row = maps.at[(code >> EDGE_BITS) * push.num_elements + element];
  return contributions.at[row * push.stride + bitfieldExtract(code, 0, int(EDGE_BITS))];
}

void main() {
  const uint element = WORKGROUP % push.num_elements, lane = LANE % LANES;
  const uint local = WORKGROUP / push.num_elements * (WORKGROUP_SIZE / LANES) + LANE / LANES;
  const uint d = push.first_destination + min(local, push.num_destinations - 1);
  const uint end = first.at[d + 1];
  total s = total_zero();
  uint k = first.at[d] + lane;
  for (; k + 3 * LANES < end; k += 4 * LANES) {
    contribution four[4];  // in flight together
    [[unroll]] for (uint n = 0; n < 4; ++n) four[n] = item(k + n * LANES, element);
    [[unroll]] for (uint n = 0; n < 4; ++n) s = total_add(s, four[n]);
  }
  for (; k < end; k += LANES) s = total_add(s, item(k, element));
  if (LANES > 1) {
    sums[LANE] = s;
    for (uint n = LANES / 2; n > 0; n /= 2) {
      barrier();
      if (lane < n) sums[LANE] = total_merge(sums[LANE], sums[LANE + n]);
    }
    s = sums[LANE];
  }
  if (lane != 0 || local >= push.num_destinations) return;
  const uint at = destination.at[d];
  AT(result, at, element) = (push.accumulate != 0 ? AT(result, at, element) : ZERO) + total_value(s);
}
