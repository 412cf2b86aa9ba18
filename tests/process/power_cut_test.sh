# SPDX-License-Identifier: Apache-2.0
# A few power cuts on a file system of its own; tests/power_cut.sh makes many. Without syncs the same check must fail.
set -u
bash "$DDP_SOURCE_DIR/tests/power_cut.sh" 6 "$DDP_BUILD_DIR" || exit $?
[ -n "$DDP_SANITIZE" ] || bash "$DDP_SOURCE_DIR/tests/power_cut.sh" --without-sync 2 "$DDP_BUILD_DIR"
