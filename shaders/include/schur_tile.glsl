// A 3 x 3 tile of W_il H_ll^-1 W_jl' for a block of the Schur complement, in one invocation. The shape of the block is
// `rows` x `cols`, that of H_ll `dim` x `dim`; `values` and `inverse` are the shader's buffers.
const uint TILE = 3;

// Adds a pair of blocks, whose rows begin at row0 and col0.
void add_pair(inout accumulator tile[9], uint left, uint right, uint middle, uint row0, uint col0) {
  [[unroll]] for (uint c = 0; c < dim; ++c) {
    real w[3];  // column c of the three rows of W_il H_ll^-1
    [[unroll]] for (uint r = 0; r < TILE; ++r) w[r] = ZERO;
    [[unroll]] for (uint m = 0; m < dim; ++m) {
      const real h = AT(inverse, middle, m + dim * c);
      [[unroll]] for (uint r = 0; r < TILE; ++r) {
        if (row0 + r < rows) w[r] += AT(values, left, row0 + r + rows * m) * h;
      }
    }
    [[unroll]] for (uint q = 0; q < TILE; ++q) {
      if (col0 + q >= cols) continue;
      const real v = AT(values, right, col0 + q + cols * c);
      [[unroll]] for (uint r = 0; r < TILE; ++r) tile[r + TILE * q] = add_product(tile[r + TILE * q], w[r], v);
    }
  }
}
