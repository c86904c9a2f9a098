#version 450
// Outputs of an oplus program: include/interpret_store.glsl, for devices without float64; wide numbers are pairs of float32.
#extension GL_GOOGLE_include_directive : require
#ifdef GRAPHOPT_MIXED
#define GRAPHOPT_TWO_FLOAT
#endif
#include "interpret_store.glsl"
