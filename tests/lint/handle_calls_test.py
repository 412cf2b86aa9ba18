# SPDX-License-Identifier: Apache-2.0
"""tests/support/handle_calls.hpp calls every public function that takes a handle; a fork is tested with that list."""
import re

import declarations
import tree

PATH = "tests/support/handle_calls.hpp"
api = declarations.load()
kinds = set(api.handles) | {"ddp_state"}  # ddp_state names a model
called = re.findall(r"DDP_(?:CALL|DESTROY|HOOK)\((ddp_\w+),", tree.read(PATH))
takes = {function.name for function in api.functions
         for parameter in function.parameters if re.fullmatch(r"(?:const )?(\w+) \*", parameter.type) and
         re.search(r"(\w+) \*", parameter.type).group(1) in kinds} - {"ddp_state_init"}
problems = [f"{PATH}: {name} takes a handle and is not called; add it" for name in sorted(takes - set(called))]
problems += [f"{PATH}: {name} takes no handle, or is no public function" for name in sorted(set(called) - takes)]
problems += [f"{PATH}: {name} is there twice" for name in sorted({name for name in called if called.count(name) > 1})]
if len(takes) < 80:
    problems.append(f"only {len(takes)} functions with handles were found in the headers; this test reads them wrongly")
tree.verdict(problems, f"{len(takes)} functions that take a handle")
