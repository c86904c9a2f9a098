#!/bin/sh
# Build the native modules in place for development: tools/dev_build.sh [ISA ...]   (default: all)
# The modules land in graphopt/, so that PYTHONPATH=. uses them.
set -eu
cd "$(dirname "$0")/.."
isas=$(echo "$@" | tr ' ' ';')
cmake -S . -B build/dev -G Ninja -DGRAPHOPT_WERROR=ON -DGRAPHOPT_CPU_ISAS="$isas" -DGRAPHOPT_PREBUILD=OFF \
  -DPython_EXECUTABLE="$(command -v python3)" -DCMAKE_INSTALL_PREFIX="$PWD" >/dev/null
cmake --build build/dev
cmake --install build/dev >/dev/null
