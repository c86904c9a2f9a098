// LDL' of the first columns of a matrix in shared memory, a row of it per invocation.
//
// Before, entry (r, c), r >= c, is at area[COLUMN(c) + r]; afterwards L_rc D_c is there for the columns that were pivots.
// Pivots go by fours: every invocation factors the diagonal block of four for itself, in registers, and finds its own
// row of L, without a barrier; then the later columns of its row are brought up to date. An invocation has its row in
// registers, moved on by four, and everything is written out with numbers as indices, so that it stays there.
//
// To be defined before: area, COLUMN(c), COLUMNS (of a row: 16, 32 or 64; columns past the matrix hold anything that no column
// of the matrix reads), limits[c], what pivot c must exceed, scale[c], root[c]; the buffers signs and status.
#ifndef GRAPHOPT_CHOL_ELIMINATE_GLSL
#define GRAPHOPT_CHOL_ELIMINATE_GLSL

const uint SEGMENT = 16;
real row[COLUMNS];               // of this invocation; when all is done row[j] is entry (r, done + j)
real held0, held1, held2, held3;  // L_rk of four pivots
uint done;                       // columns of all fours; those that were no pivots are in `area`, too

// EACH(M): M(0) M(1) .. M(COLUMNS - 1)
#define EACH_4(M, j) M(j) M(j + 1) M(j + 2) M(j + 3)
#define EACH_12(M, j) EACH_4(M, j) EACH_4(M, j + 4) EACH_4(M, j + 8)
#define EACH_16(M, j) EACH_12(M, j) EACH_4(M, j + 12)
#define EACH_28(M, j) EACH_12(M, j) EACH_16(M, j + 12)
#define EACH_32(M, j) EACH_16(M, j) EACH_16(M, j + 16)
#define EACH_44(M, j) EACH_28(M, j) EACH_16(M, j + 28)
#define EACH_60(M, j) EACH_44(M, j) EACH_16(M, j + 44)
#if COLUMNS == 16
#define EACH(M) EACH_16(M, 0)
#elif COLUMNS == 32
#define EACH(M) EACH_32(M, 0)
#else
#define EACH(M) EACH_32(M, 0) EACH_32(M, 32)
#endif

real inverse_pivot(real pivot, uint k, uint num_pivots) {
  const real inverse = good_pivot(pivot, limits[k]) ? ONE / pivot : ONE;
  return k < num_pivots ? inverse : ZERO;
}

// Pivots k .. k + 3, the first entries of the row: afterwards they are L_rk D_k. base: of column k + j, entry (k, k + j).
void eliminate_four(uint k, uvec4 base, uint num_pivots) {
  const real a00 = area[base.x];
  real a10 = area[base.x + 1], a20 = area[base.x + 2], a30 = area[base.x + 3];
  real a11 = area[base.y + 1], a21 = area[base.y + 2], a31 = area[base.y + 3];
  real a22 = area[base.z + 2], a32 = area[base.z + 3], a33 = area[base.w + 3];
  const real inverse0 = inverse_pivot(a00, k, num_pivots);
  held0 = row[0] * inverse0;
  const real l10 = a10 * inverse0, l20 = a20 * inverse0, l30 = a30 * inverse0;
  a11 -= l10 * a10;
  a21 -= l20 * a10;
  a31 -= l30 * a10;
  a22 -= l20 * a20;
  a32 -= l30 * a20;
  a33 -= l30 * a30;
  const real inverse1 = inverse_pivot(a11, k + 1, num_pivots);
  row[1] -= held0 * a10;
  held1 = row[1] * inverse1;
  const real l21 = a21 * inverse1, l31 = a31 * inverse1;
  a22 -= l21 * a21;
  a32 -= l31 * a21;
  a33 -= l31 * a31;
  const real inverse2 = inverse_pivot(a22, k + 2, num_pivots);
  row[2] -= held0 * a20;
  row[2] -= held1 * a21;
  held2 = row[2] * inverse2;
  a33 -= a32 * inverse2 * a32;
  const real inverse3 = inverse_pivot(a33, k + 3, num_pivots);
  row[3] -= held0 * a30;
  row[3] -= held1 * a31;
  row[3] -= held2 * a32;
  held3 = row[3] * inverse3;
}

// The next four entries of the row, from the diagonal on, in columns `first` and later.
void put_four(uint first, uvec4 base, uint num_columns) {
  if (LANE >= first && first < num_columns) area[base.x] = row[0];
  if (LANE >= first + 1 && first + 1 < num_columns) area[base.y] = row[1];
  if (LANE >= first + 2 && first + 2 < num_columns) area[base.z] = row[2];
  if (LANE >= first + 3 && first + 3 < num_columns) area[base.w] = row[3];
}

uvec4 four_columns(uint k, uint num_rows) {
  const uint last = num_rows - 1;
  return uvec4(COLUMN(min(k, last)), COLUMN(min(k + 1, last)), COLUMN(min(k + 2, last)), COLUMN(min(k + 3, last)));
}

#if defined(GRAPHOPT_DOUBLE)
#define PAIR dvec2
#else
#define PAIR vec2
#endif
// L_rk D_k of four pivots by rows, of those rows that are columns, too.
shared PAIR exchange[2 * (COLUMNS + SEGMENT)];
void put_exchange() {
  if (LANE < COLUMNS) {
    exchange[2 * LANE] = PAIR(row[0], row[1]);
    exchange[2 * LANE + 1] = PAIR(row[2], row[3]);
  }
}
#define REST(j)                                                                                              \
  {                                                                                                          \
    const PAIR one = exchange[2 * (k + 4 + j)], two = exchange[2 * (k + 4 + j) + 1];                         \
    row[j] = row[4 + j] - held0 * one.x - held1 * one.y - held2 * two.x - held3 * two.y;                     \
  }

// Fours from BEGIN to BEGIN + 12; NUM: columns after them.
#define ELIMINATE_SEGMENT(BEGIN, NUM)                                                                        \
  for (uint k = BEGIN; k < min(BEGIN + SEGMENT, num_pivots); k += 4) {                                       \
    barrier();                                                                                               \
    const uvec4 base = four_columns(k, num_rows);                                                            \
    eliminate_four(k, base + k, num_pivots);                                                                 \
    if (r >= k + 4 && r < num_rows) put_four(k, base + r, num_columns);                                      \
    put_exchange();                                                                                          \
    barrier();                                                                                               \
    if (r < k + 4 && r < num_rows) put_four(k, base + r, num_columns);                                       \
    EACH_##NUM(REST, 0)                                                                                      \
    if (r >= k + 4 && r < k + 8 && r < num_rows) put_four(k + 4, four_columns(k + 4, num_rows) + r, num_columns); \
  }

#define LOAD_ENTRY(c) row[c] = c < num_columns && r >= c && r < num_rows ? area[COLUMN(c) + r] : ZERO;

// Columns 0 .. num_pivots - 1 of num_rows rows; num_columns of a row are brought up to date.
void eliminate(uint num_rows, uint num_columns, uint num_pivots) {
  const uint r = LANE;
  EACH(LOAD_ENTRY)
  done = (num_pivots + 3) / 4 * 4;
#if COLUMNS == 16
  ELIMINATE_SEGMENT(0, 12)
#elif COLUMNS == 32
  ELIMINATE_SEGMENT(0, 28)
  ELIMINATE_SEGMENT(16, 12)
#else
  ELIMINATE_SEGMENT(0, 60)
  ELIMINATE_SEGMENT(16, 44)
  ELIMINATE_SEGMENT(32, 28)
  ELIMINATE_SEGMENT(48, 12)
#endif
  barrier();
}

// scale[c]: what makes L_rc of L_rc D_c; root[c]: L_cc. Pivots are columns of the matrix from `first` on; noted by one workgroup only.
void take_pivots(uint first, uint num_pivots, bool notes) {
  if (LANE < num_pivots) {
    const real pivot = area[COLUMN(LANE) + LANE];
    const bool good = good_pivot(pivot, limits[LANE]), negative = SIGNED != 0 && good && pivot < ZERO;
    root[LANE] = good ? sqrt(abs(pivot)) : ONE;
    scale[LANE] = (negative ? -ONE : ONE) / root[LANE];
    if (notes && !good) NOTE_BAD_PIVOT(first + LANE);
    if (notes && SIGNED != 0) signs.at[first + LANE] = negative ? -ONE : ONE;
    if (notes && negative) NOTE_NEGATIVE();
  }
  barrier();
}

#endif
