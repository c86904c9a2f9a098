#version 450
// batch_fit.glsl for devices without float64.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 10
#ifdef GRAPHOPT_MIXED
#define GRAPHOPT_TWO_FLOAT  // no float64 in the text
#endif
#include "common.glsl"
#include "generated.glsl"
#include "generated_math.glsl"
#include "reduce.glsl"
#define lm float
#define LM(x) float(x)
#define LM_LARGEST 3.4e38
#define LM_EPSILON 1.1920929e-7
#define REAL_EPSILON 1.1920929e-7
#if defined(GRAPHOPT_MIXED)
#define LM_OF(s) value(s)
#else
#define LM_OF(s) float(s)
#endif
#include "batch_fit.glsl"
