// Included by sampling.glsl once per type of numbers: `number` is the type, n_* are its operations.

// Width 0 where the handle names no plane. Handles are whole numbers below 65536, exact in every type.
uvec4 sampled_plane(number handle) {
  const float k = n_float(handle);
  if (!(k >= 0.0 && k < float(planes.at[0].w)) || floor(k) != k || !n_equal(handle, n_number(k))) return uvec4(0);
  return planes.at[uint(k)];
}

// Index of the first of two pixels; place between them, 0 to 1, NaN where x is; inside: 0 where x was clamped, else 1.
int sampled_cell(number x, uint length, out number place, out number inside) {
  const number zero = n_number(0.0), last = n_number(int(length) - 1);
  const number clamped = n_less(x, zero) ? zero : n_less(last, x) ? last : x;
  int index = 0;
  if (n_less_equal(n_number(1.0), clamped)) index = min(int(n_float(n_floor(clamped))), max(int(length) - 2, 0));
  place = n_sub(clamped, n_number(index));
  inside = n_number(n_less_equal(zero, x) && n_less_equal(x, last) ? 1.0 : 0.0);
  return index;
}

void sample_bilinear(number handle, number u, number v, out number value, out number by_u, out number by_v) {
  const uvec4 plane = sampled_plane(handle);
  if (plane.y == 0) {
    value = by_u = by_v = n_number(FLOAT_NAN);
    return;
  }
  number f, g, inside_u, inside_v;
  const int j = sampled_cell(u, plane.y, f, inside_u), i = sampled_cell(v, plane.z, g, inside_v);
  const number a = n_number(sampled_pixel(plane, i, j)), b = n_number(sampled_pixel(plane, i, j + 1));
  const number c = n_number(sampled_pixel(plane, i + 1, j)), d = n_number(sampled_pixel(plane, i + 1, j + 1));
  const number upper = n_sub(b, a), lower = n_sub(d, c);
  const number top = n_fma(f, upper, a), bottom = n_fma(f, lower, c), rise = n_sub(bottom, top);
  value = n_fma(g, rise, top);
  by_u = n_mul(inside_u, n_fma(g, n_sub(lower, upper), upper));
  by_v = n_mul(inside_v, rise);
}

// Catmull and Rom's weights at t, and their derivatives.
number sampled_cubic(number t, float c0, float c1, float c2, float c3) {
  return n_fma(t, n_fma(t, n_fma(t, n_number(c3), n_number(c2)), n_number(c1)), n_number(c0));
}
void sampled_weights(number t, out number weight[4], out number rate[4]) {
  weight[0] = sampled_cubic(t, 0.0, -0.5, 1.0, -0.5);
  weight[1] = sampled_cubic(t, 1.0, 0.0, -2.5, 1.5);
  weight[2] = sampled_cubic(t, 0.0, 0.5, 2.0, -1.5);
  weight[3] = sampled_cubic(t, 0.0, 0.0, -0.5, 0.5);
  rate[0] = sampled_cubic(t, -0.5, 2.0, -1.5, 0.0);
  rate[1] = sampled_cubic(t, 0.0, -5.0, 4.5, 0.0);
  rate[2] = sampled_cubic(t, 0.5, 4.0, -4.5, 0.0);
  rate[3] = sampled_cubic(t, 0.0, -1.0, 1.5, 0.0);
}

void sample_bicubic(number handle, number u, number v, out number value, out number by_u, out number by_v) {
  const uvec4 plane = sampled_plane(handle);
  if (plane.y == 0) {
    value = by_u = by_v = n_number(FLOAT_NAN);
    return;
  }
  number f, g, inside_u, inside_v, wu[4], ru[4], wv[4], rv[4];
  const int j = sampled_cell(u, plane.y, f, inside_u), i = sampled_cell(v, plane.z, g, inside_v);
  sampled_weights(f, wu, ru);
  sampled_weights(g, wv, rv);
  const number zero = n_number(0.0);
  value = by_u = by_v = zero;
  for (int k = 0; k < 4; ++k) {
    number line = zero, line_rate = zero;
    for (int l = 0; l < 4; ++l) {
      const number p = n_number(sampled_pixel(plane, i + k - 1, j + l - 1));
      line = n_fma(wu[l], p, line);
      line_rate = n_fma(ru[l], p, line_rate);
    }
    value = n_fma(wv[k], line, value);
    by_u = n_fma(wv[k], line_rate, by_u);
    by_v = n_fma(rv[k], line, by_v);
  }
  by_u = n_mul(inside_u, by_u);
  by_v = n_mul(inside_v, by_v);
}
