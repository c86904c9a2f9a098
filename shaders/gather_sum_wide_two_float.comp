#version 450
// gather_sum_wide.comp for devices without float64.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 6
#ifdef GRAPHOPT_MIXED
#define GRAPHOPT_TWO_FLOAT
#endif
#include "common.glsl"
#include "interpret_wide.glsl"
#define contribution wide
#define total wide
#define total_zero() w_number(0.0)
#define total_add w_add
#define total_merge w_add
#define total_value to_real
#include "gather_sum.glsl"
