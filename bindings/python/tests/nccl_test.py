# SPDX-License-Identifier: Apache-2.0
"""Where NCCL is looked for when a Python wheel has brought it."""
import os
import subprocess
import sys
import tempfile

from support import Test, main

SHOW = "import libddp, os; print(os.environ.get('DDP_NCCL_LIBRARY'))"


class Wheel(Test):
    def show(self, folder, **environment):
        paths = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
        environment = {**{k: v for k, v in os.environ.items() if k != "DDP_NCCL_LIBRARY"}, "PYTHONPATH": paths, **environment}
        return subprocess.run([sys.executable, "-B", "-S", "-c", SHOW], env=environment, check=True, capture_output=True, text=True).stdout.strip()

    def test_the_wheels_file_is_announced(self):
        with tempfile.TemporaryDirectory() as folder:
            lib = os.path.join(folder, "nvidia", "nccl", "lib")
            os.makedirs(lib)
            self.assertEqual(self.show(folder), "None")
            path = os.path.join(lib, "libnccl.so.2")
            open(path, "wb").close()
            self.assertEqual(self.show(folder), path)

    def test_what_the_user_says_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            lib = os.path.join(folder, "nvidia", "nccl", "lib")
            os.makedirs(lib)
            open(os.path.join(lib, "libnccl.so.2"), "wb").close()
            self.assertEqual(self.show(folder, DDP_NCCL_LIBRARY="/my/libnccl.so.2"), "/my/libnccl.so.2")


if __name__ == "__main__":
    main()
