// Numbers of two floats, for devices without float64: vec2(high, low) with |low| <= ulp(high) / 2 stands for
// high + low, 48 bits with the exponents of float32 (24 bits beyond 1e34).
//
// Without branches, which || and ?: are too: these are inlined hundreds of times in a kernel, and compilers of some
// drivers take minutes for thousands of branches in a loop. mix of a bool is a selection, also of NaN.
//
// T. J. Dekker, A floating-point technique for extending the available precision, Numer. Math. 18, 1971.
#ifndef GRAPHOPT_TWO_FLOAT_GLSL
#define GRAPHOPT_TWO_FLOAT_GLSL

#define wide vec2
#define wide2 vec4
#define WIDE_ZERO vec2(0.0)

float to_real(wide x) { return x.x + x.y; }
wide to_wide(float x) { return vec2(x, 0.0); }

// high + low, where |high| >= |low|; infinities and NaN have no low part, nor has what overflowed in exact_product.
const float LARGEST_FLOAT = 3.40282347e38;
bool is_finite(float x) { return abs(x) <= LARGEST_FLOAT; }
wide renormalized(float high, float low) {
  precise float part = mix(0.0, low, is_finite(low));
  precise float total = high + part;
  precise float rest = part - (total - high);
  return vec2(total, mix(0.0, rest, is_finite(total)));
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
  low = mix(0.0, low, is_finite(low));
  precise float total = s.x + low;
  precise float rest = (low - (total - s.x)) + t.y;
  return renormalized(total, rest);
}
wide wide_sub(wide a, wide b) { return wide_add(a, -b); }
wide wide_sum(wide a, wide b) { return wide_add(a, b); }
// a b and s + a b for sums of products, which are made wide numbers by `wide_total`: until then low may be larger.
wide wide_product(wide a, wide b) {
  const wide p = exact_product(a.x, b.x);
  precise float low = p.y + (a.x * b.y + a.y * b.x);
  return vec2(p.x, low);
}
wide wide_plus_product(wide s, wide a, wide b) {
  const wide p = wide_product(a, b), t = exact_sum(s.x, p.x);
  precise float low = t.y + (s.y + p.y);
  return vec2(t.x, low);
}
wide wide_total(wide s) { return renormalized(s.x, s.y); }
wide wide_mul(wide a, wide b) { return wide_total(wide_product(a, b)); }
wide wide_div(wide a, wide b) {
  const float q = a.x / b.x;
  const wide rest = wide_sub(a, wide_mul(vec2(q, 0.0), b));
  precise float correction = rest.x / b.x;
  const wide first = renormalized(q, correction);
  const wide again = wide_sub(a, wide_mul(first, b));
  precise float last = first.y + again.x / b.x;
  const bool has_low = all(bvec3(q != 0.0, is_finite(q), is_finite(b.x)));
  return mix(vec2(q, 0.0), renormalized(first.x, last), bvec2(has_low));
}
wide wide_recip(wide a) { return wide_div(vec2(1.0, 0.0), a); }
wide wide_sqrt(wide a) {
  const float root = sqrt(a.x);
  const wide rest = wide_sub(a, exact_product(root, root));
  precise float correction = rest.x / (2.0 * root);
  const wide first = renormalized(root, correction);
  const wide again = wide_sub(a, wide_mul(first, first));
  precise float last = first.y + again.x / (2.0 * root);
  const bool has_low = all(bvec2(root != 0.0, is_finite(root)));
  return mix(vec2(root, 0.0), renormalized(first.x, last), bvec2(has_low));
}

bool wide_eq(wide a, wide b) { return all(equal(a, b)); }
bool wide_lt(wide a, wide b) { return mix(a.x < b.x, a.y < b.y, a.x == b.x); }
bool wide_le(wide a, wide b) { return mix(a.x < b.x, a.y <= b.y, a.x == b.x); }
wide wide_abs(wide a) { return mix(vec2(abs(a.x), a.y), -a, bvec2(a.x < 0.0)); }
wide wide_floor(wide a) {
  const float high = floor(a.x);
  const bool has_low = all(bvec2(high == a.x, is_finite(a.x)));
  return mix(vec2(high, 0.0), renormalized(high, floor(a.y)), bvec2(has_low));
}
// 2^k a, -126 <= k <= 127
wide wide_scaled(wide a, int k) { return a * uintBitsToFloat(uint(k + 127) << 23); }

#endif
