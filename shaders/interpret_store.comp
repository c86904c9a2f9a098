#version 450
// Outputs of an oplus program: include/interpret_store.glsl, with wide numbers in float64.
#extension GL_GOOGLE_include_directive : require
#include "interpret_store.glsl"
