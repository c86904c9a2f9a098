// What kernels over the work queue of the Schur complement read and write.
PARAMETERS(uint first_chunk; uint num_chunks;)
INPUT(0, uint, chunks)         // (num_chunks, 6): first pair, one past the last, destination, H block, damping,
                               // rows + 256 * cols + 65536 * dim; NOTHING: no H block, not a diagonal block
INPUT(1, uint, pair_left)      // (num_pairs,): offset of W_il in values
INPUT(2, uint, pair_right)     // (num_pairs,): offset of W_jl
INPUT(3, uint, pair_inverse)   // (num_pairs,): offset of H_ll^-1
LARGE_INPUT(4, values)
LARGE_INPUT(5, inverse)
INPUT(6, real, damping)  // see damping.glsl
DAMPING_OF(damping_of, damping)
LARGE_OUTPUT(7, schur)
OUTPUT(8, accumulator, partial)

const uint IS_PARTIAL = 0x80000000u;

// Writes a sum: into the parts of a longer queue, or S = H + D - sum.
void write_sum(uint target, uint block, uint diagonal, uint row, uint col, uint rows, accumulator s) {
  const uint element = row + rows * col;
  if ((target & IS_PARTIAL) != 0) {
    partial.at[(target & ~IS_PARTIAL) + element] = s;
  } else {
    real h = block == NOTHING ? ZERO : AT(values, block, element);
    if (diagonal != NOTHING && row == col) h += damping_of(diagonal + row);
    AT(schur, target, element) = h - value(s);
  }
}
