#!/bin/sh
# Print the instruction set that graphopt/cpu_kernels.py would choose on this processor: v4, v3, baseline.
# A demo builds only that one, a third of the work; tests and wheels build all.
set -eu
flags=" $(sed -n 's/^flags[^:]*://p' /proc/cpuinfo 2>/dev/null | head -n 1) "
has_all() {
  for flag in "$@"; do
    case "$flags" in *" $flag "*) ;; *) return 1 ;; esac
  done
}
if has_all avx512f avx512bw avx512cd avx512dq avx512vl; then
  echo v4
elif has_all avx2 bmi1 bmi2 f16c fma movbe; then
  echo v3
else
  echo baseline
fi
