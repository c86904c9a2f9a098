// Where the entries of H's diagonal are in its values: a table, or runs of equal blocks that lie one after the other.
// Include after the buffer `places`:
//   RUNS = 0  (num_rows,): the offset of H_ii
//   else      (RUNS, 3): of each run the first scalar row, the offset of its first block, the dimension of its blocks
#ifndef GRAPHOPT_DIAGONAL_PLACES_GLSL
#define GRAPHOPT_DIAGONAL_PLACES_GLSL

layout(constant_id = 1) const uint RUNS = 0;

// Offset of the block of scalar row i, and of its diagonal entry within the block.
uvec2 place_of(uint i) {
  if (RUNS == 0) return uvec2(places.at[i], 0);
  uint run = 0;
  for (uint k = 1; k < RUNS; ++k) {
    if (i >= places.at[3 * k]) run = k;
  }
  const uint dim = places.at[3 * run + 2], local = i - places.at[3 * run];
  return uvec2(places.at[3 * run + 1] + local / dim * dim * dim, local % dim * (dim + 1));
}

#endif
