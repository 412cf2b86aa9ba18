# SPDX-License-Identifier: Apache-2.0
"""A C program that finds the package, and two ranks of it."""
import os

from conan import ConanFile
from conan.tools.cmake import CMake, cmake_layout


class TestLibddpConan(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain", "VirtualRunEnv"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        program = os.path.join(self.cpp.build.bindir, "train")
        ddprun = os.path.join(self.dependencies["libddp"].package_folder, "bin", "ddprun")  # of a static package Conan's PATH knows nothing
        self.run(f"timeout 60 {ddprun} -n 2 --no-pty {program} env:// -1 -1", env="conanrun")
