// The end of an iteration: dn_new = r's and beta = dn_new / dn, by the workgroup that is done last, and the state of
// the next iteration, whose ping-pong index is the other one. It stops when dn_new <= d0, after MOST iterations, or when A was
// found not to be positive definite; or when what the iterations gain is no longer worth them (Nash and Sofer 1990):
// the quadratic model 2 b'x - x'A x grows by alpha dn per iteration; as many iterations again, with this gain, would
// add less than a share of it, or than `worth`. Whichever workgroup comes last, it sums in the same order.
// Include it after the buffers `scalars`, `status` and `dots_rs`, the last one coherent, and push.num_groups, ping_pong.
#ifndef GRAPHOPT_PCG_END_GLSL
#define GRAPHOPT_PCG_END_GLSL

shared uint pcg_is_last;

// Of an iteration after the end: every workgroup calls it, and the state is handed on.
void pcg_hand_on() {
  if (LANE != 0 || WORKGROUP != 0) return;
  const uint here = push.ping_pong, next = 1 - push.ping_pong;
  status.at[STOPPED + next] = 1;
  status.at[ITERATIONS + next] = status.at[ITERATIONS + here];
  scalars.at[SQUARED_NORM + next] = scalars.at[SQUARED_NORM + here];
}

void pcg_end_iteration(accumulator dot, real gain, bool definite) {
  dot = workgroup_sum(dot);
  if (LANE == 0) {
    dots_rs.at[WORKGROUP] = dot;
    memoryBarrierBuffer();
    pcg_is_last = atomicAdd(status.at[ARRIVED], 1) + 1 == push.num_groups ? 1 : 0;
  }
  barrier();
  if (pcg_is_last == 0) return;
  memoryBarrierBuffer();
  SUM_PARTIALS(total, dots_rs, push.num_groups)
  if (LANE != 0) return;
  const uint here = push.ping_pong, next = 1 - push.ping_pong;
  const real dn = value(total);
  const uint iterations = status.at[ITERATIONS + here] + 1;
  const real total_gain = scalars.at[TOTAL_GAIN + here] + gain;
  const real worth = max(scalars.at[SHARE] * total_gain, scalars.at[WORTH]);
  if (!definite) status.at[INDEFINITE] = 1;
  const bool going = dn > scalars.at[THRESHOLD] && real(iterations) < scalars.at[MOST] && definite &&
                     status.at[INDEFINITE] == 0 &&
                     (real(iterations) < scalars.at[PATIENCE] || real(iterations) * gain >= worth);
  status.at[STOPPED + next] = going ? 0 : 1;
  status.at[ITERATIONS + next] = iterations;
  status.at[ARRIVED] = 0;
  scalars.at[SQUARED_NORM + next] = dn;
  scalars.at[TOTAL_GAIN + next] = total_gain;
  scalars.at[BETA] = dn / scalars.at[SQUARED_NORM + here];
}

#endif
