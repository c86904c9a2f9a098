#version 450
// Small fronts of up to 16 rows, see chol_small.glsl.
#extension GL_GOOGLE_include_directive : require
#define COLUMNS 16
#include "chol_small.glsl"

void main() { factor_small(); }
