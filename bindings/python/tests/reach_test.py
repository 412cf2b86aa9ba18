# SPDX-License-Identifier: Apache-2.0
"""Every public function is in the generated module, and the package uses it; what the package publishes has text and annotations."""
import inspect
import os
import re

import libddp
from libddp import low
from support import SOURCE, Test, main

# What the package has no use for, and why.
NOT_USED = {
    "ddp_copy_last_error": "the text comes with the exception",
    "ddp_experimental_version": "the package is made for one version of the library, and looks at that",
    "ddp_get_error_details": "they come with the exception",
    "ddp_get_error_parameters": "they come with the exception",
    "ddp_get_error_ranks": "they come with the exception",
    "ddp_model_add_array": "a sequence of numbers with a shape is a tensor",
    "ddp_memory_release": "views keep the object that the memory came from",
    "ddp_memory_retain": "views keep the object that the memory came from",
    "ddp_status_name": "Status has the names",
    "ddp_tensor_init": "tuples stand for tensors",
}


class Reach(Test):
    def setUp(self):
        with open(os.path.join(SOURCE, "src/capi/exports.txt"), encoding="utf-8") as file:
            self.names = [line.split()[0] for line in file if line.strip() and not line.startswith("#")]

    def test_the_module_has_every_function(self):
        self.assertGreater(len(self.names), 70)
        self.assertEqual([name for name in self.names if not callable(getattr(low, name, None))], [])

    def test_the_package_uses_every_function(self):
        text = ""
        folder = os.path.join(SOURCE, "bindings/python/libddp")
        for name in os.listdir(folder):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    text += file.read()
        used = set(re.findall(r"low\.(ddp_\w+)", text))
        self.assertEqual([name for name in self.names if name not in used and name not in NOT_USED], [])
        self.assertEqual(sorted(used & NOT_USED.keys()), [])

    def test_the_documentation_came_along(self):
        self.assertIn("the order of the forward computation", low.ddp_model_add_parameter.__doc__)

    def test_what_is_published_is_explained_and_annotated(self):
        for name in libddp.__all__:
            thing = getattr(libddp, name)
            self.assertTrue(inspect.getdoc(thing), name)
            if not inspect.isclass(thing):
                continue
            for part, value in vars(thing).items():
                function = value.fget if isinstance(value, property) else value
                if part.startswith("_") or not inspect.isfunction(function) or function.__module__.startswith("enum"):
                    continue
                self.assertTrue(function.__doc__, f"{name}.{part}")
                self.assertIn("return", function.__annotations__, f"{name}.{part}")


if __name__ == "__main__":
    main()
