// Samples of images, as graphopt/symbolic/sampling.py defines them. The includer declares the buffers `planes` and
// `pixels` (see interpret.glsl) and includes interpret_wide.glsl before.
#ifndef GRAPHOPT_INTERPRET_SAMPLING_GLSL
#define GRAPHOPT_INTERPRET_SAMPLING_GLSL

struct Sample { wide value, by_u, by_v; };
struct Cell {
  int index;     // of the first of two pixels
  wide place;    // between them, 0 to 1; NaN where x is
  float inside;  // 0 where x was clamped, else 1
};

Cell cell(wide x, int length) {
  const wide zero = w_number(0.0), last = w_number(length - 1);
  const wide clamped = w_less(x, zero) ? zero : w_less(last, x) ? last : x;
  int index = 0;
  if (w_less_equal(w_number(1.0), clamped)) index = min(int(float(to_real(w_floor(clamped)))), max(length - 2, 0));
  return Cell(index, w_sub(clamped, w_number(index)), w_less_equal(zero, x) && w_less_equal(x, last) ? 1.0 : 0.0);
}

// Width 0 where the number names no plane.
uvec4 find_plane(wide number) {
  const float k = float(to_real(number));
  if (!(k >= 0.0 && k < float(planes.at[0].w)) || floor(k) != k || !w_equal(number, w_number(k))) return uvec4(0);
  return planes.at[uint(k)];
}

wide pixel(uvec4 plane, int row, int column) {
  const int i = clamp(row, 0, int(plane.z) - 1), j = clamp(column, 0, int(plane.y) - 1);
  return w_number(pixels.at[plane.x + uint(i) * plane.y + uint(j)]);
}

Sample no_sample() { return Sample(w_number(FLOAT_NAN), w_number(FLOAT_NAN), w_number(FLOAT_NAN)); }

Sample sample_bilinear(wide number, wide u, wide v) {
  const uvec4 plane = find_plane(number);
  if (plane.y == 0) return no_sample();
  const Cell across = cell(u, int(plane.y)), down = cell(v, int(plane.z));
  const wide a = pixel(plane, down.index, across.index), b = pixel(plane, down.index, across.index + 1);
  const wide c = pixel(plane, down.index + 1, across.index), d = pixel(plane, down.index + 1, across.index + 1);
  const wide upper = w_sub(b, a), lower = w_sub(d, c);
  const wide top = w_fma(across.place, upper, a), bottom = w_fma(across.place, lower, c);
  const wide along = w_fma(down.place, w_sub(lower, upper), upper), rise = w_sub(bottom, top);
  return Sample(w_fma(down.place, rise, top), w_mul(w_number(across.inside), along),
                w_mul(w_number(down.inside), rise));
}

// Catmull and Rom's weights at t, and their derivatives.
wide cubic(wide t, float c0, float c1, float c2, float c3) {
  return w_fma(t, w_fma(t, w_fma(t, w_number(c3), w_number(c2)), w_number(c1)), w_number(c0));
}
void cubic_weights(wide t, out wide weight[4], out wide rate[4]) {
  weight[0] = cubic(t, 0.0, -0.5, 1.0, -0.5);
  weight[1] = cubic(t, 1.0, 0.0, -2.5, 1.5);
  weight[2] = cubic(t, 0.0, 0.5, 2.0, -1.5);
  weight[3] = cubic(t, 0.0, 0.0, -0.5, 0.5);
  rate[0] = cubic(t, -0.5, 2.0, -1.5, 0.0);
  rate[1] = cubic(t, 0.0, -5.0, 4.5, 0.0);
  rate[2] = cubic(t, 0.5, 4.0, -4.5, 0.0);
  rate[3] = cubic(t, 0.0, -1.0, 1.5, 0.0);
}

Sample sample_bicubic(wide number, wide u, wide v) {
  const uvec4 plane = find_plane(number);
  if (plane.y == 0) return no_sample();
  const Cell across = cell(u, int(plane.y)), down = cell(v, int(plane.z));
  wide wu[4], ru[4], wv[4], rv[4];
  cubic_weights(across.place, wu, ru);
  cubic_weights(down.place, wv, rv);
  const wide zero = w_number(0.0);
  Sample sum = Sample(zero, zero, zero);
  for (int k = 0; k < 4; ++k) {
    wide line = zero, line_rate = zero;
    for (int l = 0; l < 4; ++l) {
      const wide p = pixel(plane, down.index + k - 1, across.index + l - 1);
      line = w_fma(wu[l], p, line);
      line_rate = w_fma(ru[l], p, line_rate);
    }
    sum.value = w_fma(wv[k], line, sum.value);
    sum.by_u = w_fma(wv[k], line_rate, sum.by_u);
    sum.by_v = w_fma(rv[k], line, sum.by_v);
  }
  return Sample(sum.value, w_mul(w_number(across.inside), sum.by_u), w_mul(w_number(down.inside), sum.by_v));
}

#endif
