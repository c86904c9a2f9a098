#!/bin/sh
# Build Kompute's Python package from its sdist into a virtual environment: tools/install_kompute.sh FOLDER
# Needs Debian's cmake, libfmt-dev and libvulkan-dev, and pybind11 and numpy in the environment. Two minutes; pip
# keeps the wheel, so that other environments of this machine get it at once.
#
#   --no-deps             the sdist pins numpy below 2 without need
#   an active environment and Debian's cmake first on the PATH: its setup.py takes both from there
#   the variables         take the libraries of the system, and leave the validation layer alone
set -eu
environment=$(cd "$1" && pwd)
first=$(mktemp -d)
trap 'rm -rf "$first"' EXIT
for cmake in /usr/bin/cmake "$(command -v cmake)"; do
  if [ -x "$cmake" ]; then ln -s "$cmake" "$first/cmake" && break; fi
done

export VIRTUAL_ENV="$environment" PATH="$first:$environment/bin:$PATH"
export KOMPUTE_OPT_INSTALL=OFF KOMPUTE_OPT_USE_BUILT_IN_FMT=OFF KOMPUTE_OPT_USE_BUILT_IN_VULKAN_HEADER=OFF \
  KOMPUTE_OPT_USE_BUILT_IN_PYBIND11=OFF KOMPUTE_OPT_DISABLE_VK_DEBUG_LAYERS=ON
pybind11_DIR=$(python -m pybind11 --cmakedir)
export pybind11_DIR
python -m pip install --disable-pip-version-check --quiet --no-deps kp==0.9.0
python -c "import kp; kp.Manager"
