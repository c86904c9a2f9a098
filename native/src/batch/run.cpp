#include "batch/run.h"

namespace graphopt::batch {
namespace {

template <class T, class F>
inline void map1(T* d, const T* a, int count, F f) {
  for (int i = 0; i < count; i += Lanes<T>::count) store<T>(d + i, f(load<T>(a + i)));
}

// One vector and one scalar at the other side, or two vectors.
template <class T, class F>
inline void map2(const Instruction& code, T* const* vectors, const T* scalars, int count, F f) {
  T* const d = vectors[code.destination];
  const std::uint16_t a = code.operands[0], b = code.operands[1];
  if (code.scalars == 0) {
    const T *x = vectors[a], *y = vectors[b];
    for (int i = 0; i < count; i += Lanes<T>::count) store<T>(d + i, f(load<T>(x + i), load<T>(y + i)));
  } else if (code.scalars == 1) {
    const Vec<T> x = broadcast<T>(scalars[a]);
    const T* y = vectors[b];
    for (int i = 0; i < count; i += Lanes<T>::count) store<T>(d + i, f(x, load<T>(y + i)));
  } else {
    const T* x = vectors[a];
    const Vec<T> y = broadcast<T>(scalars[b]);
    for (int i = 0; i < count; i += Lanes<T>::count) store<T>(d + i, f(load<T>(x + i), y));
  }
}

template <class T>
void select(const Instruction& code, T* const* vectors, const T* scalars, int count) {
  const auto operand = [&](int k, int i) {
    const std::uint16_t index = code.operands[k];
    return (code.scalars >> k & 1) != 0 ? broadcast<T>(scalars[index]) : load<T>(vectors[index] + i);
  };
  T* const d = vectors[code.destination];
  for (int i = 0; i < count; i += Lanes<T>::count) {
    const Vec<T> condition = operand(0, i), yes = operand(1, i), no = operand(2, i);
    store<T>(d + i, condition != T(0) ? yes : no);
  }
}

}  // namespace

template <class T>
void run(const std::vector<Instruction>& code, T* const* vectors, const T* scalars, int count) {
  using V = Vec<T>;
  const V one = broadcast<T>(T(1)), zero = broadcast<T>(T(0));
  for (const Instruction& next : code) {
    const auto unary = [&](auto f) {
      map1<T>(vectors[next.destination], vectors[next.operands[0]], count, f);
    };
    const auto binary = [&](auto f) { map2<T>(next, vectors, scalars, count, f); };
    const auto truth = [&](auto f) { binary([&](V a, V b) -> V { return f(a, b) ? one : zero; }); };
    switch (next.op) {
      case Op::ADD:
        binary([](V a, V b) { return a + b; });
        break;
      case Op::SUB:
        binary([](V a, V b) { return a - b; });
        break;
      case Op::MUL:
        binary([](V a, V b) { return a * b; });
        break;
      case Op::DIV:
        binary([](V a, V b) { return a / b; });
        break;
      case Op::POW:
        binary([](V a, V b) { return pow(a, b); });
        break;
      case Op::ATAN2:
        binary([](V a, V b) { return atan2(a, b); });
        break;
      case Op::MIN:
        binary([](V a, V b) -> V { return (a <= b) | (a != a) ? a : b; });
        break;
      case Op::MAX:
        binary([](V a, V b) -> V { return (a >= b) | (a != a) ? a : b; });
        break;
      case Op::LT:
        truth([](V a, V b) { return a < b; });
        break;
      case Op::LE:
        truth([](V a, V b) { return a <= b; });
        break;
      case Op::EQ:
        truth([](V a, V b) { return a == b; });
        break;
      case Op::AND:
        truth([](V a, V b) { return (a != T(0)) & (b != T(0)); });
        break;
      case Op::OR:
        truth([](V a, V b) { return (a != T(0)) | (b != T(0)); });
        break;
      case Op::NEG:
        unary([](V a) { return -a; });
        break;
      case Op::ABS:
        unary([](V a) { return absolute(a); });
        break;
      case Op::SIGN:
        unary([&](V a) -> V { return a > T(0) ? one : a < T(0) ? -one : a; });
        break;
      case Op::FLOOR:
        unary([](V a) { return lane_by_lane(a, [](T x) { return std::floor(x); }); });
        break;
      case Op::NOT:
        unary([&](V a) -> V { return a == T(0) ? one : zero; });
        break;
      case Op::SQRT: {
        T* const d = vectors[next.destination];
        const T* const a = vectors[next.operands[0]];
        for (int i = 0; i < count; ++i) d[i] = std::sqrt(a[i]);
        break;
      }
      case Op::EXP:
        unary([](V a) { return exp(a); });
        break;
      case Op::LOG:
        unary([](V a) { return log(a); });
        break;
      case Op::SIN:
        unary([](V a) { return sin(a); });
        break;
      case Op::COS:
        unary([](V a) { return cos(a); });
        break;
      case Op::TAN:
        unary([](V a) { return tan(a); });
        break;
      case Op::ASIN:
        unary([](V a) { return lane_by_lane(a, [](T x) { return std::asin(x); }); });
        break;
      case Op::ACOS:
        unary([](V a) { return lane_by_lane(a, [](T x) { return std::acos(x); }); });
        break;
      case Op::ATAN:
        unary([&](V a) { return atan2(a, one); });
        break;
      case Op::SELECT:
        select<T>(next, vectors, scalars, count);
        break;
      case Op::CONST:
      case Op::DATA:
      case Op::PARAMETER:
        break;  // no instructions
    }
  }
}

template <class T>
double dot(const T* a, const T* b, int count) {
  constexpr int lanes = Lanes<T>::count;
  Vec<T> sum{};
  int i = 0;
  for (; i + lanes <= count; i += lanes) sum = multiply_add(load<T>(a + i), load<T>(b + i), sum);
  double result = total<T>(sum);
  for (; i < count; ++i) result += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return result;
}

template void run<float>(const std::vector<Instruction>&, float* const*, const float*, int);
template void run<double>(const std::vector<Instruction>&, double* const*, const double*, int);
template double dot<float>(const float*, const float*, int);
template double dot<double>(const double*, const double*, int);

}  // namespace graphopt::batch
