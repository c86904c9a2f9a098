#version 450
// gather_sum.glsl on contributions of the type of H: what a compiled kernel writes.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 6
#include "common.glsl"
#define contribution real
#define total accumulator
#define total_zero sum_zero
#define total_add add
#define total_merge merge
#define total_value value
#include "gather_sum.glsl"
