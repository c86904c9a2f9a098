#version 450
// Inputs of a program: include/interpret_load.glsl, with wide numbers in float64.
#extension GL_GOOGLE_include_directive : require
#include "interpret_load.glsl"
