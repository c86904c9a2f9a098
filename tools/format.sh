#!/bin/sh
# Format Python and C++ in place: tools/format.sh [folder of the tools]
set -eu
cd "$(dirname "$0")/.."
[ $# -eq 0 ] || PATH="$(cd "$1" && pwd):$PATH"

ruff check --fix-only --quiet .
ruff format --quiet .
find native \( -name "*.cpp" -o -name "*.h" \) | xargs clang-format -i
