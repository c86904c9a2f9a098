#!/bin/sh
# Try a wheel where nothing else is: tools/check_wheel.sh PYTHON WHEEL
#
# A new environment, an empty PATH, no compiler, no source tree: import, a solve with each instruction set, a type of
# a user's own, and a solve on Vulkan (Mesa's llvmpipe; without any driver that part fails).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
wheel=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check --quiet install "$wheel"
cd "$folder"
env -i PATH=/nowhere HOME="$folder" TMPDIR="$folder" LP_NUM_THREADS=0 "$folder/venv/bin/python" -I "$root/tools/check_wheel.py"
