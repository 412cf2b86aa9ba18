# SPDX-License-Identifier: Apache-2.0
"""libddp as a Conan package, built from this tree without a network: `pkgconfig/conan/check.sh`, or

    conan create pkgconfig/conan -o "libddp/*:shared=True"

What it is built with (Asio, CLI11, libsodium, nlohmann-json, xxHash; Gloo and OpenSSL for several hosts) comes from the system and is inside the library
afterwards, so a program that uses the package needs none of it. Only the Gloo module wants libgloo and OpenSSL where it runs.
"""
import os
import re

from conan import ConanFile
from conan.tools.build import stdcpp_library
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir
from conan.tools.system.package_manager import Apt


class LibddpConan(ConanFile):
    name = "libddp"
    description = "Distributed data parallel training behind one C header"
    license = "Apache-2.0"
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "gloo": [True, False], "cuda": [True, False]}
    default_options = {"shared": True, "gloo": False, "cuda": False}

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "../../CMakeLists.txt"))
        self.version = re.search(r"project\(ddp VERSION (\S+)", text)[1]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "include/*", "src/*", "pkgconfig/*", "bindings/*"):
            copy(self, pattern, src=os.path.join(self.recipe_folder, "../.."), dst=self.export_sources_folder)

    def system_requirements(self):
        Apt(self).check(["libasio-dev", "libcli11-dev", "libsodium-dev", "libxxhash-dev", "nlohmann-json3-dev", "pkg-config"] +
                        (["libgloo-dev", "libssl-dev"] if self.options.gloo else []))

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update({"DDP_DEVELOPER": False, "DDP_GLOO": "ON" if self.options.gloo else "OFF",
                                          "DDP_CUDA": "ON" if self.options.cuda else "OFF", "DDP_CUDA_ARCHITECTURES": "shipped"})
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))  # Conan writes its own
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))

    def package_info(self):
        self.cpp_info.libs = ["ddp"]
        for kind in ("cmake_file_name", "pkg_config_name"):
            self.cpp_info.set_property(kind, "ddp")
        self.cpp_info.set_property("cmake_target_name", "ddp::ddp")
        if not self.options.shared:
            self.cpp_info.set_property("cmake_target_aliases", ["ddp::static"])
            self.cpp_info.system_libs = [stdcpp_library(self), "dl", "m", "pthread"]
