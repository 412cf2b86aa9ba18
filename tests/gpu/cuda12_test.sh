# SPDX-License-Identifier: Apache-2.0
# The GPU module builds with CUDA 12 where there is one (cuda12.sh lists the places).
exec bash "$DDP_SOURCE_DIR/tests/gpu/cuda12.sh" --build "$DDP_BUILD_DIR/cuda12"
