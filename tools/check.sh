#!/bin/sh
# Everything that is checked without running the package: tools/check.sh [folder of the tools]
set -eu
cd "$(dirname "$0")/.."
[ $# -eq 0 ] || PATH="$(cd "$1" && pwd):$PATH"

ruff check .
ruff format --check .
find native \( -name "*.cpp" -o -name "*.h" \) | xargs clang-format --dry-run -Werror
pyright
