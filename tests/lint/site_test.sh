# SPDX-License-Identifier: Apache-2.0
# The diagrams are what their script draws, and the site is built: every link of its pages leads somewhere, and nothing warns.
set -eu
cd "$DDP_SOURCE_DIR"
python3 -B .github/site/pictures.py --check
python=/usr/bin/python3 # the one that Debian's Sphinx is for
[ -x "$python" ] && "$python" -c 'import breathe, furo, myst_parser, sphinx_copybutton' 2>/dev/null && command -v doxygen >/dev/null ||
  { echo "Doxygen, or Sphinx with its extensions, is not installed: .github/site/build.sh does that"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -B .github/site/make.py --doxygen doxygen --sphinx /usr/bin/sphinx-build "$work/site"
