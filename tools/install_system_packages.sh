#!/bin/sh
# Install the Debian packages named as arguments, as far as they are missing. Asks for nothing when all are there.
# Where apt or the rights are missing, it says what is needed and goes on: the build itself tells what it lacks.
set -eu

missing=
if command -v dpkg-query >/dev/null; then
  for package in "$@"; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
  done
else
  missing=" $*"
fi
[ -n "$missing" ] || exit 0

give_up() {
  echo "$1 The build needs these (Debian names):$missing" >&2
  exit 0
}

command -v apt-get >/dev/null || give_up "There is no apt-get here."
if [ "$(id -u)" = 0 ]; then
  sudo=
elif command -v sudo >/dev/null; then
  if [ -t 0 ]; then sudo=sudo; else sudo="sudo -n"; fi
else
  give_up "Packages can only be installed by root."
fi

echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive
install="$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends"
# A fresh machine has no package lists; one that has them may do without the update.
# shellcheck disable=SC2086
$install $missing >/dev/null 2>&1 || { $sudo apt-get update -q && $install $missing; } ||
  give_up "apt-get failed."
