#version 450
// gather_sum.glsl on wide contributions: the scratch buffer of the interpreter.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 6
#include "common.glsl"
#include "interpret_wide.glsl"
#define contribution wide
#define total wide
#define total_zero() w_number(0.0)
#define total_add w_add
#define total_merge w_add
#define total_value to_real
#include "gather_sum.glsl"
