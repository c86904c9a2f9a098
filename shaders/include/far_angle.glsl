// Angles of many turns, without their whole turns (M. Payne and R. Hanek, Radian reduction for trigonometric
// functions, SIGNUM 18, 1983).
#ifndef GRAPHOPT_FAR_ANGLE_GLSL
#define GRAPHOPT_FAR_ANGLE_GLSL

// 1 / (2 pi) in binary: a whole word, then 35 behind the point.
const uint INVERSE_TURN[36] = uint[](
    0u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u, 0x7f9458eau,
    0xf7aef158u, 0x6dc91b8eu, 0x909374b8u, 0x01924bbau, 0x82746487u, 0x3f877ac7u, 0x2c4a69cfu, 0xba208d7du,
    0x4baed121u, 0x3a671c09u, 0xad17df90u, 0x4e64758eu, 0x60d4ce7du, 0x272117e2u, 0xef7e4a0eu, 0xc7fe25ffu,
    0xf7816603u, 0xfbcbc462u, 0xd6829b47u, 0xdb4d9fb3u, 0xc9f2c26du, 0xd3d18fd9u, 0xa797fa8bu, 0x5d49eeb1u,
    0xfaf97c5eu, 0xcf41ce7du, 0xe294a4bau, 0x9afed7ecu);

// What m 2^exponent / (2 pi) has behind its point, m = high 2^32 + low below 2^53 and exponent from -32 to 971: in
// signed 2^-64, from -1/2 to 1/2, within 2^-62. Bits of 1 / (2 pi) that only make whole turns are never looked at.
void turns_left(uint high, uint low, int exponent, out int first, out uint second) {
  const int word = (exponent + 32) >> 5, bits = (exponent + 32) & 31;
  uint f[4];
  uint here = INVERSE_TURN[word];
  for (int i = 0; i < 4; ++i) {
    const uint beside = INVERSE_TURN[word + i + 1];
    f[i] = (here << bits) | ((beside >> 1) >> (31 - bits));
    here = beside;
  }
  uint upper, lower, carry, total;
  umulExtended(high, f[3], total, lower);
  umulExtended(low, f[2], upper, lower);
  second = uaddCarry(total, upper, carry);
  uint whole = carry;
  umulExtended(high, f[2], upper, lower);
  second = uaddCarry(second, lower, carry);
  whole += upper + carry;
  umulExtended(low, f[1], upper, lower);
  second = uaddCarry(second, lower, carry);
  whole += upper + carry;
  first = int(whole + high * f[1] + low * f[0]);
}

// The angle of at most half a turn that points where x does, |x| at least 4 and finite.
float near_angle(float x) {
  const uint bits = floatBitsToUint(x);
  int first;
  uint second;
  turns_left(0u, (bits & 0x7fffffu) | 0x800000u, int((bits >> 23) & 0xffu) - 150, first, second);
  const float turns = float(first) * 2.3283064e-10 + float(second) * 5.4210109e-20;
  return (x < 0.0 ? -6.2831853 : 6.2831853) * turns;
}

#endif
