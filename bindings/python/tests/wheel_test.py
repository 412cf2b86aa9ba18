# SPDX-License-Identifier: Apache-2.0
"""The wheel holds the library once, and works in an empty environment away from the sources."""
import glob
import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile

from support import SOURCE, Test, main, need

need("scikit_build_core", "pip")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1200, check=False, **options)
    if done.returncode:
        raise AssertionError(f"{command}\n{done.stdout}{done.stderr}")
    return done.stdout


class Wheel(Test):
    def test_it_holds_what_a_program_needs(self):
        outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "DDP_MODULE_PATH", "LD_LIBRARY_PATH")}
        with tempfile.TemporaryDirectory() as folder:
            run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", folder,
                "-C", f"build-dir={folder}/build", os.path.join(SOURCE, "bindings/python"), env=outside)
            wheel, = glob.glob(os.path.join(folder, "*.whl"))
            names = zipfile.ZipFile(wheel).namelist()
            self.assertEqual([name for name in names if re.search(r"/libddp\.so", name)], ["libddp/libddp.so.0.1"])
            tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
            self.assertIn(f"-{tag}-{tag}-", os.path.basename(wheel))  # the module is for this version alone, and the name says so
            self.assertFalse([name for name in names if "_cffi" in name or name.startswith(("include", "src", "tests"))])

            place = os.path.join(folder, "venv")
            venv.create(place, with_pip=False)
            run(sys.executable, "-m", "pip", "--python", os.path.join(place, "bin/python"), "install", "--no-deps", "--no-index", wheel,
                env=outside)
            program = os.path.join(folder, "program.py")
            with open(program, "w", encoding="utf-8") as file:
                file.write("import libddp\nprint(libddp.Group().reduce_metrics([1]), libddp.__file__)\n")
            out = run(os.path.join(place, "bin/ddprun"), "--no-prefix", "-n", 2, os.path.join(place, "bin/python"), program,
                      cwd=folder, env=outside)
            self.assertEqual(out.count("[2.0]"), 2)
            self.assertEqual(out.count(place), 2)


if __name__ == "__main__":
    main()
