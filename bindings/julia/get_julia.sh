#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A Julia for the tests, where the distribution has none: version 1.5.3 of Debian 11, beside the libraries of Debian 12.
#
#   bindings/julia/get_julia.sh PREFIX     afterwards PREFIX/julia is the program (300 MB)
#
# Debian 12 left Julia out. Twelve packages come from Debian 11 and are unpacked, not installed, so this needs no root; what they need of
# Debian 12 is installed when this runs as root, and named otherwise. apt checks all signatures. libunwind8 and libmpfr6 exist in Debian 12
# too, in versions that this Julia does not bear: crashes, wrong digits of big numbers.
# With julialang.org in reach, an official build is better: put its julia into the PATH instead.
set -euo pipefail
prefix=$(realpath -m "${1:?usage: get_julia.sh PREFIX}")
if [ -x "$prefix/julia" ] && "$prefix/julia" --version >/dev/null 2>&1; then
  echo "Julia is in $prefix"
  exit 0
fi
command -v apt-get >/dev/null || { echo "get_julia.sh needs a Debian system: install Julia from julialang.org" >&2; exit 1; }
. "$(dirname "${BASH_SOURCE[0]}")/../../tests/support/debian_packages.sh"
ddp_install_packages libdsfmt-19937-1 libhttp-parser2.9 libutf8proc2 libgmp10 libpcre2-8-0 libssh2-1 libcurl3-gnutls \
  libgfortran5 libquadmath0 libz3-4 libedit2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 'Codename: bookworm' | awk 'NR == 1')
key=$(dpkg -L debian-archive-keyring | awk '/\/debian-archive-keyring.gpg$/ && !found++')
[ -n "$mirror" ] && [ -n "$key" ] || { echo "get_julia.sh knows Debian 12 alone: install Julia from julialang.org" >&2; exit 1; }
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || gcc -print-multiarch)
mkdir -p "$work/lists/partial" "$work/archives/partial" "$prefix"
echo "deb [signed-by=$key] $mirror bullseye main" >"$work/sources.list"
: >"$work/status"
options=(-qq -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work" -o "Dir::Cache::archives=$work/archives"
  -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::status=$work/status"
  -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User=)
apt-get "${options[@]}" update
(
  cd "$work/archives"
  apt-get "${options[@]}" download julia julia-common libjulia1 libllvm9 libgit2-1.1 libmbedcrypto3 libmbedtls12 libmbedx509-0 \
    libopenlibm3 libffi7 libunwind8 libmpfr6
  for package in *.deb; do dpkg-deb -x "$package" "$prefix"; done
)

# Julia's own links are relative (libgmp.so -> ../libgmp.so.10); those that lead nowhere get this system's library.
for link in "$prefix/usr/lib/$triplet"/julia/*.so; do
  target=$(readlink "$link" || true)
  if [ "${target#../}" = "$target" ] || [ -e "$link" ]; then continue; fi
  library=$(ldconfig -p | awk -v name="${target#../}" '$1 == name && !found++ { print $NF }')
  [ -n "$library" ] || { echo "get_julia.sh: ${target#../} is missing on this system" >&2; exit 1; }
  ln -sf "$library" "$prefix/usr/lib/$triplet/${target#../}"
done
cat >"$prefix/julia" <<EOF
#!/bin/sh
here=\$(cd "\$(dirname "\$(readlink -f "\$0")")" && pwd)
libraries=\$here/usr/lib/$triplet
export LD_LIBRARY_PATH=\$libraries:\$libraries/julia\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
exec "\$here/usr/bin/julia" "\$@"
EOF
chmod +x "$prefix/julia"
"$prefix/julia" --version
