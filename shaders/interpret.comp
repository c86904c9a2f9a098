#version 450
// Runs a program on edges: include/interpret.glsl, with wide numbers in float64.
#extension GL_GOOGLE_include_directive : require
#include "interpret.glsl"
