// The largest absolute value over a workgroup; one that is not a number wins. Include after reduce.glsl.
#ifndef GRAPHOPT_EXTREMES_GLSL
#define GRAPHOPT_EXTREMES_GLSL

real larger(real a, real b) { return b > a || isnan(b) ? b : a; }

shared real extremes_scratch[WORKGROUP_SIZE];

real workgroup_largest(real mine) {
  barrier();  // earlier readers of the scratch are done
  extremes_scratch[LANE] = mine;
  barrier();
  for (uint s = WORKGROUP_SIZE / 2; s > 0; s >>= 1) {
    if (LANE < s) extremes_scratch[LANE] = larger(extremes_scratch[LANE], extremes_scratch[LANE + s]);
    barrier();
  }
  return extremes_scratch[0];
}

#endif
