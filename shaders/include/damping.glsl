// The damping D of (H + D) x = b: three numbers beside H's diagonal, as the linearisation has left it.
//   name[0..2]   value, floor, ceiling:  D_i = value, or where floor < ceiling value clamp(H_ii, floor, ceiling)
//   name[3..4]   2^16 n + m: the first rows, whose D is given instead of H_ii
//   name[8 + i]  H_ii, or D_i
// DAMPING_OF(function, name) after the buffer; an H that is not positive is kept out by floor.
#ifndef GRAPHOPT_DAMPING_GLSL
#define GRAPHOPT_DAMPING_GLSL

const uint DAMPING_HEADER = 8;
#define DAMPING_OF(function, name)                                                                    \
  real function(uint i) {                                                                             \
    if (i < (uint(name.at[3]) << 16) + uint(name.at[4])) return real(name.at[DAMPING_HEADER + i]);    \
    const real scale = real(name.at[0]), least = real(name.at[1]), most = real(name.at[2]);           \
    if (!(least < most)) return scale;                                                                \
    precise real scaled = scale * min(max(real(name.at[DAMPING_HEADER + i]), least), most);           \
    return scaled;                                                                                    \
  }

#endif
