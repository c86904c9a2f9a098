// Sums over a workgroup in a fixed order (binary tree in shared memory): independent of the subgroup size.
// WORKGROUP_SIZE must be a power of two. Every invocation calls these and gets the result.
#ifndef GRAPHOPT_REDUCE_GLSL
#define GRAPHOPT_REDUCE_GLSL

shared accumulator reduce_scratch[WORKGROUP_SIZE];

accumulator workgroup_sum(accumulator mine) {
  barrier();  // earlier readers of the scratch are done
  reduce_scratch[LANE] = mine;
  barrier();
  for (uint s = WORKGROUP_SIZE / 2; s > 0; s >>= 1) {
    if (LANE < s) reduce_scratch[LANE] = merge(reduce_scratch[LANE], reduce_scratch[LANE + s]);
    barrier();
  }
  return reduce_scratch[0];
}

// Sum of num entries of a buffer of partial sums, num <= any.
#define SUM_PARTIALS(result, buffer, num)                                                       \
  accumulator result = sum_zero();                                                              \
  for (uint p_ = LANE; p_ < num; p_ += WORKGROUP_SIZE) result = merge(result, buffer.at[p_]);    \
  result = workgroup_sum(result);

#endif
