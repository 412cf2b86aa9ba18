# SPDX-License-Identifier: Apache-2.0
# .github/tag.sh makes a tag of a state that is ready, and of no other; .github/release.sh says what is missing. Each in a copy.
set -eu
command -v git >/dev/null || { echo "git is not installed"; exit 77; }
source=$DDP_SOURCE_DIR
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source"
cp --parents CMakeLists.txt CITATION.cff include/CHANGES.md include/ddp/types.h bindings/julia/Project.toml bindings/python/pyproject.toml \
  bindings/rust/ddp/Cargo.toml bindings/rust/ddp-sys/Cargo.toml pkgconfig/debian/changelog pkgconfig/debian/control \
  pkgconfig/vcpkg/ports/libddp/vcpkg.json tests/lint/tree.py tests/lint/versions_test.py .github/*.sh .github/*.md "$work"
cd "$work"
export DDP_SOURCE_DIR=$work GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
version=$(sed -n 's/^project(ddp VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
# A state that is ready, whatever the present one is.
sed -i "s/^## $version.*/## $version/" include/CHANGES.md
sed -i 's/TO-FILL-IN/A Person/; s/@localhost\.invalid/@example.org/' .github/MAINTAINERS.md .github/SECURITY.md pkgconfig/debian/control pkgconfig/debian/changelog
git init -q
git add -A
git commit -qm state

failures=0
check() { # what, 0 or 1, text, command...
  local what=$1 code=$2 text=$3 found=0
  shift 3
  "$@" >"$work.out" 2>&1 || found=1
  if [ "$found" != "$code" ] || ! grep -qF -- "$text" "$work.out"; then
    echo "$what: exit $found" >&2
    cat "$work.out" >&2
    failures=$((failures + 1))
  fi
  rm -f "$work.out"
}
# tampered FILE SED: with this change, committed, nothing is tagged
tampered() { # what, text, file, change
  sed -i "$4" "$3"
  git commit -qam tampered
  check "$1" 1 "$2" .github/tag.sh
  git reset -q --hard HEAD~
}
tampered "another version" "pyproject.toml: the version is 9.9.9" bindings/python/pyproject.toml 's/^version = .*/version = "9.9.9"/'
tampered "another number" "DDP_VERSION is 7" include/ddp/types.h 's/^#define DDP_VERSION [0-9]*/#define DDP_VERSION 7/'
tampered "not released" "does not call $version released" include/CHANGES.md "s/^## $version/& (not released)/"
tampered "a placeholder" "SECURITY.md has a placeholder" .github/SECURITY.md 's/@example.org/@localhost.invalid/'
echo x >>CITATION.cff
check "not committed" 1 "not committed" .github/tag.sh
git checkout -q CITATION.cff
[ -z "$(git tag)" ] || { echo "a tag was made" >&2; failures=$((failures + 1)); }

mkdir "$work/files"
check "nothing to publish" 1 "no wheels" .github/release.sh --check "v$version" files
touch files/a.deb files/a.whl
check "ready" 0 "a.whl" .github/release.sh --check "v$version" files
check "another tag" 1 "the tag is v9.9.9" .github/release.sh --check v9.9.9 files
rm -r files
check "the tag" 0 "v$version is made" .github/tag.sh
[ "$(git tag)" = "v$version" ] && [ "$(git rev-parse "v$version^{commit}")" = "$(git rev-parse HEAD)" ] || { echo "there is no tag" >&2; failures=$((failures + 1)); }
check "a second tag" 1 "the tag v$version exists" .github/tag.sh
exit $((failures > 0))
