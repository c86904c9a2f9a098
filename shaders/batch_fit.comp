#version 450
// batch_fit.glsl with normal equations in float64.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 10
#include "common.glsl"
#include "generated.glsl"
#include "generated_math.glsl"
#include "reduce.glsl"
#define lm double
#define LM(x) double(x)
#define LM_LARGEST 1.7e308lf
#define LM_EPSILON 2.220446049250313e-16lf
#if defined(GRAPHOPT_MIXED)
#define REAL_EPSILON 1.1920929e-7lf
#define LM_OF(s) lm_of(s)
double lm_of(accumulator s) { return double(s.hi) + double(s.lo); }
#else
#define REAL_EPSILON 2.220446049250313e-16lf
#define LM_OF(s) (s)
#endif
#include "batch_fit.glsl"
