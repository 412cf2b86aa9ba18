#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The documents as a site, and man pages: build/site/html/index.html, build/site/man. As root on Debian it installs what is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/support/debian_packages.sh
ddp_install_packages doxygen python3-sphinx python3-breathe python3-myst-parser furo python3-sphinx-copybutton
/usr/bin/python3 .github/site/make.py --doxygen doxygen --sphinx /usr/bin/sphinx-build build/site
