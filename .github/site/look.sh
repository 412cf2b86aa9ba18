#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Photographs pages of the site in headless Chromium, as wide as a desk (1280) and as a phone (400), light and dark:
#
#   .github/site/look.sh FOLDER [PAGE...]       pictures go to FOLDER; pages are named as in build/site/html, without .html
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ $# -lt 1 ]; then
  echo "usage: .github/site/look.sh FOLDER [PAGE...]" >&2
  exit 2
fi
. tests/support/debian_packages.sh
ddp_install_packages chromium
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- index examples/README include/README include/API include/ERRORS include/RECOVERY api/index api/group tests/bench/README
html=$PWD/build/site/html
shoot() { # name, page, width
  chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=3000 --window-size="$3,1600" \
    --screenshot="$out/$1.png" "file://$html/$2.html" >/dev/null 2>&1
}
for page in "$@"; do
  shoot "${page//\//-}-desk" "$page" 1280
  shoot "${page//\//-}-phone" "$page" 400
  # As somebody sees it who has chosen the dark theme.
  sed 's/localStorage.getItem("theme") || "auto"/"dark"/' "$html/$page.html" >"$html/$page.dark.html"
  shoot "${page//\//-}-dark" "$page.dark" 1280
  rm "$html/$page.dark.html"
done
ls "$out"
