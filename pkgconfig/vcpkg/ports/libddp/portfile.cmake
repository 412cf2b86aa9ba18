# SPDX-License-Identifier: Apache-2.0
# An overlay port that builds the tree that it is in: vcpkg install libddp --overlay-ports=pkgconfig/vcpkg/ports
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)
vcpkg_find_acquire_program(PKGCONFIG)
vcpkg_check_features(OUT_FEATURE_OPTIONS features FEATURES gloo DDP_GLOO)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${features} -DDDP_DEVELOPER=OFF -DDDP_CUDA=OFF "-DPKG_CONFIG_EXECUTABLE=${PKGCONFIG}")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME ddp CONFIG_PATH lib/cmake/ddp)
vcpkg_fixup_pkgconfig()
vcpkg_copy_tools(TOOL_NAMES ddprun AUTO_CLEAN)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share" "${CURRENT_PACKAGES_DIR}/share/doc")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
