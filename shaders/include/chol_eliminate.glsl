// LDL' of the first columns of a matrix in shared memory, a row of it per invocation.
//
// Before, entry (r, c), r >= c, is at area[COLUMN(c) + r]; afterwards L_rc D_c is there for the columns that were pivots.
// Pivots go by groups: every invocation factors the diagonal block of a group for itself, in registers, and finds its own
// row of L, without a barrier; then the later columns of its row are brought up to date. An invocation has its row in
// registers, moved on with each group, so that the loop needs no index into registers.
//
// To be defined before: area, COLUMN(c), COLUMNS (of a row, a multiple of SEGMENT; columns past the matrix hold anything that
// no column of the matrix reads), limits[c], what pivot c must exceed, scale[c]; the buffers signs and status.
#ifndef GRAPHOPT_CHOL_ELIMINATE_GLSL
#define GRAPHOPT_CHOL_ELIMINATE_GLSL

#if defined(GRAPHOPT_GROUP_8)
#define GROUP 8
#elif defined(GRAPHOPT_GROUP_2)
#define GROUP 2
#else
#define GROUP 4  // pivots
#endif
const uint SEGMENT = 16;
real row[COLUMNS];  // of this invocation; when all is done row[j] is entry (r, done + j)
real held[GROUP];   // L_rk of a group
uint done;          // columns of all groups; those that were no pivots are in `area`, too

#if defined(GRAPHOPT_NEWTON) && defined(GRAPHOPT_DOUBLE)
// Without the branches of a division: float32's reciprocal of the mantissa, two steps of Newton's.
real reciprocal(real pivot) {
  const uvec2 bits = unpackDouble2x32(pivot);
  const double mantissa = packDouble2x32(uvec2(bits.x, (bits.y & 0x800fffffu) | 0x3ff00000u));
  const double power = packDouble2x32(uvec2(0, (2046u - ((bits.y >> 20) & 0x7ffu)) << 20));
  double y = double(1.0 / float(mantissa));
  y = fma(fma(-mantissa, y, ONE), y, y);
  y = fma(fma(-mantissa, y, ONE), y, y);
  return y * power;
}
#else
real reciprocal(real pivot) { return ONE / pivot; }
#endif

// Pivots k .. k + GROUP - 1 in the first entries of the row: afterwards they are L_rk D_k, and `held` L_rk.
void eliminate_group(uint k, uint base[GROUP], uint num_pivots) {
  real block[GROUP][GROUP];  // L D
  [[unroll]] for (uint i = 0; i < GROUP; ++i) {
    [[unroll]] for (uint j = 0; j <= i; ++j) block[i][j] = area[base[j] + k + i];
  }
  [[unroll]] for (uint j = 0; j < GROUP; ++j) {
    const real inverse = good_pivot(block[j][j], limits[k + j]) ? reciprocal(block[j][j]) : ONE;
    const real factor_of = k + j < num_pivots ? inverse : ZERO;
    [[unroll]] for (uint i = j + 1; i < GROUP; ++i) {
      const real l = block[i][j] * factor_of;
      [[unroll]] for (uint c = j + 1; c <= i; ++c) block[i][c] -= l * block[c][j];
    }
    held[j] = row[j] * factor_of;
    [[unroll]] for (uint c = j + 1; c < GROUP; ++c) row[c] -= held[j] * block[c][j];
  }
}

void put_group(uint k, uint base[GROUP], uint num_columns) {
  [[unroll]] for (uint j = 0; j < GROUP; ++j) {
    if (LANE >= k + j && k + j < num_columns) area[base[j] + LANE] = row[j];
  }
}

// Groups from BEGIN to BEGIN + 15: what is left of a row is as long as the text says, so that rows stay in registers.
#define ELIMINATE_SEGMENT(BEGIN)                                                                             \
  if (BEGIN < COLUMNS) {                                                                                     \
    const uint end = min(BEGIN + SEGMENT, num_pivots);                                                       \
    for (uint k = BEGIN; k < end; k += GROUP) {                                                              \
      barrier();                                                                                             \
      uint base[GROUP];                                                                                      \
      [[unroll]] for (uint j = 0; j < GROUP; ++j) base[j] = COLUMN(min(k + j, num_rows - 1));                \
      eliminate_group(k, base, num_pivots);                                                                  \
      if (r >= k + GROUP && r < num_rows) put_group(k, base, num_columns);                                   \
      barrier();                                                                                             \
      if (r < k + GROUP && r < num_rows) put_group(k, base, num_columns);                                    \
      [[unroll]] for (uint j = GROUP; j + BEGIN < COLUMNS; ++j) {                                            \
        real left = row[j];                                                                                  \
        [[unroll]] for (uint i = 0; i < GROUP; ++i) left -= held[i] * area[base[i] + k + j];                 \
        row[j - GROUP] = left;                                                                               \
      }                                                                                                      \
      if (r >= k + GROUP && r < k + 2 * GROUP && r < num_rows) {                                             \
        [[unroll]] for (uint j = 0; j < GROUP; ++j) {                                                        \
          const uint c = k + GROUP + j;                                                                      \
          if (c <= r && c < num_columns) area[COLUMN(c) + r] = row[j];                                       \
        }                                                                                                    \
      }                                                                                                      \
    }                                                                                                        \
  }

// Columns 0 .. num_pivots - 1 of num_rows rows; num_columns of a row are brought up to date.
void eliminate(uint num_rows, uint num_columns, uint num_pivots) {
  const uint r = LANE;
  [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
    row[c] = c < num_columns && r >= c && r < num_rows ? area[COLUMN(c) + r] : ZERO;
  }
  done = (num_pivots + GROUP - 1) / GROUP * GROUP;
  ELIMINATE_SEGMENT(0)
#if COLUMNS > 16
  ELIMINATE_SEGMENT(16)
#endif
#if COLUMNS > 32
  ELIMINATE_SEGMENT(32)
  ELIMINATE_SEGMENT(48)
#endif
  barrier();
}

// scale[c]: what makes L_rc of L_rc D_c. Pivots are columns of the matrix from `first` on; noted by one workgroup only.
void take_pivots(uint first, uint num_pivots, bool notes) {
  if (LANE < num_pivots) {
    const real pivot = area[COLUMN(LANE) + LANE];
    const bool good = good_pivot(pivot, limits[LANE]), negative = SIGNED != 0 && good && pivot < ZERO;
    scale[LANE] = !good ? ONE : negative ? -ONE / sqrt(-pivot) : ONE / sqrt(pivot);
    if (notes && !good) NOTE_BAD_PIVOT(first + LANE);
    if (notes && SIGNED != 0) signs.at[first + LANE] = negative ? -ONE : ONE;
    if (notes && negative) NOTE_NEGATIVE();
  }
  barrier();
}

#endif
