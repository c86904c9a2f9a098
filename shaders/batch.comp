#version 450
// Values of many expressions, or sums of squares: native/src/batch/compiled.h has the instructions. One workgroup per
// expression and block of WORKGROUP_SIZE points; all its invocations run the same instruction on their own point.
//
//   run what depends on data alone
//   for each parameter set s: run the rest, then values[set, point] = y, or partial[set, block] = sum (y - target)^2
//
// Mixed: float32 throughout, sums carried as two floats.
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 7
#if defined(GRAPHOPT_MIXED)
#define GRAPHOPT_TWO_FLOAT  // no float64 in the text
#endif
#include "common.glsl"
#include "generated.glsl"
#include "generated_math.glsl"
#include "reduce.glsl"
layout(constant_id = 1) const uint NUM_REGISTERS = 16;
layout(constant_id = 2) const uint SUMS = 0;  // 1: sums of squares
PARAMETERS(uint first_item; uint num_points; uint stride; uint num_columns; uint num_blocks;)
INPUT(0, uvec4, code)     // operation | scalar operands << 8 | destination << 16, operands 0 | 1 << 16, operand 2
INPUT(1, uvec4, table)    // 2 per expression: code of data, of both, its end, output; scalars, first, first row, sets
INPUT(2, uint, items)     // expression of an item
INPUT(3, real, data)      // (num_columns, stride)
INPUT(4, real, target)    // (num_points,)
INPUT(5, real, scalars)
OUTPUT(6, real, result)

uint point, scalar_base;
#define FIRST_REGISTER push.num_columns
#define VECTOR(index) data.at[(index) * push.stride + point]
#define SCALAR(index) scalars.at[scalar_base + (index)]
#include "batch_run.glsl"

void main() {
  const uint item = push.first_item + WORKGROUP / push.num_blocks, block = WORKGROUP % push.num_blocks;
  const uint expression = items.at[item];
  const uvec4 first = table.at[2 * expression], second = table.at[2 * expression + 1];
  const uint own = block * WORKGROUP_SIZE + LANE;
  const bool inside = own < push.num_points;
  point = min(own, push.num_points - 1);
  scalar_base = second.y;
  run(first.x, first.y);
  for (uint s = 0; s < second.w; ++s) {
    scalar_base = second.y + s * second.x;
    run(first.y, first.z);
    const uint index = first.w & 0xffffu;
    const real value = (first.w >> 16) != 0 ? scalars.at[scalar_base + index] : vector_value(index);
    if (SUMS != 0) {
      const real difference = value - target.at[point];
      accumulator square = sum_zero();
      if (inside) square = add_product(square, difference, difference);
      square = workgroup_sum(square);
      if (LANE == 0) result.at[(second.z + s) * push.num_blocks + block] = value_of(square);
    } else if (inside) {
      result.at[(second.z + s) * push.num_points + own] = value;
    }
  }
}
