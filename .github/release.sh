#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A release of what is in a folder, on GitHub:
#
#   .github/release.sh v0.1.0 FOLDER           makes it, by `gh`
#   .github/release.sh --check v0.1.0 FOLDER   only says what would be released, and what is not ready
#
# The tag must be that of the version, which must be ready (tag.sh). The text of the release is what include/CHANGES.md has of the version.
set -euo pipefail
check=
if [ "${1:-}" = --check ]; then
  check=yes
  shift
fi
[ $# -eq 2 ] || { echo "usage: .github/release.sh [--check] TAG FOLDER" >&2; exit 2; }
tag=$1
folder=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

problems=0
problem() { echo "$*" >&2; problems=$((problems + 1)); }
version=$(sed -n 's/^project(ddp VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[ "$tag" = "v$version" ] || problem "the tag is $tag, and CMakeLists.txt says $version"
.github/tag.sh --check || problems=$((problems + 1))
notes=$(awk -v head="## $version" '/^## / { inside = ($0 == head || index($0, head " ") == 1) } inside' include/CHANGES.md)
compgen -G "$folder/*.deb" >/dev/null || problem "$folder has no Debian packages"
compgen -G "$folder/*.whl" >/dev/null || problem "$folder has no wheels"

mapfile -t files < <(find "$folder" -type f | sort)
printf '%s\n' "${files[@]##*/}"
[ "$problems" = 0 ] || exit 1
[ -z "$check" ] || exit 0
gh release create "$tag" "${files[@]}" --verify-tag --title "libddp $version" --notes "$(tail -n +2 <<<"$notes")"
