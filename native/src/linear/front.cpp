#include "linear/front.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "linear/transpose_tile.h"
#include "parallel/stopping.h"

namespace graphopt {
namespace {

constexpr int kPanel = 64;        // columns of a block; a multiple of kStrip
constexpr int kLargePanel = 128;  // for fronts that do not fit into the cache

// body(std::integral_constant<int, width>{}), width = 1 .. kStrip columns of a tile.
template <int Width = kStrip, class Body>
inline __attribute__((always_inline)) auto for_width(int width, const Body& body) {
  if constexpr (Width > 1) {
    if (width < Width) return for_width<Width - 1>(width, body);
  }
  return body(std::integral_constant<int, Width>{});
}

// Strips of a matrix for one register tile.
template <int MS>
struct StripPointers {
  double* strip[MS];
};

template <class Strips>
constexpr int kStripsOf = sizeof(std::decay_t<Strips>) / sizeof(double*);

template <int MS, int NR>
struct Tile {
  Vec at[MS][NR];
};

// tile += sum_p a(:, p) s_p b(0..NR-1, p)', p = first .. last-1. All strips have kStrip doubles per column.
template <int MS, int NR, bool Signed>
inline __attribute__((always_inline)) void accumulate_columns(Tile<MS, NR>& tile, const StripPointers<MS>& a,
                                                              const double* b, int first, int last,
                                                              const double* signs) {
  for (int p = first; p < last; ++p) {
    Vec column[MS];
#pragma GCC unroll 8
    for (int s = 0; s < MS; ++s) column[s] = *as_vec(a.strip[s] + p * kStrip);
#pragma GCC unroll 8
    for (int j = 0; j < NR; ++j) {
      const double factor = Signed ? b[p * kStrip + j] * signs[p] : b[p * kStrip + j];
#pragma GCC unroll 8
      for (int s = 0; s < MS; ++s) tile.at[s][j] += column[s] * factor;
    }
  }
}

// signs: of the pivots of the front, or null where all are 1.
template <int MS, int NR>
inline __attribute__((always_inline)) void accumulate(Tile<MS, NR>& tile, const StripPointers<MS>& a,
                                                      const double* b, int first, int last,
                                                      const double* signs) {
  if (signs == nullptr) {
    accumulate_columns<MS, NR, false>(tile, a, b, first, last, signs);
  } else {
    accumulate_columns<MS, NR, true>(tile, a, b, first, last, signs);
  }
}

template <int MS, int NR>
inline __attribute__((always_inline)) void clear(Tile<MS, NR>& tile) {
#pragma GCC unroll 8
  for (int s = 0; s < MS; ++s) {
#pragma GCC unroll 8
    for (int j = 0; j < NR; ++j) tile.at[s][j] = Vec{};
  }
}

// c := c - a S b' (or -a S b' if Overwrite), columns first .. last of a and b, columns col .. col + NR of c.
template <int MS, int NR, bool Overwrite>
void subtract_product(const StripPointers<MS>& c, std::int64_t col, const StripPointers<MS>& a,
                      const double* b, int first, int last, const double* signs) {
  Tile<MS, NR> tile;
  clear(tile);
  accumulate(tile, a, b, first, last, signs);
#pragma GCC unroll 8
  for (int s = 0; s < MS; ++s) {
#pragma GCC unroll 8
    for (int j = 0; j < NR; ++j) {
      Vec& target = *as_vec(c.strip[s] + (col + j) * kStrip);
      if (Overwrite) {
        target = -tile.at[s][j];
      } else {
        target -= tile.at[s][j];
      }
    }
  }
}

// Columns col .. col + NR of strips `a`: subtract the columns first .. col of the same panel, then solve with
// the diagonal tile. `pivot` is the strip that holds the diagonal tile.
template <int MS, int NR>
void solve_tile(const StripPointers<MS>& a, const double* pivot, int first, int col, const double* signs) {
  Tile<MS, NR> tile;
  clear(tile);
  accumulate(tile, a, pivot, first, col, signs);
  const double* lower = pivot + static_cast<std::int64_t>(col) * kStrip;
#pragma GCC unroll 8
  for (int j = 0; j < NR; ++j) {  // columns of L S
#pragma GCC unroll 8
    for (int s = 0; s < MS; ++s) {
      tile.at[s][j] = (*as_vec(a.strip[s] + (col + j) * kStrip) - tile.at[s][j]) * lower[j * kStrip + j];
    }
#pragma GCC unroll 8
    for (int i = j + 1; i < NR; ++i) {
#pragma GCC unroll 8
      for (int s = 0; s < MS; ++s) tile.at[s][i] += tile.at[s][j] * lower[j * kStrip + i];
    }
  }
  if (signs != nullptr) {
    for (int j = 0; j < NR; ++j) {
      for (int s = 0; s < MS; ++s) tile.at[s][j] *= signs[col + j];
    }
  }
#pragma GCC unroll 8
  for (int s = 0; s < MS; ++s) {
#pragma GCC unroll 8
    for (int j = 0; j < NR; ++j) *as_vec(a.strip[s] + (col + j) * kStrip) = tile.at[s][j];
  }
}

// Cholesky of the diagonal tile at columns col .. col + width. Returns the failing column (relative) or -1.
// signs: null, or where the pivots' signs go.
template <int NR, bool Signed>
int factor_tile_of(double* pivot, int first, int col, const double* min_pivot, double* signs) {
  Tile<1, NR> tile;
  clear(tile);
  accumulate_columns<1, NR, Signed>(tile, StripPointers<1>{{pivot}}, pivot, first, col, signs);
  double* lower = pivot + static_cast<std::int64_t>(col) * kStrip;
#pragma GCC unroll 8
  for (int j = 0; j < NR; ++j) tile.at[0][j] = *as_vec(lower + j * kStrip) - tile.at[0][j];
#pragma GCC unroll 8
  for (int j = 0; j < NR; ++j) {
    const double given = tile.at[0][j][j];
    const double sign = Signed && given < 0.0 ? -1.0 : 1.0, d = Signed ? sign * given : given;
    if (!(d > min_pivot[col + j]) || !std::isfinite(d)) return j;
    if (Signed) signs[col + j] = sign;
    const double inverse = 1.0 / std::sqrt(d);
    Vec column = tile.at[0][j] * (sign * inverse);
#pragma GCC unroll 8
    for (int i = 0; i < j; ++i) column[i] = 0.0;
#pragma GCC unroll 8
    for (int i = j + 1; i < NR; ++i) tile.at[0][i] -= column * (Signed ? sign * column[i] : column[i]);
    column[j] = inverse;
    *as_vec(lower + j * kStrip) = column;
  }
  return -1;
}

template <int NR>
int factor_tile(double* pivot, int first, int col, const double* min_pivot, double* signs) {
  if (signs == nullptr) return factor_tile_of<NR, false>(pivot, first, col, min_pivot, signs);
  return factor_tile_of<NR, true>(pivot, first, col, min_pivot, signs);
}

// Call body(StripPointers<MS>) for the strips begin .. end in groups of at most kTileStrips.
template <class StripAt, class Body>
inline void for_strips(int begin, int end, const StripAt& strip_at, const Body& body) {
  int s = begin;
  for (; s + kTileStrips <= end; s += kTileStrips) {
    StripPointers<kTileStrips> strips;
    for (int i = 0; i < kTileStrips; ++i) strips.strip[i] = strip_at(s + i);
    body(s, strips);
  }
  if (kTileStrips > 2 && s + 2 == end) {
    body(s, StripPointers<2>{{strip_at(s), strip_at(s + 1)}});
    s += 2;
  }
  for (; s < end; ++s) body(s, StripPointers<1>{{strip_at(s)}});
}

// One front, seen as strips 0 .. diagonal_strips of L11 followed by those of L21.
struct FrontStrips {
  explicit FrontStrips(const Front& f)
      : front(f),
        diagonal_strips(static_cast<int>(num_strips(f.num_pivots))),
        below_strips(static_cast<int>(num_strips(f.num_below))) {}
  double* operator()(int s) const {
    if (s < diagonal_strips) return front.diagonal + triangle_size(s);
    return front.below + static_cast<std::int64_t>(s - diagonal_strips) * kStrip * front.num_pivots;
  }
  int size() const { return diagonal_strips + below_strips; }
  const Front& front;
  const int diagonal_strips, below_strips;
};

// Factor columns first .. last within the strips of their own diagonal block.
int factor_diagonal_block(const FrontStrips& strips, int first, int last, const double* min_pivot) {
  const int n = strips.front.num_pivots;
  const int end = static_cast<int>(num_strips(last));
  for (int col = first; col < last; col += kStrip) {
    const int width = std::min(kStrip, n - col);
    double* pivot = strips(col / kStrip);
    const int failed = for_width(width, [&](auto columns) {
      return factor_tile<columns.value>(pivot, first, col, min_pivot, strips.front.signs);
    });
    if (failed >= 0) return col + failed;
    for_strips(col / kStrip + 1, end, strips, [&](int, const auto& a) {
      for_width(width, [&](auto columns) {
        solve_tile<kStripsOf<decltype(a)>, columns.value>(a, pivot, first, col, strips.front.signs);
      });
    });
  }
  return -1;
}

// Columns first .. last of the strips begin .. end below the diagonal block.
void solve_panel(const FrontStrips& strips, int first, int last, int begin, int end) {
  for_strips(begin, end, strips, [&](int, const auto& a) {
    for (int col = first; col < last; col += kStrip) {
      for_width(std::min(kStrip, last - col), [&](auto columns) {
        solve_tile<kStripsOf<decltype(a)>, columns.value>(a, strips(col / kStrip), first, col,
                                                          strips.front.signs);
      });
    }
  });
}

// Trailing columns of the strips begin .. end: rank-(last - first) update.
void update_trailing(const FrontStrips& strips, int first, int last, int begin, int end) {
  const int n = strips.front.num_pivots;
  const int first_pivot = last / kStrip, num_full = n / kStrip;
  for_strips(begin, end, strips, [&](int s, const auto& a) {
    constexpr int MS = kStripsOf<decltype(a)>;
    const int top = s + MS;  // a diagonal strip s has columns up to its own diagonal tile
    for (int pivot = first_pivot; pivot < std::min(num_full, top); ++pivot) {
      if (pivot > s && s < strips.diagonal_strips) {
        for (int i = 0; i < MS; ++i) {
          if (s + i < pivot) continue;
          const StripPointers<1> one{{a.strip[i]}};
          subtract_product<1, kStrip, false>(one, static_cast<std::int64_t>(pivot) * kStrip, one,
                                             strips(pivot), first, last, strips.front.signs);
        }
      } else {
        subtract_product<MS, kStrip, false>(a, static_cast<std::int64_t>(pivot) * kStrip, a, strips(pivot),
                                            first, last, strips.front.signs);
      }
    }
    if (num_full == strips.diagonal_strips) return;
    const int begin_last = num_full * kStrip;  // the last columns, fewer than kStrip
    for (int i = 0; i < MS; ++i) {
      if (s + i < num_full) continue;
      const StripPointers<1> one{{a.strip[i]}};
      for_width<kStrip - 1>(n - begin_last, [&](auto columns) {
        subtract_product<1, columns.value, false>(one, begin_last, one, strips(num_full), first, last,
                                                  strips.front.signs);
      });
    }
  });
}

template <bool Overwrite>
void update_below(const FrontStrips& strips, int first, int last, int begin, int end) {
  const Front& front = strips.front;
  const auto below = [&](int s) { return strips(strips.diagonal_strips + s); };
  for_strips(begin, end, below, [&](int s, const auto& a) {
    constexpr int MS = kStripsOf<decltype(a)>;
    StripPointers<MS> c;
    for (int i = 0; i < MS; ++i) c.strip[i] = front.update + triangle_size(s + i);
    for (int col = 0; col <= s; ++col) {
      subtract_product<MS, kStrip, Overwrite>(c, static_cast<std::int64_t>(col) * kStrip, a, below(col),
                                              first, last, front.signs);
    }
    for (int i = 1; i < MS; ++i) {  // the corner of the tile's own triangle
      for (int col = s + 1; col <= s + i; ++col) {
        subtract_product<1, kStrip, Overwrite>(
            StripPointers<1>{{c.strip[i]}}, static_cast<std::int64_t>(col) * kStrip,
            StripPointers<1>{{a.strip[i]}}, below(col), first, last, front.signs);
      }
    }
  });
}

// Groups of kTileStrips strips of [begin, end) that belong to this thread: dealt out back and forth, so that
// long and short rows even out.
template <class Body>
void for_own_groups(int begin, int end, const Team& team, const Body& body) {
  const int period = 2 * team.num_threads;
  for (int group = 0, s = begin; s < end; ++group, s += kTileStrips) {
    const int turn = group % period;
    const int owner = turn < team.num_threads ? turn : period - 1 - turn;
    if (owner == team.thread) body(s, std::min(end, s + kTileStrips));
  }
}

}  // namespace

int factor_front(const Front& front, const double* min_pivot, const Team& team, int* failed_pivot) {
  const FrontStrips strips(front);
  const int n = front.num_pivots;
  const bool large = strips.size() * kStrip > 1500;  // a panel takes longer than a look at the clock
  const int panel = large ? kLargePanel : kPanel;
  for (int first = 0; first < n; first += panel) {
    const int last = std::min(n, first + panel);
    if (team.thread == 0) {
      const bool stops = large && stop_requested();
      *failed_pivot = stops ? kStopped : factor_diagonal_block(strips, first, last, min_pivot);
    }
    team.wait();
    if (*failed_pivot >= 0) return *failed_pivot;
    const int rest = static_cast<int>(num_strips(last));
    for_own_groups(rest, strips.size(), team, [&](int b, int e) { solve_panel(strips, first, last, b, e); });
    team.wait();
    if (last < n) {
      for_own_groups(rest, strips.size(), team,
                     [&](int b, int e) { update_trailing(strips, first, last, b, e); });
    }
    for_own_groups(0, strips.below_strips, team, [&](int b, int e) {
      if (first == 0) {
        update_below<true>(strips, first, last, b, e);
      } else {
        update_below<false>(strips, first, last, b, e);
      }
    });
    team.wait();
  }
  return -1;
}

namespace {

// result := L21 y, of some y at once: L21 is read once
template <int count>
void multiply_below(const FrontStrips& strips, int n, const double* const* y, double* const* result) {
  for (int s = 0; s < strips.below_strips; ++s) {
    const double* strip = strips(strips.diagonal_strips + s);
    Vec sum[count][4] = {};
    int p = 0;
    for (; p + 4 <= n; p += 4) {
      for (int i = 0; i < 4; ++i) {
        const Vec column = *as_vec(strip + (p + i) * kStrip);
        for (int k = 0; k < count; ++k) sum[k][i] += column * y[k][p + i];
      }
    }
    for (; p < n; ++p)
      for (int k = 0; k < count; ++k) sum[k][0] += *as_vec(strip + p * kStrip) * y[k][p];
    for (int k = 0; k < count; ++k)
      *as_vec(result[k] + s * kStrip) = (sum[k][0] + sum[k][1]) + (sum[k][2] + sum[k][3]);
  }
}

// product := the first `count` columns of a strip times y; count is even. An argument, because a Vec that is
// returned has another calling convention without AVX.
inline void multiply_left(const double* strip, int count, const double* y, Vec& product) {
  Vec sum[2] = {};
  for (int p = 0; p < count; p += 2) {
    sum[0] += *as_vec(strip + p * kStrip) * y[p];
    sum[1] += *as_vec(strip + (p + 1) * kStrip) * y[p + 1];
  }
  product = sum[0] + sum[1];
}

// The first `count` (1 .. kStrip) doubles at p, the rest 0. An argument, as above.
inline void load_first(const double* p, int count, Vec& vector) {
#if defined(__AVX512F__)
  vector = _mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << count) - 1u), p);
#else
  for (int i = 0; i < kStrip; ++i) vector[i] = i < count ? p[i] : 0.0;
#endif
}

// y <- L^-1 y of a diagonal tile of NR columns, `left`: what comes off y before.
template <int NR>
void forward_tile(const double* lower, double* y, const Vec& left) {
  Vec rest;
  load_first(y, NR, rest);
  rest -= left;
#pragma GCC unroll 8
  for (int j = 0; j < NR; ++j) {
    const double value = y[j] = rest[j] * lower[j * kStrip + j];
    rest -= *as_vec(lower + j * kStrip) * value;
  }
}

// y <- L11^-1 y
void forward_pivots(const FrontStrips& strips, int n, double* y) {
  for (int s = 0; s < strips.diagonal_strips; ++s) {
    const double* strip = strips(s);
    const int col = s * kStrip;
    Vec left;
    multiply_left(strip, col, y, left);
    for_width(std::min(kStrip, n - col), [&](auto width) {
      forward_tile<width.value>(strip + static_cast<std::int64_t>(col) * kStrip, y + col, left);
    });
  }
}

}  // namespace

void forward_front(const Front& front, double* y, double* result) { forward_front(front, &y, &result, 1); }

void forward_front(const Front& front, double* const* y, double* const* result, int count) {
  constexpr int kAtOnce = 3;
  const FrontStrips strips(front);
  const int n = front.num_pivots;
  for (int k = 0; k < count; ++k) forward_pivots(strips, n, y[k]);
  int k = 0;
  for (; k + kAtOnce <= count; k += kAtOnce) multiply_below<kAtOnce>(strips, n, y + k, result + k);
  for (; k < count; ++k) multiply_below<1>(strips, n, y + k, result + k);
}

void multiply_front(const Front& front, double* y, double* result) {
  const FrontStrips strips(front);
  const int n = front.num_pivots;
  multiply_below<1>(strips, n, &y, &result);
  for (int s = strips.diagonal_strips; s-- > 0;) {
    const double* strip = strips(s);
    const int col = s * kStrip, width = std::min(kStrip, n - col);
    Vec product;
    multiply_left(strip, col, y, product);
    for (int j = 0; j < width; ++j) {
      const double* lower = strip + (col + j) * kStrip;
      product[j] += y[col + j] / lower[j];
      for (int i = j + 1; i < width; ++i) product[i] += lower[i] * y[col + j];
    }
    for (int j = 0; j < width; ++j) y[col + j] = product[j];
  }
}

namespace {

// sums[j] += strip(:, col + j)' z for j < NR
template <int NR>
inline void accumulate_dot(Vec* sums, const double* strip, const double* z) {
  const Vec values = *as_vec(z);
#pragma GCC unroll 8
  for (int j = 0; j < NR; ++j) sums[j] += *as_vec(strip + j * kStrip) * values;
}

inline double sum_of(const Vec& v) {
  double total = 0.0;
  for (int i = 0; i < kStrip; ++i) total += v[i];
  return total;
}

}  // namespace

void subtract_below(const Front& front, double* y, const double* z) {
  const FrontStrips strips(front);
  const int n = front.num_pivots;
  int col = 0;
  for (; col + 4 <= n; col += 4) {
    Vec sums[4] = {};
    for (int t = 0; t < strips.below_strips; ++t)
      accumulate_dot<4>(sums, strips(strips.diagonal_strips + t) + col * kStrip, z + t * kStrip);
    for (int j = 0; j < 4; ++j) y[col + j] -= sum_of(sums[j]);
  }
  for (; col < n; ++col) {
    Vec sums[1] = {};
    for (int t = 0; t < strips.below_strips; ++t)
      accumulate_dot<1>(sums, strips(strips.diagonal_strips + t) + col * kStrip, z + t * kStrip);
    y[col] -= sum_of(sums[0]);
  }
}

void backward_front(const Front& front, double* y, const double* z) {
  const FrontStrips strips(front);
  const int n = front.num_pivots;
  for (int s = strips.diagonal_strips - 1; s >= 0; --s) {
    const int col = s * kStrip, width = std::min(kStrip, n - col);
    Vec sums[kStrip] = {};
    for_width(width, [&](auto columns) {
      for (int t = 0; t < strips.below_strips; ++t)
        accumulate_dot<columns.value>(sums, strips(strips.diagonal_strips + t) + col * kStrip,
                                      z + t * kStrip);
      for (int t = s + 1; t < strips.diagonal_strips; ++t) {
        Vec tail;
        load_first(y + t * kStrip, std::min(kStrip, n - t * kStrip), tail);
        accumulate_dot<columns.value>(sums, strips(t) + col * kStrip, reinterpret_cast<double*>(&tail));
      }
    });
    transpose_tile(sums);
    Vec total = {};
    for (int i = 0; i < kStrip; ++i) total += sums[i];
    alignas(64) double totals[kStrip];
    *as_vec(totals) = total;
    const double* lower = strips(s) + col * kStrip;
    for (int j = width - 1; j >= 0; --j) {
      double value = y[col + j] - totals[j];
      for (int i = j + 1; i < width; ++i) value -= lower[j * kStrip + i] * y[col + i];
      y[col + j] = value * lower[j * kStrip + j];
    }
  }
}

}  // namespace graphopt
