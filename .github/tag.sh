#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tag of a release, with the version of CMakeLists.txt:
#
#   .github/tag.sh           makes it here, if the committed state is ready to be released
#   .github/tag.sh --check   only says what is not ready
#
# Ready: all files state one version, include/CHANGES.md calls it released, and a person has replaced the placeholders for names and
# addresses. Pushing the tag is left to a person; it starts the workflow that publishes (release.yml).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case "${1:-}" in
  "" | --check) ;;
  *) echo "usage: .github/tag.sh [--check]" >&2; exit 2 ;;
esac

problems=0
problem() { echo "$*" >&2; problems=$((problems + 1)); }
version=$(sed -n 's/^project(ddp VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
python3 -B tests/lint/versions_test.py >&2 || problems=$((problems + 1))
grep -q "^## $version\$" include/CHANGES.md || problem "include/CHANGES.md does not call $version released: its heading must be \"## $version\""
placeholder='TO-FILL-IN|@localhost\.invalid'
for file in .github/MAINTAINERS.md .github/SECURITY.md pkgconfig/debian/control pkgconfig/debian/changelog; do
  ! grep -Eq "$placeholder" "$file" || problem "$file has a placeholder for a name or an address"
done
if [ "${1:-}" != --check ]; then
  [ -z "$(git status --porcelain)" ] || problem "there are changes that are not committed"
  ! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || problem "the tag v$version exists"
fi
[ "$problems" = 0 ] || { echo "$version is not ready to be released" >&2; exit 1; }
[ "${1:-}" != --check ] || exit 0
git tag -a "v$version" -m "libddp $version"
echo "v$version is made; to publish it: git push origin v$version"
