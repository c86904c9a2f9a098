// Offsets of blocks, a row of COLUMNS numbers per block in the buffer `blocks`. AFFINE: only the first block's row is
// there, and block k's are so many block sizes on. Say COLUMNS and include after the buffer.
#ifndef GRAPHOPT_BLOCK_PLACES_GLSL
#define GRAPHOPT_BLOCK_PLACES_GLSL

layout(constant_id = 5) const uint AFFINE = 0;

uint block_place(uint block, uint column, uint size) {
  return AFFINE != 0 ? blocks.at[column] + block * size : blocks.at[COLUMNS * block + column];
}

#endif
