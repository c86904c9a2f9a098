#version 450
// Runs a program on edges: include/interpret.glsl, for devices without float64; wide numbers are pairs of float32.
#extension GL_GOOGLE_include_directive : require
#ifdef GRAPHOPT_MIXED
#define GRAPHOPT_TWO_FLOAT
#endif
#include "interpret.glsl"
