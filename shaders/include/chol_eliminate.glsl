// LDL' of the first columns of a matrix in shared memory, a row of it per invocation.
//
// Before, entry (r, c), r >= c, is at area[COLUMN(c) + r]; afterwards L_rc D_c is there for the columns that were pivots.
// An invocation has its row in registers, moved by one column with each pivot, so that the loop needs no index into
// registers. What a column subtracts from all but the next one is left until the next pivot is on its way through the
// division: a step is one barrier and one division long, whatever the width.
//
// To be defined before: area, COLUMN(c), COLUMNS (of a row, a multiple of SEGMENT; columns past the matrix hold anything that
// no column of the matrix reads) and MOST_COLUMNS, its largest value, limits[c], what pivot c must exceed, scale[c]; the buffers signs and status.
#ifndef GRAPHOPT_CHOL_ELIMINATE_GLSL
#define GRAPHOPT_CHOL_ELIMINATE_GLSL

const uint SEGMENT = 16;
real row[COLUMNS];  // of this invocation; when all is done row[j] is entry (r, num_pivots + j)
real held;          // L_rk of the last pivot

// Pivots BEGIN .. BEGIN + 15: what is left of a row is as long as the text says, so that rows stay in registers.
#define ELIMINATE_SEGMENT(BEGIN)                                                                             \
  if (BEGIN < COLUMNS) {                                                                                     \
    const uint end = min(BEGIN + SEGMENT, num_pivots);                                                       \
    for (uint k = BEGIN; k < end; ++k) {                                                                     \
      barrier();                                                                                             \
      const uint column = COLUMN(k), before = COLUMN(max(k, 1) - 1);                                         \
      const real pivot = area[column + k];                                                                   \
      const real inverse = good_pivot(pivot, limits[k]) ? ONE / pivot : ONE;                                 \
      [[unroll]] for (uint j = 1; j + BEGIN < COLUMNS; ++j) row[j] -= held * area[before + k + j];           \
      held = row[0] * inverse;                                                                               \
      row[0] = row[1] - held * area[column + k + 1];                                                         \
      [[unroll]] for (uint j = 2; j + BEGIN < COLUMNS; ++j) row[j - 1] = row[j];                             \
      if (r > k && r < num_rows && k + 1 < num_pivots) area[COLUMN(k + 1) + r] = row[0];                     \
    }                                                                                                        \
  }

// Columns 0 .. num_pivots - 1 of num_rows rows; num_columns of a row are brought up to date.
void eliminate(uint num_rows, uint num_columns, uint num_pivots) {
  const uint r = LANE;
  [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
    row[c] = c < num_columns && r >= c && r < num_rows ? area[COLUMN(c) + r] : ZERO;
  }
  held = ZERO;
  ELIMINATE_SEGMENT(0)
  ELIMINATE_SEGMENT(16)
#if MOST_COLUMNS > 32
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
