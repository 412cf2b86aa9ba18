# SPDX-License-Identifier: Apache-2.0
"""tests/support/skip_reasons.py, run by CTest on a folder of tests made here: reasons are shown, the exit status stays. tests/support/not_run.py on
the results of two such runs: what one of them executed is not listed."""
import os
import subprocess
import sys
import tempfile
import unittest

SUPPORT = os.path.join(os.environ["DDP_SOURCE_DIR"], "tests/support")
SCRIPT = os.path.join(SUPPORT, "skip_reasons.py")
NOT_RUN = os.path.join(SUPPORT, "not_run.py")
TESTS = {
    "good": "echo fine",
    "reasoned": "echo one; echo 'skipped: there is no mpirun'; exit 77",
    "last.line": "echo first; echo the examples are not built; exit 77",
    "silent": "exit 77",
    "bad": "echo wrong; exit 1",
}


class SkipReasons(unittest.TestCase):
    def run_ctest(self, folder, pattern, *more):
        done = subprocess.run(["ctest", "-R", pattern, *more], cwd=folder, capture_output=True, text=True, timeout=100, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_reasons_follow_the_summary(self):
        with tempfile.TemporaryDirectory(prefix="a folder ") as folder:
            with open(os.path.join(folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
                for name, command in TESTS.items():
                    file.write(f'add_test({name} sh -c "{command}")\n')
                    file.write(f"set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)\n")
            with open(os.path.join(folder, "CTestCustom.cmake"), "w", encoding="utf-8") as file:
                file.write(f'set(CTEST_CUSTOM_POST_TEST "\\"{sys.executable}\\" -B \\"{SCRIPT}\\" \\"{folder}\\"")\n')

            status, output = self.run_ctest(folder, "good|reasoned|last|silent")
            self.assertEqual(status, 0, output)
            self.assertIn("100% tests passed, 0 tests failed out of 4", output)
            self.assertIn("Why 3 tests were skipped:\n\treasoned: there is no mpirun\n"
                          "\tlast.line: the examples are not built\n\tsilent: it printed no reason\n"
                          "\n1 tests passed, 3 skipped, 0 failed\n", output)
            self.assertLess(output.index("tests failed out of"), output.index("Why 3"))

            status, output = self.run_ctest(folder, "bad|silent|good")
            self.assertEqual(status, 8, output)
            self.assertIn("1 tests passed, 1 skipped, 1 failed\n", output)

            status, output = self.run_ctest(folder, "good")  # the list of skipped tests is still that of the run before
            self.assertEqual(status, 0, output)
            self.assertNotIn("skipped", output)

    def test_a_list_of_an_earlier_run_does_not_count(self):
        with tempfile.TemporaryDirectory(prefix="a folder ") as folder:
            with open(os.path.join(folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
                file.write('add_test(later sh -c "test -e there || exit 77")\nset_tests_properties(later PROPERTIES SKIP_RETURN_CODE 77)\n')
            with open(os.path.join(folder, "CTestCustom.cmake"), "w", encoding="utf-8") as file:
                file.write(f'set(CTEST_CUSTOM_POST_TEST "\\"{sys.executable}\\" -B \\"{SCRIPT}\\" \\"{folder}\\"")\n')
            self.assertIn("Why 1 test was skipped", self.run_ctest(folder, "later")[1])
            listed = os.path.join(folder, "Testing/Temporary/LastTestsDisabled.log")
            os.utime(listed, (os.path.getatime(listed), os.path.getmtime(listed) - 3600))
            with open(os.path.join(folder, "there"), "w", encoding="utf-8"):
                pass
            self.assertNotIn("skipped", self.run_ctest(folder, "later")[1])

    def test_what_one_run_executed_is_not_listed(self):
        with tempfile.TemporaryDirectory(prefix="a folder ") as folder:
            results = [os.path.join(folder, name) for name in ("first.xml", "second.xml")]
            for path, there in zip(results, ("", "touch there;")):
                with open(os.path.join(folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
                    for name, command in {**TESTS, "later": f"{there} test -e there || exit 77"}.items():
                        file.write(f'add_test({name} sh -c "{command}")\n')
                        file.write(f"set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)\n")
                self.run_ctest(folder, ".", "--output-junit", path)
            for files, later in ((results[:1], "\tlater: it printed no reason\n"), (results, "")):
                told = subprocess.run([sys.executable, "-B", NOT_RUN, *files], capture_output=True, text=True, timeout=100, check=True).stdout
                self.assertEqual(told, f"{4 if later else 3} of 6 tests were executed by no run:\n\tlast.line: the examples are not built\n{later}"
                                 "\treasoned: there is no mpirun\n\tsilent: it printed no reason\n")


if __name__ == "__main__":
    unittest.main()
