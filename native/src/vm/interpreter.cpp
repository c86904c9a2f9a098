// The interpreter: one instruction at a time on all lanes of a chunk, or on the first vector of lanes.
#include <cstdint>

#include "vm/lane_math.h"
#include "vm/lanes.h"
#include "vm/opcodes.h"
#include "vm/operations.h"
#include "vm/planes.h"
#include "vm/program.h"

namespace graphopt::vm {
namespace {

static_assert(kLanes % (4 * kVectorLanes) == 0, "a chunk is made of whole blocks");

template <int kWidth>
void run(const Program& program, double* frame, const RobustContext& robust);

// kWidth: lanes that are worked on, kLanes or those of one vector.
template <int kWidth, class F>
inline void map1(double* d, const double* a, F f) {
  for (int i = 0; i < kWidth; i += kVectorLanes) store(d + i, f(load(a + i)));
}

template <int kWidth, class F>
inline void map2(double* d, const double* a, const double* b, F f) {
  for (int i = 0; i < kWidth; i += kVectorLanes) store(d + i, f(load(a + i), load(b + i)));
}

template <int kWidth, class F>
inline void map3(double* d, const double* a, const double* b, const double* c, F f) {
  for (int i = 0; i < kWidth; i += kVectorLanes) store(d + i, f(load(a + i), load(b + i), load(c + i)));
}

// Signed sum of products and terms; `s` is the code after the destination.
template <int kWidth>
inline const std::uint16_t* sum(double* frame, double* d, const std::uint16_t* s) {
  constexpr int kUnroll = kWidth < 4 * kVectorLanes ? 1 : 4;  // vectors kept in processor registers
  const int num_pos = s[0], num_neg = s[1], num_plus = s[2], num_minus = s[3];
  s += 4;
  const std::uint16_t* end = s + 2 * (num_pos + num_neg) + num_plus + num_minus;
  for (int i = 0; i < kWidth; i += kUnroll * kVectorLanes) {
    const double* base = frame + i;
    const auto reg = [base](std::uint16_t r) { return base + static_cast<std::size_t>(r) * kLanes; };
    const std::uint16_t* pair = s;
    const std::uint16_t* pos_end = pair + 2 * num_pos;
    const std::uint16_t* neg_end = pos_end + 2 * num_neg;
    const std::uint16_t* term = neg_end;
    const std::uint16_t* plus_end = term + num_plus;
    Vec acc[kUnroll];
    if (num_plus > 0) {
      const double* x = reg(*term++);
      for (int u = 0; u < kUnroll; ++u) acc[u] = load(x + u * kVectorLanes);
    } else {
      for (int u = 0; u < kUnroll; ++u) acc[u] = Vec{};
    }
    for (; pair < pos_end; pair += 2) {
      const double *a = reg(pair[0]), *b = reg(pair[1]);
      for (int u = 0; u < kUnroll; ++u)
        acc[u] = fma(load(a + u * kVectorLanes), load(b + u * kVectorLanes), acc[u]);
    }
    for (; pair < neg_end; pair += 2) {
      const double *a = reg(pair[0]), *b = reg(pair[1]);
      for (int u = 0; u < kUnroll; ++u)
        acc[u] = fnma(load(a + u * kVectorLanes), load(b + u * kVectorLanes), acc[u]);
    }
    for (; term < plus_end; ++term) {
      const double* x = reg(*term);
      for (int u = 0; u < kUnroll; ++u) acc[u] += load(x + u * kVectorLanes);
    }
    for (; term < end; ++term) {
      const double* x = reg(*term);
      for (int u = 0; u < kUnroll; ++u) acc[u] -= load(x + u * kVectorLanes);
    }
    for (int u = 0; u < kUnroll; ++u) store(d + i + u * kVectorLanes, acc[u]);
  }
  return end;
}

// Matrix product of M x R and R x N registers; R = num_pos + num_neg. All sources of a block of lanes are
// read before its destinations are written: they may be the same registers.
template <int kWidth, int M, int N>
void block(double* frame, const std::uint16_t* d, int num_pos, int num_neg) {
  constexpr int kVectors = kWidth == kVectorLanes || kVectorLanes < 8 ? 1 : M * N <= 4 ? 4 : 2;
  const int length = num_pos + num_neg;
  const std::uint16_t *a = d + M * N, *b = a + M * length;
  for (int i = 0; i < kWidth; i += kVectors * kVectorLanes) {
    double* base = frame + i;
    const auto reg = [base](std::uint16_t r) { return base + static_cast<std::size_t>(r) * kLanes; };
    Vec acc[M][N][kVectors] = {};
    const auto add = [&](int r, auto multiply_add) {
      Vec column[N][kVectors];
      for (int n = 0; n < N; ++n)
        for (int u = 0; u < kVectors; ++u) column[n][u] = load(reg(b[n * length + r]) + u * kVectorLanes);
      for (int m = 0; m < M; ++m) {
        const double* row = reg(a[m * length + r]);
        for (int u = 0; u < kVectors; ++u) {
          const Vec x = load(row + u * kVectorLanes);
          for (int n = 0; n < N; ++n) acc[m][n][u] = multiply_add(x, column[n][u], acc[m][n][u]);
        }
      }
    };
    for (int r = 0; r < num_pos; ++r) add(r, [](Vec x, Vec y, Vec z) { return fma(x, y, z); });
    for (int r = num_pos; r < length; ++r) add(r, [](Vec x, Vec y, Vec z) { return fnma(x, y, z); });
    for (int m = 0; m < M; ++m)
      for (int n = 0; n < N; ++n)
        for (int u = 0; u < kVectors; ++u) store(reg(d[m * N + n]) + u * kVectorLanes, acc[m][n][u]);
  }
}

// `s` is the code after the opcode.
template <int kWidth>
const std::uint16_t* run_block(double* frame, const std::uint16_t* s) {
  using Run = void (*)(double*, const std::uint16_t*, int, int);
  static_assert(kLargestBlockSide == 3, "the table has all sizes");
  static constexpr Run kRun[3][3] = {{block<kWidth, 1, 1>, block<kWidth, 1, 2>, block<kWidth, 1, 3>},
                                     {block<kWidth, 2, 1>, block<kWidth, 2, 2>, block<kWidth, 2, 3>},
                                     {block<kWidth, 3, 1>, block<kWidth, 3, 2>, block<kWidth, 3, 3>}};
  const int rows = s[0], columns = s[1], num_pos = s[2], num_neg = s[3];
  kRun[rows - 1][columns - 1](frame, s + 4, num_pos, num_neg);
  return s + 4 + rows * columns + (rows + columns) * (num_pos + num_neg);
}

template <int kWidth>
void run_robust(const RobustContext& robust, double* rho, double* weight, const double* chi2) {
  const Program& kernel = *robust.kernel;
  const double* inputs[2] = {chi2, robust.width};
  for (int k = 0; k < 2; ++k)
    if (kernel.input_registers[k] >= 0)
      map1<kWidth>(robust.frame + static_cast<std::size_t>(kernel.input_registers[k]) * kLanes, inputs[k],
                   [](Vec x) { return x; });
  run<kWidth>(kernel, robust.frame, RobustContext{});
  double* outputs[2] = {rho, weight};
  for (int k = 0; k < 2; ++k)
    map1<kWidth>(outputs[k], robust.frame + static_cast<std::size_t>(kernel.output_registers[k]) * kLanes,
                 [](Vec x) { return x; });
}

// All sources of a lane are read before its results are written: they may be the same registers.
template <int kWidth, class F>
void run_sample(double* value, double* by_u, double* by_v, const double* plane, const double* u,
                const double* v, F sample) {
  const PlaneReader reading;
  for (int i = 0; i < kWidth; ++i) {
    const Sample s = sample(plane[i], u[i], v[i]);
    value[i] = s.value;
    by_u[i] = s.by_u;
    by_v[i] = s.by_v;
  }
}

template <int kWidth>
void run(const Program& program, double* frame, const RobustContext& robust) {
  static const void* const labels[] = {
#define X(name, destinations, sources) &&do_##name,
      GRAPHOPT_OPCODES(X)
#undef X
  };
  const std::uint16_t* pc = program.code.data();
  const auto reg = [&](int k) { return frame + static_cast<std::size_t>(pc[k]) * kLanes; };
#define NEXT goto* labels[*pc]
#define MAP1(name)                                                                     \
  do_##name : map1<kWidth>(reg(1), reg(2), [](Vec x) -> Vec { return op_##name(x); }); \
  pc += 3;                                                                             \
  NEXT;
#define MAP2(name)                                                                                       \
  do_##name : map2<kWidth>(reg(1), reg(2), reg(3), [](Vec x, Vec y) -> Vec { return op_##name(x, y); }); \
  pc += 4;                                                                                               \
  NEXT;
#define MAP3(name)                                                                         \
  do_##name : map3<kWidth>(reg(1), reg(2), reg(3), reg(4),                                 \
                           [](Vec x, Vec y, Vec z) -> Vec { return op_##name(x, y, z); }); \
  pc += 5;                                                                                 \
  NEXT;
#define LANES1(name, function)                  \
  do_##name : function<kWidth>(reg(1), reg(2)); \
  pc += 3;                                      \
  NEXT;

  NEXT;
  MAP2(ADD)
  MAP2(SUB)
  MAP2(MUL)
  MAP1(NEG)
  MAP3(FMA)
  MAP3(FMS)
  MAP3(FNMA)
do_DOT2:
  for (int i = 0; i < kWidth; i += kVectorLanes)
    store(reg(1) + i, op_DOT2(load(reg(2) + i), load(reg(3) + i), load(reg(4) + i), load(reg(5) + i)));
  pc += 6;
  NEXT;
do_DOT3:
  for (int i = 0; i < kWidth; i += kVectorLanes)
    store(reg(1) + i, op_DOT3(load(reg(2) + i), load(reg(3) + i), load(reg(4) + i), load(reg(5) + i),
                              load(reg(6) + i), load(reg(7) + i)));
  pc += 8;
  NEXT;
do_SUM:
  pc = sum<kWidth>(frame, reg(1), pc + 2);
  NEXT;
do_BLOCK:
  pc = run_block<kWidth>(frame, pc + 1);
  NEXT;
  MAP1(RECIP)
  MAP1(SQRT)
  LANES1(SIN, lanes_sin)
  LANES1(COS, lanes_cos)
do_SINCOS:
  lanes_sincos<kWidth>(reg(1), reg(2), reg(3));
  pc += 4;
  NEXT;
  MAP1(TAN)
  MAP1(ASIN)
  MAP1(ACOS)
  LANES1(ATAN, lanes_atan)
do_ATAN2:
  lanes_atan2<kWidth>(reg(1), reg(2), reg(3));
  pc += 4;
  NEXT;
  LANES1(EXP, lanes_exp)
  LANES1(LOG, lanes_log)
  MAP2(POW)
  MAP1(ABS)
  MAP1(SIGN)
  MAP1(FLOOR)
  MAP2(MIN)
  MAP2(MAX)
  MAP2(LT)
  MAP2(LE)
  MAP2(EQ)
  MAP2(AND)
  MAP2(OR)
  MAP1(NOT)
  MAP3(SELECT)
do_ROBUST:
  run_robust<kWidth>(robust, reg(1), reg(2), reg(3));
  pc += 4;
  NEXT;
do_SAMPLE:
  run_sample<kWidth>(reg(1), reg(2), reg(3), reg(4), reg(5), reg(6), sample_bilinear);
  pc += 7;
  NEXT;
do_SAMPLE_CUBIC:
  run_sample<kWidth>(reg(1), reg(2), reg(3), reg(4), reg(5), reg(6), sample_bicubic);
  pc += 7;
  NEXT;
do_END:
  return;
}

}  // namespace

int lanes_of(const Program& program, int num_lanes) {
  const int whole = (num_lanes + kVectorLanes - 1) / kVectorLanes * kVectorLanes;
  return program.machine_code != nullptr || whole == kVectorLanes ? whole : kLanes;
}

void execute(const Program& program, double* frame, const RobustContext& robust, int num_lanes) {
  if (program.machine_code != nullptr)
    program.machine_code(frame, robust, num_lanes);
  else if (num_lanes <= kVectorLanes)
    run<kVectorLanes>(program, frame, robust);
  else
    run<kLanes>(program, frame, robust);
}

}  // namespace graphopt::vm
