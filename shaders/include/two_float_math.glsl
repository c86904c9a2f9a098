// Elementary functions of two-float numbers, to about 44 bits; sine and cosine of angles beyond 2^20 to 44 bits of 1.
//
// Sine, cosine and exponential: reduction by pi/2 and ln 2 in several floats, then Taylor's series, whose small
// terms are summed in float32. Logarithm and arc tangent: the float32 value corrected by one step of Newton's method.
#ifndef GRAPHOPT_TWO_FLOAT_MATH_GLSL
#define GRAPHOPT_TWO_FLOAT_MATH_GLSL

wide math_sign(wide x) { return vec2(math_sign(x.x), 0.0); }
wide math_min(wide x, wide y) { return any(bvec2(wide_le(x, y), isnan(x.x))) ? x : y; }
wide math_max(wide x, wide y) { return any(bvec2(wide_le(y, x), isnan(x.x))) ? x : y; }

wide near_angle_of_float(float x) {
  const uint bits = floatBitsToUint(x);
  int first;
  uint second;
  turns_left(0u, (bits & 0x7fffffu) | 0x800000u, int((bits >> 23) & 0xffu) - 150, first, second);
  const float upper = float(first >> 8) * 5.9604645e-08;
  const float lower = float(((uint(first) & 0xffu) << 16) | (second >> 16)) * 3.5527137e-15;
  return wide_mul(renormalized(upper, lower), (x < 0.0 ? -1.0 : 1.0) * vec2(6.2831855, -1.7484556e-07));
}
// The angle of at most about a turn that points where x does, |x| at least 2^20 and finite.
wide near_angle(wide x) {
  wide angle = WIDE_ZERO;
  for (int k = 0; k < 2; ++k) {
    const bool is_far = abs(x[k]) >= 4.0;
    angle = wide_add(angle, mix(vec2(x[k], 0.0), near_angle_of_float(mix(4.0, x[k], is_far)), bvec2(is_far)));
  }
  return angle;
}
void math_sincos(wide angle, out wide sine, out wide cosine) {
  wide x = angle;
  if (abs(angle.x) >= 1048576.0) x = isinf(angle.x) ? vec2(FLOAT_NAN, 0.0) : near_angle(angle);
  const float n = roundEven(x.x * 0.636619772);  // quarter turns
  wide r = wide_sub(x, exact_product(n, 1.5707963705062866));
  r = wide_sub(r, exact_product(n, -4.371138828673793e-08));
  r = wide_sub(r, exact_product(n, -1.7151245100058819e-15));
  const wide z = wide_mul(r, r);
  const float small_s = -2.5052108e-08 + z.x * (1.6059044e-10 - z.x * 7.6471637e-13);
  wide s = wide_add(vec2(2.7557318844628753e-06, 3.793571224297229e-14), vec2(z.x * small_s, 0.0));
  s = wide_add(vec2(-0.00019841270113829523, 2.725596874933456e-12), wide_mul(z, s));
  s = wide_add(vec2(0.008333333767950535, -4.34617203337595e-10), wide_mul(z, s));
  s = wide_add(vec2(-0.1666666716337204, 4.967053879312289e-09), wide_mul(z, s));
  s = wide_add(r, wide_mul(wide_mul(r, z), s));
  const float small_c = -2.7557320e-07 + z.x * (2.0876756e-09 + z.x * (-1.1470746e-11 + z.x * 4.7794773e-14));
  wide c = wide_add(vec2(2.4801587642286904e-05, -3.40699609366682e-13), vec2(z.x * small_c, 0.0));
  c = wide_add(vec2(-0.0013888889225199819, 3.3631094437103215e-11), wide_mul(z, c));
  c = wide_add(vec2(0.0416666679084301, -1.2417634698280722e-09), wide_mul(z, c));
  c = wide_add(vec2(-0.5, 0.0), wide_mul(z, c));
  c = wide_add(vec2(1.0, 0.0), wide_mul(z, c));
  const int quarter = int(n - 4.0 * floor(0.25 * n));
  const wide sine_part = (quarter & 1) == 0 ? s : c, cosine_part = (quarter & 1) == 0 ? c : s;
  sine = sine_part * ((quarter & 2) == 0 ? 1.0 : -1.0);
  cosine = cosine_part * (((quarter + 1) & 2) == 0 ? 1.0 : -1.0);
}
wide math_sin(wide x) { wide s, c; math_sincos(x, s, c); return s; }
wide math_cos(wide x) { wide s, c; math_sincos(x, s, c); return c; }
wide math_tan(wide x) { wide s, c; math_sincos(x, s, c); return wide_div(s, c); }

wide math_atan2(wide y, wide x) {
  const float angle = math_atan2(y.x, x.x);
  const bool at_end = (x.x == 0.0 && y.x == 0.0) || isinf(x.x) || isinf(y.x) || isnan(angle);
  if (at_end || abs(angle) < 1e-30) {
    const bool far = (isinf(x.x) || isinf(y.x)) && !isnan(angle);
    if (!at_end) return wide_div(y, x);  // a tiny angle is the ratio
    if (!far && !(abs(angle) > 3.0)) return vec2(angle, 0.0);
    // multiples of pi/4
    const float eighths = roundEven(angle * 1.27323954);
    return wide_mul(vec2(eighths, 0.0), vec2(0.7853981852531433, -2.1855694143368965e-08));
  }
  // the rest is atan of (y cos a - x sin a) / (x cos a + y sin a), scaled against overflow
  const float size = max(abs(x.x), abs(y.x));
  const float scale = size > 1e15 || size < 1e-15 ? uintBitsToFloat((254u << 23) - (floatBitsToUint(size) & 0x7f800000u)) : 1.0;
  const wide u = x * scale, v = y * scale;
  wide s, c;
  math_sincos(vec2(angle, 0.0), s, c);
  const wide across = wide_sub(wide_mul(v, c), wide_mul(u, s)), along = wide_add(wide_mul(u, c), wide_mul(v, s));
  return wide_add(vec2(angle, 0.0), wide_div(across, along));
}
wide math_atan(wide x) { return math_atan2(x, vec2(1.0, 0.0)); }
wide math_asin(wide x) {
  const wide one = vec2(1.0, 0.0);
  return math_atan2(x, wide_sqrt(wide_mul(wide_sub(one, x), wide_add(one, x))));
}
wide math_acos(wide x) {
  const wide one = vec2(1.0, 0.0);
  return 2.0 * math_atan2(wide_sqrt(wide_sub(one, x)), wide_sqrt(wide_add(one, x)));
}

wide math_exp(wide x) {
  if (x.x > 88.72284) return vec2(FLOAT_INFINITY, 0.0);
  if (x.x < -103.97) return WIDE_ZERO;
  if (isnan(x.x)) return x;
  const float n = roundEven(x.x * 1.44269504);
  wide r = wide_sub(x, exact_product(n, 0.6931471824645996));
  r = wide_sub(r, exact_product(n, -1.9046542121259336e-09));
  const float small = 2.4801588e-05 + r.x * (2.7557319e-06 + r.x * (2.755732e-07 + r.x * (2.5052108e-08 + r.x * 2.0876756e-09)));
  wide p = wide_add(vec2(0.00019841270113829523, -2.725596874933456e-12), vec2(r.x * small, 0.0));
  p = wide_add(vec2(0.0013888889225199819, -3.3631094437103215e-11), wide_mul(r, p));
  p = wide_add(vec2(0.008333333767950535, -4.34617203337595e-10), wide_mul(r, p));
  p = wide_add(vec2(0.0416666679084301, -1.2417634698280722e-09), wide_mul(r, p));
  p = wide_add(vec2(0.1666666716337204, -4.967053879312289e-09), wide_mul(r, p));
  p = wide_add(vec2(0.5, 0.0), wide_mul(r, p));
  p = wide_add(wide_mul(wide_mul(r, r), p), r);
  p = wide_add(vec2(1.0, 0.0), p);
  const int k = int(n), half_k = k / 2;
  return wide_scaled(wide_scaled(p, half_k), k - half_k);
}
wide math_log(wide x) {
  const float first = math_log(x.x);
  if (isinf(first) || isnan(first)) return vec2(first, 0.0);
  // x = 2^k m: exp(-log m) stays near 1
  const float k = roundEven(first * 1.44269504);
  const int whole = int(k), half_k = whole / 2;
  const wide m = wide_scaled(wide_scaled(x, -half_k), half_k - whole);
  const float approximate = math_log(m.x);
  const wide error = wide_sub(wide_mul(m, math_exp(vec2(-approximate, 0.0))), vec2(1.0, 0.0));
  const wide log_m = wide_add(vec2(approximate, 0.0), wide_sub(error, 0.5 * wide_mul(error, error)));
  const wide high = wide_add(exact_product(k, 0.6931471824645996), exact_product(k, -1.9046542121259336e-09));
  return wide_add(high, log_m);
}
wide math_pow(wide x, wide y) {
  const float rough = math_pow(x.x, y.x);  // sign and exceptions
  const bool unusual = isnan(x.x) || isinf(x.x) || isnan(y.x) || isinf(y.x) || x.x == 0.0 || y.x == 0.0;
  if (unusual || isnan(rough) || isinf(rough) || rough == 0.0) return vec2(rough, 0.0);
  const wide magnitude = math_exp(wide_mul(y, math_log(wide_abs(x))));
  return rough < 0.0 ? -magnitude : magnitude;
}

#endif
