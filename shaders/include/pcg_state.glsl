// The state of the conjugate gradients, kept on the device. Two copies, by ping-pong index of the iteration: a kernel reads
// the one of its own iteration and only the end of an iteration (pcg_end.glsl) writes the other one.
//   status (uint): [0, 1] stopped, [2, 3] iterations done, [4] not positive definite, [5] workgroups that are done
//   scalars (real): [0, 1] dn = r' J r, [2] d0, the threshold of dn; settings [3] tolerance, [4] share,
//     [5] worth, [6] most iterations, [7] iterations before their gain counts; [8] beta; [9, 10] gain alpha dn of all
//     iterations
#ifndef GRAPHOPT_PCG_STATE_GLSL
#define GRAPHOPT_PCG_STATE_GLSL

const uint STOPPED = 0, ITERATIONS = 2, INDEFINITE = 4, ARRIVED = 5;
const uint SQUARED_NORM = 0, THRESHOLD = 2, TOLERANCE = 3, SHARE = 4, WORTH = 5, MOST = 6;
const uint PATIENCE = 7, BETA = 8, TOTAL_GAIN = 9;

#endif
