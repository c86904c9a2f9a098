// Numbers of two floats, for devices without float64: vec2(high, low) with |low| <= ulp(high) / 2 stands for
// high + low, 48 bits with the exponents of float32 (24 bits beyond 1e34).
//
// T. J. Dekker, A floating-point technique for extending the available precision, Numer. Math. 18, 1971.
#ifndef GRAPHOPT_TWO_FLOAT_GLSL
#define GRAPHOPT_TWO_FLOAT_GLSL

#define wide vec2
#define wide2 vec4
#define WIDE_ZERO vec2(0.0)

wide wide_pair(float high, float low) { return vec2(high, low); }
float to_real(wide x) { return x.x + x.y; }
wide to_wide(float x) { return vec2(x, 0.0); }

// high + low, where |high| >= |low|; infinities and NaN have no low part, nor has what overflowed in exact_product.
wide renormalized(float high, float low) {
  precise float part = isinf(low) || isnan(low) ? 0.0 : low;
  precise float total = high + part;
  precise float rest = part - (total - high);
  return vec2(total, isinf(total) || isnan(total) ? 0.0 : rest);
}
wide exact_sum(float a, float b) {
  precise float total = a + b;
  precise float back = total - a;
  precise float error = (a - (total - back)) + (b - back);
  return vec2(total, error);
}
wide exact_product(float a, float b) {
  precise float p = a * b;
  precise float sa = 4097.0 * a, ah = sa - (sa - a), al = a - ah;
  precise float sb = 4097.0 * b, bh = sb - (sb - b), bl = b - bh;
  precise float error = ((ah * bh - p) + ah * bl + al * bh) + al * bl;
  return vec2(p, error);
}

wide wide_add(wide a, wide b) {
  wide s = exact_sum(a.x, b.x);
  const wide t = exact_sum(a.y, b.y);
  precise float low = s.y + t.x;
  s = renormalized(s.x, low);
  low = s.y + t.y;
  return renormalized(s.x, low);
}
wide wide_sub(wide a, wide b) { return wide_add(a, -b); }
wide wide_sum(wide a, wide b) { return wide_add(a, b); }
wide wide_mul(wide a, wide b) {
  const wide p = exact_product(a.x, b.x);
  precise float low = p.y + (a.x * b.y + a.y * b.x);
  return renormalized(p.x, low);
}
wide wide_div(wide a, wide b) {
  const float q = a.x / b.x;
  if (q == 0.0 || isinf(q) || isnan(q) || isinf(b.x)) return vec2(q, 0.0);
  const wide rest = wide_sub(a, wide_mul(vec2(q, 0.0), b));
  precise float correction = rest.x / b.x;
  const wide first = renormalized(q, correction);
  const wide again = wide_sub(a, wide_mul(first, b));
  precise float last = first.y + again.x / b.x;
  return renormalized(first.x, last);
}
wide wide_recip(wide a) { return wide_div(vec2(1.0, 0.0), a); }
wide wide_sqrt(wide a) {
  const float root = sqrt(a.x);
  if (root == 0.0 || isinf(root) || isnan(root)) return vec2(root, 0.0);
  const wide rest = wide_sub(a, exact_product(root, root));
  precise float correction = rest.x / (2.0 * root);
  const wide first = renormalized(root, correction);
  const wide again = wide_sub(a, wide_mul(first, first));
  precise float last = first.y + again.x / (2.0 * root);
  return renormalized(first.x, last);
}

bool wide_eq(wide a, wide b) { return a.x == b.x && a.y == b.y; }
bool wide_lt(wide a, wide b) { return a.x < b.x || (a.x == b.x && a.y < b.y); }
bool wide_le(wide a, wide b) { return a.x < b.x || (a.x == b.x && a.y <= b.y); }
wide wide_abs(wide a) { return a.x < 0.0 ? -a : vec2(abs(a.x), a.y); }
wide wide_floor(wide a) {
  const float high = floor(a.x);
  return high == a.x && !isinf(a.x) ? renormalized(high, floor(a.y)) : vec2(high, 0.0);
}
// 2^k a, -126 <= k <= 127
wide wide_scaled(wide a, int k) { return a * uintBitsToFloat(uint(k + 127) << 23); }

#endif
